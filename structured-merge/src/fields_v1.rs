//! `FieldsV1`, the JSON form of sets of fields.

use serde_json::{Map, Value, json};

use crate::{ElementError, FieldSet, PathElement};

/// The key that says that a field with others in it is a member itself.
const SELF: &str = ".";

impl FieldSet {
    /// Reads `FieldsV1`, or returns `None` if it is malformed. Elements of a kind that is not known are left out.
    ///
    /// ```
    /// use revstore_structured_merge::FieldSet;
    /// use serde_json::json;
    /// let fields = json!({"f:spec": {".": {}, "f:color": {}}});
    /// let set = FieldSet::from_fields_v1(&fields).unwrap();
    /// assert_eq!(set, FieldSet::of_names(&["spec", "spec.color"]));
    /// assert_eq!(set.to_fields_v1(), fields);
    /// ```
    pub fn from_fields_v1(fields: &Value) -> Option<Self> {
        let mut set = Self::default();
        let members = match fields {
            Value::Null => return Some(set),
            fields => fields.as_object()?,
        };
        for (key, value) in members {
            if key == SELF {
                continue;
            }
            let element = match PathElement::from_fields_v1(key) {
                Ok(element) => element,
                Err(ElementError::UnknownKind) => continue,
                Err(_) => return None,
            };
            let child = Self::from_fields_v1(value)?;
            if child.is_empty() || value.get(SELF).is_some() {
                set.members.insert(element.clone());
            }
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

    use crate::FieldSet;

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
            json!({"f:a": {"k:[]": {}}}),
        ] {
            assert_eq!(FieldSet::from_fields_v1(&malformed), None, "{malformed}");
        }
        // A later version may have other kinds of elements.
        let later = json!({"f:a": {"x:b": {}}, "y:c": 1, "f:d": null});
        let set = FieldSet::from_fields_v1(&later).unwrap();
        assert_eq!(set, FieldSet::of_names(&["a", "d"]));
    }
}
