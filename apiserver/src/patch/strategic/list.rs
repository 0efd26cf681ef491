//! Lists in strategic merge patches.

use std::collections::HashSet;

use serde_json::Value;

use crate::patch::strategic::go_text::{GoText, go_type};
use crate::patch::strategic::merge_key::{Key, Positions, as_object, bad_type};
use crate::patch::strategic::set_order::order;
use crate::patch::strategic::{self, PATCH, unknown_directive};
use crate::patch::{PatchError, PatchSchema};

/// A merged list.
pub(super) struct ListMerge {
    pub(super) items: Vec<Value>,
    /// The order of the current list, as `$setElementOrder` sees it after the merge.
    pub(super) server_order: Vec<Key>,
}

/// Merges the items of a patch into a list: objects by their merge key, scalars as in a set.
pub(super) fn merge<S: PatchSchema>(
    current: Vec<Value>,
    patch: &[Value],
    schema: S,
    merge_key: Option<&str>,
) -> Result<ListMerge, PatchError> {
    let is_object = match element_type(&[&current, patch])? {
        None => false,
        Some(found) => found.is_object(),
    };
    match (is_object, merge_key) {
        (true, Some(merge_key)) => merge_objects(current, patch, schema, merge_key),
        (true, None) => Err(PatchError::Unfit(format!(
            "cannot merge lists without merge key for {}",
            schema.name()
        ))),
        (false, Some(_)) => match current.first().or(patch.first()) {
            Some(item) => Err(bad_type("map[string]interface {}", item)),
            None => merge_scalars(current, patch),
        },
        (false, None) => merge_scalars(current, patch),
    }
}

/// Returns an item of lists whose items must all have the same type, which is not a list.
pub(super) fn element_type<'a>(lists: &[&'a [Value]]) -> Result<Option<&'a Value>, PatchError> {
    let mut items = lists.iter().flat_map(|list| list.iter());
    let Some(first) = items.next() else {
        return Ok(None);
    };
    if first.is_array() {
        return Err(PatchError::ListOfLists);
    }
    if first.is_null() || items.any(|item| go_type(item) != go_type(first)) {
        let lists: Vec<_> = lists
            .iter()
            .map(|list| Value::from(list.to_vec()))
            .collect();
        return Err(PatchError::Unfit(format!(
            "list element types are not identical: {}",
            GoText(&Value::Array(lists))
        )));
    }
    Ok(Some(first))
}

/// Removes scalars from a list.
pub(super) fn delete(current: Vec<Value>, deleted: &[Value]) -> Result<Vec<Value>, PatchError> {
    element_type(&[&current, deleted])?;
    let deleted: Result<HashSet<_>, _> = deleted.iter().map(Key::of_scalar).collect();
    let deleted = deleted?;
    let mut remaining = Vec::with_capacity(current.len());
    for item in current {
        if !deleted.contains(&Key::of_scalar(&item)?) {
            remaining.push(item);
        }
    }
    Ok(remaining)
}

fn merge_scalars(current: Vec<Value>, patch: &[Value]) -> Result<ListMerge, PatchError> {
    let listed = Positions::of_items(patch, None)?;
    let keys: Result<Vec<_>, _> = current.iter().map(Key::of_scalar).collect();
    let server_order = keys?;
    let server = Positions::new(server_order.iter().cloned());
    let mut known = HashSet::new();
    let mut items = Vec::with_capacity(current.len() + patch.len());
    for item in current.into_iter().chain(patch.iter().cloned()) {
        if known.insert(Key::of_scalar(&item)?) {
            items.push(item);
        }
    }
    let items = order(items, None, &listed, &server)?;
    Ok(ListMerge {
        items,
        server_order,
    })
}

fn merge_objects<S: PatchSchema>(
    current: Vec<Value>,
    patch: &[Value],
    schema: S,
    merge_key: &str,
) -> Result<ListMerge, PatchError> {
    let keys: Result<Vec<_>, _> = current
        .iter()
        .map(|item| Key::of_item(item, Some(merge_key)))
        .collect();
    let directives = Directives::read(patch, merge_key)?;
    let mut backing = Backing::new(keys?);
    for key in &directives.deleted {
        backing.delete(key);
    }
    let (mut items, patch) = if directives.replaces {
        (directives.items.into_iter().cloned().collect(), Vec::new())
    } else {
        let live = current.into_iter().zip(&backing.is_live);
        let live = live.filter(|(_, is_live)| **is_live).map(|(item, _)| item);
        (live.collect::<Vec<_>>(), directives.items)
    };
    let server = Positions::of_items(&items, Some(merge_key))?;
    let mut positions = Positions::of_items(&items, Some(merge_key))?;
    let mut listed = Vec::with_capacity(patch.len());
    for item in patch {
        let key = Key::of_item(item, Some(merge_key))?;
        listed.push(key.clone());
        if let Some(position) = positions.get(&key) {
            if let Value::Object(found) = items[position].take() {
                items[position] = strategic::merge(found, as_object(item)?, schema)?.into();
            }
        } else {
            positions.insert(key.clone(), items.len());
            items.push(item.clone());
            backing.append(key);
        }
    }
    let items = order(items, Some(merge_key), &Positions::new(listed), &server)?;
    Ok(ListMerge {
        items,
        server_order: backing.into_order(),
    })
}

