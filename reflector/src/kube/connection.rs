//! Connections to an API server: TCP, TLS, HTTP/1.1 requests and their time limits.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use revstore_watch_cache::RequestError;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::decode;

/// The time without traffic after which the kernel probes a connection, and the time between probes.
/// A watch without events whose server has vanished ends after several of them.
const TCP_KEEPALIVE: Duration = Duration::from_secs(15);
/// The maximum size of the body of an error in bytes. Of a longer one only the status is used.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// The time limits of a [`KubeListWatch`](super::KubeListWatch).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimeLimits {
    /// The limit of a connection with TLS. The default is 10 s.
    pub connect: Duration,
    /// The limit for the headers of a response, and for each further part of the body of a list. The
    /// default is 30 s.
    pub read: Duration,
    /// The time without bytes after which a watch ends; `None`, the default, for no limit. A server
    /// sends bookmarks about once a minute, but not while nothing changes. Without this limit, the
    /// reflector ends a watch 5 s after its timeout, and probes of TCP end it if the host has vanished.
    pub watch_idle: Option<Duration>,
}

impl Default for TimeLimits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            read: Duration::from_secs(30),
            watch_idle: None,
        }
    }
}

impl TimeLimits {
    /// Sets the limit of a connection.
    #[must_use]
    pub fn connect(self, connect: Duration) -> Self {
        Self { connect, ..self }
    }

    /// Sets the limit for headers and for each part of a list.
    #[must_use]
    pub fn read(self, read: Duration) -> Self {
        Self { read, ..self }
    }

    /// Sets the time without bytes after which a watch ends.
    #[must_use]
    pub fn watch_idle(self, watch_idle: impl Into<Option<Duration>>) -> Self {
        Self {
            watch_idle: watch_idle.into(),
            ..self
        }
    }
}

/// A client of one API server.
pub(crate) struct Client {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The header `Host`.
    pub(crate) authority: HeaderValue,
    pub(crate) tls: Option<(TlsConnector, ServerName<'static>)>,
    /// Returns the bearer token for the next request.
    pub(crate) token: Option<Box<dyn Fn() -> Result<String, String> + Send + Sync>>,
    pub(crate) limits: TimeLimits,
    /// The maximum size of the body of a list in bytes.
    pub(crate) list_bytes_max: usize,
    pub(crate) runtime: Handle,
    /// The connection of the last list, for the next one. The lock is held to take or put it.
    pub(crate) idle: Mutex<Option<SendRequest<Empty<Bytes>>>>,
}

/// A task of the runtime that ends when this is dropped.
struct Task<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn unavailable(error: impl std::fmt::Display) -> RequestError {
    RequestError::Unavailable(error.to_string())
}

impl Client {
    /// Runs a future on the runtime. The caller may wait for it on any executor.
    async fn on_runtime<T: Send + 'static>(
        &self,
        future: impl Future<Output = Result<T, RequestError>> + Send + 'static,
    ) -> Result<T, RequestError> {
        let mut task = Task(self.runtime.spawn(future));
        match (&mut task.0).await {
            Ok(result) => result,
            Err(error) => Err(RequestError::Internal(error.to_string())),
        }
    }

    /// Sends a request for a list, and returns the body of the response.
    pub(crate) async fn list(self: &Arc<Self>, target: String) -> Result<Bytes, RequestError> {
        let client = self.clone();
        self.on_runtime(async move {
            let request = client.request(&target)?;
            let (response, connection) = client.send_reusing(request).await?;
            let body = client.read_list(response).await?;
            *client.idle.lock() = Some(connection);
            Ok(body)
        })
        .await
    }

    /// Sends a request for a watch, and returns the body of the response.
    pub(crate) async fn watch(self: &Arc<Self>, target: String) -> Result<Incoming, RequestError> {
        let client = self.clone();
        self.on_runtime(async move {
            let request = client.request(&target)?;
            let mut connection = client.connect().await?;
            let response = client.send(&mut connection, request).await?;
            Ok(client.successful(response).await?.into_body())
        })
        .await
    }

