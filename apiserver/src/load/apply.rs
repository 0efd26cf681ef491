//! The creation of the objects: by requests to the server itself, so that they are checked as those of clients.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream as _;
use http::header::CONTENT_TYPE;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use revstore_host::net::RequestBody;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::{RequestError, Scope, WatchOptions};
use serde_json::Value;

use super::LoadError;
use super::read::{Manifest, Manifests, Stage};
use crate::auth::Client;
use crate::catalog::{Resource, all_definitions};
use crate::custom::definition;
use crate::decode::{self, Format};
use crate::http::Front;

/// The time for which the definitions of custom resources may take to be established.
const ESTABLISH_TIME_MAX: Duration = Duration::from_secs(10);
/// The options of all writes: as kubectl, the fields must be known.
const OPTIONS: &str = "fieldManager=revstore-load&fieldValidation=Strict";
/// The namespace of objects that have none.
const DEFAULT_NAMESPACE: &str = "default";

/// Creates the objects; those that exist get the fields of their manifests.
///
/// # Errors
/// The first object that the server refuses.
pub(crate) async fn apply(front: &Front, manifests: &Manifests) -> Result<(), LoadError> {
    let objects = &manifests.objects;
    let definitions = objects.partition_point(|object| object.stage == Stage::Definition);
    let (definitions, others) = objects.split_at(definitions);
    for object in definitions {
        apply_one(front, object).await?;
    }
    if !definitions.is_empty() {
        establish(front, definitions).await?;
    }
    for object in others {
        apply_one(front, object).await?;
    }
    Ok(())
}

/// Creates an object, or changes the one that exists.
async fn apply_one(front: &Front, object: &Manifest) -> Result<(), LoadError> {
    let Some(resource) = resource(front, object) else {
        let (kind, version) = (&object.kind, &object.api_version);
        return Err(object.error(format!(
            "no matches for kind {kind:?} in version {version:?}"
        )));
    };
    let collection = collection(&resource, object);
    let path = format!("{collection}?{OPTIONS}");
    let (media, text) = match object.format {
        Format::Json => ("application/json", object.text.clone()),
        Format::Yaml => ("application/yaml", object.text.clone()),
    };
    let created = send(front, Method::POST, &path, media, text).await;
    let created = created.map_err(|reason| object.error(reason))?;
    let exists = created.code == StatusCode::CONFLICT && created.reason == "AlreadyExists";
    if !exists {
        return created.check(object);
    }
    // The manifest was decoded before, so it is valid.
    let fields = decode::decode(&object.text, object.format).map(|decoded| decoded.value);
    let fields = Bytes::from(fields.unwrap_or_default().to_string());
    let name = utf8_percent_encode(&object.name, NON_ALPHANUMERIC);
    let path = format!("{collection}/{name}?{OPTIONS}");
    let media = "application/merge-patch+json";
    let patched = send(front, Method::PATCH, &path, media, fields).await;
    patched
        .map_err(|reason| object.error(reason))?
        .check(object)
}

/// Returns the resource of an object, or `None` if nothing serves its kind.
fn resource(front: &Front, object: &Manifest) -> Option<Arc<Resource>> {
    let (group, version) = match object.api_version.split_once('/') {
        Some((group, version)) => (group, version),
        None => ("", object.api_version.as_str()),
    };
    let groups = front.catalog.groups();
    let versions = &groups.get(group)?.versions;
    let version = versions.iter().find(|known| known.name == version)?;
    let mut resources = version.resources.values();
    resources
        .find(|known| known.names.kind == object.kind)
        .cloned()
}

/// Returns the path of the collection to which an object belongs.
fn collection(resource: &Resource, object: &Manifest) -> String {
    let names = &resource.names;
    let root = if names.group.is_empty() {
        format!("/api/{}", names.version)
    } else {
        format!("/apis/{}/{}", names.group, names.version)
    };
    if !resource.namespaced {
        return format!("{root}/{}", names.plural);
    }
    let namespace = match object.namespace.as_str() {
        "" => DEFAULT_NAMESPACE,
        namespace => namespace,
    };
    let namespace = utf8_percent_encode(namespace, NON_ALPHANUMERIC);
    format!("{root}/namespaces/{namespace}/{}", names.plural)
}

