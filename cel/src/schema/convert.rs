//! Data as values, by its schema.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;

use super::{DEPTH_MAX, additional, escape, flag, properties};
use crate::values::{Key, List, ListKind, Map, Value, parse_date, read_date_time, read_duration};

/// Converts data by its schema. Where it does not match, the use of the value is an error.
///
/// `is_root`: the data is a whole resource.
pub fn to_value(data: &Json, schema: &Json, is_root: bool) -> Value {
    convert(data, schema, is_root, 0)
}

fn invalid(message: impl Into<Arc<str>>) -> Value {
    Value::Invalid(message.into())
}

fn convert(data: &Json, schema: &Json, is_root: bool, depth: usize) -> Value {
    if depth > DEPTH_MAX {
        return invalid("invalid data, it is too deep");
    }
    if data.is_null() {
        if flag(schema, "nullable") {
            return Value::Null;
        }
        return invalid("invalid data, got null for schema with nullable=false");
    }
    if flag(schema, "x-kubernetes-int-or-string") {
        return match data {
            Json::String(text) => Value::from(text.as_str()),
            Json::Number(number) if number.is_i64() => {
                Value::Int(number.as_i64().unwrap_or_default())
            }
            _ => invalid(
                "invalid data, expected XIntOrString value to be either a string or integer",
            ),
        };
    }
    let format = schema
        .get("format")
        .and_then(Json::as_str)
        .unwrap_or_default();
    match (schema.get("type").and_then(Json::as_str), data) {
        (Some("object"), Json::Object(fields)) => object(fields, schema, is_root, depth),
        (Some("object"), _) => {
            invalid("invalid data, expected a map for the provided schema with type=object")
        }
        (Some("array"), Json::Array(items)) => list(items, schema, depth),
        (Some("array"), _) => {
            invalid("invalid data, expected an array for the provided schema with type=array")
        }
        (Some("string"), Json::String(text)) => string(text, format),
        (Some("string"), other) => invalid(format!(
            "invalid data, expected string, got {}",
            go_type(other)
        )),
        (Some("number"), Json::Number(number)) => {
            Value::Double(number.as_f64().unwrap_or(f64::NAN))
        }
        (Some("number"), other) => invalid(format!(
            "invalid data, expected float, got {}",
            go_type(other)
        )),
        (Some("integer"), Json::Number(number)) if number.is_i64() => {
            Value::Int(number.as_i64().unwrap_or_default())
        }
        (Some("integer"), other) => invalid(format!(
            "invalid data, expected int, got {}",
            go_type(other)
        )),
        (Some("boolean"), Json::Bool(value)) => Value::Bool(*value),
        (Some("boolean"), other) => invalid(format!(
            "invalid data, expected bool, got {}",
            go_type(other)
        )),
        (of, _) if flag(schema, "x-kubernetes-preserve-unknown-fields") => {
            let _ = of;
            Value::Unknown(Arc::new(data.clone()))
        }
        (of, _) => invalid(format!(
            "invalid type, expected object, array, number, integer, boolean or string, or no type with x-kubernetes-int-or-string or x-kubernetes-preserve-unknown-fields is true, got {}",
            of.unwrap_or_default()
        )),
    }
}

/// Returns the name of the type of data in upstream's messages.
fn go_type(data: &Json) -> &'static str {
    match data {
        Json::Null => "<nil>",
        Json::Bool(_) => "bool",
        Json::Number(number) if number.is_i64() => "int64",
        Json::Number(_) => "float64",
        Json::String(_) => "string",
        Json::Array(_) => "[]interface {}",
        Json::Object(_) => "map[string]interface {}",
    }
}

fn string(text: &str, format: &str) -> Value {
    let wrong = |name: &str| invalid(format!("Invalid {name} {text}"));
    match format {
        "duration" => read_duration(text).map_or_else(
            |error| invalid(format!("Invalid duration {text}: {error}")),
            Value::Duration,
        ),
        "date" => parse_date(text).map_or_else(|| wrong("date formatted string"), Value::Timestamp),
        "date-time" => read_date_time(text)
            .map_or_else(|| wrong("date-time formatted string"), Value::Timestamp),
        "byte" => STANDARD.decode(text).map_or_else(
            |_| wrong("byte formatted string"),
            |it| Value::Bytes(it.into()),
        ),
        _ => Value::from(text),
    }
}

