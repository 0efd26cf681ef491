//! What the gateway answers.

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
use tonic::{Code, Status, Streaming};

use super::transcode;

/// One message.
pub(super) fn object(
    descriptor: &MessageDescriptor,
    message: Bytes,
) -> Result<Response<Body>, Status> {
    let mut json = Vec::new();
    transcode::write_json(descriptor, message, &mut json)?;
    Ok(response(StatusCode::OK, whole(json)))
}

/// HT-22: older gateways have the text as `error`, newer ones as `message`.
pub(super) fn error(status: &Status) -> Response<Body> {
    let error = json!({
        "error": status.message(),
        "code": status.code() as i32,
        "message": status.message(),
        "details": [],
    });
    response(http_status(status.code()), whole(error.to_string()))
}

/// A stream that ends in an error before it has begun.
pub(super) fn stream_error(status: &Status) -> Response<Body> {
    response(http_status(status.code()), whole(error_line(status)))
}

/// Messages as they come.
pub(super) fn lines(lines: Lines) -> Response<Body> {
    response(StatusCode::OK, Body::new(lines))
}

fn whole(text: impl Into<Bytes>) -> Body {
    Body::new(http_body_util::Full::new(text.into()))
}

fn response(status: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// HT-23: the body of a stream, a line for each message. An error is the last.
#[derive(Debug)]
pub(super) struct Lines {
    first: Option<Bytes>,
    /// Nothing after the last message.
    messages: Option<Streaming<Bytes>>,
    /// Says when the client has gone; nothing after it is sure that this will not be said.
    is_lost: Option<oneshot::Receiver<()>>,
    descriptor: MessageDescriptor,
}

impl Lines {
    pub(super) fn new(
        messages: Streaming<Bytes>,
        is_lost: oneshot::Receiver<()>,
        descriptor: MessageDescriptor,
    ) -> Self {
        Self {
            first: None,
            messages: Some(messages),
            is_lost: Some(is_lost),
            descriptor,
        }
    }

    /// Completes when there is a message, or will be none.
    ///
    /// # Errors
    /// The stream ends in an error before.
    pub(super) async fn wait_for_first(&mut self) -> Result<(), Status> {
        let first = std::future::poll_fn(|context| self.poll_message(context)).await;
        self.first = first.transpose()?;
        Ok(())
    }

    fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Status>>> {
        if let Some(is_lost) = &mut self.is_lost
            && let Poll::Ready(said) = Pin::new(is_lost).poll(context)
        {
            self.is_lost = None;
            if said.is_ok() {
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

    fn line(&self, message: Bytes) -> Result<Bytes, Status> {
        let mut line = br#"{"result":"#.to_vec();
        transcode::write_json(&self.descriptor, message, &mut line)?;
        line.extend_from_slice(b"}\n");
        Ok(line.into())
    }
}

impl http_body::Body for Lines {
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

/// As in [`error`], with the names of either age.
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

/// HT-22
fn http_status(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        // Not in the registry, but what grpc-gateway and others send.
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
        let body = body.expect("a body that is there").expect("a whole body");
        let json = serde_json::from_slice(&body.to_bytes()).expect("an object");
        (status, json)
    }

    #[test]
    fn ht_22_an_error_has_the_fields_of_every_age() {
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
    fn ht_22_codes_become_status_codes() {
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
