//! OpenAPI documents as the messages `Document` of gnostic: `v2.rs` that of `openapi.v2`, `v3.rs` that of `openapi.v3`, and
//! here what both are written with.

pub(super) mod v2;
pub(super) mod v3;

use serde_json::{Map, Value};

use crate::protobuf::wire::{FIXED64, VARINT, put_bytes, put_nested, put_tag, put_varint};

/// Where a text, a flag ... of a message comes from: the name in JSON and the number of the field.
type Fields = &'static [(&'static str, u8)];

/// Fields with names that the document chooses.
fn named(
    out: &mut Vec<u8>,
    number: u8,
    fields: &Map<String, Value>,
    write: impl Fn(&mut Vec<u8>, &Map<String, Value>) + Copy,
) {
    for (name, value) in fields {
        if let Value::Object(object) = value {
            message(out, number, |out| {
                put_bytes(out, 1, name.as_bytes());
                message(out, 2, |out| write(out, object));
            });
        }
    }
}

/// Fields whose names begin with `x-`.
fn extensions(out: &mut Vec<u8>, number: u8, object: &Map<String, Value>) {
    for (name, value) in object.iter().filter(|(name, _)| name.starts_with("x-")) {
        message(out, number, |out| {
            put_bytes(out, 1, name.as_bytes());
            any(out, 2, Some(value));
        });
    }
}

/// A value of any type, as YAML: JSON is that, too.
fn any(out: &mut Vec<u8>, number: u8, value: Option<&Value>) {
    if let Some(value) = value {
        message(out, number, |out| {
            put_bytes(out, 2, format!("{value}\n").as_bytes());
        });
    }
}

fn texts(out: &mut Vec<u8>, object: &Map<String, Value>, fields: Fields) {
    for (name, number) in fields {
        if let Some(text) = object.get(*name).and_then(Value::as_str) {
            put_bytes(out, *number, text.as_bytes());
        }
    }
}

fn flags(out: &mut Vec<u8>, object: &Map<String, Value>, fields: Fields) {
    for (name, number) in fields {
        if object.get(*name) == Some(&Value::Bool(true)) {
            put_tag(out, *number, VARINT);
            out.push(1);
        }
    }
}

fn integers(out: &mut Vec<u8>, object: &Map<String, Value>, fields: Fields) {
    for (name, number) in fields {
        if let Some(integer) = object.get(*name).and_then(Value::as_i64) {
            put_tag(out, *number, VARINT);
            put_varint(out, integer.cast_unsigned());
        }
    }
}

fn numbers(out: &mut Vec<u8>, object: &Map<String, Value>, fields: Fields) {
    for (name, number) in fields {
        if let Some(float) = object.get(*name).and_then(Value::as_f64) {
            put_tag(out, *number, FIXED64);
            out.extend_from_slice(&float.to_le_bytes());
        }
    }
}

/// A text, or several in a list.
fn strings(out: &mut Vec<u8>, number: u8, values: &Value) {
    match values {
        Value::String(text) => put_bytes(out, number, text.as_bytes()),
        Value::Array(items) => items.iter().for_each(|item| strings(out, number, item)),
        _ => {}
    }
}

fn array<'a>(object: &'a Map<String, Value>, name: &str) -> &'a [Value] {
    object
        .get(name)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

fn nested(
    out: &mut Vec<u8>,
    number: u8,
    value: Option<&Value>,
    write: impl FnOnce(&mut Vec<u8>, &Map<String, Value>),
) {
    if let Some(Value::Object(object)) = value {
        message(out, number, |out| write(out, object));
    }
}

fn message(out: &mut Vec<u8>, number: u8, write: impl FnOnce(&mut Vec<u8>)) {
    let written: Result<(), std::convert::Infallible> = put_nested(out, number, |out| {
        write(out);
        Ok(())
    });
    let Ok(()) = written;
}
