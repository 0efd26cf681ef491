//! Validation of the policies of jobs about failed pods and about success.

use std::collections::HashSet;

use revstore_watch_cache::status::{StatusCause, quoted};

use super::indexes;
use crate::builtin::causes::Causes;
use crate::builtin::field::Field;

/// The maximum number of rules of a policy.
const RULES_MAX: usize = 20;
/// The maximum number of exit codes of a rule.
const EXIT_CODES_MAX: usize = 255;
/// The maximum number of conditions of pods of a rule.
const POD_CONDITIONS_MAX: usize = 20;
/// The maximum length of the indexes of a rule.
const INDEXES_BYTES_MAX: usize = 64 * 1024;

const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
const OPERATORS: [&str; 2] = ["In", "NotIn"];
const STATUSES: [&str; 3] = ["False", "True", "Unknown"];

/// Checks what happens when pods fail.
pub(super) fn check_failure_policy(spec: &Field<'_>, causes: &mut Causes) {
    let rules = spec.at(&["podFailurePolicy", "rules"]);
    check_rule_count(&rules, causes);
    let pod = spec.at(&["template", "spec"]);
    let containers: HashSet<&str> = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| pod.child(list).items())
        .map(|container| container.child("name").text())
        .collect();
    for rule in rules.items() {
        check_action(&rule.child("action"), spec, causes);
        let (codes, conditions) = (rule.child("onExitCodes"), rule.child("onPodConditions"));
        if codes.is_set() {
            check_exit_codes(&codes, &containers, causes);
        }
        check_pod_conditions(&conditions, causes);
        match (codes.is_set(), conditions.len() > 0) {
            (true, true) => causes.invalid_part(
                &rule,
                "specifying both OnExitCodes and OnPodConditions is not supported",
            ),
            (false, false) => causes.invalid_part(
                &rule,
                "specifying one of OnExitCodes and OnPodConditions is required",
            ),
            _ => {}
        }
    }
}

fn check_rule_count(rules: &Field<'_>, causes: &mut Causes) {
    if rules.len() > RULES_MAX {
        causes.push(StatusCause::too_many(rules.path(), rules.len(), RULES_MAX));
    }
}

fn check_action(action: &Field<'_>, spec: &Field<'_>, causes: &mut Causes) {
    if action.text() == "FailIndex" && !spec.child("backoffLimitPerIndex").is_set() {
        let detail = "requires the backoffLimitPerIndex to be set";
        causes.invalid(action, detail);
    }
    check_listed(action, &ACTIONS, causes);
}

/// Checks that a text is set and one of several, with them in the text.
fn check_listed(field: &Field<'_>, values: &[&str], causes: &mut Causes) {
    if field.text().is_empty() {
        let values: Vec<String> = values.iter().map(|value| quoted(value)).collect();
        causes.required(field, &format!("valid values: [{}]", values.join(" ")));
    } else {
        causes.check_one_of(field, values);
    }
}

fn check_exit_codes(codes: &Field<'_>, containers: &HashSet<&str>, causes: &mut Causes) {
    let operator = codes.child("operator");
    check_listed(&operator, &OPERATORS, causes);
    let container = codes.child("containerName");
    if container.is_set() && !containers.contains(container.text()) {
        let detail = "must be one of the container or initContainer names in the pod template";
        causes.invalid(&container, detail);
    }
    let values = codes.child("values");
    if values.len() == 0 {
        causes.invalid(&values, "at least one value is required");
    } else if values.len() > EXIT_CODES_MAX {
        let cause = StatusCause::too_many(values.path(), values.len(), EXIT_CODES_MAX);
        causes.push(cause);
    }
    let mut seen = HashSet::new();
    let mut last = i64::MIN;
    let mut ordered = true;
    for value in values.items() {
        let code = value.int().unwrap_or_default();
        if operator.text() == "In" && code == 0 {
            causes.invalid(&value, "must not be 0 for the In operator");
        }
        if !seen.insert(code) {
            causes.duplicate(&value);
        }
        ordered &= last <= code;
        last = code;
    }
    if !ordered {
        causes.invalid(&values, "must be ordered");
    }
}

fn check_pod_conditions(conditions: &Field<'_>, causes: &mut Causes) {
    if conditions.len() > POD_CONDITIONS_MAX {
        let (path, found) = (conditions.path(), conditions.len());
        causes.push(StatusCause::too_many(path, found, POD_CONDITIONS_MAX));
    }
    for condition in conditions.items() {
        causes.check_qualified_name(&condition.child("type"));
        check_listed(&condition.child("status"), &STATUSES, causes);
    }
}

/// Checks when an indexed job has succeeded.
pub(super) fn check_success_policy(spec: &Field<'_>, causes: &mut Causes) {
    let rules = spec.at(&["successPolicy", "rules"]);
    if rules.len() == 0 {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        causes.required(&rules, detail);
    }
    check_rule_count(&rules, causes);
    let completions = spec.child("completions").int().unwrap_or_default();
    for rule in rules.items() {
        check_success_rule(&rule, completions, causes);
    }
}

fn check_success_rule(rule: &Field<'_>, completions: i64, causes: &mut Causes) {
    let (count, listed) = (rule.child("succeededCount"), rule.child("succeededIndexes"));
    if !count.is_set() && !listed.is_set() {
        let detail = "at least one of succeededCount or succeededIndexes must be specified";
        causes.required(rule, detail);
    }
    let mut total = 0;
    if listed.is_set() {
        if listed.text().len() > INDEXES_BYTES_MAX {
            causes.push(StatusCause::too_long(listed.path(), INDEXES_BYTES_MAX));
        }
        match indexes::count(listed.text(), completions) {
            Ok(found) => total = found,
            Err(error) => {
                let detail = format!("error parsing succeededIndexes: {error}");
                causes.invalid(&listed, &detail);
            }
        }
    }
    let Some(number) = count.int() else {
        return;
    };
    causes.check_not_negative(&count);
    if number > completions {
        let detail = format!(
            "must be less than or equal to {completions} (the number of specified completions)"
        );
        causes.invalid(&count, &detail);
    }
    if listed.is_set() && number > total {
        let detail = format!(
            "must be less than or equal to {total} (the number of indexes in the specified \
             succeededIndexes field)"
        );
        causes.invalid(&count, &detail);
    }
}
