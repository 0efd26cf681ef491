//! The informer: a reflector, a queue, a store, and handlers.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use pollster::block_on;
use revstore_watch_cache::{Object, RequestError, Revision};

use crate::delta_queue::{Delta, DeltaQueue, FinalState};
use crate::metrics::{Counters, ReflectorMetrics};
use crate::reflector::{Reflector, ReflectorEvent};
use crate::store::{IndexFn, Store};
use crate::subscription::{Notification, Shared as Queue, Subscription};
use crate::timer::Timer;

/// The shortest time between two resyncs (WC-508).
const RESYNC_MIN: Duration = Duration::from_secs(1);

/// Changes an object before it is stored (WC-518).
type TransformFn = Box<dyn FnMut(Object) -> Object + Send>;
type ErrorFn = Box<dyn FnMut(&RequestError) + Send>;

/// Keeps a [`Store`] equal to a collection, and tells handlers what changes.
///
/// Each event goes into a [`DeltaQueue`], from there into the store, and then to the handlers: who
/// is told of a change finds it in the store and in its indexes (WC-513).
///
/// It runs when polled: spawn [`Informer::run`], or give it a thread with [`Informer::spawn`]. It is
/// over when it is stopped or dropped, also because its task is aborted or one of its functions
/// panicked; its handlers then hear the rest, and the end.
///
/// ```
/// use std::sync::Arc;
/// use pollster::block_on;
/// use revstore_engine::Engine;
/// use revstore_reflector::{Informer, Reflector, StorageListWatch};
/// use revstore_watch_cache::{
///     EngineSource, RawStore, ResourceConfig, Scope, Selector, SystemClock,
/// };
/// let engine = Engine::builder().build();
/// engine.put("/pods/ns/a", r#"{"metadata":{"name":"a"}}"#)?;
/// let pods = RawStore::new(
///     Arc::new(EngineSource::new(engine)),
///     ResourceConfig::namespaced("", "pods", "/pods"),
///     Arc::new(SystemClock::new()),
/// );
/// let source = StorageListWatch::new(Arc::new(pods), Scope::All, Selector::default());
/// let informer = Informer::builder(Reflector::builder(Arc::new(source)).build()).build();
/// let handle = informer.handle();
/// let running = informer.spawn();
/// block_on(handle.synced());
/// assert_eq!(handle.store().keys(), ["ns/a"]);
/// # drop(running);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Informer {
    reflector: Reflector,
    queue: DeltaQueue,
    /// Objects of a state that is not complete yet.
    incoming: Vec<Object>,
    shared: Arc<Shared>,
    transform: Option<TransformFn>,
    on_error: Option<ErrorFn>,
    resync: Option<Duration>,
    next_resync: Option<Duration>,
    timer: Arc<Timer>,
}

struct Shared {
    store: Store,
    /// Who is told. Held while one change is stored and told, so that a new handler gets either the
    /// changed object or the change; nothing of a user's runs under it.
    handlers: Mutex<Handlers>,
    synced: AtomicBool,
    stopped: AtomicBool,
    /// The task that runs the informer.
    runner: AtomicWaker,
    counters: Arc<Counters>,
}

#[derive(Default)]
struct Handlers {
    /// Whether the informer is over: whoever comes now is told so.
    ended: bool,
    queues: Vec<Weak<Queue>>,
    /// Who waits for the first state.
    waiting: Vec<Arc<AtomicWaker>>,
}

/// What others hold of a running informer. Clones are handles on the same one.
#[derive(Clone)]
pub struct InformerHandle {
    shared: Arc<Shared>,
}

/// An informer on a thread of its own, which ends when this is dropped.
#[derive(Debug)]
pub struct InformerThread {
    handle: InformerHandle,
    thread: Option<JoinHandle<()>>,
}

/// Sets an informer up; made by [`Informer::builder`].
#[must_use = "an informer is made by `build`"]
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

