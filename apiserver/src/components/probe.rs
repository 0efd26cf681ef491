//! The question for the health of a component, over HTTPS, with the words of Go's client for what goes wrong.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONNECTION, HOST, HeaderValue, USER_AGENT};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use revstore_host::net::unverified_client_tls;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

use super::health::Health;
use crate::webhook::{LATE, REDIRECTS_MAX, dial_error, redirect, redirected_url, transport_error};

/// The path that a component answers.
const PATH: &str = "/healthz";
/// The name of the client.
const AGENT: &str = "kube-probe/1.36";
/// The part of an answer in bytes that is read and shown.
const ANSWER_BYTES_MAX: usize = 10 << 10;

/// A connection to a component, mostly with TLS.
type Connection = Pin<Box<dyn Stream>>;

trait Stream: AsyncRead + AsyncWrite + Send {}

impl<S: AsyncRead + AsyncWrite + Send> Stream for S {}

/// A question that was not answered.
struct Failure {
    /// The URL, or the part of it that was named last.
    url: String,
    reason: String,
}

/// An answer, and the task that reads the connection until it is dropped.
struct Answer {
    response: Response<Incoming>,
    _connection: JoinSet<()>,
}

/// Asks the component at an address.
pub(super) async fn ask(address: SocketAddr, timeout: Duration) -> Health {
    let end = Instant::now() + timeout;
    let mut url = format!("https://{address}{PATH}");
    let answer = match timeout_at(end, follow(&mut url)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(Failure { url, reason })) => {
            return Health::unhealthy(format!("Get {url:?}: {reason}"));
        }
        Err(_) => {
            let limit = "Client.Timeout exceeded while awaiting headers";
            return Health::unhealthy(format!("Get {url:?}: {LATE} ({limit})"));
        }
    };
    let status = answer.response.status();
    match timeout_at(end, read(answer)).await {
        Ok(Ok(body)) => judged(status, &body),
        Ok(Err(reason)) => Health::unreadable(reason),
        Err(_) => {
            let reason = "Client.Timeout or context cancellation while reading body";
            Health::unreadable(format!("net/http: request canceled ({reason})"))
        }
    }
}

/// Returns what an answer says about the health.
fn judged(status: StatusCode, body: &[u8]) -> Health {
    let body = String::from_utf8_lossy(body).into_owned();
    match status.as_u16() {
        200..300 => Health::healthy(body),
        300..400 => Health::unclear(format!("Probe terminated redirects, Response body: {body}")),
        // The body may not be for everybody who can read the status.
        code => Health::unhealthy(format!("HTTP probe failed with statuscode: {code}")),
    }
}

/// Sends the question to a URL, and to those to which the answers redirect, of which `url` is the last one.
async fn follow(url: &mut String) -> Result<Answer, Failure> {
    let mut shown = url.clone();
    for _ in 0..REDIRECTS_MAX {
        let failure = |reason| Failure {
            url: url.clone(),
            reason,
        };
        let answer = send(url).await.map_err(failure)?;
        let Some((location, _)) = redirect(&answer.response) else {
            return Ok(answer);
        };
        location.clone_into(&mut shown);
        *url = redirected_url(url, location);
    }
    let reason = format!("stopped after {REDIRECTS_MAX} redirects");
    Err(Failure { url: shown, reason })
}

/// Sends the question to one URL, over a connection of its own.
async fn send(url: &str) -> Result<Answer, String> {
    let uri: Uri = url
        .parse()
        .map_err(|_| format!("failed to parse Location header {url:?}"))?;
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::get(path)
        .header(HOST, authority)
        .header(USER_AGENT, HeaderValue::from_static(AGENT))
        .header(ACCEPT, HeaderValue::from_static("*/*"))
        .header(CONNECTION, HeaderValue::from_static("close"))
        .body(Empty::<Bytes>::new());
    let request = request.map_err(|error| error.to_string())?;
    let stream = TokioIo::new(connect(&uri).await?);
    let (mut sender, connection) = http1::handshake(stream)
        .await
        .map_err(|error| transport_error(&error))?;
    let mut task = JoinSet::new();
    // Its error is that of the request, or of the body.
    task.spawn(async { drop(connection.await) });
    let response = sender.send_request(request).await;
    Ok(Answer {
        response: response.map_err(|error| transport_error(&error))?,
        _connection: task,
    })
}

/// Connects to the server of a URL.
async fn connect(uri: &Uri) -> Result<Connection, String> {
    let is_tls = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        other => {
            let scheme = other.unwrap_or_default();
            return Err(format!("unsupported protocol scheme {scheme:?}"));
        }
    };
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let dialed = TcpStream::connect((host, port)).await;
    let tcp = dialed.map_err(|error| dial_error(host, port, &error))?;
    if !is_tls {
        return Ok(Box::pin(tcp));
    }
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    let tls = unverified_client_tls(&[b"http/1.1"]).map_err(|error| error.to_string())?;
    let connected = TlsConnector::from(tls).connect(name, tcp).await;
    let stream = connected.map_err(|error: io::Error| transport_error(&error))?;
    Ok(Box::pin(stream))
}

/// Reads the beginning of an answer.
async fn read(mut answer: Answer) -> Result<Bytes, String> {
    let mut bytes = BytesMut::new();
    while bytes.len() < ANSWER_BYTES_MAX {
        let Some(frame) = answer.response.frame().await else {
            break;
        };
        let frame = frame.map_err(|error| match &*transport_error(&error) {
            "EOF" => "unexpected EOF".to_owned(),
            other => other.to_owned(),
        })?;
        if let Ok(data) = frame.into_data() {
            bytes.extend_from_slice(&data);
        }
    }
    bytes.truncate(ANSWER_BYTES_MAX);
    Ok(bytes.freeze())
}
