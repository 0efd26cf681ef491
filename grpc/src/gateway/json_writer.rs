//! Incremental conversion of an encoded message to JSON.

use std::collections::HashMap;
use std::fmt;
use std::io::Write as _;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, Bytes, BytesMut};
use prost::encoding::{WireType, decode_key, decode_varint};
use prost_reflect::{Kind, MessageDescriptor};
use tonic::Status;

use crate::status;

/// The layout of a message type and of those within it: what the JSON of each field looks like.
///
/// Only the types of responses with key-values have a layout: bytes, integers, bools and messages.
#[derive(Debug)]
pub(super) struct JsonLayout {
    /// The fields of each message by their numbers. The first one is the message itself.
    messages: Vec<Vec<Option<FieldLayout>>>,
}

#[derive(Clone, Debug)]
struct FieldLayout {
    /// The name as it is written, with quotes and a colon.
    name: String,
    is_list: bool,
    kind: FieldKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldKind {
    /// A 64-bit integer, which is a string in JSON.
    Signed,
    Unsigned,
    Bool,
    Bytes,
    /// An index in [`JsonLayout::messages`].
    Message(usize),
}

impl JsonLayout {
    /// Returns the layout of a type, or `None` if a field within it has another kind.
    pub(super) fn of(descriptor: &MessageDescriptor) -> Option<Self> {
        let mut messages = Vec::new();
        add_message(descriptor, &mut messages, &mut HashMap::new())?;
        Some(Self { messages })
    }
}

/// Returns the index of a type, which is added if it is new.
fn add_message(
    descriptor: &MessageDescriptor,
    messages: &mut Vec<Vec<Option<FieldLayout>>>,
    indexes: &mut HashMap<String, usize>,
) -> Option<usize> {
    if let Some(index) = indexes.get(descriptor.full_name()) {
        return Some(*index);
    }
    let index = messages.len();
    indexes.insert(descriptor.full_name().to_owned(), index);
    messages.push(Vec::new());
    for field in descriptor.fields() {
        let kind = match field.kind() {
            Kind::Int64 => FieldKind::Signed,
            Kind::Uint64 => FieldKind::Unsigned,
            Kind::Bool => FieldKind::Bool,
            Kind::Bytes => FieldKind::Bytes,
            Kind::Message(inner) => FieldKind::Message(add_message(&inner, messages, indexes)?),
            _ => return None,
        };
        if field.is_map() || field.is_packed() {
            return None;
        }
        let number = usize::try_from(field.number()).ok()?;
        let fields = &mut messages[index];
        if fields.len() <= number {
            fields.resize(number + 1, None);
        }
        fields[number] = Some(FieldLayout {
            name: format!("\"{}\":", field.name()),
            is_list: field.is_list(),
            kind,
        });
    }
    Some(index)
}

/// Writes the JSON of an encoded message while the message arrives.
///
/// The output is that of `transcode::write_json` for messages whose fields are in the order of their
/// numbers, without zeros, as our encoders write them. At most one field of bytes is buffered.
pub(super) struct JsonWriter {
    layout: Arc<JsonLayout>,
    /// The messages whose ends have not arrived, the innermost one last.
    open: Vec<OpenMessage>,
    /// The received bytes that are not written yet.
    input: BytesMut,
}

#[derive(Debug)]
struct OpenMessage {
    /// An index in [`JsonLayout::messages`].
    layout: usize,
    /// The length of the part that is not written yet.
    bytes_left: usize,
    has_fields: bool,
    /// The number of the last written field, if it is a list.
    open_list: Option<usize>,
}

impl JsonWriter {
    /// Creates a writer for a message of this length, and writes its beginning.
    pub(super) fn new(layout: Arc<JsonLayout>, bytes: usize, json: &mut Vec<u8>) -> Self {
        let mut writer = Self {
            layout,
            open: Vec::new(),
            input: BytesMut::new(),
        };
        writer.begin_message(0, bytes, json);
        writer
    }

    /// Returns whether the whole message was written.
    pub(super) fn is_complete(&self) -> bool {
        self.open.is_empty()
    }

    /// Appends the JSON of all fields that have arrived completely.
    ///
    /// # Errors
    /// The bytes are no such message.
    pub(super) fn write(&mut self, received: &Bytes, json: &mut Vec<u8>) -> Result<(), Status> {
        self.input.extend_from_slice(received);
        while let Some(message) = self.open.last_mut() {
            if message.bytes_left == 0 {
                if message.open_list.is_some() {
                    json.push(b']');
                }
                json.push(b'}');
                self.open.pop();
            } else if !self.write_field(json)? {
                return Ok(());
            }
        }
        if self.input.is_empty() {
            Ok(())
        } else {
            Err(malformed("bytes after the message"))
        }
    }

