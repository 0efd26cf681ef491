//! Listening sockets: binding them, accepting connections, and draining them on shutdown.
//!
//! Binding is synchronous and separate from serving, so that a program can report an address that cannot be
//! bound before it starts other parts.

use std::{
    error::Error,
    fmt, fs, io, mem,
    net::SocketAddr,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
    task::JoinSet,
    time::{self, Instant},
};
use tracing::{debug, warn};

use crate::net::{
    BoxError, ConnectionGate, ConnectionHandle, HttpOptions, ListenAddress, ListenUrl, MakeService,
    TlsAcceptor,
    connection::{self, ConnectionError, Security, Serving},
    gate::{Remains, run_gated},
    tls::UNNAMED,
    transport::Transport,
};

/// The time for which a stopping [`Listener`] waits for requests in flight before it drops their connections.
pub const GRACE_PERIOD: Duration = Duration::from_secs(1);

/// The number of connections that the system queues for a socket with a shared port, as for other sockets.
const BACKLOG: i32 = 128;

/// TCP keep-alive (LI-11): the time without traffic after which the system probes a connection, the time between
/// two probes, and the number of probes without an answer after which the connection ends, 165 s in all. It finds
/// dead peers of which HTTP/2 pings know nothing: before the first byte, and over HTTP/1.1.
const KEEPALIVE: socket2::TcpKeepalive = socket2::TcpKeepalive::new()
    .with_time(Duration::from_secs(30))
    .with_interval(Duration::from_secs(15))
    .with_retries(9);

/// The delay after a failed `accept`, for example because the process has no free file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// The minimum time between two warnings about failed `accept`s.
const ACCEPT_WARNING_INTERVAL: Duration = Duration::from_secs(1);

/// The address that a [`Listener`] is bound to, with the port that the system chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BoundAddress {
    /// A TCP address.
    Tcp(SocketAddr),
    /// The path of a Unix socket file.
    Unix(PathBuf),
}

/// The error of an address that cannot be bound.
///
/// The text is that of Go programs, because users search for it: `listen tcp 127.0.0.1:2379: bind: address
/// already in use`.
#[derive(Debug, thiserror::Error)]
#[error("listen {address}: bind: {}", go_reason(source))]
pub struct BindError {
    address: GoAddress,
    source: io::Error,
}

impl BindError {
    /// Returns whether the address is in use by another socket.
    pub fn is_in_use(&self) -> bool {
        self.source.kind() == io::ErrorKind::AddrInUse
    }
}

/// A bound socket. The system queues connections from the binding on. [`serve`](Self::serve) accepts them.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    address: BoundAddress,
    url: ListenUrl,
    gate: Option<Arc<dyn ConnectionGate>>,
}

/// A bound socket that is not registered with a runtime yet.
#[derive(Debug)]
enum Socket {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener, Arc<SocketFile>),
}

/// A Unix socket file, which is removed when the last listener of the socket is dropped.
#[derive(Debug)]
struct SocketFile(PathBuf);

