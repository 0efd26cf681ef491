//! Pods stay for a while on nodes that are not ready or not reachable.

use revstore_watch_cache::registry::JsonObject;
use serde_json::{Value, json};

use crate::admission::{Attributes, Decision, Operation, Phase, Plugin};
use crate::builtin::edit;
use crate::builtin::field::Field;

/// The seconds for which pods that say nothing about it stay on a node with a problem
/// (`--default-not-ready-toleration-seconds`, `--default-unreachable-toleration-seconds`). Negative numbers are as 0:
/// pods leave at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TolerationSeconds {
    /// On a node that is not ready.
    pub not_ready: i64,
    /// On a node that cannot be reached.
    pub unreachable: i64,
}

impl Default for TolerationSeconds {
    /// Returns 300 s for both.
    fn default() -> Self {
        Self {
            not_ready: 300,
            unreachable: 300,
        }
    }
}

/// The plugin `DefaultTolerationSeconds`.
#[derive(Debug)]
pub(crate) struct DefaultTolerationSeconds(pub(crate) TolerationSeconds);

impl Plugin for DefaultTolerationSeconds {
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
        if let Some(spec) = object.and_then(|pod| edit::ensure(pod, "spec")) {
            tolerate(spec, self.0);
        }
        Box::pin(async { Ok(()) })
    }
}

fn tolerate(spec: &mut JsonObject, seconds: TolerationSeconds) {
    let taints = [
        ("node.kubernetes.io/not-ready", seconds.not_ready),
        ("node.kubernetes.io/unreachable", seconds.unreachable),
    ];
    let missing = |(key, _): &(&str, i64)| {
        let tolerations = Field::root(spec).child("tolerations");
        !tolerations.items().any(|toleration| {
            let found = toleration.child("key").text();
            let effect = toleration.child("effect").text();
            (found.is_empty() || found == *key) && (effect.is_empty() || effect == "NoExecute")
        })
    };
    let missing: Vec<(&str, i64)> = taints.into_iter().filter(missing).collect();
    for (key, seconds) in missing {
        edit::set_unset(spec, "tolerations", json!([]));
        if let Some(tolerations) = spec.get_mut("tolerations").and_then(Value::as_array_mut) {
            tolerations.push(json!({
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": seconds,
            }));
        }
    }
}
