//! Bodies of responses in memory, decompressed, up to a limit.

use std::io::{self, Write};
use std::mem;

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use http::{HeaderMap, header};

/// The body of a response that is being received.
pub(crate) struct BodyBuffer {
    content: Content,
}

enum Content {
    Plain(Limited),
    Gzip(Box<MultiGzDecoder<Limited>>),
}

/// Bytes up to a limit.
struct Limited {
    bytes: Vec<u8>,
    max: usize,
}

/// The error of a body.
#[derive(Debug)]
pub(crate) enum BodyError {
    /// The body is larger than the limit, decompressed.
    TooLarge,
    /// The compressed data is damaged, or ends too early.
    Gzip(io::Error),
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.max - self.bytes.len() < bytes.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn body_error(error: io::Error) -> BodyError {
    match error.kind() {
        io::ErrorKind::StorageFull => BodyError::TooLarge,
        _ => BodyError::Gzip(error),
    }
}

impl BodyBuffer {
    /// Creates the buffer of a response with these headers. Fails with an encoding that was not asked
    /// for.
    pub(crate) fn new(headers: &HeaderMap, max: usize) -> Result<Self, String> {
        let limited = Limited {
            bytes: Vec::new(),
            max,
        };
        let content = match encoding(headers)? {
            Encoding::Identity => Content::Plain(limited),
            Encoding::Gzip => Content::Gzip(Box::new(MultiGzDecoder::new(limited))),
        };
        Ok(Self { content })
    }

    /// Adds received bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), BodyError> {
        let written = match &mut self.content {
            Content::Plain(plain) => plain.write_all(bytes),
            Content::Gzip(decoder) => decoder.write_all(bytes),
        };
        written.map_err(body_error)
    }

    /// Returns what can be decompressed of the bytes that were received.
    pub(crate) fn received(self) -> Bytes {
        let limited = match self.content {
            Content::Plain(plain) => plain,
            Content::Gzip(mut decoder) => {
                // An error is that of what is missing.
                let _ = decoder.try_finish();
                Limited {
                    bytes: mem::take(&mut decoder.get_mut().bytes),
                    max: 0,
                }
            }
        };
        limited.bytes.into()
    }

    /// Returns the body after its end was received.
    pub(crate) fn finish(self) -> Result<Bytes, BodyError> {
        let limited = match self.content {
            Content::Plain(plain) => plain,
            Content::Gzip(decoder) => decoder.finish().map_err(body_error)?,
        };
        Ok(limited.bytes.into())
    }
}

/// How a response is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Identity,
    Gzip,
}

/// Returns the encoding of a response, or what an error says of another one.
pub(crate) fn encoding(headers: &HeaderMap) -> Result<Encoding, String> {
    let Some(encoding) = headers.get(header::CONTENT_ENCODING) else {
        return Ok(Encoding::Identity);
    };
    match encoding.as_bytes() {
        encoding if encoding.eq_ignore_ascii_case(b"identity") => Ok(Encoding::Identity),
        encoding if encoding.eq_ignore_ascii_case(b"gzip") => Ok(Encoding::Gzip),
        _ => Err(format!("a response is encoded as {encoding:?}")),
    }
}
