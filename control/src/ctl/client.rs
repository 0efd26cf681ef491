//! One request over HTTP/1.1.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use revstore_host::net::EndpointUrl;
use serde_json::Value;
use tokio::net::{TcpStream, UnixStream};

use super::arguments::Body;
use super::file::FileBody;
use crate::service::TokenFile;

/// The time in which the server must accept the connection.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// The maximum size of one line of a response.
const LINE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The maximum size of the error of a request for a file. The rest is cut off.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;

/// A client of a port of control.
#[derive(Debug)]
pub(super) struct Client {
    address: Address,
    /// The value of the header `Host`.
    host: HeaderValue,
    /// The value of the header `Authorization`.
    token: Option<HeaderValue>,
}

#[derive(Debug)]
enum Address {
    Tcp(String),
    Unix(String),
}

impl Client {
    /// Reads a URL and a token file. Returns what is wrong with them.
    pub(super) fn new(url: &str, token_file: Option<&Path>) -> Result<Self, String> {
        let invalid = |problem: &dyn Display| format!("invalid URL {url:?}: {problem}");
        let with_scheme = if url.contains("://") {
            url.to_owned()
        } else {
            format!("http://{url}")
        };
        let parsed = EndpointUrl::parse(&with_scheme).map_err(|error| invalid(&error))?;
        if parsed.is_tls() {
            return Err(invalid(&"the port of control has no TLS"));
        }
        let (address, host) = if parsed.is_unix() {
            let path = parsed.socket_path();
            (Address::Unix(path), "localhost".to_owned())
        } else {
            let (host, port) = parsed.host_and_port().map_err(|error| invalid(&error))?;
            if port.is_empty() {
                return Err(invalid(&"the port is missing"));
            }
            let host = if host.contains(':') {
                format!("[{host}]:{port}")
            } else {
                format!("{host}:{port}")
            };
            (Address::Tcp(host.clone()), host)
        };
        let token = token_file.map(|path| {
            let token = TokenFile::open(path).and_then(|file| file.read());
            let token = token.map_err(|error| error.to_string())?;
            let mut value = HeaderValue::try_from(format!("Bearer {token}"))
                .map_err(|_| "the token has characters that a header cannot have".to_owned())?;
            value.set_sensitive(true);
            Ok::<_, String>(value)
        });
        Ok(Self {
            address,
            host: HeaderValue::try_from(host).map_err(|error| invalid(&error))?,
            token: token.transpose()?,
        })
    }

    /// Sends a request, and calls `print` with each line of the response. Returns the error of the server, or why there
    /// is no response.
    pub(super) async fn send(
        &self,
        method: &str,
        body: &Body,
        mut print: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(), String> {
        let mut response = self.respond(method, body).await?;
        let status = response.status();
        let mut received = BytesMut::new();
        while let Some(frame) = response.body_mut().frame().await {
            let frame = frame.map_err(|error| format!("the response has ended early: {error}"))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            received.extend_from_slice(&data);
            while let Some(end) = received.iter().position(|byte| *byte == b'\n') {
                let line = received.split_to(end);
                received.advance(1);
                if let Some(error) = error_in(&line).or_else(|| error_of(status, &line)) {
                    return Err(error);
                }
                match print(&line) {
                    Ok(()) => {}
                    // As after `| head`.
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                    Err(error) => return Err(format!("cannot write the output: {error}")),
                }
            }
            if received.len() > LINE_BYTES_MAX {
                return Err("a line of the response is too long".to_owned());
            }
        }
        match error_of(status, &received) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Sends a request, and writes the body of the response. Returns the headers.
    pub(super) async fn download(
        &self,
        method: &str,
        body: &Body,
        to: &mut impl io::Write,
    ) -> Result<HeaderMap, String> {
        let mut response = self.respond(method, body).await?;
        let status = response.status();
        let mut refusal = Vec::new();
        while let Some(frame) = response.body_mut().frame().await {
            let frame = frame.map_err(|error| format!("the response has ended early: {error}"))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if !status.is_success() {
                refusal
                    .extend_from_slice(&data[..data.len().min(REFUSAL_BYTES_MAX - refusal.len())]);
                continue;
            }
            let written = to.write_all(&data);
            written.map_err(|error| format!("cannot write the output: {error}"))?;
        }
        match error_in(&refusal).or_else(|| error_of(status, &refusal)) {
            Some(error) => Err(error),
            None => Ok(std::mem::take(response.headers_mut())),
        }
    }

    async fn respond(&self, method: &str, body: &Body) -> Result<http::Response<Incoming>, String> {
        let mut request = Request::post(format!("/control/v1/{method}"))
            .header(header::HOST, &self.host)
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, token);
        }
        let body = match body {
            Body::Json(body) => Either::Left(Full::new(Bytes::from(body.to_string()))),
            Body::File(path) => Either::Right(FileBody::open(path)?),
        };
        let request = request.body(body).map_err(|error| error.to_string())?;
        match &self.address {
            Address::Tcp(address) => {
                let stream = within(TcpStream::connect(address), address).await?;
                exchange(stream, request).await
            }
            Address::Unix(path) => {
                let stream = within(UnixStream::connect(path), path).await?;
                exchange(stream, request).await
            }
        }
    }
}

/// Limits the time of connecting.
async fn within<T>(
    connecting: impl Future<Output = io::Result<T>>,
    address: &str,
) -> Result<T, String> {
    match tokio::time::timeout(CONNECT_TIME, connecting).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(format!("cannot connect to {address}: {error}")),
        Err(_elapsed) => Err(format!("cannot connect to {address}: no answer")),
    }
}

async fn exchange<S>(
    stream: S,
    request: Request<Either<Full<Bytes>, FileBody>>,
) -> Result<http::Response<Incoming>, String>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let failed = |error: hyper::Error| format!("no response: {error}");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(failed)?;
    // Ends with the process.
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(failed)
}

/// Returns the error that a line is: an object with a text and a code, and nothing else.
fn error_in(line: &[u8]) -> Option<String> {
    let object: Value = serde_json::from_slice(line).ok()?;
    let object = object.as_object().filter(|object| object.len() == 2)?;
    object.get("code")?.as_i64()?;
    Some(object.get("error")?.as_str()?.to_owned())
}

/// Returns the error of a status with a body that is no error of control, for example of another server.
fn error_of(status: StatusCode, body: &[u8]) -> Option<String> {
    let start = &body[..body.len().min(200)];
    let text = String::from_utf8_lossy(start);
    (!status.is_success()).then(|| format!("the server has answered {status}: {text}"))
}
