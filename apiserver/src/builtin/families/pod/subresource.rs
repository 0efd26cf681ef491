//! The subresources of pods that change them: binding, ephemeral containers, resize.

use serde_json::{Value, json};

use revstore_watch_cache::RequestError;
use revstore_watch_cache::api::Preconditions;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{ResourceName, Status};

use super::{defaults, qos, spec, update};
use crate::builtin::causes::Causes;
use crate::builtin::edit;
use crate::builtin::field::Field;
use crate::builtin::gates::Gates;

pub(super) fn name_of(object: &JsonObject) -> &str {
    edit::text_at(object, &["metadata", "name"])
}

fn invalid(pod: &JsonObject, causes: Causes) -> RequestError {
    let kind = ResourceName::new("", "Pod");
    Status::invalid(&kind, name_of(pod), causes.into_vec()).into()
}

/// Checks what can be checked of a binding without its pod.
///
/// # Errors
/// 500 if the binding names no node, as by kube-apiserver.
pub fn check_binding(binding: &JsonObject) -> Result<(), RequestError> {
    let target = Field::root(binding).child("target");
    let mut causes = Causes::default();
    if !["", "Node"].contains(&target.child("kind").text()) {
        causes.not_supported(&target.child("kind"), &["Node", "<empty>"]);
    }
    causes.check_required(&target.child("name"));
    match causes.into_vec().first() {
        Some(cause) => Err(RequestError::Unclassified(cause.to_string())),
        None => Ok(()),
    }
}

/// Returns the conditions of a `Binding` on its pod.
pub fn binding_conditions(binding: &JsonObject) -> Preconditions {
    let mut conditions = Preconditions::default();
    let text = |field| {
        let text = edit::text_at(binding, &["metadata", field]);
        (!text.is_empty()).then(|| text.to_owned())
    };
    conditions.uid = text("uid");
    conditions.resource_version = text("resourceVersion");
    conditions
}

/// Returns a pod that is bound to the node of a `Binding`.
///
/// # Errors
/// 409 if the pod is bound already, is being deleted or has scheduling gates; 500 if the binding names no
/// node.
pub fn bind(pod: &JsonObject, binding: &JsonObject, now: &str) -> Result<JsonObject, RequestError> {
    check_binding(binding)?;
    let target = Field::root(binding).child("target");
    let name = name_of(pod);
    let conflict = |detail: &str| {
        let resource = ResourceName::new("", "pods/binding");
        RequestError::from(Status::conflict(&resource, name, detail))
    };
    if edit::at(pod, &["metadata", "deletionTimestamp"]).is_some() {
        let detail = format!("pod {name} is being deleted, cannot be assigned to a host");
        return Err(conflict(&detail));
    }
    let node = edit::text_at(pod, &["spec", "nodeName"]);
    if !node.is_empty() {
        let detail = format!("pod {name} is already assigned to node {node:?}");
        return Err(conflict(&detail));
    }
    if Field::root(pod).at(&["spec", "schedulingGates"]).len() > 0 {
        return Err(conflict(&format!(
            "pod {name} has non-empty .spec.schedulingGates"
        )));
    }
    let mut bound = pod.clone();
    if let Some(spec) = edit::ensure(&mut bound, "spec") {
        spec.insert("nodeName".to_owned(), target.child("name").text().into());
    }
    if let Some(status) = edit::child_mut(&mut bound, "status") {
        status.remove("nominatedNodeName");
    }
    for field in ["annotations", "labels"] {
        if let Some(Value::Object(added)) = edit::at(binding, &["metadata", field])
            && let Some(metadata) = edit::ensure(&mut bound, "metadata")
            && let Some(map) = edit::ensure(metadata, field)
        {
            map.extend(added.clone());
        }
    }
    set_condition(
        &mut bound,
        json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null}),
        now,
    );
    Ok(bound)
}

/// Sets a condition of a status. The time of the transition changes with the status of the condition.
pub(super) fn set_condition(object: &mut JsonObject, mut condition: Value, now: &str) {
    let Some(status) = edit::ensure(object, "status") else {
        return;
    };
    edit::set_unset(status, "conditions", json!([]));
    let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) else {
        return;
    };
    let existing = conditions
        .iter_mut()
        .find(|existing| existing["type"] == condition["type"]);
    if let Some(existing) = existing {
        let unchanged = existing["status"] == condition["status"];
        condition["lastTransitionTime"] = match &existing["lastTransitionTime"] {
            time if unchanged && !time.is_null() => time.clone(),
            _ => now.into(),
        };
        *existing = condition;
    } else {
        condition["lastTransitionTime"] = now.into();
        conditions.push(condition);
    }
}

