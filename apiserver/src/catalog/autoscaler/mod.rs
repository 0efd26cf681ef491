//! Autoscalers of `autoscaling/v1`, which are stored as those of `autoscaling/v2`.
//!
//! Version 1 has a field for the utilization of the CPU only. Other metrics, the behavior and the conditions are JSON in
//! annotations: metrics and conditions of the types that version 1 has for them, with fields such as
//! `targetAverageUtilization`, and the behavior of Kubernetes' internal type, whose fields have the names of Go. An
//! annotation that is not of its type is left out, as by kube-apiserver.

mod go_text;
mod shown;
mod stored;

use revstore_watch_cache::registry::JsonObject;
use serde_json::{Value, json};

use crate::builtin::edit;

use go_text::GoText;
use shown::{shown_behavior, shown_condition, shown_metric};
use stored::{checked, list, stored_behavior, stored_condition, stored_metric};

/// The annotations with metrics, current metrics, conditions and behavior.
const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
/// The utilization in percent that an autoscaler without metrics aims at.
const CPU_UTILIZATION: i64 = 80;
/// The types of metrics, by the fields that describe them.
const SOURCES: [&str; 5] = [
    "object",
    "pods",
    "resource",
    "containerResource",
    "external",
];

/// Replaces the fields of version 1 by those of version 2.
pub(super) fn to_stored(object: &mut JsonObject) {
    let mut take = |name| take_annotation(object, name);
    let (metrics, behavior) = (take(METRICS), take(BEHAVIOR));
    let (current, conditions) = (take(CURRENT_METRICS), take(CONDITIONS));
    if let Some(spec) = edit::child_mut(object, "spec") {
        let metrics = metrics.and_then(|text| list(&text, |metric| stored_metric(metric, TARGET)));
        let metrics = metrics.and_then(|metrics| checked("spec", "metrics", metrics.into()));
        let mut metrics = match metrics {
            Some(Value::Array(metrics)) => metrics,
            _ => Vec::new(),
        };
        let utilization = spec.remove("targetCPUUtilizationPercentage");
        let utilization = utilization.filter(|utilization| !utilization.is_null());
        if utilization.is_some() || metrics.is_empty() {
            let utilization = utilization.unwrap_or_else(|| CPU_UTILIZATION.into());
            metrics.push(json!({"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": utilization},
            }}));
        }
        spec.insert("metrics".to_owned(), metrics.into());
        let behavior = behavior.and_then(|text| serde_json::from_str(&text).ok());
        let behavior = behavior.and_then(|behavior| stored_behavior(&behavior).ok()?);
        let behavior = behavior.and_then(|behavior| checked("spec", "behavior", behavior));
        spec.extend(behavior.map(|behavior| ("behavior".to_owned(), behavior)));
    }
    let current = current.and_then(|text| list(&text, |metric| stored_metric(metric, CURRENT)));
    let current = current.and_then(|current| checked("status", "currentMetrics", current.into()));
    let conditions = conditions.and_then(|text| list(&text, stored_condition));
    let conditions = conditions.and_then(|list| checked("status", "conditions", list.into()));
    if current.is_some() || conditions.is_some() {
        edit::ensure(object, "status");
    }
    if let Some(status) = edit::child_mut(object, "status") {
        let utilization = status.remove("currentCPUUtilizationPercentage");
        let utilization = utilization.filter(|utilization| !utilization.is_null());
        let cpu = utilization.map(|utilization| {
            json!([{"type": "Resource", "resource": {
                "name": "cpu", "current": {"averageUtilization": utilization},
            }}])
        });
        // The annotation says more.
        for (name, value) in [
            ("currentMetrics", current.or(cpu)),
            ("conditions", conditions),
        ] {
            let value = value.filter(|value| value.as_array().is_some_and(|list| !list.is_empty()));
            status.extend(value.map(|value| (name.to_owned(), value)));
        }
    }
}

