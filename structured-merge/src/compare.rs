//! The fields in which two objects differ.

use serde_json::{Map, Value};
use thiserror::Error;

use crate::element::Names;
use crate::set::Slot;
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
    let found = Walk::default().compare(Some(old), Some(new), schema)?;
    Ok(found.below)
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
    walk.objects(Some(old), Some(new), schema)
}

/// How two values differ.
#[derive(Default)]
struct Found {
    /// Whether the value itself is such a field, in the order of [`Comparison`].
    is_removed: bool,
    is_modified: bool,
    is_added: bool,
    /// The fields in it.
    below: Comparison,
}

impl Found {
    fn union(self, other: &Self) -> Self {
        Self {
            is_removed: self.is_removed || other.is_removed,
            is_modified: self.is_modified || other.is_modified,
            is_added: self.is_added || other.is_added,
            below: Comparison {
                removed: self.below.removed.union(&other.below.removed),
                modified: self.below.modified.union(&other.below.modified),
                added: self.below.added.union(&other.below.added),
            },
        }
    }
}

/// The differences in the members of an object or the items of a list.
#[derive(Default)]
struct Slots {
    removed: Vec<Slot>,
    modified: Vec<Slot>,
    added: Vec<Slot>,
    /// What the last items had, which others mostly have, too.
    last: Comparison,
}

impl Slots {
    fn push(&mut self, element: &PathElement, found: Found) {
        let last = &mut self.last;
        let below = found.below;
        for (slots, is_member, child, last) in [
            (
                &mut self.removed,
                found.is_removed,
                below.removed,
                &mut last.removed,
            ),
            (
                &mut self.modified,
                found.is_modified,
                below.modified,
                &mut last.modified,
            ),
            (
                &mut self.added,
                found.is_added,
                below.added,
                &mut last.added,
            ),
        ] {
            if is_member || !child.is_empty() {
                slots.push(Slot {
                    element: element.clone(),
                    is_member,
                    child: child.shared_with(last),
                });
            }
        }
    }

    fn finish(self) -> Comparison {
        Comparison {
            removed: FieldSet::of_slots(self.removed),
            modified: FieldSet::of_slots(self.modified),
            added: FieldSet::of_slots(self.added),
        }
    }
}

#[derive(Default)]
struct Walk {
    names: Names,
    /// The number of objects and lists around the current one.
    depth: usize,
    /// Whether `metadata.managedFields` is not compared.
    skips_entries: bool,
}

impl Walk {
    /// Compares values, of which at least one exists.
    fn compare<S: FieldSchema>(
        &mut self,
        old: Option<&Value>,
        new: Option<&Value>,
        schema: S,
    ) -> Result<Found, CompareError> {
        let old_shape = schema.shape(old);
        let new_shape = schema.shape(new);
        let (mut found, is_leaf) = if new.is_none() {
            self.visit(old, new, &old_shape, schema)?
        } else if old.is_none() || old_shape == new_shape {
            self.visit(old, new, &new_shape, schema)?
        } else {
            let (before, _) = self.visit(old, new, &old_shape, schema)?;
            let (after, is_leaf) = self.visit(old, new, &new_shape, schema)?;
            (before.union(&after), is_leaf)
        };
        if !is_leaf {
            if old.is_none() {
                found.is_added = true;
            } else if new.is_none() {
                found.is_removed = true;
            }
        }
        Ok(found)
    }

    /// Compares values of a shape. Returns whether they are one field, too.
    fn visit<S: FieldSchema>(
        &mut self,
        old: Option<&Value>,
        new: Option<&Value>,
        shape: &FieldShape,
        schema: S,
    ) -> Result<(Found, bool), CompareError> {
        let within = |below| Found {
            below,
            ..Found::default()
        };
        match shape {
            FieldShape::Leaf => {}
            FieldShape::Object => {
                let (old, new) = (members(old), members(new));
                if old.is_some() || new.is_some() {
                    return Ok((within(self.objects(old, new, schema)?), false));
                }
            }
            FieldShape::Set | FieldShape::Map(_) => {
                let (old, new) = (items(old), items(new));
                if !old.is_empty() || !new.is_empty() {
                    return Ok((within(self.lists(old, new, shape, schema)?), false));
                }
            }
        }
        let mut found = Found::default();
        match (old, new) {
            (None, _) => found.is_added = true,
            (_, None) => found.is_removed = true,
            (Some(old), Some(new)) => found.is_modified = !is_equal(old, new),
        }
        Ok((found, true))
    }

