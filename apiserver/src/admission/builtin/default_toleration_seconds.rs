//! Pods stay for a while on nodes that are not ready or not reachable.

use revstore_watch_cache::registry::JsonObject;
use serde_json::{Value, json};

use crate::admission::{Attributes, Decision, Operation, Phase, Plugin};
use crate::builtin::edit;
use crate::builtin::field::Field;

/// The taints of such nodes.
const TAINTS: [&str; 2] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
];
/// The seconds for which a pod stays.
const SECONDS: i64 = 300;

/// The plugin `DefaultTolerationSeconds`.
#[derive(Debug)]
pub(crate) struct DefaultTolerationSeconds;

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
            tolerate(spec);
        }
        Box::pin(async { Ok(()) })
    }
}

fn tolerate(spec: &mut JsonObject) {
    let missing = |key: &&str| {
        let tolerations = Field::root(spec).child("tolerations");
        !tolerations.items().any(|toleration| {
            let found = toleration.child("key").text();
            let effect = toleration.child("effect").text();
            (found.is_empty() || found == *key) && (effect.is_empty() || effect == "NoExecute")
        })
    };
    let missing: Vec<&str> = TAINTS.into_iter().filter(missing).collect();
    for key in missing {
        edit::set_unset(spec, "tolerations", json!([]));
        if let Some(tolerations) = spec.get_mut("tolerations").and_then(Value::as_array_mut) {
            tolerations.push(json!({
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": SECONDS,
            }));
        }
    }
}
