//! The prefixes of gRPC messages: a flag for the compression, then the length of the message.

/// The prefix of a gRPC message.
///
/// ```
/// use revstore_grpc::MessagePrefix;
/// let prefix = MessagePrefix { flag: 0, length: 260 };
/// assert_eq!(prefix.to_bytes(), [0, 0, 0, 1, 4]);
/// assert_eq!(MessagePrefix::parse([0, 0, 0, 1, 4]), prefix);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessagePrefix {
    /// 1 if the message is compressed, 0 if it is not. Other values are invalid.
    pub flag: u8,
    /// The length of the message in bytes.
    pub length: u32,
}

impl MessagePrefix {
    /// The length of a prefix.
    pub const BYTES: usize = 5;

    /// Decodes a prefix.
    #[inline]
    pub fn parse(prefix: [u8; Self::BYTES]) -> Self {
        let [flag, length @ ..] = prefix;
        Self {
            flag,
            length: u32::from_be_bytes(length),
        }
    }

    /// Encodes the prefix.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let [l0, l1, l2, l3] = self.length.to_be_bytes();
        [self.flag, l0, l1, l2, l3]
    }
}

/// A reader of the prefixes in a sequence of messages, whose bytes arrive in pieces. It keeps nothing of the messages.
///
/// ```
/// use revstore_grpc::PrefixReader;
/// let mut prefixes = PrefixReader::default();
/// let mut piece: &[u8] = b"\0\0\0\0\x02ab\0\0";
/// assert_eq!(prefixes.next(&mut piece).unwrap().length, 2);
/// assert_eq!(prefixes.next(&mut piece), None);
/// piece = b"\0\0\x01c";
/// assert_eq!(prefixes.next(&mut piece).unwrap().length, 1);
/// assert_eq!((prefixes.next(&mut piece), piece), (None, &b""[..]));
/// ```
#[derive(Debug, Default)]
pub struct PrefixReader {
    prefix: [u8; MessagePrefix::BYTES],
    /// The number of bytes of `prefix` that have arrived.
    prefix_length: usize,
    /// The number of bytes of the current message that have not arrived.
    message: usize,
}

impl PrefixReader {
    /// Advances `bytes` behind the next prefix that ends in them, and returns it. Without one, advances to the end.
    #[inline]
    pub fn next(&mut self, bytes: &mut &[u8]) -> Option<MessagePrefix> {
        let skipped = self.message.min(bytes.len());
        self.message -= skipped;
        let (_, arrived) = bytes.split_at(skipped);
        let taken = (MessagePrefix::BYTES - self.prefix_length).min(arrived.len());
        let (prefix, rest) = arrived.split_at(taken);
        self.prefix[self.prefix_length..][..taken].copy_from_slice(prefix);
        self.prefix_length += taken;
        *bytes = rest;
        if self.prefix_length < MessagePrefix::BYTES {
            return None;
        }
        self.prefix_length = 0;
        let prefix = MessagePrefix::parse(self.prefix);
        self.message = prefix.length as usize;
        Some(prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads prefixes from pieces of all sizes.
    fn check(bytes: &[u8], expected: &[(u8, u32)]) {
        for size in 1..=bytes.len().max(1) {
            let (mut reader, mut prefixes) = (PrefixReader::default(), Vec::new());
            for mut piece in bytes.chunks(size) {
                while let Some(MessagePrefix { flag, length }) = reader.next(&mut piece) {
                    prefixes.push((flag, length));
                }
                assert!(piece.is_empty());
            }
            assert_eq!(prefixes, expected, "{bytes:?} in pieces of {size}");
        }
    }

    #[test]
    fn prefixes_are_read_from_pieces_of_any_size() {
        check(b"", &[]);
        check(b"\0\0\0\0", &[]);
        check(b"\0\0\0\0\0", &[(0, 0)]);
        check(
            b"\0\0\0\0\x02ab\x01\0\0\0\0\x02\0\0\0\x01",
            &[(0, 2), (1, 0), (2, 1)],
        );
        check(b"\0\xff\xff\xff\xffabc", &[(0, u32::MAX)]);
    }
}
