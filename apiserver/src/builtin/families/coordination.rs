//! Leases and events.

use crate::builtin::causes::Causes;
use crate::builtin::field::Field;
use crate::builtin::rules::Kind;

pub(super) const KINDS: &[Kind] = &[
    Kind {
        validate: |lease, causes| {
            let spec = lease.child("spec");
            causes.check_min(
                &spec.child("leaseDurationSeconds"),
                1,
                "must be greater than 0",
            );
            causes.check_not_negative(&spec.child("leaseTransitions"));
        },
        ..Kind::new("coordination.k8s.io", "Lease")
            .conditional()
            .creates_on_update()
    },
    Kind {
        validate: |candidate, causes| {
            let spec = candidate.child("spec");
            for name in ["leaseName", "binaryVersion", "strategy"] {
                causes.check_required(&spec.child(name));
            }
        },
        ..Kind::new("coordination.k8s.io", "LeaseCandidate")
            .conditional()
            .creates_on_update()
    },
    Kind {
        validate: |event, causes| {
            check_event(
                event,
                "involvedObject",
                "reportingComponent",
                "message",
                causes,
            );
        },
        ..Kind::new("", "Event").creates_on_update()
    },
    Kind {
        validate: |event, causes| {
            check_event(event, "regarding", "reportingController", "note", causes);
            check_new_event(event, causes);
        },
        validate_update: |new, old, causes| {
            for name in [
                "regarding",
                "reason",
                "action",
                "type",
                "note",
                "eventTime",
                "reportingController",
                "reportingInstance",
                "related",
            ] {
                causes.check_immutable(&new.child(name), &old.child(name));
            }
        },
        ..Kind::new("events.k8s.io", "Event").creates_on_update()
    },
];

/// The maximum lengths of the texts of an event.
const SHORT_TEXT_MAX: usize = 128;
const NOTE_MAX: usize = 1024;

fn check_event(
    event: &Field<'_>,
    object: &'static str,
    controller: &'static str,
    note: &'static str,
    causes: &mut Causes,
) {
    let namespace = event.at(&["metadata", "namespace"]).text();
    let involved = event.child(object).child("namespace");
    let path = "involvedObject.namespace";
    let has_time = event.child("eventTime").is_set();
    let may_be_cluster_wide = if has_time {
        ["default", "kube-system"].contains(&namespace)
    } else {
        ["", "default"].contains(&namespace)
    };
    let matches = if involved.text().is_empty() {
        may_be_cluster_wide
    } else {
        has_time || namespace == involved.text()
    };
    if !matches {
        causes.invalid_at(path, involved.text(), "does not match event.namespace");
    }
    if !has_time {
        return;
    }
    let reporter = event.child(controller);
    causes.check_required(&reporter);
    causes.check_qualified_name(&reporter);
    for name in ["reportingInstance", "action", "reason"] {
        let field = event.child(name);
        causes.check_required(&field);
        check_length(name, &field, SHORT_TEXT_MAX, causes);
    }
    check_length("message", &event.child(note), NOTE_MAX, causes);
}

fn check_length(path: &str, field: &Field<'_>, max: usize, causes: &mut Causes) {
    if field.text().len() > max {
        let detail = format!("can have at most {max} characters");
        causes.invalid_at(path, "", &detail);
    }
}

/// Checks what the newer form of events demands.
fn check_new_event(event: &Field<'_>, causes: &mut Causes) {
    causes.check_required(&event.child("eventTime"));
    let kind = event.child("type");
    if !["Normal", "Warning"].contains(&kind.text()) {
        let detail = format!("has invalid value: {}", kind.text());
        causes.invalid_at("type", "", &detail);
    }
    for (name, path) in [
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
    ] {
        if !event.child(name).is_zero() {
            causes.invalid_at(path, "", "needs to be unset");
        }
    }
    let source = event.child("deprecatedSource");
    if ["component", "host"]
        .iter()
        .any(|name| !source.child(name).text().is_empty())
    {
        causes.invalid_at("source", "", "needs to be unset");
    }
}
