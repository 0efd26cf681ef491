//! Validation of affinity and of the spread of pods.

use std::collections::{HashMap, HashSet};

use revstore_watch_cache::status::StatusCause;

use crate::builtin::causes::Causes;
use crate::builtin::field::Field;
use crate::builtin::names;

/// Checks the affinity of a pod.
pub(super) fn check(affinity: &Field<'_>, causes: &mut Causes) {
    let node = affinity.child("nodeAffinity");
    let required = node.child("requiredDuringSchedulingIgnoredDuringExecution");
    if required.is_set() {
        check_node_selector(&required, causes);
    }
    for term in node
        .child("preferredDuringSchedulingIgnoredDuringExecution")
        .items()
    {
        check_weight(&term, causes);
        check_term(&term.child("preference"), Values::Any, causes);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let pods = affinity.child(kind);
        for term in pods
            .child("requiredDuringSchedulingIgnoredDuringExecution")
            .items()
        {
            check_pod_term(&term, causes);
        }
        for term in pods
            .child("preferredDuringSchedulingIgnoredDuringExecution")
            .items()
        {
            check_weight(&term, causes);
            check_pod_term(&term.child("podAffinityTerm"), causes);
        }
    }
}

fn check_weight(term: &Field<'_>, causes: &mut Causes) {
    let weight = term.child("weight");
    let number = weight.int().unwrap_or_default();
    if !(1..=100).contains(&number) {
        causes.push(StatusCause::invalid(
            weight.path(),
            number,
            "must be in the range 1-100",
        ));
    }
}

/// Checks a selector of nodes.
pub(in crate::builtin) fn check_node_selector(selector: &Field<'_>, causes: &mut Causes) {
    let terms = selector.child("nodeSelectorTerms");
    if terms.len() == 0 {
        causes.required(&terms, "must have at least one node selector term");
    }
    for term in terms.items() {
        check_node_term(&term, causes);
    }
}

/// Checks a term that selects nodes.
pub(in crate::builtin) fn check_node_term(term: &Field<'_>, causes: &mut Causes) {
    check_term(term, Values::OfLabels, causes);
}

/// What the values of a requirement are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Values {
    /// Values of labels.
    OfLabels,
    /// Anything. A preference that no node can meet does no harm.
    Any,
}

fn check_term(term: &Field<'_>, allowed: Values, causes: &mut Causes) {
    for requirement in term.child("matchExpressions").items() {
        let values = requirement.child("values");
        let operator = requirement.child("operator");
        match operator.text() {
            "In" | "NotIn" if values.len() == 0 => causes.required(
                &values,
                "must be specified when `operator` is 'In' or 'NotIn'",
            ),
            "Exists" | "DoesNotExist" if values.len() > 0 => causes.forbidden(
                &values,
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ),
            "Gt" | "Lt" if values.len() != 1 => causes.required(
                &values,
                "must be specified single value when `operator` is 'Lt' or 'Gt'",
            ),
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            found => causes.push(StatusCause::invalid(
                operator.path(),
                found,
                "not a valid selector operator",
            )),
        }
        causes.check_qualified_name(&requirement.child("key"));
        if allowed == Values::OfLabels {
            for value in values.items() {
                causes.check_text(&value, names::label_value_error);
            }
        }
    }
    for requirement in term.child("matchFields").items() {
        check_field_requirement(&requirement, causes);
    }
}

fn check_field_requirement(requirement: &Field<'_>, causes: &mut Causes) {
    let (operator, values) = (requirement.child("operator"), requirement.child("values"));
    match operator.text() {
        "In" | "NotIn" if values.len() != 1 => causes.required(
            &values,
            "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
        ),
        "In" | "NotIn" => {}
        found => {
            let detail = "not a valid selector operator";
            causes.invalid_at(operator.path(), found, detail);
        }
    }
    let key = requirement.child("key");
    if key.text() == "metadata.name" {
        for value in values.items() {
            causes.check_present_text(&value, names::subdomain_error);
        }
    } else {
        let detail = "not a valid field selector key";
        causes.invalid_at(key.path(), key.text(), detail);
    }
}

