//! The answer of a webhook.

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value;
use tokio::time::Instant;

use crate::decode::from_json;
use crate::webhook::error::{CallError, LATE, media_type_error, status_error, transport_error};

/// The size of the body of an answer in bytes. A call with a larger one fails.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// The part of the body of an error that is read, and the part that is shown.
const ERROR_BYTES_MAX: usize = 64 << 10;
const SHOWN_BYTES_MAX: usize = 2048;
/// The media type of an answer that does not say it.
const DEFAULT_TYPE: &str = "application/json";
/// The media types that are decoded.
const JSON_TYPES: [&str; 2] = [DEFAULT_TYPE, "application/yaml"];
const PROTOBUF_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// The body of an answer that is no error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) body: Bytes,
    /// Whether its media type is Kubernetes' protobuf, which is not decoded.
    pub(crate) is_protobuf: bool,
}

impl Answer {
    /// Reads an answer. Corresponds to `transformResponse` of client-go.
    ///
    /// # Errors
    /// [`CallError`].
    pub(super) async fn read(
        response: Response<Incoming>,
        url: &str,
        end: Instant,
    ) -> Result<Self, CallError> {
        let status = response.status();
        let header = response.headers().get(CONTENT_TYPE);
        let header = header.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let header = header.filter(|text| !text.is_empty());
        let read = tokio::time::timeout_at(end, read(response));
        let body = match read.await {
            Ok(body) => body?,
            Err(_) if is_success(status) => return Err(unreadable(LATE)),
            Err(_) => return Err(CallError::transport(url, LATE)),
        };
        let code = status.as_u16();
        let is_text = header.as_ref().is_none_or(|text| text.starts_with("text/"));
        let shown = |is_text: bool| {
            if !is_text {
                return "unknown".to_owned();
            }
            let shown = &body[..body.len().min(SHOWN_BYTES_MAX)];
            String::from_utf8_lossy(shown).trim().to_owned()
        };
        let media = header.as_deref().unwrap_or(DEFAULT_TYPE);
        let essence = media.split(';').next().unwrap_or_default().trim();
        if let Some(error) = media_type_error(essence) {
            return Err(CallError::Status {
                code: StatusCode::INTERNAL_SERVER_ERROR.as_u16(),
                message: format!("Internal error occurred: {error}"),
            });
        }
        let is_protobuf = essence == PROTOBUF_TYPE;
        let is_decoded = is_protobuf || JSON_TYPES.contains(&essence);
        if !is_success(status) {
            let own = is_decoded.then(|| own_status(&body)).flatten();
            return Err(own.unwrap_or_else(|| status_error(status, &shown(is_text))));
        }
        if body.is_empty() {
            return Err(CallError::Answer(format!(
                "0-length response with status code: {code} and content type: {media}"
            )));
        }
        Ok(Self { body, is_protobuf })
    }
}

/// Returns whether an answer with a status is read as a review.
fn is_success(status: StatusCode) -> bool {
    (200..=206).contains(&status.as_u16())
}

/// Returns an error that is a `Status`.
fn own_status(body: &[u8]) -> Option<CallError> {
    let status = from_json(body).ok()?.value;
    let is = |name: &str, value: &str| status.get(name).and_then(Value::as_str) == Some(value);
    let is_failure = is("kind", "Status") && is("apiVersion", "v1") && is("status", "Failure");
    let message = status.get("message").and_then(Value::as_str);
    let code = status.get("code").and_then(Value::as_u64);
    is_failure.then(|| CallError::Status {
        code: code
            .and_then(|code| code.try_into().ok())
            .unwrap_or_default(),
        message: message.unwrap_or_default().to_owned(),
    })
}

fn unreadable(reason: &str) -> CallError {
    CallError::Answer(format!(
        "unexpected error when reading response body. Please retry. Original error: {reason}"
    ))
}

/// Reads the body of an answer.
async fn read(response: Response<Incoming>) -> Result<Bytes, CallError> {
    let is_error = !is_success(response.status());
    let mut body = response.into_body();
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            // The status of an error is enough.
            Err(_) if is_error => break,
            Err(error) => {
                return Err(unreadable(match &*transport_error(&error) {
                    "EOF" => "unexpected EOF",
                    other => other,
                }));
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