    fn objects<S: FieldSchema>(
        &mut self,
        old: Option<&Map<String, Value>>,
        new: Option<&Map<String, Value>>,
        schema: S,
    ) -> Result<Comparison, CompareError> {
        let is_old = |key: &&String| old.is_some_and(|old| old.contains_key(*key));
        let only_new = new
            .into_iter()
            .flat_map(Map::keys)
            .filter(|key| !is_old(key));
        let mut slots = Slots::default();
        for key in old.into_iter().flat_map(Map::keys).chain(only_new) {
            if self.skips_entries && self.depth == 1 && key == "managedFields" {
                continue;
            }
            // Other objects of this depth have entries that are compared.
            let skips_entries = self.skips_entries;
            self.skips_entries &= self.depth > 0 || key == "metadata";
            self.depth += 1;
            let found = self.compare(
                old.and_then(|object| object.get(key)),
                new.and_then(|object| object.get(key)),
                schema.member(key),
            )?;
            self.depth -= 1;
            self.skips_entries = skips_entries;
            let element = PathElement::Field(self.names.get(key));
            slots.push(&element, found);
        }
        Ok(slots.finish())
    }

    fn lists<S: FieldSchema>(
        &mut self,
        old: &[Value],
        new: &[Value],
        shape: &FieldShape,
        schema: S,
    ) -> Result<Comparison, CompareError> {
        let mut places = Vec::with_capacity(old.len() + new.len());
        for (items, is_new) in [(old, false), (new, true)] {
            for item in items {
                places.push((element(item, shape)?, is_new, item));
            }
        }
        // Stable: the items of an element stay in the order of their list, the old ones first.
        places.sort_by(|(one, ..), (other, ..)| one.cmp(other));
        let mut slots = Slots::default();
        self.depth += 1;
        for same in places.chunk_by(|(one, ..), (other, ..)| one == other) {
            let (old, new) = same.split_at(same.partition_point(|(_, is_new, _)| !is_new));
            let mut found = Found::default();
            match (old, new) {
                ([] | [_], [] | [_]) => {
                    let (old, new) = (old.first(), new.first());
                    let (old, new) = (old.map(|(.., item)| *item), new.map(|(.., item)| *item));
                    found = self.compare(old, new, schema.item())?;
                }
                // Items with the same keys are one field.
                ([_, _, ..], [_, _, ..]) => {
                    let mut pairs = old.iter().zip(new);
                    found.is_modified = old.len() != new.len()
                        || !pairs.all(|((.., old), (.., new))| is_equal(old, new));
                }
                ([_, _, ..], new) => {
                    if let [(.., new)] = new {
                        found = self.compare(None, Some(new), schema.item())?;
                    }
                    found.is_removed = true;
                }
                (old, _) => {
                    if let [(.., old)] = old {
                        found = self.compare(Some(old), None, schema.item())?;
                    }
                    found.is_added = true;
                }
            }
            slots.push(&same[0].0, found);
        }
        self.depth -= 1;
        Ok(slots.finish())
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
                let value = object.get(&**name).or(default.as_ref())?;
                Some((name.clone(), value))
            });
            match PathElement::of_keys(found) {
                PathElement::Key(found) if found.is_empty() => {
                    let names = keys.iter().map(|key| key.name.to_string()).collect();
                    Err(CompareError::NoKeys(names))
                }
                element => Ok(element),
            }
        }
        _ if item.is_object() || item.is_array() || item.is_null() => Err(CompareError::NotAScalar),
        _ => Ok(PathElement::value(item)),
    }
}
