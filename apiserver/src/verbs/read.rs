//! Gets of one object, and the forms of single objects.

use http::StatusCode;
use revstore_watch_cache::api::{GetOptions, ObjectRef};
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{Reason, Status};
use revstore_watch_cache::{Object, RequestError};
use serde_json::{Value, json};

use crate::catalog::{Resource, Stored};
use crate::http::{Accepted, Answer, Exchange, Form, Media, Target};
use crate::verbs::offer;

/// The forms of an answer about an object or a list.
pub(crate) const FORMS: [Form; 4] = [Form::Whole, Form::Table, Form::Metadata, Form::MetadataList];

/// Answers a get.
pub(crate) async fn get(
    exchange: &Exchange,
    resource: &Resource,
    stored: &Stored,
    target: &Target,
) -> Result<Answer, RequestError> {
    let accepted = exchange.negotiate(offer(resource, &FORMS))?;
    let reference = reference(resource, target);
    let options = GetOptions::from_query(&exchange.query);
    let found = stored.cache.get(&reference, &options).await;
    let Some(object) = found? else {
        return Err(Status::not_found(&resource.names.resource_name(), &target.name).into());
    };
    if accepted == Accepted::default() {
        let mut bytes = stored.cache.encode_object(&object).to_vec();
        bytes.push(b'\n');
        return Ok(Answer::new(
            StatusCode::OK,
            Media::Json.content_type(),
            bytes,
        ));
    }
    let object = decoded(stored, &object)?;
    shown(exchange, resource, accepted, StatusCode::OK, object)
}

/// Returns the object that a path names.
pub(crate) fn reference(resource: &Resource, target: &Target) -> ObjectRef {
    if resource.namespaced {
        ObjectRef::namespaced(&*target.namespace, &*target.name)
    } else {
        ObjectRef::cluster(&*target.name)
    }
}

/// Decodes an object of the cache, with its resource version.
pub(crate) fn decoded(stored: &Stored, object: &Object) -> Result<JsonObject, RequestError> {
    serde_json::from_slice(&stored.cache.encode_object(object))
        .map_err(|error| RequestError::Internal(error.to_string()))
}

/// Returns an answer with an object in the form that the client accepts.
pub(crate) fn shown(
    exchange: &Exchange,
    resource: &Resource,
    accepted: Accepted,
    status: StatusCode,
    object: JsonObject,
) -> Result<Answer, RequestError> {
    let value = match accepted.form {
        Form::Whole | Form::AggregatedDiscovery => Value::Object(object),
        Form::Metadata => metadata_of(object),
        Form::MetadataList => return Err(Status::unclassified("content is not a list").into()),
        Form::Table => {
            let revision = object["metadata"]["resourceVersion"].clone();
            let include = Include::of(exchange)?;
            json!({
                "kind": "Table",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": {"resourceVersion": revision},
                "columnDefinitions": resource.rules.columns(),
                "rows": [row(resource, include, object)],
            })
        }
    };
    Ok(Answer::value(status, accepted, &value))
}

/// Returns the metadata of an object as an object of its own.
pub(crate) fn metadata_of(mut object: JsonObject) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object.remove("metadata").unwrap_or_default(),
    })
}

/// What the rows of a table have of their objects (`includeObject`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    None,
    Metadata,
    Object,
}

impl Include {
    pub(crate) fn of(exchange: &Exchange) -> Result<Self, RequestError> {
        match exchange.query.first("includeObject").unwrap_or_default() {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => Err(Status::failure(
                Reason::BadRequest,
                format!("unrecognized includeObject value: \"{other}\""),
            )
            .into()),
        }
    }
}

/// Returns the row of a table for an object.
pub(crate) fn row(resource: &Resource, include: Include, object: JsonObject) -> Value {
    let cells = resource.rules.cells(&object);
    match include {
        Include::None => json!({"cells": cells}),
        Include::Metadata => json!({"cells": cells, "object": metadata_of(object)}),
        Include::Object => json!({"cells": cells, "object": object}),
    }
}
