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
/// [`RequestError::Expired`], the reflector lists again; after an error that
/// [is temporary](RequestError::is_temporary) it sends the same request again. An implementation
/// refuses the options that it does not support with [`RequestError::Invalid`] or
/// [`RequestError::BadRequest`], for example `send_initial_events` (a reflector then lists) and a
/// selector. It may ignore a limit and return the whole collection.
///
/// [`Object::from_json`](revstore_watch_cache::Object::from_json) and
/// [`Object::from_parts`](revstore_watch_cache::Object::from_parts) create objects,
/// [`ObjectList::from_objects`] creates lists and
/// [`WatchEvent::unshared`](revstore_watch_cache::WatchEvent::unshared) events. The tests of this crate
/// (`tests/suite/list_watch.rs`) have an implementation with changes, over a vector.
///
/// ```
/// use futures_core::future::BoxFuture;
/// use futures_util::stream;
/// use revstore_reflector::ListWatch;
/// use revstore_watch_cache::api::{EventStream, ObjectList};
/// use revstore_watch_cache::{ListOptions, Object, RequestError, Revision, WatchOptions};
///
/// /// A collection that never changes.
/// #[derive(Debug)]
/// struct Fixed(Vec<Object>);
///
/// impl ListWatch for Fixed {
///     fn list(&self, _: ListOptions) -> BoxFuture<'_, Result<ObjectList, RequestError>> {
///         Box::pin(async { Ok(ObjectList::from_objects(Revision(1), &self.0)) })
///     }
///     fn watch(&self, options: WatchOptions) -> BoxFuture<'_, Result<EventStream, RequestError>> {
///         Box::pin(async move {
///             if options.send_initial_events == Some(true) {
///                 return Err(RequestError::BadRequest("not supported".into()));
///             }
///             Ok(Box::pin(stream::pending()) as EventStream)
///         })
///     }
/// }
/// ```
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
    has_timers: bool,
}

impl StorageListWatch {
    /// Creates a source of the objects of `storage` in `scope` that match `selector`.
    pub fn new(storage: Arc<dyn Storage>, scope: Scope, selector: Selector) -> Self {
        Self {
            storage,
            scope,
            selector,
            has_timers: true,
        }
    }

    /// Lets watches of the storage neither end after a time nor send bookmarks. For a reflector in the process of the
    /// storage, which does not need them, so that the clock of the storage has nothing to do for it.
    #[must_use]
    pub fn without_timers(self) -> Self {
        Self {
            has_timers: false,
            ..self
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
            if !self.has_timers {
                options.timeout = None;
                // That after the initial objects is needed.
                options.allow_bookmarks &= options.send_initial_events == Some(true);
            }
            self.storage.watch(&self.scope, &options).await
        })
    }
}
