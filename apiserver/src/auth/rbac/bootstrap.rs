//! The roles and bindings of a fresh cluster.

use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::{JsonObject, WriteRequest};
use serde_json::Value;

use crate::auth::rbac::GROUP;
use crate::bootstrap::together;
use crate::catalog::Catalog;
use crate::verbs::Tracker;

/// One object in each line, written by `scripts/generate-kinds.sh`.
const OBJECTS: &str = include_str!("../../../data/bootstrap-policy.jsonl");

/// Creates the roles and bindings that do not exist. Those that exist stay as they are.
///
/// # Errors
/// The store fails.
pub(crate) async fn create(catalog: &Catalog, now: &str) -> Result<(), RequestError> {
    let creations = OBJECTS.lines().map(|line| create_one(catalog, line, now));
    together(creations).await.map(drop)
}

/// Creates the object of a line, if it does not exist.
async fn create_one(catalog: &Catalog, line: &str, now: &str) -> Result<(), RequestError> {
    let mut object: JsonObject =
        serde_json::from_str(line).map_err(|error| RequestError::Internal(error.to_string()))?;
    let text = |value: Option<&Value>| {
        let text = value.and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let plural = format!("{}s", text(object.get("kind")).to_ascii_lowercase());
    let metadata = object.get("metadata");
    let namespace = text(metadata.and_then(|metadata| metadata.get("namespace")));
    let Ok(resource) = catalog.find(GROUP, "v1", &plural) else {
        return Ok(());
    };
    let Some(stored) = &resource.stored else {
        return Ok(());
    };
    resource.rules.conform(&mut object)?;
    Tracker::of_server(&resource, "", now.to_owned()).track(None, &mut object);
    let request = WriteRequest::default();
    match stored.store.create(&namespace, object, &request).await {
        Ok(_) | Err(RequestError::AlreadyExists { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