impl fmt::Debug for InformerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerHandle")
            .field("store", &self.shared.store)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for InformerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerBuilder").finish_non_exhaustive()
    }
}

impl InformerBuilder {
    /// Finds objects by what `function` says of them (WC-517).
    pub fn index(
        mut self,
        name: impl Into<String>,
        function: impl Fn(&Object) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.indexes.insert(name.into(), Arc::new(function));
        self
    }

    /// Changes each object before it is stored (WC-518), most often to keep less of it. Its key stays,
    /// and so do its revisions.
    ///
    /// ```
    /// use revstore_reflector::informer::InformerBuilder;
    /// use revstore_watch_cache::{JsonKind, Object};
    ///
    /// /// Nobody here looks at managed fields, which are half of many an object.
    /// fn slim(informer: InformerBuilder, kind: JsonKind) -> InformerBuilder {
    ///     informer.transform(move |object: Object| {
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

    /// Hears of failures, which the informer goes on after (WC-501).
    pub fn on_error(mut self, handler: impl FnMut(&RequestError) + Send + 'static) -> Self {
        self.on_error = Some(Box::new(handler));
        self
    }

    /// Tells every object again at this interval, from the store and without a request (WC-508).
    /// Never unless said; less than a second is raised to it.
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Some(period.max(RESYNC_MIN));
        self
    }

    /// Makes the informer.
    pub fn build(self) -> Informer {
        let timer = Timer::new(self.reflector.clock().clone());
        Informer {
            queue: DeltaQueue::new(),
            incoming: Vec::new(),
            shared: Arc::new(Shared {
                store: Store::new(self.indexes),
                handlers: Mutex::default(),
                synced: AtomicBool::new(false),
                stopped: AtomicBool::new(false),
                runner: AtomicWaker::new(),
                counters: self.reflector.counters().clone(),
            }),
            next_resync: self.resync.map(|period| timer.now().saturating_add(period)),
            timer,
            reflector: self.reflector,
            transform: self.transform,
            on_error: self.on_error,
            resync: self.resync,
        }
    }
}

/// What woke an informer.
enum Woken {
    Event(ReflectorEvent),
    Resync,
    Stopped,
}

impl Informer {
    /// Sets an informer of what `reflector` tells up. Its store is empty, so it begins with a state,
    /// also if the reflector was told to resume, or has told one to somebody else.
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

    /// A handle to read and subscribe by.
    pub fn handle(&self) -> InformerHandle {
        InformerHandle {
            shared: self.shared.clone(),
        }
    }

    /// Runs until [`InformerHandle::stop`].
    pub async fn run(mut self) {
        loop {
            match self.next().await {
                Woken::Event(event) => self.take(event),
                Woken::Resync => {
                    let now = self.timer.now();
                    self.next_resync = self.resync.map(|period| now.saturating_add(period));
                    self.queue.resync(self.shared.store.list());
                    self.work_off(None);
                }
                Woken::Stopped => break,
            }
        }
    }

    /// Runs on a thread of its own.
    ///
    /// # Panics
    /// If the system has no thread left.
    pub fn spawn(self) -> InformerThread {
        let handle = self.handle();
        let thread = std::thread::Builder::new()
            .name("revstore-informer".into())
            .spawn(move || block_on(self.run()))
            .expect("a thread for the informer can be started");
        InformerThread {
            handle,
            thread: Some(thread),
        }
    }

    async fn next(&mut self) -> Woken {
        let (timer, shared, resync) = (&self.timer, &self.shared, self.next_resync);
        let mut event = pin!(self.reflector.next());
        poll_fn(|context| {
            shared.runner.register(context.waker());
            // Acquire: pairs with the Release in `stop`.
            if shared.stopped.load(Ordering::Acquire) {
                return Poll::Ready(Woken::Stopped);
            }
            if let Some(due) = resync
                && timer.poll_until(due, context).is_ready()
            {
                return Poll::Ready(Woken::Resync);
            }
            event.as_mut().poll(context).map(Woken::Event)
        })
        .await
    }

