//! Merge patches: RFC 7386, with the deviations of the library that kube-apiserver uses.

use serde_json::{Map, Value};

use super::PatchError;
use crate::decode::from_json;

/// A merge patch: objects are merged, `null` removes a member, all else replaces.
///
/// In a value that replaces another one or is new, members that are `null` are removed, also those in
/// lists. This is not so for a list in place of an object. (RFC 7386 does not look into lists.)
#[derive(Clone, Debug, PartialEq)]
pub struct MergePatch(Value);

impl MergePatch {
    /// Reads a patch. Returns it with the errors of strict decoding. Without `is_strict` it may also be a
    /// list, which replaces the object.
    ///
    /// # Errors
    /// [`PatchError`] if the patch is malformed.
    pub fn from_body(body: &[u8], is_strict: bool) -> Result<(Self, Vec<String>), PatchError> {
        let decoded = match from_json(body) {
            Ok(decoded) => decoded,
            Err(error) if is_strict => return Err(PatchError::malformed(&error)),
            Err(_) => return Err(PatchError::MalformedMerge),
        };
        match decoded.value {
            Value::Object(_) => Ok((Self(decoded.value), decoded.strict)),
            Value::Array(_) if !is_strict => Ok((Self(decoded.value), decoded.strict)),
            Value::Null => Err(PatchError::MalformedMerge),
            other if is_strict => Err(super::json::not_a_map(&other)),
            _ => Err(PatchError::MalformedMerge),
        }
    }

    /// Applies the patch to an object.
    ///
    /// # Errors
    /// [`PatchError`] if `object` is not an object.
    ///
    /// ```
    /// use revstore_apiserver::patch::MergePatch;
    /// use serde_json::json;
    /// let (patch, _) = MergePatch::from_body(br#"{"a": null, "b": {"c": 1}}"#, true)?;
    /// assert_eq!(patch.apply(&json!({"a": 1, "b": {"d": 2}}))?, json!({"b": {"c": 1, "d": 2}}));
    /// # Ok::<(), revstore_apiserver::patch::PatchError>(())
    /// ```
    pub fn apply(&self, object: &Value) -> Result<Value, PatchError> {
        match (object, &self.0) {
            (Value::Object(object), Value::Object(patch)) => {
                let mut merged = object.clone();
                merge(&mut merged, patch);
                Ok(Value::Object(merged))
            }
            (Value::Object(_), patch) => Ok(pruned(patch)),
            _ => Err(PatchError::Unfit("Invalid JSON Document".to_owned())),
        }
    }
}

fn merge(object: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (key, value) in patch {
        if value.is_null() {
            object.remove(key);
            continue;
        }
        match (object.get_mut(key), value) {
            (Some(Value::Object(current)), Value::Object(patch)) => merge(current, patch),
            (Some(current @ Value::Object(_)), value) => *current = value.clone(),
            (_, value) => {
                object.insert(key.clone(), pruned(value));
            }
        }
    }
}

