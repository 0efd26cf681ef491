//! Deletions of one object and of collections.

use bytes::Bytes;
use http::StatusCode;
use revstore_host::net::RequestBody;
use revstore_watch_cache::RequestError;
use revstore_watch_cache::api::{CollectionOptions, ObjectRef, Preconditions};
use revstore_watch_cache::registry::{DeleteRequest, Deleted, JsonObject, Propagation};
use revstore_watch_cache::status::{Status, StatusDetails};
use serde_json::{Value, json};

use crate::admission::Admission;
use crate::builtin;
use crate::catalog::{Origin, Resource, Stored};
use crate::custom::definition;
use crate::decode::{self, DeleteOptions};
use crate::http::{Answer, Exchange, Form, Front, Target, read_body, status_value};
use crate::verbs::body::{BodyFormat, from_protobuf};
use crate::verbs::list::{list_metadata, resolve_fields, scope};
use crate::verbs::offer;
use crate::verbs::read::{FORMS, decoded, reference, shown};
use crate::verbs::write::settle;

/// Answers a deletion of one object.
// WC-419.
pub(crate) async fn delete(
    front: &Front,
    exchange: &mut Exchange,
    resource: &Resource,
    stored: &Stored,
    target: &Target,
    body: RequestBody,
) -> Result<Answer, RequestError> {
    let accepted = exchange.negotiate(offer(resource, &FORMS))?;
    let options = read_options(exchange, body).await?;
    if options.effective_propagation().is_none()
        && let Some(warning) = resource.rules.deletion_warning()
    {
        exchange.warn(warning);
    }
    let request = request(resource, &options);
    let reference = reference(resource, target);
    let mut admission = Admission {
        front,
        exchange,
        resource,
        target,
        dry_run: options.dry_run,
        deletion: Some(&options),
    };
    if let Some(detail) = builtin::undeletable(&resource.names.group, &target.name) {
        let name = resource.names.resource_name();
        return Err(Status::forbidden(&name, &target.name, detail).into());
    }
    let deleted = delete_one(&mut admission, stored, &reference, &request).await?;
    let (object, is_removed) = match deleted {
        Deleted::Removed(object) => (object, true),
        Deleted::Terminating(object) => (object, false),
        _ => {
            return Err(RequestError::Internal(
                "an unknown result of a deletion".to_owned(),
            ));
        }
    };
    settle(stored, &object).await;
    if is_removed && !resource.rules.shows_deleted() {
        let value = status_value(&success(resource, &target.name, &object));
        return Ok(Answer::value(StatusCode::OK, accepted, &value));
    }
    shown(exchange, resource, stored, accepted, StatusCode::OK, object)
}

/// Answers a deletion of a collection with the objects as they were before it.
pub(crate) async fn delete_collection(
    front: &Front,
    exchange: &mut Exchange,
    resource: &Resource,
    stored: &Stored,
    target: &Target,
    body: RequestBody,
) -> Result<Answer, RequestError> {
    let accepted = exchange.negotiate(offer(resource, &[Form::Whole]))?;
    let options = read_options(exchange, body).await?;
    let mut query = exchange.query.clone();
    query.set("watch", "false");
    let CollectionOptions::List(mut listed) = CollectionOptions::from_query(&query)? else {
        return Err(RequestError::BadRequest(
            "the request is a watch".to_owned(),
        ));
    };
    resolve_fields(resource, &mut listed.selector)?;
    let list = stored.cache.list(&scope(target), &listed).await?;
    let list = resource.converted(list).await?;
    let metadata = list_metadata(resource, &list);
    let mut admission = Admission {
        front,
        exchange,
        resource,
        target,
        dry_run: options.dry_run,
        deletion: Some(&options),
    };
    let (mut items, mut written) = (Vec::new(), None);
    for object in list.items {
        let object = object?;
        let reference = ObjectRef {
            namespace: resource.namespaced.then(|| object.namespace().to_owned()),
            name: object.name().to_owned(),
        };
        let request = request(resource, &options);
        match delete_one(&mut admission, stored, &reference, &request).await {
            Ok(Deleted::Removed(object) | Deleted::Terminating(object)) => written = Some(object),
            Ok(_) | Err(RequestError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        let mut item = decoded(resource, stored, &object)?;
        if resource.origin == Origin::Builtin {
            item.remove("apiVersion");
            item.remove("kind");
        }
        items.push(Value::Object(item));
    }
    if let Some(last) = written {
        settle(stored, &last).await;
    }
    let value = json!({
        "kind": resource.names.list_kind,
        "apiVersion": resource.names.api_version(),
        "metadata": metadata,
        "items": items,
    });
    Ok(Answer::value(StatusCode::OK, accepted, &value))
}

/// Deletes an object. A definition of custom resources takes its objects with it.
async fn delete_one(
    admission: &mut Admission<'_>,
    stored: &Stored,
    reference: &ObjectRef,
    request: &DeleteRequest,
) -> Result<Deleted, RequestError> {
    if !admission.resource.is_definitions() {
        let deleted = stored.store.delete_admitted(reference, request, admission);
        return deleted.await;
    }
    // Admitted before the definition gets its mark.
    let only_asked = request.clone().dry_run(true);
    let asked = stored
        .store
        .delete_admitted(reference, &only_asked, admission);
    asked.await?;
    let now = admission.front.now();
    let both = definition::DefinitionStores {
        definitions: &stored.store,
        status: stored.status.as_ref().unwrap_or(&stored.store),
    };
    definition::begin_deletion(both, &reference.name, request, &now).await
}

/// Reads the options of a deletion from the body, or from the query if there is none.
async fn read_options(
    exchange: &Exchange,
    body: RequestBody,
) -> Result<DeleteOptions, RequestError> {
    let bytes = read_body(body).await?;
    if bytes.is_empty() {
        return Ok(DeleteOptions::from_query(&exchange.query)?);
    }
    let format = BodyFormat::of(exchange, true)?;
    let value = decode_options(format, &bytes)?;
    Ok(DeleteOptions::from_body(&value)?)
}

fn decode_options(format: BodyFormat, bytes: &Bytes) -> Result<Value, RequestError> {
    let format = match format {
        BodyFormat::Text(format) => format,
        BodyFormat::Protobuf => return from_protobuf("DeleteOptions", "v1", bytes),
    };
    let decoded = decode::decode(bytes, format);
    let decoded = decoded.map_err(|error| error.status("DeleteOptions", bytes))?;
    Ok(decoded.value)
}

/// Returns a deletion with the options of a request.
pub(crate) fn request(resource: &Resource, options: &DeleteOptions) -> DeleteRequest {
    let propagation = options
        .effective_propagation()
        .map(|propagation| match propagation {
            decode::Propagation::Background => Propagation::Background,
            decode::Propagation::Foreground => Propagation::Foreground,
            decode::Propagation::Orphan => Propagation::Orphan,
        });
    let preconditions: Preconditions = options.preconditions.clone();
    DeleteRequest::default()
        .dry_run(options.dry_run)
        .preconditions(preconditions)
        .grace_period_seconds(options.grace_period_seconds)
        .propagation(propagation.or_else(|| resource.rules.default_propagation()))
}

/// Returns the status of an object that is gone.
fn success(resource: &Resource, name: &str, object: &JsonObject) -> Status {
    let mut details = StatusDetails::of(&resource.names.resource_name(), name);
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    uid.clone_into(&mut details.uid);
    Status::success().with_details(details)
}
