//! `FieldsV1`, the JSON form of sets of fields.

use serde_json::{Map, Value, json};

use crate::element::Names;
use crate::set::Slot;
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
        Self::read(fields, &mut Names::default())
    }

    fn read(fields: &Value, names: &mut Names) -> Option<Self> {
        let members = match fields {
            Value::Null => return Some(Self::EMPTY),
            fields => fields.as_object()?,
        };
        let mut slots = Vec::with_capacity(members.len());
        let mut last = Self::EMPTY;
        for (key, value) in members {
            if key == SELF {
                continue;
            }
            let element = match PathElement::read(key, names) {
                Ok(element) => element,
                Err(ElementError::UnknownKind) => continue,
                Err(_) => return None,
            };
            let child = Self::read(value, names)?;
            slots.push(Slot {
                element,
                is_member: child.is_empty() || value.get(SELF).is_some(),
                child: child.shared_with(&mut last),
            });
        }
        Some(Self::of_slots(slots))
    }

    /// Returns the `FieldsV1` of the set.
    pub fn to_fields_v1(&self) -> Value {
        let mut fields = Map::new();
        for slot in self.slots() {
            let mut inner = slot.child.to_fields_v1();
            if slot.is_member
                && !slot.child.is_empty()
                && let Some(inner) = inner.as_object_mut()
            {
                inner.insert(SELF.to_owned(), json!({}));
            }
            fields.insert(slot.element.to_fields_v1(), inner);
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
