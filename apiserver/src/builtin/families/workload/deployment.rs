//! Deployments.

use revstore_watch_cache::registry::JsonObject;

use super::super::pod::default_template;
use super::{
    check_counts, check_not_above, check_running_template, check_selector, int_or_percent,
};
use crate::builtin::causes::Causes;
use crate::builtin::edit::{at, ensure, set_unset, set_zero, text};
use crate::builtin::field::Field;
use crate::builtin::rules::{Kind, raise_generation};

pub(super) const KIND: Kind = Kind {
    default: default_deployment,
    update: |new, old| {
        // A deployment whose annotations change has a new generation, too.
        let annotations = |object: &JsonObject| at(object, &["metadata", "annotations"]).cloned();
        if annotations(new) != annotations(old) && new.get("spec") == old.get("spec") {
            raise_generation(new, old);
        }
    },
    status_keeps_labels: true,
    validate: check_deployment,
    validate_update: |new, old, causes| {
        let path = ["spec", "selector"];
        causes.check_immutable(&new.at(&path), &old.at(&path));
    },
    validate_status: check_status,
    ..Kind::new("apps", "Deployment")
        .with_status()
        .with_generation()
};

fn default_deployment(deployment: &mut JsonObject) {
    let Some(spec) = ensure(deployment, "spec") else {
        return;
    };
    set_unset(spec, "replicas", 1);
    if let Some(strategy) = ensure(spec, "strategy") {
        set_zero(strategy, "type", "RollingUpdate");
        if text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = ensure(strategy, "rollingUpdate")
        {
            set_unset(rolling, "maxUnavailable", "25%");
            set_unset(rolling, "maxSurge", "25%");
        }
    }
    set_unset(spec, "revisionHistoryLimit", 10);
    set_unset(spec, "progressDeadlineSeconds", 600);
    default_template(spec, "template");
}

fn check_deployment(deployment: &Field<'_>, causes: &mut Causes) {
    let spec = deployment.child("spec");
    causes.check_not_negative(&spec.child("replicas"));
    if check_selector(&spec.child("selector"), "deployment", causes) {
        check_running_template(&spec, "ReplicaSet", causes);
    } else {
        causes.invalid(&spec.child("selector"), "invalid label selector");
    }
    check_strategy(&spec.child("strategy"), causes);
    for name in [
        "minReadySeconds",
        "revisionHistoryLimit",
        "progressDeadlineSeconds",
    ] {
        causes.check_not_negative(&spec.child(name));
    }
    let deadline = spec.child("progressDeadlineSeconds");
    let ready = spec.child("minReadySeconds").int().unwrap_or_default();
    causes.check_min(&deadline, ready + 1, "must be greater than minReadySeconds");
}

fn check_strategy(strategy: &Field<'_>, causes: &mut Causes) {
    let rolling = strategy.child("rollingUpdate");
    match strategy.child("type").text() {
        "Recreate" if rolling.is_set() => {
            let detail = "may not be specified when strategy `type` is 'Recreate'";
            causes.forbidden(&rolling, detail);
        }
        "Recreate" => {}
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.child("maxUnavailable"), rolling.child("maxSurge"));
            causes.check_int_or_percent(&unavailable);
            causes.check_int_or_percent(&surge);
            if int_or_percent(&unavailable) == 0 && int_or_percent(&surge) == 0 {
                causes.invalid(&unavailable, "may not be 0 when `maxSurge` is 0");
            }
            causes.check_percent_max(&unavailable);
        }
        _ => causes.not_supported(strategy, &["Recreate", "RollingUpdate"]),
    }
}

fn check_status(new: &Field<'_>, _: &Field<'_>, causes: &mut Causes) {
    let status = new.child("status");
    let names = [
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ];
    check_counts(&status, &names, causes);
    for name in ["updatedReplicas", "readyReplicas", "availableReplicas"] {
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
