//! The scale subresource.

use serde_json::{Value, json};

use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{ResourceName, Status, StatusCause};

use super::edit;
use super::field::Field;
use super::names;
use super::selector;

/// The metadata of an object that its scale has, too.
const METADATA: [&str; 5] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
];

/// Returns the `autoscaling/v1` scale of a deployment, a replica set, a stateful set or a replication
/// controller.
pub fn scale_of(object: &JsonObject) -> JsonObject {
    let root = Field::root(object);
    let mut metadata = JsonObject::new();
    for name in METADATA {
        if let Some(value) = edit::at(object, &["metadata", name]) {
            metadata.insert(name.to_owned(), value.clone());
        }
    }
    let labels = root.at(&["spec", "selector"]);
    let text = if edit::text(object, "kind") == "ReplicationController" {
        selector::map_text(&labels)
    } else {
        selector::text(&labels)
    };
    let mut spec = JsonObject::new();
    let replicas = root.at(&["spec", "replicas"]).int().unwrap_or_default();
    if replicas != 0 {
        spec.insert("replicas".to_owned(), json!(replicas));
    }
    let replicas = root.at(&["status", "replicas"]).int().unwrap_or_default();
    let mut status = json!({"replicas": replicas});
    if !text.is_empty() {
        status["selector"] = text.into();
    }
    let mut scale = JsonObject::new();
    scale.insert("kind".to_owned(), "Scale".into());
    scale.insert("apiVersion".to_owned(), "autoscaling/v1".into());
    scale.insert("metadata".to_owned(), Value::Object(metadata));
    scale.insert("spec".to_owned(), Value::Object(spec));
    scale.insert("status".to_owned(), status);
    scale
}

/// Returns an object with the replicas of a scale. The resource version of the scale, if it has one, must
/// be that of the object, which the caller checks when it writes the object.
///
/// # Errors
/// - 400 if the names differ.
/// - 422 if the number of replicas is negative.
pub fn set_scale(object: &JsonObject, scale: &JsonObject) -> Result<JsonObject, RequestError> {
    let name = edit::text_at(object, &["metadata", "name"]);
    let found = edit::text_at(scale, &["metadata", "name"]);
    if !found.is_empty() && found != name {
        return Err(RequestError::BadRequest(format!(
            "the name of the object ({found}) does not match the name on the URL ({name})"
        )));
    }
    let replicas = Field::root(scale).at(&["spec", "replicas"]).int();
    let replicas = replicas.unwrap_or_default();
    if replicas < 0 {
        let cause = StatusCause::invalid("spec.replicas", replicas, names::NOT_NEGATIVE);
        let kind = ResourceName::new("autoscaling", "Scale");
        return Err(Status::invalid(&kind, name, vec![cause]).into());
    }
    let mut scaled = object.clone();
    if let Some(spec) = edit::ensure(&mut scaled, "spec") {
        spec.insert("replicas".to_owned(), json!(replicas));
    }
    let version = edit::at(scale, &["metadata", "resourceVersion"]).cloned();
    if let Some(metadata) = edit::ensure(&mut scaled, "metadata") {
        match version {
            Some(version) => metadata.insert("resourceVersion".to_owned(), version),
            None => metadata.remove("resourceVersion"),
        };
    }
    Ok(scaled)
}
