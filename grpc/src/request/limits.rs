//! Limits on what a client may send.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tonic::Status;

use crate::status;

/// What etcd adds to the request limit for messages on the wire (LI-2).
const MESSAGE_ALLOWANCE_BYTES: usize = 512 * 1024;

/// What a proposal adds to the request that it carries (LI-1).
const PROPOSAL_OVERHEAD_BYTES: usize = 18;

/// How much a client may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest write, in bytes (LI-1). Messages may be 512 KiB larger (LI-2), and so may the
    /// pieces of a fragmented watch response (WA-36).
    pub request_bytes_max: usize,
    /// The longest list in a transaction (TXN-1).
    pub txn_ops_max: usize,
    /// The history above which nothing is written any more, in bytes; none at all if not given
    /// (MT-11).
    pub quota_bytes: Option<u64>,
}

impl Default for Limits {
    /// etcd's: 1.5 MiB, 128 operations, 2 GiB.
    fn default() -> Self {
        Self {
            request_bytes_max: 1_572_864,
            txn_ops_max: 128,
            quota_bytes: Some(2 * 1024 * 1024 * 1024),
        }
    }
}

impl Limits {
    /// The largest message on the wire: 512 KiB more than [`Limits::request_bytes_max`].
    // LI-2.
    pub fn message_bytes_max(&self) -> usize {
        self.request_bytes_max
            .saturating_add(MESSAGE_ALLOWANCE_BYTES)
    }

    /// Whether a request of this size may be proposed (LI-1).
    pub(crate) fn admit(&self, request_bytes: usize) -> bool {
        request_bytes.saturating_add(PROPOSAL_OVERHEAD_BYTES) <= self.request_bytes_max
    }
}

/// A request body that ends in an error at the first message above the limit, before any of it is
/// buffered (LI-2). tonic has such a limit too, but answers with another code and text.
#[derive(Debug)]
pub(crate) struct LimitedBody<B> {
    inner: B,
    messages: Messages,
}

/// The position in a sequence of messages, each of which is a flag, a length and that many bytes.
#[derive(Debug)]
struct Messages {
    bytes_max: usize,
    prefix: [u8; PREFIX_BYTES],
    /// Bytes of the prefix that are known.
    prefix_len: usize,
    /// Bytes of the present message that are still to come.
    left: usize,
}

/// One byte says whether the message is compressed, four how long it is.
const PREFIX_BYTES: usize = 5;

impl<B> LimitedBody<B> {
    pub(crate) fn new(inner: B, bytes_max: usize) -> Self {
        let messages = Messages {
            bytes_max,
            prefix: [0; PREFIX_BYTES],
            prefix_len: 0,
            left: 0,
        };
        Self { inner, messages }
    }
}

impl Messages {
    /// Moves on over some bytes; fails with the size of a message that is too large.
    fn pass(&mut self, mut data: &[u8]) -> Result<(), usize> {
        while !data.is_empty() {
            if self.left > 0 {
                let passed = self.left.min(data.len());
                self.left -= passed;
                data = &data[passed..];
                continue;
            }
            let known = (PREFIX_BYTES - self.prefix_len).min(data.len());
            self.prefix[self.prefix_len..][..known].copy_from_slice(&data[..known]);
            self.prefix_len += known;
            data = &data[known..];
            if self.prefix_len == PREFIX_BYTES {
                let [_compressed, length @ ..] = self.prefix;
                let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
                if length > self.bytes_max {
                    return Err(length);
                }
                (self.prefix_len, self.left) = (0, length);
            }
        }
        Ok(())
    }
}

impl<B> Body for LimitedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<tonic::codegen::StdError>,
{
    type Data = Bytes;
    type Error = tonic::codegen::StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = match Pin::new(&mut self.inner).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => frame,
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error.into()))),
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Pending => return Poll::Pending,
        };
        if let Some(Err(bytes)) = frame.data_ref().map(|data| self.messages.pass(data)) {
            let refused: Status = status::message_too_large(bytes, self.messages.bytes_max);
            // tonic hands a status that it finds in a body on to the client.
            return Poll::Ready(Some(Err(Box::new(refused))));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::{LimitedBody, Limits};

    fn check(bytes_max: usize, data: &[u8], expected: Result<(), usize>) {
        let mut whole = LimitedBody::new((), bytes_max).messages;
        assert_eq!(whole.pass(data), expected, "{data:?} at once");
        let mut bytewise = LimitedBody::new((), bytes_max).messages;
        let passed = data.iter().try_for_each(|byte| bytewise.pass(&[*byte]));
        assert_eq!(passed, expected, "{data:?} byte by byte");
    }

    #[test]
    fn li_2_a_message_is_too_large_from_its_prefix_on() {
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
    fn li_1_eighteen_bytes_belong_to_the_proposal() {
        let limits = Limits::default();
        assert!(limits.admit(1_572_846) && !limits.admit(1_572_847));
        assert!(!limits.admit(usize::MAX));
        assert_eq!(limits.message_bytes_max(), 2_097_152);
    }
}
