//! The informer: a reflector that keeps a store up to date and notifies subscriptions.
//!
//! Corresponds to `SharedIndexInformer` of client-go.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use revstore_watch_cache::{Object, RequestError, Revision};

use super::delta_queue::{BATCH_KEYS_MAX, Batch, Delta, DeltaQueue, FinalState};
use super::informer_handle::SharedInformer;
pub use super::informer_handle::{InformerHandle, InformerThread, NotReached};
use super::store::{Change, IndexFn, ObjectStore, Replacement};
use super::subscription::Notification;
use crate::reflector::{Reflector, ReflectorEvent};
use crate::timer::Timer;

/// The minimum interval between two resyncs (WC-508).
const RESYNC_MIN: Duration = Duration::from_secs(1);

/// A function that changes an object before it is stored (WC-518).
type TransformFn = Box<dyn FnMut(Object) -> Object + Send>;
/// A function that is called with each failure of the reflector.
type ErrorFn = Box<dyn FnMut(&RequestError) + Send>;

/// Keeps an [`ObjectStore`] equal to a collection, and notifies subscriptions of changes.
///
/// The events of the reflector pass through a [`DeltaQueue`], in order and in batches, into the store
/// and then to the subscriptions. When a subscription delivers a notification, the store and its
/// indexes already contain the change, or a later one.
///
/// An informer runs while the future of [`Informer::run`] is polled; [`Informer::spawn`] runs it on
/// a new thread. It ends when it is stopped or dropped. It is also dropped when its task is aborted,
/// or when one of its functions panics. Its subscriptions then deliver the queued notifications and
/// end.
///
/// ```
/// use std::sync::Arc;
/// use pollster::block_on;
/// use revstore_engine::Engine;
/// use revstore_reflector::{Informer, Reflector, StorageListWatch};
/// use revstore_watch_cache::{EngineSource, JsonKind, ResourceConfig, Scope, Selector};
/// use revstore_watch_cache::clock::SystemClock;
/// use revstore_watch_cache::source::RawStore;
///
/// let engine = Engine::builder().build();
/// engine.put("/pods/ns/a", r#"{"metadata":{"name":"a"}}"#)?;
/// let pods = RawStore::new(
///     Arc::new(EngineSource::new(engine)),
///     ResourceConfig::namespaced(JsonKind::new("v1", "Pod"), "pods", "/pods"),
///     Arc::new(SystemClock::new()),
/// );
/// let source = StorageListWatch::new(Arc::new(pods), Scope::All, Selector::default());
/// let informer = Informer::builder(Reflector::builder(Arc::new(source)).build()).build();
/// let handle = informer.handle();
/// let thread = informer.spawn();
/// block_on(handle.synced());
/// assert_eq!(handle.store().keys(), ["ns/a"]);
/// # drop(thread);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Informer {
    reflector: Reflector,
    queue: DeltaQueue,
    /// The objects received so far of an initial state that is not complete yet.
    incoming: Vec<Object>,
    shared: Arc<SharedInformer>,
    transform: Option<TransformFn>,
    on_error: Option<ErrorFn>,
    resync: Option<Duration>,
    next_resync: Option<Duration>,
    /// The timer of the next resync. The reflector has a separate timer.
    timer: Arc<Timer>,
}

/// The configuration of an [`Informer`], created by [`Informer::builder`].
#[must_use = "`build` creates the informer"]
pub struct InformerBuilder {
    reflector: Reflector,
    indexes: BTreeMap<String, IndexFn>,
    transform: Option<TransformFn>,
    on_error: Option<ErrorFn>,
    resync: Option<Duration>,
}

impl fmt::Debug for Informer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informer")
            .field("reflector", &self.reflector)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for InformerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerBuilder").finish_non_exhaustive()
    }
}

impl InformerBuilder {
    /// Adds an index to the store: `function` returns the values under which an object is found.
    pub fn index(
        mut self,
        name: impl Into<String>,
        function: impl Fn(&Object) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.indexes.insert(name.into(), Arc::new(function));
        self
    }

    /// Sets a function that changes each object before it is stored, usually to save memory. The key
    /// and the revisions of the object stay the same.
    ///
    /// ```
    /// use revstore_reflector::informer::InformerBuilder;
    /// use revstore_watch_cache::{JsonKind, Object};
    ///
    /// /// Removes the managed fields, which are often half of an object.
    /// fn without_managed_fields(builder: InformerBuilder, kind: JsonKind) -> InformerBuilder {
    ///     builder.transform(move |object: Object| {
    ///         let Ok(mut value) = serde_json::from_slice::<serde_json::Value>(object.value()) else {
    ///             return object;
    ///         };
    ///         if let Some(metadata) = value["metadata"].as_object_mut() {
    ///             metadata.remove("managedFields");
    ///         }
    ///         object.with_value(value.to_string(), &kind)
    ///     })
    /// }
    /// ```
    pub fn transform(mut self, transform: impl FnMut(Object) -> Object + Send + 'static) -> Self {
        self.transform = Some(Box::new(transform));
        self
    }

