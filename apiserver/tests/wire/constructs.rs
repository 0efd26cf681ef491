//! A custom resource with a property of each construct that schemas have, and values for them.

use serde_json::{Value, json};

/// Returns a property of each construct, with a valid value.
#[expect(clippy::too_many_lines, reason = "it is a table")]
pub(crate) fn constructs() -> Vec<(&'static str, Value, Value)> {
    let text = json!({"type": "string"});
    let item = json!({"type": "object", "required": ["name"], "properties": {"name": text, "port": {"type": "integer",
        "default": 80}}});
    vec![
        (
            "text",
            json!({"type": "string", "minLength": 2, "maxLength": 5, "pattern": "^[a-z]*$"}),
            json!("abc"),
        ),
        (
            "choice",
            json!({"type": "string", "enum": ["a", "b"]}),
            json!("a"),
        ),
        (
            "time",
            json!({"type": "string", "format": "date-time"}),
            json!("2024-01-01T00:00:00Z"),
        ),
        (
            "bytes",
            json!({"type": "string", "format": "byte"}),
            json!("YQ=="),
        ),
        (
            "uri",
            json!({"type": "string", "format": "uri"}),
            json!("http://a/b"),
        ),
        (
            "whole",
            json!({"type": "integer", "minimum": 1, "maximum": 9, "exclusiveMaximum": true}),
            json!(3),
        ),
        (
            "small",
            json!({"type": "integer", "format": "int32"}),
            json!(3),
        ),
        (
            "number",
            json!({"type": "number", "multipleOf": 0.5}),
            json!(1.5),
        ),
        (
            "flag",
            json!({"type": "boolean", "default": true}),
            json!(false),
        ),
        (
            "nullable",
            json!({"type": "string", "nullable": true}),
            json!(null),
        ),
        (
            "either",
            json!({"x-kubernetes-int-or-string": true}),
            json!("5%"),
        ),
        (
            "list",
            json!({"type": "array", "items": text, "minItems": 1, "maxItems": 3}),
            json!(["a", "a"]),
        ),
        (
            "atomic",
            json!({"type": "array", "items": text, "x-kubernetes-list-type": "atomic"}),
            json!(["a"]),
        ),
        (
            "set",
            json!({"type": "array", "items": text, "x-kubernetes-list-type": "set"}),
            json!(["a", "b"]),
        ),
        (
            "byName",
            json!({"type": "array", "items": item, "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"]}),
            json!([{"name": "a", "port": 1}, {"name": "b"}]),
        ),
        (
            "struct",
            json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}, "b": {
            "type": "object", "default": {"c": "x"}, "properties": {"c": text}}}}),
            json!({"a": 1, "b": {"c": "y"}}),
        ),
        (
            "granular",
            json!({"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": text}}),
            json!({"a": "b"}),
        ),
        (
            "map",
            json!({"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1,
            "maxProperties": 3}),
            json!({"a": 1}),
        ),
        (
            "open",
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
            json!({"a": [{}]}),
        ),
        (
            "any",
            json!({"x-kubernetes-preserve-unknown-fields": true}),
            json!([1, "a"]),
        ),
        (
            "embedded",
            json!({"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true}),
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}}),
        ),
        (
            "oneOf",
            json!({"type": "object", "properties": {"a": text, "b": text}, "oneOf": [{"required": ["a"]},
            {"required": ["b"]}]}),
            json!({"a": "x"}),
        ),
        (
            "anyOf",
            json!({"type": "string", "anyOf": [{"minLength": 5}, {"pattern": "^x"}]}),
            json!("xy"),
        ),
        (
            "allOf",
            json!({"type": "string", "allOf": [{"minLength": 1}, {"maxLength": 3}]}),
            json!("xy"),
        ),
        (
            "not",
            json!({"type": "string", "not": {"enum": ["x"]}}),
            json!("y"),
        ),
        (
            "rule",
            json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self > 2",
            "message": "too small"}]}),
            json!(3),
        ),
        (
            "fixed",
            json!({"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}),
            json!("x"),
        ),
    ]
}

/// Returns a valid object.
pub(crate) fn thing(name: &str) -> Value {
    let values = constructs()
        .into_iter()
        .map(|(name, _, value)| (name.to_owned(), value));
    let spec: serde_json::Map<String, Value> = values.collect();
    json!({"apiVersion": "wire.example.com/v1", "kind": "Thing", "metadata": {"name": name}, "spec": spec})
}

/// Returns values of all types, usual and unusual.
pub(crate) fn values() -> Vec<Value> {
    vec![
        Value::Null,
        json!(true),
        json!(0),
        json!(-1),
        json!(7),
        json!(1.25),
        json!(2.0),
        json!(u64::MAX),
        json!(1e300),
        json!(""),
        json!("a"),
        json!("\u{0}\u{2028}"),
        json!("x".repeat(1000)),
        json!([]),
        json!([null]),
        json!([{}]),
        json!([[]]),
        json!(["a", "a", 1, {}]),
        json!([{"name": "a"}, {"name": "a"}]),
        json!([{"name": null}, {"name": 1}]),
        json!({}),
        json!({"a": null}),
        json!({"a": {"b": [{}]}}),
        json!({"a": "x", "b": "y"}),
        json!({"": 1, "\u{0}": 2, "k/l": 3, "m": 4}),
        json!({"apiVersion": 1, "kind": [], "metadata": {"name": {}, "labels": 5}}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": 1}}}),
    ]
}
