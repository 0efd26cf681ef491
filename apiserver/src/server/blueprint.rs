//! From the options of a server to a front over a store. A server with control makes several, one after the other.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

use revstore_engine::{Clock, Engine};
use revstore_watch_cache::RequestError;
use revstore_watch_cache::cache::{Feeder, FeederThread};
use revstore_watch_cache::source::Compactor;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::StartError;
use super::preparation::{self, Preparation};
use crate::admission::Chain;
use crate::auth::{Authenticator, Authorizer, Follower, ServiceAccounts, TokenFile};
use crate::catalog::Catalog;
use crate::config::Config;
use crate::controllers::{self, RunningControllers};
use crate::http::{Front, Limits, Random};
use crate::load::Manifests;
use crate::metrics::{Requests, ServerMetrics, WebhookMetrics};
use crate::openapi::Documents;
use crate::quota::Grants;
use crate::storage::Storage;
use crate::stream::Workers;
use crate::webhook::{Clients, Resolver};

/// What all fronts of a server have in common.
#[derive(Clone, Debug)]
pub(crate) struct Blueprint {
    pub(crate) config: Config,
    pub(crate) tokens: TokenFile,
    pub(crate) service_accounts: Arc<ServiceAccounts>,
    pub(crate) clock: Arc<dyn Clock>,
    /// The time of day at the origin of the clock.
    pub(crate) epoch: SystemTime,
    pub(crate) random: Random,
    /// The port of the server.
    pub(crate) port: u16,
    /// The authority of its certificate, in PEM.
    pub(crate) authority: Option<String>,
    pub(crate) runtime: Handle,
}

/// A front whose store is prepared, and what has to run with it.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) front: Arc<Front>,
    /// The feeder of a cache over a store in this process. Stops when it is dropped.
    pub(crate) feeder: Option<FeederThread>,
    pub(crate) background: Background,
}

/// What runs beside a front.
#[derive(Debug)]
pub(crate) struct Background {
    followers: Vec<Follower>,
    compactor: Option<Compactor>,
    /// What runs already.
    tasks: JoinSet<()>,
}

/// What runs beside a front, until it is dropped.
#[derive(Debug)]
pub(crate) struct RunningBackground {
    /// They end first: what they have begun goes on with the next start.
    _controllers: RunningControllers,
    _tasks: JoinSet<()>,
}

impl Blueprint {
    /// Builds a front over a store, a new one unless it is given, and creates in it what a server needs. Blocks the
    /// thread, which must not be one of the runtime. Gives up when `stop` is completed.
    pub(crate) fn build(
        &self,
        engine: Option<Engine>,
        manifests: Option<Arc<Manifests>>,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> Result<Built, StartError> {
        let config = &self.config;
        let (storage, feeder) = self.open_storage(engine)?;
        let storage = Arc::new(storage.event_ttl(config.event_ttl));
        let catalog = Catalog::default();
        crate::catalog::add_builtin(&catalog, &storage, &config.runtime_config)?;
        // Begun now, the feeder loads all resources at once.
        let feeder = preparation::run_feeder(feeder, &storage, &self.runtime);
        let authorizer = Authorizer::new(config.authorization_modes.clone());
        let resolver = Resolver::new(config.webhook_routes.clone(), &catalog);
        let front = Arc::new(Front {
            authenticator: Authenticator {
                tokens: self.tokens.clone(),
                has_anonymous: config.anonymous_auth,
                service_accounts: self.service_accounts.clone(),
            },
            authorizer,
            admission: Chain::new(&config.admission_plugins, config.toleration_seconds),
            grants: Grants::default(),
            catalog,
            documents: Documents::new(config.runtime_config.clone()),
            storage: storage.clone(),
            components: config.components.clone(),
            requests: Requests::new().map_err(|error| RequestError::Internal(error.to_string()))?,
            webhook_metrics: WebhookMetrics::new()
                .map_err(|error| RequestError::Internal(error.to_string()))?,
            metrics: ServerMetrics::new()
                .map_err(|error| RequestError::Internal(error.to_string()))?,
            request_timeout: config.request_timeout,
            min_request_timeout: config.min_request_timeout,
            limits: Limits::new(
                config.max_requests_inflight,
                config.max_mutating_requests_inflight,
                config.request_timeout,
            ),
            goaway_chance: config.goaway_chance.probability(),
            random: self.random.clone(),
            workers: Workers::new(),
            webhooks: Arc::new(Clients::new(resolver)),
            is_stopping: AtomicBool::new(false),
        });
        let work = Preparation {
            port: self.port,
            manifests,
        };
        let (followers, tasks) = work.run(&self.runtime, &front, stop)?;
        let compactor = config
            .etcd_compaction_interval
            .map(|interval| storage.compactor(interval));
        Ok(Built {
            front,
            feeder,
            background: Background {
                followers,
                compactor,
                tasks,
            },
        })
    }

    /// Opens the store of the configuration, and returns it with the feeder of its cache.
    fn open_storage(&self, engine: Option<Engine>) -> Result<(Storage, Feeder), StartError> {
        let config = &self.config;
        let (prefix, ranges) = (config.etcd_prefix.as_str(), config.service_ranges.clone());
        let (clock, epoch) = (self.clock.clone(), self.epoch);
        match &config.etcd {
            None => Ok(Storage::embedded(engine, clock, epoch, prefix, ranges)),
            Some(_) if engine.is_some() || !config.etcd_listen_urls.is_empty() => {
                Err(StartError::TwoStores)
            }
            Some(servers) => Ok(Storage::over_etcd(servers, clock, epoch, prefix, ranges)?),
        }
    }

    /// Starts what runs beside a front.
    pub(crate) fn run(&self, front: &Arc<Front>, background: Background) -> RunningBackground {
        let _runtime = self.runtime.enter();
        let mut tasks = background.tasks;
        for follower in background.followers {
            tasks.spawn(follower.run());
        }
        if let Some(compactor) = background.compactor {
            tasks.spawn(compactor.run());
        }
        let chosen = self.config.controllers;
        RunningBackground {
            _controllers: controllers::start(front, chosen, self.authority.as_deref()),
            _tasks: tasks,
        }
    }
}