impl Listener {
    /// Binds the address of a URL. Replaces a socket file of an earlier process.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn bind(url: &ListenUrl) -> Result<Self, BindError> {
        Self::bind_with(url, false)
    }

    /// Binds the address of a URL. If `reuse_port` is set, other sockets with this option may have the same
    /// TCP port, and the system distributes connections among them.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn bind_with(url: &ListenUrl, reuse_port: bool) -> Result<Self, BindError> {
        Self::try_bind(url, reuse_port).map_err(|source| BindError {
            address: GoAddress(url.address().clone()),
            source,
        })
    }

    fn try_bind(url: &ListenUrl, reuse_port: bool) -> io::Result<Self> {
        let (socket, address) = match url.address() {
            ListenAddress::Tcp(address) => {
                let socket = if reuse_port {
                    bind_shared(*address)?
                } else {
                    std::net::TcpListener::bind(address)?
                };
                socket.set_nonblocking(true)?;
                // LI-11. Accepted connections inherit the options. A system without them keeps the connections of
                // dead peers, which is no reason not to serve.
                if let Err(error) = socket2::SockRef::from(&socket).set_tcp_keepalive(&KEEPALIVE) {
                    warn!(%error, "connections are without TCP keep-alive");
                }
                let address = BoundAddress::Tcp(socket.local_addr()?);
                (Socket::Tcp(socket), address)
            }
            ListenAddress::Unix(path) => {
                remove_stale_socket(path)?;
                let socket = std::os::unix::net::UnixListener::bind(path)?;
                let file = Arc::new(SocketFile(path.clone()));
                socket.set_nonblocking(true)?;
                (Socket::Unix(socket, file), BoundAddress::Unix(path.clone()))
            }
        };
        Ok(Self {
            socket,
            address,
            url: url.clone(),
            gate: None,
        })
    }

    /// Returns another listener of the same socket, without a gate. The socket stays open until both are dropped: connections
    /// that arrive while neither is served are queued by the system.
    ///
    /// # Errors
    /// The process has no free file descriptor.
    pub fn try_clone(&self) -> Result<Self, BindError> {
        let socket = match &self.socket {
            Socket::Tcp(socket) => socket.try_clone().map(Socket::Tcp),
            Socket::Unix(socket, file) => {
                let socket = socket.try_clone();
                socket.map(|socket| Socket::Unix(socket, file.clone()))
            }
        };
        let socket = socket.map_err(|source| BindError {
            address: GoAddress(self.url.address().clone()),
            source,
        })?;
        Ok(Self {
            socket,
            address: self.address.clone(),
            url: self.url.clone(),
            gate: None,
        })
    }

    /// Sets the gate that decides which connections are served.
    #[must_use]
    pub fn gate(self, gate: Arc<dyn ConnectionGate>) -> Self {
        Self {
            gate: Some(gate),
            ..self
        }
    }

    /// Returns the address that clients connect to.
    pub fn address(&self) -> &BoundAddress {
        &self.address
    }

    /// Returns the URL that it was bound to.
    pub fn url(&self) -> &ListenUrl {
        &self.url
    }

    /// Returns whether connections start with a TLS handshake.
    pub fn is_tls(&self) -> bool {
        self.url.is_tls()
    }

    /// Returns the URL that clients connect to. With TLS it has the host of the configured URL, because the
    /// certificate contains it. Without TLS it has the bound address.
    pub fn endpoint(&self) -> String {
        let scheme = self.url.url().scheme();
        match &self.address {
            BoundAddress::Unix(path) => format!("{scheme}:{}", path.display()),
            BoundAddress::Tcp(address) => match self.url.url().host_and_port() {
                Ok((host, _)) if self.is_tls() && !host.contains(':') => {
                    format!("{scheme}://{host}:{}", address.port())
                }
                _ => format!("{scheme}://{address}"),
            },
        }
    }

    /// Accepts connections and serves each in a separate task, until `shutdown` completes.
    ///
    /// After that, closes the socket, calls `on_closed`, closes idle connections, and waits for the requests
    /// in flight. Connections that remain after [`GRACE_PERIOD`] are dropped.
    ///
    /// If the URL requires TLS, `tls` performs the handshakes. Without an acceptor, connections are closed
    /// immediately.
    ///
    /// `shutdown` is called once for the listener and once for each connection (twice with a gate), and returns a
    /// future that completes when the program shuts down.
    ///
    /// # Errors
    /// The socket cannot be registered with the runtime.
    pub async fn serve<M, S>(
        self,
        options: HttpOptions,
        tls: Option<TlsAcceptor>,
        make_service: M,
        shutdown: impl Fn() -> S,
        on_closed: impl FnOnce(),
    ) -> io::Result<()>
    where
        M: MakeService,
        S: Future<Output = ()> + Send + 'static,
    {
        let security = match tls {
            _ if !self.is_tls() => Security::Plain,
            Some(acceptor) => Security::Tls(acceptor),
            None => Security::Closed,
        };
        let address = self.address;
        let socket = AsyncSocket::new(self.socket)?;
        let serving = Arc::new(Serving {
            options,
            security,
            make_service,
        });
        let mut connections = JoinSet::new();
        let mut failures = AcceptFailures::default();
        let mut stop = std::pin::pin!(shutdown());
        loop {
            tokio::select! {
                biased;
                () = &mut stop => break,
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                accepted = socket.accept(self.gate.is_some()) => match accepted {
                    Ok((transport, remains)) => {
                        let address = transport.peer_address();
                        let Some(gate) = &self.gate else {
                            connections.spawn(log_connection(
                                address,
                                connection::serve(transport, serving.clone(), None, shutdown()),
                            ));
                            continue;
                        };
                        let shutdowns = [shutdown(), shutdown()];
                        let gated = admit(gate, transport, remains, &serving, shutdowns);
                        if let Some(gated) = gated {
                            connections.spawn(log_connection(address, gated));
                        }
                    }
                    Err(error) => {
                        if let Some(unreported) = failures.report(Instant::now()) {
                            warn!(%error, unreported, "failed to accept a connection");
                        }
                        time::sleep(ACCEPT_RETRY_DELAY).await;
                    }
                },
            }
        }
        drop(socket);
        on_closed();
        let drained = async { while connections.join_next().await.is_some() {} };
        if time::timeout(GRACE_PERIOD, drained).await.is_err() {
            // The connections end when the set is dropped.
            let count = connections.len();
            warn!(%address, count, "dropping connections after the grace period");
        }
        Ok(())
    }
}

