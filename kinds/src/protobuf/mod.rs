//! Kubernetes' protobuf: the envelope, and the messages of the kinds in the table as JSON.

mod decode;
mod encode;
pub(crate) mod wire;

use serde_json::Value;

use crate::table::{self, Type};
use wire::{Reader, put_bytes, put_length};

/// The first bytes of every object in protobuf.
pub const MAGIC: &[u8] = b"k8s\0";
/// How many objects and elements of lists and maps a message may contain. Two bytes can stand for an object with many
/// fields.
pub const VALUES_MAX: usize = 1 << 18;

/// Why bytes are no object in Kubernetes' protobuf, or a value has none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    /// The bytes do not begin with [`MAGIC`].
    #[error("provided data does not appear to be a protobuf message, expected prefix {MAGIC:?}")]
    Prefix,
    /// Nothing follows [`MAGIC`].
    #[error("empty body")]
    Empty,
    /// A message, number or length ends after its bytes do.
    #[error("unexpected EOF")]
    Truncated,
    /// A number has more than 64 bits.
    #[error("proto: integer overflow")]
    Overflow,
    /// A field has bytes of another kind than its type.
    #[error("proto: wrong wireType = {wire} for field {field}")]
    WireType {
        /// The name of the field in JSON.
        field: &'static str,
        /// The wire type that there is.
        wire: u8,
    },
    /// A tag with a number or wire type that does not exist.
    #[error("proto: illegal tag {0}")]
    Tag(u64),
    /// The object is of a kind that is not built in.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    Kind {
        /// The `apiVersion` of the object.
        api_version: String,
        /// Its `kind`.
        kind: String,
    },
    /// The content of the envelope is compressed or in another way encoded.
    #[error("unsupported content encoding {0:?}")]
    Encoding(String),
    /// A part of the object that is JSON inside protobuf is not.
    #[error("invalid JSON in field {0}")]
    Json(&'static str),
    /// Messages are nested deeper than [`DEPTH_MAX`](crate::DEPTH_MAX).
    #[error("exceeded max depth")]
    TooDeep,
    /// There are more than [`VALUES_MAX`] objects and elements.
    #[error("too many values")]
    TooMany,
    /// A value to encode does not fit its type: it is not [normalized](crate::normalize).
    #[error("the value of field {0} does not fit its type")]
    Value(&'static str),
}

/// Decodes an object in its envelope. The result is as [`normalize`](crate::normalize) makes it, with `apiVersion` and
/// `kind` from the envelope.
///
/// ```
/// use revstore_kinds::{from_protobuf, to_protobuf};
/// use serde_json::json;
///
/// let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
/// let bytes = to_protobuf(&object).unwrap();
/// assert!(bytes.starts_with(b"k8s\0"));
/// assert_eq!(from_protobuf(&bytes).unwrap(), object);
/// ```
///
/// # Errors
/// If the bytes are no such object, its kind is not built in, or it exceeds a bound.
pub fn from_protobuf(bytes: &[u8]) -> Result<Value, ProtobufError> {
    from_protobuf_as("", "", bytes)
}

/// Decodes an object in its envelope, which has the API version and kind that are given if the envelope has none, or an
/// API version that is malformed.
///
/// # Errors
/// As [`from_protobuf`].
pub fn from_protobuf_as(
    api_version: &str,
    kind: &str,
    bytes: &[u8],
) -> Result<Value, ProtobufError> {
    let mut envelope = Envelope::read(bytes)?;
    if envelope.kind.is_empty() {
        kind.clone_into(&mut envelope.kind);
    }
    if envelope.api_version.is_empty() || envelope.api_version.matches('/').count() > 1 {
        api_version.clone_into(&mut envelope.api_version);
    }
    decode::Decoder::default().envelope(envelope)
}

/// The `apiVersion` and `kind` in an envelope, without a look at the object.
///
/// # Errors
/// If the bytes are no envelope.
pub fn protobuf_kind(bytes: &[u8]) -> Result<(String, String), ProtobufError> {
    Envelope::read(bytes).map(|envelope| (envelope.api_version, envelope.kind))
}

/// Encodes an object of a built-in kind, [normalized](crate::normalize), in its envelope: the bytes are those of Go's
/// encoder.
///
/// # Errors
/// If its kind is not built in, or a value does not fit its type.
pub fn to_protobuf(object: &Value) -> Result<Vec<u8>, ProtobufError> {
    let text = |name| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let message = encode_message(find(api_version, kind)?, object)?;
    Ok(wrap(api_version, kind, &message))
}

/// Decodes a message without an envelope.
///
/// # Errors
/// As [`from_protobuf`].
pub fn decode_message(ty: &'static Type, bytes: &[u8]) -> Result<Value, ProtobufError> {
    decode::Decoder::default().message(ty, bytes)
}

/// Encodes a message without an envelope.
///
/// # Errors
/// As [`to_protobuf`].
pub fn encode_message(ty: &'static Type, value: &Value) -> Result<Vec<u8>, ProtobufError> {
    let mut bytes = Vec::with_capacity(512);
    encode::message(&mut bytes, ty, value, "")?;
    Ok(bytes)
}

/// Puts a message into an envelope, with the [`MAGIC`].
pub fn wrap(api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let mut bytes = wrap_begin(api_version, kind, message.len());
    bytes.extend_from_slice(message);
    bytes.extend_from_slice(WRAP_END);
    bytes
}

/// Returns the beginning of an envelope around a message of `length` bytes, for messages that are not in memory as a
/// whole. [`WRAP_END`] follows the message.
pub fn wrap_begin(api_version: &str, kind: &str, length: usize) -> Vec<u8> {
    let mut type_meta = Vec::with_capacity(api_version.len() + kind.len() + 4);
    put_bytes(&mut type_meta, 1, api_version.as_bytes());
    put_bytes(&mut type_meta, 2, kind.as_bytes());
    let mut bytes = Vec::with_capacity(type_meta.len() + 24);
    bytes.extend_from_slice(MAGIC);
    put_bytes(&mut bytes, 1, &type_meta);
    put_length(&mut bytes, 2, length);
    bytes
}

/// The end of an envelope: content encoding and type, which are empty for protobuf.
pub const WRAP_END: &[u8] = &[3 << 3 | wire::BYTES, 0, 4 << 3 | wire::BYTES, 0];

/// An event of a watch, whose object is in an envelope of its own. Watches send such messages without an envelope, each
/// behind its length as four bytes, the highest first.
pub fn watch_event(event_type: &str, object: &[u8]) -> Vec<u8> {
    let mut raw = Vec::with_capacity(object.len() + 6);
    put_bytes(&mut raw, 1, object);
    let mut bytes = Vec::with_capacity(raw.len() + event_type.len() + 12);
    put_bytes(&mut bytes, 1, event_type.as_bytes());
    put_bytes(&mut bytes, 2, &raw);
    bytes
}

fn find(api_version: &str, kind: &str) -> Result<&'static Type, ProtobufError> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    table::kind(group, version, kind).ok_or_else(|| ProtobufError::Kind {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
    })
}

