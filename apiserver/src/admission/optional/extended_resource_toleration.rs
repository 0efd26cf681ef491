//! Pods that use extended resources may run on nodes that are reserved for these.

use std::collections::BTreeSet;

use revstore_watch_cache::registry::JsonObject;
use serde_json::{Value, json};

use crate::admission::{Attributes, Decision, Operation, Phase, Plugin};
use crate::builtin::{edit, is_extended};

/// The plugin `ExtendedResourceToleration`.
#[derive(Debug)]
pub(crate) struct ExtendedResourceToleration;

impl Plugin for ExtendedResourceToleration {
    fn handles(&self, phase: Phase, request: &Attributes<'_>) -> bool {
        phase == Phase::Mutate
            && matches!(request.operation, Operation::Create | Operation::Update)
            && request.is_for("", "pods", "")
    }

    fn mutate<'a>(
        &'a self,
        _: &'a Attributes<'a>,
        object: Option<&'a mut JsonObject>,
    ) -> Decision<'a> {
        if let Some(spec) = object.and_then(|pod| edit::child_mut(pod, "spec")) {
            tolerate(spec);
        }
        Box::pin(async { Ok(()) })
    }
}

fn tolerate(spec: &mut JsonObject) {
    let mut names = BTreeSet::new();
    for list in ["containers", "initContainers"] {
        for container in edit::items_mut(spec, list) {
            let requests = edit::at(container, &["resources", "requests"]);
            let requests = requests.and_then(Value::as_object).into_iter().flatten();
            names.extend(
                requests
                    .map(|(name, _)| name.clone())
                    .filter(|it| is_extended(it)),
            );
        }
    }
    if names.is_empty() {
        return;
    }
    edit::set_unset(spec, "tolerations", json!([]));
    let Some(tolerations) = spec.get_mut("tolerations").and_then(Value::as_array_mut) else {
        return;
    };
    for toleration in tolerations.iter_mut() {
        // One of the same key, effect, operator and value is for ever.
        let is_same = toleration["operator"] == "Exists"
            && toleration["effect"] == "NoSchedule"
            && toleration["value"].as_str().unwrap_or_default().is_empty();
        if is_same
            && let Some(key) = toleration["key"].as_str().map(ToOwned::to_owned)
            && names.remove(&key)
        {
            *toleration = unlimited(&key);
        }
    }
    tolerations.extend(names.iter().map(|name| unlimited(name)));
}

fn unlimited(key: &str) -> Value {
    json!({"key": key, "operator": "Exists", "effect": "NoSchedule"})
}
