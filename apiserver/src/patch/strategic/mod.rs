//! Strategic merge patches. Corresponds to the package `strategicpatch` of Kubernetes' apimachinery.

mod go_text;
mod list;
mod merge_key;
mod set_order;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt;

use serde_json::{Map, Value};

use self::go_text::GoText;
use self::list::ListMerge;
use self::merge_key::{Key, Positions, bad_type};
use self::set_order::order;
use super::{ListStrategy, PatchError, PatchSchema};
use crate::decode::{DecodeError, json_type, object_from_json};

/// Replaces or deletes the object that contains it.
pub(super) const PATCH: &str = "$patch";
/// The fields of an object that remain.
const RETAIN_KEYS: &str = "$retainKeys";
/// The prefix of the scalars that are deleted from a list.
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
/// The prefix of the order of a list.
const SET_ORDER: &str = "$setElementOrder";

/// A strategic merge patch: a merge patch that also merges lists, as far as the schema of the object says
/// so, with the directives `$patch`, `$retainKeys`, `$deleteFromPrimitiveList` and `$setElementOrder`.
#[derive(Clone, Debug, PartialEq)]
pub struct StrategicPatch(Map<String, Value>);

impl StrategicPatch {
    /// Reads a patch. Returns it with the errors of strict decoding.
    ///
    /// # Errors
    /// [`PatchError`] if the patch is malformed.
    pub fn from_body(body: &[u8]) -> Result<(Self, Vec<String>), PatchError> {
        match object_from_json(body) {
            Ok((object, strict)) => Ok((Self(object), strict)),
            Err(error @ (DecodeError::NotAnObject(_) | DecodeError::Json(_))) => {
                Err(PatchError::Undecodable(error.to_string()))
            }
            Err(error) => Err(PatchError::Undecodable(error.to_string())),
        }
    }

    /// Applies the patch to an object.
    ///
    /// The result may have members that are `null`, and directives in items that were added to a list, as
    /// in kube-apiserver, which drops both when it decodes the result.
    ///
    /// # Errors
    /// [`PatchError`] if a directive is malformed, or the patch does not fit the object or the schema.
    pub fn apply<S: PatchSchema>(&self, object: &Value, schema: S) -> Result<Value, PatchError> {
        match object {
            Value::Object(object) => merge(object.clone(), &self.0, schema).map(Value::Object),
            other => Err(PatchError::Unfit(format!(
                "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                json_type(other)
            ))),
        }
    }
}

impl fmt::Display for StrategicPatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        GoText(&Value::Object(self.0.clone())).fmt(f)
    }
}

/// Merges a patch into an object.
pub(super) fn merge<S: PatchSchema>(
    mut object: Map<String, Value>,
    patch: &Map<String, Value>,
    schema: S,
) -> Result<Map<String, Value>, PatchError> {
    if let Some(directive) = patch.get(PATCH) {
        return match directive.as_str() {
            Some("replace") => {
                let mut replacement = patch.clone();
                replacement.remove(PATCH);
                Ok(replacement)
            }
            Some("delete") => Ok(Map::new()),
            _ => Err(unknown_directive(directive, patch)),
        };
    }
    if let Some(fields) = patch.get(RETAIN_KEYS) {
        retain_fields(&mut object, patch, fields)?;
    }
    let mut merged_fields = HashSet::new();
    for (key, listed) in patch.iter().filter(|(key, _)| key.starts_with(SET_ORDER)) {
        let field =
            directive_field(key, SET_ORDER).ok_or(PatchError::BadDirective(BAD_SET_ORDER))?;
        if set_order(&mut object, patch, field, listed, schema)? {
            merged_fields.insert(field);
        }
    }
    for (key, value) in patch {
        let is_done = key == RETAIN_KEYS
            || key.starts_with(SET_ORDER)
            || merged_fields.contains(key.as_str());
        if !is_done {
            merge_member(&mut object, key, value, schema)?;
        }
    }
    Ok(object)
}

const BAD_SET_ORDER: &str = "invalid patch format of setElementOrder list";

/// Returns the field that a directive with a prefix is about.
fn directive_field<'a>(key: &'a str, prefix: &str) -> Option<&'a str> {
    key.strip_prefix(prefix)?.strip_prefix('/')
}

/// The error about a directive that does not exist.
pub(super) fn unknown_directive(directive: &Value, object: &Map<String, Value>) -> PatchError {
    PatchError::Unfit(format!(
        "unknown patch type: {} in map: {}",
        GoText(directive),
        GoText(&Value::Object(object.clone()))
    ))
}

/// Removes the fields that are not in the list of the directive `$retainKeys`. It must contain all fields of
/// the patch.
fn retain_fields(
    object: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    fields: &Value,
) -> Result<(), PatchError> {
    const BAD_LIST: PatchError = PatchError::BadDirective("invalid patch format of retainKeys");
    let fields = fields.as_array().ok_or(BAD_LIST)?;
    let retained: HashSet<&str> = fields.iter().filter_map(Value::as_str).collect();
    let is_extra = |key: &str, value: &Value| {
        !value.is_null()
            && key != RETAIN_KEYS
            && !key.starts_with(DELETE_FROM_LIST)
            && !key.starts_with(SET_ORDER)
            && !retained.contains(key)
    };
    if patch.iter().any(|(key, value)| is_extra(key, value)) {
        return Err(BAD_LIST);
    }
    object.retain(|key, _| retained.contains(key.as_str()));
    Ok(())
}

