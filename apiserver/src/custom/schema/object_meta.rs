//! The metadata of objects, as a type: unknown and empty fields are removed from it.

use revstore_kinds as kinds;
use serde_json::{Map, Value};

use super::causes::CAUSES_MAX;
use super::path::Path;
use crate::decode::integral_floats_to_integers;

/// The type of a field of the metadata.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Integer,
    /// An integer that is kept if it is 0.
    SetInteger,
    Flag,
    Time,
    Any,
    TextMap,
    TextList,
    Structs(&'static str, &'static [(&'static str, Kind)]),
}

const OWNER: &[(&str, Kind)] = &[
    ("apiVersion", Kind::Text),
    ("kind", Kind::Text),
    ("name", Kind::Text),
    ("uid", Kind::Text),
    ("controller", Kind::Flag),
    ("blockOwnerDeletion", Kind::Flag),
];

const MANAGED: &[(&str, Kind)] = &[
    ("manager", Kind::Text),
    ("operation", Kind::Text),
    ("apiVersion", Kind::Text),
    ("time", Kind::Time),
    ("fieldsType", Kind::Text),
    ("fieldsV1", Kind::Any),
    ("subresource", Kind::Text),
];

const METADATA: &[(&str, Kind)] = &[
    ("name", Kind::Text),
    ("generateName", Kind::Text),
    ("namespace", Kind::Text),
    ("selfLink", Kind::Text),
    ("uid", Kind::Text),
    ("resourceVersion", Kind::Text),
    ("generation", Kind::Integer),
    ("creationTimestamp", Kind::Time),
    ("deletionTimestamp", Kind::Time),
    ("deletionGracePeriodSeconds", Kind::SetInteger),
    ("labels", Kind::TextMap),
    ("annotations", Kind::TextMap),
    ("ownerReferences", Kind::Structs("OwnerReference", OWNER)),
    ("finalizers", Kind::TextList),
    (
        "managedFields",
        Kind::Structs("ManagedFieldsEntry", MANAGED),
    ),
];

/// Removes the unknown and the empty fields of metadata, and reports the paths of the unknown ones.
/// Fields of a wrong type are removed if `drops` is set.
///
/// # Errors
/// The text of a decoding error.
pub(super) fn coerce(
    metadata: &mut Value,
    drops: bool,
    path: &Path<'_>,
    unknown: &mut Vec<String>,
) -> Result<(), String> {
    if metadata.is_null() {
        *metadata = Value::Object(Map::new());
    }
    let found = kind_of(metadata);
    let Value::Object(map) = metadata else {
        return Err(format!(
            "json: cannot unmarshal {found} into Go value of type v1.ObjectMeta"
        ));
    };
    coerce_struct(map, "ObjectMeta", METADATA, drops, path, unknown)
}

fn coerce_struct(
    map: &mut Map<String, Value>,
    name: &str,
    fields: &[(&str, Kind)],
    drops: bool,
    path: &Path<'_>,
    unknown: &mut Vec<String>,
) -> Result<(), String> {
    let mut result = Ok(());
    map.retain(|field, value| {
        let path = path.child(field);
        let Some((_, kind)) = fields.iter().find(|(known, _)| known == field) else {
            if unknown.len() < CAUSES_MAX {
                unknown.push(path.to_string());
            }
            return false;
        };
        match coerce_field(value, *kind, drops, &path, unknown) {
            Ok(keeps) => keeps,
            Err(Mismatch::Type { found, expected }) => {
                if !drops && result.is_ok() {
                    result = Err(format!(
                        "json: cannot unmarshal {found} into Go struct field {name}.{field} of type {expected}"
                    ));
                }
                false
            }
            Err(Mismatch::Text(text)) => {
                if !drops && result.is_ok() {
                    result = Err(text);
                }
                false
            }
        }
    });
    result
}

/// A value of a wrong type.
enum Mismatch {
    Type {
        found: String,
        expected: &'static str,
    },
    /// The text of a value that cannot be read, with the error.
    Text(String),
}

/// Checks a field. Returns whether it is not empty.
fn coerce_field(
    value: &mut Value,
    kind: Kind,
    drops: bool,
    path: &Path<'_>,
    unknown: &mut Vec<String>,
) -> Result<bool, Mismatch> {
    let mismatch = |value: &Value, expected| {
        Err(Mismatch::Type {
            found: kind_of(value).to_owned(),
            expected,
        })
    };
    if value.is_null() {
        return Ok(false);
    }
    if matches!(kind, Kind::Integer | Kind::SetInteger) {
        integral_floats_to_integers(value);
    }
    let text = value.as_str();
    match kind {
        Kind::Any => Ok(true),
        Kind::Text => text.map_or_else(|| mismatch(value, "string"), |text| Ok(!text.is_empty())),
        Kind::Time => match text {
            None => mismatch(value, "string"),
            Some(text) => match kinds::check_time(text) {
                Ok(()) => Ok(true),
                Err(error) => Err(Mismatch::Text(error)),
            },
        },
        Kind::Integer => value
            .as_i64()
            .map_or_else(|| mismatch(value, "int64"), |number| Ok(number != 0)),
        Kind::SetInteger => value
            .as_i64()
            .map_or_else(|| mismatch(value, "int64"), |_| Ok(true)),
        Kind::Flag if value.is_boolean() => Ok(true),
        Kind::Flag => mismatch(value, "bool"),
        Kind::TextMap => match value.as_object_mut() {
            None => mismatch(value, "map[string]string"),
            Some(map) => {
                for value in map.values_mut() {
                    match value {
                        Value::Null => *value = "".into(),
                        Value::String(_) => {}
                        _ => return mismatch(value, "string"),
                    }
                }
                Ok(!map.is_empty())
            }
        },
        Kind::TextList => match value.as_array_mut() {
            None => mismatch(value, "[]string"),
            Some(list) => {
                nulls_to(list, &Value::String(String::new()));
                match list.iter().find(|item| !item.is_string()) {
                    Some(item) => mismatch(item, "string"),
                    None => Ok(!list.is_empty()),
                }
            }
        },
        Kind::Structs(name, fields) => {
            let Value::Array(list) = value else {
                return mismatch(
                    value,
                    if name == "OwnerReference" {
                        "[]v1.OwnerReference"
                    } else {
                        "[]v1.ManagedFieldsEntry"
                    },
                );
            };
            nulls_to(list, &Value::Object(Map::new()));
            for (index, item) in list.iter_mut().enumerate() {
                let Value::Object(item) = item else {
                    return mismatch(item, "v1.OwnerReference");
                };
                let coerced = coerce_struct(item, name, fields, drops, &path.index(index), unknown);
                coerced.map_err(|_| Mismatch::Type {
                    found: "object".to_owned(),
                    expected: "string",
                })?;
                if name == "OwnerReference" {
                    for name in ["apiVersion", "kind", "name", "uid"] {
                        item.entry(name).or_insert_with(|| "".into());
                    }
                }
            }
            Ok(!list.is_empty())
        }
    }
}

/// Replaces the items of a list that are `null` by the zero value of their type, as Go's decoder.
fn nulls_to(list: &mut [Value], zero: &Value) {
    for item in list.iter_mut().filter(|item| item.is_null()) {
        item.clone_from(zero);
    }
}

/// Returns the name that Go's decoder gives to the type of a value.
pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
