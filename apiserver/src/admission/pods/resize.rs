//! Pods are resized only on nodes that can do it, and have room for it.

use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{CauseReason, StatusCause, quoted};
use serde_json::Value;

use crate::admission::builtin::objects;
use crate::admission::{Attributes, Decision, Operation, Phase, Plugin};
use crate::builtin::edit;
use crate::quota::{Amount, pod_requests};

/// The label of nodes with their operating system.
const OS: &str = "kubernetes.io/os";
/// The features of nodes that a change of the resources of an init container, or of a pod as a whole, needs.
const INIT_CONTAINERS: &str = "InPlacePodVerticalScalingInitContainers";
const POD_LEVEL: &str = "InPlacePodLevelResourcesVerticalScaling";

/// The plugin `PodResizeValidator`.
#[derive(Debug)]
pub(crate) struct PodResizeValidator;

impl Plugin for PodResizeValidator {
    fn handles(&self, phase: Phase, request: &Attributes<'_>) -> bool {
        phase == Phase::Validate
            && request.operation == Operation::Update
            && request.is_for("", "pods", "resize")
    }

    fn validate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a JsonObject>,
    ) -> Decision<'a> {
        Box::pin(async move {
            let Some(pod) = object.filter(|pod| has_changed(request, pod)) else {
                return Ok(());
            };
            let (name, node) = node_of(request, pod).await?;
            let (reason, detail) = match (other_system(&node), no_room(pod, &node)) {
                (Some(system), _) => {
                    let (node, system) = (quoted(name), quoted(system));
                    let detail = format!(
                        "pod resize is only supported on linux nodes, node {node} is {system}"
                    );
                    ("UnsupportedPlatform", detail)
                }
                (None, Some(detail)) => ("NodeCapacity", detail),
                (None, None) => return Ok(()),
            };
            let cause = StatusCause {
                reason: CauseReason(reason.into()),
                ..StatusCause::default()
            };
            let refusal = request.forbidden(object, &detail).with_causes([cause]);
            Err(refusal.into())
        })
    }
}

/// Returns the node of a pod, with its name.
async fn node_of<'a>(
    request: &Attributes<'_>,
    pod: &'a JsonObject,
) -> Result<(&'a str, JsonObject), RequestError> {
    let name = edit::text_at(pod, &["spec", "nodeName"]);
    let Some(node) = objects::get(request.front, ("", "nodes"), name).await? else {
        let detail = format!("node {} not found", quoted(name));
        return Err(request.forbidden(Some(pod), &detail).into());
    };
    Ok((name, node))
}

/// Returns whether a pod is bound to a node, and its specification differs from the current one.
fn has_changed(request: &Attributes<'_>, pod: &JsonObject) -> bool {
    let is_bound = !edit::text_at(pod, &["spec", "nodeName"]).is_empty();
    let generation = |pod: &JsonObject| edit::at(pod, &["metadata", "generation"]).cloned();
    is_bound
        && request
            .old
            .is_some_and(|old| generation(old) != generation(pod))
}

/// Returns the operating system of a node if it is not Linux.
fn other_system(node: &JsonObject) -> Option<&str> {
    let system = edit::at(node, &["metadata", "labels", OS])?.as_str()?;
    (system != "linux").then_some(system)
}

/// Returns what a node has not enough of.
fn no_room(pod: &JsonObject, node: &JsonObject) -> Option<String> {
    let requests = pod_requests(pod.get("spec").unwrap_or(&Value::Null));
    let mut missing = Vec::new();
    for name in ["cpu", "memory"] {
        let number = |amount: &Amount| match name {
            "cpu" => amount.thousandths(),
            _ => amount.whole(),
        };
        let allocatable = edit::at(node, &["status", "allocatable", name]);
        let allocatable = allocatable.and_then(Amount::of).unwrap_or_default();
        let requested = requests.get(name).cloned().unwrap_or_default();
        if requested.exceeds(&allocatable) {
            let (requested, allocatable) = (number(&requested), number(&allocatable));
            missing.push(format!(
                "{name}, requested: {requested}, allocatable: {allocatable}"
            ));
        }
    }
    (!missing.is_empty()).then(|| {
        let missing = missing.join("; ");
        format!("node didn't have enough allocatable resources: {missing}")
    })
}

/// The plugin `NodeDeclaredFeatureValidator`.
#[derive(Debug)]
pub(crate) struct NodeDeclaredFeatureValidator;

impl Plugin for NodeDeclaredFeatureValidator {
    fn handles(&self, phase: Phase, request: &Attributes<'_>) -> bool {
        phase == Phase::Validate
            && request.operation == Operation::Update
            && (request.is_for("", "pods", "") || request.is_for("", "pods", "resize"))
    }

    fn validate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a JsonObject>,
    ) -> Decision<'a> {
        Box::pin(async move {
            let Some((pod, old)) = object.zip(request.old) else {
                return Ok(());
            };
            if !has_changed(request, pod) {
                return Ok(());
            }
            let mut needed = needed_features(pod, old);
            if needed.is_empty() {
                return Ok(());
            }
            let (name, node) = node_of(request, pod).await?;
            let declared = edit::at(&node, &["status", "declaredFeatures"]);
            let declared = declared.and_then(Value::as_array);
            needed.retain(|name| !declared.is_some_and(|all| all.contains(&(*name).into())));
            if needed.is_empty() {
                return Ok(());
            }
            let (needed, node) = (needed.join(", "), quoted(name));
            let detail = format!(
                "pod update requires features {needed} which are not available on node {node}"
            );
            Err(request.forbidden(object, &detail).into())
        })
    }
}

/// Returns the features that a node must have for an update of a pod.
fn needed_features(pod: &JsonObject, old: &JsonObject) -> Vec<&'static str> {
    let containers = |pod| edit::at(pod, &["spec", "initContainers"]).and_then(Value::as_array);
    let mut pairs =
        (containers(old).into_iter().flatten()).zip(containers(pod).into_iter().flatten());
    let resized = pairs
        .any(|(old, new)| old["restartPolicy"] != "Always" && old["resources"] != new["resources"]);
    let whole = |pod| edit::at(pod, &["spec", "resources"]);
    let mut needed = Vec::new();
    // In the order of their names.
    if whole(pod) != whole(old) {
        needed.push(POD_LEVEL);
    }
    if resized {
        needed.push(INIT_CONTAINERS);
    }
    needed
}
