//! The versions of a resource, for webhooks that want another one than that of the request.

use std::sync::Arc;

use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;

use crate::admission::Attributes;
use crate::catalog::Resource;

/// The groups whose resources of one name are stored as the same objects.
const SAME_EVENTS: [&str; 2] = ["", "events.k8s.io"];

/// Returns the other versions of the resource of a request: those with the same stored objects.
pub(super) fn equivalents(request: &Attributes<'_>) -> Vec<Arc<Resource>> {
    let own = &request.resource.names;
    let is_event = own.plural == "events" && SAME_EVENTS.contains(&&*own.group);
    let groups = request.front.catalog.groups();
    let groups = groups.iter().filter(|(name, _)| {
        **name == own.group || is_event && SAME_EVENTS.contains(&name.as_str())
    });
    let versions = groups.flat_map(|(_, group)| &group.versions);
    let resources = versions.filter_map(|version| version.resources.get(&own.plural));
    resources
        .filter(|other| (&other.names.group, &other.names.version) != (&own.group, &own.version))
        .cloned()
        .collect()
}

/// Returns an object of one version of a resource in another one.
///
/// # Errors
/// 500 if a webhook cannot convert it.
pub(super) async fn converted(
    from: &Resource,
    to: &Resource,
    object: JsonObject,
) -> Result<JsonObject, RequestError> {
    let version = to.names.api_version();
    let mut new = match &from.converter {
        Some(converter) => converter.convert(object, &version).await?,
        None => from.to_stored(object),
    };
    new = to.to_shown(new);
    new.insert("apiVersion".to_owned(), version.into());
    Ok(new)
}
