//! The versions of a resource, for webhooks that want another one than that of the request.

use std::sync::Arc;

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
