//! Metrics, conditions and the behavior of annotations, as fields of version 2.

use revstore_kinds as kinds;
use revstore_kinds::Storage;
use revstore_watch_cache::registry::JsonObject;
use serde_json::{Map, Value, json};

use super::{Names, SOURCES};

/// The error of a value that does not have the type of its field.
pub(super) struct Mismatch;

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
pub(super) fn list(
    text: &str,
    convert: impl Fn(&Value) -> Result<Value, Mismatch>,
) -> Option<Vec<Value>> {
    match serde_json::from_str(text).ok()? {
        Value::Array(items) => items.iter().map(convert).collect::<Result<_, _>>().ok(),
        Value::Null => Some(Vec::new()),
        _ => None,
    }
}

/// Returns a field of an autoscaler of version 2 if it has the right type.
pub(super) fn checked(outer: &str, field: &str, value: Value) -> Option<Value> {
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

pub(super) fn stored_metric(metric: &Value, names: Names) -> Result<Value, Mismatch> {
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

pub(super) fn stored_condition(condition: &Value) -> Result<Value, Mismatch> {
    let fields = ["type", "status", "lastTransitionTime", "reason", "message"];
    let mut stored = Members::default();
    for field in fields {
        stored = stored.set(field, member(condition, field)?);
    }
    Ok(stored.end())
}

/// Returns the behavior in an annotation, if it says anything.
pub(super) fn stored_behavior(behavior: &Value) -> Result<Option<Value>, Mismatch> {
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
