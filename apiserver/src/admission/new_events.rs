//! Events of `events.k8s.io`, whose rules are stricter than those of the core group, in which both are stored.

use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{ResourceName, Status};

use crate::admission::Attributes;
use crate::builtin;

/// Checks a valid version of an event before it is stored. Both versions are as they are stored.
///
/// # Errors
/// 422.
pub(super) fn check(
    request: &Attributes<'_>,
    new: Option<&JsonObject>,
    old: Option<&JsonObject>,
) -> Result<(), RequestError> {
    let Some(new) = new.filter(|_| request.resource.names.group == "events.k8s.io") else {
        return Ok(());
    };
    let causes = builtin::new_event_causes(new, old);
    if causes.is_empty() {
        return Ok(());
    }
    let kind = ResourceName::new("", "Event");
    Err(Status::invalid(&kind, request.shown_name(Some(new)), causes).into())
}
