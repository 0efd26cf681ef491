//! A v2 document as the message `openapi.v2.Document` of gnostic.

use serde_json::{Map, Value};

use super::{
    Fields, any, array, extensions, flags, integers, message, named, nested, numbers, strings,
    texts,
};
use crate::protobuf::wire::{VARINT, put_bytes, put_tag};

const OPERATIONS: Fields = &[
    ("get", 2),
    ("put", 3),
    ("post", 4),
    ("delete", 5),
    ("options", 6),
    ("head", 7),
    ("patch", 8),
];

pub(in crate::openapi) fn document(document: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 << 20);
    let Value::Object(object) = document else {
        return out;
    };
    texts(&mut out, object, &[("swagger", 1)]);
    nested(&mut out, 2, object.get("info"), |out, info| {
        texts(out, info, &[("title", 1), ("version", 2)]);
    });
    nested(&mut out, 8, object.get("paths"), |out, paths| {
        named(out, 2, paths, path_item);
    });
    nested(
        &mut out,
        9,
        object.get("definitions"),
        |out, definitions| named(out, 1, definitions, schema),
    );
    for requirement in array(object, "security") {
        nested(&mut out, 12, Some(requirement), |out, requirement| {
            for (name, scopes) in requirement {
                message(out, 1, |out| {
                    put_bytes(out, 1, name.as_bytes());
                    message(out, 2, |out| strings(out, 1, scopes));
                });
            }
        });
    }
    nested(
        &mut out,
        13,
        object.get("securityDefinitions"),
        |out, definitions| {
            named(out, 1, definitions, |out, definition| {
                message(out, 2, |out| {
                    texts(out, definition, &[("type", 1), ("name", 2), ("in", 3)]);
                });
            });
        },
    );
    extensions(&mut out, 16, object);
    out
}

fn path_item(out: &mut Vec<u8>, item: &Map<String, Value>) {
    for (name, number) in OPERATIONS {
        nested(out, *number, item.get(*name), operation);
    }
    for parameter in array(item, "parameters") {
        nested(out, 9, Some(parameter), parameters_item);
    }
    extensions(out, 10, item);
}

fn operation(out: &mut Vec<u8>, operation: &Map<String, Value>) {
    let list = |out: &mut Vec<u8>, number, name| {
        if let Some(values) = operation.get(name) {
            strings(out, number, values);
        }
    };
    list(out, 1, "tags");
    texts(
        out,
        operation,
        &[("summary", 2), ("description", 3), ("operationId", 5)],
    );
    list(out, 6, "produces");
    list(out, 7, "consumes");
    for parameter in array(operation, "parameters") {
        nested(out, 8, Some(parameter), parameters_item);
    }
    nested(out, 9, operation.get("responses"), |out, responses| {
        named(out, 1, responses, |out, response| {
            message(out, 1, |out| {
                texts(out, response, &[("description", 1)]);
                nested(out, 2, response.get("schema"), |out, found| {
                    message(out, 1, |out| schema(out, found));
                });
            });
        });
    });
    list(out, 10, "schemes");
    extensions(out, 13, operation);
}

fn parameters_item(out: &mut Vec<u8>, parameter: &Map<String, Value>) {
    if let Some(reference) = parameter.get("$ref").and_then(Value::as_str) {
        message(out, 2, |out| put_bytes(out, 1, reference.as_bytes()));
        return;
    }
    message(out, 1, |out| {
        match parameter.get("in").and_then(Value::as_str) {
            Some("body") => message(out, 1, |out| {
                texts(
                    out,
                    parameter,
                    &[("description", 1), ("name", 2), ("in", 3)],
                );
                flags(out, parameter, &[("required", 4)]);
                nested(out, 5, parameter.get("schema"), schema);
                extensions(out, 6, parameter);
            }),
            Some("path") => message(out, 2, |out| {
                message(out, 4, |out| {
                    flags(out, parameter, &[("required", 1)]);
                    texts(
                        out,
                        parameter,
                        &[
                            ("in", 2),
                            ("description", 3),
                            ("name", 4),
                            ("type", 5),
                            ("format", 6),
                        ],
                    );
                    flags(out, parameter, &[("uniqueItems", 18)]);
                    extensions(out, 22, parameter);
                });
            }),
            _ => message(out, 2, |out| {
                message(out, 3, |out| {
                    flags(out, parameter, &[("required", 1)]);
                    texts(
                        out,
                        parameter,
                        &[
                            ("in", 2),
                            ("description", 3),
                            ("name", 4),
                            ("type", 6),
                            ("format", 7),
                        ],
                    );
                    flags(out, parameter, &[("uniqueItems", 19)]);
                    extensions(out, 23, parameter);
                });
            }),
        }
    });
}

fn schema(out: &mut Vec<u8>, object: &Map<String, Value>) {
    texts(
        out,
        object,
        &[("$ref", 1), ("format", 2), ("title", 3), ("description", 4)],
    );
    any(out, 5, object.get("default"));
    numbers(
        out,
        object,
        &[("multipleOf", 6), ("maximum", 7), ("minimum", 9)],
    );
    flags(
        out,
        object,
        &[
            ("exclusiveMaximum", 8),
            ("exclusiveMinimum", 10),
            ("uniqueItems", 16),
        ],
    );
    integers(
        out,
        object,
        &[
            ("maxLength", 11),
            ("minLength", 12),
            ("maxItems", 14),
            ("minItems", 15),
            ("maxProperties", 17),
            ("minProperties", 18),
        ],
    );
    texts(out, object, &[("pattern", 13)]);
    if let Some(required) = object.get("required") {
        strings(out, 19, required);
    }
    for value in array(object, "enum") {
        any(out, 20, Some(value));
    }
    match object.get("additionalProperties") {
        Some(Value::Bool(flag)) => message(out, 21, |out| {
            put_tag(out, 2, VARINT);
            out.push((*flag).into());
        }),
        value => nested(out, 21, value, |out, found| {
            message(out, 1, |out| schema(out, found));
        }),
    }
    if let Some(ty) = object.get("type") {
        message(out, 22, |out| strings(out, 1, ty));
    }
    nested(out, 23, object.get("items"), |out, items| {
        message(out, 1, |out| schema(out, items));
    });
    for part in array(object, "allOf") {
        nested(out, 24, Some(part), schema);
    }
    nested(out, 25, object.get("properties"), |out, properties| {
        named(out, 1, properties, schema);
    });
    extensions(out, 31, object);
}
