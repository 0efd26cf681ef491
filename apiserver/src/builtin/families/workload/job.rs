//! Jobs.

use serde_json::{Value, json};

use revstore_watch_cache::registry::JsonObject;

use super::super::pod::{Owner, check_template, default_template};
use super::check_selected;
use crate::builtin::causes::Causes;
use crate::builtin::edit::{
    at, child_mut, ensure, items_mut, restore, set_unset, set_zero, text_at,
};
use crate::builtin::field::{Field, values_equal};
use crate::builtin::names;
use crate::builtin::rules::Kind;
use crate::builtin::selector;

/// The label by which a job selects its pods.
const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";

pub(super) const KIND: Kind = Kind {
    default: default_job,
    create: |job, _| generate_selector(job),
    validate: check_job,
    validate_update: check_update,
    validate_status: |new, _, causes| {
        let status = new.child("status");
        for name in ["active", "succeeded", "failed", "ready", "terminating"] {
            causes.check_not_negative(&status.child(name));
        }
    },
    ..Kind::new("batch", "Job").with_status().with_generation()
};

fn default_job(job: &mut JsonObject) {
    let labels = at(job, &["spec", "template", "metadata", "labels"]).cloned();
    let Some(spec) = ensure(job, "spec") else {
        return;
    };
    default_spec(spec);
    let has_failure_policy = at(spec, &["podFailurePolicy"]).is_some();
    set_unset(spec, "completionMode", "NonIndexed");
    set_unset(spec, "suspend", false);
    let replacement = if has_failure_policy {
        "Failed"
    } else {
        "TerminatingOrFailed"
    };
    set_unset(spec, "podReplacementPolicy", replacement);
    set_unset(spec, "manualSelector", false);
    default_template(spec, "template");
    if let Some(labels) = labels
        && labels.as_object().is_some_and(|labels| !labels.is_empty())
        && let Some(metadata) = ensure(job, "metadata")
    {
        set_zero(metadata, "labels", labels);
    }
}

fn default_spec(spec: &mut JsonObject) {
    if at(spec, &["completions"]).is_none() && at(spec, &["parallelism"]).is_none() {
        spec.insert("completions".to_owned(), json!(1));
    }
    set_unset(spec, "parallelism", 1);
    let limit = if at(spec, &["backoffLimitPerIndex"]).is_some() {
        i32::MAX
    } else {
        6
    };
    set_unset(spec, "backoffLimit", limit);
    default_failure_policy(spec);
}

/// Sets the defaults of the rules about failed pods.
pub(super) fn default_failure_policy(spec: &mut JsonObject) {
    if let Some(policy) = child_mut(spec, "podFailurePolicy") {
        for rule in items_mut(policy, "rules") {
            for condition in items_mut(rule, "onPodConditions") {
                set_zero(condition, "status", "True");
            }
        }
    }
}

/// Makes the job select the pods that carry its uid, unless the client sets the selector.
fn generate_selector(job: &mut JsonObject) {
    let (name, uid) = (
        text_at(job, &["metadata", "name"]).to_owned(),
        text_at(job, &["metadata", "uid"]).to_owned(),
    );
    let Some(spec) = child_mut(job, "spec") else {
        return;
    };
    if spec.get("manualSelector") == Some(&Value::Bool(true)) {
        return;
    }
    let labels = ensure(spec, "template")
        .and_then(|template| ensure(template, "metadata"))
        .and_then(|metadata| ensure(metadata, "labels"));
    if let Some(labels) = labels {
        set_unset(labels, "job-name", name.as_str());
        set_unset(labels, "batch.kubernetes.io/job-name", name.as_str());
        set_unset(labels, "controller-uid", uid.as_str());
        set_unset(labels, CONTROLLER_UID, uid.as_str());
    }
    let matched = ensure(spec, "selector").and_then(|selector| ensure(selector, "matchLabels"));
    if let Some(matched) = matched {
        set_unset(matched, CONTROLLER_UID, uid.as_str());
    }
}

fn check_job(job: &Field<'_>, causes: &mut Causes) {
    check_generated_selector(job, causes);
    let spec = job.child("spec");
    check_selecting_spec(&spec, causes);
    let completions = spec.child("completions").int().unwrap_or_default();
    if spec.child("completionMode").text() == "Indexed" && completions > 0 {
        let name = job.at(&["metadata", "name"]);
        let host = format!("{}-{}", name.text(), completions - 1);
        if names::dns_label_error(&host).is_some() {
            let detail = format!("will not able to create pod with invalid DNS label: {host}");
            causes.invalid(&name, &detail);
        }
    }
}

