//! Claims grow only if their class can expand volumes.

use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;
use serde_json::Value;

use crate::admission::builtin::objects;
use crate::admission::{Attributes, Decision, Operation, Phase, Plugin};
use crate::builtin::edit;
use crate::builtin::quantity::Quantity;

/// The plugin `PersistentVolumeClaimResize`.
#[derive(Debug)]
pub(crate) struct PersistentVolumeClaimResize;

impl Plugin for PersistentVolumeClaimResize {
    fn handles(&self, phase: Phase, request: &Attributes<'_>) -> bool {
        phase == Phase::Validate
            && request.operation == Operation::Update
            && request.is_for("", "persistentvolumeclaims", "")
    }

    fn validate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a JsonObject>,
    ) -> Decision<'a> {
        Box::pin(async move {
            match object.zip(request.old) {
                Some((new, old)) => check(request, new, old).await,
                None => Ok(()),
            }
        })
    }
}

async fn check(
    request: &Attributes<'_>,
    new: &JsonObject,
    old: &JsonObject,
) -> Result<(), RequestError> {
    let size = |claim| {
        let size = edit::at(claim, &["spec", "resources", "requests", "storage"]);
        size.and_then(Quantity::of).unwrap_or_default()
    };
    if size(new) <= size(old) {
        return Ok(());
    }
    if edit::text_at(old, &["status", "phase"]) != "Bound" {
        let detail = "Only bound persistent volume claims can be expanded";
        return Err(request.forbidden(Some(new), detail).into());
    }
    let class = |claim| {
        let name = "volume.beta.kubernetes.io/storage-class";
        match edit::text_at(claim, &["metadata", "annotations", name]) {
            "" => edit::text_at(claim, &["spec", "storageClassName"]),
            name => name,
        }
    };
    let name = class(new);
    let expands = if name.is_empty() || name != class(old) {
        false
    } else {
        let classes = ("storage.k8s.io", "storageclasses");
        let found = objects::get(request.front, classes, name).await?;
        found.is_some_and(|class| class.get("allowVolumeExpansion") == Some(&Value::Bool(true)))
    };
    if expands {
        return Ok(());
    }
    let detail = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must \
                  support resize";
    Err(request.forbidden(Some(new), detail).into())
}
