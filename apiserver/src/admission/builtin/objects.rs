//! The objects that plugins look up. They are those of the cache, which has all writes that this server has answered.

use revstore_watch_cache::api::{GetOptions, ObjectRef};
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::{ListOptions, RequestError, Scope};

use crate::http::Front;
use crate::verbs::decoded;

/// Returns all objects of a built-in resource, those of a namespace if one is given.
pub(in crate::admission) async fn list(
    front: &Front,
    (group, plural): (&str, &str),
    namespace: Option<&str>,
) -> Result<Vec<JsonObject>, RequestError> {
    let Ok(resource) = front.catalog.find(group, "v1", plural) else {
        return Ok(Vec::new());
    };
    let Some(stored) = &resource.stored else {
        return Ok(Vec::new());
    };
    let scope = match namespace {
        Some(namespace) => Scope::Namespace(namespace.to_owned()),
        None => Scope::All,
    };
    let options = ListOptions::default().resource_version("0");
    let list = stored.cache.list(&scope, &options).await?;
    let mut objects = Vec::new();
    for object in list.items {
        objects.push(decoded(&resource, stored, &object?)?);
    }
    Ok(objects)
}

/// Returns an object of a built-in resource without namespaces. One that the cache does not have is looked up in the
/// store.
pub(in crate::admission) async fn get(
    front: &Front,
    resource: (&str, &str),
    name: &str,
) -> Result<Option<JsonObject>, RequestError> {
    find(front, resource, &ObjectRef::cluster(name)).await
}

/// Returns an object of a built-in resource by its reference. One that the cache does not have is looked up in the
/// store.
pub(in crate::admission) async fn find(
    front: &Front,
    (group, plural): (&str, &str),
    reference: &ObjectRef,
) -> Result<Option<JsonObject>, RequestError> {
    let Ok(resource) = front.catalog.find(group, "v1", plural) else {
        return Ok(None);
    };
    let Some(stored) = &resource.stored else {
        return Ok(None);
    };
    for options in [
        GetOptions::default().resource_version("0"),
        GetOptions::default(),
    ] {
        // A name that is none of an object is that of no object.
        let found = match stored.cache.get(reference, &options).await {
            Err(RequestError::BadRequest(_)) => return Ok(None),
            found => found?,
        };
        if let Some(object) = found {
            return decoded(&resource, stored, &object).map(Some);
        }
    }
    Ok(None)
}
