//! Changes of JSON objects, for defaults.

use serde_json::Value;

use revstore_watch_cache::registry::JsonObject;

use super::field::is_zero;

/// Returns a member that is an object.
pub(crate) fn child_mut<'a>(object: &'a mut JsonObject, name: &str) -> Option<&'a mut JsonObject> {
    object.get_mut(name)?.as_object_mut()
}

/// Returns a member that is an object, and inserts an empty one if it is absent or null. `None` if it is
/// something else.
pub(crate) fn ensure<'a>(object: &'a mut JsonObject, name: &str) -> Option<&'a mut JsonObject> {
    let member = object.entry(name).or_insert(Value::Null);
    if member.is_null() {
        *member = Value::Object(JsonObject::new());
    }
    member.as_object_mut()
}

/// Returns the items of a member that are objects.
pub(crate) fn items_mut<'a>(
    object: &'a mut JsonObject,
    name: &str,
) -> impl Iterator<Item = &'a mut JsonObject> {
    let items = object.get_mut(name).and_then(Value::as_array_mut);
    items.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Sets a member that is absent or null.
pub(crate) fn set_unset(object: &mut JsonObject, name: &str, value: impl Into<Value>) {
    if object.get(name).is_none_or(Value::is_null) {
        object.insert(name.to_owned(), value.into());
    }
}

/// Sets a member that has the zero value of its type.
pub(crate) fn set_zero(object: &mut JsonObject, name: &str, value: impl Into<Value>) {
    if object.get(name).is_none_or(is_zero) {
        object.insert(name.to_owned(), value.into());
    }
}

/// Sets a member to that of another object, or removes it if that has none.
pub(crate) fn restore(new: &mut JsonObject, old: &JsonObject, name: &str) {
    match old.get(name) {
        Some(value) => {
            new.insert(name.to_owned(), value.clone());
        }
        None => {
            new.remove(name);
        }
    }
}

/// Returns the text of a member, or an empty one.
pub(crate) fn text<'a>(object: &'a JsonObject, name: &str) -> &'a str {
    object.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns a value below an object.
pub(crate) fn at<'a>(object: &'a JsonObject, names: &[&str]) -> Option<&'a Value> {
    let (first, rest) = names.split_first()?;
    let mut value = object.get(*first)?;
    for name in rest {
        value = value.get(name)?;
    }
    (!value.is_null()).then_some(value)
}

/// Returns the text below an object, or an empty one.
pub(crate) fn text_at<'a>(object: &'a JsonObject, names: &[&str]) -> &'a str {
    at(object, names)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Copies the entries of a map that another map does not have.
pub(crate) fn copy_missing(from: &JsonObject, to: &mut JsonObject) {
    for (key, value) in from {
        to.entry(key).or_insert_with(|| value.clone());
    }
}
