//! Gets of one object, and the forms of single objects.

use bytes::Bytes;
use http::StatusCode;
use revstore_watch_cache::api::{GetOptions, ObjectRef};
use revstore_watch_cache::encode::IncludeObject;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{Reason, ResourceName, Status};
use revstore_watch_cache::{JsonKind, Object, RequestError, Revision};
use serde_json::Value;

use crate::builtin::edit;
use crate::catalog::{Origin, Resource, Stored, form_id};
use crate::components::Components;
use crate::control::past_object;
use crate::http::{Accepted, Answer, Exchange, Form, Front, Target};
use crate::verbs::offer;

/// The forms of an answer about an object or a list.
pub(crate) const FORMS: [Form; 4] = [Form::Whole, Form::Table, Form::Metadata, Form::MetadataList];

/// Answers a get.
// WC-210.
pub(crate) async fn get(
    front: &Front,
    exchange: &Exchange,
    resource: &Resource,
    stored: &Stored,
    target: &Target,
) -> Result<Answer, RequestError> {
    let accepted = exchange.negotiate(offer(resource, &FORMS))?;
    if exchange.query.first("export").is_some_and(is_set) {
        let message = "the export parameter, deprecated since v1.14, is no longer supported";
        return Err(RequestError::BadRequest(message.to_owned()));
    }
    let object = if Components::are(resource) {
        let status = front.components.status(&front.storage, &target.name);
        let not_found = || {
            // As by kube-apiserver, the kind instead of the resource.
            Status::not_found(&ResourceName::new("", "componentstatus"), &target.name)
        };
        status.await?.ok_or_else(not_found)?
    } else {
        find(exchange, resource, stored, target).await?
    };
    let object = resource.converted_object(object).await?;
    let bytes = in_form(exchange, resource, stored, accepted, &object)?;
    Answer::json(StatusCode::OK, accepted, bytes)
}

/// Returns the object that a path names, as of an earlier revision if control wants that.
///
/// # Errors
/// Those of the cache, and 404.
pub(crate) async fn find(
    exchange: &Exchange,
    resource: &Resource,
    stored: &Stored,
    target: &Target,
) -> Result<Object, RequestError> {
    let options = GetOptions::from_query(&exchange.query);
    let found = match exchange.past_revision() {
        None => {
            let reference = reference(resource, target);
            stored.cache.get(&reference, &options).await?
        }
        Some(revision) => past_object(&stored.cache, target, &options, revision).await?,
    };
    let not_found = || Status::not_found(&resource.names.resource_name(), &target.name);
    Ok(found.ok_or_else(not_found)?)
}

/// Returns whether the value of a flag in a query is neither absent nor false, however it is spelled.
fn is_set(value: &str) -> bool {
    !["", "0", "f", "F", "false", "False", "FALSE"].contains(&value)
}

/// Returns the object that a path names.
pub(crate) fn reference(resource: &Resource, target: &Target) -> ObjectRef {
    if resource.namespaced {
        ObjectRef::namespaced(&*target.namespace, &*target.name)
    } else {
        ObjectRef::cluster(&*target.name)
    }
}

/// Returns the JSON of an object in a form.
fn in_form(
    exchange: &Exchange,
    resource: &Resource,
    stored: &Stored,
    accepted: Accepted,
    object: &Object,
) -> Result<Vec<u8>, RequestError> {
    if accepted.form == Form::MetadataList {
        return Err(match resource.origin {
            Origin::Custom => Status::unclassified("content is not a list").into(),
            Origin::Builtin => not_a_list(&go_type(&resource.names.group, &resource.names.kind)),
        });
    }
    let included = include(exchange, accepted.form)?;
    form_json(resource, stored, accepted, included, object).map(|json| json.to_vec())
}

/// Returns the JSON of an object in a form of the version of a resource.
fn form_json(
    resource: &Resource,
    stored: &Stored,
    accepted: Accepted,
    included: IncludeObject,
    object: &Object,
) -> Result<Bytes, RequestError> {
    let id = form_id(resource.version, accepted.into(), included);
    let encoder = stored.cache.encoder(id);
    let encoder = encoder.ok_or_else(|| RequestError::Internal("a form is missing".to_owned()))?;
    Ok(encoder.object(object))
}

/// Returns the type of a built-in kind, of objects or lists, in kube-apiserver.
pub(crate) fn go_type(group: &str, kind: &str) -> String {
    let package = match group {
        "" | "events.k8s.io" => "core",
        "internal.apiserver.k8s.io" => "apiserverinternal",
        _ => group.split('.').next().unwrap_or_default(),
    };
    format!("*{package}.{kind}")
}

/// Returns the error of an object of a type in Go that a client accepts only as a list.
pub(crate) fn not_a_list(ty: &str) -> RequestError {
    let message = format!(
        "you requested PartialObjectMetadataList, but the requested object is not a list ({ty})"
    );
    Status::failure(Reason::NotAcceptable, message).into()
}

/// Decodes an object of the cache as clients of a version see it, with its resource version. What a webhook converts must
/// be [converted](Resource::converted_object) before.
pub(crate) fn decoded(
    resource: &Resource,
    stored: &Stored,
    object: &Object,
) -> Result<JsonObject, RequestError> {
    let whole = Accepted::default();
    let json = form_json(resource, stored, whole, IncludeObject::default(), object)?;
    serde_json::from_slice(&json).map_err(|error| RequestError::Internal(error.to_string()))
}

/// Returns an answer with the stored object that a write has returned, in the form that the client accepts.
pub(crate) fn shown(
    exchange: &Exchange,
    resource: &Resource,
    stored: &Stored,
    accepted: Accepted,
    status: StatusCode,
    object: JsonObject,
) -> Result<Answer, RequestError> {
    if accepted.form == Form::Whole {
        let object = Value::Object(resource.to_shown(object));
        return match resource.origin {
            Origin::Builtin => Ok(Answer::value(status, accepted, &object)),
            // Objects without a type in Go have their members in the order of the names.
            Origin::Custom => Answer::json(status, accepted, object.to_string().into_bytes()),
        };
    }
    let kind = JsonKind::new(resource.names.api_version(), &*resource.names.kind);
    let object = encodable(resource, &object, &kind)?;
    let bytes = in_form(exchange, resource, stored, accepted, &object)?;
    Answer::json(status, accepted, bytes)
}

/// Returns an object of a resource, or its scale, as forms write it.
pub(crate) fn encodable(
    resource: &Resource,
    object: &JsonObject,
    kind: &JsonKind,
) -> Result<Object, RequestError> {
    let text = |field| edit::text_at(object, &["metadata", field]);
    let reference = ObjectRef {
        namespace: resource.namespaced.then(|| text("namespace").to_owned()),
        name: text("name").to_owned(),
    };
    let revision = Revision(text("resourceVersion").parse().unwrap_or_default());
    let value =
        serde_json::to_vec(object).map_err(|error| RequestError::Internal(error.to_string()))?;
    Ok(Object::from_parts(&reference, revision, value, kind))
}

/// Returns what the rows of a table have of their objects.
pub(crate) fn include(exchange: &Exchange, form: Form) -> Result<IncludeObject, RequestError> {
    if form != Form::Table {
        return Ok(IncludeObject::default());
    }
    match exchange.query.first("includeObject").unwrap_or_default() {
        "" | "Metadata" => Ok(IncludeObject::Metadata),
        "None" => Ok(IncludeObject::None),
        "Object" => Ok(IncludeObject::Object),
        other => Err(RequestError::BadRequest(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', \
             'Object', 'None', or empty"
        ))),
    }
}
