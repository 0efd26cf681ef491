//! The clients of webhooks, which keep their connections.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, LOCATION, REFERER, RETRY_AFTER, USER_AGENT};
use http::{HeaderValue, Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use revstore_host::net::client_tls;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio::time::error::Elapsed;

use crate::webhook::answer::Answer;
use crate::webhook::connector::Connector;
use crate::webhook::endpoint::Endpoint;
use crate::webhook::error::{CallError, LATE, transport_error};
use crate::webhook::resolver::Resolver;

/// The time limit of a call that has no other one.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// The number of endpoints whose connections are kept. Above it those of the endpoint that was not used for the longest
/// time are closed.
const CLIENTS_MAX: usize = 200;
/// The number of calls at a time. Further ones wait within their time limits.
const CALLS_MAX: usize = 1024;
/// The number of redirects of one call that are followed, and how often it is sent again because its answer has the
/// header `Retry-After`. The same as Go's and client-go's.
pub(crate) const REDIRECTS_MAX: u32 = 10;
const RETRIES_MAX: u32 = 10;
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

    /// Sends a body in JSON to a webhook, and returns its answer. Redirects are followed, and answers with the header
    /// `Retry-After` are waited for, as by client-go. The webhook is told the time limit, or that of the request if this is
    /// `told` and less, and may not know that nobody waits for its answer any more.
    ///
    /// # Errors
    /// [`CallError`].
    pub(crate) async fn call(
        &self,
        endpoint: &Endpoint,
        body: Vec<u8>,
        limit: Duration,
        told: Option<Duration>,
    ) -> Result<Answer, CallError> {
        let end = Instant::now() + limit;
        let timeout = go_seconds(told.map_or(limit, |told| told.min(limit)));
        let url = format!("{}{}?timeout={timeout}", endpoint.origin, endpoint.path);
        let body = Bytes::from(body);
        let late = |_: Elapsed| CallError::transport(&url, LATE);
        let permit = tokio::time::timeout_at(end, self.calls.acquire()).await;
        // The semaphore is never closed.
        let _permit = permit.map_err(late)?;
        let mut left = RETRIES_MAX;
        loop {
            let (response, last) = self.follow(endpoint, &url, &body, end).await?;
            match retry_after(&response).filter(|_| left > 0) {
                None => return Answer::read(response, &last, end).await,
                Some(wait) => {
                    left -= 1;
                    drop(response);
                    let waited = tokio::time::timeout_at(end, tokio::time::sleep(wait)).await;
                    waited.map_err(late)?;
                }
            }
        }
    }

    /// Sends a request, and follows redirects. Returns the last answer with its URL.
    async fn follow(
        &self,
        endpoint: &Endpoint,
        url: &str,
        body: &Bytes,
        end: Instant,
    ) -> Result<(Response<Incoming>, String), CallError> {
        let (mut place, mut url) = (Cow::Borrowed(endpoint), url.to_owned());
        let mut method = Method::POST;
        let mut referer = None;
        for _ in 0..REDIRECTS_MAX {
            let client = self.client(&place)?;
            let sent = send(&client, &method, (&url, referer), &place, body);
            let response = match tokio::time::timeout_at(end, sent).await {
                Ok(sent) => sent?,
                Err(_) => return Err(CallError::transport(&url, LATE)),
            };
            let Some((location, keeps)) = redirect(&response) else {
                return Ok((response, url));
            };
            if !keeps {
                method = Method::GET;
            }
            let (next, next_url) = place
                .redirected(&url, location)
                .map_err(|reason| CallError::transport(location, &reason))?;
            referer = HeaderValue::from_str(&url).ok();
            (place, url) = (Cow::Owned(next), next_url);
            if !url.starts_with("https://") {
                return Err(CallError::transport(&url, "unsupported protocol scheme"));
            }
        }
        let shown = url.strip_prefix(&endpoint.origin).unwrap_or(&url);
        let reason = format!("stopped after {REDIRECTS_MAX} redirects");
        Err(CallError::transport(shown, &reason))
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

/// Sends one request of a call.
async fn send(
    client: &HttpClient,
    method: &Method,
    (url, referer): (&str, Option<HeaderValue>),
    endpoint: &Endpoint,
    body: &Bytes,
) -> Result<Response<Incoming>, CallError> {
    let host = endpoint.origin.trim_start_matches("https://");
    let request = Request::builder()
        .method(method)
        .uri(url)
        .header(HOST, host)
        .header(ACCEPT, HeaderValue::from_static("application/json, */*"))
        .header(
            USER_AGENT,
            HeaderValue::from_static("kube-apiserver-admission"),
        );
    let request = match referer {
        Some(referer) => request.header(REFERER, referer),
        None => request,
    };
    let request = if method == Method::POST {
        request
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .body(Full::from(body.clone()))
    } else {
        request.body(Full::default())
    };
    let request = request.map_err(|error| CallError::transport(url, &error.to_string()))?;
    let answered = client.request(request).await;
    answered.map_err(|error| CallError::transport(url, &transport_error(&error)))
}

/// Returns the place to which an answer redirects, and whether the same request is sent there, not a GET.
pub(crate) fn redirect(response: &Response<Incoming>) -> Option<(&str, bool)> {
    let keeps = match response.status().as_u16() {
        301..=303 => false,
        307 | 308 => true,
        _ => return None,
    };
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    (!location.is_empty()).then_some((location, keeps))
}

/// Returns the time after which a request is sent again.
fn retry_after(response: &Response<Incoming>) -> Option<Duration> {
    let code = response.status().as_u16();
    if code != 429 && code < 500 {
        return None;
    }
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    seconds.parse().ok().map(Duration::from_secs)
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
