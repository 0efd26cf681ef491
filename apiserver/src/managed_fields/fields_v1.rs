//! `FieldsV1`, the JSON form of sets of fields.

use serde_json::{Map, Value, json};

use super::{FieldSet, PathElement};

/// The key that says that a field with others in it is a member itself.
const SELF: &str = ".";

impl FieldSet {
    /// Reads `FieldsV1`, or returns `None` if it is malformed.
    ///
    /// ```
    /// use revstore_apiserver::managed_fields::FieldSet;
    /// use serde_json::json;
    /// let fields = json!({"f:spec": {".": {}, "f:color": {}}});
    /// let set = FieldSet::from_fields_v1(&fields).unwrap();
    /// assert_eq!(set, FieldSet::of_names(&["spec", "spec.color"]));
    /// assert_eq!(set.to_fields_v1(), fields);
    /// ```
    pub fn from_fields_v1(fields: &Value) -> Option<Self> {
        let mut set = Self::default();
        for (key, value) in fields.as_object()? {
            if key == SELF {
                continue;
            }
            let element = PathElement::from_fields_v1(key)?;
            let inner = value.as_object()?;
            if inner.is_empty() || inner.contains_key(SELF) {
                set.members.insert(element.clone());
            }
            let child = Self::from_fields_v1(value)?;
            if !child.is_empty() {
                set.children.insert(element, child);
            }
        }
        Some(set)
    }

    /// Returns the `FieldsV1` of the set.
    pub fn to_fields_v1(&self) -> Value {
        let mut fields = Map::new();
        for member in &self.members {
            fields.insert(member.to_fields_v1(), json!({}));
        }
        for (element, child) in &self.children {
            let mut inner = child.to_fields_v1();
            if self.members.contains(element)
                && let Some(inner) = inner.as_object_mut()
            {
                inner.insert(SELF.to_owned(), json!({}));
            }
            fields.insert(element.to_fields_v1(), inner);
        }
        Value::Object(fields)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::managed_fields::FieldSet;

    #[test]
    fn fields_v1_is_read_and_written() {
        let fields = json!({
            "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
            "f:spec": {
                "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}}},
                "f:finalizers": {"v:\"a\"": {}},
            },
        });
        let set = FieldSet::from_fields_v1(&fields).unwrap();
        assert_eq!(set.to_fields_v1(), fields);
        assert_eq!(set.len(), 5);
        for malformed in [
            json!([]),
            json!({"x": {}}),
            json!({"f:a": 1}),
            json!({"f:a": {"b": {}}}),
        ] {
            assert_eq!(FieldSet::from_fields_v1(&malformed), None, "{malformed}");
        }
    }
}
