//! Warnings about objects that make pods.

use super::pod::check_template;
use super::storage::check_claim;
use super::{Change, Warnings};
use crate::builtin::field::Field;
use crate::builtin::names;

/// The numbers of completions and of pods at a time above which a job cannot keep all failed indexes.
const COMPLETIONS_TRACKED_MAX: i64 = 100_000;
const PARALLELISM_TRACKED_MAX: i64 = 10_000;

/// Deployments and replica sets.
pub(super) fn deployment(change: &Change<'_>, warnings: &mut Warnings) {
    check_new_name(change, warnings);
    if change.changes("spec") {
        check_template(&change.new.at(&["spec", "template"]), warnings);
    }
}

pub(super) fn replication_controller(change: &Change<'_>, warnings: &mut Warnings) {
    check_new_name(change, warnings);
    if change.changes("spec") {
        // An update is warned of what was in the old version, as by kube-apiserver.
        let object = change.old.unwrap_or(change.new);
        check_template(&object.at(&["spec", "template"]), warnings);
    }
}

pub(super) fn pod_template(change: &Change<'_>, warnings: &mut Warnings) {
    if change.changes("template") {
        check_template(&change.new.child("template"), warnings);
    }
}

pub(super) fn daemon_set(change: &Change<'_>, warnings: &mut Warnings) {
    let new = change.new.at(&["spec", "template"]);
    let old = change.old.map(|old| old.at(&["spec", "template"]));
    if old.is_none_or(|old| !old.equals(&new)) {
        check_template(&new, warnings);
    }
}

pub(super) fn stateful_set(change: &Change<'_>, warnings: &mut Warnings) {
    let spec = change.new.child("spec");
    if change.changes("spec") {
        check_template(&spec.child("template"), warnings);
    }
    for claim in spec.child("volumeClaimTemplates").items() {
        // The paths that kube-apiserver writes.
        let place = if change.is_new() {
            claim
        } else {
            claim.named("Spec")
        };
        check_claim(&claim.child("spec").placed(&place), warnings);
    }
    let limit = spec.child("revisionHistoryLimit");
    if limit.int().is_some_and(|limit| limit < 0) {
        warnings.at(
            &limit,
            "a negative value retains all historical revisions; a value >= 0 is recommended",
        );
    }
}

pub(super) fn job(change: &Change<'_>, warnings: &mut Warnings) {
    check_new_name(change, warnings);
    if change.changes("spec") {
        check_job(&change.new.child("spec"), warnings);
    }
}

pub(super) fn cron_job(change: &Change<'_>, warnings: &mut Warnings) {
    check_new_name(change, warnings);
    let spec = change.new.child("spec");
    if change.changes("spec") {
        check_job(&spec.at(&["jobTemplate", "spec"]), warnings);
    }
    if !change.is_new() && spec.child("schedule").text().contains("TZ") {
        warnings.add(
            "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see \
             https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details",
        );
    }
}

fn check_job(spec: &Field<'_>, warnings: &mut Warnings) {
    let number = |name| spec.child(name).int().unwrap_or_default();
    if spec.child("completionMode").text() == "Indexed"
        && number("completions") > COMPLETIONS_TRACKED_MAX
        && number("parallelism") > PARALLELISM_TRACKED_MAX
    {
        warnings.at(
            spec,
            "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
             Kubernetes might not be able to track completedIndexes when a big number of indexes fail",
        );
    }
    check_template(&spec.child("template"), warnings);
}

/// Warns of the name of a new object that cannot be part of the host names of pods.
fn check_new_name(change: &Change<'_>, warnings: &mut Warnings) {
    let name = change.new.at(&["metadata", "name"]);
    if !change.is_new() || name.text().is_empty() {
        return;
    }
    if let Some(error) = names::dns_label_error(name.text()) {
        warnings.at(
            &name,
            format!(
                "this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is \
                 recommended: [{error}]"
            ),
        );
    }
}
