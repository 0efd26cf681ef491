//! The rules for the metadata of objects.

use serde_json::{Value, json};

use crate::names;
use crate::registry::{JsonObject, Strategy};
use crate::status::{FieldPath, StatusCause};

/// The maximum size of all annotations of an object: their keys and values.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;
/// The maximum number of causes of one answer. Further ones are left out.
pub(super) const CAUSES_MAX: usize = 1000;
/// The maximum number of bytes in the causes of one answer. Further ones are left out; the first one always stays.
pub(super) const CAUSE_BYTES_MAX: usize = 1024 * 1024;
/// The fields of the metadata that only the server sets.
const SERVER_FIELDS: [&str; 4] = [
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

/// Returns the metadata of an object. An absent one, and one that is not an object, is replaced by an
/// empty one.
pub(super) fn of(object: &mut JsonObject) -> &mut JsonObject {
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    if !metadata.is_object() {
        *metadata = json!({});
    }
    metadata.as_object_mut().expect("it is an object")
}

/// Returns a field of the metadata.
pub(super) fn field<'a>(object: &'a JsonObject, name: &str) -> Option<&'a Value> {
    let value = object.get("metadata")?.get(name)?;
    (!value.is_null()).then_some(value)
}

/// Returns a text of the metadata, or an empty one.
pub(super) fn text<'a>(object: &'a JsonObject, name: &str) -> &'a str {
    field(object, name)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Returns the finalizers of an object.
pub(super) fn finalizers(object: &JsonObject) -> Vec<&str> {
    let list = field(object, "finalizers").and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// Returns whether the deletion of an object has begun.
pub(super) fn is_terminating(object: &JsonObject) -> bool {
    field(object, "deletionTimestamp").is_some()
}

/// Sets a field, or removes it if the value is `None`.
pub(super) fn set(object: &mut JsonObject, name: &str, value: Option<Value>) {
    let metadata = of(object);
    match value {
        Some(value) => {
            metadata.insert(name.to_owned(), value);
        }
        None => {
            metadata.remove(name);
        }
    }
}

/// Removes the fields of an object that is created which clients cannot set.
pub(super) fn clear_server_fields(object: &mut JsonObject) {
    for name in SERVER_FIELDS {
        set(object, name, None);
    }
    set(object, "selfLink", None);
    set(object, "resourceVersion", None);
}

/// Sets the fields of a new version that its client left out or that clients cannot change.
pub(super) fn inherit(new: &mut JsonObject, old: &JsonObject) {
    let inherited = |name: &str| field(old, name).cloned();
    set(new, "creationTimestamp", inherited("creationTimestamp"));
    set(new, "generation", inherited("generation"));
    set(new, "selfLink", None);
    set(new, "resourceVersion", None);
    for name in ["uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if field(new, name).is_none_or(|value| value.as_str() == Some("")) {
            set(new, name, inherited(name));
        }
    }
}

/// Returns what is wrong with the metadata of an object.
pub(super) fn validate(
    object: &JsonObject,
    namespaced: bool,
    strategy: &dyn Strategy,
) -> Vec<StatusCause> {
    let path = || FieldPath::new("metadata");
    let mut causes = Vec::new();
    for (name, is_expected) in EXPECTED_TYPES {
        if let Some(value) = field(object, name)
            && !is_expected(value)
        {
            let detail = "has the wrong type";
            causes.push(StatusCause::type_invalid(
                path().child(name),
                value.clone(),
                detail,
            ));
        }
    }
    if !causes.is_empty() {
        return causes;
    }
    let prefix = text(object, "generateName");
    // Something follows the prefix in a name, so it may end with a dash.
    let prefix_error = || match prefix.strip_suffix('-') {
        Some(start) if !start.is_empty() => strategy.name_error(&format!("{start}-x")),
        _ => strategy.name_error(prefix),
    };
    if !prefix.is_empty()
        && let Some(error) = prefix_error()
    {
        causes.push(StatusCause::invalid(
            path().child("generateName"),
            prefix,
            &error,
        ));
    }
    let name = text(object, "name");
    if name.is_empty() {
        let detail = "name or generateName is required";
        causes.push(StatusCause::required(path().child("name"), detail));
    } else if let Some(error) = strategy.name_error(name) {
        causes.push(StatusCause::invalid(path().child("name"), name, &error));
    }
    let namespace = text(object, "namespace");
    if namespaced {
        if namespace.is_empty() {
            causes.push(StatusCause::required(path().child("namespace"), ""));
        } else if let Some(error) = names::dns_label_error(namespace) {
            causes.push(StatusCause::invalid(
                path().child("namespace"),
                namespace,
                &error,
            ));
        }
    }
    if let Some(generation) = field(object, "generation").and_then(Value::as_i64)
        && generation < 0
    {
        let detail = "must be greater than or equal to 0";
        causes.push(StatusCause::invalid(
            path().child("generation"),
            generation,
            detail,
        ));
    }
    causes.extend(validate_maps(object));
    causes.extend(validate_owners(object));
    causes.extend(validate_finalizers(object));
    causes
}

