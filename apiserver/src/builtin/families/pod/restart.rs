//! Which containers restart, and when.

use revstore_watch_cache::status::StatusCause;

use crate::builtin::causes::Causes;
use crate::builtin::field::Field;

/// The maximum number of rules of a container, and of exit codes of a rule.
const RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;

/// Returns whether an init container runs as long as the pod.
pub(super) fn is_sidecar(container: &Field<'_>) -> bool {
    container.child("restartPolicy").text() == "Always"
}

/// Checks when a container restarts, if it has a policy of its own.
pub(super) fn check_policy(container: &Field<'_>, is_init: bool, causes: &mut Causes) {
    let (policy, rules) = (
        container.child("restartPolicy"),
        container.child("restartPolicyRules"),
    );
    if !policy.is_set() && rules.len() > 0 {
        let detail = "must specify restartPolicy when restart rules are used";
        causes.required(&policy, detail);
        if is_init {
            return;
        }
    }
    causes.check_one_of(&policy, &["Always", "Never", "OnFailure"]);
    if rules.len() > RULES_MAX {
        causes.push(StatusCause::too_many(rules.path(), rules.len(), RULES_MAX));
    }
    for rule in rules.items() {
        let action = rule.child("action");
        if !["Restart", "RestartAllContainers"].contains(&action.text()) {
            causes.not_supported(&action, &["Restart", "RestartAllContainers"]);
        }
        let codes = rule.child("exitCodes");
        if !codes.is_set() {
            causes.required(&codes, "must be specified");
            continue;
        }
        let (operator, values) = (codes.child("operator"), codes.child("values"));
        if !["In", "NotIn"].contains(&operator.text()) {
            causes.not_supported(&operator, &["In", "NotIn"]);
        }
        if values.len() > EXIT_CODES_MAX {
            let cause = StatusCause::too_many(values.path(), values.len(), EXIT_CODES_MAX);
            causes.push(cause);
        }
    }
}

/// Returns whether the end of one container of a pod may restart all of them.
pub(super) fn restarts_all(spec: &Field<'_>) -> bool {
    ["initContainers", "containers"]
        .into_iter()
        .flat_map(|list| spec.child(list).items())
        .flat_map(|container| container.child("restartPolicyRules").items())
        .any(|rule| rule.child("action").text() == "RestartAllContainers")
}

/// Returns whether a container of a pod restarts after it has ended with an exit code.
pub(super) fn restarts(container: &Field<'_>, spec: &Field<'_>, code: i64) -> bool {
    let own = container.child("restartPolicy");
    if own.is_set() {
        let mut rules = container.child("restartPolicyRules").items();
        let matched = rules.any(|rule| {
            let codes = rule.child("exitCodes");
            let listed = codes
                .child("values")
                .items()
                .any(|value| value.int() == Some(code));
            match codes.child("operator").text() {
                "In" => listed,
                "NotIn" => !listed,
                _ => false,
            }
        });
        if matched {
            return true;
        }
    }
    let policy = match own.text() {
        policy @ ("Always" | "OnFailure" | "Never") => policy,
        _ => spec.child("restartPolicy").text(),
    };
    match policy {
        "OnFailure" => code != 0,
        "Never" => false,
        _ => true,
    }
}
