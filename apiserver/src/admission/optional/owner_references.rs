//! Who may name an owner of an object: whoever may delete the object, and, to let it block the deletion of the owner, set
//! the finalizers of the owner.

use std::sync::Arc;

use revstore_watch_cache::registry::JsonObject;
use serde_json::Value;

use crate::admission::{Attributes, Decision, Operation, Phase, Plugin};
use crate::auth;
use crate::builtin::edit;
use crate::catalog::Resource;

/// The plugin `OwnerReferencesPermissionEnforcement`.
#[derive(Debug)]
pub(crate) struct OwnerReferencesPermissionEnforcement;

impl Plugin for OwnerReferencesPermissionEnforcement {
    fn handles(&self, phase: Phase, request: &Attributes<'_>) -> bool {
        phase == Phase::Validate
            && matches!(request.operation, Operation::Create | Operation::Update)
            && !request.is_for("", "pods", "status")
    }

    fn validate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a JsonObject>,
    ) -> Decision<'a> {
        let refused = object.and_then(|object| refusal(request, object));
        Box::pin(async move {
            match refused {
                Some(detail) => Err(request.forbidden(object, &detail).into()),
                None => Ok(()),
            }
        })
    }
}

fn owners(object: &JsonObject) -> &[Value] {
    let owners = edit::at(object, &["metadata", "ownerReferences"]).and_then(Value::as_array);
    owners.map_or(&[], Vec::as_slice)
}

/// Returns why the owners of an object may not be set.
fn refusal(request: &Attributes<'_>, object: &JsonObject) -> Option<String> {
    let new = owners(object);
    let old = request.old.map_or(&[][..], owners);
    if new == old {
        return None;
    }
    let authorizer = &request.front.authorizer;
    if request.operation != Operation::Create {
        let names = &request.resource.names;
        let delete = auth::Attributes::Resource {
            verb: "delete",
            group: &names.group,
            namespace: request.namespace,
            resource: &names.plural,
            subresource: request.subresource,
            name: &request.name,
        };
        let decision = authorizer.decide(request.user(), delete);
        if !decision.allowed {
            let reason = decision.reason;
            return Some(format!(
                "cannot set an ownerRef on a resource you can't delete: {reason}, <nil>"
            ));
        }
    }
    let blocks = |owner: &Value| owner["blockOwnerDeletion"] == true;
    let mut added = new.iter().filter(|owner| {
        let known = old.iter().rfind(|known| known["uid"] == owner["uid"]);
        blocks(owner) && !known.is_some_and(blocks)
    });
    let mut added = added.by_ref().peekable();
    added.peek()?;
    // Asked once, whoever may do it for all needs no look at the kinds.
    if authorizer.allows(request.user(), finalizers("*", "", "*", "*")) {
        return None;
    }
    added.find_map(|owner| owner_refusal(request, owner))
}

fn finalizers<'a>(
    group: &'a str,
    namespace: &'a str,
    resource: &'a str,
    name: &'a str,
) -> auth::Attributes<'a> {
    auth::Attributes::Resource {
        verb: "update",
        group,
        namespace,
        resource,
        subresource: "finalizers",
        name,
    }
}

/// Returns why an object may not block the deletion of an owner.
fn owner_refusal(request: &Attributes<'_>, owner: &Value) -> Option<String> {
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resources = of_kind(request, group, version, kind);
    if resources.is_empty() {
        return Some(format!(
            "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {api_version} \
             Kind {kind}: no matches for kind \"{kind}\" in version \"{api_version}\""
        ));
    }
    resources.iter().find_map(|resource| {
        let namespace = if resource.namespaced {
            request.namespace
        } else {
            ""
        };
        let asked = finalizers(group, namespace, &resource.names.plural, text("name"));
        let decision = request.front.authorizer.decide(request.user(), asked);
        (!decision.allowed).then(|| {
            let reason = decision.reason;
            format!(
                "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: \
                 {reason}, <nil>"
            )
        })
    })
}

/// Returns the resources of a kind.
fn of_kind(request: &Attributes<'_>, group: &str, version: &str, kind: &str) -> Vec<Arc<Resource>> {
    let groups = request.front.catalog.groups();
    let versions = groups.get(group).into_iter().flat_map(|it| &it.versions);
    let resources = versions
        .filter(|known| known.name == version)
        .flat_map(|version| version.resources.values());
    resources
        .filter(|resource| resource.names.kind == kind)
        .cloned()
        .collect()
}
