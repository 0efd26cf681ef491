//! The store of one resource: deletions.

use std::time::Duration;

use revstore_engine::Revision;
use serde_json::{Value, json};

use crate::api::keys::ObjectRef;
use crate::api::options::GetOptions;
use crate::api::status::RequestError;
use crate::api::storage::{DeleteOptions, Preconditions, Update, UpdateOptions};
use crate::registry::metadata;
use crate::registry::object_store::{decode, encode, raise_generation, show_revision, show_stored};
use crate::registry::{Admit, AdmitAll, JsonObject, ObjectStore};

/// What happens to the objects that an object owns when it is deleted. The deletion itself only sets or
/// removes the finalizer by which a garbage collector is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Propagation {
    /// They are deleted after the object.
    Background,
    /// They are deleted before the object.
    Foreground,
    /// They stay.
    Orphan,
}

/// How an object is deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeleteRequest {
    /// The conditions on the current version.
    pub preconditions: Preconditions,
    /// What happens to the objects that it owns; `None` to leave its finalizers as they are.
    pub propagation: Option<Propagation>,
    /// The grace period in seconds, for resources that have one.
    pub grace_period_seconds: Option<i64>,
    /// Whether to check everything and to write nothing.
    pub dry_run: bool,
}

impl DeleteRequest {
    /// Sets the conditions on the current version.
    #[must_use]
    pub fn preconditions(mut self, preconditions: Preconditions) -> Self {
        self.preconditions = preconditions;
        self
    }

    /// Sets what happens to the objects that the object owns.
    #[must_use]
    pub fn propagation(mut self, propagation: impl Into<Option<Propagation>>) -> Self {
        self.propagation = propagation.into();
        self
    }

    /// Sets the grace period in seconds.
    #[must_use]
    pub fn grace_period_seconds(mut self, seconds: impl Into<Option<i64>>) -> Self {
        self.grace_period_seconds = seconds.into();
        self
    }

    /// Sets whether to check everything and to write nothing.
    #[must_use]
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }
}

/// The result of a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Deleted {
    /// The object is removed; this is its last version.
    Removed(JsonObject),
    /// The deletion has begun: finalizers or the grace period hold the object.
    Terminating(JsonObject),
}

impl ObjectStore {
    /// Deletes an object. One with finalizers, or with a grace period, gets a deletion timestamp instead,
    /// and is removed by the update that removes its last finalizer, or by a deletion without a grace
    /// period. Another deletion of such an object changes nothing, unless it shortens the grace period.
    ///
    /// # Errors
    /// - [`RequestError::NotFound`].
    /// - [`RequestError::Conflict`] if a precondition does not hold.
    /// - Errors of the storage, among them [`RequestError::Corrupt`].
    // WC-419, WC-447, WC-448.
    pub async fn delete(
        &self,
        object: &ObjectRef,
        request: &DeleteRequest,
    ) -> Result<Deleted, RequestError> {
        self.delete_admitted(object, request, &mut AdmitAll).await
    }

    /// Deletes an object as [`delete`](Self::delete) does, if it is admitted.
    ///
    /// # Errors
    /// As [`delete`](Self::delete), and those of `admission`.
    pub async fn delete_admitted(
        &self,
        object: &ObjectRef,
        request: &DeleteRequest,
        admission: &mut dyn Admit,
    ) -> Result<Deleted, RequestError> {
        loop {
            let current = self.storage.get(object, &GetOptions::default()).await?;
            let Some(current) = current else {
                return Err(self.not_found(object));
            };
            let old = decode(&current)?;
            if let Err(reason) = request.preconditions.check(&current) {
                return Err(RequestError::Conflict {
                    resource: self.kind.clone(),
                    name: object.name.clone(),
                    reason: Box::new(reason.of_deletion()),
                });
            }
            admission.admit(None, Some(&old)).await?;
            let (new, removes) = self.marked(&old, request);
            if request.dry_run {
                return Ok(if removes {
                    Deleted::Removed(new)
                } else {
                    Deleted::Terminating(new)
                });
            }
            let mut new = new;
            let revision = if new == old || removes && !metadata::is_terminating(&old) {
                show_revision(&mut new, current.revision());
                Some(current.revision())
            } else {
                self.replace(object, &mut new, current.revision()).await?
            };
            let Some(revision) = revision else {
                continue;
            };
            if !removes {
                return Ok(Deleted::Terminating(new));
            }
            if let Some(removed) = self.remove(object, revision, &old).await? {
                let text = removed.to_string();
                metadata::set(&mut new, "resourceVersion", Some(text.into()));
                return Ok(Deleted::Removed(new));
            }
        }
    }

