//! The verbs on resources.

mod list;
mod read;
mod watch;
mod write;

use revstore_host::net::RequestBody;
use revstore_watch_cache::RequestError;
use revstore_watch_cache::status::Status;

use crate::catalog::{Origin, Resource};
use crate::http::{
    Answer, Exchange, Form, Front, Offer, Target, method_not_allowed, verb_not_supported,
};

/// What the endpoints of objects and lists can answer.
fn offer<'a>(resource: &Resource, forms: &'a [Form]) -> Offer<'a> {
    Offer {
        forms,
        protobuf: resource.origin == Origin::Builtin,
        checks_media_first: resource.origin == Origin::Builtin,
    }
}

/// Answers a request for a resource.
pub(crate) async fn answer(
    front: &Front,
    exchange: &mut Exchange,
    resource: &Resource,
    target: &Target,
    body: RequestBody,
) -> Result<Answer, RequestError> {
    let is_known = resource
        .verbs
        .iter()
        .any(|known| known == exchange.info.verb);
    if !target.subresource.is_empty() {
        return match resource.subresource(&target.subresource) {
            None if resource.origin == Origin::Custom => {
                Err(Status::not_found(&resource.names.resource_name(), &target.name).into())
            }
            _ => Err(Status::unknown_resource().into()),
        };
    }
    let Some(stored) = &resource.stored else {
        return Err(method_not_allowed().into());
    };
    match exchange.info.verb {
        "get" => read::get(exchange, resource, stored, target).await,
        "list" => list::list(exchange, resource, stored, target).await,
        "watch" => watch::watch(exchange, resource, stored, target).await,
        "create" if is_known => {
            write::create(front, exchange, resource, stored, target, body).await
        }
        _ if resource.origin == Origin::Custom => {
            Err(verb_not_supported(&resource.names.resource_name(), exchange.info.verb).into())
        }
        _ => Err(method_not_allowed().into()),
    }
}
