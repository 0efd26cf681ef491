//! One request over HTTP/1.1.

use std::io;
use std::path::Path;

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;

use super::arguments::Body;
use super::file::FileBody;
use crate::address::{Address, Stream, invalid};
use crate::service::TokenFile;

/// The maximum size of one line of a response.
const LINE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The maximum size of the error of a request for a file. The rest is cut off.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;

/// A client of a port of control.
#[derive(Debug)]
pub(super) struct Client {
    address: Address,
    /// The value of the header `Authorization`.
    token: Option<HeaderValue>,
}

impl Client {
    /// Reads a URL and a token file. Returns what is wrong with them.
    pub(super) fn new(url: &str, token_file: Option<&Path>) -> Result<Self, String> {
        let address = Address::parse(url)?;
        if address.tls_name.is_some() {
            return Err(invalid(url, &"the port of control has no TLS"));
        }
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
            .header(header::HOST, &self.address.host)
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, token);
        }
        let body = match body {
            Body::Json(body) => Either::Left(Full::new(Bytes::from(body.to_string()))),
            Body::File(path) => Either::Right(FileBody::open(path)?),
        };
        let request = request.body(body).map_err(|error| error.to_string())?;
        exchange(self.address.connect().await?, request).await
    }
}

async fn exchange(
    stream: Box<dyn Stream>,
    request: Request<Either<Full<Bytes>, FileBody>>,
) -> Result<http::Response<Incoming>, String> {
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
