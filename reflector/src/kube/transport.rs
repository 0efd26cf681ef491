//! One connection to an API server: HTTP/1.1 or HTTP/2 over TCP or TLS.

use std::io;
use std::mem;
use std::time::Duration;

use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri, header};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The time without traffic after which the kernel probes a connection, and the time between probes.
/// A watch without events whose server has vanished ends after several of them.
const TCP_KEEPALIVE: Duration = Duration::from_secs(15);
/// The interval of pings on an HTTP/2 connection, and the time for their answers, after which all its
/// requests fail. The same as client-go's.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// The bytes of a watch that a server may send before they are read. A connection has no limit of its own
/// in practice, so that a watch which is not read does not delay other requests.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 1 << 30;

/// The name of HTTP/2 in the handshake of TLS.
pub(crate) const ALPN_HTTP2: &[u8] = b"h2";
/// The name of HTTP/1.1 in the handshake of TLS.
pub(crate) const ALPN_HTTP1: &[u8] = b"http/1.1";

pub(crate) type GetRequest = Request<Empty<Bytes>>;

/// A connection for one request after the other, or, with HTTP/2, for several at once.
pub(crate) enum Connection {
    Http1(http1::SendRequest<Empty<Bytes>>),
    Http2(http2::SendRequest<Empty<Bytes>>),
}

impl Connection {
    /// Opens a connection. With TLS, the server chooses the version of HTTP.
    pub(crate) async fn open(
        address: (&str, u16),
        tls: Option<&(TlsConnector, ServerName<'static>)>,
    ) -> io::Result<Self> {
        let tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        let keepalive = TcpKeepalive::new()
            .with_time(TCP_KEEPALIVE)
            .with_interval(TCP_KEEPALIVE);
        SockRef::from(&tcp).set_tcp_keepalive(&keepalive)?;
        let Some((connector, name)) = tls else {
            return Self::http1(tcp).await;
        };
        let tls = connector.connect(name.clone(), tcp).await?;
        let (_, session) = tls.get_ref();
        if session.alpn_protocol() == Some(ALPN_HTTP2) {
            Self::http2(tls).await
        } else {
            Self::http1(tls).await
        }
    }

    /// Starts HTTP/1.1, whose task ends with the last request.
    async fn http1(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> io::Result<Self> {
        let (sender, connection) = http1::handshake(TokioIo::new(io))
            .await
            .map_err(io::Error::other)?;
        // Its error is also that of the request.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Self::Http1(sender))
    }

    /// Starts HTTP/2, whose task ends with the last request and the last sender.
    async fn http2(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> io::Result<Self> {
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .handshake(TokioIo::new(io))
            .await
            .map_err(io::Error::other)?;
        // As for HTTP/1.1.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Self::Http2(sender))
    }

    /// Returns another handle on a connection that several requests can use at once.
    pub(crate) fn shared(&self) -> Option<Self> {
        match self {
            Self::Http1(_) => None,
            Self::Http2(sender) => Some(Self::Http2(sender.clone())),
        }
    }

    /// Waits until a request can be sent. Returns `false` if the connection has ended.
    pub(crate) async fn ready(&mut self) -> bool {
        match self {
            Self::Http1(sender) => sender.ready().await.is_ok(),
            Self::Http2(sender) => sender.ready().await.is_ok(),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        match self {
            Self::Http1(sender) => sender.is_closed(),
            Self::Http2(sender) => sender.is_closed(),
        }
    }

    /// Sends a request with a path as its target and a header `Host`.
    pub(crate) async fn send(&mut self, request: GetRequest) -> hyper::Result<Response<Incoming>> {
        match self {
            Self::Http1(sender) => sender.send_request(request).await,
            Self::Http2(sender) => sender.send_request(absolute(request)).await,
        }
    }
}

/// Moves the header `Host` into the target, where HTTP/2 has it.
fn absolute(mut request: GetRequest) -> GetRequest {
    let host = request.headers_mut().remove(header::HOST);
    let authority = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let mut parts = mem::take(request.uri_mut()).into_parts();
    parts.scheme = Some(Scheme::HTTPS);
    parts.authority = authority;
    // The builder has checked the authority, and the request its target.
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    request
}
