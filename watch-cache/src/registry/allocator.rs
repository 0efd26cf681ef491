//! Writes of other keys together with an object, such as an address that it gets.

use std::fmt;

use futures_core::future::BoxFuture;

use crate::api::keys::ObjectRef;
use crate::api::options::GetOptions;
use crate::api::status::{Conflict, RequestError};
use crate::api::storage::{Preconditions, Update, UpdateOptions};
use crate::encode::object::Object;
use crate::registry::object_store::{decode, encode, is_finalized, is_unchanged, show_revision};
use crate::registry::{JsonObject, ObjectStore, WriteRequest, Written};
use crate::source::ConditionalWrite;

/// The number of times that a write of an object with other keys is attempted, before it fails with
/// [`Conflict::Modified`].
pub(super) const ATTEMPTS_MAX: usize = 128;

/// What is allocated to objects in other keys of the store. Each write of an object is one transaction with the
/// writes of these keys: if it fails, nothing was allocated or released.
///
/// The methods are called again if another client was faster, with the versions of that moment, so they read the
/// store and keep no state of their own.
pub trait Allocator: fmt::Debug + Send + Sync + 'static {
    /// Allocates what a new version of an object needs beyond `old`, completes the object by it, and returns the
    /// writes. What only `old` has is released. Called before the strategy prepares and validates the object. A
    /// dry run writes nothing.
    ///
    /// # Errors
    /// Any error rejects the object.
    fn allocate<'a>(
        &'a self,
        new: &'a mut JsonObject,
        old: Option<&'a JsonObject>,
        dry_run: bool,
    ) -> BoxFuture<'a, Result<Vec<ConditionalWrite>, RequestError>>;

    /// Returns the writes that release all that was allocated to an object that is removed.
    ///
    /// # Errors
    /// The store cannot be read.
    fn release<'a>(
        &'a self,
        object: &'a JsonObject,
    ) -> BoxFuture<'a, Result<Vec<ConditionalWrite>, RequestError>>;
}

impl ObjectStore {
    /// Updates an object as `update_if` does, with the writes of an allocator.
    pub(super) async fn update_allocated(
        &self,
        allocator: &dyn Allocator,
        object: &ObjectRef,
        request: &WriteRequest,
        preconditions: &Preconditions,
        mut change: impl FnMut(Option<&JsonObject>) -> Result<JsonObject, RequestError> + Send,
    ) -> Result<Written, RequestError> {
        for _ in 0..ATTEMPTS_MAX {
            let current = self.storage.get(object, &GetOptions::default()).await?;
            if current.is_none() && !self.strategy.creates_on_update() {
                return Err(self.not_found(object));
            }
            if let Some(current) = &current {
                let held = preconditions.check(current);
                held.map_err(|reason| self.conflict(object, reason))?;
            }
            let mut old = current.as_ref().map(decode).transpose()?;
            let mut new = change(old.as_ref())?;
            let has_version = self.begin_update(object, old.as_ref(), &mut new)?;
            let allocated = allocator.allocate(&mut new, old.as_ref(), request.dry_run);
            let others = allocated.await?;
            self.complete_update(old.as_ref(), &mut new, has_version)?;
            let replaced = current.as_ref().map(Object::revision);
            let written = |mut new: JsonObject, revision| {
                if let Some(revision) = revision {
                    show_revision(&mut new, revision);
                }
                let created = replaced.is_none();
                Ok(Written {
                    object: new,
                    created,
                })
            };
            if let (Some(old), Some(replaced)) = (&old, replaced)
                && is_finalized(&new)
                && !self.strategy.is_held(&new)
            {
                if request.dry_run || self.remove(object, replaced, old).await?.is_some() {
                    return written(new, Some(replaced));
                }
                continue;
            }
            let unchanged = old.as_mut().is_some_and(|old| is_unchanged(&new, old));
            if request.dry_run || unchanged && others.is_empty() {
                return written(new, replaced);
            }
            let mut conditions = Preconditions::default();
            if let Some(replaced) = replaced {
                conditions = conditions.resource_version(replaced.to_string());
            }
            let options = UpdateOptions::default()
                .create_if_missing(replaced.is_none())
                .preconditions(conditions)
                .others(others);
            match self.write_version(object, &new, &options).await {
                Ok(stored) => return written(new, Some(stored.revision())),
                Err(
                    RequestError::Conflict { .. }
                    | RequestError::NotFound { .. }
                    | RequestError::AlreadyExists { .. },
                ) => {}
                Err(error) => return Err(error),
            }
        }
        Err(self.conflict(object, Conflict::Modified))
    }

    /// Writes a version with other keys. If the options permit a new object, the object must not exist.
    pub(super) async fn write_version(
        &self,
        object: &ObjectRef,
        new: &JsonObject,
        options: &UpdateOptions,
    ) -> Result<Object, RequestError> {
        let value = encode(new);
        let time_to_live = self.strategy.time_to_live(new);
        let update = |found: Option<&Object>| {
            if found.is_some() && options.create_if_missing {
                return Err(self.already_exists(object));
            }
            Ok(Update::new(value.clone()).time_to_live(time_to_live))
        };
        let written = self
            .storage
            .guaranteed_update(object, options, Box::new(update));
        written.await
    }
}
