//! The bodies of answers.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use revstore_watch_cache::RequestError;

use crate::metrics::{Recording, Running};

/// The body of an answer: bytes that are there, or chunks that are made when the client reads them.
pub(crate) enum Body {
    /// The bytes; `None` after they were taken.
    Full(Option<Bytes>),
    /// Chunks. The end of the stream is that of the body.
    Chunks(Pin<Box<dyn Chunks>>),
}

/// A source of chunks. Nothing is made before it is asked for, so that a client that reads slowly costs no
/// memory.
pub(crate) trait Chunks: Send {
    /// Returns the next chunk, which is not empty, or `None` at the end. An error ends the connection, because
    /// the status of the answer was sent before.
    fn poll_chunk(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, RequestError>>>;
}

impl Body {
    /// Returns the body with the metrics of its answer, which are recorded when it ends.
    pub(crate) fn recorded(self, mut recording: Recording, running: Option<Running>) -> Self {
        match self {
            Self::Full(bytes) => {
                recording.bytes = bytes.as_ref().map_or(0, Bytes::len);
                Self::Full(bytes)
            }
            Self::Chunks(chunks) => Self::chunks(Recorded {
                chunks,
                recording,
                _running: running,
            }),
        }
    }

    pub(crate) fn empty() -> Self {
        Self::Full(None)
    }

    pub(crate) fn chunks(chunks: impl Chunks + 'static) -> Self {
        Self::Chunks(Box::pin(chunks))
    }
}

/// Chunks whose bytes are counted.
struct Recorded {
    chunks: Pin<Box<dyn Chunks>>,
    recording: Recording,
    _running: Option<Running>,
}

impl Chunks for Recorded {
    fn poll_chunk(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, RequestError>>> {
        let this = self.get_mut();
        let polled = this.chunks.as_mut().poll_chunk(context);
        if let Poll::Ready(Some(Ok(bytes))) = &polled {
            this.recording.bytes += bytes.len();
        }
        polled
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(bytes) => f.debug_tuple("Full").field(bytes).finish(),
            Self::Chunks(_) => f.debug_struct("Chunks").finish_non_exhaustive(),
        }
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        let bytes = bytes.into();
        Self::Full((!bytes.is_empty()).then_some(bytes))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = RequestError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestError>>> {
        let chunk = match self.get_mut() {
            Self::Full(bytes) => Poll::Ready(bytes.take().map(Ok)),
            Self::Chunks(chunks) => chunks.as_mut().poll_chunk(context),
        };
        chunk.map(|chunk| chunk.map(|bytes| bytes.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Full(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Chunks(_) => SizeHint::default(),
        }
    }
}