    /// Sets a function that is called with each failure of the reflector. The reflector then retries.
    pub fn on_error(mut self, handler: impl FnMut(&RequestError) + Send + 'static) -> Self {
        self.on_error = Some(Box::new(handler));
        self
    }

    /// Sets the interval at which all objects of the store are delivered again as updates, without a
    /// request to the server. By default there is no resync. An interval below 1 s is raised to 1 s.
    pub fn resync(mut self, interval: Duration) -> Self {
        self.resync = Some(interval.max(RESYNC_MIN));
        self
    }

    /// Creates the informer.
    pub fn build(self) -> Informer {
        let timer = Timer::new(self.reflector.clock().clone());
        let next_resync = self
            .resync
            .map(|interval| timer.now().saturating_add(interval));
        Informer {
            queue: DeltaQueue::new(),
            incoming: Vec::new(),
            shared: Arc::new(SharedInformer {
                store: ObjectStore::new(self.indexes),
                subscriptions: Mutex::default(),
                synced: AtomicBool::new(false),
                stopped: AtomicBool::new(false),
                runner: AtomicWaker::new(),
                counters: self.reflector.counters().clone(),
                clock: self.reflector.clock().clone(),
            }),
            reflector: self.reflector,
            transform: self.transform,
            on_error: self.on_error,
            resync: self.resync,
            next_resync,
            timer,
        }
    }
}

/// An input of the informer.
enum InformerInput {
    /// The next event of the reflector.
    Event(ReflectorEvent),
    /// A resync is due.
    Resync,
    /// The informer was stopped.
    Stopped,
}

impl Informer {
    /// Returns the builder of an informer over `reflector`.
    ///
    /// The store of a new informer is empty, so the informer begins with an initial state, even if
    /// the reflector is configured to resume or has already delivered an initial state.
    pub fn builder(mut reflector: Reflector) -> InformerBuilder {
        reflector.start_over();
        InformerBuilder {
            reflector,
            indexes: BTreeMap::new(),
            transform: None,
            on_error: None,
            resync: None,
        }
    }

    /// Returns a handle to read the store, to subscribe, and to stop the informer.
    pub fn handle(&self) -> InformerHandle {
        InformerHandle {
            shared: self.shared.clone(),
        }
    }

    /// Runs the informer until [`InformerHandle::stop`] is called.
    pub async fn run(mut self) {
        loop {
            match self.next_input().await {
                InformerInput::Event(event) => {
                    self.queue_event(event);
                    // Further events that are ready are part of the same batch.
                    for _ in 1..BATCH_KEYS_MAX {
                        match self.next_ready().await {
                            Some(event) => self.queue_event(event),
                            None => break,
                        }
                    }
                    self.apply_queued();
                }
                InformerInput::Resync => {
                    let now = self.timer.now();
                    self.next_resync = self.resync.map(|interval| now.saturating_add(interval));
                    self.queue.resync(self.shared.store.list());
                    self.apply_queued();
                }
                InformerInput::Stopped => break,
            }
        }
    }

    /// Runs the informer on a new thread.
    ///
    /// # Panics
    /// If the operating system cannot create a thread.
    pub fn spawn(self) -> InformerThread {
        let handle = self.handle();
        let thread = std::thread::Builder::new()
            .name("revstore-informer".into())
            .spawn(move || pollster::block_on(self.run()))
            .expect("the operating system creates a thread");
        InformerThread {
            handle,
            thread: Some(thread),
        }
    }

    async fn next_input(&mut self) -> InformerInput {
        let (timer, shared, next_resync) = (&self.timer, &self.shared, self.next_resync);
        let mut event = pin!(self.reflector.next());
        poll_fn(|context| {
            shared.runner.register(context.waker());
            // Acquire: pairs with the Release in `stop`.
            if shared.stopped.load(Ordering::Acquire) {
                return Poll::Ready(InformerInput::Stopped);
            }
            if let Some(due) = next_resync
                && timer.poll_until(due, context).is_ready()
            {
                return Poll::Ready(InformerInput::Resync);
            }
            event.as_mut().poll(context).map(InformerInput::Event)
        })
        .await
    }

    /// Returns the next event of the reflector if there is one now.
    async fn next_ready(&mut self) -> Option<ReflectorEvent> {
        let mut event = pin!(self.reflector.next());
        poll_fn(|context| {
            Poll::Ready(match event.as_mut().poll(context) {
                Poll::Ready(event) => Some(event),
                Poll::Pending => None,
            })
        })
        .await
    }

    fn transformed(&mut self, object: Object) -> Object {
        match &mut self.transform {
            Some(transform) => transform(object),
            None => object,
        }
    }