    fn request(&self, target: &str) -> Result<Request<Empty<Bytes>>, RequestError> {
        let invalid = |error: http::Error| RequestError::BadRequest(error.to_string());
        let mut request = Request::get(target)
            .header(header::HOST, self.authority.clone())
            .header(header::ACCEPT, "application/json")
            .header(
                header::USER_AGENT,
                concat!("revstore-reflector/", env!("CARGO_PKG_VERSION")),
            )
            .body(Empty::new())
            .map_err(invalid)?;
        if let Some(token) = &self.token {
            let token = token().map_err(unavailable)?;
            let value = HeaderValue::try_from(format!("Bearer {}", token.trim()));
            let mut value = value
                .map_err(|_| RequestError::BadRequest("the bearer token is no header".into()))?;
            value.set_sensitive(true);
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        Ok(request)
    }

    /// Sends a request over the connection of the last list, or over a new one if that has ended.
    async fn send_reusing(
        &self,
        request: Request<Empty<Bytes>>,
    ) -> Result<(Response<Incoming>, SendRequest<Empty<Bytes>>), RequestError> {
        let idle = self.idle.lock().take();
        if let Some(mut connection) = idle
            && connection.ready().await.is_ok()
        {
            // The server may have closed it just now. A list can be requested twice.
            match self.send(&mut connection, request.clone()).await {
                Ok(response) => return Ok((response, connection)),
                Err(_) if connection.is_closed() => {}
                Err(error) => return Err(error),
            }
        }
        let mut connection = self.connect().await?;
        let response = self.send(&mut connection, request).await?;
        Ok((response, connection))
    }

    async fn send(
        &self,
        connection: &mut SendRequest<Empty<Bytes>>,
        request: Request<Empty<Bytes>>,
    ) -> Result<Response<Incoming>, RequestError> {
        match timeout(self.limits.read, connection.send_request(request)).await {
            Ok(response) => response.map_err(unavailable),
            Err(_) => Err(unavailable("no response within the time limit")),
        }
    }

    async fn read_list(&self, response: Response<Incoming>) -> Result<Bytes, RequestError> {
        let mut body = self.successful(response).await?.into_body();
        let mut bytes = BytesMut::new();
        loop {
            let frame = match timeout(self.limits.read, body.frame()).await {
                Ok(None) => return Ok(bytes.freeze()),
                Ok(Some(frame)) => frame.map_err(unavailable)?,
                Err(_) => return Err(unavailable("a list ended within the time limit")),
            };
            let data = frame.into_data().unwrap_or_default();
            if bytes.len() + data.len() > self.list_bytes_max {
                return Err(RequestError::Internal(format!(
                    "a list is larger than {} bytes",
                    self.list_bytes_max
                )));
            }
            bytes.extend_from_slice(&data);
        }
    }

    /// Returns a response with the status 200, or the error of another one.
    async fn successful(
        &self,
        response: Response<Incoming>,
    ) -> Result<Response<Incoming>, RequestError> {
        let code = response.status().as_u16();
        if code == 200 {
            return Ok(response);
        }
        let retry_after = retry_after(response.headers());
        let mut body = response.into_body();
        let mut bytes = BytesMut::new();
        // What can be read within the limits is enough: the status is known.
        while let Ok(Some(Ok(frame))) = timeout(self.limits.read, body.frame()).await {
            let data = frame.into_data().unwrap_or_default();
            if bytes.len() + data.len() > ERROR_BYTES_MAX {
                break;
            }
            bytes.extend_from_slice(&data);
        }
        Err(decode::error(code, retry_after, &bytes))
    }

    async fn connect(&self) -> Result<SendRequest<Empty<Bytes>>, RequestError> {
        match timeout(self.limits.connect, self.handshake()).await {
            Ok(connection) => connection.map_err(unavailable),
            Err(_) => Err(unavailable("no connection within the time limit")),
        }
    }

    async fn handshake(&self) -> Result<SendRequest<Empty<Bytes>>, std::io::Error> {
        let tcp = TcpStream::connect((self.host.as_str(), self.port)).await?;
        tcp.set_nodelay(true)?;
        let keepalive = TcpKeepalive::new()
            .with_time(TCP_KEEPALIVE)
            .with_interval(TCP_KEEPALIVE);
        SockRef::from(&tcp).set_tcp_keepalive(&keepalive)?;
        match &self.tls {
            None => http(tcp).await,
            Some((connector, name)) => http(connector.connect(name.clone(), tcp).await?).await,
        }
    }
}

/// Starts HTTP/1.1 on a connection, whose task ends with the last request.
async fn http(
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<SendRequest<Empty<Bytes>>, std::io::Error> {
    let (sender, connection) = http1::handshake(TokioIo::new(io))
        .await
        .map_err(std::io::Error::other)?;
    // Its error is also that of the request.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

/// Returns the seconds of the header `Retry-After`. Dates, which API servers do not send, are ignored.
fn retry_after(headers: &HeaderMap) -> Option<u32> {
    headers
        .get(header::RETRY_AFTER)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}
