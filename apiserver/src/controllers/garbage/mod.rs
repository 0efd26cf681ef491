//! The garbage collector: objects whose owners are gone are deleted, and owners wait for their dependents or let them
//! go, as clients ask by the finalizers `foregroundDeletion` and `orphan`.
//!
//! `graph.rs` knows who owns whom from the events of all resources, and says what is to be done. `check.rs` and
//! `finish.rs` do it: they read the newest versions first, since the graph may be older, and all their writes are
//! conditional. So several servers over one store may run it at the same time.

mod check;
mod finish;
mod graph;

use std::sync::Arc;

use parking_lot::Mutex;
use revstore_reflector::{Action, WorkQueue};

use super::client::{Client, Failure};
use super::metadata::Metadata;
use super::monitor::{Change, Monitored, Monitors, Observer};
use graph::{Graph, Place, Task};

/// The number of objects that are treated at the same time.
pub(super) const WORKERS: usize = 8;
/// Resources whose objects neither own others nor are owned, as in kube-controller-manager: events.
const IGNORED: [(&str, &str); 2] = [("", "events"), ("events.k8s.io", "events")];

pub(super) struct GarbageCollector {
    client: Client,
    monitors: Arc<Monitors>,
    /// Held for one change or look.
    graph: Mutex<Graph>,
    queue: WorkQueue<Task>,
}

impl GarbageCollector {
    pub(super) fn new(client: Client, monitors: Arc<Monitors>, queue: WorkQueue<Task>) -> Self {
        Self {
            client,
            monitors,
            graph: Mutex::default(),
            queue,
        }
    }

    pub(super) async fn reconcile(self: Arc<Self>, task: Task) -> Result<Action, Failure> {
        match task {
            Task::Check(uid) => self.check(&uid).await,
            Task::Finish(uid) => self.finish(&uid).await,
        }
    }
}

impl Observer for GarbageCollector {
    fn wants(&self, resource: &Monitored) -> bool {
        !IGNORED
            .iter()
            .any(|(group, plural)| resource.is(group, plural))
    }

    fn observe(&self, resource: &Arc<Monitored>, change: Change<'_>) {
        let mut tasks = Vec::new();
        match change {
            Change::Set(object) => {
                // An object that was written past the server may have no uid, and nothing can refer to it.
                let metadata = Metadata::of(object).filter(|metadata| !metadata.uid.is_empty());
                let Some(metadata) = metadata else {
                    return;
                };
                let place = Place {
                    resource: resource.clone(),
                    namespace: object.namespace().to_owned(),
                    name: object.name().to_owned(),
                };
                self.graph.lock().set(place, metadata, &mut tasks);
            }
            Change::Gone(object) => self.graph.lock().remove(object.uid(), true, &mut tasks),
            Change::Doubted(object) => self.graph.lock().remove(object.uid(), false, &mut tasks),
        }
        for task in tasks {
            self.queue.add(task);
        }
    }
}
