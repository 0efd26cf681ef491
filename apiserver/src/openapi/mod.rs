//! OpenAPI documents of the resources.

mod custom;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::header::{
    CACHE_CONTROL, CONTENT_TYPE, ETAG, EXPIRES, HeaderName, HeaderValue, LOCATION, VARY,
};
use revstore_kinds as kinds;
use revstore_kinds::openapi::{self, Dialect};
use revstore_watch_cache::RequestError;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

use crate::catalog::{Groups, Origin, Resource, RuntimeConfig};
use crate::http::{Accepted, Answer, Exchange, Front};
use crate::version::{KUBERNETES_VERSION, REVSTORE_VERSION};

/// The media types of documents of version 2: JSON, protobuf, and the name by which clients ask for protobuf, which is not
/// a valid media type: clients refuse an answer that has it.
const V2_TYPES: [&str; 3] = [
    "application/json",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
];

/// The media types of documents of version 3, likewise.
const V3_TYPES: [&str; 3] = [
    "application/json",
    "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
];

/// The documents of version 2, made when a client first asks for one: JSON, then protobuf.
static V2: [OnceLock<Bytes>; 2] = [OnceLock::new(), OnceLock::new()];

/// The documents of version 2 with custom resources, JSON and protobuf: those that clients have asked for last, with
/// their tags.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    /// The built-in resources that they are about.
    config: RuntimeConfig,
    /// Held while a document is made, so that many clients that ask for it at once make it once.
    v2: [tokio::sync::Mutex<Option<(String, Bytes)>>; 2],
}

impl Documents {
    pub(crate) fn new(config: RuntimeConfig) -> Self {
        Self {
            config,
            ..Self::default()
        }
    }

    /// Returns the versions of built-in resources that clients see.
    fn versions(&self) -> impl Iterator<Item = &'static kinds::Version> {
        let versions = kinds::groups().iter().flat_map(kinds::Group::versions);
        versions.filter(|version| self.config.resources(version).next().is_some())
    }

    /// Returns the tag of a document. The documents of one build and one configuration never change.
    fn tag_of(&self, name: &str) -> String {
        tag_of(&format!("{name}{}", self.config.state()))
    }
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
            let accepted = Accepted::default();
            Ok(Answer::value(
                StatusCode::OK,
                accepted,
                &index(&front.documents, &front.catalog.groups()),
            ))
        }
        ["openapi", "v3", "apis", group, version] if is_custom(front, group) => {
            v3_custom(front, exchange, group, version).await
        }
        ["openapi", "v3", rest @ ..] => Ok(v3(front, exchange, rest)),
        _ => Ok(Answer::page_not_found()),
    }
}

/// Returns the path of a version below `/openapi/v3/`.
fn path_of(version: &kinds::Version) -> String {
    if version.group().is_empty() {
        format!("api/{}", version.name())
    } else {
        format!("apis/{}/{}", version.group(), version.name())
    }
}

