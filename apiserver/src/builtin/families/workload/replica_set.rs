//! Replica sets, and their predecessors: replication controllers.

use serde_json::Value;

use revstore_watch_cache::registry::JsonObject;

use super::super::pod::{Owner, check_template, default_template};
use super::{
    check_counts, check_not_above, check_running_template, check_selected, check_selector,
};
use crate::builtin::causes::Causes;
use crate::builtin::edit::{at, ensure, set_unset};
use crate::builtin::field::Field;
use crate::builtin::rules::Kind;
use crate::builtin::selector;

pub(super) const REPLICA_SET: Kind = Kind {
    default: |set| {
        if let Some(spec) = ensure(set, "spec") {
            set_unset(spec, "replicas", 1);
            default_template(spec, "template");
        }
    },
    validate: check_replica_set,
    validate_update: |new, old, causes| {
        let path = ["spec", "selector"];
        causes.check_immutable(&new.at(&path), &old.at(&path));
    },
    validate_status: check_status,
    ..Kind::new("apps", "ReplicaSet")
        .with_status()
        .with_generation()
};

pub(super) const REPLICATION_CONTROLLER: Kind = Kind {
    default: default_controller,
    validate: check_controller,
    validate_status: check_status,
    ..Kind::new("", "ReplicationController")
        .with_status()
        .with_generation()
};

fn check_replica_set(set: &Field<'_>, causes: &mut Causes) {
    let spec = set.child("spec");
    causes.check_not_negative(&spec.child("replicas"));
    causes.check_not_negative(&spec.child("minReadySeconds"));
    // The text names deployments here, too.
    if check_selector(&spec.child("selector"), "deployment", causes) {
        check_running_template(&spec, "ReplicaSet", causes);
    } else {
        causes.invalid(&spec.child("selector"), "invalid label selector");
    }
}

fn default_controller(controller: &mut JsonObject) {
    let labels = at(controller, &["spec", "template", "metadata", "labels"]).cloned();
    let Some(spec) = ensure(controller, "spec") else {
        return;
    };
    set_unset(spec, "replicas", 1);
    if let Some(Value::Object(labels)) = labels.filter(|labels| labels != &serde_json::json!({})) {
        crate::builtin::edit::set_zero(spec, "selector", labels.clone());
        if let Some(metadata) = ensure(controller, "metadata") {
            crate::builtin::edit::set_zero(metadata, "labels", labels);
        }
    }
    if let Some(spec) = ensure(controller, "spec")
        && spec.get("template").is_some_and(Value::is_object)
    {
        default_template(spec, "template");
    }
}

fn check_controller(controller: &Field<'_>, causes: &mut Causes) {
    let spec = controller.child("spec");
    causes.check_not_negative(&spec.child("minReadySeconds"));
    let selector = spec.child("selector");
    causes.check_required(&selector);
    causes.check_not_negative(&spec.child("replicas"));
    let template = spec.child("template");
    if !template.is_set() {
        causes.required(&template, "");
        return;
    }
    let labels = template.at(&["metadata", "labels"]);
    check_selected(&template, selector::matches_map(&selector, &labels), causes);
    check_template(&template, Owner::Running("ReplicationController"), causes);
}

fn check_status(new: &Field<'_>, _: &Field<'_>, causes: &mut Causes) {
    let status = new.child("status");
    let names = [
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
        "terminatingReplicas",
    ];
    check_counts(&status, &names, causes);
    for name in ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
        let detail = "cannot be greater than status.replicas";
        check_not_above(&status, name, "replicas", detail, causes);
    }
    let detail = "cannot be greater than readyReplicas";
    check_not_above(
        &status,
        "availableReplicas",
        "readyReplicas",
        detail,
        causes,
    );
}
