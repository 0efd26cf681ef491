//! Admission: whether the state of the server allows a write.

use revstore_watch_cache::RequestError;
use revstore_watch_cache::api::{GetOptions, ObjectRef};
use revstore_watch_cache::status::{CauseReason, ResourceName, Status, StatusCause};

use revstore_watch_cache::registry::JsonObject;
use serde::Deserialize;

use crate::auth::{PolicyKind, PolicyWrite, RBAC_GROUP};
use crate::catalog::{Origin, Resource};
use crate::custom::definition;
use crate::http::{Exchange, Front, Target};

/// The part of an object that says whether its deletion has begun.
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
    /// Checks that objects can be created: the definition of a custom resource and the namespace exist and are not
    /// about to be removed.
    ///
    /// # Errors
    /// 404 or 403.
    pub(crate) async fn admit_create(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<(), RequestError> {
        let own = resource.names.resource_name();
        if resource.origin == Origin::Custom {
            let definition = format!("{}.{}", own.plural, own.group);
            let (group, plural) = (definition::GROUP, definition::PLURAL);
            if self.is_terminating(group, plural, &definition).await? == Some(true) {
                let detail = "create not allowed while custom resource definition is terminating";
                return Err(Status::forbidden(&own, name, detail).into());
            }
        }
        if !resource.namespaced {
            return Ok(());
        }
        match self.is_terminating("", "namespaces", namespace).await? {
            Some(false) => Ok(()),
            Some(true) => {
                let detail = format!(
                    "unable to create new content in namespace {namespace} because it is being terminated"
                );
                let status = Status::forbidden(&own, name, &detail);
                let message = format!("namespace {namespace} is being terminated");
                let reason = CauseReason("NamespaceTerminating".into());
                let mut cause = StatusCause::new(reason, message);
                "metadata.namespace".clone_into(&mut cause.field);
                Err(status.with_causes([cause]).into())
            }
            None => {
                let resource = ResourceName::new("", "namespaces");
                Err(Status::not_found(&resource, namespace).into())
            }
        }
    }

    /// Returns who writes what, if it is a role or a binding: nobody grants more than they may do themselves.
    pub(crate) fn policy_write<'a>(
        exchange: &'a Exchange,
        resource: &Resource,
        target: &'a Target,
    ) -> Option<PolicyWrite<'a>> {
        if resource.names.group != RBAC_GROUP {
            return None;
        }
        Some(PolicyWrite {
            user: &exchange.user,
            kind: PolicyKind::of_plural(&resource.names.plural)?,
            namespace: &target.namespace,
            name: &target.name,
        })
    }

    /// Checks the update of an object whose current version is `old`. An update that creates the object also needs the
    /// right to create, and the update of a role or binding may grant only what the user has.
    ///
    /// # Errors
    /// 403.
    pub(crate) fn admit_update(
        &self,
        exchange: &Exchange,
        resource: &Resource,
        target: &Target,
        object: &JsonObject,
        old: Option<&JsonObject>,
    ) -> Result<(), RequestError> {
        if old.is_none() {
            if !resource.rules.creates_on_update() {
                // The update fails.
                return Ok(());
            }
            let create = exchange.info.attributes().with_verb("create");
            self.authorizer.check(&exchange.user, create)?;
        }
        let policy_write = Self::policy_write(exchange, resource, target);
        policy_write.map_or(Ok(()), |write| write.check(&self.authorizer, object, old))
    }

    /// Returns whether the deletion of an object of a cluster-scoped built-in resource has begun; `None` if it does not
    /// exist. Reads from the store, not from the cache.
    async fn is_terminating(
        &self,
        group: &str,
        plural: &str,
        name: &str,
    ) -> Result<Option<bool>, RequestError> {
        let Ok(resource) = self.catalog.find(group, "v1", plural) else {
            return Ok(None);
        };
        let Some(stored) = &resource.stored else {
            return Ok(None);
        };
        let (reference, options) = (ObjectRef::cluster(name), GetOptions::default());
        let found = stored.cache.get(&reference, &options).await?;
        Ok(found.map(|object| {
            serde_json::from_slice::<Terminating>(object.value())
                .is_ok_and(|object| object.metadata.deletion_timestamp.is_some())
        }))
    }
}
