//! The bodies of requests.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;

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
    Copied(Box<RequestBody>, BodyCopy),
}

/// A copy of the bytes that are read of a body, which shares no memory with it. Clones share it.
#[derive(Clone, Debug)]
pub struct BodyCopy(Arc<Mutex<Copied>>);

/// Guarded by a leaf lock, which is held to append or to take the bytes.
#[derive(Debug)]
struct Copied {
    bytes: Vec<u8>,
    bytes_max: usize,
    is_larger: bool,
    has_ended: bool,
}

/// What was read of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyRead {
    /// All of it.
    Whole(Bytes),
    /// More than the copy may have.
    Larger,
    /// Not all of it.
    Part,
}

impl BodyCopy {
    /// Returns an empty copy of at most `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self(Arc::new(Mutex::new(Copied {
            bytes: Vec::new(),
            bytes_max,
            is_larger: false,
            has_ended: false,
        })))
    }

    /// Takes what was read.
    pub fn take(&self) -> BodyRead {
        let mut copied = self.0.lock();
        match (copied.is_larger, copied.has_ended) {
            (true, _) => BodyRead::Larger,
            (false, true) => {
                let bytes = std::mem::take(&mut copied.bytes).into_boxed_slice();
                BodyRead::Whole(bytes.into())
            }
            (false, false) => BodyRead::Part,
        }
    }

    fn append(&self, bytes: &[u8]) {
        let mut copied = self.0.lock();
        if copied.is_larger || copied.bytes.len() + bytes.len() > copied.bytes_max {
            copied.is_larger = true;
            copied.bytes = Vec::new();
            return;
        }
        copied.bytes.extend_from_slice(bytes);
    }

    fn set_ended(&self) {
        self.0.lock().has_ended = true;
    }
}

impl RequestBody {
    /// Returns a body with these bytes, for requests that a program makes to a service of its own.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Self(Source::Full(
            Some(bytes.into()).filter(|bytes| !bytes.is_empty()),
        ))
    }

    /// Returns this body, of which what is read is also copied.
    #[must_use]
    pub fn copied_to(self, copy: BodyCopy) -> Self {
        if self.is_end_stream() {
            copy.set_ended();
            return self;
        }
        Self(Source::Copied(Box::new(self), copy))
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
            Source::Copied(body, copy) => {
                let polled = Pin::new(&mut **body).poll_frame(context);
                match &polled {
                    Poll::Ready(Some(Ok(frame))) => {
                        copy.append(frame.data_ref().map_or(&[], |data| data));
                        if body.is_end_stream() {
                            copy.set_ended();
                        }
                    }
                    Poll::Ready(None) => copy.set_ended(),
                    Poll::Ready(Some(Err(_))) | Poll::Pending => {}
                }
                polled
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Http1(body, _) => body.as_ref().is_none_or(Body::is_end_stream),
            Source::Http2(body) => body.is_end_stream(),
            Source::Full(bytes) => bytes.is_none(),
            Source::Copied(body, _) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Http1(Some(body), _) => body.size_hint(),
            Source::Copied(body, _) => body.size_hint(),
            Source::Http2(body) if !body.is_end_stream() => SizeHint::default(),
            Source::Full(Some(bytes)) => SizeHint::with_exact(bytes.len() as u64),
            Source::Http1(None, _) | Source::Http2(_) | Source::Full(None) => {
                SizeHint::with_exact(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn a_copy_has_what_was_read_of_a_body() {
        for (bytes, expected) in [
            (&b""[..], BodyRead::Whole(Bytes::new())),
            (b"four", BodyRead::Whole("four".into())),
            (b"fives", BodyRead::Larger),
        ] {
            let copy = BodyCopy::new(4);
            let body = RequestBody::full(bytes).copied_to(copy.clone());
            if !bytes.is_empty() {
                assert_eq!(copy.take(), BodyRead::Part);
            }
            let read = body.collect().await.unwrap().to_bytes();
            assert_eq!((read, copy.take()), (bytes.into(), expected));
        }
    }
}
