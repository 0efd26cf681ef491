//! The labels of a new pod that the selectors of its affinities and of its spread over the topology name by their keys.

use serde_json::{Value, json};

use revstore_watch_cache::registry::JsonObject;

use crate::builtin::edit;

/// The lists of keys, with the operators of the requirements that follow from them.
const KEYS: [(&str, &str); 2] = [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")];

/// Adds requirements to the selectors: the labels of the pod with these keys. A selector that is absent selects nothing,
/// and stays absent.
pub(super) fn add_requirements(pod: &mut JsonObject) {
    let labels = edit::at(pod, &["metadata", "labels"]).and_then(Value::as_object);
    let Some(labels) = labels.cloned() else {
        return;
    };
    let Some(spec) = edit::child_mut(pod, "spec") else {
        return;
    };
    for constraint in edit::items_mut(spec, "topologySpreadConstraints") {
        add(constraint, &KEYS[..1], &labels);
    }
    let Some(affinity) = edit::child_mut(spec, "affinity") else {
        return;
    };
    for name in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = edit::child_mut(affinity, name) else {
            continue;
        };
        for weighted in edit::items_mut(affinity, "preferredDuringSchedulingIgnoredDuringExecution")
        {
            if let Some(term) = edit::child_mut(weighted, "podAffinityTerm") {
                add(term, &KEYS, &labels);
            }
        }
        for term in edit::items_mut(affinity, "requiredDuringSchedulingIgnoredDuringExecution") {
            add(term, &KEYS, &labels);
        }
    }
}

fn add(term: &mut JsonObject, lists: &[(&str, &str)], labels: &JsonObject) {
    let mut requirements = Vec::new();
    for (list, operator) in lists {
        let keys = term.get(*list).and_then(Value::as_array);
        let keys = keys.into_iter().flatten().filter_map(Value::as_str);
        requirements.extend(keys.filter_map(|key| {
            let value = labels.get(key)?;
            Some(json!({"key": key, "operator": operator, "values": [value]}))
        }));
    }
    if requirements.is_empty() {
        return;
    }
    let Some(selector) = edit::child_mut(term, "labelSelector") else {
        return;
    };
    edit::set_unset(selector, "matchExpressions", json!([]));
    let expressions = selector.get_mut("matchExpressions");
    if let Some(expressions) = expressions.and_then(Value::as_array_mut) {
        expressions.extend(requirements);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::add_requirements;

    /// Returns the affinity and the constraints of a new pod with the labels `app: x` and `tier: t`.
    fn check(spec: &Value) -> Value {
        let labels = json!({"app": "x", "tier": "t"});
        let mut pod = json!({"metadata": {"labels": labels}, "spec": spec});
        add_requirements(pod.as_object_mut().unwrap());
        pod["spec"].take()
    }

    #[test]
    fn labels_become_requirements() {
        let exists = json!({"key": "z", "operator": "Exists"});
        let keys = |selector: Value| {
            json!({
                "matchLabelKeys": ["tier", "none"], "mismatchLabelKeys": ["app"],
                "labelSelector": selector,
            })
        };
        let added = [
            json!({"key": "tier", "operator": "In", "values": ["t"]}),
            json!({"key": "app", "operator": "NotIn", "values": ["x"]}),
        ];
        let affinity = |required: Value, preferred: Value| {
            let terms = json!({
                "requiredDuringSchedulingIgnoredDuringExecution": [required],
                "preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": preferred}],
            });
            json!({"affinity": {"podAffinity": terms, "podAntiAffinity": terms}})
        };
        let before = affinity(keys(json!({"matchExpressions": [exists]})), keys(json!({})));
        let after = affinity(
            keys(json!({"matchExpressions": [exists, added[0], added[1]]})),
            keys(json!({"matchExpressions": added})),
        );
        assert_eq!(check(&before), after);
        let absent = affinity(keys(Value::Null), json!({"labelSelector": {}}));
        assert_eq!(check(&absent), absent);
        let constraint = |selector: Value| {
            let keys = json!({"matchLabelKeys": ["tier"], "labelSelector": selector});
            json!({"topologySpreadConstraints": [keys]})
        };
        assert_eq!(
            check(&constraint(json!({}))),
            constraint(json!({"matchExpressions": [added[0]]}))
        );
    }
}
