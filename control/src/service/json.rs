//! Requests and responses in JSON: `POST /control/v1/METHOD`.
//!
//! A request is converted to a call of the gRPC service, and its response back. The form is that of protobuf's JSON,
//! with 64-bit integers as numbers. A stream of responses is one object on each line. Files are bodies as they are.

use std::pin::{Pin, pin};
use std::sync::OnceLock;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_util::stream::{self, StreamExt};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use prost::Message;
use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, Kind, MessageDescriptor, MethodDescriptor,
    SerializeOptions, ServiceDescriptor,
};
use serde_json::de::Deserializer;
use serde_json::ser::Serializer;
use serde_json::{Map, Value};
use tonic::body::Body as TonicBody;
use tonic::codegen::StdError;
use tonic::{Code, Status};
use tower_service::Service;

use super::REQUEST_BYTES_MAX;
use super::files::{self, LoadError};
use super::grpc::Grpc;
use crate::control::Control;
use crate::error::ControlError;
use crate::proto;
use crate::proto::FILE_DESCRIPTOR_SET;
use crate::proto::control_server::ControlServer;
use crate::store::StoreFile;

const PATH: &str = "/control/v1/";
const SERVICE: &str = "revstore.control.v1.Control";

/// The time in which the body of a request must arrive.
const BODY_TIME: Duration = Duration::from_secs(10);

/// The number of bytes that are read of a file after it was refused.
const DISCARDED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The headers with the point of a dump.
const REVISION: HeaderName = HeaderName::from_static("revstore-revision");
const TIME: HeaderName = HeaderName::from_static("revstore-time");

/// The length of the prefix of a message: a flag and its length.
const PREFIX_BYTES: usize = 5;

fn service() -> &'static ServiceDescriptor {
    static SERVICE_DESCRIPTOR: OnceLock<ServiceDescriptor> = OnceLock::new();
    SERVICE_DESCRIPTOR.get_or_init(|| {
        let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET)
            .expect("the built-in descriptors are valid");
        let service = pool.get_service_by_name(SERVICE);
        service.expect("the built-in descriptors have the service")
    })
}

/// Returns the response to a request that was refused.
pub(super) fn refusal(status: &Status) -> Response<TonicBody> {
    let mut response = Response::new(TonicBody::new(Full::new(error_object(status))));
    *response.status_mut() = http_status(status.code());
    set_json(&mut response);
    if status.code() == Code::Unauthenticated {
        let scheme = HeaderValue::from_static("Bearer");
        response
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, scheme);
    }
    response
}

/// Answers a request.
pub(super) async fn respond<B>(
    control: &Control,
    grpc: ControlServer<Grpc>,
    parts: &Parts,
    body: B,
) -> Response<TonicBody>
where
    B: Body<Data = Bytes, Error: Into<StdError>> + Send + 'static,
{
    match try_respond(control, grpc, parts, body).await {
        Ok(response) => response,
        Err(Refusal::Of(status)) => refusal(&status),
        Err(Refusal::With(code, status)) => {
            let mut response = refusal(&status);
            *response.status_mut() = code;
            if code == StatusCode::METHOD_NOT_ALLOWED {
                let post = HeaderValue::from_static("POST");
                response.headers_mut().insert(header::ALLOW, post);
            }
            response
        }
    }
}

/// The reason why a request has no answer.
#[derive(Debug)]
pub(super) enum Refusal {
    Of(Status),
    /// With another status of HTTP than that of the code.
    With(StatusCode, Status),
}

impl Refusal {
    /// Returns the status of gRPC.
    pub(super) fn status(self) -> Status {
        match self {
            Self::Of(status) | Self::With(_, status) => status,
        }
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::Of(status)
    }
}

