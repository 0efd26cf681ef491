//! One connection: from an accepted socket to HTTP, and how it ends.
//!
//! Everything that decides what a connection costs is set here, in [`Protocol::new`].

use std::{io, pin::pin, sync::Arc, time::Duration};

use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use revstore_grpc::Shutdown;

use crate::{
    config::{Keepalive, Limits},
    dispatch::Dispatch,
    pings::Policed,
    tls::Acceptor,
    transport::Transport,
};

/// What a client may send on one stream before it hears that some of it was read: more than most
/// requests have, so that they never wait for a window.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;

/// The same for all streams of a connection together.
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;

/// Streams that a client may open and reset before they were looked at. A client that cancels many
/// watches at once is no attacker here; hyper's default of 20 would cut it off.
const PENDING_RESET_STREAMS_MAX: usize = 1_024;

/// How long a client may take to shake hands.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The first byte of every TLS connection: the record type `handshake`.
const TLS_HANDSHAKE: u8 = 22;

/// How the connections of a listener are spoken to.
#[derive(Clone, Debug)]
pub(crate) struct Protocol {
    http: auto::Builder<TokioExecutor>,
    security: Security,
    /// How often clients may ping.
    ping_min_time: Duration,
}

/// What comes before HTTP.
#[derive(Clone, Debug)]
pub(crate) enum Security {
    /// Nothing.
    Plain,
    /// A handshake.
    Tls(Acceptor),
    /// The end: there should be a handshake, and there is no certificate for it.
    Closed,
}

impl Protocol {
    /// HTTP/1.1 and HTTP/2 on one port, told apart by the first bytes (HT-1).
    pub(crate) fn new(limits: &Limits, keepalive: &Keepalive, security: Security) -> Self {
        let mut http = auto::Builder::new(TokioExecutor::new());
        http.http1().timer(TokioTimer::new());
        http.http2()
            .timer(TokioTimer::new())
            // LI-7.
            .keep_alive_interval(keepalive.interval)
            .keep_alive_timeout(keepalive.timeout)
            // LI-4: `None` takes the limit away, where hyper's default is 200.
            .max_concurrent_streams(limits.max_concurrent_streams)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_pending_accept_reset_streams(PENDING_RESET_STREAMS_MAX);
        Self {
            http,
            security,
            ping_min_time: keepalive.min_time,
        }
    }

    /// HTTP/2 alone, for ports that speak gRPC and nothing else (HT-13).
    pub(crate) fn http2_only(self) -> Self {
        Self {
            http: self.http.http2_only(),
            ..self
        }
    }
}

/// Serves a connection until the client leaves, or until requests in flight are answered after
/// `shutdown` has begun. Dropping the future cuts it off.
///
/// # Errors
/// What went wrong with this client; nobody else is concerned.
pub(crate) async fn serve(
    transport: Transport,
    protocol: Arc<Protocol>,
    dispatch: Dispatch,
    shutdown: Shutdown,
) -> Result<(), ConnectionError> {
    let mut stop = pin!(shutdown.begun());
    let transport = match &protocol.security {
        Security::Plain => transport,
        Security::Closed => return Ok(()),
        Security::Tls(acceptor) => tokio::select! {
            biased;
            () = &mut stop => return Ok(()),
            secured = secure(transport, acceptor) => secured?,
        },
    };
    let policed = Policed::new(transport, protocol.ping_min_time);
    let connection = protocol
        .http
        .serve_connection(TokioIo::new(policed), dispatch);
    let mut connection = pin!(connection);
    tokio::select! {
        biased;
        served = connection.as_mut() => return served.map_err(ConnectionError::Http),
        () = &mut stop => connection.as_mut().graceful_shutdown(),
    }
    connection.await.map_err(ConnectionError::Http)
}

/// Why a connection ended badly.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error("TLS handshake: {0}")]
    Handshake(io::Error),
    #[error("no TLS")]
    NotTls,
    #[error("{0}")]
    Http(Box<dyn std::error::Error + Send + Sync>),
}

async fn secure(transport: Transport, acceptor: &Acceptor) -> Result<Transport, ConnectionError> {
    let handshake = async {
        if let Transport::Tcp(tcp) = &transport {
            let mut first = [0];
            // An end of the connection is left for the handshake to report.
            if tcp
                .peek(&mut first)
                .await
                .map_err(ConnectionError::Handshake)?
                == 1
                && first != [TLS_HANDSHAKE]
            {
                // HT-3: no reply, not even an alert. What has come is read, because closing a
                // socket with unread data resets the connection.
                let _ = tcp.try_read(&mut [0; 4_096]);
                return Err(ConnectionError::NotTls);
            }
        }
        acceptor
            .accept(transport)
            .await
            .map_err(ConnectionError::Handshake)
    };
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await {
        Ok(stream) => Ok(Transport::Other(Box::new(stream?))),
        Err(_) => Err(ConnectionError::Handshake(io::ErrorKind::TimedOut.into())),
    }
}
