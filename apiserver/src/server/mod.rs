//! A server, which runs inside another program or is the process.

mod blueprint;
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
use std::time::SystemTime;

use revstore::ControlConfig;
use revstore_control::Control;
use revstore_control::clock::ControlClock;
use revstore_engine::{Clock, Engine, SystemClock};
use revstore_host::net::{BindError, ListenUrl, TlsError, UrlError};
use revstore_watch_cache::cache::FeederThread;
use revstore_watch_cache::{RequestError, WatchCache};
use thiserror::Error;

use crate::auth::{KeyFileError, MASTERS, ServiceAccounts, TokenFile, TokenFileError, User};
use crate::config::Config;
use crate::control::{self, ControlPort, EtcdApi, Interceptor, Stage};
use crate::http::{Front, Random};
use crate::load::{LoadError, Manifests};
use crate::storage::EtcdError;
use ports::{Ports, Running, Served};
use runtime::ServerRuntime;

pub(crate) use blueprint::{Blueprint, Built, RunningBackground};

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
    /// A server with control has a store and a clock of its own.
    #[error("a server with control has a store and a clock of its own, so it cannot use others")]
    TwoClocks,
    /// The options of control do not protect its port, or the token file cannot be used.
    #[error(transparent)]
    Control(revstore::StartError),
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
    /// The etcd that runs the server in its process cannot start it.
    #[error("{0}")]
    Hosted(String),
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
    /// The URLs of the store over etcd's API.
    etcd_endpoints: Vec<String>,
    control_endpoint: Option<String>,
    clock: Arc<dyn Clock>,
    serving: Serving,
    running: Option<Running>,
}

/// What a server serves.
#[derive(Debug)]
enum Serving {
    /// Without control.
    Fixed {
        front: Arc<Front>,
        /// The store over etcd's API.
        _etcd: Option<EtcdApi>,
        /// The feeder of a cache over a store in this process. Stops when it is dropped.
        _feeder: Option<FeederThread>,
    },
    Controlled(Stage, Control),
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
/// | [`authorization_mode`](Self::authorization_mode), [`authorization_modes`](Self::authorization_modes) | all requests are allowed |
/// | [`runtime_config`](Self::runtime_config) | the stable versions |
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
/// | [`anonymous_auth`](Self::anonymous_auth) | requests without credentials are those of `system:anonymous` |
/// | [`webhook_route`](Self::webhook_route) | services are found by their endpoints and cluster IPs |
/// | [`components`](Self::components) | those of kube-apiserver: the ports 10257 and 10259 of this machine |
/// | [`control`](Self::control) | the server has no control |
/// | [`config`](Self::config) | those of the options above |
#[must_use = "`start` starts the server"]
pub struct ApiServerBuilder {
    config: Config,
    users: Vec<(String, User)>,
    engine: Option<Engine>,
    clock: Option<Arc<dyn Clock>>,
    random: Random,
    fork: Option<ForkOf>,
}

/// What a fork has of its parent, besides the configuration.
struct ForkOf {
    clock: ControlClock,
    epoch: SystemTime,
    tokens: TokenFile,
    service_accounts: Arc<ServiceAccounts>,
    /// The manifests for stores that begin empty, which that of the fork does not.
    manifests: Option<Arc<Manifests>>,
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

    /// Puts the server under the control of tests, which [`ApiServer::control`] returns: its clock, faults of requests and
    /// watches, its store. It then has a store and a clock of its own. A port for other programs is an option of
    /// [`ControlConfig`](revstore::ControlConfig).
    ///
    /// ```
    /// use std::time::Duration;
    /// use revstore_apiserver::{ApiServer, ClockMode};
    /// let server = ApiServer::builder().control(ClockMode::Manual).start()?;
    /// let control = server.control().expect("it was asked for");
    /// control.advance(Duration::from_secs(3_600))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn control(mut self, options: impl Into<ControlConfig>) -> Self {
        self.config.control = Some(options.into());
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
            fork,
        } = self;
        let (control_clock, clock) = clocks(&config, fork.as_ref(), engine.as_ref(), clock)?;
        let epoch = match &fork {
            Some(fork) => fork.epoch,
            None => SystemTime::now() - clock.now(),
        };
        let directory = tempfile::Builder::new()
            .prefix("revstore-apiserver-")
            .tempdir()
            .map_err(StartError::Runtime)?;
        let manifests = config.load.as_deref().map(Manifests::read).transpose()?;
        let manifests = manifests.map(Arc::new);
        let known = fork.as_ref().map(|fork| fork.tokens.clone());
        let (tokens, admin_token) = tokens(&config, known, users)?;

