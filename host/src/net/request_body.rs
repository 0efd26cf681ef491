//! The bodies of requests.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::net::{BoxError, http1::Leftover, http2::StreamBody};

/// The body of a request over HTTP/1.1 or HTTP/2.
///
/// A body that is dropped before its end does not end the connection: the client gets the response, and some more of
/// the body is read and discarded.
#[derive(Debug)]
pub struct RequestBody(Source);

#[derive(Debug)]
enum Source {
    /// `None` only while it is dropped.
    Http1(Option<Incoming>, Leftover),
    Http2(StreamBody),
    /// `None` after the bytes were taken.
    Full(Option<Bytes>),
}

impl RequestBody {
    /// Returns a body with these bytes, for requests that a program makes to a service of its own.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Self(Source::Full(
            Some(bytes.into()).filter(|bytes| !bytes.is_empty()),
        ))
    }

    /// Returns a body which, if it is dropped before its end, leaves the rest to the connection.
    pub(super) fn from_incoming(body: Incoming, leftover: Leftover) -> Self {
        Self(Source::Http1(Some(body), leftover))
    }

    pub(super) fn from_stream(body: StreamBody) -> Self {
        Self(Source::Http2(body))
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let Source::Http1(body, leftover) = &mut self.0 {
            *leftover.lock() = body.take().filter(|body| !body.is_end_stream());
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.get_mut().0 {
            Source::Http1(Some(body), _) => Pin::new(body).poll_frame(context).map_err(Into::into),
            Source::Http1(None, _) => Poll::Ready(None),
            Source::Http2(body) => body.poll_next(context),
            Source::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Http1(body, _) => body.as_ref().is_none_or(Body::is_end_stream),
            Source::Http2(body) => body.is_end_stream(),
            Source::Full(bytes) => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Http1(Some(body), _) => body.size_hint(),
            Source::Http2(body) if !body.is_end_stream() => SizeHint::default(),
            Source::Full(Some(bytes)) => SizeHint::with_exact(bytes.len() as u64),
            Source::Http1(None, _) | Source::Http2(_) | Source::Full(None) => {
                SizeHint::with_exact(0)
            }
        }
    }
}
