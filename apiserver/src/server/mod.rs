//! A server, which runs inside another program or is the process.

mod certificate;
mod kubeconfig;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use revstore_engine::{Clock, Engine, SystemClock};
use revstore_host::net::{
    BindError, Certificate, ClientAuth, EndpointUrl, HttpOptions, ListenUrl, Listener, TlsAcceptor,
    TlsError, TlsOptions, UrlError,
};
use revstore_watch_cache::cache::FeederThread;
use revstore_watch_cache::source::Compactor;
use revstore_watch_cache::{RequestError, WatchCache};
use thiserror::Error;
use tokio::runtime;
use tokio::sync::{oneshot, watch};

use crate::auth::{Authenticator, Authorizer, ServiceAccounts, TokenFile, TokenFileError, User};
use crate::auth::{AuthorizationMode, Follower, MASTERS, create_bootstrap_policy};
use crate::catalog::{Catalog, serve_definitions};
use crate::config::Config;
use crate::http::{ConnectionService, Front, Limits, Random};
use crate::metrics::Requests;
use crate::openapi::Documents;
use crate::storage::Storage;
use crate::stream::Workers;

/// The port of a URL without one.
const HTTPS_PORT: u16 = 443;
/// The maximum number of worker threads. A test has few clients, and many tests with one server each may run at the
/// same time.
const WORKERS_MAX: usize = 4;

