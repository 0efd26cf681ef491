//! What pods get from their runtime class: the overhead, the selector of nodes and tolerations.

use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::quoted;
use serde_json::{Value, json};

use super::tolerations;
use crate::admission::builtin::objects;
use crate::admission::{Attributes, Decision, Operation, Phase, Plugin};
use crate::builtin::edit;
use crate::builtin::quantity::Quantity;

/// The group and the resource of the classes.
const CLASSES: (&str, &str) = ("node.k8s.io", "runtimeclasses");
const MISMATCH: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
const UNDEFINED: &str =
    "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";

/// The plugin `RuntimeClass`.
#[derive(Debug)]
pub(crate) struct RuntimeClass;

impl Plugin for RuntimeClass {
    fn handles(&self, _: Phase, request: &Attributes<'_>) -> bool {
        request.operation == Operation::Create && request.is_for("", "pods", "")
    }

    fn mutate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a mut JsonObject>,
    ) -> Decision<'a> {
        Box::pin(async move {
            let Some(pod) = object else {
                return Ok(());
            };
            let Some(class) = class_of(request, pod).await? else {
                return Ok(());
            };
            if let Err(detail) = set_overhead(pod, &class).and_then(|()| schedule(pod, &class)) {
                return Err(request.forbidden(Some(pod), &detail).into());
            }
            Ok(())
        })
    }

    fn validate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a JsonObject>,
    ) -> Decision<'a> {
        Box::pin(async move {
            let Some(pod) = object else {
                return Ok(());
            };
            let class = class_of(request, pod).await?;
            let given = edit::at(pod, &["spec", "overhead"]);
            let detail = match class.as_ref().and_then(overhead_of) {
                Some(fixed) if !is_equal(given, &fixed) => MISMATCH,
                None if given.is_some() || request.exchange.has_empty_overhead => UNDEFINED,
                _ => return Ok(()),
            };
            Err(request.forbidden(object, detail).into())
        })
    }
}

/// Returns the class of a pod.
async fn class_of(
    request: &Attributes<'_>,
    pod: &JsonObject,
) -> Result<Option<JsonObject>, RequestError> {
    let name = edit::at(pod, &["spec", "runtimeClassName"]);
    let Some(name) = name.and_then(Value::as_str) else {
        return Ok(None);
    };
    if name.is_empty() {
        let message = "resource name may not be empty";
        return Err(RequestError::Unclassified(message.to_owned()));
    }
    let class = objects::get(request.front, CLASSES, name).await?;
    if class.is_none() {
        let detail = format!("pod rejected: RuntimeClass {} not found", quoted(name));
        return Err(request.forbidden(Some(pod), &detail).into());
    }
    Ok(class)
}

/// Returns the overhead that a class gives, which may be empty, unless the class says nothing about it.
fn overhead_of(class: &JsonObject) -> Option<JsonObject> {
    let overhead = edit::at(class, &["overhead"])?;
    let fixed = overhead["podFixed"].as_object();
    Some(fixed.cloned().unwrap_or_default())
}

/// Returns whether an overhead has the same amounts as that of a class.
fn is_equal(given: Option<&Value>, fixed: &JsonObject) -> bool {
    let given = given.and_then(Value::as_object);
    let amount = |name: &String| given.and_then(|given| Quantity::of(given.get(name)?));
    given.map_or(0, JsonObject::len) == fixed.len()
        && fixed.iter().all(|(name, fixed)| {
            let amount = amount(name);
            amount.is_some() && amount == Quantity::of(fixed)
        })
}

fn set_overhead(pod: &mut JsonObject, class: &JsonObject) -> Result<(), String> {
    let Some(fixed) = overhead_of(class) else {
        return Ok(());
    };
    let given = edit::at(pod, &["spec", "overhead"]);
    let is_given = given.is_some_and(|given| given.as_object().is_some_and(|it| !it.is_empty()));
    if is_given && !is_equal(given, &fixed) {
        return Err(MISMATCH.to_owned());
    }
    if let Some(spec) = edit::ensure(pod, "spec") {
        if fixed.is_empty() {
            spec.remove("overhead");
        } else {
            spec.insert("overhead".to_owned(), fixed.into());
        }
    }
    Ok(())
}

fn schedule(pod: &mut JsonObject, class: &JsonObject) -> Result<(), String> {
    let Some(scheduling) = edit::at(class, &["scheduling"]) else {
        return Ok(());
    };
    let Some(spec) = edit::ensure(pod, "spec") else {
        return Ok(());
    };
    if let Some(selector) = scheduling["nodeSelector"].as_object()
        && let Some(given) = edit::ensure(spec, "nodeSelector")
    {
        for (key, value) in selector {
            if let Some(found) = given.get(key).filter(|found| *found != value) {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let (value, found) = (text(value), text(found));
                return Err(format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = \
                     {found}"
                ));
            }
            given.insert(key.clone(), value.clone());
        }
    }
    let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let first = list(spec.get("tolerations"));
    let merged = tolerations::merge(&first, &list(scheduling.get("tolerations")));
    spec.insert("tolerations".to_owned(), json!(merged));
    Ok(())
}