        let ports = Ports::bind(&config, directory.path())?;
        let control_port = config.control.as_ref().map(ControlPort::bind).transpose()?;
        let control_port = control_port.flatten();
        let control_endpoint = control_port.as_ref().map(ControlPort::endpoint);
        let endpoints = ports.endpoints();
        let service_accounts = if let Some(fork) = &fork {
            fork.service_accounts.clone()
        } else {
            let url = ports.secure_endpoint();
            Arc::new(ServiceAccounts::open(&config.service_accounts, &url)?)
        };
        let kubeconfig =
            kubeconfig::text(&ports.secure_endpoint(), ports.authority(), &admin_token);
        let kubeconfig_path = match &config.kubeconfig_out {
            Some(path) => path.clone(),
            None => directory.path().join("kubeconfig"),
        };
        kubeconfig::write(&kubeconfig_path, &kubeconfig)?;

        let runtime = ServerRuntime::start().map_err(StartError::Runtime)?;
        let is_open = config.http.is_some();
        let options = config.control.clone();
        let blueprint = Blueprint {
            config,
            tokens,
            service_accounts,
            clock: clock.clone(),
            epoch,
            random,
            port: ports.secure_port(),
            authority: ports.authority().map(str::to_owned),
            runtime: runtime.handle().clone(),
        };
        let urls = blueprint.config.etcd_listen_urls.clone();
        let built = blueprint.build(engine, manifests.clone(), stop)?;
        // A fork loads them only into what replaces its store.
        let manifests = fork.map_or(manifests, |fork| fork.manifests);
        let engine = built.front.storage.engine.as_ref();
        let etcd = engine.filter(|_| !urls.is_empty());
        let etcd = etcd.map(|engine| EtcdApi::start(&urls, engine));
        let etcd = etcd.transpose()?;
        let etcd_endpoints = etcd.as_ref().map(EtcdApi::endpoints).unwrap_or_default();
        let control = control_clock.zip(options);
        let (served, serving) = serve(blueprint, built, manifests, etcd, control, control_port);
        let running = ports.serve(runtime, served)?;
        Ok(ApiServer {
            is_open,
            endpoints,
            etcd_endpoints,
            control_endpoint,
            kubeconfig,
            kubeconfig_path,
            _directory: directory,
            clock,
            serving,
            running: Some(running),
        })
    }

    /// Returns a builder of a fork.
    pub(crate) fn of_fork(
        blueprint: &Blueprint,
        engine: Engine,
        clock: ControlClock,
        manifests: Option<Arc<Manifests>>,
    ) -> Self {
        Self {
            config: blueprint.config.clone(),
            engine: Some(engine),
            fork: Some(ForkOf {
                clock,
                epoch: blueprint.epoch,
                tokens: blueprint.tokens.clone(),
                service_accounts: blueprint.service_accounts.clone(),
                manifests,
            }),
            random: blueprint.random.clone(),
            ..ApiServer::builder()
        }
    }
}

/// Returns the clock of control, if it is on, and that of the server.
fn clocks(
    config: &Config,
    fork: Option<&ForkOf>,
    engine: Option<&Engine>,
    clock: Option<Arc<dyn Clock>>,
) -> Result<(Option<ControlClock>, Arc<dyn Clock>), StartError> {
    let control = match (&config.control, fork) {
        (None, _) => None,
        (Some(_), Some(fork)) => Some(fork.clock.clone()),
        // The time of the store and that of the server must be the same.
        (Some(_), None) if clock.is_some() || engine.is_some() => {
            return Err(StartError::TwoClocks);
        }
        (Some(options), None) => Some(options.new_clock()),
    };
    let clock: Arc<dyn Clock> = match &control {
        Some(clock) => Arc::new(clock.clone()),
        None => clock.unwrap_or_else(|| Arc::new(SystemClock::new())),
    };
    Ok((control, clock))
}

