//! What updates of pods may change.

use serde_json::{Value, json};

use revstore_watch_cache::registry::JsonObject;

use super::annotations;
use crate::builtin::causes::Causes;
use crate::builtin::edit;
use crate::builtin::field::{Field, values_equal};

/// Checks a new version of a pod as the successor of an old one.
pub(super) fn check_update(pod: &Field<'_>, old_pod: &Field<'_>, causes: &mut Causes) {
    let (new, old) = (pod.child("spec"), old_pod.child("spec"));
    let path = ["metadata", "annotations"];
    annotations::check_update(&pod.at(&path), &old_pod.at(&path), &new, causes);
    for list in ["containers", "initContainers"] {
        let containers = new.child(list);
        if containers.len() != old.child(list).len() {
            causes.forbidden(&containers, "pod updates may not add or remove containers");
            return;
        }
        for container in containers.items() {
            causes.check_required(&container.child("image"));
            super::spec::check_image_spaces(&container, causes);
        }
    }
    if !check_deadline(&new, &old, causes) {
        return;
    }
    check_tolerations(&new.child("tolerations"), &old.child("tolerations"), causes);
    check_gates(
        &new.child("schedulingGates"),
        &old.child("schedulingGates"),
        causes,
    );
    check_rest(&new, &old, causes);
}

fn check_deadline(new: &Field<'_>, old: &Field<'_>, causes: &mut Causes) -> bool {
    let field = new.child("activeDeadlineSeconds");
    match (field.int(), old.child("activeDeadlineSeconds").int()) {
        (None, Some(_)) => {
            causes.invalid(
                &field,
                "must not update from a positive integer to nil value",
            );
        }
        (Some(new), Some(old)) if new > old => {
            causes.invalid(&field, "must be less than or equal to previous value");
            return false;
        }
        _ => {}
    }
    true
}

fn check_tolerations(new: &Field<'_>, old: &Field<'_>, causes: &mut Causes) {
    let without_seconds = |toleration: &Field<'_>| {
        let mut toleration = toleration.object().cloned().unwrap_or_default();
        toleration.remove("tolerationSeconds");
        Value::Object(toleration)
    };
    let kept = old.items().all(|old| {
        let old = without_seconds(&old);
        let mut new = new.items();
        new.any(|new| values_equal(&without_seconds(&new), &old))
    });
    if !kept {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        causes.forbidden(new, detail);
    }
}

fn check_gates(new: &Field<'_>, old: &Field<'_>, causes: &mut Causes) {
    for gate in new.items() {
        let name = gate.child("name");
        if !old
            .items()
            .any(|old| old.child("name").text() == name.text())
        {
            let detail = format!(
                "only deletion is allowed, but found new scheduling gate '{}'",
                name.text()
            );
            causes.forbidden(&name, &detail);
        }
    }
}

/// Checks that nothing else has changed.
fn check_rest(new: &Field<'_>, old: &Field<'_>, causes: &mut Causes) {
    let (Some(new_spec), Some(old_spec)) = (new.object(), old.object()) else {
        return;
    };
    let mut rest = new_spec.clone();
    for list in ["containers", "initContainers"] {
        let images: Vec<Value> = old
            .child(list)
            .items()
            .map(|container| container.child("image").value())
            .collect();
        for (container, image) in edit::items_mut(&mut rest, list).zip(images) {
            container.insert("image".to_owned(), image);
        }
    }
    for name in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        edit::restore(&mut rest, old_spec, name);
    }
    let grace = "terminationGracePeriodSeconds";
    if old.child(grace).int().is_some_and(|seconds| seconds < 0)
        && rest.get(grace) == Some(&json!(1))
    {
        edit::restore(&mut rest, old_spec, grace);
    }
    if old.child("schedulingGates").len() > 0 {
        relax_gated(&mut rest, new, old, causes);
    }
    let changed = changed_fields(&rest, old_spec);
    if !changed.is_empty() {
        let detail = format!(
            "pod updates may not change fields other than `spec.containers[*].image`,\
             `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only \
             additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be \
             set to 1 if it was previously negative)\nchanged: {}",
            changed.join(", ")
        );
        causes.forbidden(new, &detail);
    }
}

/// Lets a pod that is not scheduled yet get a narrower node selector and node affinity.
fn relax_gated(rest: &mut JsonObject, new: &Field<'_>, old: &Field<'_>, causes: &mut Causes) {
    let (selector, previous) = (new.child("nodeSelector"), old.child("nodeSelector"));
    for (key, value) in previous.entries() {
        if selector.key(key).text() != value.text() {
            let detail =
                "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
            causes.invalid(&selector, detail);
            break;
        }
    }
    let path = ["affinity", "nodeAffinity"];
    check_node_affinity(&new.at(&path), &old.at(&path), causes);
    if let Some(old_spec) = old.object() {
        edit::restore(rest, old_spec, "nodeSelector");
        let affinity = edit::at(old_spec, &path).cloned();
        let mut others = edit::child_mut(rest, "affinity")
            .cloned()
            .unwrap_or_default();
        match affinity {
            Some(affinity) => others.insert("nodeAffinity".to_owned(), affinity),
            None => others.remove("nodeAffinity"),
        };
        rest.insert("affinity".to_owned(), Value::Object(others));
    }
}

/// Checks that the terms of a node affinity stay, and that each gets only further requirements.
fn check_node_affinity(new: &Field<'_>, old: &Field<'_>, causes: &mut Causes) {
    let path = [
        "requiredDuringSchedulingIgnoredDuringExecution",
        "nodeSelectorTerms",
    ];
    let (terms, previous) = (new.at(&path), old.at(&path));
    if previous.len() > 0 && terms.len() != previous.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        causes.invalid(&terms, detail);
        return;
    }
    for (term, old) in terms.items().zip(previous.items()) {
        let lists = ["matchExpressions", "matchFields"];
        let extends = lists.iter().all(|list| {
            let (list, old) = (term.child(list), old.child(list));
            let kept = list
                .items()
                .zip(old.items())
                .all(|(requirement, old)| requirement.equals(&old));
            list.len() >= old.len() && kept
        });
        let count = |term: &Field<'_>| {
            lists
                .iter()
                .map(|list| term.child(list).len())
                .sum::<usize>()
        };
        // A term without requirements matches nothing, and would match more with some.
        if !extends || count(&old) == 0 && count(&term) > 0 {
            causes.invalid(
                &term,
                "only additions are allowed (no mutations or deletions)",
            );
        }
    }
}

/// Returns the names of the members in which two objects differ.
pub(super) fn changed_fields(new: &JsonObject, old: &JsonObject) -> Vec<String> {
    let mut names: Vec<&String> = new.keys().chain(old.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let null = Value::Null;
    names
        .into_iter()
        .filter(|name| {
            let of = |object: &JsonObject| object.get(*name).unwrap_or(&null).clone();
            !values_equal(&of(new), &of(old))
        })
        .map(|name| format!("spec.{name}"))
        .collect()
}
