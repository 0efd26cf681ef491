//! Autoscalers of `autoscaling/v1`, which are stored as those of `autoscaling/v2`.
//!
//! Version 1 has a field for the utilization of the CPU only. Other metrics, the behavior and the conditions are JSON in
//! annotations: metrics and conditions of the types that version 1 has for them, with fields such as
//! `targetAverageUtilization`, and the behavior of Kubernetes' internal type, whose fields have the names of Go. An
//! annotation that is not of its type is left out, as by kube-apiserver.

use revstore_kinds as kinds;
use revstore_kinds::Storage;
use revstore_structured_merge::escape_html;
use revstore_watch_cache::registry::JsonObject;
use serde_json::{Map, Value, json};

use crate::builtin::edit;

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

/// The error of a value that does not have the type of its field.
struct Mismatch;

/// Returns a member of an object as Go finds it: the letter case matters only if there are several. `null` is none.
///
/// # Errors
/// The value is no object.
fn member(value: &Value, name: &str) -> Result<Option<Value>, Mismatch> {
    let members = match value {
        Value::Object(members) => members,
        Value::Null => return Ok(None),
        _ => return Err(Mismatch),
    };
    let found = members.get(name).or_else(|| {
        let mut members = members.iter();
        let found = members.find(|(member, _)| member.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    });
    Ok(found.filter(|found| !found.is_null()).cloned())
}

/// Reads a list in an annotation. `None` if it is none, or if an item cannot be converted.
fn list(text: &str, convert: impl Fn(&Value) -> Result<Value, Mismatch>) -> Option<Vec<Value>> {
    match serde_json::from_str(text).ok()? {
        Value::Array(items) => items.iter().map(convert).collect::<Result<_, _>>().ok(),
        Value::Null => Some(Vec::new()),
        _ => None,
    }
}

/// Returns a field of an autoscaler of version 2 if it has the right type.
fn checked(outer: &str, field: &str, value: Value) -> Option<Value> {
    let ty = kinds::kind("autoscaling", "v2", "HorizontalPodAutoscaler")?;
    let inner = JsonObject::from_iter([(field.to_owned(), value)]);
    let mut object = Value::Object(JsonObject::from_iter([(outer.to_owned(), inner.into())]));
    kinds::normalize(ty, &mut object, Storage::Protobuf).ok()?;
    let value = object.get_mut(outer).and_then(|outer| outer.get_mut(field));
    Some(value.map(Value::take).unwrap_or_default())
}

/// An object whose members are set unless they have no value.
#[derive(Default)]
struct Members(Map<String, Value>);

impl Members {
    fn set(mut self, name: &str, value: Option<Value>) -> Self {
        self.0.extend(value.map(|value| (name.to_owned(), value)));
        self
    }

    fn end(self) -> Value {
        self.0.into()
    }
}

fn stored_metric(metric: &Value, names: Names) -> Result<Value, Mismatch> {
    let kind = member(metric, "type")?.unwrap_or_else(|| "".into());
    let mut stored = Members::default().set("type", Some(kind));
    for source in SOURCES {
        if let Some(value) = member(metric, source)? {
            stored = stored.set(source, Some(stored_source(source, &value, names)?));
        }
    }
    Ok(stored.end())
}

fn stored_source(source: &str, value: &Value, names: Names) -> Result<Value, Mismatch> {
    let get = |name| member(value, name);
    let or_zero = |amount: Option<Value>| Some(amount.unwrap_or_else(|| "0".into()));
    let mut stored = Members::default();
    if ["resource", "containerResource"].contains(&source) {
        stored = stored.set("name", get("name")?);
        if source == "containerResource" {
            stored = stored.set("container", get("container")?);
        }
    } else {
        let selector = if source == "external" {
            "metricSelector"
        } else {
            "selector"
        };
        let metric = Members::default()
            .set("name", get("metricName")?)
            .set("selector", get(selector)?);
        stored = stored.set("metric", Some(metric.end()));
    }
    if source == "object" {
        let target = get("target")?.unwrap_or_else(|| json!({}));
        let part = |name| member(&target, name);
        let described = Members::default()
            .set("kind", part("kind")?)
            .set("name", part("name")?)
            .set("apiVersion", part("apiVersion")?);
        stored = stored.set("describedObject", Some(described.end()));
    }
    let (value, average) = (get(names.value)?, get(names.average)?);
    let utilization = get(names.utilization)?;
    let values = Members::default();
    let values = match source {
        "object" => {
            let average = get("averageValue")?;
            let is_kept = names.has_all || average.is_none();
            let value = if is_kept {
                or_zero(value)
            } else {
                value.filter(|value| !is_zero(value))
            };
            let kind = if average.is_none() {
                "Value"
            } else {
                "AverageValue"
            };
            values
                .set("type", (!names.has_all).then(|| kind.into()))
                .set("value", value)
                .set("averageValue", average)
        }
        "pods" => values
            .set("type", (!names.has_all).then(|| "AverageValue".into()))
            .set("averageValue", or_zero(average)),
        "external" => {
            let kind = if value.is_none() {
                "AverageValue"
            } else {
                "Value"
            };
            let value = if names.has_all { or_zero(value) } else { value };
            values
                .set("type", (!names.has_all).then(|| kind.into()))
                .set("value", value)
                .set("averageValue", average)
        }
        _ => {
            let kind = if utilization.is_none() {
                "AverageValue"
            } else {
                "Utilization"
            };
            let average = if names.has_all {
                or_zero(average)
            } else {
                average
            };
            values
                .set("type", (!names.has_all).then(|| kind.into()))
                .set("averageValue", average)
                .set("averageUtilization", utilization)
        }
    };
    Ok(stored.set(names.values, Some(values.end())).end())
}

/// Returns whether an amount is zero, if it is one.
fn is_zero(amount: &Value) -> bool {
    let text = match amount {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let is_digit = |letter: &char| matches!(letter, '0'..='9' | '.' | '+' | '-');
    !text
        .chars()
        .take_while(is_digit)
        .any(|letter| matches!(letter, '1'..='9'))
}

fn stored_condition(condition: &Value) -> Result<Value, Mismatch> {
    let fields = ["type", "status", "lastTransitionTime", "reason", "message"];
    let mut stored = Members::default();
    for field in fields {
        stored = stored.set(field, member(condition, field)?);
    }
    Ok(stored.end())
}

/// Returns the behavior in an annotation, if it says anything.
fn stored_behavior(behavior: &Value) -> Result<Option<Value>, Mismatch> {
    let mut stored = Members::default();
    for direction in ["scaleUp", "scaleDown"] {
        if let Some(rules) = member(behavior, direction)? {
            stored = stored.set(direction, Some(stored_rules(&rules)?));
        }
    }
    Ok((!stored.0.is_empty()).then(|| stored.end()))
}

fn stored_rules(rules: &Value) -> Result<Value, Mismatch> {
    let get = |name| member(rules, name);
    let policies = match get("policies")? {
        None => None,
        Some(Value::Array(policies)) => {
            let policies = policies.iter().map(stored_policy);
            Some(policies.collect::<Result<_, _>>()?)
        }
        Some(_) => return Err(Mismatch),
    };
    let window = "stabilizationWindowSeconds";
    let stored = Members::default()
        .set(window, get(window)?)
        .set("selectPolicy", get("selectPolicy")?)
        .set("policies", policies)
        .set("tolerance", get("tolerance")?);
    Ok(stored.end())
}

fn stored_policy(policy: &Value) -> Result<Value, Mismatch> {
    let get = |name| member(policy, name);
    let stored = Members::default()
        .set("type", get("type")?)
        .set("value", get("value")?)
        .set("periodSeconds", get("periodSeconds")?);
    Ok(stored.end())
}

/// The JSON of an object as Go writes it: with the members in the order of their declaration.
struct GoText(String);

impl GoText {
    fn new() -> Self {
        Self("{".to_owned())
    }

    fn set(self, name: &str, value: &Value) -> Self {
        self.set_text(name, &escape_html(value.to_string()))
    }

    /// Sets a member that is left out without a value.
    fn set_some(self, name: &str, value: &Value) -> Self {
        let is_empty = value.is_null() || value == "";
        if is_empty {
            self
        } else {
            self.set(name, value)
        }
    }

    fn set_text(mut self, name: &str, text: &str) -> Self {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        for part in ["\"", name, "\":", text] {
            self.0.push_str(part);
        }
        self
    }

    fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }

    /// Returns the JSON of a list, if it has items.
    fn list(items: &[String]) -> Option<String> {
        (!items.is_empty()).then(|| format!("[{}]", items.join(",")))
    }
}

/// Returns a value that Go writes although it is empty.
fn or_empty(value: &Value) -> Value {
    if value.is_null() {
        "".into()
    } else {
        value.clone()
    }
}

fn or_zero(value: &Value) -> Value {
    if value.is_null() {
        "0".into()
    } else {
        value.clone()
    }
}

fn shown_metric(metric: &Value, names: Names) -> String {
    let mut shown = GoText::new().set("type", &or_empty(&metric["type"]));
    for source in SOURCES {
        let value = &metric[source];
        if !value.is_null() {
            shown = shown.set_text(source, &shown_source(source, value, names));
        }
    }
    shown.end()
}

fn shown_source(source: &str, value: &Value, names: Names) -> String {
    let (metric, values) = (&value["metric"], &value[names.values]);
    let amount = |text: GoText, name: &str, value: &Value, is_always: bool| {
        if is_always {
            text.set(name, &or_zero(value))
        } else {
            text.set_some(name, value)
        }
    };
    let selector = |text: GoText, name: &str| match &metric["selector"] {
        Value::Null => text,
        selector => text.set_text(name, &shown_selector(selector)),
    };
    let text = GoText::new();
    match source {
        "object" => {
            let described = &value["describedObject"];
            let target = GoText::new()
                .set("kind", &or_empty(&described["kind"]))
                .set("name", &or_empty(&described["name"]))
                .set_some("apiVersion", &described["apiVersion"]);
            let text = text
                .set_text("target", &target.end())
                .set("metricName", &or_empty(&metric["name"]))
                .set(names.value, &or_zero(&values["value"]));
            selector(text, "selector").set_some("averageValue", &values["averageValue"])
        }
        "pods" => {
            let text = text
                .set("metricName", &or_empty(&metric["name"]))
                .set(names.average, &or_zero(&values["averageValue"]));
            selector(text, "selector")
        }
        "external" => {
            let text = text.set("metricName", &or_empty(&metric["name"]));
            let text = selector(text, "metricSelector");
            let text = amount(text, names.value, &values["value"], names.has_all);
            text.set_some(names.average, &values["averageValue"])
        }
        _ => {
            let text = text
                .set("name", &or_empty(&value["name"]))
                .set_some(names.utilization, &values["averageUtilization"]);
            let text = amount(text, names.average, &values["averageValue"], names.has_all);
            if source == "containerResource" {
                text.set("container", &or_empty(&value["container"]))
            } else {
                text
            }
        }
    }
    .end()
}

fn shown_selector(selector: &Value) -> String {
    let mut text = GoText::new();
    let labels = &selector["matchLabels"];
    if labels.as_object().is_some_and(|labels| !labels.is_empty()) {
        text = text.set("matchLabels", labels);
    }
    let expressions = selector["matchExpressions"].as_array();
    let expressions = expressions.into_iter().flatten().map(|expression| {
        let text = GoText::new()
            .set("key", &or_empty(&expression["key"]))
            .set("operator", &or_empty(&expression["operator"]));
        match expression["values"].as_array() {
            Some(values) if !values.is_empty() => text.set("values", &expression["values"]),
            _ => text,
        }
        .end()
    });
    let expressions: Vec<_> = expressions.collect();
    match GoText::list(&expressions) {
        Some(expressions) => text.set_text("matchExpressions", &expressions),
        None => text,
    }
    .end()
}

fn shown_condition(condition: &Value) -> String {
    GoText::new()
        .set("type", &or_empty(&condition["type"]))
        .set("status", &or_empty(&condition["status"]))
        .set("lastTransitionTime", &condition["lastTransitionTime"])
        .set_some("reason", &condition["reason"])
        .set_some("message", &condition["message"])
        .end()
}

fn shown_behavior(behavior: &Value) -> String {
    let rules = |rules: &Value| {
        if rules.is_null() {
            return "null".to_owned();
        }
        let policies = rules["policies"].as_array().map(|policies| {
            let policies = policies.iter().map(|policy| {
                let number = |name: &str| match &policy[name] {
                    Value::Null => json!(0),
                    number => number.clone(),
                };
                GoText::new()
                    .set("Type", &or_empty(&policy["type"]))
                    .set("Value", &number("value"))
                    .set("PeriodSeconds", &number("periodSeconds"))
                    .end()
            });
            let policies: Vec<_> = policies.collect();
            format!("[{}]", policies.join(","))
        });
        GoText::new()
            .set(
                "StabilizationWindowSeconds",
                &rules["stabilizationWindowSeconds"],
            )
            .set("SelectPolicy", &rules["selectPolicy"])
            .set_text("Policies", policies.as_deref().unwrap_or("null"))
            .set("Tolerance", &rules["tolerance"])
            .end()
    };
    GoText::new()
        .set_text("ScaleUp", &rules(&behavior["scaleUp"]))
        .set_text("ScaleDown", &rules(&behavior["scaleDown"]))
        .end()
}

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