/// Checks the spec of a job, and its selector.
fn check_selecting_spec(spec: &Field<'_>, causes: &mut Causes) {
    check_spec(spec, causes);
    let labels = spec.child("selector");
    if labels.is_set() {
        causes.check_selector(&labels);
    } else {
        causes.required(&labels, "");
    }
    let template = spec.child("template");
    let matches = selector::matches(&labels, &template.at(&["metadata", "labels"]));
    check_selected(&template, matches, causes);
}

fn check_generated_selector(job: &Field<'_>, causes: &mut Causes) {
    let spec = job.child("spec");
    if spec.child("manualSelector").flag() {
        return;
    }
    let uid = job.at(&["metadata", "uid"]).text();
    let labels = spec.at(&["template", "metadata", "labels"]);
    for key in ["controller-uid", CONTROLLER_UID] {
        let label = labels.key(key);
        if !label.is_set() {
            let detail = format!("must be '{uid}'");
            causes.required(&label, &detail);
        } else if label.text() != uid {
            let detail = format!("must be '{uid}'");
            causes.invalid_at(labels.path(), labels.value(), &detail);
        }
    }
}

/// Checks the spec of a job, or of the jobs of a cron job.
pub(super) fn check_spec(spec: &Field<'_>, causes: &mut Causes) {
    for name in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        causes.check_not_negative(&spec.child(name));
    }
    let (per_index, failed) = (
        spec.child("backoffLimitPerIndex"),
        spec.child("maxFailedIndexes"),
    );
    if failed.is_set() && !per_index.is_set() {
        causes.required(&per_index, "when maxFailedIndexes is specified");
    }
    let mode = spec.child("completionMode");
    causes.check_one_of(&mode, &["NonIndexed", "Indexed"]);
    if mode.text() == "Indexed" {
        if !spec.child("completions").is_set() {
            let detail = "when completion mode is Indexed";
            causes.required(&spec.child("completions"), detail);
        }
    } else {
        for field in [per_index, failed, spec.child("successPolicy")] {
            if field.is_set() {
                causes.invalid(&field, "requires indexed completion mode");
            }
        }
    }
    causes.check_one_of(
        &spec.child("podReplacementPolicy"),
        &["Failed", "TerminatingOrFailed"],
    );
    let template = spec.child("template");
    check_template(&template, Owner::Any, causes);
    let policy = template.at(&["spec", "restartPolicy"]);
    match policy.text() {
        "" | "Always" => {
            causes.required(&policy, "valid values: \"OnFailure\", \"Never\"");
        }
        "OnFailure" if spec.child("podFailurePolicy").is_set() => {
            let detail = "only \"Never\" is supported when podFailurePolicy is specified";
            causes.invalid(&policy, detail);
        }
        "OnFailure" | "Never" => {}
        _ => causes.not_supported(&policy, &["OnFailure", "Never"]),
    }
}

fn check_update(new: &Field<'_>, old: &Field<'_>, causes: &mut Causes) {
    let (new, old) = (new.child("spec"), old.child("spec"));
    // An update checks the spec twice, so that each cause about it appears twice.
    check_selecting_spec(&new, causes);
    let completions = new.child("completions");
    let indexed = new.child("completionMode").text() == "Indexed";
    if !completions.equals(&old.child("completions")) {
        let parallelism = new.child("parallelism");
        if !indexed || !completions.is_set() || !old.child("completions").is_set() {
            causes.invalid(&completions, names::IMMUTABLE);
        } else if !completions.equals(&parallelism) {
            let detail = "can only be modified in tandem with spec.parallelism";
            causes.invalid(&completions, detail);
        }
    }
    causes.check_immutable(&new.child("selector"), &old.child("selector"));
    check_template_update(&new, &old, causes);
    for name in [
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        causes.check_immutable(&new.child(name), &old.child(name));
    }
}

/// The fields of the pods of a suspended job that can change, because none has been scheduled.
const SCHEDULING: [&str; 4] = ["nodeSelector", "tolerations", "schedulingGates", "affinity"];

fn check_template_update(new: &Field<'_>, old: &Field<'_>, causes: &mut Causes) {
    let template = new.child("template");
    let mut allowed = template.object().cloned().unwrap_or_default();
    let suspended = old.child("suspend").flag();
    if let (true, Some(old)) = (suspended, old.child("template").object()) {
        if let (Some(spec), Some(old)) = (
            child_mut(&mut allowed, "spec"),
            old.get("spec").and_then(Value::as_object),
        ) {
            for name in SCHEDULING {
                restore(spec, old, name);
            }
        }
        if let (Some(metadata), Some(old)) = (
            ensure(&mut allowed, "metadata"),
            old.get("metadata").and_then(Value::as_object),
        ) {
            restore(metadata, old, "annotations");
            restore(metadata, old, "labels");
        }
    }
    if !values_equal(&Value::Object(allowed), &old.child("template").value()) {
        causes.invalid(&template, names::IMMUTABLE);
    }
}
