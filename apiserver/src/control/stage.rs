//! The stage: the front that is served now, and its replacement.

use std::future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use parking_lot::{Mutex, RwLock};
use revstore_control::ControlError;
use revstore_control::journal::EndReason;
use revstore_engine::{Engine, Revision};
use revstore_host::net::{ConnectionGate, GRACE_PERIOD};
use revstore_watch_cache::cache::FeederThread;
use tokio::sync::watch;

use super::Interceptor;
use super::etcd::EtcdApi;
use super::gate::Gate;
use crate::http::Front;
use crate::load::Manifests;
use crate::server::{Blueprint, Built, RunningBackground, StartError};

/// The current front of a server with control. Clones share it.
///
/// A replacement is what clients see when a server is started anew over a restored store: open watches and connections
/// end, and what comes later is served by the new front, with caches, indexes and controllers of its own. A request
/// belongs to one front from its start to its end, so no watch has events of two histories.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    blueprint: Blueprint,
    interceptor: Interceptor,
    /// Manifests for stores that begin empty.
    manifests: Option<Arc<Manifests>>,
    /// A leaf lock: held to copy or replace the pointer.
    current: RwLock<Arc<StagedFront>>,
    /// The store over etcd's API, until the server stops. Held for one replacement, before `current`. The number of
    /// replacements changes under it.
    etcd: Mutex<Option<EtcdApi>>,
    /// The number of fronts that were replaced.
    replaced: watch::Sender<u64>,
    /// Whether the server has stopped. Read and written under `etcd`.
    is_ended: AtomicBool,
    /// For control of a server whose store is another program.
    no_engine: Option<Engine>,
}

/// A front on the stage. When it was replaced, its last user frees it in a thread of its own, so that no request waits
/// for the end of a store.
#[derive(Debug)]
pub(crate) struct StagedFront {
    pub(crate) front: Arc<Front>,
    /// Why the front has ended: requests no longer wait for faults.
    pub(super) ended: watch::Sender<Option<EndReason>>,
    /// Raised when the cache has stopped: watches end, also those that are held.
    pub(super) stopped: watch::Sender<bool>,
    /// `None` after the end. A leaf lock: held to take it.
    background: Mutex<Option<RunningBackground>>,
    /// `None` only while it is dropped.
    feeder: Option<FeederThread>,
}

impl StagedFront {
    fn new(blueprint: &Blueprint, built: Built) -> Arc<Self> {
        let background = blueprint.run(&built.front, built.background);
        Arc::new(Self {
            front: built.front,
            ended: watch::Sender::new(None),
            stopped: watch::Sender::new(false),
            background: Mutex::new(Some(background)),
            feeder: built.feeder,
        })
    }

    /// Returns the current revision of its store, or, if that is another program, of the cache.
    pub(super) fn revision(&self) -> Revision {
        let storage = &self.front.storage;
        let engine = storage.engine.as_ref();
        engine.map_or_else(|| storage.cache.revision(), Engine::current_revision)
    }

    /// Ends what runs beside the front, and the waits of requests for faults.
    fn end_background(&self, reason: EndReason) {
        let background = self.background.lock().take();
        drop(background);
        self.ended.send_replace(Some(reason));
    }

    /// Ends the watches: the cache ends those that it has, after a last bookmark, and then those end that are held.
    pub(crate) fn stop_watches(&self) {
        self.front.storage.cache.stop();
        self.stopped.send_replace(true);
    }
}

impl Drop for StagedFront {
    fn drop(&mut self) {
        // The thread of the feeder is waited for, which must not block a task. Without a thread, that is done here.
        let feeder = self.feeder.take();
        let front = self.front.clone();
        let _ = thread::Builder::new()
            .name("apiserver-free".to_owned())
            .spawn(move || {
                drop(feeder);
                drop(front);
            });
    }
}

impl Stage {
    /// Creates a stage with a first front.
    pub(crate) fn new(
        blueprint: Blueprint,
        interceptor: Interceptor,
        manifests: Option<Arc<Manifests>>,
        built: Built,
        etcd: Option<EtcdApi>,
    ) -> Self {
        let no_engine = built.front.storage.engine.is_none().then(|| {
            let clock = blueprint.clock.clone();
            Engine::builder().clock(clock).build()
        });
        Self {
            inner: Arc::new(Inner {
                current: RwLock::new(StagedFront::new(&blueprint, built)),
                blueprint,
                interceptor,
                manifests,
                etcd: Mutex::new(etcd),
                replaced: watch::Sender::new(0),
                is_ended: AtomicBool::new(false),
                no_engine,
            }),
        }
    }

