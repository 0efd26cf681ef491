//! An object with the fields of a configuration.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value};

use crate::compare::element;
use crate::{FieldSchema, FieldShape, PathElement, path_text};

/// Returns an object in which the fields of a configuration have its values.
///
/// # Errors
/// The text of an error: lists have items that cannot be identified, or the configuration has one twice.
pub fn merge<S: FieldSchema>(
    object: &Map<String, Value>,
    config: &Map<String, Value>,
    schema: S,
) -> Result<Map<String, Value>, String> {
    merge_objects(Some(object), Some(config), schema)
}

fn merge_values<S: FieldSchema>(
    old: Option<&Value>,
    new: Option<&Value>,
    schema: S,
) -> Result<Option<Value>, String> {
    let shape = schema.shape(new.or(old));
    let leaf = || Ok(new.or(old).cloned());
    match shape {
        FieldShape::Leaf => leaf(),
        FieldShape::Object => {
            // What is no object counts as none.
            let (old_members, new_members) = (members(old), members(new));
            if old_members.is_none() && new_members.is_none() {
                return leaf();
            }
            let merged = merge_objects(old_members, new_members, schema)?;
            Ok((!merged.is_empty()).then(|| merged.into()))
        }
        FieldShape::Set | FieldShape::Map(_) => {
            let (old_items, new_items) = (items(old), items(new));
            if old_items.is_empty() && new_items.is_empty() {
                return leaf();
            }
            let merged = merge_lists(old_items, new_items, &shape, schema)?;
            Ok((!merged.is_empty()).then(|| merged.into()))
        }
    }
}

/// Returns the members of an object that is not empty.
fn members(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value
        .and_then(Value::as_object)
        .filter(|members| !members.is_empty())
}

fn items(value: Option<&Value>) -> &[Value] {
    let items = value.and_then(Value::as_array);
    items.map(Vec::as_slice).unwrap_or_default()
}

fn merge_objects<S: FieldSchema>(
    old: Option<&Map<String, Value>>,
    new: Option<&Map<String, Value>>,
    schema: S,
) -> Result<Map<String, Value>, String> {
    let mut merged = Map::new();
    let is_old = |name: &&String| old.is_some_and(|old| old.contains_key(*name));
    let only_new = new.into_iter().flat_map(Map::keys);
    let only_new = only_new.filter(|name| !is_old(name));
    for name in old.into_iter().flat_map(Map::keys).chain(only_new) {
        let (old, new) = (
            old.and_then(|old| old.get(name)),
            new.and_then(|new| new.get(name)),
        );
        let value = match (old, new) {
            (Some(old), None) => Some(old.clone()),
            _ => merge_values(old, new, schema.member(name))?,
        };
        if let Some(value) = value {
            merged.insert(name.clone(), value);
        }
    }
    Ok(merged)
}

/// The items of a list by what identifies them.
struct Index<'a> {
    places: Vec<PathElement>,
    /// An item that occurs twice is `null`.
    items: BTreeMap<PathElement, &'a Value>,
}

impl<'a> Index<'a> {
    fn new(items: &'a [Value], shape: &FieldShape, is_unique: bool) -> Result<Self, String> {
        let mut index = Self {
            places: Vec::with_capacity(items.len()),
            items: BTreeMap::new(),
        };
        for (number, item) in items.iter().enumerate() {
            let place =
                element(item, shape).map_err(|error| format!("element {number}: {error}"))?;
            if index.items.contains_key(&place) {
                if is_unique {
                    let place = path_text(&[place]);
                    return Err(format!("duplicate entries for key {place}"));
                }
                index.items.insert(place.clone(), &Value::Null);
            } else {
                index.items.insert(place.clone(), item);
            }
            index.places.push(place);
        }
        Ok(index)
    }
}

/// Merges lists. Items of both lists have the order of the new one; items of one list stay between the items that
/// they are between. It takes time for `n log n` items.
fn merge_lists<S: FieldSchema>(
    old: &[Value],
    new: &[Value],
    shape: &FieldShape,
    schema: S,
) -> Result<Vec<Value>, String> {
    let after = Index::new(new, shape, true)?;
    let before = Index::new(old, shape, false)?;
    let mut shared: VecDeque<&PathElement> = after
        .places
        .iter()
        .filter(|place| before.items.contains_key(place))
        .collect();
    let mut next_shared = shared.pop_front();
    let mut done: BTreeSet<&PathElement> = BTreeSet::new();
    let mut merged = Vec::with_capacity(old.len().max(new.len()));
    let schema = schema.item();
    let (mut left, mut right) = (0, 0);
    while left < old.len() || right < new.len() {
        if let (Some(place), Some(other)) = (before.places.get(left), after.places.get(right)) {
            if place == other {
                done.insert(other);
                let pair = (before.items.get(place), after.items.get(place));
                merged.extend(merge_values(pair.0.copied(), pair.1.copied(), schema)?);
                left += 1;
                right += 1;
                next_shared = shared.pop_front();
                continue;
            }
            let waits = after.items.contains_key(place)
                && next_shared.is_some_and(|next_shared| next_shared != place);
            if waits {
                left += 1;
                continue;
            }
        }
        if let Some(place) = before.places.get(left) {
            if !after.items.contains_key(place) {
                merged.extend(merge_values(old.get(left), None, schema)?);
                left += 1;
                continue;
            }
            if done.contains(place) {
                left += 1;
            }
        }
        if let Some(place) = after.places.get(right) {
            done.insert(place);
            let pair = (before.items.get(place), after.items.get(place));
            merged.extend(merge_values(pair.0.copied(), pair.1.copied(), schema)?);
            right += 1;
            if next_shared == Some(place) {
                next_shared = shared.pop_front();
            }
        }
    }
    Ok(merged)
}
