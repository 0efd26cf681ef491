//! The trait that the raw store and the cache have in common (WC-103). Corresponds to Kubernetes'
//! `storage.Interface`.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use futures_core::future::BoxFuture;
use revstore_engine::Revision;

use crate::api::event::WatchEvent;
use crate::api::keys::{ObjectRef, Scope};
use crate::api::list::ObjectList;
use crate::api::options::{GetOptions, ListOptions, WatchOptions};
use crate::api::resource_cache::ResourceCache;
use crate::api::status::{Conflict, RequestError};
use crate::encode::object::Object;
use crate::source::ConditionalWrite;

/// A stream of watch events of any [`Storage`].
pub type EventStream = Pin<Box<dyn Stream<Item = WatchEvent> + Send>>;

/// Conditions on the current version of an object. If one of them does not hold, a write fails with
/// [`RequestError::Conflict`]. Unset conditions are not checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Preconditions {
    /// The uid that the object must have.
    pub uid: Option<String>,
    /// The resource version that the object must have.
    pub resource_version: Option<String>,
}

impl Preconditions {
    /// Requires a uid.
    #[must_use]
    pub fn uid(mut self, uid: impl Into<String>) -> Self {
        self.uid = Some(uid.into());
        self
    }

    /// Requires a resource version.
    #[must_use]
    pub fn resource_version(mut self, version: impl Into<String>) -> Self {
        self.resource_version = Some(version.into());
        self
    }

    /// Returns the conditions of an update of an object by a new version: the uid that it names, if it names one.
    pub fn of_update(new: &serde_json::Map<String, serde_json::Value>) -> Self {
        let uid = new.get("metadata").and_then(|metadata| metadata.get("uid"));
        let uid = uid.and_then(serde_json::Value::as_str);
        Self {
            uid: uid.filter(|uid| !uid.is_empty()).map(str::to_owned),
            resource_version: None,
        }
    }

    /// Fails with the conflict of an update if one of the conditions does not hold.
    pub(crate) fn check(&self, current: &Object) -> Result<(), Conflict> {
        let key = || String::from_utf8_lossy(current.key()).into_owned();
        if let Some(requested) = &self.uid
            && requested != current.uid()
        {
            return Err(Conflict::Uid {
                key: key(),
                requested: requested.clone(),
                found: current.uid().to_owned(),
            });
        }
        let found = current.revision().to_string();
        match &self.resource_version {
            Some(requested) if *requested != found => Err(Conflict::ResourceVersion {
                key: key(),
                requested: requested.clone(),
                found,
            }),
            _ => Ok(()),
        }
    }
}

/// The new version of an object in an update.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Update {
    /// The new value. An update with an unchanged value writes nothing and creates no revision.
    // WC-204.
    pub value: Bytes,
    /// The time after which the object is deleted; `None` to keep it.
    pub time_to_live: Option<Duration>,
}

impl Update {
    /// Returns an update with a new value and without a time to live.
    pub fn new(value: impl Into<Bytes>) -> Self {
        Self {
            value: value.into(),
            time_to_live: None,
        }
    }

    /// Sets the time after which the object is deleted.
    #[must_use]
    pub fn time_to_live(mut self, time_to_live: impl Into<Option<Duration>>) -> Self {
        self.time_to_live = time_to_live.into();
        self
    }
}

/// The options of an update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UpdateOptions {
    /// Whether to create the object if it does not exist. The update function is then called with
    /// `None`.
    pub create_if_missing: bool,
    /// The preconditions on the current version.
    pub preconditions: Preconditions,
    /// Other keys, which are written with the object in one revision. If one of them does not have the
    /// expected version, the update fails with [`Conflict::Others`]. They are not written if the object
    /// stays unchanged.
    pub others: Vec<ConditionalWrite>,
}

impl UpdateOptions {
    /// Sets whether to create the object if it does not exist.
    #[must_use]
    pub fn create_if_missing(mut self, create: bool) -> Self {
        self.create_if_missing = create;
        self
    }

    /// Sets the preconditions on the current version.
    #[must_use]
    pub fn preconditions(mut self, preconditions: Preconditions) -> Self {
        self.preconditions = preconditions;
        self
    }