/// Replaces the fields of version 2 by those of version 1.
pub(super) fn to_shown(object: &mut JsonObject) {
    for name in [METRICS, BEHAVIOR, CURRENT_METRICS, CONDITIONS] {
        take_annotation(object, name);
    }
    let mut texts = Vec::new();
    if let Some(spec) = edit::child_mut(object, "spec") {
        let (mut others, mut utilization) = (Vec::new(), None);
        if let Some(Value::Array(metrics)) = spec.remove("metrics") {
            for metric in metrics {
                match cpu_utilization(&metric, "target") {
                    Some(value) => utilization = utilization.or(Some(value.clone())),
                    None => others.push(shown_metric(&metric, TARGET)),
                }
            }
        }
        let utilization =
            utilization.map(|value| ("targetCPUUtilizationPercentage".to_owned(), value));
        spec.extend(utilization);
        texts.push((METRICS, GoText::list(&others)));
        let behavior = spec.remove("behavior");
        let behavior = behavior.filter(|behavior| !behavior.is_null());
        texts.push((BEHAVIOR, behavior.map(|behavior| shown_behavior(&behavior))));
    }
    if let Some(status) = edit::child_mut(object, "status") {
        // This version always shows the number.
        status.entry("currentReplicas").or_insert(json!(0));
        if let Some(Value::Array(metrics)) = status.remove("currentMetrics") {
            let utilization = metrics
                .iter()
                .filter_map(|metric| cpu_utilization(metric, "current"))
                .next_back();
            if let Some(value) = utilization {
                status.insert("currentCPUUtilizationPercentage".to_owned(), value.clone());
            }
            let metrics: Vec<_> = metrics
                .iter()
                .map(|metric| shown_metric(metric, CURRENT))
                .collect();
            texts.push((CURRENT_METRICS, GoText::list(&metrics)));
        }
        if let Some(Value::Array(conditions)) = status.remove("conditions") {
            let conditions: Vec<_> = conditions.iter().map(shown_condition).collect();
            texts.push((CONDITIONS, GoText::list(&conditions)));
        }
    }
    for (name, text) in texts {
        if let Some(text) = text
            && let Some(metadata) = edit::ensure(object, "metadata")
            && let Some(annotations) = edit::ensure(metadata, "annotations")
        {
            annotations.insert(name.to_owned(), text.into());
        }
    }
}

fn take_annotation(object: &mut JsonObject, name: &str) -> Option<String> {
    let metadata = edit::child_mut(object, "metadata")?;
    let annotations = edit::child_mut(metadata, "annotations")?;
    let text = annotations.remove(name)?;
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    text.as_str().map(str::to_owned)
}

/// Returns the utilization of a metric of the CPU that has one, for which version 1 has fields.
fn cpu_utilization<'a>(metric: &'a Value, values: &str) -> Option<&'a Value> {
    let resource = &metric["resource"];
    let is_cpu = metric["type"] == "Resource" && resource["name"] == "cpu";
    let utilization = &resource[values]["averageUtilization"];
    (is_cpu && !utilization.is_null()).then_some(utilization)
}

/// The names of the fields of a metric that differ between targets and current values.
#[derive(Clone, Copy)]
struct Names {
    /// The object with the values in version 2.
    values: &'static str,
    value: &'static str,
    average: &'static str,
    utilization: &'static str,
    /// Whether values of version 1 cannot be left out of metrics that have averages.
    has_all: bool,
}

const TARGET: Names = Names {
    values: "target",
    value: "targetValue",
    average: "targetAverageValue",
    utilization: "targetAverageUtilization",
    has_all: false,
};