    /// Returns the current front.
    pub(crate) fn current(&self) -> Arc<StagedFront> {
        self.inner.current.read().clone()
    }

    /// Returns the current engine, or, if the store is another program, an empty one.
    pub(super) fn engine(&self) -> Engine {
        let engine = self.current().front.storage.engine.clone();
        let engine = engine.or_else(|| self.inner.no_engine.clone());
        engine.expect("a front without an engine has the empty one")
    }

    /// Returns whether the store is one of this process.
    pub(super) fn has_store(&self) -> bool {
        self.inner.no_engine.is_none()
    }

    /// Returns the current revision of the store.
    pub(super) fn revision(&self) -> Revision {
        self.current().revision()
    }

    /// Returns a channel with the number of fronts that were replaced.
    pub(super) fn replacements(&self) -> watch::Receiver<u64> {
        self.inner.replaced.subscribe()
    }

    pub(crate) fn interceptor(&self) -> &Interceptor {
        &self.inner.interceptor
    }

    pub(super) fn blueprint(&self) -> &Blueprint {
        &self.inner.blueprint
    }

    /// Returns the manifests for stores that begin empty.
    pub(super) fn manifests(&self) -> Option<Arc<Manifests>> {
        self.inner.manifests.clone()
    }

    /// Returns the gate of the ports.
    pub(crate) fn gate(&self) -> Arc<dyn ConnectionGate> {
        Arc::new(Gate(self.clone()))
    }

    /// Replaces the front by one over another engine. With `is_fresh`, the manifests are loaded into it, as at a start.
    ///
    /// Returns when new requests are served by the new front, whose store has the objects of a fresh server. The watches
    /// of the old one end at once, after the events that they had, and its connections when their requests have ended,
    /// or after [`GRACE_PERIOD`].
    pub(super) fn replace(&self, engine: &Engine, is_fresh: bool) -> Result<(), ControlError> {
        let inner = &*self.inner;
        let mut etcd = inner.etcd.lock();
        if inner.is_ended.load(Ordering::Relaxed) {
            return Err(ControlError::Refused("the server has stopped".to_owned()));
        }
        let failed = |error: StartError| {
            ControlError::Refused(format!("the store cannot be served: {error}"))
        };
        let manifests = inner.manifests.clone().filter(|_| is_fresh);
        let built = inner
            .blueprint
            .build(Some(engine.clone()), manifests, future::pending());
        let staged = StagedFront::new(&inner.blueprint, built.map_err(failed)?);
        let connections = inner.interceptor.open.all_connections();
        let old = {
            let mut current = inner.current.write();
            // A request to the new front counts as one to the new store.
            inner.interceptor.journal.store_replaced();
            std::mem::replace(&mut *current, staged)
        };
        inner.replaced.send_modify(|count| *count += 1);
        old.end_background(EndReason::StoreReplaced);
        old.stop_watches();
        // A connection that is accepted meanwhile and not in the list is served by the new front.
        for connection in &connections {
            connection.commands().go_away();
        }
        inner.blueprint.runtime.spawn(async move {
            tokio::time::sleep(GRACE_PERIOD).await;
            for connection in connections {
                connection.commands().close();
            }
        });
        if let Some(etcd) = &mut *etcd {
            etcd.replace(engine).map_err(|error| {
                let message = format!(
                    "the store is replaced, but not served over etcd's API until it is replaced again: {error}"
                );
                ControlError::Refused(message)
            })?;
        }
        Ok(())
    }

    /// Ends what runs beside the current front, which no other replaces from now on, and returns it. Blocks the thread
    /// until the store over etcd's API is closed.
    pub(crate) fn close(&self) -> Arc<StagedFront> {
        let inner = &*self.inner;
        let current = {
            let mut etcd = inner.etcd.lock();
            inner.is_ended.store(true, Ordering::Relaxed);
            drop(etcd.take());
            self.current()
        };
        current.end_background(EndReason::ServerStopped);
        current
    }
}
