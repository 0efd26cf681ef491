//! The factory of informers: one informer for each collection, shared by all who need it.
//!
//! Corresponds to `SharedInformerFactory` of client-go.

use std::fmt;
use std::sync::Arc;

use futures_core::future::BoxFuture;
use parking_lot::Mutex;
use revstore_watch_cache::status::ResourceName;
use revstore_watch_cache::{RequestError, Scope, Selector};

use super::informer::{Informer, InformerBuilder, InformerHandle, InformerThread};
use crate::list_watch::ListWatch;
use crate::reflector::Reflector;

/// A collection of objects: those of a resource in a scope that match a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Collection {
    /// The resource.
    pub resource: ResourceName,
    /// The scope. The default is all objects.
    pub scope: Scope,
    /// The selector. The default matches all objects.
    pub selector: Selector,
}

impl Collection {
    /// Returns the collection of all objects of the resource `plural` of the API group `group`, which is
    /// empty for the core group.
    pub fn new(group: impl Into<String>, plural: impl Into<String>) -> Self {
        Self {
            resource: ResourceName::new(group, plural),
            scope: Scope::All,
            selector: Selector::default(),
        }
    }

    /// Sets the scope.
    #[must_use]
    pub fn scope(self, scope: Scope) -> Self {
        Self { scope, ..self }
    }

    /// Sets the selector.
    #[must_use]
    pub fn selector(self, selector: Selector) -> Self {
        Self { selector, ..self }
    }
}

type SourceFn = dyn Fn(&Collection) -> Result<Arc<dyn ListWatch>, RequestError> + Send + Sync;
type ConfigureFn = dyn Fn(&Collection, Arc<dyn ListWatch>) -> InformerBuilder + Send + Sync;

/// Creates and runs one informer for each [`Collection`] that is asked for.
///
/// Informers are created by [`informer`](Self::informer) and run from [`start`](Self::start) on, which
/// can be called again for those that were created since. Dropping the factory stops them.
///
/// ```
/// use std::sync::Arc;
/// use pollster::block_on;
/// use revstore_engine::Engine;
/// use revstore_reflector::{Collection, InformerFactory, ListWatch, StorageListWatch};
/// use revstore_watch_cache::{EngineSource, JsonKind, RequestError, ResourceConfig, WatchCache};
///
/// let engine = Engine::builder().build();
/// engine.put("/registry/pods/ns/a", r#"{"metadata":{"name":"a"}}"#)?;
/// let (cache, feeder) = WatchCache::builder(Arc::new(EngineSource::new(engine))).build();
/// let kind = JsonKind::new("v1", "Pod");
/// let pods = cache.add(ResourceConfig::namespaced(kind, "pods", "/registry/pods"))?;
/// let _feeder = feeder.spawn();
///
/// let factory = InformerFactory::new(move |collection| match collection.resource.plural.as_str() {
///     "pods" => {
///         let (scope, selector) = (collection.scope.clone(), collection.selector.clone());
///         Ok(Arc::new(StorageListWatch::new(Arc::new(pods.clone()), scope, selector)) as _)
///     }
///     other => Err(RequestError::BadRequest(format!("unknown resource {other}"))),
/// });
/// let pods = factory.informer(&Collection::new("", "pods"))?;
/// factory.start();
/// assert!(block_on(factory.synced()));
/// assert_eq!(pods.store().keys(), ["ns/a"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct InformerFactory {
    source: Box<SourceFn>,
    configure: Box<ConfigureFn>,
    /// The informers, few enough to be searched. The lock is held while one is created, which calls the
    /// functions of the factory; they must not use the factory.
    informers: Mutex<Vec<Shared>>,
}

/// An informer of the factory.
struct Shared {
    collection: Collection,
    handle: InformerHandle,
    state: State,
}

enum State {
    Created(Box<Informer>),
    OnThread(#[expect(dead_code, reason = "dropping it stops the informer")] InformerThread),
    /// Runs on the executor of the program.
    Elsewhere,
}

impl fmt::Debug for InformerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerFactory")
            .field("informers", &self.informers.lock().len())
            .finish_non_exhaustive()
    }
}

impl InformerFactory {
    /// Creates a factory. `source` returns the source of a collection; it must not use the factory.
    pub fn new(
        source: impl Fn(&Collection) -> Result<Arc<dyn ListWatch>, RequestError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            source: Box::new(source),
            configure: Box::new(|_, source| Informer::builder(Reflector::builder(source).build())),
            informers: Mutex::default(),
        }
    }

    /// Sets how an informer is configured, for example with indexes. The function must not use the
    /// factory. By default an informer has a reflector with default options.
    #[must_use]
    pub fn configure(
        mut self,
        configure: impl Fn(&Collection, Arc<dyn ListWatch>) -> InformerBuilder + Send + Sync + 'static,
    ) -> Self {
        self.configure = Box::new(configure);
        self
    }

    /// Returns the informer of a collection, which is created if this is the first call.
    ///
    /// # Errors
    /// The error of the function that returns sources.
    pub fn informer(&self, collection: &Collection) -> Result<InformerHandle, RequestError> {
        let mut informers = self.informers.lock();
        let known = informers
            .iter()
            .find(|shared| shared.collection == *collection);
        if let Some(known) = known {
            return Ok(known.handle.clone());
        }
        let source = (self.source)(collection)?;
        let informer = (self.configure)(collection, source).build();
        let handle = informer.handle();
        informers.push(Shared {
            collection: collection.clone(),
            handle: handle.clone(),
            state: State::Created(Box::new(informer)),
        });
        Ok(handle)
    }

    /// Runs each informer that does not run yet on a thread of its own.
    ///
    /// # Panics
    /// If the operating system cannot create a thread.
    pub fn start(&self) {
        self.start_each(|informer| State::OnThread(informer.spawn()));
    }

    /// Passes each informer that does not run yet to `spawn`, for example to spawn it on an executor.
    pub fn start_with(&self, mut spawn: impl FnMut(BoxFuture<'static, ()>)) {
        self.start_each(|informer| {
            spawn(Box::pin(informer.run()));
            State::Elsewhere
        });
    }

    fn start_each(&self, mut start: impl FnMut(Informer) -> State) {
        for shared in &mut *self.informers.lock() {
            if matches!(shared.state, State::Created(_))
                && let State::Created(informer) =
                    std::mem::replace(&mut shared.state, State::Elsewhere)
            {
                shared.state = start(*informer);
            }
        }
    }

    /// Waits until all informers that were created by now have their first state. Returns `false` if
    /// one of them ends before that. An informer that was not started is waited for, too.
    pub async fn synced(&self) -> bool {
        let handles: Vec<_> = {
            let informers = self.informers.lock();
            informers
                .iter()
                .map(|shared| shared.handle.clone())
                .collect()
        };
        for handle in handles {
            if !handle.synced().await {
                return false;
            }
        }
        true
    }

    /// Stops all informers, and waits for those on threads. Their stores keep their contents, and
    /// [`informer`](Self::informer) returns new informers afterwards.
    pub fn stop(&self) {
        let informers = std::mem::take(&mut *self.informers.lock());
        for shared in &informers {
            shared.handle.stop();
        }
        // Joins the threads.
        drop(informers);
    }
}

impl Drop for InformerFactory {
    fn drop(&mut self) {
        self.stop();
    }
}
