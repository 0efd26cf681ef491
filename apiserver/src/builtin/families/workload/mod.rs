//! Workloads: deployments, replica sets, stateful sets, daemon sets, replication controllers, jobs.

mod cron_job;
mod daemon_set;
mod deployment;
mod job;
mod replica_set;
mod schedule;
mod stateful_set;

use super::pod::{Owner, check_template};
use crate::builtin::causes::Causes;
use crate::builtin::field::Field;
use crate::builtin::rules::Kind;
use crate::builtin::selector;

pub(super) const KINDS: &[Kind] = &[
    deployment::KIND,
    replica_set::REPLICA_SET,
    replica_set::REPLICATION_CONTROLLER,
    stateful_set::KIND,
    daemon_set::KIND,
    job::KIND,
    cron_job::KIND,
    Kind {
        name_error: crate::builtin::names::subdomain_error,
        validate: |revision, causes| causes.check_not_negative(&revision.child("revision")),
        validate_create: |revision, causes| {
            let data = revision.child("data");
            if !data.is_set() {
                causes.required(&data, "data is mandatory");
            } else if data.object().is_none() {
                causes.required(&data, "data must be a valid JSON object");
            }
        },
        validate_update: |new, old, causes| {
            causes.check_immutable(&new.child("data"), &old.child("data"));
        },
        ..Kind::new("apps", "ControllerRevision")
    },
];

/// Checks a label selector that must have requirements. `owner` is the kind in the text.
/// Returns whether it can be used.
fn check_selector(selector: &Field<'_>, owner: &str, causes: &mut Causes) -> bool {
    if !selector.is_set() {
        causes.required(selector, "");
        return true;
    }
    let before = causes.len();
    causes.check_selector(selector);
    let usable = causes.len() == before;
    check_not_empty(selector, owner, causes);
    usable
}

fn check_not_empty(selector: &Field<'_>, owner: &str, causes: &mut Causes) {
    if selector.is_set()
        && selector.child("matchLabels").len() + selector.child("matchExpressions").len() == 0
    {
        let detail = format!("empty selector is invalid for {owner}");
        causes.invalid(selector, &detail);
    }
}

/// Checks that the pods of a template are those that the selector selects.
fn check_selected(template: &Field<'_>, matches: bool, causes: &mut Causes) {
    if !matches {
        let labels = template.at(&["metadata", "labels"]);
        let detail = "`selector` does not match template `labels`";
        causes.invalid(&labels, detail);
    }
}

/// Returns whether a selector has no requirements, or labels match it. An absent one matches nothing.
fn selects(selector: &Field<'_>, labels: &Field<'_>) -> bool {
    let requirements =
        selector.child("matchLabels").len() + selector.child("matchExpressions").len();
    selector.is_set() && requirements == 0 || selector::matches(selector, labels)
}

/// Checks the template of pods that always run, and that the selector selects them.
fn check_running_template(spec: &Field<'_>, owner: &'static str, causes: &mut Causes) {
    let (selector, template) = (spec.child("selector"), spec.child("template"));
    let labels = template.at(&["metadata", "labels"]);
    let matches = selects(&selector, &labels);
    check_selected(&template, matches, causes);
    check_template(&template, Owner::Running(owner), causes);
}

/// Checks that numbers of a status are not negative.
fn check_counts(status: &Field<'_>, names: &[&'static str], causes: &mut Causes) {
    for name in names {
        causes.check_not_negative(&status.child(name));
    }
}

/// Checks that a number of a status is not above another one.
fn check_not_above(
    status: &Field<'_>,
    name: &'static str,
    limit: &'static str,
    detail: &str,
    causes: &mut Causes,
) {
    let number = |name: &'static str| status.child(name).int().unwrap_or_default();
    if number(name) > number(limit) {
        causes.invalid(&status.child(name), detail);
    }
}

/// Returns the number of a value that may be a number or a percentage.
fn int_or_percent(value: &Field<'_>) -> i64 {
    let percent = value.text().strip_suffix('%');
    value
        .int()
        .or_else(|| percent?.parse().ok())
        .unwrap_or_default()
}