/// Merges a list whose order is given by the directive `$setElementOrder`. Returns whether there is a list.
fn set_order<S: PatchSchema>(
    object: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    name: &str,
    listed: &Value,
    schema: S,
) -> Result<bool, PatchError> {
    let as_list = |value: &Value| match value {
        Value::Array(items) => Ok(items.clone()),
        other => Err(bad_type("[]interface {}", other)),
    };
    let listed = as_list(listed)?;
    let current = object.get(name).map(as_list).transpose()?;
    let items = patch.get(name).map(as_list).transpose()?;
    let field = schema.field(name)?;
    let element = field.schema.items()?;
    let merge_key = field.merge_key.as_deref();
    list::check_order(items.as_deref().unwrap_or_default(), &listed, merge_key)?;
    let server;
    let merged = match (current, items) {
        (None, None) => return Ok(false),
        (Some(current), None) => {
            server = Positions::of_items(&current, merge_key)?;
            current
        }
        (None, Some(items)) => {
            server = Positions::new([]);
            items.iter().filter_map(without_directives).collect()
        }
        (Some(current), Some(items)) if field.strategy == ListStrategy::Merge => {
            list::element_type(&[&current, &items])?;
            let merged = list::merge(current, &items, element, merge_key)?;
            let ListMerge {
                items,
                server_order,
            } = merged;
            server = Positions::new(server_order);
            items
        }
        (Some(current), Some(items)) => {
            list::element_type(&[&current, &items])?;
            server = Positions::of_items(&current, merge_key)?;
            items
        }
    };
    // Items of the directive without the merge key are ignored.
    let mut keys = Vec::with_capacity(listed.len());
    for item in &listed {
        match merge_key {
            Some(merge_key) => {
                let object = self::merge_key::as_object(item)?;
                if let Some(value) = object.get(merge_key) {
                    keys.push(Key::of_scalar(value)?);
                }
            }
            None => keys.push(Key::of_scalar(item)?),
        }
    }
    let ordered = order(merged, merge_key, &Positions::new(keys), &server)?;
    object.insert(name.to_owned(), Value::Array(ordered));
    Ok(true)
}

/// Merges a member of a patch, which is not an order of a list.
fn merge_member<S: PatchSchema>(
    object: &mut Map<String, Value>,
    key: &str,
    value: &Value,
    schema: S,
) -> Result<(), PatchError> {
    const BAD_LIST: &str = "invalid patch format of primitive list";
    let is_deletion = key.starts_with(DELETE_FROM_LIST);
    let name = if is_deletion {
        directive_field(key, DELETE_FROM_LIST).ok_or(PatchError::BadDirective(BAD_LIST))?
    } else {
        key
    };
    if value.is_null() {
        object.remove(name);
        return Ok(());
    }
    let merged = match (object.get_mut(name), value) {
        (Some(Value::Object(current)), Value::Object(patch)) => {
            let field = schema.field(name)?;
            Some(Value::Object(if field.strategy == ListStrategy::Replace {
                patch.clone()
            } else {
                merge(std::mem::take(current), patch, field.schema)?
            }))
        }
        (Some(Value::Array(current)), Value::Array(items)) => {
            let field = schema.field(name)?;
            let element = field.schema.items()?;
            let current = std::mem::take(current);
            let merge_key = field.merge_key.as_deref();
            Some(Value::Array(if is_deletion {
                list::delete(current, items)?
            } else if field.strategy == ListStrategy::Merge {
                list::merge(current, items, element, merge_key)?.items
            } else {
                items.clone()
            }))
        }
        // Nothing is deleted from what is not a list.
        _ if is_deletion => return Ok(()),
        (_, value) => without_directives(&without_nulls(value)),
    };
    match merged {
        Some(merged) => object.insert(name.to_owned(), merged),
        None => object.remove(name),
    };
    Ok(())
}

/// Returns a value without the members that are `null`.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        Value::Object(object) => {
            let members = object.iter().filter(|(_, value)| !value.is_null());
            Value::Object(
                members
                    .map(|(key, value)| (key.clone(), without_nulls(value)))
                    .collect(),
            )
        }
        scalar => scalar.clone(),
    }
}

/// Returns a value without the objects in it that have the directive `$patch`, or `None` if it is one.
fn without_directives(value: &Value) -> Option<Value> {
    match value {
        Value::Array(items) => Some(Value::Array(
            items.iter().filter_map(without_directives).collect(),
        )),
        Value::Object(object) if object.contains_key(PATCH) => None,
        Value::Object(object) => {
            let members = object.iter().filter_map(|(key, value)| {
                without_directives(value).map(|value| (key.clone(), value))
            });
            Some(Value::Object(members.collect()))
        }
        scalar => Some(scalar.clone()),
    }
}
