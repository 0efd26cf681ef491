//! Answers: status, headers, and a body in the form that the client accepts.

mod body;
pub(crate) mod gzip;
mod turns;

pub(crate) use body::{Body, Chunks};
pub(crate) use turns::InTurns;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WARNING};
use http::{Response, StatusCode};
use revstore_watch_cache::RequestError;
use revstore_watch_cache::status::Status;
use serde::{Serialize, Serializer};
use serde_json::Value;

use revstore_kinds as kinds;

use crate::decode::to_yaml;
use crate::http::{Accepted, Media};
use crate::stream::indented;

/// The maximum length of all warnings of an answer. Above it the rest is left out, as kube-apiserver does,
/// because proxies limit the size of headers.
const WARNINGS_CHARS_MAX: usize = 4 * 1024;
/// The maximum length of one warning, when they do not all fit.
const WARNING_CHARS_MAX: usize = 256;

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: Body,
}

impl Answer {
    /// Returns an answer with a body of a media type.
    pub(crate) fn new(
        status: StatusCode,
        content_type: &'static str,
        body: impl Into<Body>,
    ) -> Self {
        Self {
            status,
            headers: vec![(CONTENT_TYPE, HeaderValue::from_static(content_type))],
            body: body.into(),
        }
    }

    /// Returns a plain text.
    pub(crate) fn text(status: StatusCode, text: impl Into<String>) -> Self {
        let answer = Self::new(status, "text/plain; charset=utf-8", text.into());
        answer.header(
            HeaderName::from_static("x-content-type-options"),
            HeaderValue::from_static("nosniff"),
        )
    }

    /// Returns the answer to a path that does not exist.
    pub(crate) fn page_not_found() -> Self {
        Self::text(StatusCode::NOT_FOUND, "404 page not found\n")
    }

    /// Returns the answer to a request beyond the limit of requests in flight.
    pub(crate) fn too_many_requests() -> Self {
        let message = "Too many requests, please try again later.\n";
        Self::text(StatusCode::TOO_MANY_REQUESTS, message)
            .header(RETRY_AFTER, HeaderValue::from_static("1"))
    }

    /// Returns a JSON value in the media type that a client accepts. As from Go's types, its JSON begins with the kind
    /// and the API version.
    pub(crate) fn value(status: StatusCode, accepted: Accepted, value: &Value) -> Self {
        let (media, bytes) = encode(accepted, value);
        Self::new(status, media.content_type(), bytes)
    }

    /// Returns compact JSON in the media type that a client accepts, with the members in their order.
    ///
    /// # Errors
    /// `Internal` for a client that accepts another media type, if it is no JSON.
    pub(crate) fn json(
        status: StatusCode,
        accepted: Accepted,
        json: Vec<u8>,
    ) -> Result<Self, RequestError> {
        if accepted.media == Media::Json {
            let bytes = finished(accepted, json);
            return Ok(Self::new(status, Media::Json.content_type(), bytes));
        }
        let value: Value = serde_json::from_slice(&json)
            .map_err(|error| RequestError::Internal(error.to_string()))?;
        Ok(Self::value(status, accepted, &value))
    }

    /// Returns an error in the media type that a client accepts.
    pub(crate) fn error(accepted: Accepted, status: &Status) -> Self {
        let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let json = status.to_json().into_bytes();
        let answer = Self::json(code, accepted, json)
            .unwrap_or_else(|_| Self::text(code, status.message.as_str()));
        match status.retry_after_seconds() {
            Some(seconds) => answer.header(RETRY_AFTER, HeaderValue::from(seconds)),
            None => answer,
        }
    }

    /// Adds a header.
    #[must_use]
    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Adds warnings, each as a header.
    #[must_use]
    pub(crate) fn warnings(mut self, texts: &[String]) -> Self {
        // Those that cannot be shown count for nothing.
        let shown = |text: &&String| !text.is_empty() && !text.contains(char::is_control);
        let texts = || texts.iter().filter(shown);
        let total: usize = texts().map(|text| text.chars().count()).sum();
        let mut written = 0;
        for text in texts() {
            let text = if total > WARNINGS_CHARS_MAX {
                truncated(text, WARNING_CHARS_MAX)
            } else {
                text
            };
            if written >= WARNINGS_CHARS_MAX {
                break;
            }
            written += text.chars().count();
            let value = format!("299 - {}", quoted(text));
            if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
                self.headers.push((WARNING, value));
            }
        }
        self
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        if self.status == StatusCode::SWITCHING_PROTOCOLS {
            response.headers_mut().extend(self.headers);
            return response;
        }
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        for (name, value) in self.headers {
            if name == CACHE_CONTROL {
                headers.insert(name, value);
            } else {
                headers.append(name, value);
            }
        }
        response
    }
}

/// Returns the JSON value of a status.
pub(crate) fn status_value(status: &Status) -> Value {
    serde_json::from_str(&status.to_json()).unwrap_or_default()
}

/// Encodes a value. A kind that protobuf does not know is encoded as JSON.
fn encode(accepted: Accepted, value: &Value) -> (Media, Vec<u8>) {
    if accepted.media == Media::Protobuf
        && let Ok(bytes) = kinds::to_protobuf(value)
    {
        return (Media::Protobuf, bytes);
    }
    if accepted.media == Media::Yaml {
        return (Media::Yaml, to_yaml(value).into_bytes());
    }
    (Media::Json, finished(accepted, type_first(value)))
}

/// Returns the JSON of a value, the kind and the API version of an object first.
fn type_first(value: &Value) -> Vec<u8> {
    const FIRST: [&str; 2] = ["kind", "apiVersion"];
    let mut bytes = Vec::with_capacity(128);
    let mut serializer = serde_json::Serializer::new(&mut bytes);
    let written = match value {
        Value::Object(members) => {
            let first = FIRST.iter().filter_map(|name| members.get_key_value(*name));
            let is_other = |(name, _): &(&String, _)| !FIRST.contains(&name.as_str());
            serializer.collect_map(first.chain(members.iter().filter(is_other)))
        }
        value => value.serialize(&mut serializer),
    };
    written.expect("the serialization of JSON values does not fail");
    bytes
}

/// Returns compact JSON as it is sent, with the line break at its end.
fn finished(accepted: Accepted, mut json: Vec<u8>) -> Vec<u8> {
    if accepted.pretty {
        json = indented(&json);
    }
    json.push(b'\n');
    json
}

/// Returns the beginning of a text, at most `max` bytes.
fn truncated(text: &str, max: usize) -> &str {
    match text.char_indices().nth(max) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// Returns a text as a quoted string of HTTP.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => quoted.extend(['\\', char]),
            char => quoted.push(char),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_quoted_and_bounded() {
        let texts = ["unknown field \"a\"", "", "two\nlines"].map(str::to_owned);
        let answer = Answer::text(StatusCode::OK, "").warnings(&texts);
        let warnings = answer.headers.iter().filter(|(name, _)| name == WARNING);
        let warnings: Vec<_> = warnings.map(|(_, value)| value).collect();
        assert_eq!(warnings, ["299 - \"unknown field \\\"a\\\"\""]);
        let many = vec!["x".repeat(1_000); 100];
        let response = Answer::text(StatusCode::OK, "")
            .warnings(&many)
            .into_response();
        let warnings = response.headers().get_all(WARNING).iter();
        let bytes: usize = warnings.map(HeaderValue::len).sum();
        // Sixteen of 256 characters, each with the frame of its header.
        assert_eq!(bytes, 16 * ("299 - \"\"".len() + WARNING_CHARS_MAX));
    }
}
