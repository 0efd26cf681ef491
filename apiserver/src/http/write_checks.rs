//! What a write needs besides its authorization and the [`admission`](crate::admission): no plugin turns it off.

use revstore_watch_cache::RequestError;
use revstore_watch_cache::api::{GetOptions, ObjectRef};
use revstore_watch_cache::status::Status;
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
    /// Checks that the definition of a custom resource is not about to be removed with its objects.
    ///
    /// # Errors
    /// 403.
    pub(crate) async fn check_definition(
        &self,
        resource: &Resource,
        name: &str,
    ) -> Result<(), RequestError> {
        if resource.origin != Origin::Custom {
            return Ok(());
        }
        let own = resource.names.resource_name();
        let definition = format!("{}.{}", own.plural, own.group);
        let Ok(definitions) = self
            .catalog
            .find(definition::GROUP, "v1", definition::PLURAL)
        else {
            return Ok(());
        };
        let Some(stored) = &definitions.stored else {
            return Ok(());
        };
        // From the store, not from the cache.
        let (reference, options) = (ObjectRef::cluster(definition), GetOptions::default());
        let found = stored.cache.get(&reference, &options).await?;
        let is_terminating = found.is_some_and(|object| {
            serde_json::from_slice::<Terminating>(object.value())
                .is_ok_and(|object| object.metadata.deletion_timestamp.is_some())
        });
        if is_terminating {
            let detail = "create not allowed while custom resource definition is terminating";
            return Err(Status::forbidden(&own, name, detail).into());
        }
        Ok(())
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

    /// Checks that the user of an update that creates its object may create it.
    ///
    /// # Errors
    /// 403.
    pub(crate) fn check_create_on_update(
        &self,
        exchange: &Exchange,
        resource: &Resource,
    ) -> Result<(), RequestError> {
        if !resource.rules.creates_on_update() {
            // The update fails.
            return Ok(());
        }
        let create = exchange.info.attributes().with_verb("create");
        self.authorizer.check(&exchange.user, create)
    }
}
