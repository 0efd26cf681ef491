//! Flow schemas and priority levels.

use revstore_watch_cache::registry::JsonObject;

use crate::builtin::causes::Causes;
use crate::builtin::edit;
use crate::builtin::field::Field;
use crate::builtin::rules::Kind;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";

pub(super) const KINDS: &[Kind] = &[
    Kind {
        default: |schema| {
            if let Some(spec) = edit::ensure(schema, "spec") {
                edit::set_zero(spec, "matchingPrecedence", 1000);
            }
        },
        validate: check_schema,
        status_keeps_metadata: true,
        ..Kind::new(GROUP, "FlowSchema")
            .with_status()
            .with_generation()
    },
    Kind {
        default: default_level,
        validate: check_level,
        status_keeps_metadata: true,
        ..Kind::new(GROUP, "PriorityLevelConfiguration")
            .with_status()
            .with_generation()
    },
];

fn default_level(level: &mut JsonObject) {
    let Some(spec) = edit::child_mut(level, "spec") else {
        return;
    };
    if let Some(exempt) = edit::child_mut(spec, "exempt") {
        edit::set_unset(exempt, "nominalConcurrencyShares", 0);
        edit::set_unset(exempt, "lendablePercent", 0);
    }
    if let Some(limited) = edit::child_mut(spec, "limited") {
        edit::set_unset(limited, "nominalConcurrencyShares", 30);
        edit::set_unset(limited, "lendablePercent", 0);
        let queuing = edit::child_mut(limited, "limitResponse")
            .and_then(|response| edit::child_mut(response, "queuing"));
        if let Some(queuing) = queuing {
            edit::set_zero(queuing, "handSize", 8);
            edit::set_zero(queuing, "queues", 64);
            edit::set_zero(queuing, "queueLengthLimit", 50);
        }
    }
}

fn check_schema(schema: &Field<'_>, causes: &mut Causes) {
    let spec = schema.child("spec");
    let precedence = spec.child("matchingPrecedence");
    causes.check_min(&precedence, 1, "must be a positive value");
    causes.check_range(
        &precedence,
        i64::MIN,
        10_000,
        "must not be greater than 10000",
    );
    let exempt = schema.at(&["metadata", "name"]).text() == "exempt";
    if precedence.int() == Some(1) && !exempt {
        let detail = "only the schema named 'exempt' may have matchingPrecedence 1";
        causes.invalid(&precedence, detail);
    }
    let name = spec.at(&["priorityLevelConfiguration", "name"]);
    if name.text().is_empty() {
        causes.required(&name, "must reference a priority level");
    }
    causes.check_one_of(
        &spec.at(&["distinguisherMethod", "type"]),
        &["ByNamespace", "ByUser"],
    );
    for rule in spec.child("rules").items() {
        let subjects = rule.child("subjects");
        if subjects.len() == 0 {
            let detail = "subjects must contain at least one value";
            causes.required(&subjects, detail);
        }
        for subject in subjects.items() {
            causes.check_one_of(&subject.child("kind"), &["Group", "ServiceAccount", "User"]);
        }
        if rule.child("resourceRules").len() + rule.child("nonResourceRules").len() == 0 {
            let detail = "at least one of resourceRules and nonResourceRules has to be non-empty";
            causes.required(&rule, detail);
        }
    }
}

fn check_level(level: &Field<'_>, causes: &mut Causes) {
    let spec = level.child("spec");
    let (kind, limited, exempt) = (
        spec.child("type"),
        spec.child("limited"),
        spec.child("exempt"),
    );
    let is_exempt = level.at(&["metadata", "name"]).text() == "exempt";
    if is_exempt != (kind.text() == "Exempt") && kind.is_set() {
        causes.invalid(&kind, "must be 'Exempt' if and only if `name` is 'exempt'");
    }
    match kind.text() {
        "Exempt" if limited.is_set() => {
            causes.forbidden(&limited, "must be nil if the type is not Limited");
        }
        "Limited" => {
            if exempt.is_set() {
                causes.forbidden(&exempt, "must be nil if the type is Limited");
            }
            if limited.is_set() {
                let response = limited.at(&["limitResponse", "type"]);
                causes.check_required_one_of(&response, &["Queue", "Reject"]);
            } else {
                let detail = "must not be empty when type is Limited";
                causes.required(&limited, detail);
            }
        }
        "Exempt" => {}
        _ => causes.check_required_one_of(&kind, &["Exempt", "Limited"]),
    }
}
