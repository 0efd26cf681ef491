//! What makes an object one of a version of a definition: the defaults and the fields of the schema.

use std::mem;
use std::sync::Arc;

use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;
use serde_json::Value;

use crate::custom::definition::{Definition, Version};
use crate::custom::schema::{Coercion, Path, coerce_metadata, exact_integer};

/// What is done with an object.
#[derive(Clone, Copy)]
struct How {
    sets_defaults: bool,
    /// Whether metadata of a wrong type is removed, and no error.
    drops: bool,
}

/// Returns the API version of the objects of a version.
pub(crate) fn api_version(definition: &Definition, version: &Version) -> String {
    format!("{}/{}", definition.group, version.name)
}

/// Returns the version of an object, if the definition has it.
pub(crate) fn version_of<'a>(
    definition: &'a Definition,
    object: &JsonObject,
) -> Option<&'a Arc<Version>> {
    let text = object.get("apiVersion")?.as_str()?;
    let name = text.strip_prefix(&*definition.group)?.strip_prefix('/')?;
    definition.version(name)
}

/// Sets the defaults of a version in an object, and removes the fields that its schema does not have. Returns the paths of
/// these. `drops` is whether metadata of a wrong type is removed, too.
///
/// # Errors
/// 400 if the metadata has a wrong type, or if the defaults are too large.
pub(crate) fn complete(
    definition: &Definition,
    version: &Version,
    object: &mut JsonObject,
    drops: bool,
) -> Result<Vec<String>, RequestError> {
    let how = How {
        sets_defaults: true,
        drops,
    };
    coerce(version, object, how).map_err(|error| {
        let (kind, version) = (&definition.names.kind, &version.name);
        RequestError::BadRequest(format!(
            "{kind} in version \"{version}\" cannot be handled as a {kind}: {error}"
        ))
    })
}

/// Makes an object with the fields of another version one of this version: removes the fields that its schema does not
/// have. Defaults are those of the version from which an object is read.
///
/// # Errors
/// 500 if the metadata has a wrong type.
pub(crate) fn adopt(
    definition: &Definition,
    version: &Version,
    object: &mut JsonObject,
) -> Result<(), RequestError> {
    take(definition, version, object, false)
}

/// Makes an object one of the version in which it is stored, as [`adopt`] does. The defaults of this version, which each
/// read would set, are set once: so what is stored can be shown as it is.
///
/// # Errors
/// 500 if the metadata has a wrong type, or if the defaults are too large.
pub(crate) fn adopt_stored(
    definition: &Definition,
    version: &Version,
    object: &mut JsonObject,
) -> Result<(), RequestError> {
    take(definition, version, object, true)
}

fn take(
    definition: &Definition,
    version: &Version,
    object: &mut JsonObject,
    sets_defaults: bool,
) -> Result<(), RequestError> {
    let text = api_version(definition, version);
    object.insert("apiVersion".to_owned(), text.into());
    let how = How {
        sets_defaults,
        drops: false,
    };
    let coerced = coerce(version, object, how);
    coerced.map(drop).map_err(RequestError::Unclassified)
}

fn coerce(version: &Version, object: &mut JsonObject, how: How) -> Result<Vec<String>, String> {
    let mut unknown = match coerce_metadata(object, how.drops) {
        Ok(unknown) => unknown,
        Err(_) if how.drops => Vec::new(),
        Err(error) => return Err(error),
    };
    unknown.sort();
    let mut value = Value::Object(mem::take(object));
    let coerced = coerce_value(version, &mut value, how, &mut unknown);
    if let Value::Object(map) = value {
        *object = map;
    }
    coerced?;
    Ok(unknown)
}

fn coerce_value(
    version: &Version,
    value: &mut Value,
    how: How,
    unknown: &mut Vec<String>,
) -> Result<(), String> {
    whole_numbers(value);
    let Some(schema) = &version.schema else {
        return Ok(());
    };
    if how.sets_defaults {
        schema
            .set_defaults(value)
            .map_err(|error| error.to_string())?;
    }
    unknown.extend(schema.prune(value));
    schema.drop_nulls(value);
    let coercion = Coercion {
        is_object: false,
        drops: how.drops,
    };
    let coerced = schema.coerce(value, &coercion, &Path::root(""));
    unknown.extend(coerced.map_err(|cause| cause.to_string())?);
    Ok(())
}

/// Makes each number that is whole an integer, as which it is read from its shortest text.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Some(whole) = number.as_f64().and_then(exact_integer) {
                *value = whole.into();
            }
        }
        Value::Array(list) => list.iter_mut().for_each(whole_numbers),
        Value::Object(map) => map.values_mut().for_each(whole_numbers),
        _ => {}
    }
}