async fn try_respond<B>(
    control: &Control,
    mut grpc: ControlServer<Grpc>,
    parts: &Parts,
    body: B,
) -> Result<Response<TonicBody>, Refusal>
where
    B: Body<Data = Bytes, Error: Into<StdError>> + Send + 'static,
{
    let path = parts.uri.path();
    let Some(name) = path.strip_prefix(PATH) else {
        let message = format!("no such path {path:?}: methods are at POST {PATH}METHOD");
        return Err(Status::unimplemented(message).into());
    };
    let Some(method) = service().methods().find(|method| method.name() == name) else {
        let names: Vec<_> = service().methods().map(|it| it.name().to_owned()).collect();
        let names = names.join(", ");
        let message = format!("unknown method {name:?}: the methods are {names}");
        return Err(Status::unimplemented(message).into());
    };
    if parts.method != Method::POST {
        let status = Status::unimplemented(format!("{path} needs the method POST"));
        return Err(Refusal::With(StatusCode::METHOD_NOT_ALLOWED, status));
    }
    if parts.uri.query().is_some() {
        let status = Status::invalid_argument("the fields of a request are in its body");
        return Err(status.into());
    }
    let file = match name {
        "StoreLoad" => Some(StoreFile::Dump),
        "StoreImport" => Some(StoreFile::EtcdSnapshot),
        _ => None,
    };
    if let Some(file) = file {
        return load(control, &method, file, body).await;
    }
    let json = read(body, REQUEST_BYTES_MAX).await?;
    let message = to_message(&method.input(), &json)?;
    check_integers(&method.input(), &json)?;
    if name == "FaultAdd" {
        check_numbers(&method.input(), &json)?;
    }
    if name == "StoreDump" {
        let request = proto::StoreDumpRequest::decode(&*message);
        let request = request.map_err(|error| Status::invalid_argument(error.to_string()))?;
        return dump(control, request).await;
    }
    let response = grpc.call(call(&method, &message)).await;
    let Ok(response) = response;
    if let Some(status) = Status::from_header_map(response.headers())
        && status.code() != Code::Ok
    {
        return Err(status.into());
    }
    let mut lines = JsonLines {
        output: method.output(),
        inner: response.into_body(),
        received: BytesMut::new(),
        has_ended: false,
    };
    let mut response = if method.is_server_streaming() {
        Response::new(TonicBody::new(lines))
    } else {
        let json = lines.only().await?;
        Response::new(TonicBody::new(Full::new(json)))
    };
    set_json(&mut response);
    Ok(response)
}

/// Receives a file, which is the body of the request.
async fn load<B>(
    control: &Control,
    method: &MethodDescriptor,
    file: StoreFile,
    body: B,
) -> Result<Response<TonicBody>, Refusal>
where
    B: Body<Data = Bytes, Error: Into<StdError>>,
{
    let length = body.size_hint().exact().unwrap_or_default();
    let mut body = pin!(body);
    let chunks = stream::unfold(&mut body, async |body| {
        loop {
            return match body.frame().await? {
                Ok(frame) => match frame.into_data() {
                    Ok(data) => Some((Ok(data), body)),
                    Err(_trailers) => continue,
                },
                Err(error) => {
                    let message = format!("the file cannot be read: {}", error.into());
                    Some((Err(Status::invalid_argument(message)), body))
                }
            };
        }
    });
    let answer = match files::load(control, file, length, chunks).await {
        Ok(answer) => answer.encode_to_vec(),
        Err(error) => {
            discard(body).await;
            let is_too_large = matches!(
                &error,
                LoadError::Refused(ControlError::FileTooLarge { .. })
            );
            let status = Status::from(error);
            return Err(if is_too_large {
                Refusal::With(StatusCode::PAYLOAD_TOO_LARGE, status)
            } else {
                status.into()
            });
        }
    };
    let json = to_json(&method.output(), answer.into())?;
    let mut response = Response::new(TonicBody::new(Full::new(json)));
    set_json(&mut response);
    Ok(response)
}

/// Reads what a client still sends of a request that is refused, within limits: a connection that is closed before would
/// be reset, and the client would not get the answer.
async fn discard<B: Body>(mut body: Pin<&mut B>) {
    let read = async {
        let mut left = DISCARDED_BYTES_MAX;
        while let Some(Ok(frame)) = body.frame().await {
            let bytes = frame.data_ref().map_or(0, Buf::remaining);
            left = left.saturating_sub(bytes);
            if left == 0 {
                break;
            }
        }
    };
    // What has not arrived by then is not awaited.
    let _ = tokio::time::timeout(BODY_TIME, read).await;
}

