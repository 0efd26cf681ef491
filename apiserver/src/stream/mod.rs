//! Lists in all encodings, made piece by piece while the client reads them, on threads of their own.
//!
//! The cache writes compact JSON. Other encodings are made of its pieces, so that their memory does not grow with the
//! list.

mod gzip;
mod pretty;
mod protobuf;
mod splitter;
#[cfg(test)]
mod tests;
mod worker;
mod yaml;

use bytes::Bytes;
use revstore_watch_cache::RequestError;

pub(crate) use gzip::{GzipPieces, SIZE_MIN};
pub(crate) use pretty::{PrettyPieces, indented};
pub(crate) use protobuf::ProtobufPieces;
pub(crate) use worker::Workers;
pub(crate) use yaml::YamlPieces;

/// The pieces of a list. An empty one means that there is nothing yet. After an error there are no further ones.
pub(crate) type Pieces = Box<dyn Iterator<Item = Result<Bytes, RequestError>> + Send>;

/// The size in bytes that a piece approaches.
const PIECE_BYTES: usize = 32 << 10;

/// Returns the error of JSON that the cache has written.
fn internal(error: impl std::fmt::Display) -> RequestError {
    RequestError::Internal(error.to_string())
}