/// The time for which a stopping server waits for requests in flight before it ends the watches. It is less than that
/// for which connections are kept ([`GRACE_PERIOD`](revstore_host::net::GRACE_PERIOD)).
const DRAIN_TIME: Duration = Duration::from_millis(500);

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
    /// The certificate cannot be created.
    #[error("cannot create a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The file of bearer tokens cannot be used.
    #[error(transparent)]
    Tokens(#[from] TokenFileError),
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A resource cannot be set up.
    #[error("cannot set up the resources: {0}")]
    Resources(#[from] RequestError),
    /// The runtime cannot start.
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
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
    /// Stops when it is dropped.
    _feeder: FeederThread,
}

#[derive(Debug)]
struct Running {
    shutdown: watch::Sender<bool>,
    stopped: oneshot::Receiver<()>,
    thread: JoinHandle<()>,
}

/// A builder of an [`ApiServer`], created by [`ApiServer::builder`].
///
/// | option | default |
/// |---|---|
/// | [`clock`](Self::clock) | the system's clock |
/// | [`random`](Self::random) | the generator of the thread |
/// | [`engine`](Self::engine) | a new, empty store |
/// | [`etcd_listen`](Self::etcd_listen) | the store is not served over etcd's API |
/// | [`config`](Self::config) | plain HTTP and HTTPS on free ports of the loopback interface |
#[must_use = "`start` starts the server"]
pub struct ApiServerBuilder {
    config: Config,
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
    /// let second = ApiServer::builder().engine(first.engine().clone()).start()?;
    /// # let _ = second;
    /// # Ok::<(), revstore_apiserver::StartError>(())
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

    /// Sets all options that have flags.
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
    /// A resource that the server needs is not available: a port, a file, threads.
    pub fn start(self) -> Result<ApiServer, StartError> {
        let Self {
            config,
            engine,
            clock,
            random,
        } = self;
        let clock = clock.unwrap_or_else(|| Arc::new(SystemClock::new()));
        let directory = tempfile::Builder::new()
            .prefix("revstore-apiserver-")
            .tempdir()
            .map_err(StartError::Runtime)?;
        let mut tokens = match &config.token_auth_file {
            Some(path) => TokenFile::open(path)?,
            None => TokenFile::default(),
        };
        let admin_token = kubeconfig::new_token();
        tokens = tokens.with(&*admin_token, User::new("admin", [MASTERS]));

        let http = config.http.map(|it| bind(it, "http")).transpose()?;
        let https = config.https.map(|it| bind(it, "https")).transpose()?;
        let (tls, authority) = match &https {
            None => (None, None),
            Some(listener) => {
                let files = certificate::files(&config, directory.path(), listener)?;
                let acceptor = acceptor(&config, files.certificate())?;
                (Some(acceptor), Some(files.authority))
            }
        };
        let endpoints: Vec<String> = [&http, &https]
            .into_iter()
            .flatten()
            .map(Listener::endpoint)
            .collect();
        let secure = https.as_ref().map(Listener::endpoint);
        let kubeconfig = kubeconfig::text(
            secure.as_deref().unwrap_or(&endpoints[0]),
            authority.as_deref(),
            &admin_token,
        );
        let kubeconfig_path = match &config.kubeconfig_out {
            Some(path) => path.clone(),
            None => directory.path().join("kubeconfig"),
        };
        kubeconfig::write(&kubeconfig_path, &kubeconfig)?;

        let ranges = config.service_ranges.clone();
        let (storage, feeder) = Storage::embedded(engine, clock, &config.etcd_prefix, ranges);
        let storage = Arc::new(storage);
        let etcd = serve_etcd(&config, &storage)?;
        let catalog = Catalog::default();
        crate::catalog::add_builtin(&catalog, &storage)?;
        // Begun now, the feeder loads all resources at once.
        let feeder = feeder.spawn();
        pollster::block_on(async {
            catalog.wait_until_ready().await?;
            let url = secure.as_ref().unwrap_or(&endpoints[0]);
            let port = url.rsplit(':').next().and_then(|port| port.parse().ok());
            crate::bootstrap::create(&catalog, &storage, port.unwrap_or(HTTPS_PORT)).await
        })?;
        let (authorizer, followers) =
            authorizer(config.authorization_mode, &catalog, &(storage.now())())?;
        let front = Arc::new(Front {
            authenticator: Authenticator {
                tokens,
                service_accounts: ServiceAccounts::generate(),
            },
            authorizer,
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
            is_stopping: AtomicBool::new(false),
        });
        let compactor = config
            .etcd_compaction_interval
            .map(|interval| storage.compactor(interval));
        let running = serve(front.clone(), followers, compactor, http, https, tls)?;
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

/// Returns what accepts connections with TLS.
fn acceptor(config: &Config, certificate: Certificate) -> Result<TlsAcceptor, TlsError> {
    let mut options = TlsOptions::new(certificate);
    if let Some(path) = &config.client_ca_file {
        options = options.client_auth(ClientAuth::new(path).names_users(true).optional(true));
    }
    TlsAcceptor::new(&options, &[])
}

/// Serves the store over etcd's API, if the configuration asks for it.
fn serve_etcd(config: &Config, storage: &Storage) -> Result<Option<revstore::Server>, StartError> {
    if config.etcd_listen_urls.is_empty() {
        return Ok(None);
    }
    let server = revstore::Server::builder().listen(config.etcd_listen_urls.clone());
    Ok(Some(server.store(storage.engine.clone()).start()?))
}

/// Returns the listener of an address.
fn bind(address: SocketAddr, scheme: &str) -> Result<Listener, StartError> {
    let url = EndpointUrl::parse(&format!("{scheme}://{address}"))?;
    Ok(Listener::bind(&ListenUrl::try_from(url)?)?)
}

/// Returns what decides about requests, with the roles and bindings of the store, and what follows these.
fn authorizer(
    mode: AuthorizationMode,
    catalog: &Catalog,
    now: &str,
) -> Result<(Authorizer, Vec<Follower>), RequestError> {
    let authorizer = Authorizer {
        mode,
        rbac: Arc::default(),
    };
    let followers = match mode {
        AuthorizationMode::AlwaysAllow => Vec::new(),
        AuthorizationMode::Rbac => pollster::block_on(async {
            create_bootstrap_policy(catalog, now).await?;
            Follower::load_all(catalog, &authorizer.rbac).await
        })?,
    };
    Ok((authorizer, followers))
}

/// Serves the listeners in a thread with a runtime.
fn serve(
    front: Arc<Front>,
    followers: Vec<Follower>,
    compactor: Option<Compactor>,
    http: Option<Listener>,
    https: Option<Listener>,
    tls: Option<TlsAcceptor>,
) -> Result<Running, StartError> {
    let (shutdown, begun) = watch::channel(false);
    let (until_stopped, stopped) = oneshot::channel::<()>();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(cores.min(WORKERS_MAX))
        .enable_all()
        .thread_name("apiserver-worker")
        .build()
        .map_err(StartError::Runtime)?;
    // The runtime is dropped in a thread of its own: the server may be dropped inside another runtime, and dropping a
    // runtime there panics.
    let thread = thread::Builder::new()
        .name("apiserver".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                tokio::spawn(serve_definitions(front.clone()));
                for follower in followers {
                    tokio::spawn(follower.run());
                }
                if let Some(compactor) = compactor {
                    tokio::spawn(compactor.run());
                }
                let mut ports = tokio::task::JoinSet::new();
                for (listener, trusted, tls) in [(http, true, None), (https, false, tls)] {
                    let Some(listener) = listener else {
                        continue;
                    };
                    let (front, begun) = (front.clone(), begun.clone());
                    ports.spawn(async move {
                        let make_service = move |client| ConnectionService {
                            front: front.clone(),
                            client: Arc::new(client),
                            trusted,
                        };
                        let shutdown = move || {
                            let mut begun = begun.clone();
                            async move {
                                // An error means that the server is gone.
                                let _ = begun.wait_for(|begun| *begun).await;
                            }
                        };
                        listener
                            .serve(HttpOptions::new(), tls, make_service, shutdown, || {})
                            .await
                    });
                }
                let mut begun = begun;
                // An error means that the server is gone.
                let _ = begun.wait_for(|begun| *begun).await;
                // The listeners are closed, and clients are told to leave. What they have asked for is done before the
                // watches end.
                let _ = tokio::time::timeout(DRAIN_TIME, front.limits.drained()).await;
                front.storage.cache.stop();
                while ports.join_next().await.is_some() {}
            });
            drop(until_stopped);
            runtime.shutdown_background();
        })
        .map_err(StartError::Runtime)?;
    Ok(Running {
        shutdown,
        stopped,
        thread,
    })
}

impl ApiServer {
    /// Returns a builder with the defaults.
    pub fn builder() -> ApiServerBuilder {
        ApiServerBuilder {
            config: Config::embedded(),
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

    /// Returns the store of the server.
    pub fn engine(&self) -> &Engine {
        &self.storage.engine
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
