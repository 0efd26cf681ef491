//! Leases and events.

use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::StatusCause;

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
        validate: check_event,
        ..Kind::new("", "Event").creates_on_update()
    },
    // They are stored as those of the core group, and checked by its rules, and by `new_event_causes`.
    Kind::new("events.k8s.io", "Event").creates_on_update(),
];

/// The maximum lengths of the texts of an event.
const SHORT_TEXT_MAX: usize = 128;
const NOTE_MAX: usize = 1024;

fn check_event(event: &Field<'_>, causes: &mut Causes) {
    let namespace = event.at(&["metadata", "namespace"]).text();
    let involved = event.at(&["involvedObject", "namespace"]);
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
    let reporter = event.child("reportingComponent");
    causes.check_required(&reporter);
    causes.check_qualified_name(&reporter);
    for name in ["reportingInstance", "action", "reason"] {
        let field = event.child(name);
        causes.check_required(&field);
        check_length(name, &field, SHORT_TEXT_MAX, causes);
    }
    check_length("message", &event.child("message"), NOTE_MAX, causes);
}

fn check_length(path: &str, field: &Field<'_>, max: usize, causes: &mut Causes) {
    if field.text().len() > max {
        let detail = format!("can have at most {max} characters");
        causes.invalid_at(path, "", &detail);
    }
}

/// The fields of an event that do not change, in the order in which they are checked.
const EVENT_FIXED: [&str; 14] = [
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "reason",
    "type",
    "eventTime",
    "action",
    "related",
    "reportingComponent",
    "reportingInstance",
];

/// Returns what is wrong with an event that a client of `events.k8s.io` writes, beyond the rules of the core group, in whose
/// form both versions are.
pub(crate) fn new_event_causes(new: &JsonObject, old: Option<&JsonObject>) -> Vec<StatusCause> {
    let mut causes = Causes::default();
    let event = Field::root(new);
    match old.map(Field::root) {
        None => {
            check_series(&event.child("series"), &mut causes);
            check_new_event(&event, &mut causes);
        }
        Some(old) => {
            let series = event.child("series");
            if !series.equals(&old.child("series")) {
                check_series(&series, &mut causes);
            }
            for name in EVENT_FIXED {
                let shown = match name {
                    "reportingComponent" => "reportingController",
                    name => name,
                };
                let field = event.child(name).placed(&event.child(shown));
                causes.check_immutable(&field, &old.child(name));
            }
        }
    }
    causes.into_vec()
}

fn check_series(series: &Field<'_>, causes: &mut Causes) {
    if !series.is_set() {
        return;
    }
    if series.child("count").int().unwrap_or_default() < 2 {
        causes.invalid_at("series.count", "", "should be at least 2");
    }
    causes.check_required(&series.child("lastObservedTime"));
}

/// Checks what an event has that is created in the newer form.
fn check_new_event(event: &Field<'_>, causes: &mut Causes) {
    causes.check_required(&event.child("eventTime"));
    let kind = event.child("type").text();
    if !["Normal", "Warning"].contains(&kind) {
        causes.invalid_at("type", "", &format!("has invalid value: {kind}"));
    }
    for name in ["firstTimestamp", "lastTimestamp", "count"] {
        if !event.child(name).is_zero() {
            causes.invalid_at(name, "", "needs to be unset");
        }
    }
    let source = event.child("source");
    if ["component", "host"]
        .iter()
        .any(|name| !source.child(name).text().is_empty())
    {
        causes.invalid_at("source", "", "needs to be unset");
    }
}