    fn transformed(&mut self, object: Object) -> Object {
        match &mut self.transform {
            Some(transform) => transform(object),
            None => object,
        }
    }

    fn take(&mut self, event: ReflectorEvent) {
        match event {
            ReflectorEvent::Init => self.incoming.clear(),
            ReflectorEvent::InitApply(object) => {
                let object = self.transformed(object);
                self.incoming.push(object);
            }
            ReflectorEvent::InitDone(revision) => self.replace(revision),
            ReflectorEvent::Apply(object) => {
                let revision = object.revision();
                let object = self.transformed(object);
                let known = self.shared.store.get(&object.store_key()).is_some();
                self.queue.push(if known {
                    Delta::Updated(object)
                } else {
                    Delta::Added(object)
                });
                self.work_off(Some(revision));
            }
            ReflectorEvent::Delete(object) => {
                let revision = object.revision();
                let object = self.transformed(object);
                self.queue.push(Delta::Deleted(FinalState::Known(object)));
                self.work_off(Some(revision));
            }
            ReflectorEvent::Bookmark(revision) => self.shared.store.set_revision(revision),
            ReflectorEvent::BookmarkOverdue(_) => {}
            ReflectorEvent::Failed(error) => {
                if let Some(handler) = &mut self.on_error {
                    handler(&error);
                }
            }
        }
    }

    /// WC-512, and WC-511's newer form: readers of the store see a new state at once, handlers hear
    /// of it one by one.
    fn replace(&mut self, revision: Revision) {
        let before = self.shared.store.list();
        let known: BTreeMap<String, Object> = before
            .iter()
            .map(|object| (object.store_key(), object.clone()))
            .collect();
        let listed = std::mem::take(&mut self.incoming);
        let indexed = |object: &Object| self.shared.store.indexed(object.clone());
        let fresh: Vec<_> = listed.iter().map(indexed).collect();
        self.queue.replace(listed, &before);
        // Acquire: only this task writes it.
        let initial = !self.shared.synced.load(Ordering::Acquire);
        let mut told = Vec::new();
        while let Some((key, deltas)) = self.queue.pop() {
            for delta in deltas {
                let before = known.get(&key).cloned();
                let notification = notification(delta, before.clone(), initial);
                told.extend(notification.map(|notification| (notification, before)));
            }
        }
        let (queues, waiting) = {
            let mut handlers = self.shared.handlers.lock();
            self.shared.store.replace(fresh, revision);
            let queues = living(&mut handlers.queues);
            for queue in &queues {
                for (notification, before) in &told {
                    queue.push(notification.clone(), before.clone());
                }
                queue.end_initial();
            }
            // Release: pairs with the Acquire in `has_synced`; who sees it sees the store.
            self.shared
                .synced
                .store(self.queue.has_synced(), Ordering::Release);
            (queues, std::mem::take(&mut handlers.waiting))
        };
        for queue in queues {
            queue.wake();
        }
        for waker in waiting {
            waker.wake();
        }
    }

    /// WC-513: the store first, its indexes and its revision with it, then the handlers.
    fn work_off(&mut self, revision: Option<Revision>) {
        while let Some((key, deltas)) = self.queue.pop() {
            for delta in deltas {
                let new = match &delta {
                    Delta::Deleted(_) => None,
                    Delta::Added(object)
                    | Delta::Updated(object)
                    | Delta::Replaced(object)
                    | Delta::Sync(object) => Some(self.shared.store.indexed(object.clone())),
                };
                let told = {
                    let mut handlers = self.shared.handlers.lock();
                    let old = match new {
                        None => self.shared.store.remove(&key),
                        Some(new) => self.shared.store.insert(new),
                    };
                    if let Some(revision) = revision {
                        self.shared.store.set_revision(revision);
                    }
                    let Some(notification) = notification(delta, old.clone(), false) else {
                        continue;
                    };
                    let queues = living(&mut handlers.queues);
                    for queue in &queues {
                        queue.push(notification.clone(), old.clone());
                    }
                    queues
                };
                for queue in told {
                    queue.wake();
                }
            }
        }
    }
}

