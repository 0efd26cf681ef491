//! Warnings about labels of nodes that have other names now.

use super::Warnings;
use crate::builtin::field::Field;
use crate::builtin::names::label_value_error;

/// The labels that are deprecated, and what clients are told about them.
const DEPRECATED: [(&str, &str); 8] = [
    (
        "beta.kubernetes.io/arch",
        "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
    ),
    (
        "beta.kubernetes.io/os",
        "deprecated since v1.14; use \"kubernetes.io/os\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
    (
        "node-role.kubernetes.io/master",
        "use \"node-role.kubernetes.io/control-plane\" instead",
    ),
];

/// Returns what clients are told about a label, or `None`.
pub(super) fn deprecation(label: &str) -> Option<&'static str> {
    let found = DEPRECATED.iter().find(|(name, _)| *name == label);
    found.map(|(_, text)| *text)
}

/// Warns of a field that is the name of a deprecated label.
pub(super) fn check_name(field: &Field<'_>, warnings: &mut Warnings) {
    let name = field.text();
    if let Some(text) = deprecation(name) {
        warnings.at(field, format!("{name} is {text}"));
    }
}

/// Warns of the labels in the expressions of a selector of nodes.
pub(super) fn check_expressions(selector: &Field<'_>, warnings: &mut Warnings) {
    for expression in selector.child("matchExpressions").items() {
        check_name(&expression.child("key"), warnings);
    }
}

/// Warns of the labels in the expressions of a selector of nodes, and of values that no label has.
pub(super) fn check_expressions_and_values(selector: &Field<'_>, warnings: &mut Warnings) {
    for expression in selector.child("matchExpressions").items() {
        check_name(&expression.child("key"), warnings);
        for value in expression.child("values").items() {
            let text = value.text();
            if let Some(error) = label_value_error(text) {
                warnings.at(&value, format!("{text} is invalid, {error}"));
            }
        }
    }
}