    /// Writes the next field, or the beginning of the next message. Returns whether it has arrived.
    fn write_field(&mut self, json: &mut Vec<u8>) -> Result<bool, Status> {
        let Some(message) = self.open.last_mut() else {
            return Ok(false);
        };
        let mut rest = &self.input[..];
        let head = decode_head(&mut rest, message.bytes_left)?;
        let Some((number, wire_type, value)) = head else {
            return Ok(false);
        };
        let layout = self.layout.clone();
        let field = usize::try_from(number).ok().and_then(|number| {
            let field = layout.messages[message.layout].get(number)?.as_ref()?;
            Some((number, field))
        });
        let Some((number, field)) = field else {
            return Err(malformed("an unknown field"));
        };
        let head = self.input.len() - rest.len();
        let is_delimited = matches!(field.kind, FieldKind::Bytes | FieldKind::Message(_));
        let length = match wire_type {
            WireType::Varint if !is_delimited => 0,
            WireType::LengthDelimited if is_delimited => {
                usize::try_from(value).map_err(|_| malformed("a long field"))?
            }
            _ => return Err(malformed("an unexpected wire type")),
        };
        let Some(bytes_left) = message.bytes_left.checked_sub(head.saturating_add(length)) else {
            return Err(malformed("a field that is longer than its message"));
        };
        if field.kind == FieldKind::Bytes && rest.len() < length {
            self.input.reserve(length - rest.len());
            return Ok(false);
        }
        message.bytes_left = bytes_left;
        message.write_name(number, field, json);
        match field.kind {
            // Writing into a vector cannot fail.
            FieldKind::Signed => drop(write!(json, "\"{}\"", value.cast_signed())),
            FieldKind::Unsigned => drop(write!(json, "\"{value}\"")),
            FieldKind::Bool => json.extend_from_slice(if value == 0 { b"false" } else { b"true" }),
            FieldKind::Bytes => write_base64(&rest[..length], json),
            FieldKind::Message(_) => {}
        }
        if let FieldKind::Message(layout) = field.kind {
            self.input.advance(head);
            self.begin_message(layout, length, json);
        } else {
            self.input.advance(head + length);
        }
        Ok(true)
    }

