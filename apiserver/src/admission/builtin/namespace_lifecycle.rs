//! Namespaces: nothing is created in one that does not exist or is deleted, and some of them stay.

use revstore_watch_cache::RequestError;
use revstore_watch_cache::api::{GetOptions, ObjectRef};
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{CauseReason, ResourceName, Status, StatusCause};
use serde::Deserialize;

use crate::admission::{Attributes, Decision, Operation, Phase, Plugin};
use crate::http::Front;

/// The namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-public", "kube-system"];

/// The plugin `NamespaceLifecycle`.
#[derive(Debug)]
pub(crate) struct NamespaceLifecycle;

impl Plugin for NamespaceLifecycle {
    fn handles(&self, phase: Phase, request: &Attributes<'_>) -> bool {
        if phase != Phase::Mutate {
            return false;
        }
        let names = &request.resource.names;
        let is_namespace = names.group.is_empty() && names.plural == "namespaces";
        match request.operation {
            Operation::Delete => is_namespace && IMMORTAL.contains(&&*request.name),
            Operation::Create | Operation::Update => {
                // The answer to a question about rights would tell who asks that the namespace exists.
                let is_review = names.group == "authorization.k8s.io";
                request.resource.namespaced && !is_review
            }
            Operation::Connect => false,
        }
    }

    fn mutate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a mut JsonObject>,
    ) -> Decision<'a> {
        let object = object.map(|object| &*object);
        Box::pin(check(request, object))
    }
}

async fn check(request: &Attributes<'_>, object: Option<&JsonObject>) -> Result<(), RequestError> {
    if request.operation == Operation::Delete {
        let detail = "this namespace may not be deleted";
        return Err(request.forbidden(object, detail).into());
    }
    let namespace = request.namespace;
    let is_create = request.operation == Operation::Create;
    match is_terminating(request.front, namespace, is_create).await? {
        Some(true) if is_create => {
            let detail = format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            );
            let status = request.forbidden(object, &detail);
            let message = format!("namespace {namespace} is being terminated");
            let reason = CauseReason("NamespaceTerminating".into());
            let mut cause = StatusCause::new(reason, message);
            "metadata.namespace".clone_into(&mut cause.field);
            Err(status.with_causes([cause]).into())
        }
        Some(_) => Ok(()),
        None => {
            let resource = ResourceName::new("", "namespaces");
            Err(Status::not_found(&resource, namespace).into())
        }
    }
}

/// Returns whether the deletion of a namespace has begun; `None` if it does not exist. `is_exact` is whether the answer
/// must be that of the store; otherwise the cache answers if it knows the namespace.
async fn is_terminating(
    front: &Front,
    namespace: &str,
    is_exact: bool,
) -> Result<Option<bool>, RequestError> {
    #[derive(Deserialize)]
    struct Terminating {
        metadata: Metadata,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        deletion_timestamp: Option<String>,
    }

    let Ok(resource) = front.catalog.find("", "v1", "namespaces") else {
        return Ok(None);
    };
    let Some(stored) = &resource.stored else {
        return Ok(None);
    };
    let reference = ObjectRef::cluster(namespace);
    let mut found = None;
    if !is_exact {
        let any = GetOptions::default().resource_version("0");
        found = stored.cache.get(&reference, &any).await?;
    }
    if found.is_none() {
        found = stored.cache.get(&reference, &GetOptions::default()).await?;
    }
    Ok(found.map(|object| {
        serde_json::from_slice::<Terminating>(object.value())
            .is_ok_and(|object| object.metadata.deletion_timestamp.is_some())
    }))
}
