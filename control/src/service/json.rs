//! Requests and responses in JSON: `POST /control/v1/METHOD`.
//!
//! A request is converted to a call of the gRPC service, and its response back. The form is that of protobuf's JSON,
//! with 64-bit integers as numbers. A stream of responses is one object on each line.

use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full, Limited};
use prost::Message;
use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, MessageDescriptor, MethodDescriptor,
    SerializeOptions, ServiceDescriptor,
};
use serde_json::de::Deserializer;
use serde_json::ser::Serializer;
use tonic::body::Body as TonicBody;
use tonic::codegen::StdError;
use tonic::{Code, Status};
use tower_service::Service;

use super::REQUEST_BYTES_MAX;
use super::grpc::Grpc;
use crate::proto::FILE_DESCRIPTOR_SET;
use crate::proto::control_server::ControlServer;

const PATH: &str = "/control/v1/";
const SERVICE: &str = "revstore.control.v1.Control";

/// The time in which the body of a request must arrive.
const BODY_TIME: Duration = Duration::from_secs(10);

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
    grpc: ControlServer<Grpc>,
    parts: &Parts,
    body: B,
) -> Response<TonicBody>
where
    B: Body<Data = Bytes, Error: Into<StdError>> + Send + 'static,
{
    match try_respond(grpc, parts, body).await {
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
enum Refusal {
    Of(Status),
    /// With another status of HTTP than that of the code.
    With(StatusCode, Status),
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::Of(status)
    }
}

async fn try_respond<B>(
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
    let json = read(body).await?;
    let message = to_message(&method.input(), &json)?;
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

fn set_json(response: &mut Response<TonicBody>) {
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
}

async fn read<B>(body: B) -> Result<Bytes, Refusal>
where
    B: Body<Data = Bytes, Error: Into<StdError>>,
{
    let body = Limited::new(body, REQUEST_BYTES_MAX);
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
        let broken =
            |error: String| Status::internal(format!("a response cannot be written: {error}"));
        let message = DynamicMessage::decode(self.output.clone(), message);
        let message = message.map_err(|error| broken(error.to_string()))?;
        let mut line = Vec::new();
        let options = SerializeOptions::new()
            .use_proto_field_name(true)
            .stringify_64_bit_integers(false)
            .skip_default_fields(false);
        let written = message.serialize_with_options(&mut Serializer::new(&mut line), &options);
        written.map_err(|error| broken(error.to_string()))?;
        line.push(b'\n');
        Ok(Some(line.into()))
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
