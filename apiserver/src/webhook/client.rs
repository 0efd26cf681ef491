//! The clients of webhooks, which keep their connections.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use revstore_host::net::client_tls;
use tokio::sync::Semaphore;

use crate::webhook::connector::Connector;
use crate::webhook::endpoint::Endpoint;
use crate::webhook::error::{CallError, status_error, transport_error};
use crate::webhook::resolver::Resolver;

/// The time limit of a call that has no other one.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// The number of endpoints whose connections are kept. Above it those of the endpoint that was not used for the longest
/// time are closed.
const CLIENTS_MAX: usize = 200;
/// The number of calls at a time. Further ones wait within their time limits.
const CALLS_MAX: usize = 1024;
/// The size of the body of an answer in bytes. A call with a larger one fails.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// The part of the body of an error that is shown.
const ERROR_BYTES_MAX: usize = 2048;
/// The number of idle connections that are kept for one endpoint, and for how long.
const IDLE_CONNECTIONS_MAX: usize = 25;
const IDLE_TIME: Duration = Duration::from_secs(90);
/// The interval of pings on an HTTP/2 connection, and the time for their answers. The same as client-go's.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// The clients of all webhooks.
#[derive(Debug)]
pub(crate) struct Clients {
    resolver: Arc<Resolver>,
    calls: Semaphore,
    // A leaf lock, held for one look or change.
    kept: Mutex<Kept>,
}

/// The clients by their endpoints, each with the number of its last use.
#[derive(Debug, Default)]
struct Kept {
    uses: u64,
    clients: HashMap<Endpoint, (u64, HttpClient)>,
}

type HttpClient = Client<Connector, Full<Bytes>>;

impl Clients {
    pub(crate) fn new(resolver: Resolver) -> Self {
        Self {
            resolver: Arc::new(resolver),
            calls: Semaphore::new(CALLS_MAX),
            kept: Mutex::default(),
        }
    }

    /// Sends a body in JSON to a webhook, and returns that of its answer. Redirects are not followed.
    ///
    /// # Errors
    /// [`CallError`].
    pub(crate) async fn call(
        &self,
        endpoint: &Endpoint,
        body: Vec<u8>,
        limit: Duration,
    ) -> Result<Bytes, CallError> {
        let client = self.client(endpoint)?;
        let url = format!(
            "{}{}?timeout={}",
            endpoint.origin,
            endpoint.path,
            go_seconds(limit)
        );
        let called = self.exchange(&client, &url, endpoint, body);
        match tokio::time::timeout(limit, called).await {
            Ok(answered) => answered,
            Err(_) => Err(CallError::Transport {
                url,
                reason: "context deadline exceeded".to_owned(),
            }),
        }
    }

    async fn exchange(
        &self,
        client: &HttpClient,
        url: &str,
        endpoint: &Endpoint,
        body: Vec<u8>,
    ) -> Result<Bytes, CallError> {
        let failed = |reason: String| CallError::Transport {
            url: url.to_owned(),
            reason,
        };
        // The semaphore is never closed.
        let _permit = self.calls.acquire().await;
        let host = endpoint.origin.trim_start_matches("https://");
        let request = Request::builder()
            .method(Method::POST)
            .uri(url)
            .header(HOST, host)
            .header(ACCEPT, HeaderValue::from_static("application/json, */*"))
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header(
                USER_AGENT,
                HeaderValue::from_static("kube-apiserver-admission"),
            )
            .body(Full::from(body))
            .map_err(|error| failed(error.to_string()))?;
        let answered = client.request(request).await;
        let response = answered.map_err(|error| failed(transport_error(&error)))?;
        let status = response.status();
        let bytes = read(response).await?;
        if (200..=206).contains(&status.as_u16()) {
            return if bytes.is_empty() {
                Err(CallError::Answer(format!(
                    "0-length response with status code: {} and content type: ",
                    status.as_u16()
                )))
            } else {
                Ok(bytes)
            };
        }
        let shown = &bytes[..bytes.len().min(ERROR_BYTES_MAX)];
        Err(status_error(status, String::from_utf8_lossy(shown).trim()))
    }

    /// Returns the client of an endpoint.
    fn client(&self, endpoint: &Endpoint) -> Result<HttpClient, CallError> {
        {
            let mut kept = self.kept.lock();
            kept.uses += 1;
            let uses = kept.uses;
            if let Some((last, client)) = kept.clients.get_mut(endpoint) {
                *last = uses;
                return Ok(client.clone());
            }
        }
        let client = self.open(endpoint)?;
        let mut kept = self.kept.lock();
        if kept.clients.len() >= CLIENTS_MAX {
            let oldest = kept.clients.iter().min_by_key(|(_, (last, _))| *last);
            if let Some(oldest) = oldest.map(|(endpoint, _)| endpoint.clone()) {
                kept.clients.remove(&oldest);
            }
        }
        let uses = kept.uses;
        let (_, client) = kept
            .clients
            .entry(endpoint.clone())
            .or_insert((uses, client));
        Ok(client.clone())
    }

    fn open(&self, endpoint: &Endpoint) -> Result<HttpClient, CallError> {
        let protocols: &[&[u8]] = if endpoint.offers_http2() {
            &[b"h2", b"http/1.1"]
        } else {
            &[b"http/1.1"]
        };
        let tls = client_tls(endpoint.authorities.as_deref(), protocols)
            .map_err(|error| CallError::Client(error.to_string()))?;
        let connector = Connector::new(Arc::new(endpoint.clone()), self.resolver.clone(), tls)
            .map_err(CallError::Client)?;
        Ok(Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIME)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .http2_keep_alive_interval(PING_INTERVAL)
            .http2_keep_alive_timeout(PING_TIMEOUT)
            .build(connector))
    }
}

/// Reads the body of an answer.
async fn read(response: Response<Incoming>) -> Result<Bytes, CallError> {
    let is_error = response.status() != StatusCode::OK;
    let mut body = response.into_body();
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            // The status of an error is enough.
            Err(_) if is_error => break,
            Err(error) => {
                return Err(CallError::Answer(format!(
                    "unexpected error when reading response body. Please retry. Original error: {}",
                    transport_error(&error)
                )));
            }
        };
        if let Ok(data) = frame.into_data() {
            bytes.extend_from_slice(&data);
        }
        if is_error && bytes.len() >= ERROR_BYTES_MAX {
            break;
        }
        if bytes.len() > ANSWER_BYTES_MAX {
            return Err(CallError::Answer(format!(
                "the response body has more than {ANSWER_BYTES_MAX} bytes"
            )));
        }
    }
    Ok(bytes.freeze())
}

/// Returns a time limit, rounded up to seconds, as Go prints it.
fn go_seconds(limit: Duration) -> String {
    let seconds = limit.as_secs() + u64::from(limit.subsec_nanos() > 0);
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}

/// Returns the uid of a call: a random UUID of version 4.
pub(crate) fn new_uid() -> String {
    // The version and the variant have fixed bits.
    let bits = fastrand::u128(..) & !(0xf << 76) & !(0b11 << 62) | (4 << 76) | (0b10 << 62);
    let hex = format!("{bits:032x}");
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_limits_are_printed_as_by_go() {
        let printed = |millis| go_seconds(Duration::from_millis(millis));
        assert_eq!(printed(10_000), "10s");
        assert_eq!(printed(9_001), "10s");
        assert_eq!(printed(60_000), "1m0s");
    }
}
