//! Requests to an API server, their time limits, and the connections that they share.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use parking_lot::Mutex;
use revstore_watch_cache::RequestError;
use rustls::pki_types::ServerName;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::body::{BodyBuffer, BodyError, Encoding, encoding};
use super::decode;
use super::transport::{Connection, GetRequest};

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
    /// The connection for the next request: over HTTP/1.1 that of the last list, for the next list, over
    /// HTTP/2 that of all requests. The lock is held to take or put it.
    pub(crate) kept: Mutex<Option<Connection>>,
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
            let request = client.request(&target, "gzip")?;
            let kept = client.kept.lock().take();
            let (response, connection) = client.send_reusing(kept, request).await?;
            client.keep_shared(&connection);
            let body = client.read_list(response).await?;
            *client.kept.lock() = Some(connection);
            Ok(body)
        })
        .await
    }

    /// Sends a request for a watch, and returns the body of the response.
    pub(crate) async fn watch(self: &Arc<Self>, target: String) -> Result<Incoming, RequestError> {
        let client = self.clone();
        self.on_runtime(async move {
            // Servers do not compress watches, whose events would be delayed.
            let request = client.request(&target, "identity")?;
            // Over HTTP/1.1, a watch has a connection of its own.
            let kept = client.kept.lock().take_if(|kept| kept.shared().is_some());
            let (response, connection) = client.send_reusing(kept, request).await?;
            client.keep_shared(&connection);
            let response = client.successful(response).await?;
            match encoding(response.headers()) {
                Ok(Encoding::Identity) => Ok(response.into_body()),
                Ok(Encoding::Gzip) => Err(RequestError::Internal("a watch is compressed".into())),
                Err(error) => Err(RequestError::Internal(error)),
            }
        })
        .await
    }

    /// Keeps a connection that other requests can use at once. It is not put back if a server did not
    /// answer in time.
    fn keep_shared(&self, connection: &Connection) {
        if let Some(shared) = connection.shared() {
            *self.kept.lock() = Some(shared);
        }
    }

    fn request(&self, target: &str, encoding: &str) -> Result<GetRequest, RequestError> {
        let invalid = |error: http::Error| RequestError::BadRequest(error.to_string());
        let mut request = Request::get(target)
            .header(header::HOST, self.authority.clone())
            .header(header::ACCEPT, "application/json")
            .header(header::ACCEPT_ENCODING, encoding)
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

    /// Sends a request over a connection that was used before, or over a new one if that has ended.
    async fn send_reusing(
        &self,
        kept: Option<Connection>,
        request: GetRequest,
    ) -> Result<(Response<Incoming>, Connection), RequestError> {
        if let Some(mut connection) = kept
            && connection.ready().await
        {
            match self.send(&mut connection, request.clone()).await? {
                Ok(response) => return Ok((response, connection)),
                // The server may have closed it just now, or it no longer accepts requests on it. Lists
                // and watches can be requested twice.
                Err(_) if connection.is_closed() || connection.shared().is_some() => {}
                Err(error) => return Err(unavailable(error)),
            }
        }
        let mut connection = self.connect().await?;
        let response = self.send(&mut connection, request).await?;
        Ok((response.map_err(unavailable)?, connection))
    }

    /// Sends a request. The outer error is that of a server which does not answer in time.
    async fn send(
        &self,
        connection: &mut Connection,
        request: GetRequest,
    ) -> Result<hyper::Result<Response<Incoming>>, RequestError> {
        match timeout(self.limits.read, connection.send(request)).await {
            Ok(response) => Ok(response),
            Err(_) => Err(unavailable("no response within the time limit")),
        }
    }

    async fn read_list(&self, response: Response<Incoming>) -> Result<Bytes, RequestError> {
        let response = self.successful(response).await?;
        let invalid = |error: BodyError| match error {
            BodyError::TooLarge => RequestError::Internal(format!(
                "a list is larger than {} bytes",
                self.list_bytes_max
            )),
            BodyError::Gzip(error) => unavailable(format_args!("a list is damaged: {error}")),
        };
        let mut bytes = BodyBuffer::new(response.headers(), self.list_bytes_max)
            .map_err(RequestError::Internal)?;
        let mut body = response.into_body();
        loop {
            match timeout(self.limits.read, body.frame()).await {
                Ok(None) => return bytes.finish().map_err(invalid),
                Ok(Some(frame)) => {
                    let data = frame.map_err(unavailable)?.into_data();
                    bytes.push(&data.unwrap_or_default()).map_err(invalid)?;
                }
                Err(_) => return Err(unavailable("a list ended within the time limit")),
            }
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
        let bytes = self.error_body(response).await;
        Err(decode::error(code, retry_after, &bytes))
    }

    /// Returns what can be read of the body of an error within the limits, which is enough: the status is
    /// known.
    async fn error_body(&self, response: Response<Incoming>) -> Bytes {
        let Ok(mut bytes) = BodyBuffer::new(response.headers(), ERROR_BYTES_MAX) else {
            return Bytes::new();
        };
        let mut body = response.into_body();
        while let Ok(Some(Ok(frame))) = timeout(self.limits.read, body.frame()).await {
            if bytes.push(&frame.into_data().unwrap_or_default()).is_err() {
                break;
            }
        }
        bytes.received()
    }

    async fn connect(&self) -> Result<Connection, RequestError> {
        let opening = Connection::open((&self.host, self.port), self.tls.as_ref());
        match timeout(self.limits.connect, opening).await {
            Ok(connection) => connection.map_err(unavailable),
            Err(_) => Err(unavailable("no connection within the time limit")),
        }
    }
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
