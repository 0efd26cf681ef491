//! Jobs.

mod indexes;
mod policy;
mod status;

use serde_json::{Value, json};

use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::StatusCause;

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
    validate_status: status::check,
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

/// Checks that the selector and the labels of the template are those that the server generates.
fn check_generated_selector(job: &Field<'_>, causes: &mut Causes) {
    let spec = job.child("spec");
    let selector = spec.child("selector");
    if spec.child("manualSelector").flag() || !selector.is_set() {
        return;
    }
    let metadata = job.child("metadata");
    let (uid, name) = (metadata.child("uid").text(), metadata.child("name").text());
    let labels = spec.at(&["template", "metadata", "labels"]);
    let generated = [
        ("controller-uid", uid),
        ("job-name", name),
        (CONTROLLER_UID, uid),
        ("batch.kubernetes.io/job-name", name),
    ];
    for (key, value) in generated {
        let label = labels.key(key);
        let detail = format!("must be '{value}'");
        if !label.is_set() {
            causes.required(&label, &detail);
        } else if label.text() != value {
            causes.invalid_at(label.path(), labels.value(), &detail);
        }
    }
    let expected: JsonObject = generated
        .iter()
        .map(|(key, value)| ((*key).to_owned(), Value::from(*value)))
        .collect();
    if !selector::matches(&selector, &Field::root(&expected)) {
        causes.invalid(&selector, "`selector` not auto-generated");
    }
}

/// The maximum length of the name of the manager of a job.
const MANAGED_BY_BYTES_MAX: usize = 63;

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
    let manager = spec.child("managedBy");
    if manager.is_set() {
        causes.check_domain_prefixed_path(&manager);
        if manager.text().len() > MANAGED_BY_BYTES_MAX {
            let cause = StatusCause::too_long(manager.path(), MANAGED_BY_BYTES_MAX);
            causes.push(cause);
        }
    }
    let mode = spec.child("completionMode");
    causes.check_one_of(&mode, &["NonIndexed", "Indexed"]);
    let indexed = mode.text() == "Indexed";
    if indexed {
        check_indexed(spec, causes);
    } else if !mode.is_set() || mode.text() == "NonIndexed" {
        for field in [per_index, failed] {
            if field.is_set() {
                causes.invalid(&field, "requires indexed completion mode");
            }
        }
    }
    let has_failure_policy = spec.child("podFailurePolicy").is_set();
    if has_failure_policy {
        policy::check_failure_policy(spec, causes);
    }
    let success = spec.child("successPolicy");
    if success.is_set() && indexed {
        policy::check_success_policy(spec, causes);
    } else if success.is_set() {
        causes.invalid(&success, "requires indexed completion mode");
    }
    let replacements: &[&str] = if has_failure_policy {
        &["Failed"]
    } else {
        &["Failed", "TerminatingOrFailed"]
    };
    causes.check_one_of(&spec.child("podReplacementPolicy"), replacements);
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

/// The maximum number of pods that an indexed job runs at once, and of its failed indexes.
const INDEXES_MAX: i64 = 100_000;
/// The same of a job with more indexes than that and a limit of retries for each.
const RETRIED_INDEXES_MAX: i64 = 10_000;

/// Checks the numbers of an indexed job.
fn check_indexed(spec: &Field<'_>, causes: &mut Causes) {
    let (completions, parallelism) = (spec.child("completions"), spec.child("parallelism"));
    let failed = spec.child("maxFailedIndexes");
    let exceeds = |field: &Field<'_>, max: i64| field.int().is_some_and(|number| number > max);
    if !completions.is_set() {
        causes.required(&completions, "when completion mode is Indexed");
    }
    if exceeds(&parallelism, INDEXES_MAX) {
        let detail =
            format!("must be less than or equal to {INDEXES_MAX} when completion mode is Indexed");
        causes.invalid(&parallelism, &detail);
    }
    if completions.int().is_some_and(|all| exceeds(&failed, all)) {
        causes.invalid(&failed, "must be less than or equal to completions");
    }
    if exceeds(&failed, INDEXES_MAX) {
        let detail = format!("must be less than or equal to {INDEXES_MAX}");
        causes.invalid(&failed, &detail);
    }
    if !exceeds(&completions, INDEXES_MAX) || !spec.child("backoffLimitPerIndex").is_set() {
        return;
    }
    if !failed.is_set() {
        let detail = format!("must be specified when completions is above {INDEXES_MAX}");
        causes.required(&failed, &detail);
    }
    for field in [parallelism, failed] {
        if exceeds(&field, RETRIED_INDEXES_MAX) {
            let detail = format!(
                "must be less than or equal to {RETRIED_INDEXES_MAX} when completions are above \
                 {INDEXES_MAX} and used with backoff limit per index"
            );
            causes.invalid(&field, &detail);
        }
    }
}