/// Returns a value without members that are `null`. Items that are `null` stay.
fn pruned(value: &Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.iter().map(pruned).collect()),
        Value::Object(object) => {
            let members = object.iter().filter(|(_, value)| !value.is_null());
            Value::Object(
                members
                    .map(|(key, value)| (key.clone(), pruned(value)))
                    .collect(),
            )
        }
        scalar => scalar.clone(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::{MergePatch, PatchError, pruned};

    fn apply(object: &Value, patch: &str) -> Value {
        let (patch, _) = MergePatch::from_body(patch.as_bytes(), true).unwrap();
        patch.apply(object).unwrap()
    }

    #[test]
    fn objects_are_merged_and_all_else_is_replaced() {
        for (object, patch, expected) in [
            (json!({"a": 1}), r#"{"a":null,"b":null}"#, json!({})),
            (
                json!({"a": {"b": 1}}),
                r#"{"a":{"c":null}}"#,
                json!({"a": {"b": 1}}),
            ),
            (
                json!({"a": [1]}),
                r#"{"a":{"b":null,"c":1}}"#,
                json!({"a": {"c": 1}}),
            ),
            (json!({"a": null}), r#"{"a":{"b":null}}"#, json!({"a": {}})),
            (
                json!({}),
                r#"{"a":[{"b":null},null]}"#,
                json!({"a": [{}, null]}),
            ),
            (json!({"a": 1}), r#"{"a":[{"b":null}]}"#, json!({"a": [{}]})),
            (
                json!({"a": {"x": 1}}),
                r#"{"a":[{"b":null}]}"#,
                json!({"a": [{"b": null}]}),
            ),
        ] {
            assert_eq!(apply(&object, patch), expected, "{object} {patch}");
        }
    }

    #[test]
    fn malformed_patches_are_refused() {
        for (body, is_strict, message) in [
            (
                "{bad",
                true,
                "error decoding patch: invalid character 'b' looking for beginning of object key \
                 string",
            ),
            ("{bad", false, "Invalid JSON Patch"),
            (
                "",
                true,
                "error decoding patch: unexpected end of JSON input",
            ),
            (
                "[]",
                true,
                "error decoding patch: json: cannot unmarshal array into Go value of type \
                 map[string]interface {}",
            ),
            (
                "\"x\"",
                true,
                "error decoding patch: json: cannot unmarshal string into Go value of type \
                 map[string]interface {}",
            ),
            ("\"x\"", false, "Invalid JSON Patch"),
            ("null", true, "Invalid JSON Patch"),
            ("null", false, "Invalid JSON Patch"),
        ] {
            let error = MergePatch::from_body(body.as_bytes(), is_strict).unwrap_err();
            assert_eq!(error.to_string(), message, "{body}");
            assert_eq!(error.status().code, 400, "{body}");
        }
        let (list, _) = MergePatch::from_body(b"[{\"a\":null}]", false).unwrap();
        assert_eq!(list.apply(&json!({"b": 1})), Ok(json!([{}])));
        assert!(matches!(list.apply(&json!(1)), Err(PatchError::Unfit(_))));
    }

    #[test]
    fn duplicate_fields_are_strict_errors() {
        let (_, strict) = MergePatch::from_body(br#"{"a":{"b":1,"b":2}}"#, true).unwrap();
        assert_eq!(strict, ["duplicate field \"a.b\""]);
    }

    /// Returns the merge patch from one object to another.
    fn difference(from: &Map<String, Value>, to: &Map<String, Value>) -> Map<String, Value> {
        let mut patch = Map::new();
        for key in from.keys().filter(|key| !to.contains_key(*key)) {
            patch.insert(key.clone(), Value::Null);
        }
        for (key, value) in to {
            match (from.get(key), value) {
                (Some(Value::Object(from)), Value::Object(to)) => {
                    patch.insert(key.clone(), difference(from, to).into());
                }
                (Some(from), to) if from == to => {}
                (_, to) => {
                    patch.insert(key.clone(), to.clone());
                }
            }
        }
        patch
    }

    pub(crate) fn objects() -> impl Strategy<Value = Map<String, Value>> {
        let scalars = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-3..3_i64).prop_map(Value::from),
            "[ab]{0,2}".prop_map(Value::from),
        ];
        let values = scalars.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec(("[abc]", inner), 0..4)
                    .prop_map(|members| Value::Object(Map::from_iter(members))),
            ]
        });
        prop::collection::vec(("[abc]", values), 0..4).prop_map(Map::from_iter)
    }

    proptest! {
        #[test]
        fn a_difference_leads_to_its_target(from in objects(), to in objects()) {
            // A merge patch cannot set a member to null.
            let Value::Object(to) = pruned(&to.into()) else { unreachable!() };
            let patch = MergePatch(difference(&from, &to).into());
            prop_assert_eq!(patch.apply(&from.into()), Ok(to.into()));
        }
    }
}