/// The items of a list in a patch, without those that are directives.
struct Directives<'a> {
    items: Vec<&'a Value>,
    /// The keys of deleted items.
    deleted: Vec<Key>,
    /// Whether the list of the patch replaces the current one.
    replaces: bool,
}

impl<'a> Directives<'a> {
    fn read(patch: &'a [Value], merge_key: &str) -> Result<Self, PatchError> {
        let mut directives = Self {
            items: Vec::with_capacity(patch.len()),
            deleted: Vec::new(),
            replaces: false,
        };
        for item in patch {
            let object = as_object(item)?;
            let Some(directive) = object.get(PATCH) else {
                directives.items.push(item);
                continue;
            };
            match directive.as_str() {
                Some("delete") => directives
                    .deleted
                    .push(Key::of_item(item, Some(merge_key))?),
                Some("replace") => directives.replaces = true,
                Some("merge") => {
                    let text = "merging lists cannot yet be specified in the patch";
                    return Err(PatchError::Unfit(text.to_owned()));
                }
                _ => return Err(unknown_directive(directive, object)),
            }
        }
        Ok(directives)
    }
}

/// The keys of a list as they lie in memory in kube-apiserver, where items are deleted and appended in
/// place. The order of a list with `$setElementOrder` depends on it: an item that was appended into the
/// place of a deleted one has a position in the current list.
struct Backing {
    keys: Vec<Key>,
    is_live: Vec<bool>,
    /// The positions of each key, the first one last.
    positions: std::collections::HashMap<Key, Vec<usize>>,
    /// The keys that remain behind the end of the list: each deletion leaves the last one there.
    tail: Vec<Key>,
    /// The number of keys up to the last live one.
    length: usize,
    appended: Vec<Key>,
}

impl Backing {
    fn new(keys: Vec<Key>) -> Self {
        let mut positions = std::collections::HashMap::<_, Vec<_>>::new();
        for (position, key) in keys.iter().enumerate().rev() {
            positions.entry(key.clone()).or_default().push(position);
        }
        Self {
            is_live: vec![true; keys.len()],
            length: keys.len(),
            keys,
            positions,
            tail: Vec::new(),
            appended: Vec::new(),
        }
    }

    /// Deletes all items with a key.
    fn delete(&mut self, key: &Key) {
        for position in self.positions.remove(key).into_iter().flatten().rev() {
            self.tail.push(self.keys[self.length - 1].clone());
            self.is_live[position] = false;
            while self.length > 0 && !self.is_live[self.length - 1] {
                self.length -= 1;
            }
        }
    }

    fn append(&mut self, key: Key) {
        self.appended.push(key);
    }

    /// Returns the keys in memory, as many as there were at first.
    fn into_order(self) -> Vec<Key> {
        let live = self.keys.into_iter().zip(self.is_live);
        let mut order: Vec<_> = live
            .filter_map(|(key, is_live)| is_live.then_some(key))
            .collect();
        let appended = self.appended.len().min(self.tail.len());
        let tail = self.tail.into_iter().rev().skip(appended);
        order.extend(self.appended.into_iter().take(appended).chain(tail));
        order
    }
}

/// Checks that a list of a patch has the order that the directive `$setElementOrder` gives it, and has no
/// other items.
pub(super) fn check_order(
    patch: &[Value],
    listed: &[Value],
    merge_key: Option<&str>,
) -> Result<(), PatchError> {
    if patch.is_empty() || listed.is_empty() {
        return Ok(());
    }
    let is_deleted = |item: &Value| {
        item.get(PATCH)
            .is_some_and(|directive| directive == "delete")
    };
    let mut items = Vec::with_capacity(patch.len());
    for item in patch {
        if merge_key.is_none() {
            items.push(item);
        } else {
            as_object(item)?;
            if !is_deleted(item) {
                items.push(item);
            }
        }
    }
    let mut items = items.into_iter().peekable();
    let mut orders = listed.iter();
    let is_complete = loop {
        let Some(item) = items.peek() else {
            break true;
        };
        let Some(order) = orders.as_slice().first() else {
            break false;
        };
        if item.get(PATCH).is_some() {
            items.next();
            continue;
        }
        if Key::of_item(item, merge_key)? == Key::of_item(order, merge_key)? {
            items.next();
        }
        orders.next();
    };
    if is_complete {
        return Ok(());
    }
    Err(PatchError::Unfit(format!(
        "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
        GoText(&patch.to_vec().into()),
        GoText(&listed.to_vec().into())
    )))
}
