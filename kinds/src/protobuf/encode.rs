//! JSON to protobuf, byte for byte as Go's encoder writes it: fields that are no pointers are always there.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::ProtobufError;
use super::wire::{FIXED64, VARINT, put_bytes, put_nested, put_tag, put_varint};
use crate::table::{Field, Shape, Type};
use crate::value::time;

type Written = Result<(), ProtobufError>;

/// Appends the message of a value, which may be absent: `Value::Null`.
pub(super) fn message(
    out: &mut Vec<u8>,
    ty: &'static Type,
    value: &Value,
    name: &'static str,
) -> Written {
    match ty.shape() {
        Shape::Pointer(target) => message(out, target.get(), value, name),
        Shape::Struct(all) => match value {
            Value::Object(object) => fields(out, all, 0, Some(object)),
            Value::Null => fields(out, all, 0, None),
            _ => Err(ProtobufError::Value(name)),
        },
        Shape::List { item, .. } => {
            for element in list(value, name)? {
                element_of(out, item.get(), 1, element, name)?;
            }
            Ok(())
        }
        Shape::Quantity => {
            let text = if value.is_null() {
                "0"
            } else {
                text(value, name)?
            };
            put_bytes(out, 1, text.as_bytes());
            Ok(())
        }
        Shape::IntOrString => int_or_string(out, value, name),
        Shape::Time | Shape::MicroTime => {
            timestamp(out, matches!(ty.shape(), Shape::MicroTime), value, name)
        }
        Shape::FieldsV1 | Shape::RawExtension | Shape::Json => {
            if !value.is_null() {
                put_bytes(
                    out,
                    1,
                    &serde_json::to_vec(value).map_err(|_| ProtobufError::Value(name))?,
                );
            }
            Ok(())
        }
        Shape::SchemaOrArray(parts)
        | Shape::SchemaOrBool(parts)
        | Shape::SchemaOrStrings(parts) => schema_or(out, parts, value, name),
        _ => Err(ProtobufError::Value(name)),
    }
}

/// Appends fields whose numbers agree before `depth`.
fn fields(
    out: &mut Vec<u8>,
    all: &'static [Field],
    depth: usize,
    object: Option<&Map<String, Value>>,
) -> Written {
    let mut rest = all;
    while let Some(first) = rest.first() {
        let numbers = first.numbers();
        let Some(number) = numbers.get(depth) else {
            rest = &rest[1..];
            continue;
        };
        if numbers.len() == depth + 1 {
            let value = object
                .and_then(|object| object.get(first.name()))
                .unwrap_or(&Value::Null);
            field(out, first.ty(), *number, value, first.name())?;
            rest = &rest[1..];
        } else {
            // A struct in the struct, whose fields follow each other in the table.
            let len = rest
                .iter()
                .take_while(|field| field.numbers().get(depth) == Some(number))
                .count();
            let (group, others) = rest.split_at(len);
            put_nested(out, *number, |out| fields(out, group, depth + 1, object))?;
            rest = others;
        }
    }
    Ok(())
}

/// Appends a field.
fn field(
    out: &mut Vec<u8>,
    ty: &'static Type,
    number: u8,
    value: &Value,
    name: &'static str,
) -> Written {
    match ty.shape() {
        Shape::Pointer(_) | Shape::Bytes | Shape::List { message: true, .. } if value.is_null() => {
            Ok(())
        }
        Shape::Pointer(target) => field(out, target.get(), number, value, name),
        Shape::List {
            item,
            message: false,
        } => {
            for element in list(value, name)? {
                element_of(out, item.get(), number, element, name)?;
            }
            Ok(())
        }
        Shape::Map { value: target, .. } => {
            let entries = match value {
                Value::Null => return Ok(()),
                Value::Object(entries) => entries,
                _ => return Err(ProtobufError::Value(name)),
            };
            let mut sorted: Vec<_> = entries.iter().collect();
            sorted.sort_unstable_by_key(|(key, _)| key.as_bytes());
            for (key, element) in sorted {
                put_nested(out, number, |out| {
                    put_bytes(out, 1, key.as_bytes());
                    field(out, target.get(), 2, element, name)
                })?;
            }
            Ok(())
        }
        _ => element_of(out, ty, number, value, name),
    }
}

