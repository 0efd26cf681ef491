//! OpenAPI documents of the built-in kinds.

use std::sync::OnceLock;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, VARY};
use http::{HeaderMap, StatusCode};
use revstore_kinds as kinds;
use revstore_kinds::openapi;
use revstore_watch_cache::RequestError;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::http::{Answer, Exchange, Media};
use crate::version::{KUBERNETES_VERSION, REVSTORE_VERSION};

/// The media type of documents of version 2 in protobuf, and the name by which clients ask for it, which is not a
/// valid media type: clients refuse an answer that has it.
const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
const V2_PROTOBUF_ASKED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// The documents of version 2, made when a client first asks for one: JSON, then protobuf.
static V2: [OnceLock<Bytes>; 2] = [OnceLock::new(), OnceLock::new()];

/// Answers the paths below `/openapi`.
// WC-412.
pub(crate) async fn answer(exchange: &Exchange, parts: &[&str]) -> Result<Answer, RequestError> {
    match parts {
        ["openapi", "v2"] => v2(exchange).await,
        ["openapi", "v3"] => {
            let accepted = crate::http::Accepted::default();
            Ok(Answer::value(StatusCode::OK, accepted, &index()))
        }
        ["openapi", "v3", rest @ ..] => Ok(v3(exchange, rest)),
        _ => Ok(Answer::page_not_found()),
    }
}

/// Returns the versions that clients see.
fn versions() -> impl Iterator<Item = &'static kinds::Version> {
    let versions = kinds::groups().iter().flat_map(kinds::Group::versions);
    versions.filter(|version| version.on_by_default())
}

/// Returns the path of a version below `/openapi/v3/`.
fn path_of(version: &kinds::Version) -> String {
    if version.group().is_empty() {
        format!("api/{}", version.name())
    } else {
        format!("apis/{}/{}", version.group(), version.name())
    }
}

/// Returns the tag of a document. The documents of one build never change.
fn tag_of(name: &str) -> String {
    use std::fmt::Write as _;
    let text = format!(
        "{name} {KUBERNETES_VERSION} {REVSTORE_VERSION} {:?}",
        kinds::sources()
    );
    let mut tag = String::new();
    for byte in Sha256::digest(text.as_bytes()) {
        // Writing to a string does not fail.
        let _ = write!(tag, "{byte:02X}");
    }
    tag
}

/// Returns the list of the documents of version 3.
fn index() -> Value {
    let mut paths = Map::new();
    for path in versions().map(path_of).chain(["version".to_owned()]) {
        let url = format!("/openapi/v3/{path}?hash={}", tag_of(&path));
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
    json!({"paths": paths})
}

fn v3(exchange: &Exchange, parts: &[&str]) -> Answer {
    let path = parts.join("/");
    let document = match parts {
        ["version"] => Some(version_document()),
        _ => versions()
            .find(|version| path_of(version) == path)
            .map(|version| openapi::v3(version, KUBERNETES_VERSION)),
    };
    let Some(document) = document else {
        return Answer::page_not_found();
    };
    tagged(exchange, &tag_of(&path), Media::Json.content_type(), || {
        document.to_string().into()
    })
}

/// Returns the document about the version of the server.
fn version_document() -> Value {
    let content = json!({"application/json": {"schema": {"type": "object"}}});
    let get = json!({
        "operationId": "getCodeVersion",
        "tags": ["version"],
        "responses": {"200": {"description": "OK", "content": content}},
    });
    let mut paths = Map::new();
    paths.insert("/version/".to_owned(), json!({"get": get}));
    openapi::v3_document(paths, Map::new(), KUBERNETES_VERSION)
}

async fn v2(exchange: &Exchange) -> Result<Answer, RequestError> {
    let is_protobuf = accepts_protobuf(&exchange.headers);
    let cell = &V2[usize::from(is_protobuf)];
    if cell.get().is_none() {
        // It takes about 0.1 s.
        let made = tokio::task::spawn_blocking(move || {
            let document = openapi::v2(versions(), KUBERNETES_VERSION);
            let bytes = if is_protobuf {
                openapi::v2_protobuf(&document)
            } else {
                document.to_string().into_bytes()
            };
            let _ = V2[usize::from(is_protobuf)].set(bytes.into());
        });
        let failed = |error: tokio::task::JoinError| RequestError::Internal(error.to_string());
        made.await.map_err(failed)?;
    }
    let (name, content_type) = if is_protobuf {
        ("v2 protobuf", V2_PROTOBUF)
    } else {
        ("v2", Media::Json.content_type())
    };
    Ok(tagged(exchange, &tag_of(name), content_type, || {
        cell.get().cloned().unwrap_or_default()
    }))
}

fn accepts_protobuf(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    let mut accepted = accepted.unwrap_or_default().split(',');
    accepted.any(|media| {
        let media = media.trim();
        media.starts_with(V2_PROTOBUF_ASKED) || media.starts_with(V2_PROTOBUF)
    })
}

/// Returns a document, unless the client has it already.
fn tagged(
    exchange: &Exchange,
    tag: &str,
    content_type: &'static str,
    document: impl FnOnce() -> Bytes,
) -> Answer {
    let quoted = format!("\"{tag}\"");
    let mut answer = if exchange.header("if-none-match") == quoted {
        let mut answer = Answer::new(StatusCode::NOT_MODIFIED, content_type, "");
        answer
            .headers
            .retain(|(name, _): &(HeaderName, _)| name != CONTENT_TYPE);
        answer
    } else {
        Answer::new(StatusCode::OK, content_type, document())
    };
    if let Ok(tag) = HeaderValue::from_str(&quoted) {
        answer = answer.header(ETAG, tag);
    }
    answer.header(VARY, HeaderValue::from_static("Accept"))
}
