//! Connections to one webhook.

use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower_service::Service;

use crate::webhook::endpoint::{Endpoint, Target};
use crate::webhook::error::dial_error;
use crate::webhook::resolver::Resolver;

/// The time without traffic after which the kernel probes a connection, and the time between probes.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);
/// The name of HTTP/2 in the handshake of TLS.
const ALPN_HTTP2: &[u8] = b"h2";

/// Opens connections to one webhook.
#[derive(Clone)]
pub(super) struct Connector {
    endpoint: Arc<Endpoint>,
    resolver: Arc<Resolver>,
    tls: TlsConnector,
    name: ServerName<'static>,
}

/// The error of a connection that could not be opened.
#[derive(Debug, Error)]
pub(super) enum ConnectError {
    /// The service has no address, or the address cannot be connected to, as Go says it.
    #[error("{0}")]
    Dial(String),
    /// The handshake of TLS failed.
    #[error("{0}")]
    Tls(#[source] io::Error),
}

/// A connection with TLS.
pub(super) struct HookStream(TokioIo<TlsStream<TcpStream>>);

impl Connector {
    pub(super) fn new(
        endpoint: Arc<Endpoint>,
        resolver: Arc<Resolver>,
        tls: Arc<rustls::ClientConfig>,
    ) -> Result<Self, String> {
        let name = ServerName::try_from(endpoint.server_name.clone());
        let name = name.map_err(|error| format!("{:?}: {error}", endpoint.server_name))?;
        Ok(Self {
            endpoint,
            resolver,
            tls: tls.into(),
            name,
        })
    }

    async fn open(self) -> Result<HookStream, ConnectError> {
        let (host, port) = match &self.endpoint.target {
            Target::Host { host, port } => (host.clone(), *port),
            Target::Service {
                namespace,
                name,
                port,
            } => {
                let address = self.resolver.resolve(namespace, name, *port).await;
                address.map_err(ConnectError::Dial)?
            }
        };
        let dialed = TcpStream::connect((host.as_str(), port)).await;
        let tcp = dialed.map_err(|error| ConnectError::Dial(dial_error(&host, port, &error)))?;
        // A connection without these options works, too.
        let _ = tcp.set_nodelay(true);
        let keepalive = TcpKeepalive::new()
            .with_time(TCP_KEEPALIVE)
            .with_interval(TCP_KEEPALIVE);
        let _ = SockRef::from(&tcp).set_tcp_keepalive(&keepalive);
        let stream = self.tls.connect(self.name, tcp).await;
        Ok(HookStream(TokioIo::new(stream.map_err(ConnectError::Tls)?)))
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

impl Service<Uri> for Connector {
    type Response = HookStream;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<HookStream, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().open())
    }
}

impl Connection for HookStream {
    fn connected(&self) -> Connected {
        let (_, session) = self.0.inner().get_ref();
        if session.alpn_protocol() == Some(ALPN_HTTP2) {
            Connected::new().negotiated_h2()
        } else {
            Connected::new()
        }
    }
}

impl Read for HookStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl Write for HookStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    // Without these, the library for HTTP/2 sends the first KiB of a body in a record of its own.
    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(context, slices)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
