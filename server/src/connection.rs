//! One connection: from an accepted socket to HTTP, and how it ends.
//!
//! Everything that decides what a connection costs is set here, in [`Protocol::http`].

use std::{io, pin::pin, sync::Arc, time::Duration};

use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto,
};
use revstore_grpc::{CertifiedName, Shutdown};

use crate::{
    config::{Keepalive, Limits},
    dispatch::Dispatch,
    outbox::Outbox,
    pings::Policed,
    tls::Acceptor,
    transport::Transport,
    turns::{Requests, Turns},
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
    limits: Limits,
    keepalive: Keepalive,
    security: Security,
    http2_only: bool,
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
        Self {
            limits: *limits,
            keepalive: *keepalive,
            security,
            http2_only: false,
        }
    }

    /// HTTP/2 alone, for ports that speak gRPC and nothing else (HT-13).
    pub(crate) fn http2_only(self) -> Self {
        Self {
            http2_only: true,
            ..self
        }
    }

    /// HTTP for one connection, which leaves its requests with `requests`.
    fn http(&self, requests: Requests) -> auto::Builder<Requests> {
        let mut http = auto::Builder::new(requests);
        http.http1().timer(TokioTimer::new());
        http.http2()
            .timer(TokioTimer::new())
            // gRPC has no use for a date in every answer.
            .auto_date_header(false)
            // LI-7.
            .keep_alive_interval(self.keepalive.interval)
            .keep_alive_timeout(self.keepalive.timeout)
            // LI-4: `None` takes the limit away, where hyper's default is 200.
            .max_concurrent_streams(self.limits.max_concurrent_streams)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_pending_accept_reset_streams(PENDING_RESET_STREAMS_MAX);
        if self.http2_only {
            http.http2_only()
        } else {
            http
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
    let (transport, user) = match &protocol.security {
        Security::Plain => (transport, None),
        Security::Closed => return Ok(()),
        Security::Tls(acceptor) => tokio::select! {
            biased;
            () = &mut stop => return Ok(()),
            secured = secure(transport, acceptor) => secured?,
        },
    };
    let policed = Policed::new(transport, protocol.keepalive.min_time);
    let (outbox, requests) = (Outbox::new(policed), Requests::default());
    let http = protocol.http(requests.clone());
    let connection =
        pin!(http.serve_connection(TokioIo::new(outbox.gathered()), dispatch.of_user(user)));
    let mut turns = Turns::new(connection, requests, outbox);
    tokio::select! {
        biased;
        served = &mut turns => return served.map_err(ConnectionError::Http),
        () = &mut stop => turns.connection().graceful_shutdown(),
    }
    turns.await.map_err(ConnectionError::Http)
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

async fn secure(
    transport: Transport,
    acceptor: &Acceptor,
) -> Result<(Transport, Option<CertifiedName>), ConnectionError> {
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
        Ok(stream) => {
            let stream = stream?;
            let user = acceptor.user(&stream);
            Ok((Transport::Other(Box::new(stream)), user))
        }
        Err(_) => Err(ConnectionError::Handshake(io::ErrorKind::TimedOut.into())),
    }
}
