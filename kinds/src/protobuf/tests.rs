use proptest::prelude::*;
use serde_json::{Map, json};

use super::*;
use crate::decode::{DEPTH_MAX, Storage, normalize};
use crate::table::Shape;

/// Makes a value of a type from bytes, which decide about everything.
struct Generator<'a> {
    bytes: std::slice::Iter<'a, u8>,
    depth: usize,
}

impl Generator<'_> {
    fn next(&mut self) -> u8 {
        self.bytes.next().copied().unwrap_or_default()
    }

    fn value(&mut self, ty: &'static Type) -> Value {
        self.depth += 1;
        let value = if self.depth > 12 {
            Value::Null
        } else {
            self.nested(ty)
        };
        self.depth -= 1;
        value
    }

    fn nested(&mut self, ty: &'static Type) -> Value {
        let byte = self.next();
        let text = || format!("text{}", byte % 8);
        match ty.shape() {
            Shape::Pointer(target) => self.value(target.get()),
            Shape::Struct(fields) => {
                let mut object = Map::new();
                // `apiVersion` and `kind` are in the envelope.
                for field in fields.iter().filter(|field| !field.numbers().is_empty()) {
                    if self.next().is_multiple_of(4) {
                        object.insert(field.name().to_owned(), self.value(field.ty()));
                    }
                }
                Value::Object(object)
            }
            Shape::List { item, .. } => (0..byte % 4).map(|_| self.value(item.get())).collect(),
            Shape::Map { value, .. } => {
                let entry = |index| (format!("key{index}"), self.value(value.get()));
                Value::Object((0..byte % 4).map(entry).collect())
            }
            Shape::String => json!(["", "a", "\u{e9}\u{1f600}", "true"][usize::from(byte % 4)]),
            Shape::Bool | Shape::SchemaOrBool(_) if !byte.is_multiple_of(3) => json!(byte % 3 == 1),
            Shape::Bool => Value::Null,
            Shape::Int32 => json!([0, 1, -1, i32::MAX, i32::MIN][usize::from(byte % 5)]),
            Shape::Int64 => json!([0, 1, -1, i64::MAX, i64::MIN][usize::from(byte % 5)]),
            Shape::Float64 => json!([0.0, 1.0, -1.5, 1e300][usize::from(byte % 4)]),
            Shape::Bytes => json!(["", "YQ==", "/+8="][usize::from(byte % 3)]),
            Shape::Quantity => json!(["0", "1500m", "1Gi", "-1", "1e3"][usize::from(byte % 5)]),
            Shape::IntOrString if byte.is_multiple_of(2) => json!(text()),
            Shape::IntOrString => json!(byte),
            Shape::Time => time(byte, "2024-02-29T00:00:00Z"),
            Shape::MicroTime => time(byte, "1969-12-31T23:59:59.000001Z"),
            Shape::FieldsV1 | Shape::RawExtension => json!({"f:spec": {"kind": byte}}),
            Shape::Json => json!([text(), {"a": null}]),
            Shape::SchemaOrArray(fields)
            | Shape::SchemaOrBool(fields)
            | Shape::SchemaOrStrings(fields) => {
                let schema = fields
                    .iter()
                    .find(|field| field.name() == "Schema")
                    .unwrap();
                if byte.is_multiple_of(2) {
                    json!([])
                } else {
                    self.value(schema.ty())
                }
            }
        }
    }
}

fn time(byte: u8, text: &str) -> Value {
    if byte.is_multiple_of(3) {
        Value::Null
    } else {
        json!(text)
    }
}

fn all_kinds() -> Vec<&'static Type> {
    crate::types()
        .filter(|ty| ty.field("kind").is_some() && ty.field("metadata").is_some())
        .collect()
}

/// The kinds one after the other, so that each has its turn in every run.
fn kind_at(index: usize) -> &'static Type {
    let kinds = all_kinds();
    kinds[index % kinds.len()]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_encoded_is_decoded(index: usize, bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let ty = kind_at(index);
        let mut object = Generator { bytes: bytes.iter(), depth: 0 }.value(ty);
        // Some places allow only some of what the generator makes.
        if normalize(ty, &mut object, Storage::Protobuf).is_err() {
            return Ok(());
        }
        let encoded = encode_message(ty, &object).unwrap();
        prop_assert_eq!(decode_message(ty, &encoded).unwrap(), object);
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(index: usize, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let ty = kind_at(index);
        let _ = from_protobuf(&bytes);
        let _ = from_protobuf(&[MAGIC, &bytes].concat());
        let decoded = decode_message(ty, &bytes);
        // What was accepted is normal, but for texts that no encoder writes.
        if let Ok(object) = decoded {
            let _ = encode_message(ty, &object);
        }
    }

    #[test]
    fn damaged_messages_are_decoded_or_refused(
        index: usize,
        bytes in prop::collection::vec(any::<u8>(), 0..500),
        at: usize,
        byte: u8,
    ) {
        let ty = kind_at(index);
        let mut object = Generator { bytes: bytes.iter(), depth: 0 }.value(ty);
        if normalize(ty, &mut object, Storage::Protobuf).is_err() {
            return Ok(());
        }
        let mut encoded = encode_message(ty, &object).unwrap();
        let at = at % encoded.len().max(1);
        if let Some(slot) = encoded.get_mut(at) {
            *slot = byte;
        }
        let _ = decode_message(ty, &encoded);
        let _ = decode_message(ty, &encoded[..at.min(encoded.len())]);
    }
}

