//! Objects in objects: their types and their metadata.

use revstore_watch_cache::status::StatusCause;
use serde_json::{Map, Value};

use super::causes::Causes;
use super::node::Schema;
use super::object_meta;
use super::path::Path;
use crate::custom::text;

/// How objects in an object are coerced.
pub(crate) struct Coercion {
    /// Whether the value is an object itself.
    pub(crate) is_object: bool,
    /// Whether fields of a wrong type are removed instead of refused.
    pub(crate) drops: bool,
}

impl Schema {
    /// Removes the unknown fields from the metadata of objects in a value. Returns their paths.
    ///
    /// # Errors
    /// The cause, if a field has the wrong type.
    pub(crate) fn coerce(
        &self,
        value: &mut Value,
        how: &Coercion,
        path: &Path<'_>,
    ) -> Result<Vec<String>, Box<StatusCause>> {
        let mut unknown = Vec::new();
        coerce(self, value, how.is_object, how.drops, path, &mut unknown)?;
        unknown.sort();
        Ok(unknown)
    }

    /// Adds what is wrong with the types and the metadata of objects in a value.
    pub(crate) fn embedded_errors(
        &self,
        value: &Value,
        is_object: bool,
        path: &Path<'_>,
        causes: &mut Causes,
    ) {
        check(self, value, is_object, path, causes);
    }
}

/// Removes the unknown fields of the metadata of an object itself. Returns their paths.
///
/// # Errors
/// The text of a decoding error.
pub(crate) fn coerce_metadata(
    object: &mut Map<String, Value>,
    drops: bool,
) -> Result<Vec<String>, String> {
    let mut unknown = Vec::new();
    let root = Path::root("");
    if let Some(metadata) = object.get_mut("metadata") {
        object_meta::coerce(metadata, drops, &root.child("metadata"), &mut unknown)?;
    }
    Ok(unknown)
}

