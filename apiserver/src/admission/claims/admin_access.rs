//! Claims with access of administrators to devices, which are only allowed in namespaces with a label.

use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{FieldPath, StatusCause};
use serde_json::Value;

use crate::admission::Attributes;
use crate::admission::builtin::objects;
use crate::builtin::edit;

/// The label of namespaces for administrators.
const LABEL: &str = "resource.kubernetes.io/admin-access";

/// Returns the cause if a claim with access of administrators is not in a namespace for them. Corresponds to
/// `AuthorizedForAdmin` and `AuthorizedForAdminStatus`.
pub(super) async fn check(
    request: &Attributes<'_>,
    new: &JsonObject,
    old: Option<&JsonObject>,
) -> Option<StatusCause> {
    let field = match (
        request.resource.names.kind.as_str(),
        request.subresource,
        old,
    ) {
        // The specs of claims and templates do not change.
        ("ResourceClaim", "", None) => spec_field(new, &["spec", "devices", "requests"]),
        ("ResourceClaimTemplate", "", None) => {
            spec_field(new, &["spec", "spec", "devices", "requests"])
        }
        ("ResourceClaim", "status", Some(old)) if status_field(old).is_none() => status_field(new),
        _ => None,
    }?;
    let found = objects::get(request.front, ("", "namespaces"), request.namespace).await;
    match found {
        Ok(Some(namespace)) if is_for_administrators(&namespace) => None,
        Ok(Some(_)) => {
            let detail = format!(
                "admin access to devices requires the `{LABEL}: true` label on the containing namespace"
            );
            Some(StatusCause::forbidden(field, &detail))
        }
        other => {
            let error = match other {
                Err(error) => error.to_string(),
                Ok(_) => format!("namespaces \"{}\" not found", request.namespace),
            };
            let detail = format!("could not retrieve namespace to verify admin access: {error}");
            Some(StatusCause::internal(field, &detail))
        }
    }
}

fn is_for_administrators(namespace: &JsonObject) -> bool {
    edit::text_at(namespace, &["metadata", "labels", LABEL]) == "true"
}

/// Returns the index of the first item that has the access, below a member of it if one is named.
fn first(list: Option<&Value>, member: Option<&str>) -> Option<usize> {
    let has_access = |item: &Value| {
        let part = member.map_or(Some(item), |name| item.get(name));
        part.and_then(|part| part.get("adminAccess")) == Some(&Value::Bool(true))
    };
    list?.as_array()?.iter().position(has_access)
}

/// Returns the path of the first request with the access. It is that of claims for templates, too.
fn spec_field(object: &JsonObject, requests: &[&str]) -> Option<FieldPath> {
    let index = first(edit::at(object, requests), Some("exactly"))?;
    let path = FieldPath::new("spec.devices.requests").index(index);
    Some(path.child("adminAccess"))
}

/// Returns the path of the first device that is allocated with the access.
fn status_field(claim: &JsonObject) -> Option<FieldPath> {
    let results = edit::at(claim, &["status", "allocation", "devices", "results"]);
    let index = first(results, None)?;
    let path = FieldPath::new("status.allocation.devices.results").index(index);
    Some(path.child("adminAccess"))
}
