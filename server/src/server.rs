//! An embedded server, which runs inside another program.

use std::{
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use revstore_control::{Control, clock::ControlClock};
use revstore_engine::{AutoCompaction, Clock, Engine, EngineBuilder};
use revstore_grpc::{NodeState, Shutdown};
use revstore_host::{
    logging::{LogOptions, Logger},
    net::{BoundAddress, EndpointUrl, ListenUrl, Listener, TlsOptions},
};
use revstore_persist::Persist;
use tokio::{runtime, sync::oneshot};

use crate::{
    config::{Config, ControlConfig},
    in_process::{InProcess, TokioClock},
    node::{self, ServingNode, Sockets},
    persist::{Journal, Store},
    save_on_panic::SaveOnPanic,
    start_error::StartError,
};

/// The maximum number of worker threads of an embedded server. A test has few clients, and many tests with
/// one server each may run at the same time.
const WORKERS_MAX: usize = 2;

/// A server inside this process, on a free port of the loopback interface.
///
/// A server has its own threads. It can be started and used in a test without a runtime, in a tokio test of
/// any flavor, and in a program without async code. Servers are independent of each other.
///
/// - When [`start`](ServerBuilder::start) returns, clients can connect.
/// - Clients and [`engine`](Self::engine) use the same store.
/// - Dropping a server closes its ports before `drop` returns and ends all open streams, without
///   waiting for clients. [`stop`](Self::stop) waits until the requests in flight have completed.
///
/// # Costs
/// A start takes about a millisecond and creates three or four threads.
///
/// # Example
/// ```
/// use revstore::Server;
/// use revstore_proto::etcdserverpb::{PutRequest, kv_client::KvClient};
/// use tonic::transport::Endpoint;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let server = Server::builder().start()?;
/// let channel = Endpoint::new(server.endpoint().to_owned())?.connect().await?;
/// let mut client = KvClient::new(channel);
/// let put = PutRequest { key: "color".into(), value: "blue".into(), ..PutRequest::default() };
/// client.put(put).await?;
/// assert_eq!(server.engine().get("color").unwrap().value(), b"blue");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// With a manual clock, a test controls the time:
/// ```
/// use std::time::Duration;
/// use revstore::{Server, engine::{ManualClock, Put}};
///
/// let clock = ManualClock::new();
/// let server = Server::builder().clock(clock.clone()).start()?;
/// let engine = server.engine();
/// let lease = engine.grant(None, 3_600)?.id;
/// engine.put_with(&Put::new("session", "mine").attached_to(lease))?;
/// clock.advance(Duration::from_secs(3_600));
/// assert!(engine.get("session").is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a server stops when it is dropped"]
pub struct Server {
    endpoints: Vec<String>,
    addresses: Vec<BoundAddress>,
    store: ServedStore,
    /// The URL of the port of control.
    control_endpoint: Option<String>,
    running: Option<Running>,
}

/// The store of a server.
#[derive(Debug)]
enum ServedStore {
    Fixed(Engine),
    /// Control may replace it.
    Controlled(Control),
}

/// The handles to stop a running server and to wait for its end.
#[derive(Debug)]
struct Running {
    shutdown: Shutdown,
    /// Disconnects when the last port is closed. No message is sent. The lock makes the server `Sync`, so
    /// that tests can share it. Only `drop` locks it.
    ports_open: Mutex<mpsc::Receiver<()>>,
    /// Disconnects when the last connection has ended. No message is sent.
    serving: oneshot::Receiver<()>,
    thread: JoinHandle<()>,
    /// Closed at the end, so that another server can open the data directory.
    journal: Option<Journal>,
}

/// A builder of a [`Server`], created by [`Server::builder`].
///
/// | option | default |
/// |---|---|
/// | [`store`](Self::store) | a new, empty one |
/// | [`listen`](Self::listen) | a free port of the loopback interface |
/// | [`clock`](Self::clock) | the system's clock |
/// | [`start_revision`](Self::start_revision) | 1 |
/// | [`min_lease_ttl`](Self::min_lease_ttl) | 2 s |
/// | [`progress_interval`](Self::progress_interval) | 10 min |
/// | [`auto_compaction`](Self::auto_compaction) | off |
/// | [`max_txn_ops`](Self::max_txn_ops) | 128 |
/// | [`max_request_bytes`](Self::max_request_bytes) | 1.5 MiB |
/// | [`quota_bytes`](Self::quota_bytes) | 2 GiB |
/// | [`tls`](Self::tls) | none |
/// | [`log`](Self::log) | `tracing` events, to the subscriber of the program |
/// | [`control`](Self::control) | none |
/// | [`config`](Self::config) | a free port of the loopback interface, no peer port |
#[derive(Clone, Debug)]
#[must_use = "`start` starts the server"]
pub struct ServerBuilder {
    config: Config,
    engine: EngineBuilder,
    /// The store to serve, if it is not a new one.
    store: Option<Engine>,
    min_lease_ttl: Option<Duration>,
    log: Option<LogOptions>,
    /// Whether `MemberList` reports the bound addresses, with the ports that the system chose, instead
    /// of the URLs in the configuration.
    advertises_bound: bool,
    /// Whether the program has set a clock.
    has_clock: bool,
    /// With the store of a fork: its clock, and the state of its node.
    fork: Option<(ControlClock, NodeState)>,
    /// The sockets of the client URLs, if they are bound already.
    bound: Option<Arc<[Listener]>>,
}

impl Server {
    /// Returns a builder with the defaults.
    pub fn builder() -> ServerBuilder {
        let config = Config {
            listen_client_urls: vec![ListenUrl::localhost(0)],
            listen_peer_urls: Vec::new(),
            ..Config::default()
        };
        ServerBuilder {
            config,
            engine: Engine::builder(),
            store: None,
            min_lease_ttl: None,
            log: None,
            advertises_bound: true,
            has_clock: false,
            fork: None,
            bound: None,
        }
    }

    /// Starts a server without ports in the runtime of the caller, with the defaults: see [`InProcess`].
    ///
    /// # Errors
    /// The thread is not in a tokio runtime.
    pub fn in_process() -> Result<InProcess, StartError> {
        Self::builder().start_in_process()
    }

    /// Returns the first of the [`endpoints`](Self::endpoints), such as `http://127.0.0.1:40123`.
    pub fn endpoint(&self) -> &str {
        self.endpoints.first().map_or("", String::as_str)
    }

    /// Returns the URLs that clients connect to, in the order of the configuration and with the ports
    /// that the system chose.
    pub fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    /// Returns the TCP address of [`endpoint`](Self::endpoint); `None` if it is a Unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        match self.addresses.first()? {
            BoundAddress::Tcp(address) => Some(*address),
            BoundAddress::Unix(_) => None,
        }
    }

    /// Returns the store that the server has now. The handle stays with this store: a server with control may
    /// replace its store by another one. Costs a reference count.
    pub fn engine(&self) -> Engine {
        match &self.store {
            ServedStore::Fixed(engine) => engine.clone(),
            ServedStore::Controlled(control) => control.engine(),
        }
    }

    /// Returns the control of the server, if it was built with [`ServerBuilder::control`].
    pub fn control(&self) -> Option<&Control> {
        match &self.store {
            ServedStore::Fixed(_) => None,
            ServedStore::Controlled(control) => Some(control),
        }
    }

    /// Returns the URL of the port of control, with the port that the system chose, if there is one.
    pub fn control_endpoint(&self) -> Option<&str> {
        self.control_endpoint.as_deref()
    }

    /// Saves the store and the journal of requests in a new directory in `directory` if this thread panics, as a test that
    /// fails, before the returned value is dropped. Without [`control`](Self::control) nothing is saved.
    ///
    /// ```
    /// # let artifacts = tempfile::tempdir()?;
    /// let server = revstore::Server::builder().control(revstore::ClockMode::Manual).start()?;
    /// let _saved = server.save_on_panic(artifacts.path());
    /// // ... the test ...
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn save_on_panic(&self, directory: impl Into<PathBuf>) -> SaveOnPanic {
        SaveOnPanic::new(self.control().cloned(), directory.into())
    }

    /// Returns the journal of the server, if [`Config::persist`] is set.
    pub fn journal(&self) -> Option<&Persist> {
        Some(&self.running.as_ref()?.journal.as_ref()?.persist)
    }

    /// Stops the server and waits until it has stopped. Open streams end immediately with `UNAVAILABLE`,
    /// watches after the events of all revisions up to then, and requests in flight have 1 second to complete.
    ///
    /// Blocks the thread. Use [`stop_async`](Self::stop_async) if clients run on the same thread, as in
    /// a tokio test: while the thread is blocked, they cannot read their responses.
    pub fn stop(mut self) {
        if let Some(running) = self.running.take() {
            running.shutdown.begin();
            // An error means that the thread has panicked. Its message has been printed.
            let _ = running.thread.join();
        }
    }

    /// Stops the server like [`stop`](Self::stop). The future runs on any executor.
    pub async fn stop_async(mut self) {
        if let Some(running) = self.running.take() {
            running.shutdown.begin();
            // Returns an error when the sender is dropped. No message is sent.
            let _ = running.serving.await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(control) = self.control() {
            control.close();
        }
        if let Some(running) = self.running.take() {
            running.shutdown.begin();
            // Returns an error when the senders are dropped. No message is sent. The threads of the server
            // end its connections.
            if let Ok(ports_open) = running.ports_open.into_inner() {
                let _ = ports_open.recv();
            }
            if let Some(journal) = running.journal {
                journal.close();
            }
        }
    }
}

