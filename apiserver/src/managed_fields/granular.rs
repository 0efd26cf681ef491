//! Configurations that are merged into objects without owners, as admission policies do it.

use std::fmt::Write as _;

use revstore_structured_merge::{FieldSchema, FieldShape, merge, validate};
use revstore_watch_cache::registry::JsonObject;
use serde_json::Value;

/// Returns an object with the fields of a configuration. Lists and objects that are one field cannot be in it, because
/// it would remove what it does not name.
///
/// # Errors
/// Why the configuration does not fit.
pub(crate) fn merge_granular<S: FieldSchema>(
    object: &JsonObject,
    config: &JsonObject,
    schema: S,
) -> Result<JsonObject, String> {
    validate(config, schema)
        .map_err(|error| format!("failed to convert patch object to typed object: {error}"))?;
    let value = Value::Object(config.clone());
    let mut found = Vec::new();
    find_atomics(&value, schema, &mut String::new(), &mut found);
    if !found.is_empty() {
        return Err(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}",
            found.join(", ")
        ));
    }
    merge(object, config, schema).map_err(|error| format!("failed to merge patch: {error}"))
}

/// Finds the lists and objects that are one field.
fn find_atomics<S: FieldSchema>(
    value: &Value,
    schema: S,
    path: &mut String,
    found: &mut Vec<String>,
) {
    let is_leaf = schema.shape(Some(value)) == FieldShape::Leaf;
    let length = path.len();
    match value {
        Value::Object(members) => {
            if is_leaf {
                found.push(path.clone());
            }
            for (name, member) in members.iter().filter(|(name, _)| schema.names(name)) {
                path.push('.');
                path.push_str(name);
                find_atomics(member, schema.member(name), path, found);
                path.truncate(length);
            }
        }
        Value::Array(items) => {
            if is_leaf {
                found.push(path.clone());
            }
            for (index, item) in items.iter().enumerate() {
                // Writing to a string does not fail.
                let _ = write!(path, "[{index}]");
                find_atomics(item, schema.item(), path, found);
                path.truncate(length);
            }
        }
        _ => {}
    }
}
