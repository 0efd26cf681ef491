//! Messages in the frames of a body.

use bytes::{Bytes, BytesMut};
use revstore_grpc::{MessagePrefix, intercept};

/// Collects messages from frames. A message that a frame contains is not copied.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// The last frame, unless a message began in an earlier one.
    frame: Bytes,
    /// The start of a message, and all frames after it.
    partial: BytesMut,
}

/// A message with its prefix.
#[derive(Clone, Debug)]
pub(super) struct Message(pub(super) Bytes);

/// The message is longer than the limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct TooLong;

impl Message {
    /// Returns a message that is whole in these bytes, or begins with them.
    pub(super) fn of(bytes: &Bytes) -> Option<Self> {
        (bytes.len() >= MessagePrefix::BYTES).then(|| Self(bytes.clone()))
    }

    /// Returns the bytes after the prefix, decompressed. `None` if that is impossible.
    pub(super) fn content(&self, bytes_max: usize) -> Option<Bytes> {
        let content = self.0.slice(MessagePrefix::BYTES..);
        if self.0[0] == 0 {
            return Some(content);
        }
        intercept::decompress(&content, bytes_max)
    }
}

impl Messages {
    /// Adds a frame.
    pub(super) fn push(&mut self, frame: Bytes) {
        if self.is_empty() {
            self.frame = frame;
            return;
        }
        self.partial
            .extend_from_slice(&std::mem::take(&mut self.frame));
        self.partial.extend_from_slice(&frame);
    }

    /// Returns whether no message has begun.
    pub(super) fn is_empty(&self) -> bool {
        self.frame.is_empty() && self.partial.is_empty()
    }

    /// Returns the next message, if it has arrived.
    pub(super) fn next(&mut self, bytes_max: usize) -> Result<Option<Message>, TooLong> {
        let arrived = if self.partial.is_empty() {
            &self.frame[..]
        } else {
            &self.partial[..]
        };
        let Some(prefix) = arrived.first_chunk() else {
            return Ok(None);
        };
        let length = MessagePrefix::parse(*prefix).length as usize;
        if length > bytes_max {
            return Err(TooLong);
        }
        let length = MessagePrefix::BYTES + length;
        if arrived.len() < length {
            return Ok(None);
        }
        if self.partial.is_empty() {
            return Ok(Some(Message(self.frame.split_to(length))));
        }
        let message = self.partial.split_to(length).freeze();
        self.frame = self.partial.split().freeze();
        Ok(Some(Message(message)))
    }

    /// Returns what has arrived of a message that does not end.
    pub(super) fn rest(&mut self) -> Bytes {
        if self.partial.is_empty() {
            return std::mem::take(&mut self.frame);
        }
        self.partial.split().freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_in_frames_of_any_size() {
        let bytes = b"\0\0\0\0\x02ab\0\0\0\0\0\0\0\0\0\x03cde\0\0\0";
        for size in 1..=bytes.len() {
            let (mut messages, mut found) = (Messages::default(), Vec::new());
            for frame in bytes.chunks(size) {
                messages.push(Bytes::copy_from_slice(frame));
                while let Some(message) = messages.next(3).unwrap() {
                    found.push(message.content(3).unwrap());
                }
            }
            assert_eq!(found, [&b"ab"[..], b"", b"cde"], "{size}");
            assert_eq!(messages.rest(), &b"\0\0\0"[..]);
            assert!(messages.is_empty());
        }
        let mut messages = Messages::default();
        messages.push(Bytes::from_static(b"\0\0\0\0\x04a"));
        assert!(messages.next(3).is_err());
    }
}
