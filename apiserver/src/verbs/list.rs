//! Lists, which are written while the client reads them.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::StatusCode;
use revstore_watch_cache::api::{CollectionOptions, ObjectList};
use revstore_watch_cache::encode::ListChunks;
use revstore_watch_cache::selector::Selector;
use revstore_watch_cache::status::{Reason, Status};
use revstore_watch_cache::{RequestError, Scope};
use serde_json::{Value, json};

use crate::catalog::{Origin, Resource, Stored, form_id};
use crate::http::{Answer, Body, Chunks, Exchange, Form, Media, Target};
use crate::verbs::offer;
use crate::verbs::read::{FORMS, answer_json, include};

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
    let mut list = stored.cache.list(&scope(target), &options).await?;
    if accepted.form == Form::Whole && resource.origin == Origin::Custom {
        // Lists of custom resources always have a token.
        list.continue_token.get_or_insert_default();
    }
    let id = form_id(resource.version, accepted.form, include(exchange)?);
    let encoder = stored.cache.encoder(id);
    let encoder = encoder.ok_or_else(|| RequestError::Internal("a form is missing".to_owned()))?;
    let mut chunks = encoder.list(list);
    if accepted.media == Media::Json && !accepted.pretty {
        let first = chunks.next().transpose()?;
        let chunks = JsonChunks { first, chunks };
        let content_type = Media::Json.content_type();
        return Ok(Answer::new(
            StatusCode::OK,
            content_type,
            Body::chunks(chunks),
        ));
    }
    let mut json = Vec::new();
    for chunk in chunks {
        json.extend_from_slice(&chunk?);
    }
    answer_json(StatusCode::OK, accepted, json)
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

/// Returns the metadata of a list.
pub(crate) fn list_metadata(resource: &Resource, list: &ObjectList) -> Value {
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

/// The chunks of a list in JSON.
struct JsonChunks {
    /// The first chunk, which was made before the answer began, so that an error in it has a status.
    first: Option<Bytes>,
    chunks: ListChunks,
}

impl Chunks for JsonChunks {
    fn poll_chunk(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, RequestError>>> {
        let this = self.get_mut();
        if let Some(first) = this.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        Poll::Ready(this.chunks.next())
    }
}
