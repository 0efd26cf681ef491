//! The fields in which two objects differ.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use thiserror::Error;

use crate::{FieldSchema, FieldSet, FieldShape, ListKey, PathElement};

/// The difference of two objects. No field is in two of the sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// The fields that only the first object has.
    pub removed: FieldSet,
    /// The fields with different values.
    pub modified: FieldSet,
    /// The fields that only the second object has.
    pub added: FieldSet,
}

impl Comparison {
    /// Leaves out fields, with all in them.
    pub(crate) fn leave_out(&mut self, fields: &FieldSet) {
        if fields.is_empty() {
            return;
        }
        for set in [&mut self.removed, &mut self.modified, &mut self.added] {
            *set = set.recursive_difference(fields);
        }
    }

    /// Returns the fields that only the second object has, or that have another value there.
    pub(crate) fn changed(&self) -> FieldSet {
        self.modified.union(&self.added)
    }
}

/// The error of objects that do not have the form that their schema requires.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CompareError {
    /// An item of a list has none of its keys.
    #[error(
        "associative list with keys has an element that omits all key fields {0:?} (and doesn't \
         have default values for any key fields)"
    )]
    NoKeys(Vec<String>),
    /// An item of a list is not an object.
    #[error("associative list with keys may not have non-map elements")]
    NotAnObject,
    /// An item of a set is not a scalar.
    #[error("associative list without keys has an element that's not a scalar")]
    NotAScalar,
    /// The object cannot be seen in the version of the API of another entry.
    #[error("{0}")]
    Unconvertible(String),
}

/// Compares two objects of a type.
///
/// # Errors
/// [`CompareError`] if lists have items that cannot be identified.
///
/// ```
/// use revstore_structured_merge::{FieldSet, Untyped, compare};
/// use serde_json::json;
/// let comparison = compare(
///     &json!({"a": 1, "b": {"c": 1}}),
///     &json!({"a": 2, "b": {"c": 1, "d": 1}}),
///     Untyped,
/// )?;
/// assert_eq!(comparison.modified, FieldSet::of_names(&["a"]));
/// assert_eq!(comparison.added, FieldSet::of_names(&["b.d"]));
/// # Ok::<(), revstore_structured_merge::CompareError>(())
/// ```
pub fn compare<S: FieldSchema>(
    old: &Value,
    new: &Value,
    schema: S,
) -> Result<Comparison, CompareError> {
    let mut walk = Walk::default();
    walk.compare(Some(old), Some(new), schema)?;
    Ok(walk.comparison)
}

/// Compares two objects of a kind without their entries.
///
/// # Errors
/// As [`compare`].
pub(crate) fn compare_objects<S: FieldSchema>(
    old: &Map<String, Value>,
    new: &Map<String, Value>,
    schema: S,
) -> Result<Comparison, CompareError> {
    let mut walk = Walk {
        skips_entries: true,
        ..Walk::default()
    };
    walk.objects(Some(old), Some(new), schema)?;
    Ok(walk.comparison)
}

#[derive(Default)]
struct Walk {
    path: Vec<PathElement>,
    comparison: Comparison,
    /// Whether `metadata.managedFields` is not compared.
    skips_entries: bool,
}

impl Walk {
    /// Compares the values at the current path, of which at least one exists.
    fn compare<S: FieldSchema>(
        &mut self,
        old: Option<&Value>,
        new: Option<&Value>,
        schema: S,
    ) -> Result<(), CompareError> {
        let old_shape = schema.shape(old);
        let new_shape = schema.shape(new);
        let is_leaf = if new.is_none() {
            self.visit(old, new, &old_shape, schema)?
        } else if old.is_none() || old_shape == new_shape {
            self.visit(old, new, &new_shape, schema)?
        } else {
            self.visit(old, new, &old_shape, schema)?;
            self.visit(old, new, &new_shape, schema)?
        };
        if !is_leaf {
            if old.is_none() {
                self.comparison.added.insert(&self.path);
            } else if new.is_none() {
                self.comparison.removed.insert(&self.path);
            }
        }
        Ok(())
    }

    /// Compares values of a shape. Returns whether they are one field.
    fn visit<S: FieldSchema>(
        &mut self,
        old: Option<&Value>,
        new: Option<&Value>,
        shape: &FieldShape,
        schema: S,
    ) -> Result<bool, CompareError> {
        match shape {
            FieldShape::Leaf => {}
            FieldShape::Object => {
                let (old, new) = (members(old), members(new));
                if old.is_some() || new.is_some() {
                    self.objects(old, new, schema)?;
                    return Ok(false);
                }
            }
            FieldShape::Set | FieldShape::Map(_) => {
                let (old, new) = (items(old), items(new));
                if !old.is_empty() || !new.is_empty() {
                    self.lists(old, new, shape, schema)?;
                    return Ok(false);
                }
            }
        }
        match (old, new) {
            (None, _) => self.comparison.added.insert(&self.path),
            (_, None) => self.comparison.removed.insert(&self.path),
            (Some(old), Some(new)) if !is_equal(old, new) => {
                self.comparison.modified.insert(&self.path);
            }
            _ => {}
        }
        Ok(true)
    }

