//! Pods and pod templates.

mod annotations;
mod app_armor;
mod defaults;
mod eviction;
mod label_keys;
mod observed;
mod qos;
mod restart;
mod spec;
mod status;
mod subresource;
mod update;

use serde_json::{Value, json};

use revstore_watch_cache::registry::JsonObject;

use crate::builtin::causes::Causes;
use crate::builtin::edit;
use crate::builtin::field::Field;
use crate::builtin::rules::Kind;

pub(in crate::builtin) use annotations::{SECCOMP_CONTAINER, SECCOMP_POD};
pub(in crate::builtin) use app_armor::old_profile;
pub(super) use defaults::{default_source, default_template};
pub use eviction::{
    EvictionCase, budget_of, count_eviction, counts_eviction, mark_evicted, unprocessed_budget,
};
pub(crate) use qos::class as qos_class;
pub(in crate::builtin) use spec::all_containers;
pub(super) use spec::{
    EFFECTS, Owner, PROTOCOLS, check_container_resource, check_csi_driver_name,
    check_node_selector, check_node_term, check_overhead, check_resource_name, check_template,
    check_tolerations, check_volume_source,
};
pub use subresource::{bind, binding_conditions, check_binding, resize, set_ephemeral_containers};

pub(super) const KINDS: &[Kind] = &[
    Kind {
        default: defaults::default_pod,
        create,
        update_status,
        validate: spec::check_pod,
        validate_create: spec::check_new_pod,
        validate_update: update::check_update,
        validate_status: status::check,
        ..Kind::new("", "Pod").with_status().with_generation()
    },
    Kind {
        default: |template| defaults::default_template(template, "template"),
        validate: |template, causes| {
            check_template(&template.child("template"), Owner::Any, causes);
        },
        ..Kind::new("", "PodTemplate").with_generation()
    },
];

/// Returns the grace period of the deletion of a pod. One that no node runs, or that has ended, is deleted
/// at once.
// WC-448.
pub(in crate::builtin) fn grace_period_seconds(pod: &JsonObject, requested: Option<i64>) -> i64 {
    let own = || edit::at(pod, &["spec", "terminationGracePeriodSeconds"]).and_then(Value::as_i64);
    let seconds = requested.or_else(own).unwrap_or_default();
    let phase = edit::text_at(pod, &["status", "phase"]);
    if edit::text_at(pod, &["spec", "nodeName"]).is_empty()
        || ["Failed", "Succeeded"].contains(&phase)
    {
        0
    } else if seconds < 0 {
        1
    } else {
        seconds
    }
}

/// Sets the first status, and completes selectors.
fn create(pod: &mut JsonObject, now: &str) {
    label_keys::add_requirements(pod);
    app_armor::copy_to_fields(pod);
    let spec = Field::root(pod).child("spec");
    let mut status = json!({"phase": "Pending", "qosClass": qos::class(&spec)});
    if spec.child("schedulingGates").len() > 0 {
        status["conditions"] = json!([{
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null,
            "lastTransitionTime": now,
        }]);
    }
    pod.insert("status".to_owned(), status);
}

fn update_status(new: &mut JsonObject, old: &JsonObject, _: &str) {
    let owners = edit::at(old, &["metadata", "ownerReferences"]).cloned();
    if let Some(metadata) = edit::ensure(new, "metadata") {
        match owners {
            Some(owners) => metadata.insert("ownerReferences".to_owned(), owners),
            None => metadata.remove("ownerReferences"),
        };
    }
    let class = edit::at(old, &["status", "qosClass"]).cloned();
    let Some(status) = edit::ensure(new, "status") else {
        return;
    };
    edit::set_zero(status, "qosClass", class.unwrap_or_default());
    observed::keep_generations(status, old);
    agree_ips(status, "podIP", "podIPs");
}

/// Makes the list of addresses begin with the single address, which rules.
fn agree_ips(status: &mut JsonObject, single: &str, list: &str) {
    let one = edit::text(status, single).to_owned();
    let first = Field::root(status).child(list).items().next();
    let first = first.map(|first| first.child("ip").text().to_owned());
    match first {
        Some(first) if one.is_empty() => {
            status.insert(single.to_owned(), first.into());
        }
        Some(first) if first == one => {}
        _ if one.is_empty() => {}
        _ => {
            status.insert(list.to_owned(), json!([{"ip": one}]));
        }
    }
}

/// Checks the names of finalizers: those without a domain must be known.
pub(in crate::builtin) fn check_finalizers(object: &Field<'_>, causes: &mut Causes) {
    for finalizer in object.at(&["metadata", "finalizers"]).items() {
        let name = finalizer.text();
        if !name.contains('/') && !["kubernetes", "orphan", "foregroundDeletion"].contains(&name) {
            causes.invalid(
                &finalizer,
                "name is neither a standard finalizer name nor is it fully qualified",
            );
        }
    }
}
