//! Claims with access of administrators to devices, which are only allowed in namespaces with a label. No plugin
//! decides this: it is a rule of the kinds, for which the namespace is looked up.

use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{FieldPath, ResourceName, Status, StatusCause};
use serde_json::Value;

use crate::admission::Attributes;
use crate::admission::builtin::objects;
use crate::builtin::edit;

const GROUP: &str = "resource.k8s.io";
/// The label of namespaces for administrators.
const LABEL: &str = "resource.kubernetes.io/admin-access";

/// Checks that a claim with access of administrators is in a namespace for them. Corresponds to `AuthorizedForAdmin` and
/// `AuthorizedForAdminStatus`.
///
/// # Errors
/// 422.
pub(super) async fn check(
    request: &Attributes<'_>,
    new: Option<&JsonObject>,
    old: Option<&JsonObject>,
) -> Result<(), RequestError> {
    let Some(new) = new.filter(|_| request.resource.names.group == GROUP) else {
        return Ok(());
    };
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
    };
    let Some(field) = field else {
        return Ok(());
    };
    let found = objects::get(request.front, ("", "namespaces"), request.namespace).await;
    let cause = match found {
        Ok(Some(namespace)) if is_for_administrators(&namespace) => return Ok(()),
        Ok(Some(_)) => {
            let detail = format!(
                "admin access to devices requires the `{LABEL}: true` label on the containing namespace"
            );
            StatusCause::forbidden(field, &detail)
        }
        other => {
            let error = match other {
                Err(error) => error.to_string(),
                Ok(_) => format!("namespaces \"{}\" not found", request.namespace),
            };
            let detail = format!("could not retrieve namespace to verify admin access: {error}");
            StatusCause::internal(field, &detail)
        }
    };
    let kind = ResourceName::new(GROUP, request.kind.kind);
    Err(Status::invalid(&kind, request.shown_name(Some(new)), vec![cause]).into())
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
