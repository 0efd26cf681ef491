//! A server without ports, in the runtime of its caller.
//!
//! `tokio_clock` is the clock of such a server, `channel` its client side, `fork` makes copies of it. The connections use the same code as those of sockets.

#[cfg(feature = "channel")]
mod channel;
mod fork;
mod tokio_clock;

use std::{fmt, future::Future, sync::Arc};

use parking_lot::Mutex;
use revstore_control::Control;
use revstore_engine::Engine;
use revstore_grpc::Shutdown;
use revstore_host::net::{self, ClientIdentity, GRACE_PERIOD, HttpOptions};
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, duplex},
    task::{AbortHandle, JoinSet},
    time::timeout,
};

use crate::{
    config::Config,
    control::{Controlled, Stage},
    http::Dispatch,
    node::{Node, PortKind, http_options},
};

#[cfg(feature = "channel")]
pub use channel::Connector;
pub use tokio_clock::TokioClock;

/// The number of bytes that each side of [`InProcess::connect`] writes before the other side has read them.
const BUFFER_BYTES: usize = 64 * 1024;

/// A server without ports, threads and a runtime of its own: its tasks run in the runtime in which it was started,
/// beside the clients. Created by [`Server::in_process`](crate::Server::in_process) or
/// [`ServerBuilder::start_in_process`](crate::ServerBuilder::start_in_process).
///
/// - Clients connect by [`connect`](Self::connect), or with a stream of any kind that the program gives to
///   [`serve`](Self::serve), such as one of a network simulator. The bytes are those of a connection over a socket.
/// - Unless the builder has a clock, the time is that of the runtime ([`TokioClock`]): under `tokio::time::pause`,
///   leases expire without waiting.
/// - In a runtime of one thread, the same requests in the same order have the same responses at the same times,
///   except for the ids of leases that the server chooses and for tokens of users. Compactions, hashes of passwords and requests for very many keys use the
///   threads of the runtime for blocking work, which paused time waits for.
/// - Dropping the server ends all open streams with `UNAVAILABLE`. Requests in flight have 1 second.
///
/// Clones share the server, which ends with the last one.
///
/// ```
/// use std::time::Duration;
/// use revstore::Server;
/// use revstore_proto::etcdserverpb::{PutRequest, RangeRequest, kv_client::KvClient};
///
/// # #[cfg(feature = "channel")]
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// let server = Server::in_process()?;
/// let mut client = KvClient::new(server.channel());
/// let lease = server.engine().grant(None, 3_600)?.id;
/// let put = PutRequest { key: "session".into(), lease: lease.get(), ..PutRequest::default() };
/// client.put(put).await?;
/// tokio::time::sleep(Duration::from_secs(3_601)).await;
/// let range = RangeRequest { key: "session".into(), ..RangeRequest::default() };
/// assert_eq!(client.range(range).await?.into_inner().count, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use = "a server stops when it is dropped"]
pub struct InProcess {
    inner: Arc<Inner>,
}

struct Inner {
    served: Served,
    options: HttpOptions,
    shutdown: Shutdown,
    /// The tasks of `connect`. Held to add one or to take all.
    connections: Mutex<JoinSet<()>>,
}

/// What connections are served by.
enum Served {
    Node {
        engine: Engine,
        dispatch: Dispatch,
        /// With automatic compaction. Aborted at the end.
        compaction_log: Option<AbortHandle>,
    },
    /// With control.
    Stage(Box<Staged>),
}

struct Staged {
    stage: Stage,
    control: Control,
    /// For forks.
    config: Config,
}

const PORT: PortKind = PortKind::Client { has_http: true };

impl InProcess {
    /// Starts a node. Must run in a runtime.
    pub(crate) fn new(config: &Config, node: Node) -> Self {
        let (grpc, http) = node.of_port(PORT, false);
        let log = node.grpc.services.log_auto_compactions();
        let served = Served::Node {
            dispatch: Dispatch::new(grpc.cloned(), http.cloned()),
            compaction_log: log.map(|log| tokio::spawn(log).abort_handle()),
            engine: node.engine,
        };
        Self::of(http_options(config, PORT), served, node.shutdown)
    }

    /// Starts a stage, which ends with `shutdown`. Must run in a runtime.
    pub(crate) fn controlled(
        config: Config,
        stage: Stage,
        control: Control,
        shutdown: Shutdown,
    ) -> Self {
        stage.spawn();
        let options = http_options(&config, PORT);
        let staged = Staged {
            stage,
            control,
            config,
        };
        Self::of(options, Served::Stage(Box::new(staged)), shutdown)
    }

