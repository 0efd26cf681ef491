//! Versions of a resource whose objects are stored in another version.

use std::fmt;

use revstore_watch_cache::registry::JsonObject;
use serde_json::{Value, json};

/// A version of a resource whose objects are stored in another version, of this group or of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) convert: Convert,
    /// The API version of clients.
    pub(crate) shown: String,
    /// The API version of stored objects.
    pub(crate) stored: String,
}

/// What differs between two versions, besides the API version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Convert {
    /// Events of `events.k8s.io`, which are stored as those of the core group.
    Event,
    /// `HorizontalPodAutoscaler` of `autoscaling/v1`, which are stored as those of `autoscaling/v2`.
    Autoscaler,
}

/// The fields of events with other names in the core group: those of `events.k8s.io` first.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

/// The fields of the reference to the object of an event that selectors can name.
const REFERENCE_FIELDS: [&str; 7] = [
    "kind",
    "namespace",
    "name",
    "uid",
    "apiVersion",
    "resourceVersion",
    "fieldPath",
];

/// The annotation of an autoscaler of `autoscaling/v1` with the metrics that this version has no field for, and
/// those with its conditions, its behavior and the current metrics.
const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// How clients see objects that are stored in another version.
pub(crate) trait Presentation: fmt::Debug + Send + Sync {
    /// Returns an object of a client as it is stored.
    fn to_stored(&self, object: JsonObject) -> JsonObject;

    /// Returns a stored object as clients see it.
    fn to_shown(&self, object: JsonObject) -> JsonObject;

    /// Returns the name in stored objects of a field that selectors can name, or `None` if they cannot.
    fn stored_field(&self, field: &str) -> Option<String> {
        Some(field.to_owned())
    }
}

impl Presentation for View {
    fn to_stored(&self, mut object: JsonObject) -> JsonObject {
        match self.convert {
            Convert::Event => rename(&mut object, EVENT_FIELDS),
            Convert::Autoscaler => autoscaler_to_stored(&mut object),
        }
        set_version(&mut object, &self.shown, &self.stored);
        object
    }

    fn to_shown(&self, mut object: JsonObject) -> JsonObject {
        match self.convert {
            Convert::Event => {
                rename(
                    &mut object,
                    EVENT_FIELDS.map(|(shown, stored)| (stored, shown)),
                );
            }
            Convert::Autoscaler => autoscaler_to_shown(&mut object),
        }
        set_version(&mut object, &self.stored, &self.shown);
        object
    }

    fn stored_field(&self, field: &str) -> Option<String> {
        match (self.convert, field) {
            (Convert::Event, "reason" | "type") | (Convert::Autoscaler, _) => {
                Some(field.to_owned())
            }
            (Convert::Event, "reportingController") => Some("reportingComponent".to_owned()),
            (Convert::Event, _) => {
                let rest = field.strip_prefix("regarding.")?;
                REFERENCE_FIELDS
                    .contains(&rest)
                    .then(|| format!("involvedObject.{rest}"))
            }
        }
    }
}

/// Replaces the API version, unless it is another one, which is an error that the store reports.
fn set_version(object: &mut JsonObject, from: &str, to: &str) {
    if object
        .get("apiVersion")
        .is_none_or(|version| version == from || version == "")
    {
        object.insert("apiVersion".to_owned(), to.into());
    }
}

fn rename(object: &mut JsonObject, fields: [(&str, &str); 7]) {
    for (from, to) in fields {
        if let Some(value) = object.remove(from) {
            object.insert(to.to_owned(), value);
        }
    }
}

/// Moves a field out of an object below `object`.
fn take(object: &mut JsonObject, outer: &str, field: &str) -> Option<Value> {
    object.get_mut(outer)?.as_object_mut()?.remove(field)
}

fn set(object: &mut JsonObject, outer: &str, field: &str, value: Value) {
    let outer = object.entry(outer).or_insert_with(|| json!({}));
    if let Some(outer) = outer.as_object_mut() {
        outer.insert(field.to_owned(), value);
    }
}

fn take_annotation(object: &mut JsonObject, name: &str) -> Option<Value> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    let annotations = metadata.get_mut("annotations")?.as_object_mut()?;
    let text = annotations.remove(name)?;
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    serde_json::from_str(text.as_str()?).ok()
}

fn set_annotation(object: &mut JsonObject, name: &str, value: &Value) {
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    let Some(metadata) = metadata.as_object_mut() else {
        return;
    };
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(name.to_owned(), value.to_string().into());
    }
}

