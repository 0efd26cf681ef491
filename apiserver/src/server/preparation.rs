//! What a server does with its store before it serves: it waits for it, and creates the objects of a fresh server.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use revstore_watch_cache::RequestError;
use revstore_watch_cache::cache::{Feeder, FeederThread};

use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::StartError;
use crate::auth::{Follower, create_bootstrap_policy};
use crate::catalog::serve_definitions;
use crate::flow_control;
use crate::http::Front;
use crate::load::{self, Manifests};
use crate::storage::{EtcdError, Storage};

/// The time for which a start waits for an etcd cluster, as that for the first connection of kube-apiserver.
const START_LIMIT: Duration = Duration::from_secs(20);
/// The pause after an attempt to use the store that has failed.
const START_PAUSE: Duration = Duration::from_millis(200);

/// Runs the feeder of a cache: in a thread of its own, or, over a network, in the runtime.
pub(super) fn run_feeder(
    feeder: Feeder,
    storage: &Storage,
    runtime: &Handle,
) -> Option<FeederThread> {
    if storage.engine.is_some() {
        return Some(feeder.spawn());
    }
    runtime.spawn(feeder.run());
    None
}

/// What follows the policy, and the tasks that follow the store already.
pub(super) type Prepared = (Vec<Follower>, JoinSet<()>);

/// What is done before the ports are served.
#[derive(Debug)]
pub(super) struct Preparation {
    /// The port of the server.
    pub(super) port: u16,
    /// The objects to create.
    pub(super) manifests: Option<Arc<Manifests>>,
}

impl Preparation {
    /// Prepares the store in the runtime, which a source over a network needs, begins to follow the definitions of custom
    /// resources, loads the manifests, and returns what follows the policy. The thread may be one of another runtime.
    pub(super) fn run(
        self,
        runtime: &Handle,
        front: &Arc<Front>,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> Result<Prepared, StartError> {
        let (sender, prepared) = mpsc::channel();
        let front = front.clone();
        runtime.spawn(async move {
            let result = tokio::select! {
                result = self.prepare(&front) => result,
                () = stop => Err(StartError::Stopped),
            };
            // An error means that the start was given up.
            let _ = sender.send(result);
        });
        // An error means that the task has panicked. Its message has been printed.
        prepared
            .recv()
            .unwrap_or_else(|_| Err(RequestError::Stopped.into()))
    }

    async fn prepare(self, front: &Arc<Front>) -> Result<Prepared, StartError> {
        let followers = prepare(front, self.port).await?;
        let mut tasks = JoinSet::new();
        tasks.spawn(serve_definitions(front.clone()));
        tasks.spawn(flow_control::keep(front.clone()));
        if let Some(manifests) = self.manifests {
            load::apply(front, &manifests).await?;
        }
        Ok((followers, tasks))
    }
}

/// Waits until the store can be used, and creates what is missing in it.
async fn prepare(front: &Front, port: u16) -> Result<Vec<Follower>, StartError> {
    if front.storage.engine.is_some() {
        return Ok(attempt(front, port).await?);
    }
    let mut last = None;
    let attempts = async {
        loop {
            let checked = front.storage.check().await;
            let result = match checked.map_err(RequestError::Internal) {
                Ok(()) => attempt(front, port).await,
                Err(error) => Err(error),
            };
            match result {
                Ok(followers) => return followers,
                Err(error) => last = Some(error.to_string()),
            }
            tokio::time::sleep(START_PAUSE).await;
        }
    };
    let followers = tokio::time::timeout(START_LIMIT, attempts).await;
    followers.map_err(|_| {
        let reason = last.unwrap_or_else(|| "no answer".to_owned());
        EtcdError::NotAvailable(reason).into()
    })
}

async fn attempt(front: &Front, port: u16) -> Result<Vec<Follower>, RequestError> {
    front.catalog.wait_until_ready().await?;
    crate::bootstrap::create(&front.catalog, &front.storage, port).await?;
    flow_control::ensure(&front.catalog, &front.now()).await?;
    if !front.authorizer.has_roles() {
        return Ok(Vec::new());
    }
    create_bootstrap_policy(&front.catalog, &front.now()).await?;
    Follower::load_all(&front.catalog, &front.authorizer.rbac).await
}
