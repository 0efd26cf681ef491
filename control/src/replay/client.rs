//! One request and its answer.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::request::Builder;
use http::{HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use tokio::sync::oneshot;
use tonic::Status;

use super::endpoint::{Endpoint, Version};
use super::plan::{Form, Planned};
use super::{Answer, ReplayError};
use crate::fault::code_of_http;
use crate::journal::status_message;
use crate::service::code_name;

/// The length of the prefix of a message: a flag and its length.
const PREFIX_BYTES: usize = 5;

/// The number of bytes of an answer that are looked at: the header of a response, or the text of an error.
const HEAD_BYTES: usize = 64 * 1024;

/// A client with one connection, which is made anew if the server closes it.
pub(super) struct Client<'a> {
    endpoint: &'a Endpoint,
    answer_time: Duration,
    connection: Option<Connection>,
}

enum Connection {
    Http2(http2::SendRequest<RequestBody>),
    Http1(http1::SendRequest<RequestBody>),
}

/// The body of a request.
#[derive(Debug)]
struct RequestBody {
    bytes: Option<Bytes>,
    /// The body ends when the sender is dropped: a stream goes on until its first response.
    open: Option<oneshot::Receiver<()>>,
}

impl<'a> Client<'a> {
    pub(super) fn new(endpoint: &'a Endpoint, answer_time: Duration) -> Self {
        Self {
            endpoint,
            answer_time,
            connection: None,
        }
    }

    /// Sends a request, and returns its answer.
    pub(super) async fn send(&mut self, request: &Planned) -> Result<Answer, ReplayError> {
        let limit = self.answer_time;
        let failed = |problem| ReplayError::Answer {
            number: request.number,
            problem,
        };
        match tokio::time::timeout(limit, self.exchange(request)).await {
            Ok(answer) => answer,
            Err(_elapsed) => Err(failed(format!("no answer within {limit:?}"))),
        }
    }

    async fn exchange(&mut self, request: &Planned) -> Result<Answer, ReplayError> {
        let failed = |error: &dyn std::error::Error| ReplayError::Answer {
            number: request.number,
            problem: format!("no answer: {}", whole(error)),
        };
        let (_open, open) = oneshot::channel();
        match &request.form {
            Form::Call => {
                let body = RequestBody {
                    bytes: Some(prefixed(&request.body)),
                    open: request.is_stream.then_some(open),
                };
                let call = self.call(request).body(body);
                let call = call.map_err(|error| failed(&error))?;
                let response = self.respond(call, Version::Http2).await?;
                let response = response.map_err(|error| failed(&error))?;
                let answer = answer_of_call(response, request.is_stream).await;
                answer.map_err(|error| failed(&*error))
            }
            Form::Http {
                method,
                content_type,
                accept,
            } => {
                let mut sent = Request::builder()
                    .method(method)
                    .uri(Uri::from(request.path.clone()))
                    .header(header::HOST, &self.endpoint.address.host);
                let fields = [
                    (header::CONTENT_TYPE, content_type.clone()),
                    (header::ACCEPT, accept.clone()),
                    (header::AUTHORIZATION, self.token("Bearer ")),
                ];
                for (name, value) in fields {
                    if let Some(value) = value {
                        sent = sent.header(name, value);
                    }
                }
                let body = RequestBody {
                    bytes: Some(request.body.clone()).filter(|body| !body.is_empty()),
                    open: None,
                };
                let sent = sent.body(body).map_err(|error| failed(&error))?;
                let response = self.respond(sent, Version::Http1).await?;
                let response = response.map_err(|error| failed(&error))?;
                if request.is_stream {
                    // What follows has no end.
                    self.connection = None;
                }
                let answer = answer_of_http(response, request.is_stream).await;
                answer.map_err(|error| failed(&error))
            }
        }
    }

