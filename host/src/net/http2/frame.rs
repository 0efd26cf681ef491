//! The frames of HTTP/2: their headers, which the layers between the socket and the library read.

/// The first bytes that a client sends.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// Types of frames.
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

/// The flag on the last DATA or HEADERS frame that one side sends on a stream.
pub(crate) const END_STREAM: u8 = 0x1;

/// The flag of the acknowledgement of a ping.
pub(crate) const ACK: u8 = 0x1;

// Flags of HEADERS and CONTINUATION frames.
pub(crate) const END_HEADERS: u8 = 0x4;
pub(crate) const PADDED: u8 = 0x8;
pub(crate) const PRIORITY: u8 = 0x20;

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    /// The length of the payload, less than 2^24.
    pub(crate) length: u32,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    /// The id of the stream, without the reserved bit.
    pub(crate) stream: u32,
}

impl FrameHeader {
    /// The length of a header.
    pub(crate) const BYTES: usize = 9;

    #[inline]
    pub(crate) fn parse(header: [u8; Self::BYTES]) -> Self {
        let [l0, l1, l2, kind, flags, stream @ ..] = header;
        Self {
            length: u32::from_be_bytes([0, l0, l1, l2]),
            kind,
            flags,
            // The highest bit is reserved.
            stream: u32::from_be_bytes(stream) & (u32::MAX >> 1),
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let [_, l0, l1, l2] = self.length.to_be_bytes();
        let [s0, s1, s2, s3] = self.stream.to_be_bytes();
        [l0, l1, l2, self.kind, self.flags, s0, s1, s2, s3]
    }

    /// Returns the length of the frame.
    pub(crate) fn frame_bytes(self) -> usize {
        Self::BYTES + self.length as usize
    }
}

/// A reader of the frame headers in one direction of a connection, whose bytes arrive in pieces.
#[derive(Debug, Default)]
pub(crate) struct FrameReader {
    header: [u8; FrameHeader::BYTES],
    /// The number of bytes of `header` that have arrived.
    header_length: usize,
    /// The number of bytes of the current frame's payload that have not arrived.
    payload: usize,
}

impl FrameReader {
    /// Advances `bytes` behind the next header that ends in them, and returns it. Without one, advances to the end.
    pub(crate) fn next(&mut self, bytes: &mut &[u8]) -> Option<FrameHeader> {
        let skipped = self.payload.min(bytes.len());
        self.payload -= skipped;
        let (_, arrived) = bytes.split_at(skipped);
        let taken = arrived.len().min(FrameHeader::BYTES - self.header_length);
        let (header, rest) = arrived.split_at(taken);
        self.header[self.header_length..][..taken].copy_from_slice(header);
        self.header_length += taken;
        *bytes = rest;
        if self.header_length < FrameHeader::BYTES {
            return None;
        }
        self.header_length = 0;
        let header = FrameHeader::parse(self.header);
        self.payload = header.length as usize;
        Some(header)
    }

    /// Returns the number of bytes to the end of the frame header or the payload.
    pub(crate) fn rest(&self) -> usize {
        match self.header_length {
            0 => self.payload,
            taken => FrameHeader::BYTES - taken,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(length: u32, kind: u8, flags: u8, stream: u32) -> FrameHeader {
        FrameHeader {
            length,
            kind,
            flags,
            stream,
        }
    }

    #[test]
    fn headers_are_encoded_as_they_are_parsed() {
        let bytes = [1, 2, 3, CONTINUATION, END_HEADERS, 0x7f, 4, 5, 6];
        let expected = header(0x0001_0203, CONTINUATION, END_HEADERS, 0x7f04_0506);
        assert_eq!(FrameHeader::parse(bytes), expected);
        assert_eq!(expected.to_bytes(), bytes);
        assert_eq!(expected.frame_bytes(), 9 + 0x0001_0203);
    }

    #[test]
    fn headers_are_read_from_pieces_of_any_size() {
        let bytes = [
            &[0, 0, 0, 4, 0, 0, 0, 0, 0][..],
            &[0, 0, 3, DATA, END_STREAM, 0x80, 0, 0, 1],
            b"abc",
            &[0, 0, 8, PING, ACK, 0, 0, 0, 0],
            b"12345678",
        ]
        .concat();
        let expected = [
            header(0, 4, 0, 0),
            header(3, DATA, END_STREAM, 1),
            header(8, PING, ACK, 0),
        ];
        for size in 1..=bytes.len() {
            let (mut frames, mut headers) = (FrameReader::default(), Vec::new());
            for mut piece in bytes.chunks(size) {
                headers.extend(std::iter::from_fn(|| frames.next(&mut piece)));
                assert!(piece.is_empty());
            }
            assert_eq!(headers, expected, "in pieces of {size}");
            assert_eq!(frames.rest(), 0);
        }
    }
}