    /// Sets the other keys that are written with the object.
    #[must_use]
    pub fn others(mut self, others: Vec<ConditionalWrite>) -> Self {
        self.others = others;
        self
    }
}

/// The options of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeleteOptions {
    /// The preconditions on the current version.
    pub preconditions: Preconditions,
    /// Whether to delete a corrupt object, one that cannot be decoded, which a deletion without this
    /// option refuses. Finalizers, owners and preconditions of the object are unknown then, so its
    /// dependents may be left behind. With this option the deletion of any other object fails with
    /// [`RequestError::InvalidDelete`].
    ///
    /// This is `ignoreStoreReadErrorWithClusterBreakingPotential` of Kubernetes' `DeleteOptions`.
    pub ignore_store_read_error: bool,
    /// Other keys, which are written with the deletion in one revision, as in [`UpdateOptions::others`].
    pub others: Vec<ConditionalWrite>,
}

impl DeleteOptions {
    /// Sets the other keys that are written with the deletion.
    #[must_use]
    pub fn others(mut self, others: Vec<ConditionalWrite>) -> Self {
        self.others = others;
        self
    }

    /// Sets the preconditions on the current version.
    #[must_use]
    pub fn preconditions(mut self, preconditions: Preconditions) -> Self {
        self.preconditions = preconditions;
        self
    }

    /// Sets whether to delete a corrupt object.
    #[must_use]
    pub fn ignore_store_read_error(mut self, ignore: bool) -> Self {
        self.ignore_store_read_error = ignore;
        self
    }
}

/// A function that computes the new version of an object from the current one, or rejects the update
/// with an error. It is called again if the current version was stale, so it must have no side
/// effects.
// WC-105.
pub type UpdateFn<'a> = Box<dyn FnMut(Option<&Object>) -> Result<Update, RequestError> + Send + 'a>;

/// A function that accepts the deletion of an object, or rejects it with an error. It may be called
/// more than once, like an [`UpdateFn`]. It is also called for a corrupt object that is deleted
/// deliberately.
pub type ValidateFn<'a> = Box<dyn FnMut(&Object) -> Result<(), RequestError> + Send + 'a>;

/// The number and the size of the objects of a resource in a store.
// T-23.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreStats {
    /// The number of objects.
    pub objects: u64,
    /// The size of their keys and values in bytes, if the store knows it without reading all objects.
    pub size_bytes: Option<u64>,
}

/// A store of the objects of one resource.
///
/// Implemented by [`RawStore`](crate::source::RawStore), which reads from its source for every
/// request, and by [`ResourceCache`]. Both behave in the same way for clients, except for the
/// differences that the documentation of `RawStore` lists. Both send writes to the source.
pub trait Storage: fmt::Debug + Send + Sync {
    /// Returns one object, or `None` if it does not exist.
    fn get<'a>(
        &'a self,
        object: &'a ObjectRef,
        options: &'a GetOptions,
    ) -> BoxFuture<'a, Result<Option<Object>, RequestError>>;

    /// Returns a version of one object at once, which may be an old one, or `None` if there is none at hand.
    fn assumed(&self, object: &ObjectRef) -> Option<Object> {
        let _ = object;
        None
    }

    /// Lists objects.
    fn list<'a>(
        &'a self,
        scope: &'a Scope,
        options: &'a ListOptions,
    ) -> BoxFuture<'a, Result<ObjectList, RequestError>>;

    /// Watches objects.
    fn watch<'a>(
        &'a self,
        scope: &'a Scope,
        options: &'a WatchOptions,
    ) -> BoxFuture<'a, Result<EventStream, RequestError>>;

    /// Creates an object. Fails with [`RequestError::AlreadyExists`] if it exists.
    fn create<'a>(
        &'a self,
        object: &'a ObjectRef,
        value: Bytes,
        time_to_live: Option<Duration>,
    ) -> BoxFuture<'a, Result<Object, RequestError>>;

    /// Replaces an object with the version that `update` returns. If another write has changed the
    /// object meanwhile, `update` is called again with the new current version, up to 128 times;
    /// then the update fails with [`RequestError::Conflict`]. Corresponds to Kubernetes'
    /// `GuaranteedUpdate`.
    fn guaranteed_update<'a>(
        &'a self,
        object: &'a ObjectRef,
        options: &'a UpdateOptions,
        update: UpdateFn<'a>,
    ) -> BoxFuture<'a, Result<Object, RequestError>>;

    /// Deletes an object if `validate` accepts its current version. Returns the last version of the
    /// object with the revision of the deletion, which cannot be decoded if it is a corrupt object.
    fn delete<'a>(
        &'a self,
        object: &'a ObjectRef,
        options: &'a DeleteOptions,
        validate: ValidateFn<'a>,
    ) -> BoxFuture<'a, Result<Object, RequestError>>;

    /// Returns the value that a read would return after a write of `value`, without the write. It is another one if the
    /// store converts objects.
    fn read_back(&self, value: Bytes) -> BoxFuture<'_, Result<Bytes, RequestError>> {
        Box::pin(futures_util::future::ready(Ok(value)))
    }

    /// Returns the newest revision of the store.
    fn current_revision(&self) -> BoxFuture<'_, Result<Revision, RequestError>>;

    /// Returns the number and the size of the objects.
    fn stats(&self) -> BoxFuture<'_, Result<StoreStats, RequestError>>;

    /// Returns whether the store answers requests.
    fn is_ready(&self) -> bool;
}

