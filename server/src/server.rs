//! A server inside a program: the library face.

use std::{
    io,
    net::SocketAddr,
    sync::{Mutex, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use revstore_engine::{AutoCompaction, Clock, Engine, EngineBuilder};
use revstore_grpc::Shutdown;
use revstore_host::{
    config::{EndpointUrl, ListenUrl, LogOptions, TlsOptions},
    logging::Log,
    net::{BoundAddress, Listener},
};
use tokio::{runtime, sync::oneshot};

use crate::{
    config::Config,
    data_dir,
    node::{self, Node, Sockets},
    start_error::StartError,
};

/// Threads that serve an embedded server, at most. A test has one client or a few, and there may be
/// a server in each of many tests that run at the same time.
const WORKERS_MAX: usize = 2;

/// A server on a free port of the loopback interface, in this process.
///
/// It brings its own threads, so it can be started and used from anywhere: a plain test, a tokio
/// test of any flavour, or a program without async code. Several servers do not know of each other.
///
/// - When [`start`](ServerBuilder::start) returns, clients can connect.
/// - What [`engine`](Self::engine) writes, clients read, and the other way round: it is the same
///   store.
/// - Dropping it closes its ports before `drop` returns and ends all open streams; it never waits
///   for clients. [`stop`](Self::stop) waits until requests in flight are answered.
///
/// # Costs
/// Starting takes about a millisecond and three or four threads.
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
/// Time can be moved by hand:
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
    engine: Engine,
    running: Option<Running>,
}

/// What it takes to stop a server.
#[derive(Debug)]
struct Running {
    shutdown: Shutdown,
    /// Tells nothing, and hangs up when the last port is closed. The lock makes the server `Sync`, so
    /// that tests can share one; only `drop` takes it.
    ports_open: Mutex<mpsc::Receiver<()>>,
    /// Tells nothing, and hangs up when the last connection is over.
    serving: oneshot::Receiver<()>,
    thread: JoinHandle<()>,
}

/// Sets a server up; made by [`Server::builder`].
///
/// | option | default |
/// |---|---|
/// | [`clock`](Self::clock) | the machine's time |
/// | [`start_revision`](Self::start_revision) | 1 (DM-1) |
/// | [`min_lease_ttl`](Self::min_lease_ttl) | 2 s (LE-1) |
/// | [`progress_interval`](Self::progress_interval) | 10 min (WA-50) |
/// | [`auto_compaction`](Self::auto_compaction) | off |
/// | [`max_txn_ops`](Self::max_txn_ops) | 128 (TXN-1) |
/// | [`max_request_bytes`](Self::max_request_bytes) | 1.5 MiB (LI-1) |
/// | [`quota_bytes`](Self::quota_bytes) | 2 GiB (MT-11) |
/// | [`tls`](Self::tls) | none |
/// | [`log`](Self::log) | `tracing` events, to the subscriber of the program |
/// | [`config`](Self::config) | a free port of the loopback interface, no peer port |
#[derive(Clone, Debug)]
#[must_use = "a server is started by `start`"]
pub struct ServerBuilder {
    config: Config,
    engine: EngineBuilder,
    min_lease_ttl: Option<Duration>,
    log: Option<LogOptions>,
    /// Whether clients are told of the port that the system picked, which a configuration cannot
    /// know.
    advertises_bound: bool,
}

impl Server {
    /// Sets a server up.
    pub fn builder() -> ServerBuilder {
        let config = Config {
            listen_client_urls: vec![ListenUrl::localhost(0)],
            listen_peer_urls: Vec::new(),
            ..Config::default()
        };
        ServerBuilder {
            config,
            engine: Engine::builder(),
            min_lease_ttl: None,
            log: None,
            advertises_bound: true,
        }
    }

    /// Where clients connect, as a URL: `http://127.0.0.1:port`, or what the configuration says,
    /// with the port that the system picked. With several client URLs, the first.
    pub fn endpoint(&self) -> &str {
        self.endpoints.first().map_or("", String::as_str)
    }

    /// All client URLs, in the order of the configuration.
    pub fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    /// The TCP address of [`endpoint`](Self::endpoint); `None` if that is a Unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        match self.addresses.first()? {
            BoundAddress::Tcp(address) => Some(*address),
            BoundAddress::Unix(_) => None,
        }
    }

    /// The store behind the server.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Stops the server and waits until it has: open streams end at once with `UNAVAILABLE`,
    /// requests in flight are answered, for a second at most.
    ///
    /// Blocks the thread. Where clients live on the same thread, as in a tokio test, use
    /// [`stop_async`](Self::stop_async): they could not read their answers meanwhile.
    pub fn stop(mut self) {
        if let Some(running) = self.running.take() {
            running.shutdown.begin();
            // If the thread panicked, it is stopped too, and its message has been shown.
            let _ = running.thread.join();
        }
    }

    /// [`stop`](Self::stop), waiting as a future of any executor.
    pub async fn stop_async(mut self) {
        if let Some(running) = self.running.take() {
            running.shutdown.begin();
            // It hangs up; nothing is ever sent.
            let _ = running.serving.await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.shutdown.begin();
            // It hangs up; nothing is ever sent. Connections are ended by the server's own threads.
            if let Ok(ports_open) = running.ports_open.into_inner() {
                let _ = ports_open.recv();
            }
        }
    }
}