fn check_pod_term(term: &Field<'_>, causes: &mut Causes) {
    causes.check_selector(&term.child("labelSelector"));
    causes.check_selector(&term.child("namespaceSelector"));
    for name in term.child("namespaces").items() {
        if let Some(detail) = names::dns_label_error(name.text()) {
            // The path has no index.
            causes.invalid_at(term.child("namespace").path(), name.text(), &detail);
        }
    }
    check_label_keys(term, causes);
    let key = term.child("topologyKey");
    if key.text().is_empty() {
        causes.required(&key, "can not be empty");
    }
    causes.check_qualified_name(&key);
}

/// Checks the keys of labels whose values come from the pod itself.
fn check_label_keys(term: &Field<'_>, causes: &mut Causes) {
    let selector = term.child("labelSelector");
    let (matching, differing) = (
        term.child("matchLabelKeys"),
        term.child("mismatchLabelKeys"),
    );
    for keys in [matching, differing] {
        if keys.len() > 0 && !selector.is_set() {
            let detail = "must not be specified when labelSelector is not set";
            causes.forbidden(&keys, detail);
        } else {
            for key in keys.items() {
                causes.check_qualified_name(&key);
            }
        }
    }
    let mut seen: HashSet<&str> = selector
        .child("matchLabels")
        .entries()
        .map(|(key, _)| key)
        .collect();
    let indexes: HashMap<&str, usize> = matching
        .items()
        .enumerate()
        .map(|(index, key)| (key.text(), index))
        .collect();
    for requirement in selector.child("matchExpressions").items() {
        let key = requirement.child("key").text();
        if let Some(index) = indexes.get(key)
            && seen.contains(key)
        {
            let detail = "exists in both matchLabelKeys and labelSelector";
            causes.invalid_at(term.path().index(*index), key, detail);
        }
        seen.insert(key);
    }
    let differing: HashSet<&str> = differing.items().map(|key| key.text()).collect();
    for key in matching.items() {
        if differing.contains(key.text()) {
            let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
            causes.invalid(&key, detail);
        }
    }
}

/// Checks the constraints on the spread of pods.
pub(super) fn check_spread(constraints: &Field<'_>, causes: &mut Causes) {
    let all: Vec<Field<'_>> = constraints.items().collect();
    // The first of two equal constraints is the one that is refused.
    let mut later = HashSet::new();
    let mut repeated = vec![false; all.len()];
    for (constraint, repeated) in all.iter().zip(repeated.iter_mut()).rev() {
        let pair = (
            constraint.child("topologyKey").text(),
            constraint.child("whenUnsatisfiable").text(),
        );
        *repeated = !later.insert(pair);
    }
    for (constraint, repeated) in all.iter().zip(repeated) {
        check_constraint(constraint, repeated, causes);
    }
}

fn check_constraint(constraint: &Field<'_>, repeated: bool, causes: &mut Causes) {
    let skew = constraint.child("maxSkew");
    let number = skew.int().unwrap_or_default();
    if number <= 0 {
        causes.invalid_at(skew.path(), number, "must be greater than zero");
    }
    let key = constraint.child("topologyKey");
    if key.text().is_empty() {
        causes.required(&key, "can not be empty");
    }
    let action = constraint.child("whenUnsatisfiable");
    if !["DoNotSchedule", "ScheduleAnyway"].contains(&action.text()) {
        causes.not_supported(&action, &["DoNotSchedule", "ScheduleAnyway"]);
    }
    if repeated {
        let path = constraint.path().child("{topologyKey, whenUnsatisfiable}");
        let value = format!("{{{}, {}}}", key.text(), action.text());
        causes.push(StatusCause::duplicate(path, value));
    }
    let domains = constraint.child("minDomains");
    causes.check_min(&domains, 1, "must be greater than zero");
    if domains.is_set() && action.text() != "DoNotSchedule" {
        let detail = format!(
            "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}",
            action.text()
        );
        causes.invalid(&domains, &detail);
    }
    for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
        causes.check_one_of(&constraint.child(policy), &["Honor", "Ignore"]);
    }
    check_label_keys(constraint, causes);
    causes.check_selector(&constraint.child("labelSelector"));
}
