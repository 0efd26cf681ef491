//! Connections to an API server over HTTP/1.1 and HTTP/2, and calls on them in a closed loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use revstore_host::net::unverified_client_tls;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::BoxError;
use crate::client::LoadResult;

/// The HTTP/2 windows, large enough for lists.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

/// A version of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Http1,
    Http2,
}

/// An address of an API server, with the credentials of an administrator.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Such as `https://127.0.0.1:6443`.
    pub(crate) url: String,
    pub(crate) token: String,
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    method: Method,
    path: String,
    content_type: &'static str,
    accept_encoding: Option<&'static str>,
    body: String,
    /// The status of the answer; `None` for any of a success.
    expected: Option<StatusCode>,
}

impl Call {
    fn new(method: Method, path: impl Into<String>, body: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            content_type: "application/json",
            accept_encoding: None,
            body: body.into(),
            expected: None,
        }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path, "")
    }

    pub(crate) fn create(path: impl Into<String>, body: impl Into<String>) -> Self {
        Self::new(Method::POST, path, body)
    }

    pub(crate) fn update(path: impl Into<String>, body: impl Into<String>) -> Self {
        Self::new(Method::PUT, path, body)
    }

    pub(crate) fn delete(path: impl Into<String>) -> Self {
        Self::new(Method::DELETE, path, "")
    }

    pub(crate) fn merge_patch(path: impl Into<String>, body: impl Into<String>) -> Self {
        Self {
            content_type: "application/merge-patch+json",
            ..Self::new(Method::PATCH, path, body)
        }
    }

    /// Expects an answer that is no success.
    pub(crate) fn expecting(self, status: StatusCode) -> Self {
        Self {
            expected: Some(status),
            ..self
        }
    }

    /// Asks for a compressed answer.
    pub(crate) fn accepting_encoding(self, encoding: &'static str) -> Self {
        Self {
            accept_encoding: Some(encoding),
            ..self
        }
    }

    pub(crate) fn apply(path: impl Into<String>, body: impl Into<String>) -> Self {
        Self {
            content_type: "application/apply-patch+yaml",
            ..Self::new(Method::PATCH, path, body)
        }
    }
}

/// A connection. Clones of one of HTTP/2 share it; a connection of HTTP/1.1 has one request at a time.
#[derive(Debug)]
pub(crate) struct Connection {
    target: Target,
    sender: Sender,
}

#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    pub(crate) async fn open(target: &Target, version: Version) -> Result<Self, BoxError> {
        let address = target
            .authority()
            .ok_or("an URL must begin with https://")?;
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (host, _) = address.rsplit_once(':').ok_or("an URL without a port")?;
        let name = ServerName::try_from(host.to_owned())?;
        let stream = connector(version)?.connect(name, stream).await?;
        let io = TokioIo::new(stream);
        let sender = match version {
            Version::Http1 => {
                let (sender, connection) = http1::handshake(io).await?;
                tokio::spawn(connection);
                Sender::Http1(sender)
            }
            Version::Http2 => {
                let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                    .initial_stream_window_size(STREAM_WINDOW_BYTES)
                    .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
                    .handshake(io)
                    .await?;
                tokio::spawn(connection);
                Sender::Http2(sender)
            }
        };
        Ok(Self {
            target: target.clone(),
            sender,
        })
    }

    /// Returns a connection for a concurrent request: the same one over HTTP/2, another one over HTTP/1.1.
    pub(crate) async fn another(&self) -> Result<Self, BoxError> {
        match &self.sender {
            Sender::Http1(_) => Self::open(&self.target, Version::Http1).await,
            Sender::Http2(sender) => Ok(Self {
                target: self.target.clone(),
                sender: Sender::Http2(sender.clone()),
            }),
        }
    }

    /// Sends a request, and returns the head of the response.
    pub(crate) async fn send(&mut self, call: Call) -> Result<Response<Incoming>, BoxError> {
        let mut request = Request::builder()
            .method(call.method)
            .header(AUTHORIZATION, format!("Bearer {}", self.target.token));
        if !call.body.is_empty() {
            request = request.header(CONTENT_TYPE, call.content_type);
        }
        if let Some(encoding) = call.accept_encoding {
            request = request.header(ACCEPT_ENCODING, encoding);
        }
        let body = Full::from(call.body);
        Ok(match &mut self.sender {
            Sender::Http1(sender) => {
                let host = self.target.authority().unwrap_or_default();
                let request = request.header(HOST, host).uri(call.path);
                sender.ready().await?;
                sender.send_request(request.body(body)?).await?
            }
            Sender::Http2(sender) => {
                let request = request.uri(format!("{}{}", self.target.url, call.path));
                sender.ready().await?;
                sender.send_request(request.body(body)?).await?
            }
        })
    }

    /// Sends a request, and returns the status and the body of the response.
    pub(crate) async fn exchange(&mut self, call: Call) -> Result<(StatusCode, Bytes), BoxError> {
        let response = self.send(call).await?;
        let status = response.status();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }

    /// Sends a request that must succeed, or get the answer that it expects, and returns the body of the response.
    pub(crate) async fn call(&mut self, call: Call) -> Result<Bytes, BoxError> {
        let what = format!("{} {}", call.method, call.path);
        let expected = call.expected;
        let (status, body) = self.exchange(call).await?;
        if expected.map_or(status.is_success(), |expected| status == expected) {
            return Ok(body);
        }
        let body = String::from_utf8_lossy(&body);
        let beginning: String = body.chars().take(300).collect();
        Err(format!("{what}: {status}: {beginning}").into())
    }

    /// Sends requests 0 to `count`, `in_flight` at a time.
    pub(crate) async fn run(
        &self,
        in_flight: usize,
        count: u64,
        request: impl Fn(u64) -> Call + Clone + Send + 'static,
    ) -> Result<LoadResult, BoxError> {
        let mut connections = Vec::new();
        for _ in 0..in_flight {
            connections.push(self.another().await?);
        }
        let started = Instant::now();
        let next = Arc::new(AtomicU64::new(0));
        let mut workers = Vec::new();
        for mut connection in connections {
            let (next, request) = (next.clone(), request.clone());
            workers.push(tokio::spawn(async move {
                let mut latencies = Vec::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return Ok::<_, BoxError>(latencies);
                    }
                    let sent = Instant::now();
                    connection.call(request(number)).await?;
                    latencies.push(sent.elapsed());
                }
            }));
        }
        let mut result = LoadResult::default();
        for worker in workers {
            result.latencies.extend(worker.await??);
        }
        result.duration = started.elapsed();
        result.latencies.sort_unstable();
        Ok(result)
    }
}

impl Target {
    fn authority(&self) -> Option<&str> {
        self.url.strip_prefix("https://")
    }
}

/// Returns a connector that accepts every certificate: the servers are on this machine, and have made their certificates
/// themselves.
fn connector(version: Version) -> Result<TlsConnector, BoxError> {
    let protocol: &[u8] = match version {
        Version::Http1 => b"http/1.1",
        Version::Http2 => b"h2",
    };
    Ok(TlsConnector::from(unverified_client_tls(&[protocol])?))
}