type TypeCheck = fn(&Value) -> bool;

/// The fields of the metadata that are read here, with their types.
const EXPECTED_TYPES: [(&str, TypeCheck); 9] = [
    ("name", Value::is_string),
    ("generateName", Value::is_string),
    ("namespace", Value::is_string),
    ("uid", Value::is_string),
    ("generation", Value::is_i64),
    ("labels", is_text_map),
    ("annotations", is_text_map),
    ("finalizers", is_text_list),
    ("ownerReferences", is_object_list),
];

fn is_text_map(value: &Value) -> bool {
    value
        .as_object()
        .is_some_and(|map| map.values().all(Value::is_string))
}

fn is_text_list(value: &Value) -> bool {
    value
        .as_array()
        .is_some_and(|list| list.iter().all(Value::is_string))
}

fn is_object_list(value: &Value) -> bool {
    value
        .as_array()
        .is_some_and(|list| list.iter().all(Value::is_object))
}

fn entries<'a>(object: &'a JsonObject, name: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let map = field(object, name).and_then(Value::as_object);
    map.into_iter()
        .flatten()
        .map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
}

fn validate_maps(object: &JsonObject) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let labels = || FieldPath::new("metadata").child("labels");
    for (key, value) in entries(object, "labels") {
        if let Some(error) = names::qualified_name_error(key) {
            causes.push(StatusCause::invalid(labels(), key, &error));
        }
        if let Some(error) = names::label_value_error(value) {
            causes.push(StatusCause::invalid(labels(), value, &error));
        }
    }
    let annotations = || FieldPath::new("metadata").child("annotations");
    let mut size = 0;
    for (key, value) in entries(object, "annotations") {
        // Keys of annotations may have upper case letters in their prefix.
        if let Some(error) = names::qualified_name_error(&key.to_lowercase()) {
            causes.push(StatusCause::invalid(annotations(), key, &error));
        }
        size += key.len() + value.len();
    }
    if size > ANNOTATIONS_BYTES_MAX {
        causes.push(StatusCause::too_long(annotations(), ANNOTATIONS_BYTES_MAX));
    }
    causes
}

fn validate_owners(object: &JsonObject) -> Vec<StatusCause> {
    let path = || FieldPath::new("metadata").child("ownerReferences");
    let Some(list) = field(object, "ownerReferences") else {
        return Vec::new();
    };
    let owners: Vec<&JsonObject> = list
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_object)
        .collect();
    let mut causes = Vec::new();
    let text = |owner: &JsonObject, name| {
        let value = owner.get(name).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    for owner in &owners {
        let version = text(owner, "apiVersion");
        if version.rsplit('/').next().is_none_or(str::is_empty) {
            let detail = "version must not be empty";
            causes.push(StatusCause::invalid(
                path().child("apiVersion"),
                version.as_str(),
                detail,
            ));
        }
        for name in ["kind", "name", "uid"] {
            if text(owner, name).is_empty() {
                causes.push(StatusCause::invalid(
                    path().child(name),
                    "",
                    "must not be empty",
                ));
            }
        }
        // Events do not last.
        if version == "v1" && text(owner, "kind") == "Event" {
            let shown = owner_text(owner);
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            causes.push(StatusCause {
                message: format!("Invalid value: {shown}: {detail}"),
                ..StatusCause::invalid(path(), Value::Null, "")
            });
        }
    }
    let mut controllers = owners
        .iter()
        .filter(|owner| owner.get("controller") == Some(&Value::Bool(true)))
        .map(|owner| format!("{}/{}", text(owner, "kind"), text(owner, "name")));
    let first = controllers.next();
    let mut shown = None;
    let mut bytes = 0;
    for (first, other) in first.iter().cycle().zip(controllers) {
        let what = shown.get_or_insert_with(|| format!("Invalid value: {}", owners_text(&owners)));
        // Each cause has all owners.
        bytes += what.len();
        if bytes > CAUSE_BYTES_MAX && bytes > what.len() {
            break;
        }
        let detail = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for \
             {first} and {other}"
        );
        causes.push(StatusCause {
            message: format!("{what}: {detail}"),
            ..StatusCause::invalid(path(), Value::Null, "")
        });
    }
    causes
}