impl ServerBuilder {
    /// Serves an existing store, which the program may use at the same time and after the server has stopped.
    ///
    /// The options of new stores have no effect on it: the clock, the start revision, the minimum time to live,
    /// the progress interval and automatic compaction. Such a store is not journaled:
    /// [`start`](Self::start) fails if [`Config::persist`] is set.
    ///
    /// ```
    /// use revstore::{Server, engine::Engine};
    ///
    /// let engine = Engine::builder().build();
    /// engine.put("color", "blue")?;
    /// let server = Server::builder().store(engine).start()?;
    /// assert_eq!(server.engine().get("color").unwrap().value(), b"blue");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn store(mut self, engine: Engine) -> Self {
        self.store = Some(engine);
        self
    }

    /// Sets the URLs to listen on, which must not be empty. With port 0 the system chooses a port.
    pub fn listen(mut self, urls: impl IntoIterator<Item = ListenUrl>) -> Self {
        self.config.listen_client_urls = urls.into_iter().collect();
        self
    }

    /// Serves sockets that are bound already, instead of URLs to listen on. There must be at least one. They stay open when
    /// the server stops, as long as the caller keeps them: clients that connect meanwhile are served by the next server.
    pub fn listen_on(mut self, listeners: Arc<[Listener]>) -> Self {
        self.config.listen_client_urls = listeners.iter().map(|it| it.url().clone()).collect();
        self.bound = Some(listeners);
        self
    }

    /// Sets the clock of leases, automatic compaction and progress notifications. Pings and timeouts of
    /// connections always use the system's clock.
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.engine = self.engine.clock(clock);
        self.has_clock = true;
        self
    }

    /// Sets the revision of the empty store. The first write has the next revision. Earlier revisions count
    /// as compacted.
    pub fn start_revision(mut self, revision: i64) -> Self {
        self.config.start_revision = revision;
        self
    }

    /// Sets the minimum time to live of a lease. A shorter requested time is raised to it.
    pub fn min_lease_ttl(mut self, ttl: Duration) -> Self {
        self.min_lease_ttl = Some(ttl);
        self
    }

    /// Sets the interval of progress notifications for watchers that request them and receive no events. The
    /// minimum is 100 ms.
    pub fn progress_interval(mut self, interval: Duration) -> Self {
        self.config.watch_progress_notify_interval = interval;
        self
    }

    /// Sets the policy of automatic compaction.
    pub fn auto_compaction(mut self, policy: AutoCompaction) -> Self {
        self.config.auto_compaction = Some(policy);
        self
    }

    /// Sets the maximum number of operations in each list of a transaction.
    pub fn max_txn_ops(mut self, operations: usize) -> Self {
        self.config.limits.txn_ops_max = operations;
        self
    }

    /// Sets the maximum size of a write, in bytes.
    pub fn max_request_bytes(mut self, bytes: usize) -> Self {
        self.config.limits.request_bytes_max = bytes;
        self
    }

    /// Sets the size of the history in bytes above which writes fail; `None` for no limit.
    pub fn quota_bytes(mut self, bytes: Option<u64>) -> Self {
        self.config.limits.quota_bytes = bytes;
        self
    }

    /// Serves with TLS: the scheme of the client URLs becomes `https`.
    pub fn tls(mut self, tls: TlsOptions) -> Self {
        self.config.tls = Some(tls);
        let urls = self.config.listen_client_urls.iter_mut();
        urls.for_each(|url| *url = url.clone().under_tls());
        self
    }

    /// Sets the log, in the format of the binary. By default, the server emits `tracing` events to the global
    /// subscriber of the program, if it has one.
    pub fn log(mut self, log: LogOptions) -> Self {
        self.log = Some(log);
        self
    }

    /// Sets all options that have flags. Replaces earlier settings except the clock and the log. The server
    /// then binds the URLs of the configuration, including peer URLs.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self.min_lease_ttl = None;
        self.advertises_bound = false;
        self
    }

    /// Lets the program control the time, the store and the faults of the server, by [`Server::control`]: a mode of the
    /// clock, or all options, with a port for clients in other processes.
    ///
    /// The server then has a clock of its own: [`start`](Self::start) fails after [`clock`](Self::clock) or
    /// [`store`](Self::store).
    ///
    /// ```
    /// use std::time::Duration;
    /// use revstore::{ClockMode, Server, engine::Put};
    ///
    /// let server = Server::builder().control(ClockMode::Manual).start()?;
    /// let control = server.control().expect("control is on");
    /// let engine = server.engine();
    /// let lease = engine.grant(None, 60)?.id;
    /// engine.put_with(&Put::new("session", "mine").attached_to(lease))?;
    /// control.advance(Duration::from_secs(60))?;
    /// assert!(engine.get("session").is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn control(mut self, options: impl Into<ControlConfig>) -> Self {
        self.config.control = Some(options.into());
        self
    }

    /// Builds a fork.
    pub(crate) fn of_fork(
        config: Config,
        engine: Engine,
        clock: ControlClock,
        state: NodeState,
    ) -> Self {
        Self {
            config,
            store: Some(engine),
            fork: Some((clock, state)),
            ..Server::builder()
        }
    }

    /// Starts a server without ports, threads and a runtime of its own: see [`InProcess`]. The URLs to listen on have no
    /// effect. Unless [`clock`](Self::clock) was called, the clock of a new store is a [`TokioClock`].
    ///
    /// With [`control`](Self::control), the clock is [one of control](ControlClock::in_runtime) that follows the time of the runtime
    /// in the mode [`System`](crate::ClockMode::System). [`InProcess::control`] has all operations but forks, which
    /// [`InProcess::fork`] makes, and there is no port for clients in other processes.
    ///
    /// # Errors
    /// The thread is not in a tokio runtime, or the builder has one of the options `tls`, `log`, `persist` and
    /// [`ControlConfig::listen_url`], or `control` together with `clock` or `store`.
    ///
    /// # Panics
    /// The runtime has no time.
    pub fn start_in_process(self) -> Result<InProcess, StartError> {
        let Self {
            mut config,
            mut engine,
            store,
            min_lease_ttl,
            log,
            has_clock,
            fork,
            ..
        } = self;
        let control = config.control.clone();
        let has_port = control.as_ref().is_some_and(|it| it.listen_url.is_some());
        let refused = [
            ("control.listen_url", has_port),
            ("tls", config.tls.is_some()),
            ("log", log.is_some()),
            ("persist", config.persist.is_some()),
        ];
        if let Some((option, _)) = refused.into_iter().find(|(_, is_set)| *is_set) {
            return Err(StartError::InProcess { option });
        }
        if runtime::Handle::try_current().is_err() {
            return Err(StartError::NoRuntime);
        }
        if control.is_some() && fork.is_none() && (has_clock || store.is_some()) {
            return Err(StartError::ControlOfStore);
        }
        let (clock, node_state) = match fork {
            Some((clock, node_state)) => (Some(clock), Some(node_state)),
            None => (
                (control.as_ref()).map(ControlConfig::new_clock_in_runtime),
                None,
            ),
        };
        if let Some(clock) = &clock {
            engine = engine.clock(clock.clone());
        } else if !has_clock && store.is_none() {
            engine = engine.clock(TokioClock::new());
        }
        config.listen_client_urls.clear();
        config.listen_client_http_urls.clear();
        config.listen_metrics_urls.clear();
        config.listen_peer_urls.clear();
        let sockets = Sockets::bind(&config, None)?;
        let mut store = open_store(&config, engine, store, min_lease_ttl)?;
        if let Some(node_state) = node_state {
            store.state = node_state;
        }
        Ok(match clock.zip(control.as_ref()) {
            Some(control) => {
                let shutdown = Shutdown::new();
                let ended = shutdown.clone();
                let (stage, control) =
                    node::portless_stage(&config, sockets, &store, control, ended);
                InProcess::controlled(config, stage, control, shutdown)
            }
            None => InProcess::new(&config, node::portless(&config, sockets, &store)),
        })
    }

    /// Starts the server. Blocks until its ports are bound. This takes only the time of the system calls, so
    /// async code may call it too.
    ///
    /// # Errors
    /// A resource that the server needs is not available: a port, a file, threads.
    pub fn start(self) -> Result<Server, StartError> {
        let Self {
            mut config,
            engine,
            store,
            min_lease_ttl,
            log,
            advertises_bound,
            has_clock,
            fork,
            bound,
        } = self;
        if config.control.is_some() && fork.is_none() && (has_clock || store.is_some()) {
            return Err(StartError::ControlOfStore);
        }
        let (clock, node_state) = match fork {
            Some((clock, node_state)) => (Some(clock), Some(node_state)),
            None => (config.control.as_ref().map(ControlConfig::new_clock), None),
        };
        let engine = match &clock {
            Some(clock) => engine.clock(clock.clone()),
            None => engine,
        };
        let log = log.as_ref().map(Logger::open).transpose()?;
        let guard = log.as_ref().map(Logger::install);
        let sockets = Sockets::bind(&config, bound.as_deref())?;
        let addresses: Vec<BoundAddress> = sockets
            .clients()
            .iter()
            .map(|it| it.address().clone())
            .collect();
        let endpoints: Vec<String> = sockets.clients().iter().map(Listener::endpoint).collect();
        let control_endpoint = sockets.control_endpoint();
        if advertises_bound {
            let urls = endpoints.iter().map(|it| EndpointUrl::parse(it));
            // A URL that cannot be parsed, for example with a blank in its socket path, is not advertised.
            config.advertise_client_urls = urls.filter_map(Result::ok).collect();
        }
        let mut store = open_store(&config, engine, store, min_lease_ttl)?;
        if let Some(node_state) = node_state {
            store.state = node_state;
        }
        let node = ServingNode::new(&config, sockets, &store, clock);
        let served = match node.control() {
            Some(control) => ServedStore::Controlled(control),
            None => ServedStore::Fixed(store.engine),
        };
        let journal = node.journal();
        let closed_on_drop = journal.clone();
        drop(guard);
        let shutdown = node.shutdown();
        let (failure_sender, failure) = mpsc::channel();
        let (open, ports_open) = mpsc::channel();
        let (until_stopped, serving) = oneshot::channel();
        // The runtime is created and dropped in a separate thread: the server may be dropped inside another
        // runtime, and dropping a runtime there panics.
        let thread = thread::Builder::new()
            .name("revstore-server".to_owned())
            .spawn(move || {
                let _guard = log.as_ref().map(Logger::install);
                let runtime = match embedded_runtime(log.as_ref()) {
                    Ok(runtime) => runtime,
                    Err(error) => return drop(failure_sender.send(error)),
                };
                drop(failure_sender);
                runtime.block_on(node.serve(open, || ()));
                if let Some(journal) = journal {
                    journal.close();
                }
                drop(until_stopped);
                runtime.shutdown_background();
            })
            .map_err(StartError::Runtime)?;
        // Disconnects if the runtime has started.
        if let Ok(error) = failure.recv() {
            return Err(StartError::Runtime(error));
        }
        Ok(Server {
            endpoints,
            addresses,
            store: served,
            control_endpoint,
            running: Some(Running {
                shutdown,
                ports_open: Mutex::new(ports_open),
                serving,
                thread,
                journal: closed_on_drop,
            }),
        })
    }
}

/// Returns the store of the program, or opens one.
fn open_store(
    config: &Config,
    engine: EngineBuilder,
    store: Option<Engine>,
    min_lease_ttl: Option<Duration>,
) -> Result<Store, StartError> {
    match store {
        Some(_) if config.persist.is_some() => Err(StartError::PersistOfStore),
        Some(engine) => Ok(Store::of(engine)),
        None => {
            let mut engine = node::configure(engine, config)?;
            if let Some(ttl) = min_lease_ttl {
                engine = engine.lease_ttl_min(ttl);
            }
            Store::open(config, engine)
        }
    }
}

fn embedded_runtime(log: Option<&Logger>) -> io::Result<runtime::Runtime> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut runtime = runtime::Builder::new_multi_thread();
    if let Some(log) = log {
        log.install_on_runtime(&mut runtime);
    }
    runtime
        .worker_threads(cores.min(WORKERS_MAX))
        .enable_all()
        .thread_name("revstore-worker")
        .build()
}
