//! Objects are written only to namespaces that exist.

use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{ResourceName, Status};

use crate::admission::builtin::objects;
use crate::admission::{Attributes, Decision, Operation, Phase, Plugin};

/// The plugin `NamespaceExists`.
#[derive(Debug)]
pub(crate) struct NamespaceExists;

impl Plugin for NamespaceExists {
    fn handles(&self, phase: Phase, request: &Attributes<'_>) -> bool {
        phase == Phase::Validate
            && request.operation != Operation::Connect
            && !request.namespace.is_empty()
            && request.kind.kind != "Namespace"
    }

    fn validate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        _: Option<&'a JsonObject>,
    ) -> Decision<'a> {
        Box::pin(async {
            let name = request.namespace;
            match objects::get(request.front, ("", "namespaces"), name).await? {
                Some(_) => Ok(()),
                None => Err(Status::not_found(&ResourceName::new("", "namespaces"), name).into()),
            }
        })
    }
}
