//! Frames: a length, a checksum, and as many bytes.

use std::io::{self, Read};

/// The first bytes of each file.
pub(crate) const MAGIC: &[u8; 8] = b"revstore";

/// The length of a frame without its body: the length of the body and its CRC-32C.
pub(crate) const FRAME_HEADER_BYTES: usize = 8;

/// Encodes frames into a buffer.
#[derive(Debug, Default)]
pub(crate) struct FrameWriter {
    pub(crate) bytes: Vec<u8>,
}

impl FrameWriter {
    /// Adds a frame, whose body `write` encodes. A body that does not fit into a frame is not produced:
    /// the parts of a revision are split, and the engine bounds keys and values.
    pub(crate) fn frame(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        self.bytes.extend([0; FRAME_HEADER_BYTES]);
        write(&mut self.bytes);
        let body = &self.bytes[start + FRAME_HEADER_BYTES..];
        let len = u32::try_from(body.len()).expect("a body of less than 4 GiB");
        let checksum = crc32c::crc32c(body);
        self.bytes[start..start + 4].copy_from_slice(&len.to_le_bytes());
        self.bytes[start + 4..start + 8].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Reads frames from a file.
#[derive(Debug)]
pub(crate) struct FrameReader<R> {
    reader: R,
    offset: u64,
    len: u64,
}

impl<R: Read> FrameReader<R> {
    /// Reads frames of a file of `len` bytes, after the first [`MAGIC`] ones. Returns `None` if these are
    /// others.
    pub(crate) fn new(mut reader: R, len: u64) -> io::Result<Option<Self>> {
        let mut magic = [0; MAGIC.len()];
        let offset = MAGIC.len() as u64;
        if len < offset {
            return Ok(None);
        }
        reader.read_exact(&mut magic)?;
        let frames = Self {
            reader,
            offset,
            len,
        };
        Ok((magic == *MAGIC).then_some(frames))
    }

    /// Returns the offset of the next frame.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.offset == self.len
    }

    /// Reads the body of the next frame. Returns `false`, and stays before the frame, if it is not
    /// complete or its checksum is wrong. No more can be read then.
    pub(crate) fn read(&mut self, body: &mut Vec<u8>) -> io::Result<bool> {
        let left = self.len - self.offset;
        if left < FRAME_HEADER_BYTES as u64 {
            return Ok(false);
        }
        let mut header = [0; FRAME_HEADER_BYTES];
        self.reader.read_exact(&mut header)?;
        let [a, b, c, d, checksum @ ..] = header;
        let len = u32::from_le_bytes([a, b, c, d]);
        let end = u64::from(len) + FRAME_HEADER_BYTES as u64;
        if len == 0 || end > left {
            return Ok(false);
        }
        body.clear();
        body.resize(len as usize, 0);
        self.reader.read_exact(body)?;
        if crc32c::crc32c(body) != u32::from_le_bytes(checksum) {
            return Ok(false);
        }
        self.offset += end;
        Ok(true)
    }
}
