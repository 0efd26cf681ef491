//! The values that identify the items of lists.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::patch::PatchError;
use crate::patch::strategic::go_text::{GoText, go_type};

/// A scalar that identifies an item: the value of a merge key, or the item itself. Integers and floats are
/// different, as in Go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Null,
    Bool(bool),
    Integer(i64),
    Float(u64),
    Text(String),
}

impl Key {
    /// Returns the key that is a scalar.
    pub(super) fn of_scalar(value: &Value) -> Result<Self, PatchError> {
        match value {
            Value::Null => Ok(Self::Null),
            Value::Bool(flag) => Ok(Self::Bool(*flag)),
            Value::Number(number) => Ok(match number.as_i64() {
                Some(integer) => Self::Integer(integer),
                None => Self::Float(number.as_f64().unwrap_or_default().to_bits()),
            }),
            Value::String(text) => Ok(Self::Text(text.clone())),
            // kube-apiserver panics.
            _ => Err(PatchError::BadDirective(
                "the value of a merge key must be a scalar",
            )),
        }
    }

    /// Returns the key of an item: the value of the merge key, or the item itself without one.
    pub(super) fn of_item(item: &Value, merge_key: Option<&str>) -> Result<Self, PatchError> {
        let Some(merge_key) = merge_key else {
            return Self::of_scalar(item);
        };
        let object = as_object(item)?;
        let value = object.get(merge_key);
        Self::of_scalar(value.ok_or_else(|| no_merge_key(item, merge_key))?)
    }
}

/// Returns an item that must be an object.
pub(super) fn as_object(item: &Value) -> Result<&Map<String, Value>, PatchError> {
    item.as_object()
        .ok_or_else(|| bad_type("map[string]interface {}", item))
}

/// The error about an object without its merge key.
fn no_merge_key(item: &Value, merge_key: &str) -> PatchError {
    PatchError::Unfit(format!(
        "map: {} does not contain declared merge key: {merge_key}",
        GoText(item)
    ))
}

/// The error about a value of another type than the expected one.
pub(super) fn bad_type(expected: &str, found: &Value) -> PatchError {
    let found = go_type(found);
    PatchError::Unfit(format!("expected a {expected}, but received a {found}"))
}

/// The position of each key in a list; the first one if it occurs several times.
pub(super) struct Positions(HashMap<Key, usize>);

impl Positions {
    pub(super) fn new(keys: impl IntoIterator<Item = Key>) -> Self {
        let mut positions = HashMap::new();
        for (position, key) in keys.into_iter().enumerate() {
            positions.entry(key).or_insert(position);
        }
        Self(positions)
    }

    /// Returns the positions of the items of a list.
    pub(super) fn of_items(items: &[Value], merge_key: Option<&str>) -> Result<Self, PatchError> {
        let keys: Result<Vec<_>, _> = items
            .iter()
            .map(|item| Key::of_item(item, merge_key))
            .collect();
        Ok(Self::new(keys?))
    }

    pub(super) fn get(&self, key: &Key) -> Option<usize> {
        self.0.get(key).copied()
    }

    pub(super) fn insert(&mut self, key: Key, position: usize) {
        self.0.insert(key, position);
    }
}
