//! The small controllers: what makes a bare API server behave as a cluster without nodes.
//!
//! All of them are clients: informers of [`revstore_reflector`] over the watch cache (`monitor.rs`) tell them what has
//! changed, a work queue of that crate holds what they have to look at, and their writes are requests to the server
//! itself (`client.rs`), as the service accounts of kube-controller-manager, so that they are authorized, admitted and
//! recorded as those of others.
//!
//! They have no state of their own: each reads the newest version of what it is about to change, and its writes are
//! conditional. So a server may stop at any time, and several servers over one store may run them at the same time,
//! without electing one of them.

mod client;
mod cluster_roles;
mod defaults;
mod garbage;
mod jobs;
mod metadata;
mod monitor;
mod namespace;
mod policies;
mod quota;
mod selection;

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use revstore_reflector::work_queue::RateLimits;
use revstore_reflector::{Action, Controller, WorkQueue};
use revstore_watch_cache::clock::{Clock, SystemClock};
use tokio::task::JoinSet;

use crate::http::Front;
use client::{Client, Failure};
use cluster_roles::ClusterRoleController;
use defaults::DefaultsController;
use garbage::GarbageCollector;
use jobs::JobController;
use monitor::{Monitors, Observer};
use namespace::NamespaceController;
use policies::PolicyController;
use quota::QuotaController;
use selection::{
    CLUSTER_ROLE_AGGREGATION, GARBAGE_COLLECTOR, NAMESPACE, POLICY_STATUS, RESOURCE_QUOTA, ROOT_CA,
    SERVICE_ACCOUNT, TTL_AFTER_FINISHED,
};
pub use selection::{Controllers, ControllersError};

/// The pauses of a key after failures.
const RETRY_FIRST: Duration = Duration::from_millis(5);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// The number of keys that are tried again in a second, and at a time.
const RETRIES_PER_SECOND: f64 = 100.0;
const RETRIES_BURST: u32 = 1_000;

/// The controllers of a server. They end when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct RunningControllers(#[expect(dead_code, reason = "ends the tasks")] JoinSet<()>);

/// What is put together while controllers start.
struct Starting {
    front: Arc<Front>,
    monitors: Arc<Monitors>,
    tasks: JoinSet<()>,
    observers: Vec<Arc<dyn Observer>>,
    /// The clock of pauses and of the informers. What objects say about time is on that of the server.
    clock: Arc<dyn Clock>,
}

/// Starts the chosen controllers in the runtime. `authority` is that of the certificate of the server, in PEM.
pub(crate) fn start(
    front: &Arc<Front>,
    chosen: Controllers,
    authority: Option<&str>,
) -> RunningControllers {
    if chosen == Controllers::none() {
        return RunningControllers::default();
    }
    let mut starting = Starting {
        front: front.clone(),
        monitors: Arc::default(),
        tasks: JoinSet::new(),
        observers: Vec::new(),
        clock: Arc::new(SystemClock::new()),
    };
    let clock = starting.clock.clone();
    starting.monitors.refresh(&front.catalog);
    if chosen.runs(GARBAGE_COLLECTOR) {
        let account = ("generic-garbage-collector", garbage::WORKERS);
        starting.run(
            &clock,
            account,
            GarbageCollector::new,
            GarbageCollector::reconcile,
        );
    }
    if chosen.runs(NAMESPACE) {
        let account = ("namespace-controller", namespace::WORKERS);
        starting.run(
            &clock,
            account,
            NamespaceController::new,
            NamespaceController::reconcile,
        );
    }
    if chosen.runs(SERVICE_ACCOUNT) {
        let account = ("service-account-controller", defaults::WORKERS);
        let new = DefaultsController::of_accounts;
        starting.run(&clock, account, new, DefaultsController::reconcile);
    }
    if let Some(authority) = authority.filter(|_| chosen.runs(ROOT_CA)) {
        let account = ("root-ca-cert-publisher", defaults::WORKERS);
        let new = |client, monitors, queue| {
            DefaultsController::of_authority(client, monitors, queue, authority)
        };
        starting.run(&clock, account, new, DefaultsController::reconcile);
    }
    if chosen.runs(RESOURCE_QUOTA) {
        let account = ("resourcequota-controller", quota::WORKERS);
        starting.run(
            &clock,
            account,
            QuotaController::new,
            QuotaController::reconcile,
        );
    }
    if chosen.runs(TTL_AFTER_FINISHED) {
        let account = ("ttl-after-finished-controller", jobs::WORKERS);
        let clock = &front.storage.clock;
        starting.run(clock, account, JobController::new, JobController::reconcile);
    }
    if chosen.runs(CLUSTER_ROLE_AGGREGATION) {
        let account = ("clusterrole-aggregation-controller", cluster_roles::WORKERS);
        let new = ClusterRoleController::new;
        starting.run(&clock, account, new, ClusterRoleController::reconcile);
    }
    if chosen.runs(POLICY_STATUS) {
        let account = (POLICY_STATUS, policies::WORKERS);
        let new = PolicyController::new;
        starting.run(&clock, account, new, PolicyController::reconcile);
    }
    let Starting {
        front,
        monitors,
        mut tasks,
        observers,
        clock,
    } = starting;
    tasks.spawn(monitors.follow(front, observers, clock));
    RunningControllers(tasks)
}

impl Starting {
    /// Starts the workers of a controller, which learns of changes from now on. It has a service account, and the pauses
    /// and delays of its queue are on `clock`.
    fn run<C, K, F>(
        &mut self,
        clock: &Arc<dyn Clock>,
        (account, workers): (&str, usize),
        new: impl FnOnce(Client, Arc<Monitors>, WorkQueue<K>) -> C,
        reconcile: impl Fn(Arc<C>, K) -> F + Clone + Send + Sync + 'static,
    ) where
        C: Observer,
        K: Clone + Eq + Hash + Send + Sync + 'static,
        F: Future<Output = Result<Action, Failure>> + Send + 'static,
    {
        let limits = RateLimits::default()
            .pauses(RETRY_FIRST, RETRY_MAX)
            .bucket(RETRIES_PER_SECOND, RETRIES_BURST);
        let queue = WorkQueue::builder()
            .clock(clock.clone())
            .limits(limits)
            .build();
        let measured = queue.clone();
        self.front
            .metrics
            .add_queue(account, move || measured.metrics());
        let client = Client::new(&self.front, account);
        let controller = Arc::new(new(client, self.monitors.clone(), queue.clone()));
        self.observers.push(controller.clone());
        let worker = Controller::new(queue, move |key| {
            let reconciled = reconcile(controller.clone(), key);
            async move {
                let reconciled = reconciled.await;
                // Requests of others come in between, also when nothing had to be waited for.
                tokio::task::yield_now().await;
                reconciled
            }
        });
        for _ in 0..workers {
            self.tasks.spawn(worker.clone().work());
        }
    }
}