    fn of(options: HttpOptions, served: Served, shutdown: Shutdown) -> Self {
        let inner = Inner {
            served,
            options,
            shutdown,
            connections: Mutex::default(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Returns the store that the server has now. A server with control may replace its store by another one.
    pub fn engine(&self) -> Engine {
        match &self.inner.served {
            Served::Node { engine, .. } => engine.clone(),
            Served::Stage(staged) => staged.stage.engine(),
        }
    }

    /// Returns the control of the server, if it was built with [`ServerBuilder::control`](crate::ServerBuilder::control).
    ///
    /// ```
    /// use std::time::Duration;
    /// use revstore::{ClockMode, Server, engine::Put};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
    /// let server = Server::builder().control(ClockMode::Manual).start_in_process()?;
    /// let lease = server.engine().grant(None, 60)?.id;
    /// server.engine().put_with(&Put::new("session", "mine").attached_to(lease))?;
    /// tokio::time::sleep(Duration::from_secs(3_600)).await;
    /// assert!(server.engine().get("session").is_some());
    /// server.control().expect("control is on").advance(Duration::from_secs(60))?;
    /// assert!(server.engine().get("session").is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn control(&self) -> Option<&Control> {
        match &self.inner.served {
            Served::Node { .. } => None,
            Served::Stage(staged) => Some(&staged.control),
        }
    }

    /// Opens a connection and returns the client's end, for HTTP/2 or HTTP/1.1. It holds up to 64 KiB in each direction.
    ///
    /// # Panics
    /// The thread is not in a tokio runtime.
    pub fn connect(&self) -> DuplexStream {
        let (client, server) = duplex(BUFFER_BYTES);
        let connection = self.serve(server);
        let mut connections = self.inner.connections.lock();
        // Frees the tasks of connections that have ended.
        while connections.try_join_next().is_some() {}
        connections.spawn(connection);
        client
    }

    /// Returns a future that serves a connection, without TLS, until the client closes it or the server stops.
    /// Dropping the future closes the connection.
    ///
    /// The future does not keep the server alive.
    pub fn serve<S>(&self, stream: S) -> impl Future<Output = ()> + Send + use<S>
    where
        S: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin + 'static,
    {
        let Inner {
            served,
            options,
            shutdown,
            ..
        } = &*self.inner;
        let (options, shutdown) = (*options, shutdown.clone());
        let served = match served {
            Served::Node { dispatch, .. } => Ok(dispatch.clone()),
            Served::Stage(staged) => {
                let stage = &staged.stage;
                Err((Controlled::new(stage.clone(), PORT, false), stage.gate()))
            }
        };
        async move {
            let connection = async {
                match served {
                    Ok(dispatch) => {
                        let service = move |client: ClientIdentity| dispatch.for_client(client);
                        net::serve_connection_until(stream, options, service, shutdown.begun())
                            .await
                    }
                    Err((controlled, gate)) => {
                        let service = move |client: ClientIdentity| controlled.for_client(client);
                        let begun = || shutdown.begun();
                        net::serve_gated_connection(stream, options, service, begun, gate).await
                    }
                }
            };
            let cut = async {
                shutdown.begun().await;
                tokio::time::sleep(GRACE_PERIOD).await;
            };
            tokio::select! {
                // An error belongs to the client, which sees its end of the connection.
                _ = connection => {}
                () = cut => {}
            }
        }
    }

    /// Stops the server and waits until its connections have ended, at most a second by the time of the runtime. Those of other
    /// clones and of [`serve`](Self::serve) end, too.
    pub async fn stop(self) {
        self.inner.shutdown.begin();
        let mut connections = std::mem::take(&mut *self.inner.connections.lock());
        let ended = async { while connections.join_next().await.is_some() {} };
        // The tasks that remain are dropped.
        let _ = timeout(GRACE_PERIOD, ended).await;
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shutdown.begin();
        match &self.served {
            Served::Node { compaction_log, .. } => {
                if let Some(log) = compaction_log {
                    log.abort();
                }
            }
            Served::Stage(staged) => staged.control.close(),
        }
        // The tasks end by themselves: clients still read their last responses.
        self.connections.get_mut().detach_all();
    }
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcess")
            .field("engine", &self.engine())
            .finish_non_exhaustive()
    }
}
