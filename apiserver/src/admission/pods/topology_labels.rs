//! Pods get the zone and the region of their node.

use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;

use crate::admission::builtin::objects;
use crate::admission::{Attributes, Decision, Operation, Phase, Plugin};
use crate::builtin::edit;

/// The labels that are copied.
const LABELS: [&str; 2] = [
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// The plugin `PodTopologyLabels`. A binding gets the labels, from which the pod has them.
#[derive(Debug)]
pub(crate) struct PodTopologyLabels;

impl Plugin for PodTopologyLabels {
    fn handles(&self, phase: Phase, request: &Attributes<'_>) -> bool {
        phase == Phase::Mutate
            && request.operation == Operation::Create
            && (request.is_for("", "pods", "") || request.is_for("", "pods", "binding"))
    }

    fn mutate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a mut JsonObject>,
    ) -> Decision<'a> {
        Box::pin(async move {
            match object {
                Some(object) => copy(request, object).await,
                None => Ok(()),
            }
        })
    }
}

async fn copy(request: &Attributes<'_>, object: &mut JsonObject) -> Result<(), RequestError> {
    let node = match request.subresource {
        "" => edit::text_at(object, &["spec", "nodeName"]),
        _ if edit::text_at(object, &["target", "kind"]) == "Node" => {
            edit::text_at(object, &["target", "name"])
        }
        _ => "",
    };
    if node.is_empty() {
        return Ok(());
    }
    let Some(node) = objects::get(request.front, ("", "nodes"), node).await? else {
        return Ok(());
    };
    for label in LABELS {
        let value = edit::at(&node, &["metadata", "labels", label]);
        if let Some(value) = value
            && let Some(metadata) = edit::ensure(object, "metadata")
            && let Some(labels) = edit::ensure(metadata, "labels")
        {
            labels.insert(label.to_owned(), value.clone());
        }
    }
    Ok(())
}