#[test]
fn envelopes_have_kinds() {
    assert_eq!(from_protobuf(b"{}"), Err(ProtobufError::Prefix));
    assert_eq!(from_protobuf(b"k8s\0"), Err(ProtobufError::Empty));
    assert_eq!(
        from_protobuf(b"k8s\0\x0a\xff"),
        Err(ProtobufError::Truncated)
    );
    let widget = wrap("example.com/v1", "Widget", b"");
    assert_eq!(
        from_protobuf(&widget).unwrap_err().to_string(),
        r#"no kind "Widget" is registered for version "example.com/v1""#
    );
    assert_eq!(
        protobuf_kind(&widget).unwrap(),
        ("example.com/v1".to_owned(), "Widget".to_owned())
    );
    let mut compressed = wrap("v1", "Pod", b"");
    compressed.extend_from_slice(b"\x1a\x04gzip");
    assert_eq!(
        from_protobuf(&compressed),
        Err(ProtobufError::Encoding("gzip".to_owned()))
    );
    let untyped = wrap("a/b/c", "", b"\x0a\x03\x0a\x01a");
    let expected = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let found = from_protobuf_as("v1", "ConfigMap", &untyped);
    assert_eq!(found, Ok(expected));
    // Options of client-go's requests.
    let options = to_protobuf(
        &json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u"}}),
    );
    let expected = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u"}});
    assert_eq!(from_protobuf(&options.unwrap()).unwrap(), expected);
}

#[test]
fn events_of_watches_contain_objects_in_envelopes() {
    let event = watch_event("ADDED", b"k8s\0");
    assert_eq!(event, b"\x0a\x05ADDED\x12\x06\x0a\x04k8s\0");
}

#[test]
fn errors_name_what_is_wrong() {
    let pod = crate::kind("", "v1", "Pod").unwrap();
    let metadata_as_number = b"\x08\x01";
    assert_eq!(
        decode_message(pod, metadata_as_number),
        Err(ProtobufError::WireType {
            field: "metadata",
            wire: 0
        })
    );
    assert_eq!(
        decode_message(pod, b"\x0a\x05ab"),
        Err(ProtobufError::Truncated)
    );
    assert_eq!(decode_message(pod, b"\x00"), Err(ProtobufError::Tag(0)));
    // Groups, which are passed over with all that is in them.
    let (begin, end) = (0x7b, 0x7c);
    let deep = [vec![begin; 100_000], vec![end; 100_000]].concat();
    assert!(decode_message(pod, &deep).is_ok());
    assert!(decode_message(pod, &[begin, 0x08, 1, end]).is_ok());
    assert_eq!(decode_message(pod, &[begin]), Err(ProtobufError::Truncated));
    assert_eq!(decode_message(pod, &[end]), Err(ProtobufError::Tag(4)));
    assert_eq!(
        decode_message(pod, &[0xff; 11]),
        Err(ProtobufError::Overflow)
    );
    assert_eq!(
        encode_message(pod, &json!({"spec": {"containers": "x"}})),
        Err(ProtobufError::Value("containers"))
    );
}

#[test]
fn quantities_become_canonical() {
    let quota = crate::type_named("core.v1.ResourceQuotaSpec").unwrap();
    let encoded = encode_message(quota, &json!({"hard": {"cpu": "0.5"}})).unwrap();
    assert_eq!(
        decode_message(quota, &encoded).unwrap(),
        json!({"hard": {"cpu": "500m"}})
    );
    let encoded = encode_message(quota, &json!({"hard": {"cpu": "half"}})).unwrap();
    assert_eq!(
        decode_message(quota, &encoded),
        Err(ProtobufError::Value("hard"))
    );
}

#[test]
fn bounds_are_kept() {
    let schema = crate::type_named("apiextensions.v1.JSONSchemaProps").unwrap();
    let not = schema.field("not").unwrap().numbers()[0];
    let mut message = Vec::new();
    for _ in 0..10 * DEPTH_MAX {
        let inner = std::mem::take(&mut message);
        put_bytes(&mut message, not, &inner);
    }
    assert_eq!(
        decode_message(schema, &message),
        Err(ProtobufError::TooDeep)
    );

    let spec = crate::type_named("core.v1.PodSpec").unwrap();
    let containers = [0x12, 0].repeat(VALUES_MAX + 1);
    assert_eq!(
        decode_message(spec, &containers),
        Err(ProtobufError::TooMany)
    );
}
