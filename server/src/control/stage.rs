//! The stage: the node that is served now, and its replacement.

use std::{
    ops::Deref,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};
use revstore_control::store::free;
use revstore_engine::Engine;
use revstore_grpc::{ServicesBuilder, Shutdown};
use revstore_host::net::{ConnectionGate, GRACE_PERIOD};
use tokio::{runtime::Handle, sync::watch, time};
use tracing::info;

use super::{Interceptor, gate::Gate};
use crate::node::{Blueprint, Node};

/// The current node of a server with control. Clones share it.
///
/// A replacement is what clients see when an etcd is restored from a backup: open streams and connections end, and what
/// comes later is served by the new node. A call belongs to one node from its start to its end, so no watch has events
/// of two histories.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    blueprint: Blueprint,
    interceptor: Interceptor,
    /// A leaf lock: held to copy or replace the pointer.
    current: RwLock<Arc<StagedNode>>,
    /// Held for one replacement, before `current`. It wakes the tasks of streams, and logs a line.
    replacing: Mutex<()>,
    /// Stops the server.
    shutdown: Shutdown,
    /// The runtime that serves the node.
    runtime: OnceLock<Handle>,
    /// The number of nodes that were replaced.
    replaced: watch::Sender<u64>,
}

/// A node on the stage. When it was replaced, its last user frees it in a thread of its own, so that no call waits for
/// the end of a store.
#[derive(Debug)]
pub(crate) struct StagedNode {
    /// `None` only while it is dropped.
    node: Option<Box<Node>>,
    /// Relaxed: the reference count orders the drop.
    is_replaced: AtomicBool,
}

impl StagedNode {
    fn new(node: Node) -> Arc<Self> {
        Arc::new(Self {
            node: Some(Box::new(node)),
            is_replaced: AtomicBool::new(false),
        })
    }
}

impl StagedNode {
    /// Returns whether another node has replaced it.
    pub(super) fn is_replaced(&self) -> bool {
        self.is_replaced.load(Ordering::Relaxed)
    }
}

impl Deref for StagedNode {
    type Target = Node;

    fn deref(&self) -> &Node {
        self.node.as_deref().expect("a node until it is dropped")
    }
}

impl Drop for StagedNode {
    fn drop(&mut self) {
        if !self.is_replaced.load(Ordering::Relaxed) {
            return;
        }
        free(self.node.take());
    }
}

impl Stage {
    /// Creates a stage with a first node. The server stops when `shutdown` begins.
    pub(crate) fn new(
        blueprint: Blueprint,
        interceptor: Interceptor,
        node: Node,
        shutdown: Shutdown,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                blueprint,
                interceptor,
                current: RwLock::new(StagedNode::new(node)),
                replacing: Mutex::new(()),
                shutdown,
                runtime: OnceLock::new(),
                replaced: watch::Sender::new(0),
            }),
        }
    }

    /// Returns the current node.
    pub(crate) fn current(&self) -> Arc<StagedNode> {
        self.inner.current.read().clone()
    }

    /// Returns the current engine.
    pub(crate) fn engine(&self) -> Engine {
        self.inner.current.read().engine.clone()
    }

    /// Returns a channel with the number of nodes that were replaced.
    pub(crate) fn replacements(&self) -> watch::Receiver<u64> {
        self.inner.replaced.subscribe()
    }

    pub(crate) fn interceptor(&self) -> &Interceptor {
        &self.inner.interceptor
    }

    /// Returns the maximum length of a message of a client.
    pub(super) fn message_bytes_max(&self) -> usize {
        self.inner.blueprint.message_bytes_max()
    }

    /// Returns the gate of the ports.
    pub(crate) fn gate(&self) -> Arc<dyn ConnectionGate> {
        Arc::new(Gate(self.clone()))
    }

    /// Replaces the node by one over another engine. `complete` may add to the options of its services.
    ///
    /// Returns when new calls are served by the new node. Costs less than a millisecond, whatever the stores contain.
    /// The streams of the old node end with `UNAVAILABLE`, watches after the events of its revisions, and its
    /// connections end when their calls have ended, or after [`GRACE_PERIOD`].
    pub(crate) fn replace(
        &self,
        engine: Engine,
        complete: impl FnOnce(ServicesBuilder) -> ServicesBuilder,
    ) {
        let inner = &*self.inner;
        let _replacing = inner.replacing.lock();
        let node = StagedNode::new(inner.blueprint.build(engine, None, complete));
        let connections = inner.interceptor.open.all_connections();
        let old = {
            let mut current = inner.current.write();
            // A call on the new node counts as one on the new store.
            inner.interceptor.journal.store_replaced();
            std::mem::replace(&mut *current, node.clone())
        };
        inner.replaced.send_modify(|count| *count += 1);
        old.is_replaced.store(true, Ordering::Relaxed);
        old.shutdown.begin();
        if inner.shutdown.has_begun() {
            node.shutdown.begin();
        }
        // A connection that is accepted meanwhile and not in the list is served by the new node.
        for connection in &connections {
            connection.commands().go_away();
        }
        info!(
            revision = node.engine.current_revision().0,
            connections = connections.len(),
            "replaced the store"
        );
        if let Some(runtime) = inner.runtime.get() {
            runtime.spawn(async move {
                time::sleep(GRACE_PERIOD).await;
                for connection in connections {
                    connection.commands().close();
                }
            });
            runtime.spawn(log_compactions(node));
        }
    }

    /// Spawns [`run`](Self::run) in the runtime of the caller.
    pub(crate) fn spawn(&self) {
        // A replacement before the first poll of the task needs it.
        let _ = self.inner.runtime.set(Handle::current());
        tokio::spawn(self.clone().run());
    }

    /// Ends the current node with the server. Runs in the background of the runtime that serves it.
    pub(crate) async fn run(self) {
        // The stage is run once.
        let _ = self.inner.runtime.set(Handle::current());
        tokio::spawn(log_compactions(self.current()));
        self.inner.shutdown.begun().await;
        // After a replacement at the same time, that ends its node.
        self.current().shutdown.begin();
    }
}

/// Logs the automatic compactions of a node until its end.
async fn log_compactions(node: Arc<StagedNode>) {
    let log = node.grpc.services.log_auto_compactions();
    let ended = node.shutdown.begun();
    drop(node);
    if let Some(log) = log {
        tokio::select! {
            () = log => {}
            () = ended => {}
        }
    }
}
