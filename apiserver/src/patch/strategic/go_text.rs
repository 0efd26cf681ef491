//! Values as Go prints them in messages about strategic merge patches (`%v`).

use std::fmt;

use serde_json::Value;

/// Prints a value as `%v`.
pub(super) struct GoText<'a>(pub(super) &'a Value);

impl fmt::Display for GoText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("<nil>"),
            Value::Bool(flag) => flag.fmt(f),
            Value::Number(number) => number.fmt(f),
            Value::String(text) => f.write_str(text),
            Value::Array(items) => {
                f.write_str("[")?;
                for (index, item) in items.iter().enumerate() {
                    let separator = if index == 0 { "" } else { " " };
                    write!(f, "{separator}{}", GoText(item))?;
                }
                f.write_str("]")
            }
            Value::Object(object) => {
                f.write_str("map[")?;
                let mut members: Vec<_> = object.iter().collect();
                members.sort_unstable_by_key(|(key, _)| *key);
                for (index, (key, value)) in members.into_iter().enumerate() {
                    let separator = if index == 0 { "" } else { " " };
                    write!(f, "{separator}{key}:{}", GoText(value))?;
                }
                f.write_str("]")
            }
        }
    }
}

/// Returns the name of the Go type of a value.
pub(super) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::GoText;

    #[test]
    fn values_are_printed_as_by_go() {
        let value = json!({"b": [1, "x", null], "a": {"c": true, "d": 1.5}});
        assert_eq!(
            GoText(&value).to_string(),
            "map[a:map[c:true d:1.5] b:[1 x <nil>]]"
        );
    }
}
