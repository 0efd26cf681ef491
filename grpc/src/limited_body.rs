//! The bodies of requests, with a limit on the size of their messages.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tonic::codegen::StdError;

use crate::compression::Decompressor;
use crate::prefix::{MessagePrefix, PrefixReader};
use crate::status;

/// A request body that returns an error at the prefix of the first message above the limit, before the message is
/// buffered (LI-2), or of one with an invalid flag (LI-13). tonic also checks both, but its errors have other codes and
/// texts. Compressed messages are decompressed.
#[derive(Debug)]
pub(crate) struct LimitedBody<B> {
    inner: B,
    prefixes: PrefixReader,
    bytes_max: usize,
    /// `None` if messages cannot be compressed.
    decompressor: Option<Box<Decompressor>>,
}

impl<B> LimitedBody<B> {
    /// `is_compressed` says whether messages may be compressed.
    pub(crate) fn new(inner: B, bytes_max: usize, is_compressed: bool) -> Self {
        Self {
            inner,
            prefixes: PrefixReader::default(),
            bytes_max,
            decompressor: is_compressed.then(|| Box::new(Decompressor::new(bytes_max))),
        }
    }

    /// Checks the prefixes in these bytes, up to an invalid one.
    fn check(&mut self, mut data: &[u8]) -> Result<(), InvalidPrefix> {
        let flag_max = u8::from(self.decompressor.is_some());
        while let Some(MessagePrefix { flag, length }) = self.prefixes.next(&mut data) {
            let length = length as usize;
            if length > self.bytes_max {
                return Err(InvalidPrefix::TooLarge(length));
            }
            if flag > flag_max {
                return Err(InvalidPrefix::Flag(flag));
            }
        }
        Ok(())
    }
}

/// The prefix of a message is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InvalidPrefix {
    /// The message has this length.
    TooLarge(usize),
    Flag(u8),
}

impl<B> Body for LimitedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<StdError>,
{
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.decompressor.is_some() {
            return self.poll_decompressed(context);
        }
        self.poll_checked(context)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream() && (self.decompressor.as_ref()).is_none_or(|it| it.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        if self.decompressor.is_some() {
            return SizeHint::default();
        }
        self.inner.size_hint()
    }
}

impl<B> LimitedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<StdError>,
{
    /// Polls for a frame of the client, and checks the prefixes in it.
    fn poll_checked(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let frame = match Pin::new(&mut self.inner).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => frame,
            Poll::Ready(Some(Err(error))) => {
                let status = status::client_disconnected(error.into());
                return Poll::Ready(Some(Err(Box::new(status))));
            }
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Pending => return Poll::Pending,
        };
        if let Some(Err(invalid)) = frame.data_ref().map(|data| self.check(data)) {
            let status = match invalid {
                InvalidPrefix::TooLarge(bytes) => status::message_too_large(bytes, self.bytes_max),
                InvalidPrefix::Flag(flag) => status::invalid_flag(flag),
            };
            // If the error of a body is a status, tonic sends it to the client.
            return Poll::Ready(Some(Err(Box::new(status))));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    /// Polls for the next message, decompressed.
    #[cold]
    fn poll_decompressed(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        while let Some(decompressor) = &mut self.decompressor {
            match decompressor.next() {
                Ok(Some(message)) => return Poll::Ready(Some(Ok(Frame::data(message)))),
                Ok(None) => {}
                Err(status) => return Poll::Ready(Some(Err(Box::new(status)))),
            }
            let frame = match self.poll_checked(context) {
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(None) => {
                    // A part of a message, which tonic rejects.
                    let rest = self.decompressor.take().map(|mut it| it.rest());
                    let rest = rest.filter(|rest| !rest.is_empty());
                    return Poll::Ready(rest.map(|rest| Ok(Frame::data(rest))));
                }
                polled => return polled,
            };
            match (&mut self.decompressor, frame.data_ref()) {
                (Some(decompressor), Some(data)) => decompressor.push(data),
                _ => return Poll::Ready(Some(Ok(frame))),
            }
        }
        Poll::Ready(None)
    }
}

#[cfg(test)]
mod tests {
    use super::{InvalidPrefix, LimitedBody};

    fn check(bytes_max: usize, data: &[u8], expected: Result<(), usize>) {
        check_prefixes(bytes_max, data, expected.map_err(InvalidPrefix::TooLarge));
    }

    fn check_prefixes(bytes_max: usize, data: &[u8], expected: Result<(), InvalidPrefix>) {
        let mut whole = LimitedBody::new((), bytes_max, true);
        assert_eq!(whole.check(data), expected, "{data:?} at once");
        let mut bytewise = LimitedBody::new((), bytes_max, true);
        let parsed = data.iter().try_for_each(|byte| bytewise.check(&[*byte]));
        assert_eq!(parsed, expected, "{data:?} byte by byte");
    }

    #[test]
    fn li_2_a_large_message_is_rejected_at_its_prefix() {
        check(3, b"", Ok(()));
        check(3, b"\0\0\0\0\x03abc", Ok(()));
        check(3, b"\0\0\0\0\x04", Err(4));
        check(
            3,
            b"\0\0\0\0\0\0\0\0\0\x02ab\x01\x01\0\0\0",
            Err(0x0100_0000),
        );
        check(0, b"\0\xff\xff\xff\xff", Err(0xffff_ffff));
        check(3, b"\0\0\0", Ok(()));
    }

    #[test]
    fn li_13_an_invalid_flag_is_rejected() {
        check_prefixes(3, b"\x02\0\0\0\0", Err(InvalidPrefix::Flag(2)));
        let mut plain = LimitedBody::new((), 3, false);
        assert_eq!(plain.check(b"\0\0\0\0\0"), Ok(()));
        assert_eq!(plain.check(b"\x01\0\0\0\0"), Err(InvalidPrefix::Flag(1)));
    }
}
