//! Evictions of pods.

use std::sync::Arc;

use revstore_host::net::RequestBody;
use revstore_watch_cache::api::{GetOptions, ObjectRef, Preconditions};
use revstore_watch_cache::registry::{JsonObject, WriteRequest};
use revstore_watch_cache::status::{Reason, ResourceName, Status, StatusCause};
use revstore_watch_cache::{ListOptions, RequestError, Scope};

use crate::admission::{Admission, Operation};
use crate::builtin::{self, EvictionCase};
use crate::catalog::{Resource, Stored};
use crate::decode::{DeleteOptions, WriteOptions};
use crate::http::{Answer, CREATED, Exchange, Form, Front, Target};
use crate::verbs::body::read_plain;
use crate::verbs::delete::request;
use crate::verbs::offer;
use crate::verbs::read::{decoded, reference};
use crate::verbs::subresource::pod::{created, not_found};
use crate::verbs::subresource::{
    check_name, clear_system_fields, name_of, set_namespace, version_of,
};

/// The number of attempts of an eviction whose pod other requests change meanwhile, as in kube-apiserver. It pauses for
/// 500 ms after each, since the pod may come from a cache; here the next attempt reads what the other request has written.
const ATTEMPTS_MAX: usize = 20;

/// Answers an `Eviction`, which deletes a pod unless a disruption budget forbids it.
pub(crate) async fn evict(
    front: &Front,
    exchange: &mut Exchange,
    resource: &Resource,
    stored: &Stored,
    target: &Target,
    body: RequestBody,
) -> Result<Answer, RequestError> {
    let accepted = exchange.negotiate(offer(resource, &[Form::Whole]))?;
    let mut eviction = read_plain(exchange, "Eviction", body).await?;
    let is_dry = WriteOptions::create(&exchange.query)?.dry_run;
    delete_options(&eviction)?;
    set_namespace("Eviction", &mut eviction, &target.namespace)?;
    clear_system_fields(&mut eviction);
    let admission = Admission {
        front,
        exchange,
        resource,
        target,
        // A dry run by the options of the deletion is none of the eviction.
        dry_run: is_dry,
        deletion: None,
    };
    let mutated = admission.mutate(Operation::Create, Some(&mut eviction), None);
    mutated.await?;
    check_name("Eviction", &eviction, &target.name)?;
    // As webhooks leave them.
    let mut options = delete_options(&eviction)?;
    options.dry_run |= is_dry;
    if options.ignore_store_read_error {
        let field = "deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential";
        let detail = "can not be set for pod eviction, try after removing the option";
        let kind = ResourceName::new("policy", "Eviction");
        let cause = StatusCause::invalid(field, true, detail);
        return Err(Status::invalid(&kind, &target.name, vec![cause]).into());
    }
    let validated = admission.validate(Operation::Create, Some(&eviction), None);
    validated.await?;
    let eviction = Eviction {
        front,
        resource,
        stored,
        target,
        options: &options,
    };
    eviction.execute().await?;
    Ok(Answer::value(CREATED, accepted, &created()))
}

fn delete_options(eviction: &JsonObject) -> Result<DeleteOptions, RequestError> {
    match eviction.get("deleteOptions") {
        Some(options) if !options.is_null() => Ok(DeleteOptions::from_body(options)?),
        _ => Ok(DeleteOptions::default()),
    }
}

/// An eviction that is admitted.
struct Eviction<'a> {
    front: &'a Front,
    resource: &'a Resource,
    stored: &'a Stored,
    target: &'a Target,
    options: &'a DeleteOptions,
}