/// Serves a connection that the program has made itself, such as one in memory, like
/// [`serve_connection_until`](crate::net::serve_connection_until), with a gate. `shutdown` is called twice. A connection that
/// the gate refuses is closed.
///
/// # Errors
/// The connection has failed.
pub async fn serve_gated_connection<M, S>(
    stream: impl AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin + 'static,
    options: HttpOptions,
    make_service: M,
    shutdown: impl Fn() -> S,
    gate: Arc<dyn ConnectionGate>,
) -> Result<(), BoxError>
where
    M: MakeService,
    S: Future<Output = ()> + Send + 'static,
{
    let serving = Arc::new(Serving {
        options,
        security: Security::Plain,
        make_service,
    });
    let (remains, transport) = Remains::of_stream(stream);
    let shutdowns = [shutdown(), shutdown()];
    match admit(&gate, transport, remains, &serving, shutdowns) {
        Some(connection) => connection.await.map_err(Into::into),
        None => Ok(()),
    }
}

/// Asks the gate about a connection, and returns the future that serves it. A refused connection is reset.
fn admit<M, S>(
    gate: &Arc<dyn ConnectionGate>,
    transport: Transport,
    remains: Remains,
    serving: &Arc<Serving<M>>,
    shutdowns: [S; 2],
) -> Option<impl Future<Output = Result<(), ConnectionError>> + Send + use<M, S>>
where
    M: MakeService,
    S: Future<Output = ()> + Send + 'static,
{
    let handle = ConnectionHandle::new(transport.peer_address());
    let Some(id) = gate.admit(handle.clone()) else {
        remains.reset_on_close();
        drop(transport);
        return None;
    };
    let admitted = Admitted(gate.clone(), id);
    let [stopped, ended] = shutdowns;
    let going_away = handle.clone();
    let shutdown = async move {
        tokio::select! {
            () = stopped => {}
            () = going_away.going_away() => {}
        }
    };
    let connection = connection::serve(transport, serving.clone(), Some(id), shutdown);
    Some(async move {
        let _admitted = admitted;
        run_gated(connection, handle, remains, ended).await
    })
}

/// An admitted connection. Reports its end to the gate, also if its task is dropped.
struct Admitted(Arc<dyn ConnectionGate>, u64);

impl Drop for Admitted {
    fn drop(&mut self) {
        self.0.ended(self.1);
    }
}

/// Logs the beginning and the end of a connection.
async fn log_connection(
    address: Option<SocketAddr>,
    connection: impl Future<Output = Result<(), ConnectionError>>,
) {
    let address = address.map_or_else(|| UNNAMED.to_owned(), |it| it.to_string());
    debug!("remote-addr" = address, "accepted connection");
    match connection.await {
        Ok(()) => debug!("remote-addr" = address, "closed connection"),
        Err(error) => {
            let error: &(dyn Error + 'static) = &error;
            debug!("remote-addr" = address, error, "closed connection");
        }
    }
}

/// The failed `accept`s since the last warning.
#[derive(Default)]
struct AcceptFailures {
    last_warning: Option<Instant>,
    unreported: u64,
}

impl AcceptFailures {
    /// Records a failure. If it is time for a warning, returns the number of failures before it that had none.
    fn report(&mut self, now: Instant) -> Option<u64> {
        let is_recent = (self.last_warning)
            .is_some_and(|last| now.duration_since(last) < ACCEPT_WARNING_INTERVAL);
        if is_recent {
            self.unreported += 1;
            return None;
        }
        self.last_warning = Some(now);
        Some(mem::take(&mut self.unreported))
    }
}

/// A socket that is registered with the runtime.
enum AsyncSocket {
    Tcp(TcpListener),
    Unix {
        listener: UnixListener,
        /// Removed when the socket is closed.
        _file: Arc<SocketFile>,
    },
}

impl AsyncSocket {
    fn new(socket: Socket) -> io::Result<Self> {
        Ok(match socket {
            Socket::Tcp(socket) => Self::Tcp(TcpListener::from_std(socket)?),
            Socket::Unix(socket, file) => Self::Unix {
                listener: UnixListener::from_std(socket)?,
                _file: file,
            },
        })
    }

    /// Accepts a connection. What stays of it is only prepared for a gate.
    async fn accept(&self, is_gated: bool) -> io::Result<(Transport, Remains)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // Small responses must be sent without delay. If the option cannot be set, they are only
                // slower.
                let _ = stream.set_nodelay(true);
                let remains = is_gated.then(|| Remains::of_tcp(&stream));
                let remains = remains.unwrap_or(Remains::None);
                Ok((Transport::Tcp(stream), remains))
            }
            Self::Unix { listener, .. } => {
                let (stream, _) = listener.accept().await?;
                let remains = is_gated.then(|| Remains::of_unix(&stream));
                let remains = remains.unwrap_or(Remains::None);
                Ok((Transport::Boxed(Box::new(stream)), remains))
            }
        }
    }
}

