//! A v3 document as the message `openapi.v3.Document` of gnostic.

use serde_json::{Map, Value};

use super::{
    Fields, any, array, extensions, flags, integers, message, named, nested, numbers, strings,
    texts,
};
use crate::protobuf::wire::{FIXED64, VARINT, put_bytes, put_tag};

const OPERATIONS: Fields = &[
    ("get", 4),
    ("put", 5),
    ("post", 6),
    ("delete", 7),
    ("options", 8),
    ("head", 9),
    ("patch", 10),
];

pub(in crate::openapi) fn document(document: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 << 18);
    let Value::Object(object) = document else {
        return out;
    };
    texts(&mut out, object, &[("openapi", 1)]);
    nested(&mut out, 2, object.get("info"), |out, info| {
        texts(
            out,
            info,
            &[("title", 1), ("description", 2), ("version", 6)],
        );
    });
    nested(&mut out, 4, object.get("paths"), |out, paths| {
        named(out, 1, paths, path_item);
    });
    nested(&mut out, 5, object.get("components"), |out, components| {
        nested(out, 1, components.get("schemas"), |out, schemas| {
            named(out, 1, schemas, schema_or_reference);
        });
        let schemes = components.get("securitySchemes");
        nested(out, 7, schemes, |out, schemes| {
            named(out, 1, schemes, |out, scheme| {
                message(out, 1, |out| {
                    texts(
                        out,
                        scheme,
                        &[("type", 1), ("description", 2), ("name", 3), ("in", 4)],
                    );
                });
            });
        });
    });
    extensions(&mut out, 9, object);
    out
}

fn path_item(out: &mut Vec<u8>, item: &Map<String, Value>) {
    for (name, number) in OPERATIONS {
        nested(out, *number, item.get(*name), operation);
    }
    for found in array(item, "parameters") {
        nested(out, 13, Some(found), parameter_or_reference);
    }
    extensions(out, 14, item);
}

fn operation(out: &mut Vec<u8>, operation: &Map<String, Value>) {
    if let Some(tags) = operation.get("tags") {
        strings(out, 1, tags);
    }
    texts(
        out,
        operation,
        &[("summary", 2), ("description", 3), ("operationId", 5)],
    );
    for found in array(operation, "parameters") {
        nested(out, 6, Some(found), parameter_or_reference);
    }
    nested(out, 7, operation.get("requestBody"), |out, body| {
        message(out, 1, |out| {
            texts(out, body, &[("description", 1)]);
            nested(out, 2, body.get("content"), media_types);
            flags(out, body, &[("required", 3)]);
        });
    });
    nested(out, 8, operation.get("responses"), |out, responses| {
        named(out, 2, responses, |out, response| {
            message(out, 1, |out| {
                texts(out, response, &[("description", 1)]);
                nested(out, 3, response.get("content"), media_types);
            });
        });
    });
    flags(out, operation, &[("deprecated", 10)]);
    extensions(out, 13, operation);
}

fn media_types(out: &mut Vec<u8>, types: &Map<String, Value>) {
    named(out, 1, types, |out, media| {
        nested(out, 1, media.get("schema"), schema_or_reference);
    });
}

fn parameter_or_reference(out: &mut Vec<u8>, parameter: &Map<String, Value>) {
    if is_reference(out, parameter) {
        return;
    }
    message(out, 1, |out| {
        texts(
            out,
            parameter,
            &[("name", 1), ("in", 2), ("description", 3)],
        );
        flags(out, parameter, &[("required", 4)]);
        nested(out, 10, parameter.get("schema"), schema_or_reference);
        extensions(out, 14, parameter);
    });
}

/// Writes a reference, if it is one.
fn is_reference(out: &mut Vec<u8>, object: &Map<String, Value>) -> bool {
    let reference = object.get("$ref").and_then(Value::as_str);
    if let Some(reference) = reference {
        message(out, 2, |out| put_bytes(out, 1, reference.as_bytes()));
    }
    reference.is_some()
}

fn schema_or_reference(out: &mut Vec<u8>, object: &Map<String, Value>) {
    if !is_reference(out, object) {
        message(out, 1, |out| schema(out, object));
    }
}

fn schema(out: &mut Vec<u8>, object: &Map<String, Value>) {
    flags(out, object, &[("nullable", 1)]);
    any(out, 7, object.get("example"));
    flags(out, object, &[("deprecated", 8)]);
    texts(out, object, &[("title", 9)]);
    numbers(
        out,
        object,
        &[("multipleOf", 10), ("maximum", 11), ("minimum", 13)],
    );
    flags(
        out,
        object,
        &[
            ("exclusiveMaximum", 12),
            ("exclusiveMinimum", 14),
            ("uniqueItems", 20),
        ],
    );
    integers(
        out,
        object,
        &[
            ("maxLength", 15),
            ("minLength", 16),
            ("maxItems", 18),
            ("minItems", 19),
            ("maxProperties", 21),
            ("minProperties", 22),
        ],
    );
    texts(out, object, &[("pattern", 17)]);
    if let Some(required) = object.get("required") {
        strings(out, 23, required);
    }
    for value in array(object, "enum") {
        any(out, 24, Some(value));
    }
    texts(out, object, &[("type", 25)]);
    for (name, number) in [("allOf", 26), ("oneOf", 27), ("anyOf", 28)] {
        for part in array(object, name) {
            nested(out, number, Some(part), schema_or_reference);
        }
    }
    nested(out, 29, object.get("not"), schema);
    nested(out, 30, object.get("items"), |out, items| {
        message(out, 1, |out| schema_or_reference(out, items));
    });
    nested(out, 31, object.get("properties"), |out, properties| {
        named(out, 1, properties, schema_or_reference);
    });
    match object.get("additionalProperties") {
        Some(Value::Bool(flag)) => message(out, 32, |out| {
            put_tag(out, 2, VARINT);
            out.push((*flag).into());
        }),
        value => nested(out, 32, value, |out, found| {
            message(out, 1, |out| schema_or_reference(out, found));
        }),
    }
    if let Some(value) = object.get("default") {
        message(out, 33, |out| default(out, value));
    }
    texts(out, object, &[("description", 34), ("format", 35)]);
    extensions(out, 36, object);
}

/// A default. The message has no field for objects and lists: they are empty.
fn default(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Bool(flag) => {
            put_tag(out, 2, VARINT);
            out.push((*flag).into());
        }
        Value::String(text) => put_bytes(out, 3, text.as_bytes()),
        Value::Number(number) => {
            put_tag(out, 1, FIXED64);
            out.extend_from_slice(&number.as_f64().unwrap_or_default().to_le_bytes());
        }
        Value::Null | Value::Array(_) | Value::Object(_) => {}
    }
}