    /// Returns the version of an object that a deletion leaves, and whether it is removed then.
    fn marked(&self, old: &JsonObject, request: &DeleteRequest) -> (JsonObject, bool) {
        let mut new = old.clone();
        if let Some(propagation) = request.propagation {
            set_propagation(&mut new, propagation);
        }
        let grace = self
            .strategy
            .grace_period_seconds(old, request.grace_period_seconds)
            .max(0);
        let is_held = self.strategy.is_held(&new);
        let removes = grace == 0 && !is_held && metadata::finalizers(&new).is_empty();
        let old_grace = metadata::field(old, "deletionGracePeriodSeconds").and_then(Value::as_i64);
        if removes && !metadata::is_terminating(old) && !self.strategy.is_graceful() {
            return (old.clone(), true);
        }
        // A deletion that has begun can only be shortened.
        if metadata::is_terminating(old) && old_grace.unwrap_or_default() <= grace {
            return (new, removes);
        }
        let after = Duration::from_secs(grace.unsigned_abs());
        let timestamp = self.origin.timestamp(after);
        if !metadata::is_terminating(old) {
            raise_generation(&mut new);
        }
        metadata::set(&mut new, "deletionTimestamp", Some(timestamp.into()));
        if !is_held {
            metadata::set(&mut new, "deletionGracePeriodSeconds", Some(json!(grace)));
        }
        if !removes {
            self.strategy.prepare_delete(&mut new);
        }
        (new, removes)
    }

    /// Replaces the version `replaced` of an object by `new`, which becomes what is stored. Returns the new revision, or
    /// `None` if another write was faster.
    async fn replace(
        &self,
        object: &ObjectRef,
        new: &mut JsonObject,
        replaced: Revision,
    ) -> Result<Option<Revision>, RequestError> {
        metadata::set(new, "resourceVersion", None);
        let value = encode(new);
        let conditions = Preconditions::default().resource_version(replaced.to_string());
        let options = UpdateOptions::default().preconditions(conditions);
        let update = Box::new(|_: Option<&_>| Ok(Update::new(value.clone())));
        let written = self.storage.guaranteed_update(object, &options, update);
        match written.await {
            Ok(stored) => {
                show_stored(new, &value, &stored)?;
                Ok(Some(stored.revision()))
            }
            Err(RequestError::Conflict { .. } | RequestError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes the version `removed` of an object, whose contents are `last`, and releases what was allocated
    /// to it. Returns the revision of the removal, or `None` if another write was faster.
    pub(super) async fn remove(
        &self,
        object: &ObjectRef,
        removed: Revision,
        last: &JsonObject,
    ) -> Result<Option<Revision>, RequestError> {
        let conditions = Preconditions::default().resource_version(removed.to_string());
        let mut options = DeleteOptions::default().preconditions(conditions);
        if let Some(allocator) = &self.allocator {
            options = options.others(allocator.release(last).await?);
        }
        let deleted = self.storage.delete(object, &options, Box::new(|_| Ok(())));
        match deleted.await {
            Ok(deleted) => Ok(Some(deleted.revision())),
            Err(RequestError::Conflict { .. } | RequestError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Sets the finalizer by which a garbage collector treats the dependents of an object.
fn set_propagation(object: &mut JsonObject, propagation: Propagation) {
    let added = match propagation {
        Propagation::Background => None,
        Propagation::Foreground => Some(metadata::FOREGROUND),
        Propagation::Orphan => Some(metadata::ORPHAN),
    };
    let before = metadata::finalizers(object);
    let mut after: Vec<String> = before
        .iter()
        .filter(|name| ![metadata::FOREGROUND, metadata::ORPHAN].contains(name))
        .map(|name| (*name).to_owned())
        .collect();
    after.extend(added.map(str::to_owned));
    if before != after {
        let list = (!after.is_empty()).then(|| json!(after));
        metadata::set(object, "finalizers", list);
    }
}