    fn begin_message(&mut self, layout: usize, bytes: usize, json: &mut Vec<u8>) {
        json.push(b'{');
        self.open.push(OpenMessage {
            layout,
            bytes_left: bytes,
            has_fields: false,
            open_list: None,
        });
    }
}

impl OpenMessage {
    /// Writes what comes before the value of a field.
    fn write_name(&mut self, number: usize, field: &FieldLayout, json: &mut Vec<u8>) {
        if self.open_list == Some(number) {
            json.push(b',');
            return;
        }
        if self.open_list.take().is_some() {
            json.push(b']');
        }
        if self.has_fields {
            json.push(b',');
        }
        self.has_fields = true;
        json.extend_from_slice(field.name.as_bytes());
        if field.is_list {
            json.push(b'[');
            self.open_list = Some(number);
        }
    }
}

/// Decodes the key of a field and the number after it: the value or the length. Returns `None` if
/// they have not arrived completely. `rest` then has an undefined position.
fn decode_head(
    rest: &mut &[u8],
    bytes_left: usize,
) -> Result<Option<(u32, WireType, u64)>, Status> {
    // Varints end with a byte below 0x80; there are two of them.
    let ends = rest.iter().take(bytes_left).filter(|byte| **byte < 0x80);
    if ends.take(2).count() < 2 {
        if rest.len() >= bytes_left {
            return Err(malformed("a field that is longer than its message"));
        }
        return Ok(None);
    }
    let (number, wire_type) = decode_key(rest).map_err(|error| status::gateway_broken(&error))?;
    let value = decode_varint(rest).map_err(|error| status::gateway_broken(&error))?;
    Ok(Some((number, wire_type, value)))
}

fn write_base64(bytes: &[u8], json: &mut Vec<u8>) {
    json.push(b'"');
    let start = json.len();
    json.resize(start + bytes.len().div_ceil(3) * 4, 0);
    // The length is exactly that of the output.
    let written = STANDARD.encode_slice(bytes, &mut json[start..]);
    debug_assert_eq!(written, Ok(json.len() - start));
    json.push(b'"');
}

fn malformed(what: &str) -> Status {
    status::gateway_broken(&what)
}

impl fmt::Debug for JsonWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonWriter")
            .field("open", &self.open)
            .field("input", &self.input.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;
    use revstore_proto::etcdserverpb::{
        DeleteRangeResponse, PutResponse, RangeResponse, ResponseHeader, ResponseOp, TxnResponse,
        response_op::Response,
    };
    use revstore_proto::mvccpb::KeyValue;

    use super::*;
    use crate::gateway::routes::Route;
    use crate::gateway::transcode;

    fn number() -> impl Strategy<Value = i64> {
        (0..=64_u32, any::<i64>()).prop_map(|(bits, number)| number.unbounded_shr(bits))
    }

    fn header() -> impl Strategy<Value = Option<ResponseHeader>> {
        let header = (number(), number()).prop_map(|(id, revision)| ResponseHeader {
            cluster_id: id.cast_unsigned(),
            revision,
            ..ResponseHeader::default()
        });
        proptest::option::of(header)
    }

    fn key_values() -> impl Strategy<Value = Vec<KeyValue>> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..200);
        let kv = (bytes(), bytes(), number(), number()).prop_map(|(key, value, version, lease)| {
            KeyValue {
                key: key.into(),
                value: value.into(),
                version,
                lease,
                ..KeyValue::default()
            }
        });
        proptest::collection::vec(kv, 0..5)
    }

    fn range() -> impl Strategy<Value = RangeResponse> {
        (header(), key_values(), any::<bool>(), number()).prop_map(|(header, kvs, more, count)| {
            RangeResponse {
                header,
                kvs,
                more,
                count,
            }
        })
    }

    fn txn() -> impl Strategy<Value = TxnResponse> {
        let op = prop_oneof![
            range().prop_map(Response::ResponseRange),
            (header(), key_values()).prop_map(|(header, prev_kvs)| {
                Response::ResponseDeleteRange(DeleteRangeResponse {
                    header,
                    deleted: 7,
                    prev_kvs,
                })
            }),
            (header(), key_values()).prop_map(|(header, kvs)| {
                Response::ResponsePut(PutResponse {
                    header,
                    prev_kv: kvs.into_iter().next(),
                })
            }),
            Just(Response::ResponseTxn(TxnResponse::default())),
        ];
        (header(), proptest::collection::vec(op, 0..4)).prop_map(|(header, ops)| {
            let responses = ops.into_iter().map(|op| ResponseOp { response: Some(op) });
            TxnResponse {
                header,
                succeeded: true,
                responses: responses.collect(),
            }
        })
    }

    /// Checks the JSON of a message that arrives in pieces of any lengths.
    fn check(path: &str, message: &impl Message, pieces: &[usize]) {
        let descriptor = Route::of_path(path).unwrap().method.output();
        let layout = Arc::new(JsonLayout::of(&descriptor).expect("a layout"));
        let mut encoded = Bytes::from(message.encode_to_vec());
        let mut expected = Vec::new();
        transcode::write_json(&descriptor, encoded.clone(), &mut expected).unwrap();
        let mut json = Vec::new();
        let mut writer = JsonWriter::new(layout, encoded.len(), &mut json);
        let mut pieces = pieces.iter().cycle();
        while !encoded.is_empty() {
            let length = encoded.len().min(*pieces.next().unwrap());
            writer.write(&encoded.split_to(length), &mut json).unwrap();
        }
        writer.write(&Bytes::new(), &mut json).unwrap();
        assert!(writer.is_complete());
        let (json, expected) = (String::from_utf8(json), String::from_utf8(expected));
        assert_eq!(json.unwrap(), expected.unwrap());
    }

    proptest! {
        #[test]
        fn ht_21_large_answers_have_the_same_json_as_small_ones(
            range in range(),
            txn in txn(),
            pieces in proptest::collection::vec(1..300_usize, 1..5),
        ) {
            check("/v3/kv/range", &range, &pieces);
            check("/v3/kv/txn", &txn, &pieces);
        }

        #[test]
        fn bytes_that_are_no_message_are_an_error_or_incomplete(
            bytes in proptest::collection::vec(any::<u8>(), 0..100),
            length in 0..100_usize,
        ) {
            let descriptor = Route::of_path("/v3/kv/txn").unwrap().method.output();
            let layout = Arc::new(JsonLayout::of(&descriptor).expect("a layout"));
            let mut json = Vec::new();
            let mut writer = JsonWriter::new(layout, length, &mut json);
            let _ = writer.write(&bytes.into(), &mut json);
        }
    }

    #[test]
    fn types_with_other_fields_have_no_layout() {
        for path in ["/v3/maintenance/alarm", "/v3/maintenance/status"] {
            let descriptor = Route::of_path(path).unwrap().method.output();
            assert!(JsonLayout::of(&descriptor).is_none(), "{path}");
        }
    }
}
