//! Namespaces are created with the first object in them.

use revstore_watch_cache::registry::JsonObject;
use serde_json::json;

use crate::admission::builtin::objects;
use crate::admission::{Attributes, Decision, Operation, Phase, Plugin};
use crate::bootstrap;

const NAMESPACES: (&str, &str) = ("", "namespaces");

/// The plugin `NamespaceAutoProvision`.
#[derive(Debug)]
pub(crate) struct NamespaceAutoProvision;

impl Plugin for NamespaceAutoProvision {
    fn handles(&self, phase: Phase, request: &Attributes<'_>) -> bool {
        phase == Phase::Mutate
            && request.operation == Operation::Create
            && !request.dry_run
            && !request.namespace.is_empty()
            && request.kind.kind != "Namespace"
    }

    fn mutate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a mut JsonObject>,
    ) -> Decision<'a> {
        Box::pin(async move {
            let (front, name) = (request.front, request.namespace);
            if objects::get(front, NAMESPACES, name).await?.is_some() {
                return Ok(());
            }
            let namespace =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            let now = (front.storage.now())();
            let created = bootstrap::create_one(&front.catalog, NAMESPACES, "", namespace, &now);
            match created.await {
                Ok(_) => Ok(()),
                Err(error) => Err(request
                    .forbidden(object.as_deref(), &error.to_string())
                    .into()),
            }
        })
    }
}
