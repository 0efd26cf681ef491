//! The approval of definitions in groups of Kubernetes: the annotation that they need, and the condition about it.

use revstore_watch_cache::registry::JsonObject;
use serde_json::Value;

use super::status::set_condition;
use super::whole_condition;
use crate::custom::definition::version::list::text;
use crate::custom::schema::is_uri;
use crate::custom::text::quoted;

/// The annotation that allows a definition in a group of Kubernetes.
pub(super) const APPROVAL: &str = "api-approved.kubernetes.io";

/// The condition of definitions in groups of Kubernetes.
const CONDITION: &str = "KubernetesAPIApprovalPolicyConformant";

/// How a definition in a group of Kubernetes is approved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Approval {
    /// There is no annotation.
    Missing,
    /// The annotation says that there is no approval.
    Bypassed,
    /// The annotation is a URL.
    Approved,
    /// The annotation is something else.
    Invalid,
}

impl Approval {
    pub(super) fn of(definition: &JsonObject) -> Self {
        match annotation(definition) {
            "" => Self::Missing,
            text if text.starts_with("unapproved") => Self::Bypassed,
            text if text.contains("://") && is_uri(text) => Self::Approved,
            _ => Self::Invalid,
        }
    }

    /// Returns what is said about the annotation of a definition.
    pub(super) fn message(self, definition: &JsonObject) -> String {
        let annotation = annotation(definition);
        let rule = format!(
            "protected groups must have approval annotation {}",
            quoted(APPROVAL)
        );
        let see = "see https://github.com/kubernetes/enhancements/pull/1111";
        match self {
            Self::Missing => format!("{rule}, {see}"),
            Self::Bypassed => format!("not approved: {}", quoted(annotation)),
            Self::Approved => format!("approved in {annotation}"),
            Self::Invalid => {
                format!("{rule} with either a URL or a reason starting with \"unapproved\", {see}")
            }
        }
    }

    /// Returns the status and the reason of the condition.
    fn condition(self) -> (&'static str, &'static str) {
        match self {
            Self::Missing => ("False", "MissingAnnotation"),
            Self::Bypassed => ("False", "UnapprovedAnnotation"),
            Self::Approved => ("True", "ApprovedAnnotation"),
            Self::Invalid => ("False", "InvalidAnnotation"),
        }
    }
}

/// Returns the annotation of a definition; empty if there is none.
pub(super) fn annotation(definition: &JsonObject) -> &str {
    let annotations = definition
        .get("metadata")
        .and_then(|metadata| metadata.get("annotations"));
    annotations.map_or("", |annotations| text(annotations, APPROVAL))
}

/// Returns whether the group of a definition is one of Kubernetes, which needs an approval.
pub(super) fn is_protected(definition: &JsonObject) -> bool {
    let group = definition
        .get("spec")
        .map_or("", |spec| text(spec, "group"));
    ["k8s.io", "kubernetes.io"].iter().any(|domain| {
        group
            .strip_suffix(domain)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

/// Sets the condition about the approval of definitions in groups of Kubernetes. Returns the definitions whose status
/// changes, with the new one.
pub fn report_approval(definitions: &[JsonObject], now: &str) -> Vec<JsonObject> {
    let protected = definitions.iter().filter(|it| is_protected(it));
    let changed = protected.filter_map(|definition| {
        let approval = Approval::of(definition);
        let (status, reason) = approval.condition();
        let message = approval.message(definition);
        let known = whole_condition(definition, CONDITION);
        let is = |field: &str, value: &str| {
            known
                .and_then(|known| known.get(field))
                .and_then(Value::as_str)
                == Some(value)
        };
        if is("status", status) && is("reason", reason) && is("message", &message) {
            return None;
        }
        let mut new = definition.clone();
        set_condition(&mut new, CONDITION, status, reason, &message, now);
        Some(new)
    });
    changed.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{JsonObject, report_approval};

    #[test]
    fn the_condition_follows_the_annotation() {
        let definition = |group: &str, annotation: &str| -> JsonObject {
            let annotations = json!({"api-approved.kubernetes.io": annotation});
            let definition =
                json!({"metadata": {"annotations": annotations}, "spec": {"group": group}});
            serde_json::from_value(definition).unwrap()
        };
        let required =
            "protected groups must have approval annotation \"api-approved.kubernetes.io\"";
        let see = "see https://github.com/kubernetes/enhancements/pull/1111";
        for (annotation, status, reason, message) in [
            (
                "",
                "False",
                "MissingAnnotation",
                format!("{required}, {see}"),
            ),
            (
                "x",
                "False",
                "InvalidAnnotation",
                format!(
                    "{required} with either a URL or a reason starting with \"unapproved\", {see}"
                ),
            ),
            (
                "unapproved, x",
                "False",
                "UnapprovedAnnotation",
                "not approved: \"unapproved, x\"".to_owned(),
            ),
            (
                "https://example.com/1",
                "True",
                "ApprovedAnnotation",
                "approved in https://example.com/1".to_owned(),
            ),
        ] {
            let mut changed = report_approval(&[definition("a.k8s.io", annotation)], "T");
            let condition = json!({"type": "KubernetesAPIApprovalPolicyConformant", "status": status,
                "lastTransitionTime": "T", "reason": reason, "message": message});
            assert_eq!(changed[0]["status"]["conditions"], json!([condition]));
            assert_eq!(report_approval(&changed, "U"), []);
            changed[0]["metadata"]["annotations"] =
                json!({"api-approved.kubernetes.io": "unapproved"});
            let again = report_approval(&changed, "U").remove(0);
            let time = if status == "True" { "U" } else { "T" };
            assert_eq!(again["status"]["conditions"][0]["lastTransitionTime"], time);
        }
        let other = ["example.com", "ak8s.io", "k8s.io.example.com"];
        assert_eq!(
            report_approval(&other.map(|group| definition(group, "")), "T"),
            []
        );
        assert_eq!(
            report_approval(&[definition("kubernetes.io", "")], "T").len(),
            1
        );
    }
}