impl Eviction<'_> {
    /// Deletes the pod, and counts this in its disruption budget, if it has one.
    async fn execute(&self) -> Result<(), RequestError> {
        let given = &self.options.preconditions;
        let is_repeated = given.resource_version.is_none();
        let pod = repeated(is_repeated, || self.delete_unprotected()).await?;
        let Some(pod) = pod else {
            return Ok(());
        };
        let budgets = self.budgets().await?;
        let Some(budget) = builtin::budget_of(&pod, &budgets.objects)? else {
            return self.delete(given.clone()).await;
        };
        if builtin::counts_eviction(budget, &pod) {
            self.count(&budgets, name_of(budget)).await?;
            return self.delete(given.clone()).await;
        }
        // The pod must not have become ready meanwhile.
        let conditions = given.clone().resource_version(version_of(&pod));
        match self.delete(conditions).await {
            Err(error) if is_repeated && is_conflict(&error) => {
                Err(builtin::unprocessed_budget(name_of(budget)))
            }
            result => result,
        }
    }

    /// Deletes the pod if no disruption budget can protect it, or returns it.
    async fn delete_unprotected(&self) -> Result<Option<JsonObject>, RequestError> {
        let pod = self.pod().await?;
        let mut conditions = self.options.preconditions.clone();
        match EvictionCase::of(&pod) {
            EvictionCase::Running => return Ok(Some(pod)),
            EvictionCase::Pending if conditions.resource_version.is_none() => {
                conditions = conditions.resource_version(version_of(&pod));
            }
            EvictionCase::Pending | EvictionCase::Ended => {}
        }
        self.delete(conditions).await?;
        Ok(None)
    }

    /// Returns the current version of the pod.
    async fn pod(&self) -> Result<JsonObject, RequestError> {
        let reference = reference(self.resource, self.target);
        let options = GetOptions::default();
        let found = self.stored.cache.get(&reference, &options).await?;
        let Some(pod) = found else {
            return Err(not_found(self.resource, self.target));
        };
        decoded(self.resource, self.stored, &pod)
    }

    /// Counts the eviction in a disruption budget. Other evictions may count in it meanwhile.
    async fn count(&self, budgets: &Budgets, name: &str) -> Result<(), RequestError> {
        let Some(stored) = &budgets.stored else {
            return Ok(());
        };
        let now = self.front.now();
        let reference = ObjectRef::namespaced(&*self.target.namespace, name);
        let write = WriteRequest::default().dry_run(self.options.dry_run);
        let missing = || {
            let resource = ResourceName::new("policy", "poddisruptionbudgets");
            RequestError::from(Status::not_found(&resource, name))
        };
        let count = |budget: Option<&JsonObject>| {
            let budget = budget.ok_or_else(missing)?;
            builtin::count_eviction(budget, &self.target.name, &now)
        };
        let counted = stored.prepared.update_with(&reference, &write, count);
        counted.await?;
        Ok(())
    }

    /// Deletes the pod, which gets the condition of one that is evicted, if preconditions hold.
    async fn delete(&self, mut conditions: Preconditions) -> Result<(), RequestError> {
        let reference = reference(self.resource, self.target);
        if !self.options.dry_run {
            let now = self.front.now();
            let mark = |pod: Option<&JsonObject>| match pod {
                Some(pod) => builtin::mark_evicted(pod, &conditions, &now),
                None => Err(not_found(self.resource, self.target)),
            };
            let (pods, write) = (&self.stored.prepared, WriteRequest::default());
            let marked = pods.update_with(&reference, &write, mark).await?;
            if conditions.resource_version.is_some() {
                conditions = conditions.resource_version(version_of(&marked.object));
            }
        }
        let request = request(self.resource, self.options).preconditions(conditions);
        self.stored.store.delete(&reference, &request).await?;
        Ok(())
    }

    /// Returns the disruption budgets of the namespace.
    async fn budgets(&self) -> Result<Budgets, RequestError> {
        let catalog = &self.front.catalog;
        let found = catalog.find("policy", "v1", "poddisruptionbudgets").ok();
        let stored = found.as_ref().and_then(|resource| resource.stored.clone());
        let mut objects = Vec::new();
        if let (Some(resource), Some(stored)) = (&found, &stored) {
            let scope = Scope::Namespace(self.target.namespace.clone());
            let list = stored.cache.list(&scope, &ListOptions::default()).await?;
            for object in list.items {
                objects.push(decoded(resource, stored, &object?)?);
            }
        }
        Ok(Budgets { objects, stored })
    }
}

/// The disruption budgets of a namespace.
struct Budgets {
    objects: Vec<JsonObject>,
    stored: Option<Arc<Stored>>,
}

/// Returns the result of an attempt. It is repeated after conflicts, if `is_repeated`.
async fn repeated<T, F: Future<Output = Result<T, RequestError>>>(
    is_repeated: bool,
    mut attempt: impl FnMut() -> F,
) -> Result<T, RequestError> {
    let mut attempts = 1;
    loop {
        match attempt().await {
            Err(error) if is_repeated && attempts < ATTEMPTS_MAX && is_conflict(&error) => {
                attempts += 1;
            }
            result => return result,
        }
    }
}

fn is_conflict(error: &RequestError) -> bool {
    match error {
        RequestError::Conflict { .. } => true,
        RequestError::Reported(status) => status.reason == Some(Reason::Conflict),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn conflicts_are_repeated_without_a_precondition() {
        let conflict = || {
            let resource = ResourceName::new("", "Pod");
            RequestError::from(Status::conflict(&resource, "a", "it was faster"))
        };
        for (is_repeated, conflicts, expected) in [
            (true, 0, Ok(0)),
            (true, ATTEMPTS_MAX - 1, Ok(ATTEMPTS_MAX - 1)),
            (true, ATTEMPTS_MAX, Err(conflict())),
            (false, 1, Err(conflict())),
        ] {
            let mut made = 0;
            let result = repeated(is_repeated, || {
                let number = made;
                made += 1;
                async move {
                    if number < conflicts {
                        Err(conflict())
                    } else {
                        Ok(number)
                    }
                }
            });
            assert_eq!(result.await, expected, "{is_repeated} {conflicts}");
        }
        let mut made = 0;
        let other = || RequestError::BadRequest("no".to_owned());
        let result: Result<(), _> = repeated(true, || {
            made += 1;
            async { Err(other()) }
        })
        .await;
        assert_eq!((result, made), (Err(other()), 1));
    }
}