/// Returns whether a metric is the average utilization of the CPU, for which version 1 has a field.
fn is_cpu(metric: &Value) -> bool {
    metric["type"] == "Resource" && metric["resource"]["name"] == "cpu"
}

fn autoscaler_to_stored(object: &mut JsonObject) {
    let mut metrics = match take_annotation(object, METRICS) {
        Some(Value::Array(metrics)) => metrics,
        _ => Vec::new(),
    };
    if let Some(utilization) = take(object, "spec", "targetCPUUtilizationPercentage") {
        metrics.insert(
            0,
            json!({"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": utilization},
            }}),
        );
    }
    if !metrics.is_empty() {
        set(object, "spec", "metrics", metrics.into());
    }
    let mut current = match take_annotation(object, CURRENT_METRICS) {
        Some(Value::Array(metrics)) => metrics,
        _ => Vec::new(),
    };
    if let Some(utilization) = take(object, "status", "currentCPUUtilizationPercentage") {
        current.push(json!({"type": "Resource", "resource": {
            "name": "cpu", "current": {"averageUtilization": utilization},
        }}));
    }
    if !current.is_empty() {
        set(object, "status", "currentMetrics", current.into());
    }
    if let Some(conditions) = take_annotation(object, CONDITIONS) {
        set(object, "status", "conditions", conditions);
    }
    if let Some(behavior) = take_annotation(object, BEHAVIOR) {
        set(object, "spec", "behavior", behavior);
    }
}

fn autoscaler_to_shown(object: &mut JsonObject) {
    // This version always shows the number.
    if let Some(Value::Object(status)) = object.get_mut("status") {
        status.entry("currentReplicas").or_insert(json!(0));
    }
    if let Some(Value::Array(metrics)) = take(object, "spec", "metrics") {
        let mut others = Vec::new();
        for metric in metrics {
            let utilization = &metric["resource"]["target"]["averageUtilization"];
            if is_cpu(&metric) && !utilization.is_null() {
                set(
                    object,
                    "spec",
                    "targetCPUUtilizationPercentage",
                    utilization.clone(),
                );
            } else {
                others.push(metric);
            }
        }
        if !others.is_empty() {
            set_annotation(object, METRICS, &others.into());
        }
    }
    if let Some(Value::Array(metrics)) = take(object, "status", "currentMetrics") {
        let mut others = Vec::new();
        for metric in metrics {
            let utilization = &metric["resource"]["current"]["averageUtilization"];
            if is_cpu(&metric) && !utilization.is_null() {
                set(
                    object,
                    "status",
                    "currentCPUUtilizationPercentage",
                    utilization.clone(),
                );
            } else {
                others.push(metric);
            }
        }
        if !others.is_empty() {
            set_annotation(object, CURRENT_METRICS, &others.into());
        }
    }
    if let Some(conditions) = take(object, "status", "conditions") {
        set_annotation(object, CONDITIONS, &conditions);
    }
    if let Some(behavior) = take(object, "spec", "behavior") {
        set_annotation(object, BEHAVIOR, &behavior);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: &Value) -> JsonObject {
        value.as_object().cloned().unwrap()
    }

    fn there_and_back(convert: Convert, shown: &str, stored: &str, value: &Value, field: &str) {
        let view = View {
            convert,
            shown: shown.to_owned(),
            stored: stored.to_owned(),
        };
        let original = object(value);
        let kept = view.to_stored(original.clone());
        assert_eq!(kept["apiVersion"], stored);
        assert!(
            Value::Object(kept.clone()).pointer(field).is_some(),
            "{kept:?}"
        );
        assert_eq!(view.to_shown(kept), original);
    }

    #[test]
    fn events_are_stored_with_the_names_of_the_core_group() {
        let event = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "note": "n", "regarding": {"kind": "Pod"},
            "deprecatedCount": 2, "deprecatedSource": {}, "reportingController": "c",
        });
        there_and_back(
            Convert::Event,
            "events.k8s.io/v1",
            "v1",
            &event,
            "/involvedObject/kind",
        );
    }

    #[test]
    fn autoscalers_keep_what_version_1_has_no_fields_for() {
        let scaler = json!({
            "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
            "metadata": {"annotations": {METRICS: "[{\"type\":\"Pods\"}]", BEHAVIOR: "{\"x\":1}"}},
            "spec": {"targetCPUUtilizationPercentage": 80},
            "status": {"currentCPUUtilizationPercentage": 10, "currentReplicas": 0},
        });
        let pointer = "/spec/metrics/1/type";
        there_and_back(
            Convert::Autoscaler,
            "autoscaling/v1",
            "autoscaling/v2",
            &scaler,
            pointer,
        );
    }
}