/// Writes a dump, which is the body of the response.
async fn dump(
    control: &Control,
    request: proto::StoreDumpRequest,
) -> Result<Response<TonicBody>, Refusal> {
    let content_type = if request.binary {
        "application/octet-stream"
    } else {
        "text/plain; charset=utf-8"
    };
    let mut chunks = files::dump(control, request).await?;
    let first = match chunks.next().await {
        Some(first) => first?,
        None => return Err(Status::internal("the dump is empty").into()),
    };
    let (revision, time) = (first.revision, first.time.clone());
    let chunks = stream::iter([Ok(first)]).chain(chunks);
    // An error ends the connection, so that the client does not take a part for the whole.
    let frames = chunks.map(|chunk| chunk.map(|chunk| Frame::data(chunk.data)));
    let mut response = Response::new(TonicBody::new(StreamBody::new(frames)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(REVISION, HeaderValue::from(revision));
    if let Ok(time) = HeaderValue::try_from(time) {
        headers.insert(TIME, time);
    }
    Ok(response)
}

fn set_json(response: &mut Response<TonicBody>) {
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
}

/// Reads the body of a request, of at most `bytes_max` bytes, which must arrive within [`BODY_TIME`].
pub(super) async fn read<B>(body: B, bytes_max: usize) -> Result<Bytes, Refusal>
where
    B: Body<Data = Bytes, Error: Into<StdError>>,
{
    let body = Limited::new(body, bytes_max);
    match tokio::time::timeout(BODY_TIME, std::pin::pin!(body).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            let message = format!("the request is larger than {REQUEST_BYTES_MAX} bytes");
            let status = Status::resource_exhausted(message);
            Err(Refusal::With(StatusCode::PAYLOAD_TOO_LARGE, status))
        }
        Ok(Err(error)) => {
            let message = format!("the request cannot be read: {error}");
            Err(Status::invalid_argument(message).into())
        }
        Err(_elapsed) => {
            let status = Status::deadline_exceeded("the request did not arrive in time");
            Err(Refusal::With(StatusCode::REQUEST_TIMEOUT, status))
        }
    }
}

/// Converts a JSON object to an encoded message. Nothing is an object without fields.
fn to_message(descriptor: &MessageDescriptor, json: &[u8]) -> Result<Vec<u8>, Status> {
    if json.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    let invalid = |error| Status::invalid_argument(format!("invalid JSON: {error}"));
    let mut json = Deserializer::from_slice(json);
    let options = DeserializeOptions::new().deny_unknown_fields(true);
    let message = DynamicMessage::deserialize_with_options(descriptor.clone(), &mut json, &options);
    let message = message.map_err(invalid)?;
    json.end().map_err(invalid)?;
    Ok(message.encode_to_vec())
}

/// Refuses null for a number. In protobuf's JSON that is an absent field, but languages write it for what is no number or
/// infinite, and a rule without a trigger fires for ever.
fn check_numbers(descriptor: &MessageDescriptor, json: &[u8]) -> Result<(), Status> {
    let fields: Map<String, Value> = serde_json::from_slice(json).unwrap_or_default();
    for (name, _) in fields.iter().filter(|(_, value)| value.is_null()) {
        let field = descriptor.get_field_by_name(name);
        let field = field.or_else(|| descriptor.get_field_by_json_name(name));
        let kind = field.map(|field| field.kind());
        if matches!(kind, Some(Kind::Double | Kind::Uint64 | Kind::Int64)) {
            let message = format!("invalid JSON: {name} is null: leave it out, or give a number");
            return Err(Status::invalid_argument(message));
        }
    }
    Ok(())
}

/// Refuses numbers beyond the 64 bits of a field, which would be cut off.
fn check_integers(descriptor: &MessageDescriptor, json: &[u8]) -> Result<(), Status> {
    /// 2^63.
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    let fields: Map<String, Value> = serde_json::from_slice(json).unwrap_or_default();
    for (name, value) in &fields {
        let field = descriptor.get_field_by_name(name);
        let field = field.or_else(|| descriptor.get_field_by_json_name(name));
        let range = match field.map(|field| field.kind()) {
            Some(Kind::Uint64) => 0.0..2.0 * HALF,
            Some(Kind::Int64) => -HALF..HALF,
            _ => continue,
        };
        // Numbers that fit have no other form, unless they have a fraction or an exponent.
        let is_beyond = |number: f64| !range.contains(&number);
        let is_integer = value.is_u64() || value.is_i64();
        if !is_integer && value.as_f64().is_some_and(is_beyond) {
            let message = format!("invalid JSON: {name} {value} does not fit in 64 bits");
            return Err(Status::invalid_argument(message));
        }
    }
    Ok(())
}

/// Converts an encoded response of a method to a JSON object on a line.
pub(super) fn response_line(method: &str, message: Bytes) -> Result<Bytes, Status> {
    let method = service().methods().find(|it| it.name() == method);
    let method = method.ok_or_else(|| Status::internal("there is no such method"))?;
    to_json(&method.output(), message)
}

/// Reads a line that is a response of a method. Fields that the response does not have are errors.
pub(crate) fn read_response_line(method: &str, line: &[u8]) -> Result<Vec<u8>, Status> {
    let method = service().methods().find(|it| it.name() == method);
    let method = method.ok_or_else(|| Status::internal("there is no such method"))?;
    to_message(&method.output(), line)
}

/// Converts an encoded message to a JSON object on a line.
fn to_json(descriptor: &MessageDescriptor, message: Bytes) -> Result<Bytes, Status> {
    let broken = |error: String| Status::internal(format!("a response cannot be written: {error}"));
    let message = DynamicMessage::decode(descriptor.clone(), message);
    let message = message.map_err(|error| broken(error.to_string()))?;
    let mut line = Vec::new();
    let options = SerializeOptions::new()
        .use_proto_field_name(true)
        .stringify_64_bit_integers(false)
        .skip_default_fields(false);
    let written = message.serialize_with_options(&mut Serializer::new(&mut line), &options);
    written.map_err(|error| broken(error.to_string()))?;
    line.push(b'\n');
    Ok(line.into())
}

/// Returns the gRPC call of a message.
fn call(method: &MethodDescriptor, message: &[u8]) -> Request<TonicBody> {
    let mut body = BytesMut::with_capacity(PREFIX_BYTES + message.len());
    body.put_u8(0);
    body.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    body.put_slice(message);
    let mut request = Request::new(TonicBody::new(Full::new(body.freeze())));
    *request.method_mut() = Method::POST;
    let path = format!("/{SERVICE}/{}", method.name());
    *request.uri_mut() = path.parse().expect("names of methods are parts of a path");
    let grpc = HeaderValue::from_static("application/grpc");
    request.headers_mut().insert(header::CONTENT_TYPE, grpc);
    request
}

/// The messages of a response, as one JSON object on each line. An error is the last object.
#[derive(Debug)]
struct JsonLines {
    output: MessageDescriptor,
    inner: TonicBody,
    /// What is received of the next messages.
    received: BytesMut,
    has_ended: bool,
}

impl JsonLines {
    /// Returns the object of the only message.
    async fn only(&mut self) -> Result<Bytes, Status> {
        loop {
            if let Some(line) = self.take_line()? {
                return Ok(line);
            }
            let frame = self.inner.frame().await;
            let Some(frame) = frame.transpose()? else {
                return Err(Status::internal("the method has not answered"));
            };
            self.receive(frame)?;
        }
    }

    /// Adds the data of a frame; returns the error in trailers.
    fn receive(&mut self, frame: Frame<Bytes>) -> Result<(), Status> {
        match frame.into_data() {
            Ok(data) => {
                self.received.extend_from_slice(&data);
                Ok(())
            }
            Err(frame) => {
                let trailers = frame.into_trailers().unwrap_or_default();
                match Status::from_header_map(&trailers) {
                    Some(status) if status.code() != Code::Ok => Err(status),
                    _ => Ok(()),
                }
            }
        }
    }

    /// Takes the first message, if it is complete.
    fn take_line(&mut self) -> Result<Option<Bytes>, Status> {
        let Some(prefix) = self.received.get(..PREFIX_BYTES) else {
            return Ok(None);
        };
        let length = prefix[1..]
            .iter()
            .fold(0, |length, byte| length << 8 | usize::from(*byte));
        if self.received.len() < PREFIX_BYTES + length {
            return Ok(None);
        }
        self.received.advance(PREFIX_BYTES);
        let message = self.received.split_to(length).freeze();
        to_json(&self.output, message).map(Some)
    }
}

impl Body for JsonLines {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let lines = &mut *self;
        loop {
            if lines.has_ended {
                return Poll::Ready(None);
            }
            let line = match lines.take_line() {
                Ok(Some(line)) => Ok(line),
                Ok(None) => match ready!(Pin::new(&mut lines.inner).poll_frame(context)) {
                    None => {
                        lines.has_ended = true;
                        continue;
                    }
                    Some(frame) => match frame.and_then(|frame| lines.receive(frame)) {
                        Ok(()) => continue,
                        Err(status) => Err(status),
                    },
                },
                Err(status) => Err(status),
            };
            let line = line.unwrap_or_else(|status| {
                lines.has_ended = true;
                error_object(&status)
            });
            return Poll::Ready(Some(Ok(Frame::data(line))));
        }
    }
}

/// Returns the object of an error.
fn error_object(status: &Status) -> Bytes {
    let object = serde_json::json!({
        "error": status.message(),
        "code": i32::from(status.code()),
    });
    format!("{object}\n").into()
}

/// Returns the status of HTTP that gateways send for a code.
fn http_status(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => {
            StatusCode::BAD_REQUEST
        }
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound | Code::Unimplemented => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::Cancelled | Code::Unknown | Code::Internal | Code::DataLoss => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }
}