    fn objects<S: FieldSchema>(
        &mut self,
        old: Option<&Map<String, Value>>,
        new: Option<&Map<String, Value>>,
        schema: S,
    ) -> Result<(), CompareError> {
        let is_old = |key: &&String| old.is_some_and(|old| old.contains_key(*key));
        let only_new = new
            .into_iter()
            .flat_map(Map::keys)
            .filter(|key| !is_old(key));
        let is_metadata = self.skips_entries
            && matches!(self.path.as_slice(), [PathElement::Field(name)] if name == "metadata");
        for key in old.into_iter().flat_map(Map::keys).chain(only_new) {
            if is_metadata && key == "managedFields" {
                continue;
            }
            self.path.push(PathElement::Field(key.clone()));
            self.compare(
                old.and_then(|object| object.get(key)),
                new.and_then(|object| object.get(key)),
                schema.member(key),
            )?;
            self.path.pop();
        }
        Ok(())
    }

    fn lists<S: FieldSchema>(
        &mut self,
        old: &[Value],
        new: &[Value],
        shape: &FieldShape,
        schema: S,
    ) -> Result<(), CompareError> {
        let mut found = BTreeMap::<_, (Vec<&Value>, Vec<&Value>)>::new();
        for item in old {
            found.entry(element(item, shape)?).or_default().0.push(item);
        }
        for item in new {
            found.entry(element(item, shape)?).or_default().1.push(item);
        }
        for (element, (old, new)) in found {
            self.path.push(element);
            match (old.as_slice(), new.as_slice()) {
                ([] | [_], [] | [_]) => {
                    let (old, new) = (old.first().copied(), new.first().copied());
                    self.compare(old, new, schema.item())?;
                }
                // Items with the same keys are one field.
                ([_, _, ..], [_, _, ..]) => {
                    let is_same = old.len() == new.len()
                        && old.iter().zip(new).all(|(old, new)| is_equal(old, new));
                    if !is_same {
                        self.comparison.modified.insert(&self.path);
                    }
                }
                ([_, _, ..], new) => {
                    if let [new] = new {
                        self.compare(None, Some(new), schema.item())?;
                    }
                    self.comparison.removed.insert(&self.path);
                }
                (old, _) => {
                    if let [old] = old {
                        self.compare(Some(old), None, schema.item())?;
                    }
                    self.comparison.added.insert(&self.path);
                }
            }
            self.path.pop();
        }
        Ok(())
    }
}

/// Returns whether values are equal; integers are equal to floats with the same value.
fn is_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other || ((one.is_f64() || other.is_f64()) && one.as_f64() == other.as_f64())
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .zip(other)
                    .all(|(one, other)| is_equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .all(|(key, one)| other.get(key).is_some_and(|other| is_equal(one, other)))
        }
        (one, other) => one == other,
    }
}

/// Returns the members of an object that is not empty.
fn members(value: Option<&Value>) -> Option<&Map<String, Value>> {
    let object = value?.as_object()?;
    (!object.is_empty()).then_some(object)
}

/// Returns the items of a list.
fn items(value: Option<&Value>) -> &[Value] {
    let items = value.and_then(Value::as_array);
    items.map(Vec::as_slice).unwrap_or_default()
}

/// Returns the path element of an item.
pub(crate) fn element(item: &Value, shape: &FieldShape) -> Result<PathElement, CompareError> {
    match shape {
        FieldShape::Map(keys) => {
            let object = item.as_object().ok_or(CompareError::NotAnObject)?;
            let found = keys.iter().filter_map(|ListKey { name, default }| {
                let value = object.get(name).or(default.as_ref())?;
                Some((name.as_str(), value))
            });
            match PathElement::of_keys(found) {
                PathElement::Key(found) if found.is_empty() => {
                    let names = keys.iter().map(|key| key.name.clone()).collect();
                    Err(CompareError::NoKeys(names))
                }
                element => Ok(element),
            }
        }
        _ if item.is_object() || item.is_array() || item.is_null() => Err(CompareError::NotAScalar),
        _ => Ok(PathElement::value(item)),
    }
}