fn list(items: &[Json], schema: &Json, depth: usize) -> Value {
    let Some(inner) = schema.get("items") else {
        return invalid("invalid array type, expected Items with a non-empty Schema");
    };
    let is_root = flag(inner, "x-kubernetes-embedded-resource");
    let items = items
        .iter()
        .map(|item| convert(item, inner, is_root, depth + 1))
        .collect();
    let kind = match schema.get("x-kubernetes-list-type").and_then(Json::as_str) {
        Some("set") => ListKind::Set,
        Some("map") => {
            let keys = schema
                .get("x-kubernetes-list-map-keys")
                .and_then(Json::as_array);
            let keys = keys.into_iter().flatten().filter_map(Json::as_str);
            ListKind::Map(
                keys.map(|key| escape(key).unwrap_or_else(|| key.to_owned()))
                    .collect(),
            )
        }
        _ => ListKind::Atomic,
    };
    Value::List(List::of_kind(items, kind))
}

fn object(
    fields: &serde_json::Map<String, Json>,
    schema: &Json,
    is_root: bool,
    depth: usize,
) -> Value {
    let properties = properties(schema, is_root);
    let values = additional(schema);
    let mut visible = BTreeMap::new();
    let mut hidden = BTreeMap::new();
    for (name, data) in fields {
        let (key, inner) = match (&properties, values) {
            // A null property is as an absent one.
            (Some(_), _) if data.is_null() => (None, None),
            (Some(properties), _) => (escape(name), properties.get(name)),
            (None, Some(values)) => (Some(name.clone()), Some(values)),
            (None, None) => (None, None),
        };
        match (key, inner) {
            (Some(key), Some(inner)) => {
                let is_root = flag(inner, "x-kubernetes-embedded-resource");
                let value = convert(data, inner, is_root, depth + 1);
                visible.insert(Key::String(key.into()), value);
            }
            _ => {
                hidden.insert(name.clone(), data.clone());
            }
        }
    }
    Value::Map(Map::object(visible, hidden))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::{CALL_COST_MAX, Declared, Environment, to_value};

    /// Returns what an expression makes of a text of a format, which is `self.it`.
    fn evaluate(expression: &str, format: &str, text: &str) -> String {
        let text_of = json!({"type": "string", "format": format});
        let schema = json!({"type": "object", "properties": {"it": text_of}});
        let declared = Declared::from_schema(&schema, "selfType", false).unwrap();
        let environment = Environment::new().with_declared("self", &declared);
        let program = environment.compile(expression).unwrap();
        let data = to_value(&json!({"it": text}), &schema, false);
        match program.evaluate(&[("self", data)], CALL_COST_MAX).result {
            Ok(value) => value.to_string(),
            Err(error) => error.to_string(),
        }
    }

    /// The answers are those of kube-apiserver 1.36.
    #[test]
    fn texts_are_read_by_their_formats() {
        for (expression, format, text, expected) in [
            ("self.it", "duration", "1h30m", "duration(5400000000000)"),
            ("self.it", "duration", "1d", "duration(86400000000000)"),
            ("self.it", "duration", "3h 4m", "duration(11040000000000)"),
            ("self.it > duration('1s')", "duration", "1 hour", "true"),
            (
                "self.it",
                "duration",
                "x",
                "Invalid duration x: unable to parse x as duration",
            ),
            (
                "self.it",
                "date-time",
                "2021-01-01T00:00:00",
                "timestamp(1609459200.0)",
            ),
            (
                "self.it",
                "date-time",
                "2021-01-01t00:00:00z",
                "Invalid date-time formatted string 2021-01-01t00:00:00z",
            ),
            ("self.it", "date", "0000-01-01", "timestamp(-62167219200.0)"),
            ("self.it.getDayOfWeek()", "date", "0000-01-01", "6"),
            (
                "string(self.it)",
                "date",
                "0000-01-01",
                "\"0000-01-01T00:00:00Z\"",
            ),
            (
                "self.it + duration('1h')",
                "date",
                "0000-01-01",
                "timestamp overflow",
            ),
        ] {
            assert_eq!(evaluate(expression, format, text), expected, "{text}");
        }
    }

    #[test]
    fn conversions_in_expressions_read_rfc_3339() {
        let answer = |expression: &str| evaluate(expression, "date", "2021-01-01");
        let text = "2021-01-01t00:00:00z";
        assert_eq!(
            answer(&format!("timestamp(self.it == self.it ? '{text}' : '')")),
            "type conversion error from 'string' to 'google.protobuf.Timestamp'"
        );
        assert_eq!(
            answer(&format!("format.datetime().validate('{text}')")),
            "none"
        );
    }
}
