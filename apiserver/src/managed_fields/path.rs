//! The parts of the path of a field.

use serde_json::{Map, Value};

/// A part of the path of a field.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathElement {
    /// A member of an object: `f:name`.
    Field(String),
    /// An item of a list, by the JSON object of its keys: `k:{"name":"c"}`.
    Key(String),
    /// An item of a set, by its JSON: `v:"a"`.
    Value(String),
    /// An item of a list, by its position: `i:0`.
    Index(i64),
}

impl PathElement {
    /// Returns the item with these values of its keys.
    pub fn key(keys: &Map<String, Value>) -> Self {
        Self::Key(go_json(&Value::Object(keys.clone())))
    }

    /// Returns the item of a set with this value.
    pub fn value(value: &Value) -> Self {
        Self::Value(go_json(value))
    }

    /// Reads a key of `FieldsV1`, or returns `None` if it is malformed.
    ///
    /// ```
    /// use revstore_apiserver::managed_fields::PathElement;
    /// let field = PathElement::from_fields_v1("f:spec");
    /// assert_eq!(field, Some(PathElement::Field("spec".into())));
    /// assert_eq!(PathElement::from_fields_v1("k:{"), None);
    /// ```
    pub fn from_fields_v1(text: &str) -> Option<Self> {
        let (kind, content) = text.split_once(':')?;
        match kind {
            "f" => Some(Self::Field(content.to_owned())),
            "k" => match serde_json::from_str(content).ok()? {
                Value::Object(keys) => Some(Self::key(&keys)),
                _ => None,
            },
            "v" => Some(Self::value(&serde_json::from_str(content).ok()?)),
            "i" => Some(Self::Index(content.parse().ok()?)),
            _ => None,
        }
    }

    /// Returns the key of `FieldsV1`.
    pub fn to_fields_v1(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(json) => format!("k:{json}"),
            Self::Value(json) => format!("v:{json}"),
            Self::Index(index) => format!("i:{index}"),
        }
    }
}

/// Returns a value as Go writes it: with sorted keys, and some letters of HTML as escape sequences.
fn go_json(value: &Value) -> String {
    let text = match value {
        Value::Object(object) => {
            let mut members: Vec<_> = object.iter().collect();
            members.sort_unstable_by_key(|(key, _)| *key);
            let members: Vec<_> = members
                .into_iter()
                .map(|(key, value)| format!("{}:{}", Value::from(key.as_str()), go_json(value)))
                .collect();
            return format!("{{{}}}", members.join(","));
        }
        other => other.to_string(),
    };
    text.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::PathElement;

    #[test]
    fn keys_of_fields_v1_are_read_and_written() {
        for text in [
            "f:spec",
            "f:",
            "f:a:b",
            "k:{\"containerPort\":80,\"protocol\":\"TCP\"}",
            "v:\"a\\u003cb\"",
            "v:1",
            "i:-3",
        ] {
            let element = PathElement::from_fields_v1(text).unwrap();
            assert_eq!(element.to_fields_v1(), text);
        }
        let sorted = PathElement::from_fields_v1("k:{\"b\": 1, \"a\": 2}").unwrap();
        assert_eq!(sorted.to_fields_v1(), "k:{\"a\":2,\"b\":1}");
        for text in ["", "f", "x:a", "k:[]", "k:{", "v:", "i:x"] {
            assert_eq!(PathElement::from_fields_v1(text), None, "{text}");
        }
    }
}