/// The message around every object.
struct Envelope<'a> {
    api_version: String,
    kind: String,
    raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, ProtobufError> {
        let mut reader = Reader::new(bytes.strip_prefix(MAGIC).ok_or(ProtobufError::Prefix)?);
        if reader.is_empty() {
            return Err(ProtobufError::Empty);
        }
        let mut envelope = Envelope {
            api_version: String::new(),
            kind: String::new(),
            raw: &[],
        };
        while let Some((number, wire)) = reader.tag()? {
            match number {
                1 => {
                    let mut type_meta = Reader::new(reader.bytes(wire, "typeMeta")?);
                    while let Some((number, wire)) = type_meta.tag()? {
                        match number {
                            1 => envelope.api_version = lossy(type_meta.bytes(wire, "apiVersion")?),
                            2 => envelope.kind = lossy(type_meta.bytes(wire, "kind")?),
                            _ => type_meta.skip(wire)?,
                        }
                    }
                }
                2 => envelope.raw = reader.bytes(wire, "raw")?,
                3 => {
                    let encoding = reader.bytes(wire, "contentEncoding")?;
                    if !encoding.is_empty() {
                        return Err(ProtobufError::Encoding(lossy(encoding)));
                    }
                }
                _ => reader.skip(wire)?,
            }
        }
        Ok(envelope)
    }
}

/// Strings in proto2 may contain any bytes, those in JSON may not.
fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests;
