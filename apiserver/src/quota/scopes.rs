//! Which objects a quota counts.

use serde_json::{Value, json};

/// The scopes of a quota. All of them must match.
#[derive(Debug)]
pub(crate) struct Scopes(Vec<Requirement>);

#[derive(Debug)]
struct Requirement {
    name: String,
    operator: String,
    values: Vec<Value>,
}

impl Scopes {
    /// Returns the scopes in the spec of a quota.
    pub(crate) fn of(spec: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let plain = spec["scopes"].as_array().into_iter().flatten();
        let plain = plain.map(|name| Requirement {
            name: text(name),
            operator: "Exists".to_owned(),
            values: Vec::new(),
        });
        let selected = spec["scopeSelector"]["matchExpressions"].as_array();
        let selected = selected.into_iter().flatten().map(|it| Requirement {
            name: text(&it["scopeName"]),
            operator: text(&it["operator"]),
            values: it["values"].as_array().cloned().unwrap_or_default(),
        });
        Self(plain.chain(selected).collect())
    }

    /// Returns whether an object of a resource counts.
    pub(crate) fn match_object(&self, group: &str, plural: &str, object: &Value) -> bool {
        self.0.iter().all(|requirement| match (group, plural) {
            ("", "pods") => requirement.matches_pod(object),
            ("", "persistentvolumeclaims") => {
                let class = object["spec"]["volumeAttributesClassName"].as_str();
                requirement.name == "VolumeAttributesClass" && requirement.selects(class)
            }
            _ => false,
        })
    }
}

impl Requirement {
    fn matches_pod(&self, pod: &Value) -> bool {
        let spec = &pod["spec"];
        let is_terminating = spec["activeDeadlineSeconds"]
            .as_i64()
            .is_some_and(|it| it >= 0);
        let is_best_effort = pod["status"]["qosClass"] == "BestEffort";
        match self.name.as_str() {
            "Terminating" => is_terminating,
            "NotTerminating" => !is_terminating,
            "BestEffort" => is_best_effort,
            "NotBestEffort" => !is_best_effort,
            "PriorityClass" => self.selects(spec["priorityClassName"].as_str()),
            "CrossNamespacePodAffinity" => crosses_namespaces(&spec["affinity"]),
            _ => false,
        }
    }

    /// Returns whether the name of a class is selected.
    fn selects(&self, class: Option<&str>) -> bool {
        let class = class.filter(|class| !class.is_empty());
        let is_listed = class.is_some_and(|class| self.values.contains(&json!(class)));
        match self.operator.as_str() {
            "Exists" => class.is_some(),
            "DoesNotExist" => class.is_none(),
            "In" => is_listed,
            "NotIn" => !is_listed,
            _ => false,
        }
    }
}

/// Returns whether a term of an affinity names other namespaces.
fn crosses_namespaces(affinity: &Value) -> bool {
    let crosses = |term: &Value| {
        let namespaces = term["namespaces"].as_array();
        namespaces.is_some_and(|names| !names.is_empty()) || term["namespaceSelector"].is_object()
    };
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let terms = |field: &str| {
            affinity[*kind][field]
                .as_array()
                .cloned()
                .unwrap_or_default()
        };
        let required = terms("requiredDuringSchedulingIgnoredDuringExecution");
        let preferred = terms("preferredDuringSchedulingIgnoredDuringExecution");
        required.iter().any(crosses) || preferred.iter().any(|it| crosses(&it["podAffinityTerm"]))
    })
}