/// Appends a value that is always there, as a field.
fn element_of(
    out: &mut Vec<u8>,
    ty: &'static Type,
    number: u8,
    value: &Value,
    name: &'static str,
) -> Written {
    match ty.shape() {
        Shape::String => {
            let text = if value.is_null() {
                ""
            } else {
                text(value, name)?
            };
            put_bytes(out, number, text.as_bytes());
            Ok(())
        }
        Shape::Bool => {
            let flag = if value.is_null() {
                Some(false)
            } else {
                value.as_bool()
            };
            put_tag(out, number, VARINT);
            out.push(flag.ok_or(ProtobufError::Value(name))?.into());
            Ok(())
        }
        Shape::Int32 | Shape::Int64 => {
            let integer = if value.is_null() {
                Some(0)
            } else {
                value.as_i64()
            };
            put_tag(out, number, VARINT);
            put_varint(
                out,
                integer.ok_or(ProtobufError::Value(name))?.cast_unsigned(),
            );
            Ok(())
        }
        Shape::Float64 => {
            let float = if value.is_null() {
                Some(0.0)
            } else {
                value.as_f64()
            };
            put_tag(out, number, FIXED64);
            out.extend_from_slice(&float.ok_or(ProtobufError::Value(name))?.to_le_bytes());
            Ok(())
        }
        Shape::Bytes => {
            let text = if value.is_null() {
                ""
            } else {
                text(value, name)?
            };
            let bytes = STANDARD
                .decode(text)
                .map_err(|_| ProtobufError::Value(name))?;
            put_bytes(out, number, &bytes);
            Ok(())
        }
        _ => put_nested(out, number, |out| message(out, ty, value, name)),
    }
}

fn list<'a>(value: &'a Value, name: &'static str) -> Result<&'a [Value], ProtobufError> {
    match value {
        Value::Null => Ok(&[]),
        Value::Array(items) => Ok(items),
        _ => Err(ProtobufError::Value(name)),
    }
}

fn text<'a>(value: &'a Value, name: &'static str) -> Result<&'a str, ProtobufError> {
    value.as_str().ok_or(ProtobufError::Value(name))
}

fn int_or_string(out: &mut Vec<u8>, value: &Value, name: &'static str) -> Written {
    let (kind, integer, text) = match value {
        Value::Null => (0, 0, ""),
        Value::Number(number) => (0, number.as_i64().ok_or(ProtobufError::Value(name))?, ""),
        Value::String(text) => (1, 0, text.as_str()),
        _ => return Err(ProtobufError::Value(name)),
    };
    put_tag(out, 1, VARINT);
    put_varint(out, kind);
    put_tag(out, 2, VARINT);
    put_varint(out, integer.cast_unsigned());
    put_bytes(out, 3, text.as_bytes());
    Ok(())
}

fn timestamp(out: &mut Vec<u8>, micros: bool, value: &Value, name: &'static str) -> Written {
    if value.is_null() {
        return Ok(());
    }
    let time = time::parse(text(value, name)?, micros).map_err(|_| ProtobufError::Value(name))?;
    put_tag(out, 1, VARINT);
    put_varint(out, time.seconds.cast_unsigned());
    put_tag(out, 2, VARINT);
    put_varint(out, if micros { time.nanos.into() } else { 0 });
    Ok(())
}

fn schema_or(
    out: &mut Vec<u8>,
    parts: &'static [Field],
    value: &Value,
    name: &'static str,
) -> Written {
    for part in parts {
        match (part.name(), value) {
            ("Schema", Value::Object(_)) | ("JSONSchemas" | "Property", Value::Array(_)) => {
                field(out, part.ty(), part.numbers()[0], value, name)?;
            }
            ("Allows", Value::Object(_)) => {
                field(out, part.ty(), part.numbers()[0], &Value::Bool(true), name)?;
            }
            ("Allows", _) => field(out, part.ty(), part.numbers()[0], value, name)?,
            _ => {}
        }
    }
    Ok(())
}
