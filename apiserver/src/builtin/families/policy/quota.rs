//! The scopes of resource quotas.

use revstore_watch_cache::status::FieldPath;
use serde_json::{Value, json};

use crate::builtin::causes::Causes;
use crate::builtin::field::Field;

/// The scopes that select pods by a property that they have or not.
const PLAIN: [&str; 5] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "CrossNamespacePodAffinity",
];
/// The scopes that cannot be together.
const CONFLICTS: [[&str; 2]; 2] = [
    ["BestEffort", "NotBestEffort"],
    ["Terminating", "NotTerminating"],
];
/// The resources of pods besides their number.
const COMPUTE: [&str; 6] = [
    "cpu",
    "memory",
    "limits.cpu",
    "limits.memory",
    "requests.cpu",
    "requests.memory",
];

/// Checks the scopes of the spec of a quota.
pub(super) fn check_scopes(spec: &Field<'_>, causes: &mut Causes) {
    let hard = spec.child("hard");
    let scopes = spec.child("scopes");
    let names: Vec<&str> = scopes.items().map(|scope| scope.text()).collect();
    for name in &names {
        if !is_known(name) {
            causes.invalid(&scopes, "unsupported scope");
        }
        check_resources(name, &hard, &scopes.path(), &scopes.value(), causes);
    }
    for pair in CONFLICTS {
        if pair.iter().all(|name| names.contains(name)) {
            causes.invalid(&scopes, "conflicting scopes");
        }
    }
    check_selector(spec, &hard, causes);
}

/// Adds a cause for each limited resource that a scope does not restrict.
fn check_resources(
    scope: &str,
    hard: &Field<'_>,
    path: &FieldPath,
    shown: &Value,
    causes: &mut Causes,
) {
    for (resource, _) in hard.entries() {
        if !restricts(scope, resource) {
            let detail = "unsupported scope applied to resource";
            causes.invalid_at(path.clone(), shown.clone(), detail);
        }
    }
}

fn check_selector(spec: &Field<'_>, hard: &Field<'_>, causes: &mut Causes) {
    let selector = spec.child("scopeSelector");
    let requirements = selector.child("matchExpressions");
    let mut names = Vec::new();
    for requirement in requirements.items() {
        // Paths have no indexes.
        let part = |name: &'static str| requirement.child(name).placed(&requirements.named(name));
        let (scope, operator, values) = (part("scopeName"), part("operator"), part("values"));
        let shown = json!({"MatchExpressions": [{
            "ScopeName": scope.text(),
            "Operator": operator.text(),
            "Values": values.value(),
        }]});
        names.push(scope.text());
        if !is_known(scope.text()) {
            causes.invalid_at(scope.path(), scope.text(), "unsupported scope");
        }
        check_resources(scope.text(), hard, &requirements.path(), &shown, causes);
        if PLAIN.contains(&scope.text()) && operator.text() != "Exists" {
            causes.invalid(
                &operator,
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                 ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, \
                 ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity",
            );
        }
        match operator.text() {
            "In" | "NotIn" if values.len() == 0 => causes.required(
                &values,
                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            ),
            "Exists" | "DoesNotExist" if values.len() > 0 => causes.invalid(
                &values,
                "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
            ),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            text => causes.invalid_at(operator.path(), text, "not a valid selector operator"),
        }
    }
    for pair in CONFLICTS {
        if pair.iter().all(|name| names.contains(name)) {
            let scopes = spec.child("scopes").value();
            causes.invalid_at(requirements.path(), scopes, "conflicting scopes");
        }
    }
}

fn is_known(scope: &str) -> bool {
    PLAIN.contains(&scope) || ["PriorityClass", "VolumeAttributesClass"].contains(&scope)
}

/// Returns whether a scope restricts a resource.
fn restricts(scope: &str, resource: &str) -> bool {
    match scope {
        "BestEffort" => resource == "pods",
        "Terminating"
        | "NotTerminating"
        | "NotBestEffort"
        | "PriorityClass"
        | "CrossNamespacePodAffinity" => resource == "pods" || COMPUTE.contains(&resource),
        "VolumeAttributesClass" => {
            ["persistentvolumeclaims", "requests.storage"].contains(&resource)
        }
        _ => true,
    }
}