/// Binds a TCP port that other sockets with the same option may also bind.
fn bind_shared(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = socket2::Socket::new(
        socket2::Domain::for_address(address),
        socket2::Type::STREAM,
        Some(socket2::Protocol::TCP),
    )?;
    // The options and the backlog of std.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Removes the socket file of a killed process. A file of another kind is not removed, and binding then
/// fails.
fn remove_stale_socket(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => fs::remove_file(path),
        _ => Ok(()),
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // An error means that the file has been removed already.
        let _ = fs::remove_file(&self.0);
    }
}

impl fmt::Display for BoundAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// An address after the name of its network, as in Go's errors.
#[derive(Debug)]
struct GoAddress(ListenAddress);

impl fmt::Display for GoAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ListenAddress::Tcp(address) => write!(f, "tcp {address}"),
            ListenAddress::Unix(path) => write!(f, "unix {}", path.display()),
        }
    }
}

/// Returns the system's text for common errors, without the error number that Rust adds.
fn go_reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "address already in use".to_owned(),
        io::ErrorKind::AddrNotAvailable => "cannot assign requested address".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::EndpointUrl;

    fn url(text: &str) -> ListenUrl {
        EndpointUrl::parse(text).unwrap().try_into().unwrap()
    }

    #[test]
    fn failures_to_accept_are_logged_once_per_second() {
        let mut failures = AcceptFailures::default();
        let start = Instant::now();
        let reports: Vec<_> = (0..=40)
            .map(|count| failures.report(start + count * ACCEPT_RETRY_DELAY))
            .collect();
        let warnings: Vec<_> = reports.iter().flatten().collect();
        assert_eq!(warnings, [&0, &19, &19]);
    }

    #[test]
    fn fl_10_port_0_is_replaced_by_the_port_of_the_system() {
        let listener = Listener::bind(&url("http://127.0.0.1:0")).unwrap();
        let BoundAddress::Tcp(address) = listener.address() else {
            panic!("expected a TCP address, got {listener:?}");
        };
        assert_ne!(address.port(), 0);
    }

    #[test]
    fn li_11_accepted_connections_have_the_keep_alive_of_etcd() {
        for reuse_port in [false, true] {
            let listener = Listener::bind_with(&url("http://127.0.0.1:0"), reuse_port).unwrap();
            let (Socket::Tcp(socket), BoundAddress::Tcp(address)) =
                (&listener.socket, &listener.address)
            else {
                panic!("expected a TCP socket, got {listener:?}");
            };
            socket.set_nonblocking(false).unwrap();
            let _client = std::net::TcpStream::connect(address).unwrap();
            let (accepted, _) = socket.accept().unwrap();
            let accepted = socket2::SockRef::from(&accepted);
            assert!(accepted.keepalive().unwrap());
            let (time, interval) = (
                accepted.tcp_keepalive_time().unwrap(),
                accepted.tcp_keepalive_interval().unwrap(),
            );
            assert_eq!((time.as_secs(), interval.as_secs()), (30, 15));
            assert_eq!(accepted.tcp_keepalive_retries().unwrap(), 9);
        }
    }

    #[test]
    fn fl_9_a_port_in_use_is_reported_with_the_text_of_go() {
        let first = Listener::bind(&url("http://127.0.0.1:0")).unwrap();
        let second = Listener::bind(&url(&format!("http://{}", first.address()))).unwrap_err();
        assert_eq!(
            second.to_string(),
            format!(
                "listen tcp {}: bind: address already in use",
                first.address()
            )
        );
    }

    #[test]
    fn fl_20_a_port_can_be_shared_only_if_both_sockets_allow_it() {
        let first = Listener::bind_with(&url("http://127.0.0.1:0"), true).unwrap();
        let same = url(&format!("http://{}", first.address()));
        Listener::bind(&same).unwrap_err();
        let second = Listener::bind_with(&same, true).unwrap();
        assert_eq!(first.address(), second.address());
    }

    #[test]
    fn tl_3_a_stale_socket_file_is_replaced_and_other_files_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let url = url(&format!("unix://{}", path.display()));
        std::mem::forget(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let listener = Listener::bind(&url).unwrap();
        assert!(path.exists());
        drop(listener);
        assert!(!path.exists());

        fs::write(&path, "data").unwrap();
        let error = Listener::bind(&url).unwrap_err().to_string();
        assert!(error.ends_with("bind: address already in use"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "data");
    }
}