/// Returns what the ports serve, and what the server keeps of it.
fn serve(
    blueprint: Blueprint,
    built: Built,
    manifests: Option<Arc<Manifests>>,
    etcd: Option<EtcdApi>,
    control: Option<(ControlClock, ControlConfig)>,
    port: Option<ControlPort>,
) -> (Served, Serving) {
    let Some((clock, options)) = control else {
        let background = blueprint.run(&built.front, built.background);
        let serving = Serving::Fixed {
            front: built.front.clone(),
            _etcd: etcd,
            _feeder: built.feeder,
        };
        return (Served::Fixed(built.front, background), serving);
    };
    let interceptor = Interceptor::new(&clock);
    let stage = Stage::new(blueprint, interceptor, manifests, built, etcd);
    let control = control::control(&stage, clock, options.memory_limit);
    let served = Served::Controlled(stage.clone(), control.clone(), port);
    (served, Serving::Controlled(stage, control))
}

/// Returns all tokens, with that of the administrator, which is new.
fn tokens(
    config: &Config,
    known: Option<TokenFile>,
    users: Vec<(String, User)>,
) -> Result<(TokenFile, String), TokenFileError> {
    let mut tokens = match (known, &config.token_auth_file) {
        (Some(known), _) => known,
        (None, Some(path)) => TokenFile::open(path)?,
        (None, None) => TokenFile::default(),
    };
    for (token, user) in users {
        tokens = tokens.with(token, user);
    }
    let token = kubeconfig::new_token();
    Ok((tokens.with(&*token, User::new("admin", [MASTERS])), token))
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
            fork: None,
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
    ///
    /// The handle stays with this store: a server with control may replace its store by another one.
    pub fn engine(&self) -> Option<Engine> {
        self.front().storage.engine.clone()
    }

    /// Returns the control of the server, if it was built with [`ApiServerBuilder::control`].
    pub fn control(&self) -> Option<&Control> {
        match &self.serving {
            Serving::Fixed { .. } => None,
            Serving::Controlled(_, control) => Some(control),
        }
    }

    /// Returns the URL of the port of control, with the port that the system chose, if there is one.
    pub fn control_endpoint(&self) -> Option<&str> {
        self.control_endpoint.as_deref()
    }

    /// Returns the current front.
    fn front(&self) -> Arc<Front> {
        match &self.serving {
            Serving::Fixed { front, .. } => front.clone(),
            Serving::Controlled(stage, _) => stage.current().front.clone(),
        }
    }

    /// Returns the URLs on which the store is served over etcd's API, with the ports that the system chose.
    pub fn etcd_endpoints(&self) -> &[String] {
        &self.etcd_endpoints
    }

    /// Returns the watch cache over the store that the server has now.
    pub fn cache(&self) -> WatchCache {
        self.front().storage.cache.clone()
    }

    /// Returns the clock of the server.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Returns whether there is a port on which requests without credentials are those of an administrator.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Makes `/readyz` fail, and goes on to serve. Done some time before [`stop`](Self::stop), it lets load balancers
    /// leave in time, as kube-apiserver does in the time of `--shutdown-delay-duration`.
    pub fn begin_stop(&self) {
        self.front().begin_stop();
    }

    /// Stops the server and waits until it has stopped: no new connections, an end of idle ones, the answers to the
    /// requests in flight, and a last bookmark and the end of each watch that allows bookmarks. Takes a second at most.
    ///
    /// Blocks the thread. Use [`stop_async`](Self::stop_async) if clients run on the same thread.
    pub fn stop(mut self) {
        if let Some(running) = self.running.take() {
            self.front().begin_stop();
            let _ = running.shutdown.send(true);
            // An error means that the thread has panicked. Its message has been printed.
            let _ = running.thread.join();
        }
    }

    /// Stops the server like [`stop`](Self::stop). The future runs on any executor.
    pub async fn stop_async(mut self) {
        if let Some(running) = self.running.take() {
            self.front().begin_stop();
            let _ = running.shutdown.send(true);
            // Returns an error when the sender is dropped. No message is sent.
            let _ = running.stopped.await;
        }
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            self.front().begin_stop();
            let _ = running.shutdown.send(true);
        }
    }
}