fn coerce(
    schema: &Schema,
    value: &mut Value,
    is_object: bool,
    drops: bool,
    path: &Path<'_>,
    unknown: &mut Vec<String>,
) -> Result<(), Box<StatusCause>> {
    match value {
        Value::Object(map) => {
            if schema.embedded || is_object {
                coerce_object(map, drops, path, unknown)?;
            }
            for (name, value) in map.iter_mut() {
                if let Some(property) = schema.properties.get(name) {
                    coerce(property, value, false, drops, &path.child(name), unknown)?;
                } else if let Some(additional) = schema.additional.schema() {
                    coerce(additional, value, false, drops, &path.key(name), unknown)?;
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                for (index, item) in list.iter_mut().enumerate() {
                    coerce(items, item, false, drops, &path.index(index), unknown)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

fn coerce_object(
    map: &mut Map<String, Value>,
    drops: bool,
    path: &Path<'_>,
    unknown: &mut Vec<String>,
) -> Result<(), Box<StatusCause>> {
    for name in ["apiVersion", "kind"] {
        if let Some(value) = map.get(name)
            && !value.is_string()
        {
            if !drops {
                let field = path.child(name).field();
                return Err(Box::new(StatusCause::invalid(
                    field,
                    value.clone(),
                    "must be a string",
                )));
            }
            map.remove(name);
        }
    }
    if let Some(metadata) = map.get_mut("metadata") {
        let path = path.child("metadata");
        let before = metadata.clone();
        if let Err(error) = object_meta::coerce(metadata, drops, &path, unknown)
            && !drops
        {
            return Err(Box::new(StatusCause::invalid(path.field(), before, &error)));
        }
    }
    Ok(())
}

fn check(schema: &Schema, value: &Value, is_object: bool, path: &Path<'_>, causes: &mut Causes) {
    if causes.is_full() {
        return;
    }
    match value {
        Value::Object(map) => {
            if schema.embedded || is_object {
                check_object(map, path, causes);
            }
            for (name, value) in map {
                if let Some(property) = schema.properties.get(name) {
                    check(property, value, false, &path.child(name), causes);
                } else if let Some(additional) = schema.additional.schema() {
                    check(additional, value, false, &path.key(name), causes);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                for (index, item) in list.iter().enumerate() {
                    check(items, item, false, &path.index(index), causes);
                }
            }
        }
        _ => {}
    }
}

fn check_object(map: &Map<String, Value>, path: &Path<'_>, causes: &mut Causes) {
    for name in ["apiVersion", "kind"] {
        let child = path.child(name);
        let Some(value) = map.get(name) else {
            causes.push(StatusCause::required(child.field(), ""));
            continue;
        };
        let detail = match value.as_str() {
            None => Some("must be a string".to_owned()),
            Some("") => Some("must not be empty".to_owned()),
            Some(version) if name == "apiVersion" => {
                let slashes = version.matches('/').count();
                (slashes > 1).then(|| format!("unexpected GroupVersion string: {version}"))
            }
            Some(kind) => text::label_error(&kind.to_lowercase())
                .map(|error| format!("may have mixed case, but should otherwise match: {error}")),
        };
        if let Some(detail) = detail {
            causes.push(StatusCause::invalid(child.field(), value.clone(), &detail));
        }
    }
    let Some(metadata) = map.get("metadata") else {
        return;
    };
    let path = path.child("metadata");
    let field = |name: &str| {
        metadata
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let mut checked = metadata.clone();
    if let Err(error) = object_meta::coerce(&mut checked, false, &path, &mut Vec::new()) {
        causes.push(StatusCause::invalid(path.field(), metadata.clone(), &error));
        return;
    }
    for (name, is_prefix) in [("generateName", true), ("name", false)] {
        for error in segment_errors(field(name), is_prefix) {
            causes.push(StatusCause::invalid(
                path.child(name).field(),
                field(name),
                error,
            ));
        }
    }
    let namespace = field("namespace");
    if !namespace.is_empty() && !text::is_short_name(namespace) {
        let detail = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
                      and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', \
                      regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
        causes.push(StatusCause::invalid(
            path.child("namespace").field(),
            namespace,
            detail,
        ));
    }
}

/// Returns what is wrong with a name that must fit into a path.
fn segment_errors(name: &str, is_prefix: bool) -> Vec<&'static str> {
    let mut errors = Vec::new();
    match name {
        "." if !is_prefix => errors.push("may not be '.'"),
        ".." if !is_prefix => errors.push("may not be '..'"),
        _ => {}
    }
    if name.contains('/') {
        errors.push("may not contain '/'");
    }
    if name.contains('%') {
        errors.push("may not contain '%'");
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Coercion, Path, Schema, coerce_metadata};
    use crate::custom::schema::causes::Causes;

    fn schema() -> Schema {
        Schema::parse(&json!({"type": "object", "properties": {"emb": {"type": "object",
            "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}}))
        .unwrap()
    }

    #[test]
    fn metadata_of_objects_in_objects_is_coerced() {
        let how = Coercion {
            is_object: false,
            drops: false,
        };
        let mut object = json!({"emb": {"apiVersion": "v1", "kind": "X", "data": 1, "metadata": {
            "name": "n", "zzz": 1, "labels": {}, "ownerReferences": [{"name": "o", "yyy": 2}]}}});
        let unknown = schema().coerce(&mut object, &how, &Path::root("")).unwrap();
        assert_eq!(
            unknown,
            ["emb.metadata.ownerReferences[0].yyy", "emb.metadata.zzz"]
        );
        assert_eq!(
            object["emb"]["metadata"],
            json!({"name": "n", "ownerReferences": [
            {"apiVersion": "", "kind": "", "name": "o", "uid": ""}]})
        );
        let mut object = json!({"emb": {"metadata": {"name": 1}}});
        let cause = schema()
            .coerce(&mut object.clone(), &how, &Path::root(""))
            .unwrap_err();
        assert_eq!(
            cause.to_string(),
            "emb.metadata: Invalid value: {\"name\":1}: json: cannot unmarshal \
            number into Go struct field ObjectMeta.name of type string"
        );
        let how = Coercion { drops: true, ..how };
        schema().coerce(&mut object, &how, &Path::root("")).unwrap();
        assert_eq!(object, json!({"emb": {"metadata": {}}}));
        let mut root = json!({"metadata": {"nope": 1}});
        let unknown = coerce_metadata(root.as_object_mut().unwrap(), false);
        assert_eq!(unknown.unwrap(), ["metadata.nope"]);
    }

    #[test]
    fn types_and_names_of_objects_in_objects_are_checked() {
        let mut causes = Causes::default();
        let object = json!({"emb": {"apiVersion": "a/b/c", "metadata": {"name": "a/b"}}});
        schema().embedded_errors(&object, false, &Path::root(""), &mut causes);
        let texts: Vec<_> = causes
            .into_sorted()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            texts,
            [
                "emb.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
                "emb.kind: Required value",
                "emb.metadata.name: Invalid value: \"a/b\": may not contain '/'",
            ]
        );
    }
}
