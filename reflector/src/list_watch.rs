//! The source of a reflector: the trait [`ListWatch`], and its implementation over a [`Storage`].
//!
//! [`ListWatch`] corresponds to client-go's `ListerWatcher`, and [`StorageListWatch`] to its
//! `ListWatch`.

use std::fmt;
use std::sync::Arc;

use futures_core::future::BoxFuture;
use revstore_watch_cache::api::{EventStream, ObjectList, Storage};
use revstore_watch_cache::{ListOptions, RequestError, Scope, Selector, WatchOptions};

/// A collection of objects that can be listed and watched.
///
/// An implementation behaves as kube-apiserver: a watch from the resource version of a list delivers
/// all changes after that list, in order. After a request or a watch fails with
/// [`RequestError::Expired`], the reflector lists again.
pub trait ListWatch: fmt::Debug + Send + Sync + 'static {
    /// Returns one page of the collection, or all of it if `options` has no limit.
    ///
    /// # Errors
    /// Any [`RequestError`] of the API server. The reflector reports it and retries.
    fn list(&self, options: ListOptions) -> BoxFuture<'_, Result<ObjectList, RequestError>>;

    /// Starts a watch of the collection.
    ///
    /// # Errors
    /// As for [`ListWatch::list`]. An error after the start is the last event of the stream.
    fn watch(&self, options: WatchOptions) -> BoxFuture<'_, Result<EventStream, RequestError>>;
}

/// The objects of a [`Storage`] (a watch cache or a raw store) within a scope that match a selector.
#[derive(Clone, Debug)]
pub struct StorageListWatch {
    storage: Arc<dyn Storage>,
    scope: Scope,
    selector: Selector,
}

impl StorageListWatch {
    /// Creates a source of the objects of `storage` in `scope` that match `selector`.
    pub fn new(storage: Arc<dyn Storage>, scope: Scope, selector: Selector) -> Self {
        Self {
            storage,
            scope,
            selector,
        }
    }
}

impl ListWatch for StorageListWatch {
    fn list(&self, mut options: ListOptions) -> BoxFuture<'_, Result<ObjectList, RequestError>> {
        Box::pin(async move {
            options.selector = self.selector.clone();
            self.storage.list(&self.scope, &options).await
        })
    }

    fn watch(&self, mut options: WatchOptions) -> BoxFuture<'_, Result<EventStream, RequestError>> {
        Box::pin(async move {
            options.selector = self.selector.clone();
            self.storage.watch(&self.scope, &options).await
        })
    }
}
