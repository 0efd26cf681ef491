//! What a reflector asks: a cache, a raw store, or anything else that lists and watches.

use std::fmt;
use std::sync::Arc;

use futures_core::future::BoxFuture;

use revstore_watch_cache::{
    EventStream, List, ListOptions, RequestError, Scope, Selector, Storage, WatchOptions,
};

/// Something that can be listed and watched: one collection, or a selection of it.
pub trait ListWatch: fmt::Debug + Send + Sync + 'static {
    /// Lists it.
    fn list(&self, options: ListOptions) -> BoxFuture<'_, Result<List, RequestError>>;

    /// Watches it.
    fn watch(&self, options: WatchOptions) -> BoxFuture<'_, Result<EventStream, RequestError>>;
}

/// A part of a store: a scope, and a selector within it.
#[derive(Clone, Debug)]
pub struct StorageListWatch {
    storage: Arc<dyn Storage>,
    scope: Scope,
    selector: Selector,
}

impl StorageListWatch {
    /// The objects of `scope` that pass `selector`.
    pub fn new(storage: Arc<dyn Storage>, scope: Scope, selector: Selector) -> Self {
        Self {
            storage,
            scope,
            selector,
        }
    }
}

impl ListWatch for StorageListWatch {
    fn list(&self, mut options: ListOptions) -> BoxFuture<'_, Result<List, RequestError>> {
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