impl Storage for ResourceCache {
    fn assumed(&self, object: &ObjectRef) -> Option<Object> {
        self.cached(object)
    }

    fn get<'a>(
        &'a self,
        object: &'a ObjectRef,
        options: &'a GetOptions,
    ) -> BoxFuture<'a, Result<Option<Object>, RequestError>> {
        Box::pin(self.get(object, options))
    }

    fn list<'a>(
        &'a self,
        scope: &'a Scope,
        options: &'a ListOptions,
    ) -> BoxFuture<'a, Result<ObjectList, RequestError>> {
        Box::pin(self.list(scope, options))
    }

    fn watch<'a>(
        &'a self,
        scope: &'a Scope,
        options: &'a WatchOptions,
    ) -> BoxFuture<'a, Result<EventStream, RequestError>> {
        Box::pin(async move {
            let watch = self.watch(scope, options).await?;
            Ok(Box::pin(watch) as EventStream)
        })
    }

    fn create<'a>(
        &'a self,
        object: &'a ObjectRef,
        value: Bytes,
        time_to_live: Option<Duration>,
    ) -> BoxFuture<'a, Result<Object, RequestError>> {
        // WC-105: writes are sent to the source.
        Box::pin(async move {
            self.check_not_removed()?;
            self.raw().create_object(object, value, time_to_live).await
        })
    }

    fn guaranteed_update<'a>(
        &'a self,
        object: &'a ObjectRef,
        options: &'a UpdateOptions,
        update: UpdateFn<'a>,
    ) -> BoxFuture<'a, Result<Object, RequestError>> {
        let assumed = self.cached(object);
        Box::pin(async move {
            self.check_not_removed()?;
            let raw = self.raw();
            raw.update_object(object, options, assumed, update).await
        })
    }

    fn delete<'a>(
        &'a self,
        object: &'a ObjectRef,
        options: &'a DeleteOptions,
        validate: ValidateFn<'a>,
    ) -> BoxFuture<'a, Result<Object, RequestError>> {
        let assumed = self.cached(object);
        Box::pin(async move {
            self.check_not_removed()?;
            let raw = self.raw();
            raw.delete_object(object, options, assumed, validate).await
        })
    }

    fn current_revision(&self) -> BoxFuture<'_, Result<Revision, RequestError>> {
        Box::pin(self.raw().source_revision())
    }

    fn stats(&self) -> BoxFuture<'_, Result<StoreStats, RequestError>> {
        let metrics = self.metrics();
        let stats = StoreStats {
            objects: metrics.objects,
            size_bytes: Some(metrics.object_bytes),
        };
        Box::pin(futures_util::future::ready(Ok(stats)))
    }

    fn is_ready(&self) -> bool {
        self.readiness() == crate::cache::readiness::Readiness::Ready
    }
}
