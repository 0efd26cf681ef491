//! Lists, which are written while the client reads them.

use revstore_watch_cache::RequestError;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::StatusCode;
use revstore_watch_cache::api::{CollectionOptions, ListItems, ObjectList};
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::selector::Selector;
use revstore_watch_cache::status::{Reason, Status};
use revstore_watch_cache::{ResourceCache, Scope};
use serde_json::{Value, json};

use crate::catalog::{Origin, Resource, Stored};
use crate::http::{Accepted, Answer, Body, Chunks, Exchange, Form, Media, Target};
use crate::verbs::offer;
use crate::verbs::read::{FORMS, Include, decoded, metadata_of, row};

/// The size from which a chunk of a list is sent.
const CHUNK_BYTES: usize = 64 << 10;

/// Answers a list.
pub(crate) async fn list(
    exchange: &Exchange,
    resource: &Resource,
    stored: &Stored,
    target: &Target,
) -> Result<Answer, RequestError> {
    let accepted = exchange.negotiate(offer(resource, &FORMS))?;
    let options = CollectionOptions::from_query(&exchange.query)?;
    let CollectionOptions::List(options) = options else {
        return Err(Status::bad_request("the request is a watch").into());
    };
    check_fields(resource, &options.selector)?;
    if accepted.form == Form::Metadata {
        let message = format!(
            "you requested PartialObjectMetadata, but the requested object is a list ({})",
            resource.names.list_kind
        );
        return Err(Status::failure(Reason::NotAcceptable, message).into());
    }
    let listed = stored.cache.list(&scope(target), &options).await;
    let list = listed?;
    if accepted == Accepted::default() {
        let head = head(resource, &list);
        let chunks = ListChunks {
            cache: stored.cache.clone(),
            items: list.items,
            strip: (resource.origin == Origin::Builtin).then(|| type_prefix(resource)),
            pending: head,
            is_first: true,
            ended: false,
        };
        return Ok(Answer::new(
            StatusCode::OK,
            Media::Json.content_type(),
            Body::chunks(chunks),
        ));
    }
    let value = whole_value(exchange, resource, stored, accepted, list)?;
    Ok(Answer::value(StatusCode::OK, accepted, &value))
}

/// Returns the scope of a path.
pub(crate) fn scope(target: &Target) -> Scope {
    if target.namespace.is_empty() {
        Scope::All
    } else {
        Scope::Namespace(target.namespace.as_str().into())
    }
}

/// Checks that the resource has the fields of a selector, with the error of kube-apiserver for resources
/// that have none but the name and the namespace.
// WC-354.
pub(crate) fn check_fields(resource: &Resource, selector: &Selector) -> Result<(), RequestError> {
    const COMMON: [&str; 2] = ["metadata.name", "metadata.namespace"];
    if resource.origin == Origin::Custom || !resource.fields.is_empty() {
        return Ok(());
    }
    let mut requirements = selector.fields.requirements.iter();
    match requirements.find(|requirement| !COMMON.contains(&requirement.field.as_str())) {
        None => Ok(()),
        Some(unknown) => Err(RequestError::BadRequest(format!(
            "\"{}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
            unknown.field
        ))),
    }
}

/// Returns the start of all objects as this server stores them.
pub(crate) fn type_prefix(resource: &Resource) -> Bytes {
    let (version, kind) = (resource.names.api_version(), &resource.names.kind);
    format!("{{\"apiVersion\":\"{version}\",\"kind\":\"{kind}\",").into()
}

/// Returns the metadata of a list.
fn list_metadata(resource: &Resource, list: &ObjectList) -> Value {
    let mut metadata = json!({"resourceVersion": list.revision.to_string()});
    match &list.continue_token {
        Some(token) => metadata["continue"] = token.as_str().into(),
        None if resource.origin == Origin::Custom => metadata["continue"] = "".into(),
        None => {}
    }
    if let Some(count) = list.remaining_item_count {
        metadata["remainingItemCount"] = count.into();
    }
    metadata
}

fn head(resource: &Resource, list: &ObjectList) -> Vec<u8> {
    let head = format!(
        "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{},\"items\":[",
        resource.names.list_kind,
        resource.names.api_version(),
        list_metadata(resource, list)
    );
    head.into_bytes()
}

/// Returns a list as one value, for forms that are not streamed.
fn whole_value(
    exchange: &Exchange,
    resource: &Resource,
    stored: &Stored,
    accepted: Accepted,
    list: ObjectList,
) -> Result<Value, RequestError> {
    let mut metadata = list_metadata(resource, &list);
    if accepted.form != Form::Whole
        && let Some(metadata) = metadata.as_object_mut()
        && metadata.get("continue").is_some_and(|token| token == "")
    {
        metadata.remove("continue");
    }
    let include = Include::of(exchange)?;
    let mut items = Vec::new();
    for object in list.items {
        let object = object?;
        let mut object: JsonObject = decoded(stored, &object)?;
        items.push(match accepted.form {
            Form::Table => row(resource, include, object),
            Form::MetadataList => metadata_of(object),
            _ => {
                if resource.origin == Origin::Builtin {
                    object.remove("apiVersion");
                    object.remove("kind");
                }
                Value::Object(object)
            }
        });
    }
    Ok(match accepted.form {
        Form::Table => json!({
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "columnDefinitions": resource.rules.columns(),
            "rows": items,
        }),
        Form::MetadataList => json!({
            "kind": "PartialObjectMetadataList",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "items": items,
        }),
        _ => json!({
            "kind": resource.names.list_kind,
            "apiVersion": resource.names.api_version(),
            "metadata": metadata,
            "items": items,
        }),
    })
}

/// The chunks of a list in JSON.
struct ListChunks {
    cache: ResourceCache,
    items: ListItems,
    /// The start of the objects to leave out: items of lists of built-in kinds have no kind.
    strip: Option<Bytes>,
    pending: Vec<u8>,
    is_first: bool,
    ended: bool,
}

impl Chunks for ListChunks {
    fn poll_chunk(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let this = self.get_mut();
        if this.ended {
            return Poll::Ready(None);
        }
        let mut chunk = std::mem::take(&mut this.pending);
        while chunk.len() < CHUNK_BYTES {
            let Some(Ok(object)) = this.items.next() else {
                chunk.extend_from_slice(b"]}\n");
                this.ended = true;
                break;
            };
            if !std::mem::take(&mut this.is_first) {
                chunk.push(b',');
            }
            let bytes = this.cache.encode_object(&object);
            write_item(&bytes, this.strip.as_deref(), &mut chunk);
        }
        Poll::Ready(Some(chunk.into()))
    }
}

/// Writes an item of a list, without its kind and API version if they are to be left out.
fn write_item(bytes: &[u8], strip: Option<&[u8]>, out: &mut Vec<u8>) {
    let Some(prefix) = strip else {
        return out.extend_from_slice(bytes);
    };
    if let Some(rest) = bytes.strip_prefix(prefix) {
        out.push(b'{');
        return out.extend_from_slice(rest);
    }
    // Another server wrote the object, in another order.
    match serde_json::from_slice::<JsonObject>(bytes) {
        Ok(mut object) => {
            object.remove("apiVersion");
            object.remove("kind");
            out.extend(serde_json::to_vec(&object).unwrap_or_default());
        }
        Err(_) => out.extend_from_slice(bytes),
    }
}