fn check_update(job: &Field<'_>, old_job: &Field<'_>, causes: &mut Causes) {
    let (new, old) = (job.child("spec"), old_job.child("spec"));
    // An update checks the spec twice, so that each cause about it appears twice.
    check_selecting_spec(&new, causes);
    let completions = new.child("completions");
    let indexed = new.child("completionMode").text() == "Indexed";
    if !completions.equals(&old.child("completions")) {
        let parallelism = new.child("parallelism");
        if !indexed {
            causes.invalid(&completions, names::IMMUTABLE);
        } else if completions.is_set() && !completions.equals(&parallelism) {
            let detail = "can only be modified in tandem with spec.parallelism";
            causes.invalid(&completions, detail);
        }
    }
    causes.check_immutable(&new.child("selector"), &old.child("selector"));
    check_template_update(job, old_job, causes);
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

/// The fields of the pods of a suspended job that can change, because no pod runs.
const SCHEDULING: [&str; 3] = ["nodeSelector", "tolerations", "schedulingGates"];

/// Checks what changes in the template. A suspended job without running pods can get other directives of
/// scheduling, and other resources.
fn check_template_update(job: &Field<'_>, old: &Field<'_>, causes: &mut Causes) {
    let (template, previous) = (job.at(&["spec", "template"]), old.at(&["spec", "template"]));
    let suspended = old.at(&["spec", "suspend"]).flag();
    if !suspended || !is_idle(&old.child("status")) {
        causes.check_immutable(&template, &previous);
        return;
    }
    let (new_spec, old_spec) = (template.child("spec"), previous.child("spec"));
    let (Some(mut allowed), Some(old_map)) = (new_spec.object().cloned(), old_spec.object()) else {
        return;
    };
    for name in SCHEDULING {
        restore(&mut allowed, old_map, name);
    }
    restore_node_affinity(&mut allowed, old_map);
    for list in ["containers", "initContainers"] {
        let previous: Vec<Field<'_>> = old_spec.child(list).items().collect();
        if previous.len() != new_spec.child(list).len() {
            continue;
        }
        for (container, old) in items_mut(&mut allowed, list).zip(previous) {
            if let Some(old) = old.object()
                && container.get("name") == old.get("name")
            {
                restore(container, old, "resources");
            }
        }
    }
    if !values_equal(&Value::Object(allowed), &Value::Object(old_map.clone())) {
        causes.invalid(&new_spec, names::IMMUTABLE);
    }
}

/// Returns whether a suspended job has no pods: it has not started, or is known to be suspended.
fn is_idle(status: &Field<'_>) -> bool {
    let known = status::has_condition(status, "Suspended", "True");
    (!status.child("startTime").is_set() || known) && status.child("active").is_zero()
}

/// Sets the node affinity to the old one, and leaves the affinity to pods.
fn restore_node_affinity(spec: &mut JsonObject, old: &JsonObject) {
    let previous = at(old, &["affinity", "nodeAffinity"]).cloned();
    let mut affinity = child_mut(spec, "affinity").cloned().unwrap_or_default();
    match previous {
        Some(previous) => affinity.insert("nodeAffinity".to_owned(), previous),
        None => affinity.remove("nodeAffinity"),
    };
    spec.insert("affinity".to_owned(), affinity.into());
}
