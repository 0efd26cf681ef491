//! New nodes are not ready.

use revstore_watch_cache::registry::JsonObject;
use serde_json::{Value, json};

use crate::admission::{Attributes, Decision, Operation, Phase, Plugin};
use crate::builtin::edit;

const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// The plugin `TaintNodesByCondition`.
#[derive(Debug)]
pub(crate) struct TaintNodesByCondition;

impl Plugin for TaintNodesByCondition {
    fn handles(&self, phase: Phase, request: &Attributes<'_>) -> bool {
        phase == Phase::Mutate
            && request.operation == Operation::Create
            && request.is_for("", "nodes", "")
    }

    fn mutate<'a>(
        &'a self,
        _: &'a Attributes<'a>,
        object: Option<&'a mut JsonObject>,
    ) -> Decision<'a> {
        if let Some(spec) = object.and_then(|node| edit::ensure(node, "spec")) {
            edit::set_unset(spec, "taints", json!([]));
            let taints = spec.get_mut("taints").and_then(Value::as_array_mut);
            let is_known =
                |taint: &Value| taint["key"] == NOT_READY && taint["effect"] == "NoSchedule";
            if let Some(taints) = taints.filter(|taints| !taints.iter().any(is_known)) {
                taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
            }
        }
        Box::pin(async { Ok(()) })
    }
}