/// The answer to a request.
struct Answered {
    code: StatusCode,
    reason: String,
    message: String,
}

impl Answered {
    fn check(self, object: &Manifest) -> Result<(), LoadError> {
        if self.code.is_success() {
            Ok(())
        } else {
            Err(object.error(self.message))
        }
    }
}

/// Sends a request of an administrator to the server itself.
async fn send(
    front: &Front,
    method: Method,
    path: &str,
    media: &str,
    body: Bytes,
) -> Result<Answered, String> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(CONTENT_TYPE, media)
        .body(RequestBody::full(body))
        .map_err(|error| error.to_string())?;
    let answer = front.answer(request, &Client::default(), true).await;
    let code = answer.status;
    let body = answer.body.collect().await;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    if code.is_success() {
        return Ok(Answered {
            code,
            reason: String::new(),
            message: String::new(),
        });
    }
    let status: Value = serde_json::from_slice(&body).unwrap_or_default();
    let text = |field: &str| status[field].as_str().map(str::to_owned);
    Ok(Answered {
        reason: text("reason").unwrap_or_default(),
        message: text("message").unwrap_or_else(|| code.to_string()),
        code,
    })
}

/// Waits until all definitions are established and their resources are served.
async fn establish(front: &Front, definitions: &[Manifest]) -> Result<(), LoadError> {
    let first = &definitions[0];
    let waited = tokio::time::timeout(ESTABLISH_TIME_MAX, wait_for(front, definitions)).await;
    match waited {
        Ok(Ok(())) => Ok(()),
        Ok(Err(Failed::Refused(error))) => Err(error),
        Ok(Err(Failed::Store(error))) => Err(first.error(error.to_string())),
        Err(_) => Err(first.error(format!(
            "the definitions were not established within {ESTABLISH_TIME_MAX:?}"
        ))),
    }
}

/// Why definitions are not established.
enum Failed {
    Refused(LoadError),
    Store(RequestError),
}

impl From<RequestError> for Failed {
    fn from(error: RequestError) -> Self {
        Self::Store(error)
    }
}

async fn wait_for(front: &Front, definitions: &[Manifest]) -> Result<(), Failed> {
    let found = front
        .catalog
        .find(definition::GROUP, "v1", definition::PLURAL);
    let Some((resource, stored)) = found.ok().and_then(|resource| {
        let stored = resource.stored.clone()?;
        Some((resource, stored))
    }) else {
        return Ok(());
    };
    let options = WatchOptions::default();
    let mut watcher = stored.cache.watch(&Scope::All, &options).await?;
    let mut missing: BTreeSet<&str> = definitions.iter().map(|it| it.name.as_str()).collect();
    loop {
        let mut changed = pin!(front.catalog.changed().notified());
        // From now on no change is missed.
        changed.as_mut().enable();
        for object in all_definitions(&resource, &stored).await? {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            if !missing.contains(name) {
                continue;
            }
            if definition::condition(&object, "Established") == Some("True") {
                if is_served(front, &object) {
                    missing.remove(name);
                }
            } else if let Some(refused) = definition::whole_condition(&object, "NamesAccepted")
                .filter(|it| it["status"] == "False")
            {
                let message = refused["message"].as_str().unwrap_or_default();
                let mut manifests = definitions.iter();
                let manifest = manifests
                    .find(|it| it.name == name)
                    .unwrap_or(&definitions[0]);
                let message = format!("the names are not accepted: {message}");
                return Err(Failed::Refused(manifest.error(message)));
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let next = poll_fn(|context| Pin::new(&mut watcher).poll_next(context));
        let has_ended = tokio::select! {
            () = changed => false,
            next = next => next.is_none(),
        };
        if has_ended {
            watcher = stored.cache.watch(&Scope::All, &options).await?;
        }
    }
}

/// Returns whether all versions of a definition are served that should be.
fn is_served(front: &Front, definition: &JsonObject) -> bool {
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    let versions = spec["versions"].as_array();
    let mut served = versions
        .into_iter()
        .flatten()
        .filter(|it| it["served"] == true);
    served.all(|version| {
        front
            .catalog
            .find(&group, &text(&version["name"]), &plural)
            .is_ok()
    })
}
