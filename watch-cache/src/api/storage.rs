//! What a store of objects can do: the one trait of the raw store and of the cache (WC-103).

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use futures_core::future::BoxFuture;
use revstore_engine::Revision;

use crate::api::event::WatchEvent;
use crate::api::keys::{ObjectRef, Scope};
use crate::api::list::List;
use crate::api::options::{GetOptions, ListOptions, WatchOptions};
use crate::api::resource_cache::ResourceCache;
use crate::api::status::RequestError;
use crate::encode::object::Object;

/// A watch of either store.
pub type EventStream = Pin<Box<dyn Stream<Item = WatchEvent> + Send>>;

/// What an object must be for a write to be done; what is unset is not looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// Its uid.
    pub uid: Option<String>,
    /// Its resource version.
    pub resource_version: Option<String>,
}

/// What an update makes of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The new bytes. The same bytes as before make no revision (WC-204).
    pub value: Bytes,
    /// How long the object lives from now on; for good if not given.
    pub time_to_live: Option<Duration>,
}

/// How an update is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpdateOptions {
    /// Create the object if it is not there: the update function then sees nothing.
    pub create_if_missing: bool,
    /// What the object must be.
    pub preconditions: Preconditions,
}

/// Makes the new bytes of an object, or refuses. Called again whenever what it saw turns out to be
/// stale (WC-105), so it must not mind.
pub type UpdateFn<'a> = Box<dyn FnMut(Option<&Object>) -> Result<Update, RequestError> + Send + 'a>;

/// Looks whether an object may be deleted. Called again as an [`UpdateFn`] is.
pub type ValidateFn<'a> = Box<dyn FnMut(&Object) -> Result<(), RequestError> + Send + 'a>;

/// How much a store holds of a resource (T-23).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreStats {
    /// Objects.
    pub objects: u64,
    /// Bytes of their keys and values, where they are known without a walk.
    pub size_bytes: Option<u64>,
}

/// A store of the objects of one resource.
///
/// Implemented by [`RawStore`](crate::RawStore), which asks its source each time, and by
/// [`ResourceCache`]; everything a client sees is the same, except where the documentation of one
/// says otherwise.
pub trait Storage: fmt::Debug + Send + Sync {
    /// Reads one object; nothing if there is none.
    fn get<'a>(
        &'a self,
        object: &'a ObjectRef,
        options: &'a GetOptions,
    ) -> BoxFuture<'a, Result<Option<Object>, RequestError>>;

    /// Lists objects.
    fn list<'a>(
        &'a self,
        scope: &'a Scope,
        options: &'a ListOptions,
    ) -> BoxFuture<'a, Result<List, RequestError>>;

    /// Watches objects.
    fn watch<'a>(
        &'a self,
        scope: &'a Scope,
        options: &'a WatchOptions,
    ) -> BoxFuture<'a, Result<EventStream, RequestError>>;

    /// Creates an object. Fails with 409 if it is there.
    fn create<'a>(
        &'a self,
        object: &'a ObjectRef,
        value: Bytes,
        time_to_live: Option<Duration>,
    ) -> BoxFuture<'a, Result<Object, RequestError>>;

    /// Changes an object with what `update` makes of it, as often as it takes until nobody else
    /// changed it in between.
    fn guaranteed_update<'a>(
        &'a self,
        object: &'a ObjectRef,
        options: &'a UpdateOptions,
        update: UpdateFn<'a>,
    ) -> BoxFuture<'a, Result<Object, RequestError>>;

    /// Deletes an object, if `validate` agrees. Returns its last content with the revision of the
    /// deletion.
    fn delete<'a>(
        &'a self,
        object: &'a ObjectRef,
        preconditions: &'a Preconditions,
        validate: ValidateFn<'a>,
    ) -> BoxFuture<'a, Result<Object, RequestError>>;

    /// The newest revision of the store.
    fn current_revision(&self) -> BoxFuture<'_, Result<Revision, RequestError>>;

    /// How much there is.
    fn stats(&self) -> BoxFuture<'_, Result<StoreStats, RequestError>>;

    /// Whether it answers.
    fn is_ready(&self) -> bool;
}

impl Storage for ResourceCache {
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
    ) -> BoxFuture<'a, Result<List, RequestError>> {
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
        // WC-105: writes go straight to the source.
        Box::pin(self.raw().create_object(object, value, time_to_live))
    }

    fn guaranteed_update<'a>(
        &'a self,
        object: &'a ObjectRef,
        options: &'a UpdateOptions,
        update: UpdateFn<'a>,
    ) -> BoxFuture<'a, Result<Object, RequestError>> {
        let guess = self.cached(object);
        Box::pin(self.raw().update_object(object, options, guess, update))
    }

    fn delete<'a>(
        &'a self,
        object: &'a ObjectRef,
        preconditions: &'a Preconditions,
        validate: ValidateFn<'a>,
    ) -> BoxFuture<'a, Result<Object, RequestError>> {
        let guess = self.cached(object);
        Box::pin(
            self.raw()
                .delete_object(object, preconditions, guess, validate),
        )
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