/// Returns a pod with the ephemeral containers of another version of it. They can be added, and neither
/// changed nor removed.
///
/// # Errors
/// 422.
pub fn set_ephemeral_containers(
    old: &JsonObject,
    requested: &JsonObject,
) -> Result<JsonObject, RequestError> {
    let mut new = old.clone();
    let list = edit::at(requested, &["spec", "ephemeralContainers"]).cloned();
    if let Some(spec) = edit::ensure(&mut new, "spec") {
        match list {
            Some(list) => spec.insert("ephemeralContainers".to_owned(), list),
            None => spec.remove("ephemeralContainers"),
        };
    }
    defaults::default_pod(&mut new);
    if let Some(gates) = Gates::of("", "Pod") {
        gates.drop_fields(&mut new, Some(old));
    }
    let mut causes = Causes::default();
    spec::check_pod(&Field::root(&new), &mut causes);
    let (after, before) = (Field::root(&new), Field::root(old));
    let path = ["spec", "ephemeralContainers"];
    let after = after.at(&path);
    for container in before.at(&path).items() {
        let name = container.child("name").text();
        let kept = after.items().find(|kept| kept.child("name").text() == name);
        match kept {
            None => causes.forbidden(
                &after,
                &format!("existing ephemeral containers {name:?} may not be removed\n"),
            ),
            Some(kept) if !kept.equals(&container) => causes.forbidden(
                &after,
                &format!("existing ephemeral containers {name:?} may not be changed\n"),
            ),
            Some(_) => {}
        }
    }
    if causes.len() > 0 {
        return Err(invalid(old, causes));
    }
    Ok(new)
}

/// Returns a pod with the resources of another version of it. Only CPU and memory can be changed, and the
/// quality of service class stays.
///
/// # Errors
/// 422.
pub fn resize(old: &JsonObject, requested: &JsonObject) -> Result<JsonObject, RequestError> {
    let mut new = old.clone();
    let body = Field::root(requested).child("spec");
    if let Some(spec) = edit::ensure(&mut new, "spec") {
        if let Some(resources) = body.object().and_then(|body| body.get("resources")) {
            spec.insert("resources".to_owned(), resources.clone());
        }
        for list in ["containers", "initContainers"] {
            for container in edit::items_mut(spec, list) {
                let name = edit::text(container, "name").to_owned();
                let wanted = body
                    .child(list)
                    .items()
                    .find(|wanted| wanted.child("name").text() == name);
                let Some(wanted) = wanted.and_then(|wanted| wanted.object().cloned()) else {
                    continue;
                };
                edit::restore(container, &wanted, "resources");
                edit::restore(container, &wanted, "resizePolicy");
            }
        }
    }
    defaults::default_pod(&mut new);
    let mut causes = Causes::default();
    spec::check_pod(&Field::root(&new), &mut causes);
    let (after, before) = (
        Field::root(&new).child("spec"),
        Field::root(old).child("spec"),
    );
    let class = edit::text_at(old, &["status", "qosClass"]);
    if qos::class(&after) != class {
        causes.invalid_at(
            "spec",
            class,
            "Pod QOS Class may not change as a result of resizing",
        );
    }
    check_removed(&after, &before, &mut causes);
    check_only_cpu_and_memory(&after, &before, &mut causes);
    if causes.len() > 0 {
        return Err(invalid(old, causes));
    }
    Ok(new)
}

/// Checks that no request or limit of CPU or memory was removed.
fn check_removed(after: &Field<'_>, before: &Field<'_>, causes: &mut Causes) {
    let containers = before.child("containers").items();
    for (old, new) in containers.zip(after.child("containers").items()) {
        for kind in ["limits", "requests"] {
            for name in ["cpu", "memory"] {
                let kept = new.child("resources").child(kind);
                if old.child("resources").child(kind).key(name).is_set() && !kept.key(name).is_set()
                {
                    let detail = format!("resource {kind} cannot be removed");
                    causes.forbidden(&kept, &detail);
                    break;
                }
            }
        }
    }
}

fn check_only_cpu_and_memory(after: &Field<'_>, before: &Field<'_>, causes: &mut Causes) {
    let others = |spec: &Field<'_>| {
        let mut spec = spec.object().cloned().unwrap_or_default();
        for list in ["containers", "initContainers"] {
            for container in edit::items_mut(&mut spec, list) {
                let Some(resources) = edit::child_mut(container, "resources") else {
                    continue;
                };
                for kind in ["limits", "requests"] {
                    if let Some(amounts) = edit::child_mut(resources, kind) {
                        amounts.remove("cpu");
                        amounts.remove("memory");
                    }
                }
            }
        }
        spec.remove("resources");
        spec
    };
    if !update::changed_fields(&others(after), &others(before)).is_empty() {
        causes.forbidden(after, "only cpu and memory resources are mutable");
    }
}
