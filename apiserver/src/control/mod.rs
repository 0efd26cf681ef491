//! Control of a server: what stands between clients and the front.
//!
//! Without control, the ports have other services and nothing of this is made.
//!
//! | file | contents |
//! |---|---|
//! | `stage.rs` | the front that is served now, and its replacement |
//! | `etcd.rs` | the store over etcd's API |
//! | `target.rs` | what control does with the server, and its forks |
//! | `gate.rs` | the connections of the ports |
//! | `port.rs` | the port for clients of control |
//! | `service.rs` | one request: **faults are decided here** |
//! | `statuses.rs` | the errors of faults |
//! | `history.rs` | requests as of an earlier revision |
//! | `record.rs` | the record of a request in the journal, and the body of its answer |
//! | `watch.rs` | the events of watches: holds, cuts, cancellations |

mod etcd;
mod gate;
mod history;
mod port;
mod record;
mod service;
mod stage;
mod statuses;
mod target;
mod watch;

use std::sync::Arc;

use revstore_control::clock::{Activity, ControlClock};
use revstore_control::fault::{Delays, Rules};
use revstore_control::journal::Journal;
use revstore_control::open::Open;
use revstore_control::{Control, Hooks};

pub(crate) use etcd::EtcdApi;
pub(crate) use history::past_object;
pub(crate) use port::ControlPort;
pub(crate) use service::{ControlledService, RequestControl};
pub(crate) use stage::Stage;
pub(crate) use watch::ControlledEvents;

use target::FrontTarget;

/// The faults, lists and journal of a server. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Interceptor {
    rules: Rules,
    open: Open,
    journal: Journal,
    /// The requests that wait on the clock of the server.
    delays: Delays,
}

impl Interceptor {
    /// Creates an interceptor without rules for a server with this clock.
    pub(crate) fn new(clock: &ControlClock) -> Self {
        Self {
            rules: Rules::of_front(cluster_scoped()),
            open: Open::new(),
            journal: Journal::new(),
            delays: Delays::new(Arc::new(clock.clone())),
        }
    }
}

/// Returns the built-in resources that are in no namespace, except namespaces, which are in themselves.
fn cluster_scoped() -> impl Iterator<Item = String> {
    let resources = revstore_kinds::resources();
    let resources = resources.filter(|it| !it.namespaced() && it.plural() != "namespaces");
    resources.map(|resource| match resource.group() {
        "" => resource.plural().to_owned(),
        group => format!("{}.{group}", resource.plural()),
    })
}

/// Creates the control of a server with this clock.
pub(crate) fn control(stage: &Stage, clock: ControlClock, memory_limit: u64) -> Control {
    let interceptor = stage.interceptor();
    let activity: Arc<dyn Activity> = Arc::new(interceptor.open.activity().clone());
    clock.set_activity(Arc::downgrade(&activity));
    let hooks = Hooks {
        rules: interceptor.rules.clone(),
        journal: interceptor.journal.clone(),
        open: interceptor.open.clone(),
    };
    let target = FrontTarget::new(stage.clone(), activity);
    Control::new(clock, Arc::new(target), hooks, memory_limit)
}