const CURRENT: Names = Names {
    values: "current",
    value: "currentValue",
    average: "currentAverageValue",
    utilization: "currentAverageUtilization",
    has_all: true,
};

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: &Value) -> JsonObject {
        value.as_object().cloned().unwrap()
    }

    fn stored(annotations: &Value, spec: &Value, status: &Value) -> Value {
        let mut scaler = object(
            &json!({"metadata": {"annotations": annotations}, "spec": spec, "status": status}),
        );
        to_stored(&mut scaler);
        assert_eq!(scaler["metadata"].get("annotations"), None);
        scaler.into()
    }

    /// The annotations of an autoscaler with metrics of all types, and what kube-apiserver 1.36 makes of it in version 2.
    #[test]
    fn annotations_become_fields() {
        let metrics = json!([
            {"type": "Resource", "resource": {"name": "memory", "targetAverageUtilization": 60}},
            {"type": "Object", "object": {"target": {"kind": "S", "name": "s", "apiVersion": "v1"}, "metricName": "m",
                "selector": {"matchLabels": {"b": "<"}}, "averageValue": "0.5", "targetValue": "0"}},
            {"type": "Object", "object": {"metricName": "m", "targetValue": "3", "averageValue": "1"}},
            {"type": "Object", "object": {"metricName": "m"}},
            {"type": "Pods", "pods": {"metricName": "p", "targetAverageValue": "1000m"}},
            {"type": "External", "external": {"metricName": "e", "metricSelector": {}, "targetValue": 5}},
            {"type": "External", "external": {"metricName": "e", "targetAverageValue": "5"}},
            {"type": "ContainerResource", "containerResource": {"NAME": "cpu", "container": "c", "targetAverageValue": "1"}},
            null,
        ]);
        let current = json!([
            {"type": "Resource", "resource": {"name": "cpu", "currentAverageUtilization": 60}},
            {"type": "Object", "object": {"metricName": "m", "averageValue": "2"}},
            {"type": "Pods", "pods": {}},
            {"type": "External", "external": {"currentAverageValue": "1Gi"}},
        ]);
        let behavior = json!({"scaleup": {"StabilizationWindowSeconds": 5, "Tolerance": "0.1",
            "Policies": [{"Type": "Pods", "Value": 1, "PeriodSeconds": 2}]}, "ScaleDown": null});
        let conditions = json!([{"type": "A", "status": "True"}]);
        let annotations = json!({METRICS: metrics.to_string(), CURRENT_METRICS: current.to_string(),
            BEHAVIOR: behavior.to_string(), CONDITIONS: conditions.to_string()});
        let scaler = stored(
            &annotations,
            &json!({"targetCPUUtilizationPercentage": 70}),
            &json!({"currentCPUUtilizationPercentage": 10}),
        );
        let described = json!({"kind": "", "name": ""});
        assert_eq!(
            scaler["spec"],
            json!({"metrics": [
                {"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 60}}},
                {"type": "Object", "object": {"describedObject": {"kind": "S", "name": "s", "apiVersion": "v1"},
                    "metric": {"name": "m", "selector": {"matchLabels": {"b": "<"}}},
                    "target": {"type": "AverageValue", "averageValue": "500m"}}},
                {"type": "Object", "object": {"describedObject": described, "metric": {"name": "m"},
                    "target": {"type": "AverageValue", "value": "3", "averageValue": "1"}}},
                {"type": "Object", "object": {"describedObject": described, "metric": {"name": "m"},
                    "target": {"type": "Value", "value": "0"}}},
                {"type": "Pods", "pods": {"metric": {"name": "p"}, "target": {"type": "AverageValue", "averageValue": "1"}}},
                {"type": "External", "external": {"metric": {"name": "e", "selector": {}},
                    "target": {"type": "Value", "value": "5"}}},
                {"type": "External", "external": {"metric": {"name": "e"},
                    "target": {"type": "AverageValue", "averageValue": "5"}}},
                {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c",
                    "target": {"type": "AverageValue", "averageValue": "1"}}},
                {"type": ""},
                {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}},
            ], "behavior": {"scaleUp": {"stabilizationWindowSeconds": 5, "tolerance": "100m",
                "policies": [{"type": "Pods", "value": 1, "periodSeconds": 2}]}}})
        );
        assert_eq!(
            scaler["status"],
            json!({"currentMetrics": [
                {"type": "Resource", "resource": {"name": "cpu", "current": {"averageValue": "0", "averageUtilization": 60}}},
                {"type": "Object", "object": {"describedObject": described, "metric": {"name": "m"},
                    "current": {"value": "0", "averageValue": "2"}}},
                {"type": "Pods", "pods": {"metric": {"name": ""}, "current": {"averageValue": "0"}}},
                {"type": "External", "external": {"metric": {"name": ""}, "current": {"value": "0", "averageValue": "1Gi"}}},
            ], "conditions": [{"type": "A", "status": "True", "lastTransitionTime": null}]})
        );
    }

    #[test]
    fn annotations_of_another_type_are_left_out() {
        let cpu = |utilization: u32| {
            json!([{"type": "Resource", "resource": {"name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": utilization}}}])
        };
        for text in [
            "x",
            "5",
            "{}",
            "[1]",
            "[[]]",
            r#"[{"type":5}]"#,
            r#"[{"resource":[]}]"#,
            r#"[{"resource":{"targetAverageUtilization":"a","currentAverageUtilization":"a"}}]"#,
            r#"[{"object":{"target":1}}]"#,
            r#"[{"type":"Pods","pods":{"targetAverageValue":"a","currentAverageValue":"a"}}]"#,
        ] {
            let annotations =
                json!({METRICS: text, CURRENT_METRICS: text, BEHAVIOR: text, CONDITIONS: "[1]"});
            let status = json!({"currentCPUUtilizationPercentage": 10});
            let scaler = stored(&annotations, &json!({}), &status);
            assert_eq!(scaler["spec"], json!({"metrics": cpu(80)}), "{text}");
            let current = json!([{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 10}}}]);
            assert_eq!(
                scaler["status"],
                json!({"currentMetrics": current}),
                "{text}"
            );
        }
        // Empty lists are lists.
        let annotations =
            json!({METRICS: "null", CURRENT_METRICS: "[]", BEHAVIOR: "{}", CONDITIONS: "null"});
        let spec = json!({"targetCPUUtilizationPercentage": 7});
        let scaler = stored(
            &annotations,
            &spec,
            &json!({"currentCPUUtilizationPercentage": 10}),
        );
        assert_eq!(scaler["spec"], json!({"metrics": cpu(7)}));
        assert_eq!(scaler["status"], json!({}));
        for rules in [
            r#"{"ScaleUp":5}"#,
            r#"{"ScaleUp":{"Policies":[5]}}"#,
            r#"{"ScaleUp":{"Policies":{}}}"#,
        ] {
            let scaler = stored(&json!({BEHAVIOR: rules}), &json!({}), &Value::Null);
            assert_eq!(scaler["spec"], json!({"metrics": cpu(80)}), "{rules}");
        }
    }

    /// An autoscaler of version 2, and the texts that kube-apiserver 1.36 makes of it in version 1.
    #[test]
    fn fields_become_annotations() {
        let resource = |name: &str, values: Value| {
            let mut resource = values;
            resource["name"] = name.into();
            json!({"type": "Resource", "resource": resource})
        };
        let cpu = |utilization: u32| {
            resource(
                "cpu",
                json!({"target": {"type": "Utilization", "averageUtilization": utilization}}),
            )
        };
        let scaler = json!({"metadata": {"annotations": {METRICS: "old", "x": "y"}}, "spec": {"metrics": [
            cpu(50), cpu(60),
            {"type": "Object", "object": {"describedObject": {"kind": "S", "name": "s"}, "metric": {"name": "m", "selector": {
                "matchLabels": {"b": "<"}, "matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]},
                    {"key": "k", "operator": "Exists"}]}}, "target": {"type": "AverageValue", "averageValue": "3"}}},
            {"type": "Pods", "pods": {"metric": {"name": "p"}, "target": {"type": "AverageValue", "averageValue": "3"}}},
            {"type": "External", "external": {"metric": {"name": "p"}, "target": {"type": "Value", "value": "3"}}},
            {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c",
                "target": {"type": "Utilization", "averageUtilization": 3}}},
        ], "behavior": {"scaleDown": {"selectPolicy": "Max", "stabilizationWindowSeconds": 5, "policies": [
            {"type": "Pods", "value": 4, "periodSeconds": 60}]}}}, "status": {"currentReplicas": 1, "currentMetrics": [
            resource("cpu", json!({"current": {"averageUtilization": 7, "averageValue": "3m"}})),
            resource("cpu", json!({"current": {"averageUtilization": 8}})),
            {"type": "Object", "object": {"describedObject": {"kind": "S", "name": "s"}, "metric": {"name": "m"},
                "current": {"value": "3", "averageValue": "4"}}},
            {"type": "Pods", "pods": {"metric": {"name": "p"}, "current": {"averageValue": "3"}}},
            {"type": "External", "external": {"metric": {"name": "p"}, "current": {"value": "3"}}},
            {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c", "current": {}}},
        ], "conditions": [
            {"type": "AbleToScale", "status": "True", "lastTransitionTime": "2024-01-01T00:00:00Z", "reason": "R",
                "message": "a<b"},
            {"type": "B", "status": "False", "lastTransitionTime": null},
        ]}});
        let mut shown = object(&scaler);
        to_shown(&mut shown);
        let expected = json!({
            "x": "y",
            METRICS: concat!(
                r#"[{"type":"Object","object":{"target":{"kind":"S","name":"s"},"metricName":"m","targetValue"#,
                r#"":"0","selector":{"matchLabels":{"b":"\u003c"},"matchExpressions":[{"key":"k","operator":""#,
                r#"In","values":["v"]},{"key":"k","operator":"Exists"}]},"averageValue":"3"}},{"type":"Pods","#,
                r#""pods":{"metricName":"p","targetAverageValue":"3"}},{"type":"External","external":{"metric"#,
                r#"Name":"p","targetValue":"3"}},{"type":"ContainerResource","containerResource":{"name":"cpu"#,
                r#"","targetAverageUtilization":3,"container":"c"}}]"#
            ),
            CURRENT_METRICS: concat!(
                r#"[{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":7,"currentAverage"#,
                r#"Value":"3m"}},{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":8,"c"#,
                r#"urrentAverageValue":"0"}},{"type":"Object","object":{"target":{"kind":"S","name":"s"},"met"#,
                r#"ricName":"m","currentValue":"3","averageValue":"4"}},{"type":"Pods","pods":{"metricName":""#,
                r#"p","currentAverageValue":"3"}},{"type":"External","external":{"metricName":"p","currentVal"#,
                r#"ue":"3"}},{"type":"ContainerResource","containerResource":{"name":"cpu","currentAverageVal"#,
                r#"ue":"0","container":"c"}}]"#
            ),
            BEHAVIOR: concat!(
                r#"{"ScaleUp":null,"ScaleDown":{"StabilizationWindowSeconds":5,"SelectPolicy":"Max","Policies"#,
                r#"":[{"Type":"Pods","Value":4,"PeriodSeconds":60}],"Tolerance":null}}"#
            ),
            CONDITIONS: concat!(
                r#"[{"type":"AbleToScale","status":"True","lastTransitionTime":"2024-01-01T00:00:00Z","reason"#,
                r#"":"R","message":"a\u003cb"},{"type":"B","status":"False","lastTransitionTime":null}]"#
            ),
        });
        assert_eq!(shown["metadata"]["annotations"], expected);
        assert_eq!(shown["spec"], json!({"targetCPUUtilizationPercentage": 50}));
        let status = json!({"currentReplicas": 1, "currentCPUUtilizationPercentage": 8});
        assert_eq!(shown["status"], status);
        // The same texts become the same fields, but for what version 1 has no place for.
        to_stored(&mut shown);
        let mut again = shown.clone();
        to_shown(&mut again);
        assert_eq!(again["metadata"]["annotations"], expected);
        assert_eq!(shown["spec"]["behavior"], scaler["spec"]["behavior"]);
        assert_eq!(
            shown["status"]["conditions"],
            scaler["status"]["conditions"]
        );
    }
}
