//! Admission: whether the state of the server allows a write.

use revstore_watch_cache::RequestError;
use revstore_watch_cache::api::{GetOptions, ObjectRef};
use revstore_watch_cache::status::{CauseReason, ResourceName, Status, StatusCause};

use serde::Deserialize;

use crate::catalog::Resource;
use crate::http::Front;

/// The part of a namespace that says whether it is about to be removed.
#[derive(Deserialize)]
struct Terminating {
    metadata: TerminatingMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TerminatingMetadata {
    deletion_timestamp: Option<String>,
}

impl Front {
    /// Checks that objects can be created in a namespace: it exists and is not about to be removed.
    ///
    /// # Errors
    /// 404 or 403.
    // WC-446.
    pub(crate) async fn admit_create(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<(), RequestError> {
        if !resource.namespaced {
            return Ok(());
        }
        let Ok(namespaces) = self.catalog.find("", "v1", "namespaces") else {
            return Ok(());
        };
        let Some(stored) = &namespaces.stored else {
            return Ok(());
        };
        let (reference, options) = (ObjectRef::cluster(namespace), GetOptions::default());
        let Some(found) = stored.cache.get(&reference, &options).await? else {
            let resource = ResourceName::new("", "namespaces");
            return Err(Status::not_found(&resource, namespace).into());
        };
        let is_terminating = serde_json::from_slice::<Terminating>(found.value())
            .is_ok_and(|namespace| namespace.metadata.deletion_timestamp.is_some());
        if !is_terminating {
            return Ok(());
        }
        let detail = format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        );
        let cause = format!("namespace {namespace} is being terminated");
        let status = Status::forbidden(&resource.names.resource_name(), name, &detail);
        let mut cause = StatusCause::new(CauseReason("NamespaceTerminating".into()), cause);
        "metadata.namespace".clone_into(&mut cause.field);
        Err(status.with_causes([cause]).into())
    }
}