impl ServerBuilder {
    /// The source of time: lease expiry, automatic compaction and progress notifications follow it.
    /// Pings and time-outs of connections follow the machine's time.
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.engine = self.engine.clock(clock);
        self
    }

    /// The revision that the empty store starts at; the first write gets the next one, and what
    /// lies below counts as compacted (FL-17).
    pub fn start_revision(mut self, revision: i64) -> Self {
        self.config.start_revision = revision;
        self
    }

    /// The smallest time to live of a lease (LE-1).
    pub fn min_lease_ttl(mut self, ttl: Duration) -> Self {
        self.min_lease_ttl = Some(ttl);
        self
    }

    /// How often a quiet watch that asked for it hears how far it is (WA-50); at least 100 ms.
    pub fn progress_interval(mut self, interval: Duration) -> Self {
        self.config.watch_progress_notify_interval = interval;
        self
    }

    /// When history is dropped without being asked.
    pub fn auto_compaction(mut self, policy: AutoCompaction) -> Self {
        self.config.auto_compaction = Some(policy);
        self
    }

    /// Operations in each list of a transaction (TXN-1).
    pub fn max_txn_ops(mut self, operations: usize) -> Self {
        self.config.limits.txn_ops_max = operations;
        self
    }

    /// Bytes of one write (LI-1).
    pub fn max_request_bytes(mut self, bytes: usize) -> Self {
        self.config.limits.request_bytes_max = bytes;
        self
    }

    /// Bytes of history beyond which nothing is written any more (MT-11); `None` for no limit.
    pub fn quota_bytes(mut self, bytes: Option<u64>) -> Self {
        self.config.limits.quota_bytes = bytes;
        self
    }

    /// Serves under TLS: the client URL becomes `https`.
    pub fn tls(mut self, tls: TlsOptions) -> Self {
        self.config.tls = Some(tls);
        let urls = self.config.listen_client_urls.iter_mut();
        urls.for_each(|url| *url = url.clone().under_tls());
        self
    }

    /// Logs as the binary does. By default the server emits `tracing` events to the global subscriber
    /// of the program, if there is one.
    pub fn log(mut self, log: LogOptions) -> Self {
        self.log = Some(log);
        self
    }

    /// Everything that flags can say. Replaces what was set before, except for the clock and the
    /// log; the URLs are then those of the configuration, peers included.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self.min_lease_ttl = None;
        self.advertises_bound = false;
        self
    }

    /// Starts the server. Blocks until its ports are bound, which takes no longer than the system
    /// does, so that it may be called from async code too.
    ///
    /// # Errors
    /// Something the server needs from the system is not to be had: a port, a file, threads.
    pub fn start(self) -> Result<Server, StartError> {
        let Self {
            mut config,
            engine,
            min_lease_ttl,
            log,
            advertises_bound,
        } = self;
        let log = log.as_ref().map(Log::open).transpose()?;
        let guard = log.as_ref().map(Log::install);
        if let Some(path) = &config.data_dir {
            data_dir::create(path).map_err(|source| StartError::DataDir {
                path: path.clone(),
                source,
            })?;
        }
        let sockets = Sockets::bind(&config)?;
        let addresses: Vec<BoundAddress> = sockets
            .clients()
            .iter()
            .map(|it| it.address().clone())
            .collect();
        let endpoints: Vec<String> = sockets.clients().iter().map(Listener::endpoint).collect();
        if advertises_bound {
            let urls = endpoints.iter().map(|it| EndpointUrl::parse(it));
            // What cannot be read again is not worth telling either.
            config.advertise_client_urls = urls.filter_map(Result::ok).collect();
        }
        let mut engine = node::configure(engine, &config);
        if let Some(ttl) = min_lease_ttl {
            engine = engine.lease_ttl_min(ttl);
        }
        let engine = engine.build();

        let node = Node::new(&config, sockets, engine.clone());
        drop(guard);
        let shutdown = node.shutdown();
        let (started, start) = mpsc::channel();
        let (open, ports_open) = mpsc::channel();
        let (until_stopped, serving) = oneshot::channel();
        // The runtime lives and dies in a thread of its own: whoever drops the server may be inside
        // another one, where a runtime must not be dropped.
        let thread = thread::Builder::new()
            .name("revstore-server".to_owned())
            .spawn(move || {
                let _guard = log.as_ref().map(Log::install);
                let runtime = match embedded_runtime(log.as_ref()) {
                    Ok(runtime) => runtime,
                    Err(error) => return drop(started.send(error)),
                };
                drop(started);
                runtime.block_on(node.serve(open));
                drop(until_stopped);
                runtime.shutdown_background();
            })
            .map_err(StartError::Runtime)?;
        // It hangs up when all is well.
        if let Ok(error) = start.recv() {
            return Err(StartError::Runtime(error));
        }
        Ok(Server {
            endpoints,
            addresses,
            engine,
            running: Some(Running {
                shutdown,
                ports_open: Mutex::new(ports_open),
                serving,
                thread,
            }),
        })
    }
}

fn embedded_runtime(log: Option<&Log>) -> io::Result<runtime::Runtime> {
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