    fn call(&self, request: &Planned) -> Builder {
        let authority = self.endpoint.address.host.as_bytes();
        let uri = Uri::builder()
            .scheme(self.endpoint.scheme())
            .authority(authority)
            .path_and_query(request.path.clone());
        let mut call = Request::post(uri.build().unwrap_or_default())
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::TE, "trailers");
        if let Some(token) = self.token("") {
            call = call.header("token", token);
        }
        call
    }

    fn token(&self, scheme: &str) -> Option<HeaderValue> {
        let token = self.endpoint.token.as_ref()?;
        let mut value = HeaderValue::from_str(&format!("{scheme}{token}")).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Sends a request on the connection, which is made before if there is none.
    async fn respond(
        &mut self,
        request: Request<RequestBody>,
        version: Version,
    ) -> Result<hyper::Result<Response<Incoming>>, ReplayError> {
        if let Some(connection) = &mut self.connection {
            let ready = match connection {
                Connection::Http2(sender) => sender.ready().await,
                Connection::Http1(sender) => sender.ready().await,
            };
            if ready.is_err() {
                self.connection = None;
            }
        }
        if self.connection.is_none() {
            let connected = self.connect(version).await;
            self.connection = Some(connected.map_err(ReplayError::Connection)?);
        }
        let Some(connection) = &mut self.connection else {
            let problem = "there is no connection".to_owned();
            return Err(ReplayError::Connection(problem));
        };
        Ok(match connection {
            Connection::Http2(sender) => sender.send_request(request).await,
            Connection::Http1(sender) => sender.send_request(request).await,
        })
    }

    async fn connect(&self, version: Version) -> Result<Connection, String> {
        let stream = TokioIo::new(self.endpoint.connect(version).await?);
        let failed = |error: hyper::Error| format!("cannot connect: {}", whole(&error));
        // The tasks end with the senders.
        Ok(match version {
            Version::Http2 => {
                let handshake = http2::handshake(TokioExecutor::new(), stream).await;
                let (sender, connection) = handshake.map_err(failed)?;
                tokio::spawn(connection);
                Connection::Http2(sender)
            }
            Version::Http1 => {
                let (sender, connection) = http1::handshake(stream).await.map_err(failed)?;
                tokio::spawn(connection);
                Connection::Http1(sender)
            }
        })
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(bytes) = self.bytes.take() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        match &mut self.open {
            None => Poll::Ready(None),
            Some(open) => Pin::new(open).poll(context).map(|_| None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none() && self.open.is_none()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match (&self.bytes, &self.open) {
            (Some(bytes), None) => http_body::SizeHint::with_exact(bytes.len() as u64),
            (None, None) => http_body::SizeHint::with_exact(0),
            _ => http_body::SizeHint::default(),
        }
    }
}

fn prefixed(message: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(PREFIX_BYTES + message.len());
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    bytes.put_slice(message);
    bytes.freeze()
}

/// Reads the answer to a call: its status, or of a stream its first response.
async fn answer_of_call(
    response: Response<Incoming>,
    is_stream: bool,
) -> Result<Answer, Box<dyn std::error::Error + Send + Sync>> {
    let (parts, mut body) = response.into_parts();
    if parts.status != StatusCode::OK {
        return Err(format!("the server has answered {} to a call", parts.status).into());
    }
    let mut status = Status::from_header_map(&parts.headers);
    let mut head = Vec::new();
    while status.is_none() {
        let Some(frame) = body.frame().await else {
            return Err("the answer has no status".into());
        };
        match frame?.into_data() {
            Ok(data) => {
                let wanted = HEAD_BYTES.saturating_sub(head.len()).min(data.len());
                head.extend_from_slice(&data[..wanted]);
                if is_stream && is_first_response(&head) {
                    status = Some(Status::ok(""));
                }
            }
            Err(frame) => {
                let trailers = frame.into_trailers().unwrap_or_default();
                status = Status::from_header_map(&trailers);
            }
        }
    }
    let status = status.unwrap_or_else(|| Status::ok(""));
    let message = head.get(PREFIX_BYTES..).unwrap_or_default();
    let is_ok = status.code() == tonic::Code::Ok;
    Ok(Answer {
        code: code_name(status.code()),
        error: status.message().to_owned(),
        revision: is_ok.then(|| revision(message)).flatten().unwrap_or(0),
        status: 0,
    })
}

/// Returns whether bytes have the first response of a stream, or as much of it as is looked at.
fn is_first_response(head: &[u8]) -> bool {
    let Some(prefix) = head.get(1..PREFIX_BYTES) else {
        return false;
    };
    let length = prefix
        .iter()
        .fold(0, |length, byte| length << 8 | usize::from(*byte));
    head.len() >= (PREFIX_BYTES + length).min(HEAD_BYTES)
}

/// Returns the revision in the header with which the responses of etcd begin.
fn revision(message: &[u8]) -> Option<i64> {
    let mut rest = message;
    let (field, wire_type) = decode_key(&mut rest).ok()?;
    if field != 1 || wire_type != WireType::LengthDelimited {
        return None;
    }
    let length = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
    let mut header = rest.get(..length)?;
    let mut revision = 0;
    while !header.is_empty() {
        let (field, wire_type) = decode_key(&mut header).ok()?;
        if (field, wire_type) == (3, WireType::Varint) {
            revision = decode_varint(&mut header).ok()?.cast_signed();
        } else {
            skip_field(wire_type, field, &mut header, DecodeContext::default()).ok()?;
        }
    }
    Some(revision)
}

/// Reads the answer of a Kubernetes API, of a watch only its status.
async fn answer_of_http(response: Response<Incoming>, is_watch: bool) -> hyper::Result<Answer> {
    let (parts, mut body) = response.into_parts();
    let status = parts.status;
    let mut head = Vec::new();
    while !(is_watch && status.is_success())
        && let Some(frame) = body.frame().await
    {
        if let Ok(data) = frame?.into_data() {
            let wanted = HEAD_BYTES.saturating_sub(head.len()).min(data.len());
            head.extend_from_slice(&data[..wanted]);
        }
    }
    let error = if status.is_success() {
        String::new()
    } else {
        status_message(&head)
    };
    Ok(Answer {
        code: code_name(code_of_http(status.as_u16())),
        error,
        revision: 0,
        status: status.as_u16().into(),
    })
}

/// Returns the text of an error with its causes.
fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
