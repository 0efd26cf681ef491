//! The bodies of requests.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::net::{BoxError, http2::StreamBody};

/// The body of a request over HTTP/1.1 or HTTP/2.
///
/// A body that is dropped before its end does not end the connection: the client gets the response, and some more of
/// the body is read and discarded.
#[derive(Debug)]
pub struct RequestBody(Source);

#[derive(Debug)]
enum Source {
    Http1(Incoming),
    Http2(StreamBody),
}

impl RequestBody {
    pub(super) fn from_incoming(body: Incoming) -> Self {
        Self(Source::Http1(body))
    }

    pub(super) fn from_stream(body: StreamBody) -> Self {
        Self(Source::Http2(body))
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
            Source::Http1(body) => Pin::new(body).poll_frame(context).map_err(Into::into),
            Source::Http2(body) => body.poll_next(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Http1(body) => body.is_end_stream(),
            Source::Http2(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Http1(body) => body.size_hint(),
            Source::Http2(body) if body.is_end_stream() => SizeHint::with_exact(0),
            Source::Http2(_) => SizeHint::default(),
        }
    }
}
