//! Stateful sets.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use revstore_watch_cache::registry::JsonObject;

use super::super::pod::{Owner, check_template, default_template};
use super::super::storage;
use super::{check_counts, check_not_above, check_selected, check_selector, selects};
use crate::builtin::causes::Causes;
use crate::builtin::edit::{at, child_mut, ensure, items_mut, restore, set_unset, set_zero, text};
use crate::builtin::field::{Field, values_equal};
use crate::builtin::names;
use crate::builtin::rules::Kind;

pub(super) const KIND: Kind = Kind {
    name_error: names::dns_label_error,
    default: default_set,
    validate: check_set,
    validate_update: check_update,
    validate_status: check_status,
    ..Kind::new("apps", "StatefulSet")
        .with_status()
        .with_generation()
};

/// The fields that updates may change.
const MUTABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

fn default_set(set: &mut JsonObject) {
    let Some(spec) = ensure(set, "spec") else {
        return;
    };
    set_zero(spec, "podManagementPolicy", "OrderedReady");
    if let Some(strategy) = ensure(spec, "updateStrategy") {
        if text(strategy, "type").is_empty() {
            strategy.insert("type".to_owned(), "RollingUpdate".into());
            set_unset(strategy, "rollingUpdate", json!({}));
        }
        if text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = child_mut(strategy, "rollingUpdate")
        {
            set_unset(rolling, "partition", 0);
        }
    }
    if let Some(policy) = ensure(spec, "persistentVolumeClaimRetentionPolicy") {
        set_zero(policy, "whenDeleted", "Retain");
        set_zero(policy, "whenScaled", "Retain");
    }
    set_unset(spec, "replicas", 1);
    set_unset(spec, "revisionHistoryLimit", 10);
    default_template(spec, "template");
    for claim in items_mut(spec, "volumeClaimTemplates") {
        claim.insert("apiVersion".to_owned(), "v1".into());
        claim.insert("kind".to_owned(), "PersistentVolumeClaim".into());
        storage::default_claim(claim);
    }
}

fn check_set(set: &Field<'_>, causes: &mut Causes) {
    let spec = set.child("spec");
    let policy = spec.child("podManagementPolicy");
    if causes.check_required(&policy) && !["OrderedReady", "Parallel"].contains(&policy.text()) {
        causes.invalid(&policy, "must be 'OrderedReady' or 'Parallel'");
    }
    check_strategy(&spec.child("updateStrategy"), causes);
    let retention = spec.child("persistentVolumeClaimRetentionPolicy");
    for name in ["whenDeleted", "whenScaled"] {
        causes.check_one_of(&retention.child(name), &["Retain", "Delete"]);
    }
    for claim in spec.child("volumeClaimTemplates").items() {
        let name = claim.at(&["metadata", "name"]);
        causes.check_text(&name, names::subdomain_error);
        storage::check_claim_spec(&claim.child("spec"), causes);
    }
    causes.check_not_negative(&spec.child("replicas"));
    causes.check_not_negative(&spec.child("minReadySeconds"));
    let start = spec.at(&["ordinals", "start"]);
    causes.check_not_negative(&start);
    causes.check_text(&spec.child("serviceName"), names::dns_label_error);
    let labels = spec.child("selector");
    check_selector(&labels, "statefulset", causes);
    let template = spec.child("template");
    let matches = selects(&labels, &template.at(&["metadata", "labels"]));
    check_selected(&template, matches, causes);
    match with_claims(&spec) {
        // The pods have the volumes of the claims.
        Some(with_claims) => {
            let root = Field::root(&with_claims).at(&["spec", "template"]);
            check_template(&root, Owner::Running("StatefulSet"), causes);
        }
        None => check_template(&template, Owner::Running("StatefulSet"), causes),
    }
}

fn check_strategy(strategy: &Field<'_>, causes: &mut Causes) {
    let rolling = strategy.child("rollingUpdate");
    match strategy.child("type").text() {
        "" => causes.required(strategy, ""),
        "OnDelete" if rolling.is_set() => {
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            causes.invalid(&rolling, detail);
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            causes.check_not_negative(&rolling.child("partition"));
            // `maxUnavailable` belongs to a feature that is off.
        }
        _ => causes.invalid(strategy, "must be 'RollingUpdate' or 'OnDelete'"),
    }
}

/// Returns the set with the volumes of its claims in the template, or `None` if there are no claims.
fn with_claims(spec: &Field<'_>) -> Option<JsonObject> {
    let claims: BTreeSet<String> = spec
        .child("volumeClaimTemplates")
        .items()
        .map(|claim| claim.at(&["metadata", "name"]).text().to_owned())
        .collect();
    if claims.is_empty() {
        return None;
    }
    let mut set = JsonObject::new();
    set.insert("spec".to_owned(), spec.value());
    let template = child_mut(child_mut(&mut set, "spec")?, "template")?;
    let pod = ensure(template, "spec")?;
    let mut volumes: Vec<Value> = claims
        .iter()
        .map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}))
        .collect();
    if let Some(Value::Array(own)) = at(pod, &["volumes"]) {
        let added = own.iter().filter(|volume| {
            let name = volume.get("name").and_then(Value::as_str);
            !name.is_some_and(|name| claims.contains(name))
        });
        volumes.extend(added.cloned());
    }
    pod.insert("volumes".to_owned(), Value::Array(volumes));
    // The controller sets the names of the hosts.
    pod.remove("subdomain");
    pod.remove("hostname");
    Some(set)
}

fn check_update(new: &Field<'_>, old: &Field<'_>, causes: &mut Causes) {
    let (new, old) = (new.child("spec"), old.child("spec"));
    let (Some(mut rest), Some(old)) = (new.object().cloned(), old.object()) else {
        return;
    };
    for name in MUTABLE {
        restore(&mut rest, old, name);
    }
    if !values_equal(&Value::Object(rest), &Value::Object(old.clone())) {
        causes.forbidden(
            &new,
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
             'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
             'minReadySeconds' are forbidden",
        );
    }
}

fn check_status(new: &Field<'_>, _: &Field<'_>, causes: &mut Causes) {
    let status = new.child("status");
    let names = [
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
        "observedGeneration",
        "collisionCount",
    ];
    check_counts(&status, &names, causes);
    for name in [
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
    ] {
        let detail = "cannot be greater than status.replicas";
        check_not_above(&status, name, "replicas", detail, causes);
    }
    let detail = "cannot be greater than status.readyReplicas";
    check_not_above(
        &status,
        "availableReplicas",
        "readyReplicas",
        detail,
        causes,
    );
}
