//! HTTP responses of the gateway.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use prost_reflect::MessageDescriptor;
use serde_json::json;
use tokio::sync::oneshot;
use tonic::body::Body;
use tonic::codegen::StdError;
use tonic::{Code, Status, Streaming};

use super::json_answer::JsonAnswer;
use super::transcode;

/// Returns a response with one message as a JSON object.
pub(super) fn object(
    descriptor: &MessageDescriptor,
    message: Bytes,
) -> Result<Response<Body>, Status> {
    let mut json = Vec::new();
    transcode::write_json(descriptor, message, &mut json)?;
    Ok(response(StatusCode::OK, full(json)))
}

/// Returns a response with one message that is converted while it is sent.
pub(super) fn large_object<B>(answer: JsonAnswer<B>) -> Response<Body>
where
    B: http_body::Body<Data = Bytes, Error: Into<StdError>> + Send + Unpin + 'static,
{
    response(StatusCode::OK, Body::new(answer))
}

/// Returns an error response. Older gateways have the text in `error`, newer gateways in `message`.
/// The response contains both fields (HT-22).
pub(super) fn error(status: &Status) -> Response<Body> {
    let error = json!({
        "error": status.message(),
        "code": status.code() as i32,
        "message": status.message(),
        "details": [],
    });
    response(http_status(status.code()), full(error.to_string()))
}

/// Returns the response to a streaming call that fails before its first message.
pub(super) fn stream_error(status: &Status) -> Response<Body> {
    response(http_status(status.code()), full(error_line(status)))
}

/// Returns a response that contains each message when it is received.
pub(super) fn lines(lines: JsonLines) -> Response<Body> {
    response(StatusCode::OK, Body::new(lines))
}

fn full(text: impl Into<Bytes>) -> Body {
    Body::new(http_body_util::Full::new(text.into()))
}

fn response(status: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// The response body of a streaming call: a line for each message, and a last line if the call
/// fails (HT-23).
#[derive(Debug)]
pub(super) struct JsonLines {
    /// The first message, if it has been received and not sent.
    first: Option<Bytes>,
    /// `None` after the last message.
    messages: Option<Streaming<Bytes>>,
    /// Completes when the client disconnects; `None` after it has completed or its sender was
    /// dropped.
    disconnected: Option<oneshot::Receiver<()>>,
    descriptor: MessageDescriptor,
}

impl JsonLines {
    pub(super) fn new(
        messages: Streaming<Bytes>,
        disconnected: oneshot::Receiver<()>,
        descriptor: MessageDescriptor,
    ) -> Self {
        Self {
            first: None,
            messages: Some(messages),
            disconnected: Some(disconnected),
            descriptor,
        }
    }

    /// Waits for the first message or the end of the call.
    ///
    /// # Errors
    /// Returns the status of a call that fails before its first message.
    pub(super) async fn wait_for_first(&mut self) -> Result<(), Status> {
        let first = std::future::poll_fn(|context| self.poll_message(context)).await;
        self.first = first.transpose()?;
        Ok(())
    }

    fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Status>>> {
        if let Some(disconnected) = &mut self.disconnected
            && let Poll::Ready(result) = Pin::new(disconnected).poll(context)
        {
            self.disconnected = None;
            if result.is_ok() {
                self.messages = None;
            }
        }
        let Some(messages) = &mut self.messages else {
            return Poll::Ready(None);
        };
        let message = ready!(Pin::new(messages).poll_next(context));
        if !matches!(message, Some(Ok(_))) {
            self.messages = None;
        }
        Poll::Ready(message)
    }

    /// Returns the line for a message.
    fn line(&self, message: Bytes) -> Result<Bytes, Status> {
        let mut line = br#"{"result":"#.to_vec();
        transcode::write_json(&self.descriptor, message, &mut line)?;
        line.extend_from_slice(b"}\n");
        Ok(line.into())
    }
}

impl http_body::Body for JsonLines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let message = match self.first.take() {
            Some(first) => Some(Ok(first)),
            None => ready!(self.poll_message(context)),
        };
        let Some(message) = message else {
            return Poll::Ready(None);
        };
        let line = message.and_then(|message| self.line(message));
        let line = line.unwrap_or_else(|status| {
            self.messages = None;
            error_line(&status).into()
        });
        Poll::Ready(Some(Ok(Frame::data(line))))
    }
}

/// Returns the line for an error, with the field names of older and newer gateways.
fn error_line(status: &Status) -> String {
    let http_status = http_status(status.code());
    let error = json!({
        "error": {
            "code": status.code() as i32,
            "message": status.message(),
            "details": [],
            "grpc_code": status.code() as i32,
            "http_code": http_status.as_u16(),
            "http_status": http_status.canonical_reason().unwrap_or_default(),
        },
    });
    format!("{error}\n")
}

/// Returns the HTTP status code for a gRPC code (HT-22).
fn http_status(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        // This code is not registered, but grpc-gateway and other servers use it.
        Code::Cancelled => StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST),
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => {
            StatusCode::BAD_REQUEST
        }
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use http_body_util::BodyExt as _;
    use serde_json::Value;

    use super::*;

    fn read(response: Response<Body>) -> (u16, Value) {
        let status = response.status().as_u16();
        let body = response.into_body().collect().now_or_never();
        let body = body.expect("a ready body").expect("a complete body");
        let json = serde_json::from_slice(&body.to_bytes()).expect("an object");
        (status, json)
    }

    #[test]
    fn ht_22_an_error_has_the_fields_of_older_and_newer_gateways() {
        let status = Status::not_found("gone");
        let expected = json!({"error": "gone", "code": 5, "message": "gone", "details": []});
        assert_eq!(read(error(&status)), (404, expected));
        let expected = json!({"error": {
            "code": 5,
            "message": "gone",
            "details": [],
            "grpc_code": 5,
            "http_code": 404,
            "http_status": "Not Found",
        }});
        assert_eq!(read(stream_error(&status)), (404, expected));
    }

    #[test]
    fn ht_22_grpc_codes_map_to_http_status_codes() {
        for (code, expected) in [
            (Code::InvalidArgument, 400),
            (Code::OutOfRange, 400),
            (Code::FailedPrecondition, 400),
            (Code::Unauthenticated, 401),
            (Code::PermissionDenied, 403),
            (Code::NotFound, 404),
            (Code::ResourceExhausted, 429),
            (Code::Unknown, 500),
            (Code::Internal, 500),
            (Code::DataLoss, 500),
            (Code::Unimplemented, 501),
            (Code::Unavailable, 503),
        ] {
            let (status, _) = read(error(&Status::new(code, "")));
            assert_eq!(status, expected, "{code:?}");
        }
    }
}
