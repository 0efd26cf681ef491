//! Messages as a program sees them that stands between clients and the services: for faults, journals and lists.
//!
//! A message is what follows its prefix. `keys.rs` reads requests, `effects.rs` what a response says about its request,
//! `watch.rs` the messages of watch streams; `restarts.rs` lets watches continue from the history.

mod effects;
mod keys;
mod restarts;
mod watch;

use bytes::Bytes;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

pub use effects::{granted_lease, has_written, with_lease};
pub use keys::request_keys;
pub use restarts::{WatchRestart, WatchRestarts};
pub use watch::{
    WatchRequestInfo, WatchResponseInfo, cancel_request, compacted_response, progress_request,
    progress_response,
};

use crate::compression;
use crate::prefix::MessagePrefix;

/// Returns the revision in the header of a response, which begins with its header. `None` if it has none.
pub fn response_revision(message: &[u8]) -> Option<i64> {
    let mut rest = message;
    let (field, wire_type) = decode_key(&mut rest).ok()?;
    if field != 1 || wire_type != WireType::LengthDelimited {
        return None;
    }
    let length = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
    Some(header_revision(rest.get(..length)?))
}

/// Returns the lease in a keep-alive request.
pub fn keep_alive_lease(message: &[u8]) -> Option<i64> {
    varint_field(message, 1).map(u64::cast_signed)
}

/// Decompresses a message with the flag 1, up to `bytes_max` bytes. `None` if it is malformed or larger.
pub fn decompress(message: &[u8], bytes_max: usize) -> Option<Bytes> {
    let decompressed = compression::decompress(message, bytes_max).ok()?;
    Some(decompressed.slice(MessagePrefix::BYTES..))
}

fn header_revision(header: &[u8]) -> i64 {
    varint_field(header, 3).map_or(0, u64::cast_signed)
}

/// Returns the last value of a varint field.
fn varint_field(mut message: &[u8], number: u32) -> Option<u64> {
    let mut value = None;
    while !message.is_empty() {
        let (field, wire_type) = decode_key(&mut message).ok()?;
        if field == number && wire_type == WireType::Varint {
            value = Some(decode_varint(&mut message).ok()?);
        } else {
            skip_field(wire_type, field, &mut message, DecodeContext::default()).ok()?;
        }
    }
    value
}
