//! A server, which runs inside another program or is the process.

mod certificate;
mod kubeconfig;
mod options;
mod ports;
mod preparation;
mod runtime;

use std::fmt;
use std::future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use revstore_engine::{Clock, Engine, SystemClock};
use revstore_host::net::{BindError, ListenUrl, TlsError, UrlError};
use revstore_watch_cache::cache::{Feeder, FeederThread};
use revstore_watch_cache::{RequestError, WatchCache};
use thiserror::Error;

use crate::admission::Chain;
use crate::auth::MASTERS;
use crate::auth::{
    Authenticator, Authorizer, KeyFileError, ServiceAccounts, TokenFile, TokenFileError, User,
};
use crate::catalog::Catalog;
use crate::config::Config;
use crate::http::{Front, Limits, Random};
use crate::load::{LoadError, Manifests};
use crate::metrics::Requests;
use crate::openapi::Documents;
use crate::quota::Grants;
use crate::storage::{EtcdError, Storage};
use crate::stream::Workers;
use crate::webhook::{Clients, Resolver};
use ports::{Background, Ports, Running};
use preparation::Preparation;
use runtime::ServerRuntime;

/// The error of a server that cannot start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// An address cannot be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// An address is not one that can be served.
    #[error("invalid address: {0}")]
    Address(#[from] UrlError),
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The store cannot be served over etcd's API.
    #[error("cannot serve etcd's API: {0}")]
    Etcd(#[from] revstore::StartError),
    /// The etcd cluster cannot be used.
    #[error(transparent)]
    EtcdCluster(#[from] EtcdError),
    /// The builder has two stores, or a store of another process is to be served.
    #[error("a server over an etcd cluster has no store of its own to use or to serve")]
    TwoStores,
    /// The certificate cannot be created.
    #[error("cannot create a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The file of bearer tokens cannot be used.
    #[error(transparent)]
    Tokens(#[from] TokenFileError),
    /// The keys of tokens of service accounts cannot be used.
    #[error(transparent)]
    Keys(#[from] KeyFileError),
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The manifests cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A resource cannot be set up, or the store is not available.
    #[error("cannot set up the resources: {0}")]
    Resources(#[from] RequestError),
    /// The runtime cannot start.
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    /// The start was given up, because the process is to end.
    #[error("the start was given up")]
    Stopped,
}

/// A Kubernetes API server inside this process, with a store of its own.
///
/// A server has its own threads. It can be started and used in a test without a runtime, in a tokio test of any
/// flavor, and in a program without async code. Servers are independent of each other. Dropping one stops it.
///
/// ```
/// use revstore_apiserver::ApiServer;
/// let server = ApiServer::builder().start()?;
/// assert!(server.endpoint().starts_with("http://127.0.0.1:"));
/// assert!(server.kubeconfig().contains("clusters:"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a server stops when it is dropped"]
pub struct ApiServer {
    endpoints: Vec<String>,
    is_open: bool,
    kubeconfig: String,
    kubeconfig_path: PathBuf,
    /// The directory of generated files, which is removed with the server.
    _directory: tempfile::TempDir,
    storage: Arc<Storage>,
    front: Arc<Front>,
    /// The store over etcd's API.
    etcd: Option<revstore::Server>,
    running: Option<Running>,
    /// The feeder of a cache over a store in this process. Stops when it is dropped.
    _feeder: Option<FeederThread>,
}

/// A builder of an [`ApiServer`], created by [`ApiServer::builder`].
///
/// | option | default |
/// |---|---|
/// | [`clock`](Self::clock) | the system's clock |
/// | [`random`](Self::random) | the generator of the thread |
/// | [`engine`](Self::engine) | a new, empty store |
/// | [`etcd_listen`](Self::etcd_listen) | the store is not served over etcd's API |
/// | [`http`](Self::http), [`https`](Self::https) | free ports of the loopback interface |
/// | [`authorization_mode`](Self::authorization_mode) | all requests are allowed |
/// | [`admission_plugins`](Self::admission_plugins) | those of kube-apiserver without `ServiceAccount` |
/// | [`toleration_seconds`](Self::toleration_seconds) | 300 for both |
/// | [`service_accounts`](Self::service_accounts) | a new key, one issuer |
/// | [`user`](Self::user), [`client_ca_file`](Self::client_ca_file) | only the administrator of the kubeconfig |
/// | [`service_ranges`](Self::service_ranges) | 10.0.0.0/24 and the ports 30000-32767 |
/// | [`controllers`](Self::controllers) | none |
/// | [`load`](Self::load) | only the objects of a fresh server |
/// | [`event_ttl`](Self::event_ttl) | an hour |
/// | [`compaction_interval`](Self::compaction_interval) | five minutes |
/// | [`etcd_prefix`](Self::etcd_prefix) | `/registry` |
/// | [`min_request_timeout`](Self::min_request_timeout) | half an hour |
/// | [`request_timeout`](Self::request_timeout) | a minute |
/// | [`max_requests_inflight`](Self::max_requests_inflight) | 400 |
/// | [`max_mutating_requests_inflight`](Self::max_mutating_requests_inflight) | 200 |
/// | [`goaway_chance`](Self::goaway_chance) | none |
/// | [`webhook_route`](Self::webhook_route) | services are found by their endpoints and cluster IPs |
/// | [`config`](Self::config) | those of the options above |
#[must_use = "`start` starts the server"]
pub struct ApiServerBuilder {
    config: Config,
    users: Vec<(String, User)>,
    engine: Option<Engine>,
    clock: Option<Arc<dyn Clock>>,
    random: Random,
}

impl fmt::Debug for ApiServerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServerBuilder").finish_non_exhaustive()
    }
}

impl ApiServerBuilder {
    /// Sets the clock of timestamps, leases, watch timeouts and compaction. Timeouts of connections always use the
    /// system's clock.
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Uses an existing store, such as that of another server: servers over one store serve the same objects. Its
    /// leases follow the clock with which it was built.
    ///
    /// ```
    /// use revstore_apiserver::ApiServer;
    /// let first = ApiServer::builder().start()?;
    /// let engine = first.engine().ok_or("not embedded")?;
    /// let second = ApiServer::builder().engine(engine.clone()).start()?;
    /// # let _ = second;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn engine(mut self, engine: Engine) -> Self {
        self.engine = Some(engine);
        self
    }

    /// Serves the store over etcd's API, with its JSON gateway, so that etcdctl and other clients of etcd can use it.
    /// With port 0 the system chooses a port, which [`ApiServer::etcd_endpoints`] returns.
    ///
    /// ```
    /// use revstore_apiserver::{ApiServer, ListenUrl};
    /// let server = ApiServer::builder().etcd_listen([ListenUrl::localhost(0)]).start()?;
    /// assert!(server.etcd_endpoints()[0].starts_with("http://127.0.0.1:"));
    /// # Ok::<(), revstore_apiserver::StartError>(())
    /// ```
    pub fn etcd_listen(mut self, urls: impl IntoIterator<Item = ListenUrl>) -> Self {
        self.config.etcd_listen_urls = urls.into_iter().collect();
        self
    }

    /// Sets all options that have flags, such as those of a command line that was [parsed](crate::parse).
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Sets the source of random numbers, from 0 up to, but not, 1: those for the timeouts of watches and for
    /// `--goaway-chance`.
    pub fn random(mut self, random: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        self.random = Random(Arc::new(random));
        self
    }

    /// Starts the server. When this returns, clients can connect.
    ///
    /// # Errors
    /// A resource that the server needs is not available: a port, a file, threads, or an etcd cluster for 20 s.
    pub fn start(self) -> Result<ApiServer, StartError> {
        self.start_until(future::pending())
    }

    /// Starts the server, and gives up when `stop` is completed.
    pub(crate) fn start_until(
        self,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> Result<ApiServer, StartError> {
        let Self {
            config,
            users,
            engine,
            clock,
            random,
        } = self;
        let clock = clock.unwrap_or_else(|| Arc::new(SystemClock::new()));
        let directory = tempfile::Builder::new()
            .prefix("revstore-apiserver-")
            .tempdir()
            .map_err(StartError::Runtime)?;
        let manifests = config.load.as_deref().map(Manifests::read).transpose()?;
        let (tokens, admin_token) = tokens(&config, users)?;

        let ports = Ports::bind(&config, directory.path())?;
        let endpoints = ports.endpoints();
        let service_accounts =
            ServiceAccounts::open(&config.service_accounts, &ports.secure_endpoint())?;
        let kubeconfig =
            kubeconfig::text(&ports.secure_endpoint(), ports.authority(), &admin_token);
        let kubeconfig_path = match &config.kubeconfig_out {
            Some(path) => path.clone(),
            None => directory.path().join("kubeconfig"),
        };
        kubeconfig::write(&kubeconfig_path, &kubeconfig)?;

        let runtime = ServerRuntime::start().map_err(StartError::Runtime)?;
        let (storage, feeder) = open_storage(&config, engine, clock)?;
        let storage = Arc::new(storage.event_ttl(config.event_ttl));
        let etcd = serve_etcd(&config, &storage)?;
        let catalog = Catalog::default();
        crate::catalog::add_builtin(&catalog, &storage)?;
        // Begun now, the feeder loads all resources at once.
        let feeder = preparation::run_feeder(feeder, &storage, &runtime);
        let authorizer = Authorizer {
            mode: config.authorization_mode,
            rbac: Arc::default(),
        };
        let resolver = Resolver::new(config.webhook_routes.clone(), &catalog);
        let front = Arc::new(Front {
            authenticator: Authenticator {
                tokens,
                service_accounts,
            },
            authorizer,
            admission: Chain::new(&config.admission_plugins, config.toleration_seconds),
            grants: Grants::default(),
            catalog,
            documents: Documents::default(),
            storage: storage.clone(),
            requests: Requests::new().map_err(|error| RequestError::Internal(error.to_string()))?,
            request_timeout: config.request_timeout,
            min_request_timeout: config.min_request_timeout,
            limits: Limits::new(
                config.max_requests_inflight,
                config.max_mutating_requests_inflight,
                config.request_timeout,
            ),
            goaway_chance: config.goaway_chance.probability(),
            random,
            workers: Workers::new(),
            webhooks: Arc::new(Clients::new(resolver)),
            is_stopping: AtomicBool::new(false),
        });
        let work = Preparation {
            port: ports.secure_port(),
            manifests,
        };
        let followers = work.run(&runtime, &front, stop)?;
        let compactor = config
            .etcd_compaction_interval
            .map(|interval| storage.compactor(interval));
        let background = Background {
            followers,
            compactor,
            controllers: config.controllers,
        };
        let running = ports.serve(runtime, front.clone(), background)?;
        Ok(ApiServer {
            is_open: config.http.is_some(),
            endpoints,
            kubeconfig,
            kubeconfig_path,
            _directory: directory,
            storage,
            front,
            etcd,
            running: Some(running),
            _feeder: feeder,
        })
    }
}

/// Returns all tokens, with that of the administrator, which is new.
fn tokens(
    config: &Config,
    users: Vec<(String, User)>,
) -> Result<(TokenFile, String), TokenFileError> {
    let mut tokens = match &config.token_auth_file {
        Some(path) => TokenFile::open(path)?,
        None => TokenFile::default(),
    };
    for (token, user) in users {
        tokens = tokens.with(token, user);
    }
    let token = kubeconfig::new_token();
    Ok((tokens.with(&*token, User::new("admin", [MASTERS])), token))
}

/// Opens the store of a configuration, and returns it with the feeder of its cache.
fn open_storage(
    config: &Config,
    engine: Option<Engine>,
    clock: Arc<dyn Clock>,
) -> Result<(Storage, Feeder), StartError> {
    let (prefix, ranges) = (config.etcd_prefix.as_str(), config.service_ranges.clone());
    match &config.etcd {
        None => Ok(Storage::embedded(engine, clock, prefix, ranges)),
        Some(_) if engine.is_some() || !config.etcd_listen_urls.is_empty() => {
            Err(StartError::TwoStores)
        }
        Some(servers) => Ok(Storage::over_etcd(servers, clock, prefix, ranges)?),
    }
}

/// Serves the store over etcd's API, if the configuration asks for it.
fn serve_etcd(config: &Config, storage: &Storage) -> Result<Option<revstore::Server>, StartError> {
    match &storage.engine {
        Some(engine) if !config.etcd_listen_urls.is_empty() => {
            let server = revstore::Server::builder().listen(config.etcd_listen_urls.clone());
            Ok(Some(server.store(engine.clone()).start()?))
        }
        _ => Ok(None),
    }
}

impl ApiServer {
    /// Returns a builder with the defaults.
    pub fn builder() -> ApiServerBuilder {
        ApiServerBuilder {
            config: Config::embedded(),
            users: Vec::new(),
            engine: None,
            clock: None,
            random: Random(Arc::new(fastrand::f64)),
        }
    }

    /// Returns the URL that clients connect to: that for plain HTTP if there is one.
    pub fn endpoint(&self) -> &str {
        self.endpoints.first().map_or("", String::as_str)
    }

    /// Returns all URLs.
    pub fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    /// Returns a kubeconfig with the credentials of an administrator.
    pub fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// Returns the file with the kubeconfig. It is removed with the server, unless the configuration names it.
    pub fn kubeconfig_path(&self) -> &Path {
        &self.kubeconfig_path
    }

    /// Returns the store of the server, unless it is an etcd cluster.
    pub fn engine(&self) -> Option<&Engine> {
        self.storage.engine.as_ref()
    }

    /// Returns the URLs on which the store is served over etcd's API, with the ports that the system chose.
    pub fn etcd_endpoints(&self) -> &[String] {
        self.etcd.as_ref().map_or(&[], revstore::Server::endpoints)
    }

    /// Returns the watch cache over the store.
    pub fn cache(&self) -> &WatchCache {
        &self.storage.cache
    }

    /// Returns the clock of the server.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.storage.clock
    }

    /// Returns whether there is a port on which requests without credentials are those of an administrator.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Makes `/readyz` fail, and goes on to serve. Done some time before [`stop`](Self::stop), it lets load balancers
    /// leave in time, as kube-apiserver does in the time of `--shutdown-delay-duration`.
    pub fn begin_stop(&self) {
        self.front.begin_stop();
    }

    /// Stops the server and waits until it has stopped: no new connections, an end of idle ones, the answers to the
    /// requests in flight, and a last bookmark and the end of each watch that allows bookmarks. Takes a second at most.
    ///
    /// Blocks the thread. Use [`stop_async`](Self::stop_async) if clients run on the same thread.
    pub fn stop(mut self) {
        if let Some(running) = self.running.take() {
            self.front.begin_stop();
            let _ = running.shutdown.send(true);
            // An error means that the thread has panicked. Its message has been printed.
            let _ = running.thread.join();
        }
    }

    /// Stops the server like [`stop`](Self::stop). The future runs on any executor.
    pub async fn stop_async(mut self) {
        if let Some(running) = self.running.take() {
            self.front.begin_stop();
            let _ = running.shutdown.send(true);
            // Returns an error when the sender is dropped. No message is sent.
            let _ = running.stopped.await;
        }
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            self.front.begin_stop();
            let _ = running.shutdown.send(true);
        }
    }
}