/// Returns owners as JSON.
fn owners_text(owners: &[&JsonObject]) -> String {
    let texts: Vec<String> = owners.iter().map(|owner| owner_text(owner)).collect();
    format!("[{}]", texts.join(","))
}

/// Returns an owner as JSON, with its fields in the order of Go's type.
fn owner_text(owner: &JsonObject) -> String {
    const ALWAYS: [&str; 4] = ["apiVersion", "kind", "name", "uid"];
    const OPTIONAL: [&str; 2] = ["controller", "blockOwnerDeletion"];
    let shown = |name: &&str| {
        let value = owner.get(*name).filter(|value| !value.is_null());
        match value {
            None if OPTIONAL.contains(name) => None,
            value => Some(format!(
                "{}:{}",
                json!(name),
                value.unwrap_or(&Value::from(""))
            )),
        }
    };
    let members: Vec<String> = ALWAYS.iter().chain(&OPTIONAL).filter_map(shown).collect();
    format!("{{{}}}", members.join(","))
}

/// The finalizers by which a garbage collector orphans or deletes the dependents first.
pub(super) const ORPHAN: &str = "orphan";
pub(super) const FOREGROUND: &str = "foregroundDeletion";

fn validate_finalizers(object: &JsonObject) -> Vec<StatusCause> {
    let path = || FieldPath::new("metadata").child("finalizers");
    let finalizers = finalizers(object);
    let mut causes: Vec<_> = finalizers
        .iter()
        .filter_map(|name| {
            let error = names::qualified_name_error(name)?;
            Some(StatusCause::invalid(path(), *name, &error))
        })
        .collect();
    if finalizers.contains(&ORPHAN) && finalizers.contains(&FOREGROUND) {
        let detail = format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set");
        causes.push(StatusCause::invalid(path(), json!(finalizers), &detail));
    }
    causes
}

/// Returns what is wrong with the metadata of a new version as the successor of `old`. As kube-apiserver does, it checks
/// labels, annotations and owners once more.
pub(super) fn validate_update(new: &JsonObject, old: &JsonObject) -> Vec<StatusCause> {
    let path = || FieldPath::new("metadata");
    let mut causes = Vec::new();
    for name in ["name", "namespace", "uid", "creationTimestamp"]
        .iter()
        .chain(&["deletionTimestamp", "deletionGracePeriodSeconds"])
    {
        let value = field(new, name);
        if value != field(old, name) {
            let value = value.cloned().unwrap_or_default();
            let detail = "field is immutable";
            causes.push(StatusCause::invalid(path().child(name), value, detail));
        }
    }
    if is_terminating(old) {
        let known = finalizers(old);
        let mut added = finalizers(new);
        added.retain(|name| !known.contains(name));
        if !added.is_empty() {
            let quoted: Vec<_> = added.iter().map(|name| format!("{name:?}")).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers \
                 []string{{{}}}",
                quoted.join(", ")
            );
            causes.push(StatusCause::forbidden(path().child("finalizers"), &detail));
        }
    }
    causes.extend(validate_maps(new));
    causes.extend(validate_owners(new));
    causes
}