    fn queue_event(&mut self, event: ReflectorEvent) {
        match event {
            ReflectorEvent::Init => self.incoming.clear(),
            ReflectorEvent::InitApply(object) => {
                let object = self.transformed(object);
                self.incoming.push(object);
            }
            ReflectorEvent::InitDone(revision) => {
                let listed = std::mem::take(&mut self.incoming);
                self.queue.push(Delta::ReplacedAll(listed, revision));
            }
            ReflectorEvent::Apply(object) => {
                let object = self.transformed(object);
                self.queue.push(Delta::Applied(object));
            }
            ReflectorEvent::Delete(object) => {
                let object = self.transformed(object);
                self.queue.push(Delta::Deleted(object));
            }
            ReflectorEvent::Bookmark(revision) => self.queue.push(Delta::Bookmark(revision)),
            ReflectorEvent::BookmarkOverdue(_) => {}
            ReflectorEvent::Failed(error) => {
                if let Some(handler) = &mut self.on_error {
                    handler(&error);
                }
            }
        }
    }

    /// Applies all batches of the queue.
    fn apply_queued(&mut self) {
        while let Some(Batch { deltas, revision }) = self.queue.pop_batch() {
            let mut changes = Vec::with_capacity(deltas.len());
            for delta in deltas {
                match delta {
                    Delta::ReplacedAll(listed, revision) => self.replace_state(listed, revision),
                    Delta::Applied(object) | Delta::Sync(object) => {
                        changes.push(Change::Insert(self.shared.store.indexed(object)));
                    }
                    Delta::Deleted(object) => changes.push(Change::Remove(object)),
                    Delta::Bookmark(_) => {}
                }
            }
            self.apply_changes(changes, revision);
        }
    }

    /// Applies a complete state. Readers of the store see it in one step (WC-510 and WC-511),
    /// subscriptions receive its changes one by one (WC-512).
    fn replace_state(&mut self, listed: Vec<Object>, revision: Revision) {
        let Replacement {
            state,
            listed,
            lost,
        } = self.shared.store.replacement(listed, revision);
        // Relaxed: only this task writes the flag.
        let initial = !self.shared.synced.load(Ordering::Relaxed);
        let mut changes: Vec<_> = listed
            .into_iter()
            .map(|(new, old)| (applied(old.clone(), new, initial), old))
            .collect();
        changes.extend(lost.into_iter().map(|lost| {
            let state = FinalState::Unknown(lost.clone());
            (Notification::Deleted(state), Some(lost))
        }));
        let (queues, waiters, _previous) = {
            let mut subscriptions = self.shared.subscriptions.lock();
            let previous = self.shared.store.replace(state);
            let queues = subscriptions.open_queues();
            for queue in &queues {
                queue.extend(changes.iter().cloned());
                queue.end_initial();
            }
            // Release: pairs with the Acquire in `has_synced`. With Relaxed a thread that reads
            // `true` could miss the objects of the store.
            let has_synced = self.queue.has_synced();
            self.shared.synced.store(has_synced, Ordering::Release);
            let waiters = std::mem::take(&mut subscriptions.waiters);
            (queues, waiters, previous)
        };
        for queue in queues {
            queue.wake();
        }
        for waiter in waiters {
            waiter.waker.wake();
        }
    }

    /// Applies changes of different objects: first to the store, its indexes and its revision, then
    /// to the subscriptions (WC-513).
    fn apply_changes(&mut self, changes: Vec<Change>, revision: Option<Revision>) {
        let (queues, waiters) = {
            let mut subscriptions = self.shared.subscriptions.lock();
            let applied = self.shared.store.apply(changes, revision);
            let waiters = subscriptions.waiters_until(revision);
            let mut queues = Vec::new();
            if !applied.is_empty() {
                queues = subscriptions.open_queues();
            }
            for queue in &queues {
                queue.extend(applied.iter().cloned());
            }
            (queues, waiters)
        };
        for queue in queues {
            queue.wake();
        }
        for waiter in waiters {
            waiter.waker.wake();
        }
    }
}

impl Drop for Informer {
    /// Ends all subscriptions and all waits for the first state.
    fn drop(&mut self) {
        let (queues, waiters) = {
            let mut subscriptions = self.shared.subscriptions.lock();
            subscriptions.ended = true;
            let queues = subscriptions.open_queues();
            subscriptions.queues.clear();
            (queues, std::mem::take(&mut subscriptions.waiters))
        };
        for queue in queues {
            queue.close();
        }
        for waiter in waiters {
            waiter.waker.wake();
        }
    }
}

/// Returns the notification of an object that was stored, where `old` was stored before.
pub(crate) fn applied(old: Option<Object>, new: Object, initial: bool) -> Notification {
    match old {
        Some(old) => Notification::Updated { old, new },
        None => Notification::Added {
            object: new,
            initial,
        },
    }
}
