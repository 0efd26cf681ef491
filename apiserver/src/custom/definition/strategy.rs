//! The rules of definitions as objects.

use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::{JsonObject, Strategy};
use revstore_watch_cache::status::StatusCause;
use serde_json::{Value, json};

use super::{API_VERSION, KIND, check, shape};
use crate::custom::definition::version::list::{list, text};
use crate::custom::schema::{Causes, Schema};

/// The rules of definitions: their status is a resource of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Definitions;

/// The rules of the status of definitions. Writes also change the metadata, as in Kubernetes.
#[derive(Clone, Copy, Debug, Default)]
pub struct DefinitionStatus;

/// Sets the defaults of a definition.
pub(crate) fn set_defaults(definition: &mut JsonObject) {
    let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let kind = names
            .get("kind")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        if !kind.is_empty() {
            names
                .entry("singular")
                .or_insert_with(|| kind.to_lowercase().into());
            names
                .entry("listKind")
                .or_insert_with(|| format!("{kind}List").into());
        }
    }
    let conversion = spec
        .entry("conversion")
        .or_insert_with(|| json!({"strategy": "None"}));
    let service = conversion.pointer_mut("/webhook/clientConfig/service");
    if let Some(service) = service.and_then(Value::as_object_mut) {
        service.entry("port").or_insert_with(|| 443.into());
    }
}

/// Adds the storage version of a definition to those in which objects may be stored.
fn add_stored_version(definition: &mut JsonObject) {
    let empty = json!({});
    let versions = list(definition.get("spec").unwrap_or(&empty), "versions");
    let Some(storage) = versions.iter().find(|version| version["storage"] == true) else {
        return;
    };
    let name = Value::from(text(storage, "name"));
    let status = definition.entry("status").or_insert_with(|| json!({}));
    let stored = &mut status["storedVersions"];
    match stored.as_array_mut() {
        Some(stored) if stored.contains(&name) => {}
        Some(stored) => stored.push(name),
        None => *stored = json!([name]),
    }
}

impl Strategy for Definitions {
    fn api_version(&self) -> &str {
        API_VERSION
    }

    fn kind(&self) -> &str {
        KIND
    }

    fn prepare_create(&self, object: &mut JsonObject) -> Result<(), RequestError> {
        shape::admit(object)?;
        set_defaults(object);
        let status = json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}});
        object.insert("status".into(), status);
        add_stored_version(object);
        Ok(())
    }

    fn prepare_update(&self, new: &mut JsonObject, old: &JsonObject) -> Result<(), RequestError> {
        shape::admit(new)?;
        set_defaults(new);
        new.insert(
            "status".into(),
            old.get("status").cloned().unwrap_or_else(|| json!({})),
        );
        add_stored_version(new);
        Ok(())
    }

    fn validate_create(&self, object: &JsonObject) -> Vec<StatusCause> {
        check::check_create(object)
    }

    fn validate_update(&self, new: &JsonObject, old: &JsonObject) -> Vec<StatusCause> {
        check::check_update(new, old)
    }
}

impl Strategy for DefinitionStatus {
    fn api_version(&self) -> &str {
        API_VERSION
    }

    fn kind(&self) -> &str {
        KIND
    }

    fn prepare_update(&self, new: &mut JsonObject, old: &JsonObject) -> Result<(), RequestError> {
        shape::admit(new)?;
        new.insert(
            "spec".into(),
            old.get("spec").cloned().unwrap_or_else(|| json!({})),
        );
        if let Some(status) = new.get_mut("status").and_then(Value::as_object_mut) {
            for name in ["conditions", "storedVersions"] {
                status.entry(name).or_insert(Value::Null);
            }
        }
        Ok(())
    }

    fn validate_update(&self, new: &JsonObject, _: &JsonObject) -> Vec<StatusCause> {
        let mut causes = Causes::default();
        check::check_accepted(new.get("status").unwrap_or(&Value::Null), &mut causes);
        causes.into_unique()
    }
}

/// Returns the schemas of a definition.
fn schemas(definition: &JsonObject) -> impl Iterator<Item = Schema> {
    let versions = definition
        .get("spec")
        .map_or(&[][..], |spec| list(spec, "versions"));
    let schema =
        |version: &Value| Schema::parse(version.get("schema")?.get("openAPIV3Schema")?).ok();
    versions.iter().filter_map(schema)
}

/// Returns the warnings about a definition that is accepted: formats that are not known, which `old`
/// does not have.
pub fn warnings(new: &JsonObject, old: Option<&JsonObject>) -> Vec<String> {
    let formats = |definition: &JsonObject| -> Vec<String> {
        let mut formats: Vec<_> = schemas(definition)
            .flat_map(|schema| schema.unrecognized_formats())
            .collect();
        formats.sort();
        formats.dedup();
        formats
    };
    let known = old.map(formats).unwrap_or_default();
    let mut added = formats(new);
    added.retain(|format| !known.contains(format));
    added
        .iter()
        .map(|format| format!("unrecognized format {format:?}"))
        .collect()
}
