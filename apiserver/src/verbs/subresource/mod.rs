//! Subresources.

mod eviction;
mod log_options;
pub(super) mod pod;
mod proxied;
mod service_account;

use http::StatusCode;
use revstore_host::net::RequestBody;
use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{ResourceName, Status};

use crate::builtin::edit;
use crate::catalog::{Origin, Resource, Stored};
use crate::http::{Answer, Exchange, Front, Target, method_not_allowed};
use crate::verbs::facet::Facet;
use crate::verbs::read::decoded;
use crate::verbs::write::patch;
use crate::verbs::{offer, read, scale, write};

/// Answers a request for a subresource.
pub(crate) async fn answer(
    front: &Front,
    exchange: &mut Exchange,
    resource: &Resource,
    target: &Target,
    body: RequestBody,
) -> Result<Answer, RequestError> {
    let Some(subresource) = resource.subresource(&target.subresource) else {
        return Err(match resource.origin {
            Origin::Custom => {
                Status::not_found(&resource.names.resource_name(), &target.name).into()
            }
            Origin::Builtin => Status::unknown_resource().into(),
        });
    };
    let verb = exchange.info.verb;
    let is_known = subresource.verbs.iter().any(|known| known == verb);
    let Some(stored) = resource.stored.as_deref().filter(|_| is_known) else {
        return Err(method_not_allowed().into());
    };
    if let Some(facet) = Facet::of(&target.subresource) {
        return match verb {
            "get" => get(front, exchange, resource, stored, target, facet).await,
            "update" => write::update(front, exchange, resource, stored, target, facet, body).await,
            "patch" => patch::patch(front, exchange, resource, stored, target, facet, body).await,
            _ => Err(method_not_allowed().into()),
        };
    }
    match target.subresource.as_str() {
        "binding" => pod::bind(front, exchange, resource, stored, target, body).await,
        "eviction" => eviction::evict(front, exchange, resource, stored, target, body).await,
        "log" => pod::log(exchange, resource, stored, target).await,
        "exec" | "attach" | "portforward" | "proxy" => {
            check_connection(front, exchange, target)?;
            pod::connect(front, exchange, resource, stored, target).await
        }
        "token" => service_account::token(front, exchange, resource, stored, target, body).await,
        other => {
            let message = format!("the subresource {other} is not served");
            Err(Status::unclassified(message).into())
        }
    }
}

async fn get(
    front: &Front,
    exchange: &Exchange,
    resource: &Resource,
    stored: &Stored,
    target: &Target,
    facet: Facet,
) -> Result<Answer, RequestError> {
    if facet.is_object() {
        return read::get(front, exchange, resource, stored, target).await;
    }
    let accepted = exchange.negotiate(offer(resource, &read::FORMS))?;
    let object = current(exchange, resource, stored, target).await?;
    let scale = facet.show(&*resource.rules, &object, true)?;
    scale::shown(exchange, resource, accepted, StatusCode::OK, scale)
}

/// Returns the object that a path names, decoded.
pub(crate) async fn current(
    exchange: &Exchange,
    resource: &Resource,
    stored: &Stored,
    target: &Target,
) -> Result<JsonObject, RequestError> {
    let object = read::find(exchange, resource, stored, target).await?;
    let object = resource.converted_object(object).await?;
    decoded(resource, stored, &object)
}

/// Sets the namespace of the object in a request for a subresource to that of the request, so that plugins see it.
///
/// # Errors
/// 400 if the object names another one, or has metadata that is no object.
fn set_namespace(kind: &str, object: &mut JsonObject, namespace: &str) -> Result<(), RequestError> {
    let Some(metadata) = edit::ensure(object, "metadata") else {
        return Err(RequestError::BadRequest(format!(
            "the metadata of the {kind} is not an object"
        )));
    };
    let found = edit::text(metadata, "namespace");
    if !found.is_empty() && found != namespace {
        let message =
            "the namespace of the provided object does not match the namespace sent on the request";
        return Err(RequestError::BadRequest(message.to_owned()));
    }
    metadata.insert("namespace".to_owned(), namespace.into());
    Ok(())
}

/// Removes what only a server sets of the metadata of the object in a request for a subresource.
fn clear_system_fields(object: &mut JsonObject) {
    if let Some(metadata) = edit::child_mut(object, "metadata") {
        for field in [
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
        ] {
            metadata.remove(field);
        }
    }
}

/// Checks that the object in a request for a subresource names the object in the path, as plugins leave it.
///
/// # Errors
/// 400.
fn check_name(kind: &str, object: &JsonObject, name: &str) -> Result<(), RequestError> {
    if name_of(object) == name {
        return Ok(());
    }
    Err(RequestError::BadRequest(format!(
        "name in URL does not match name in {kind} object"
    )))
}

fn name_of(object: &JsonObject) -> &str {
    edit::text_at(object, &["metadata", "name"])
}

fn version_of(object: &JsonObject) -> &str {
    edit::text_at(object, &["metadata", "resourceVersion"])
}

/// Checks that a user who opens a stream to a container with GET may also create one: the method is a detail of the
/// protocol of the stream.
fn check_connection(
    front: &Front,
    exchange: &Exchange,
    target: &Target,
) -> Result<(), RequestError> {
    if target.subresource == "proxy" {
        return Ok(());
    }
    let create = exchange.info.attributes().with_verb("create");
    let decision = front.authorizer.decide(&exchange.user, create);
    if decision.allowed {
        return Ok(());
    }
    let resource = ResourceName::new(&target.group, &target.resource);
    Err(Status::forbidden(&resource, &target.name, &decision.reason).into())
}
