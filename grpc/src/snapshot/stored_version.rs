//! The form in which etcd stores a version of a key: the position as key, the message as value.

use prost::Message;
use revstore_engine::{KeyValue, Revision};
use revstore_proto::mvccpb;

use crate::encode::codec::Encode;
use crate::encode::response::KeyValueMessage;

/// The length of the key of a version that is not a tombstone.
pub(crate) const POSITION_BYTES: usize = 17;

/// The last byte of the key of a tombstone.
pub(crate) const TOMBSTONE_SUFFIX: u8 = b't';

/// Returns the length of the key of a version.
pub(super) fn key_len(version: &KeyValue) -> usize {
    POSITION_BYTES + usize::from(version.is_tombstone())
}

/// Appends the key of a version: its position, and a suffix if it is a tombstone.
pub(super) fn write_key(version: &KeyValue, buffer: &mut Vec<u8>) {
    let position = version.position();
    write_position(position.revision, u64::from(position.sub), buffer);
    if version.is_tombstone() {
        buffer.push(TOMBSTONE_SUFFIX);
    }
}

/// Appends a position: revision and sub-revision, big-endian, with `_` between them.
pub(super) fn write_position(revision: Revision, sub: u64, buffer: &mut Vec<u8>) {
    buffer.extend(revision.0.to_be_bytes());
    buffer.push(b'_');
    buffer.extend(sub.to_be_bytes());
}

/// Returns the length of the value of a version.
pub(super) fn value_len(version: &KeyValue) -> usize {
    if version.is_tombstone() {
        tombstone(version).encoded_len()
    } else {
        KeyValueMessage::from(version).encoded_len()
    }
}

/// Appends the value of a version: the encoded `mvccpb.KeyValue`, with the key only if the version
/// is a tombstone.
pub(super) fn write_value(version: &KeyValue, buffer: &mut Vec<u8>) {
    if version.is_tombstone() {
        tombstone(version).encode_raw(buffer);
    } else {
        KeyValueMessage::from(version).encode(buffer);
    }
}

fn tombstone(version: &KeyValue) -> mvccpb::KeyValue {
    mvccpb::KeyValue {
        key: version.key_bytes(),
        ..mvccpb::KeyValue::default()
    }
}
