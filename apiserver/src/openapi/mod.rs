//! OpenAPI documents of the resources.

mod custom;

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, VARY};
use http::{HeaderMap, StatusCode};
use revstore_kinds as kinds;
use revstore_kinds::openapi::{self, Dialect};
use revstore_watch_cache::RequestError;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::catalog::{Groups, Origin, Resource};
use crate::http::{Answer, Exchange, Front, Media};
use crate::version::{KUBERNETES_VERSION, REVSTORE_VERSION};

/// The media type of documents of version 2 in protobuf, and the name by which clients ask for it, which is not a
/// valid media type: clients refuse an answer that has it.
const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
const V2_PROTOBUF_ASKED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// The documents of version 2, made when a client first asks for one: JSON, then protobuf.
static V2: [OnceLock<Bytes>; 2] = [OnceLock::new(), OnceLock::new()];

/// The documents of version 2 with custom resources, JSON and protobuf: those that clients have asked for last, with
/// their tags.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    /// Held while a document is made, so that many clients that ask for it at once make it once.
    v2: [tokio::sync::Mutex<Option<(String, Bytes)>>; 2],
}

/// Answers the paths below `/openapi`.
// WC-412.
pub(crate) async fn answer(
    front: &Front,
    exchange: &Exchange,
    parts: &[&str],
) -> Result<Answer, RequestError> {
    match parts {
        ["openapi", "v2"] => v2(front, exchange).await,
        ["openapi", "v3"] => {
            let accepted = crate::http::Accepted::default();
            Ok(Answer::value(
                StatusCode::OK,
                accepted,
                &index(&front.catalog.groups()),
            ))
        }
        ["openapi", "v3", "apis", group, version] if is_custom(front, group) => {
            v3_custom(front, exchange, group, version).await
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

/// Returns the schema of the objects of a custom resource, without references.
///
/// # Errors
/// Its definition cannot be read.
pub(crate) async fn custom_schema(
    front: &Front,
    resource: &Resource,
) -> Result<Value, RequestError> {
    custom::whole(front, resource).await
}

fn is_custom(front: &Front, group: &str) -> bool {
    let groups = front.catalog.groups();
    groups
        .get(group)
        .is_some_and(|group| group.origin == Origin::Custom)
}

/// Returns the list of the documents of version 3.
fn index(groups: &Groups) -> Value {
    let mut paths = Map::new();
    let mut add = |path: String, tag: String| {
        let url = format!("/openapi/v3/{path}?hash={tag}");
        paths.insert(path, json!({"serverRelativeURL": url}));
    };
    for path in versions().map(path_of).chain(["version".to_owned()]) {
        let tag = tag_of(&path);
        add(path, tag);
    }
    for (name, group) in groups {
        if group.origin == Origin::Custom {
            for version in &group.versions {
                let resources = custom::resources(groups, Some((name, &version.name)));
                add(
                    format!("apis/{name}/{}", version.name),
                    tag_of_custom(&resources),
                );
            }
        }
    }
    json!({"paths": paths})
}

/// Returns the tag of the document of version 3 of custom resources.
fn tag_of_custom(resources: &[Arc<Resource>]) -> String {
    let names = resources
        .first()
        .map(|resource| resource.names.api_version());
    tag_of(&format!(
        "{}{}",
        names.unwrap_or_default(),
        custom::state_of(resources)
    ))
}

async fn v3_custom(
    front: &Front,
    exchange: &Exchange,
    group: &str,
    version: &str,
) -> Result<Answer, RequestError> {
    let resources = custom::resources(&front.catalog.groups(), Some((group, version)));
    if resources.is_empty() {
        return Ok(Answer::page_not_found());
    }
    let tag = tag_of_custom(&resources);
    let document = if is_known(exchange, &tag) {
        Value::Null
    } else {
        custom::v3(front, &resources, KUBERNETES_VERSION).await?
    };
    Ok(tagged(exchange, &tag, Media::Json.content_type(), || {
        document.to_string().into()
    }))
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

async fn v2(front: &Front, exchange: &Exchange) -> Result<Answer, RequestError> {
    let is_protobuf = accepts_protobuf(&exchange.headers);
    let (name, content_type) = if is_protobuf {
        ("v2 protobuf", V2_PROTOBUF)
    } else {
        ("v2", Media::Json.content_type())
    };
    let resources = custom::resources(&front.catalog.groups(), None);
    let tag = tag_of(&format!("{name}{}", custom::state_of(&resources)));
    let document = if is_known(exchange, &tag) {
        Bytes::new()
    } else if resources.is_empty() {
        let cell = &V2[usize::from(is_protobuf)];
        if cell.get().is_none() {
            let made = make_v2(is_protobuf, Map::new(), Map::new()).await?;
            let _ = cell.set(made);
        }
        cell.get().cloned().unwrap_or_default()
    } else {
        let mut last = front.documents.v2[usize::from(is_protobuf)].lock().await;
        match &*last {
            Some((known, document)) if *known == tag => document.clone(),
            _ => {
                let (paths, schemas) = custom::documented(front, &resources, Dialect::V2).await?;
                let made = make_v2(is_protobuf, paths, schemas).await?;
                last.insert((tag.clone(), made)).1.clone()
            }
        }
    };
    Ok(tagged(exchange, &tag, content_type, || document))
}

/// Makes a document of version 2 with further paths and schemas. It takes about 0.1 s.
async fn make_v2(
    is_protobuf: bool,
    paths: Map<String, Value>,
    schemas: Map<String, Value>,
) -> Result<Bytes, RequestError> {
    let made = tokio::task::spawn_blocking(move || {
        let mut document = openapi::v2(versions(), KUBERNETES_VERSION);
        for (field, further) in [("paths", paths), ("definitions", schemas)] {
            if let Some(known) = document[field].as_object_mut() {
                known.extend(further);
            }
        }
        let bytes = if is_protobuf {
            openapi::v2_protobuf(&document)
        } else {
            document.to_string().into_bytes()
        };
        bytes.into()
    });
    made.await
        .map_err(|error| RequestError::Internal(error.to_string()))
}

/// Returns whether the client has the document with a tag.
fn is_known(exchange: &Exchange, tag: &str) -> bool {
    exchange.header("if-none-match") == format!("\"{tag}\"")
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
    let mut answer = if is_known(exchange, tag) {
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