impl Drop for Informer {
    /// However it ends, nobody waits for what never comes.
    fn drop(&mut self) {
        let (queues, waiting) = {
            let mut handlers = self.shared.handlers.lock();
            handlers.ended = true;
            let queues = living(&mut handlers.queues);
            handlers.queues.clear();
            (queues, std::mem::take(&mut handlers.waiting))
        };
        for queue in queues {
            queue.close();
        }
        for waker in waiting {
            waker.wake();
        }
    }
}

/// What handlers are told of a delta, for an object that was `old` before.
fn notification(delta: Delta, old: Option<Object>, initial: bool) -> Option<Notification> {
    Some(match (delta, old) {
        (Delta::Deleted(_), None) => return None,
        (Delta::Deleted(last), Some(_)) => Notification::Deleted(last),
        (
            Delta::Added(new) | Delta::Updated(new) | Delta::Replaced(new) | Delta::Sync(new),
            Some(old),
        ) => Notification::Updated { old, new },
        (
            Delta::Added(object)
            | Delta::Updated(object)
            | Delta::Replaced(object)
            | Delta::Sync(object),
            None,
        ) => Notification::Added { object, initial },
    })
}

fn living(queues: &mut Vec<Weak<Queue>>) -> Vec<Arc<Queue>> {
    queues.retain(|queue| queue.strong_count() > 0);
    queues.iter().filter_map(Weak::upgrade).collect()
}

impl InformerHandle {
    /// The objects.
    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    /// What the reflector counts.
    pub fn metrics(&self) -> ReflectorMetrics {
        self.shared.counters.read()
    }

    /// Whether a first state is complete in the store, and was told to those who were there
    /// (WC-514).
    pub fn has_synced(&self) -> bool {
        // Acquire: pairs with the Release in `replace`.
        self.shared.synced.load(Ordering::Acquire)
    }

    /// Waits for that; `false` if the informer ends before.
    pub async fn synced(&self) -> bool {
        let waker = Arc::new(AtomicWaker::new());
        poll_fn(|context| {
            waker.register(context.waker());
            let mut handlers = self.shared.handlers.lock();
            if self.has_synced() || handlers.ended {
                return Poll::Ready(self.has_synced());
            }
            if !handlers
                .waiting
                .iter()
                .any(|known| Arc::ptr_eq(known, &waker))
            {
                handlers
                    .waiting
                    .retain(|known| Arc::strong_count(known) > 1);
                handlers.waiting.push(waker.clone());
            }
            Poll::Pending
        })
        .await
    }

    /// A new handler's view. It begins with what is in the store now (WC-516), and ends there if the
    /// informer is over.
    pub fn subscribe(&self) -> Subscription {
        let queue = Arc::new(Queue::default());
        let mut handlers = self.shared.handlers.lock();
        for object in self.shared.store.list() {
            let initial = true;
            queue.push(Notification::Added { object, initial }, None);
        }
        if self.has_synced() {
            queue.end_initial();
        }
        let ended = handlers.ended;
        if !ended {
            handlers.queues.push(Arc::downgrade(&queue));
        }
        drop(handlers);
        if ended {
            queue.close();
        }
        Subscription { shared: queue }
    }

    /// Ends the informer. Its store stays as it is.
    pub fn stop(&self) {
        // Release: pairs with the Acquire in `next`.
        self.shared.stopped.store(true, Ordering::Release);
        self.shared.runner.wake();
    }
}

impl Drop for InformerThread {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            // A panic was reported by its thread.
            let _ = thread.join();
        }
    }
}
