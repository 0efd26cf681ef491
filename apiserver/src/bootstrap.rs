//! The objects that exist on a fresh server.

use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::{JsonObject, WriteRequest};
use serde_json::{Value, json};

use crate::catalog::Catalog;

/// The namespaces of a fresh server.
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// Creates the objects of a fresh server that do not exist.
pub(crate) async fn create(catalog: &Catalog) -> Result<(), RequestError> {
    for name in NAMESPACES {
        let namespace = json!({"metadata": {"name": name}});
        create_one(catalog, "namespaces", "", namespace).await?;
    }
    Ok(())
}

async fn create_one(
    catalog: &Catalog,
    plural: &str,
    namespace: &str,
    object: Value,
) -> Result<(), RequestError> {
    let Ok(resource) = catalog.find("", "v1", plural) else {
        return Ok(());
    };
    let (Some(stored), Value::Object(object)) = (&resource.stored, object) else {
        return Ok(());
    };
    let object: JsonObject = object;
    match stored
        .store
        .create(namespace, object, &WriteRequest::default())
        .await
    {
        Ok(_) | Err(RequestError::AlreadyExists { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
