//! Compressed pieces.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use revstore_watch_cache::RequestError;

use super::{PIECE_BYTES, Pieces};

/// The size of an answer from which it is compressed.
pub(crate) const SIZE_MIN: usize = 128 << 10;

/// Compresses pieces.
pub(crate) struct GzipPieces {
    pieces: Pieces,
    /// `None` at the end.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl GzipPieces {
    pub(crate) fn new(pieces: Pieces) -> Self {
        // The level of kube-apiserver: speed matters more than size.
        let encoder = GzEncoder::new(Vec::new(), Compression::fast());
        Self {
            pieces,
            encoder: Some(encoder),
        }
    }
}

impl Iterator for GzipPieces {
    type Item = Result<Bytes, RequestError>;

    fn next(&mut self) -> Option<Self::Item> {
        let encoder = self.encoder.as_mut()?;
        match self.pieces.next() {
            Some(Ok(bytes)) => {
                // Writing to memory does not fail.
                let _ = encoder.write_all(&bytes);
                let ready = encoder.get_mut();
                Some(Ok(if ready.len() >= PIECE_BYTES {
                    std::mem::take(ready).into()
                } else {
                    Bytes::new()
                }))
            }
            Some(Err(error)) => {
                self.encoder = None;
                Some(Err(error))
            }
            None => {
                let rest = self.encoder.take().and_then(|it| it.finish().ok());
                rest.map(|rest| Ok(rest.into()))
            }
        }
    }
}