/// Returns the tag of a document of this build with a name.
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
fn index(documents: &Documents, groups: &Groups) -> Value {
    let mut paths = Map::new();
    let mut add = |path: String, tag: String| {
        let url = address(&path, &tag);
        paths.insert(path, json!({"serverRelativeURL": url}));
    };
    let versions = documents.versions().map(path_of);
    for path in versions.chain(["version".to_owned()]) {
        let tag = documents.tag_of(&path);
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
    let Some(encoding) = Encoding::of(exchange, &V3_TYPES) else {
        return Ok(not_acceptable());
    };
    let tag = tag_of_custom(&resources);
    if let Some(answer) = redirected(exchange, &format!("apis/{group}/{version}"), encoding, &tag) {
        return Ok(answer);
    }
    let document = if is_known(exchange, &tag) {
        Value::Null
    } else {
        custom::v3(front, &resources, KUBERNETES_VERSION).await?
    };
    let answer = tagged(exchange, &tag, encoding.media_type, || {
        encoding.v3(&document)
    });
    Ok(kept(front, exchange, answer))
}

fn v3(front: &Front, exchange: &Exchange, parts: &[&str]) -> Answer {
    let path = parts.join("/");
    let documents = &front.documents;
    let mut versions = documents.versions();
    let version = versions.find(|version| path_of(version) == path);
    if version.is_none() && path != "version" {
        return Answer::page_not_found();
    }
    let Some(encoding) = Encoding::of(exchange, &V3_TYPES) else {
        return not_acceptable();
    };
    let tag = documents.tag_of(&path);
    if let Some(answer) = redirected(exchange, &path, encoding, &tag) {
        return answer;
    }
    let answer = tagged(exchange, &tag, encoding.media_type, || {
        encoding.v3(&match version {
            Some(version) => {
                let resources = documents.config.resources(version);
                openapi::v3_of(version, resources, KUBERNETES_VERSION)
            }
            None => version_document(),
        })
    });
    kept(front, exchange, answer)
}

/// The encoding of a document.
#[derive(Clone, Copy, Debug)]
struct Encoding {
    is_protobuf: bool,
    media_type: &'static str,
}

impl Encoding {
    /// Returns the first of three media types that the client accepts, as in [`V2_TYPES`].
    fn of(exchange: &Exchange, types: &[&'static str; 3]) -> Option<Self> {
        let chosen = Accepted::first_of(&exchange.headers, types)?;
        let is_protobuf = chosen > 0;
        Some(Self {
            is_protobuf,
            media_type: types[usize::from(is_protobuf)],
        })
    }

    fn v3(self, document: &Value) -> Bytes {
        if self.is_protobuf {
            openapi::v3_protobuf(document).into()
        } else {
            document.to_string().into()
        }
    }
}

/// Returns the answer to a client that accepts no media type of a document. It has no body, as that of kube-apiserver.
fn not_acceptable() -> Answer {
    let mut answer = Answer::new(StatusCode::NOT_ACCEPTABLE, "", "");
    answer
        .headers
        .retain(|(name, _): &(HeaderName, _)| name != CONTENT_TYPE);
    answer.header(VARY, HeaderValue::from_static("Accept"))
}

/// Returns the address of a document of version 3 that never changes.
fn address(path: &str, tag: &str) -> String {
    format!("/openapi/v3/{path}?hash={tag}")
}

/// Returns the hash that a client asks for, of a document of version 3.
fn asked_hash(exchange: &Exchange) -> Option<&str> {
    exchange.query.first("hash").filter(|hash| !hash.is_empty())
}

/// Returns the answer to a client that asks for a document that has changed.
fn redirected(exchange: &Exchange, path: &str, encoding: Encoding, tag: &str) -> Option<Answer> {
    asked_hash(exchange).filter(|hash| *hash != tag)?;
    let mut answer = Answer::new(StatusCode::MOVED_PERMANENTLY, encoding.media_type, "");
    for (name, value) in [(LOCATION, address(path, tag)), (ETAG, format!("\"{tag}\""))] {
        // Groups and versions have no characters that a header cannot have.
        answer = answer.header(name, HeaderValue::from_str(&value).ok()?);
    }
    Some(answer.header(VARY, HeaderValue::from_static("Accept")))
}

/// Lets clients and proxies keep a document for a year whose hash they know.
fn kept(front: &Front, exchange: &Exchange, answer: Answer) -> Answer {
    if asked_hash(exchange).is_none() {
        return answer;
    }
    let answer = answer.header(CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
    let (now, _) = front.storage.moment(Duration::ZERO);
    match a_year_after(now) {
        Some(expires) => answer.header(EXPIRES, expires),
        None => answer,
    }
}

/// Returns the same day in the next year, or the one after it, as Go writes it in headers.
fn a_year_after(seconds: i64) -> Option<HeaderValue> {
    let now = OffsetDateTime::from_unix_timestamp(seconds).ok()?;
    let next = now.year() + 1;
    let expires = now
        .replace_year(next)
        .or_else(|_| (now + time::Duration::DAY).replace_year(next));
    let text = expires.ok()?.format(&Rfc2822).ok()?;
    HeaderValue::from_str(&text.replace("+0000", "UTC")).ok()
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
    let Some(encoding) = Encoding::of(exchange, &V2_TYPES) else {
        return Ok(not_acceptable());
    };
    let is_protobuf = encoding.is_protobuf;
    let documents = &front.documents;
    let resources = custom::resources(&front.catalog.groups(), None);
    let tag = documents.tag_of(&format!("v2{}", custom::state_of(&resources)));
    let document = if is_known(exchange, &tag) {
        Bytes::new()
    } else if resources.is_empty() && documents.config == RuntimeConfig::default() {
        let cell = &V2[usize::from(is_protobuf)];
        if cell.get().is_none() {
            let made = make_v2(
                RuntimeConfig::default(),
                is_protobuf,
                Map::new(),
                Map::new(),
            )
            .await?;
            let _ = cell.set(made);
        }
        cell.get().cloned().unwrap_or_default()
    } else {
        let mut last = documents.v2[usize::from(is_protobuf)].lock().await;
        match &*last {
            Some((known, document)) if *known == tag => document.clone(),
            _ => {
                let (paths, schemas) = custom::documented(front, &resources, Dialect::V2).await?;
                let made = make_v2(documents.config.clone(), is_protobuf, paths, schemas).await?;
                last.insert((tag.clone(), made)).1.clone()
            }
        }
    };
    Ok(tagged(exchange, &tag, encoding.media_type, || document))
}

/// Makes a document of version 2 with further paths and schemas. It takes about 0.1 s.
async fn make_v2(
    config: RuntimeConfig,
    is_protobuf: bool,
    paths: Map<String, Value>,
    schemas: Map<String, Value>,
) -> Result<Bytes, RequestError> {
    let made = tokio::task::spawn_blocking(move || {
        let documents = Documents::new(config);
        let versions = documents.versions();
        let versions = versions.map(|version| (version, documents.config.resources(version)));
        let mut document = openapi::v2_of(versions, KUBERNETES_VERSION);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_kept_for_a_year() {
        for (seconds, expected) in [
            (1_767_225_600, "Fri, 01 Jan 2027 00:00:00 UTC"),
            // The 29th of February.
            (1_709_208_000, "Sat, 01 Mar 2025 12:00:00 UTC"),
        ] {
            let header = a_year_after(seconds);
            assert_eq!(header, HeaderValue::from_str(expected).ok());
        }
    }
}
