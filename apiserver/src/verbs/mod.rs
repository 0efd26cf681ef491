//! The verbs on resources.

mod body;
mod delete;
mod facet;
mod list;
mod read;
mod review;
mod scale;
mod subresource;
mod tracker;
mod watch;
mod write;

pub(crate) use facet::Facet;
pub(crate) use list::scope;
pub(crate) use read::decoded;
pub(crate) use tracker::Tracker;
pub(crate) use watch::Events;

use http::Method;
use revstore_host::net::RequestBody;
use revstore_watch_cache::RequestError;
use revstore_watch_cache::status::Status;

use crate::catalog::{Origin, Resource};
use crate::http::{
    Answer, Exchange, Form, Front, Offer, Route, Target, method_not_allowed, verb_not_supported,
};

/// What the endpoints of lists and watches can answer.
fn collection_offer<'a>(resource: &Resource, forms: &'a [Form]) -> Offer<'a> {
    let offer = offer(resource, forms);
    Offer {
        route: offer.route.map(|_| Route::Collection),
        ..offer
    }
}

/// What the endpoints of objects can answer.
fn offer<'a>(resource: &Resource, forms: &'a [Form]) -> Offer<'a> {
    Offer {
        forms,
        protobuf: resource.origin == Origin::Builtin,
        route: (resource.origin == Origin::Builtin).then_some(Route::Object),
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
    if !target.subresource.is_empty() {
        return subresource::answer(front, exchange, resource, target, body).await;
    }
    let is_known = resource
        .verbs
        .iter()
        .any(|known| known == exchange.info.verb);
    let Some(stored) = resource.stored.as_deref() else {
        return if !target.name.is_empty() {
            Err(Status::unknown_resource().into())
        } else if exchange.info.verb == "create" && is_known {
            if resource.names.kind == "Binding" {
                subresource::pod::bind_named(front, exchange, resource, target, body).await
            } else {
                review::review(front, exchange, resource, target, body).await
            }
        } else {
            Err(method_not_allowed().into())
        };
    };
    // A built-in kind has no route for it.
    let has_other_method = resource.origin == Origin::Builtin
        && (exchange.method == Method::HEAD
            || exchange.info.verb == "create" && !target.name.is_empty()
            || ["update", "patch"].contains(&exchange.info.verb) && target.name.is_empty());
    if has_other_method {
        return Err(method_not_allowed().into());
    }
    match exchange.info.verb {
        "get" => read::get(front, exchange, resource, stored, target).await,
        "list" => list::list(front, exchange, resource, stored, target).await,
        "watch" => watch::watch(front, exchange, resource, stored, target).await,
        "create" if is_known => {
            write::create(front, exchange, resource, stored, target, body).await
        }
        "update" if is_known => {
            let facet = Facet::Whole;
            write::update(front, exchange, resource, stored, target, facet, body).await
        }
        "patch" if is_known => {
            let facet = Facet::Whole;
            write::patch::patch(front, exchange, resource, stored, target, facet, body).await
        }
        "delete" if is_known => {
            delete::delete(front, exchange, resource, stored, target, body).await
        }
        "deletecollection" if is_known => {
            delete::delete_collection(front, exchange, resource, stored, target, body).await
        }
        _ if resource.origin == Origin::Custom => {
            Err(verb_not_supported(&resource.names.resource_name(), exchange.info.verb).into())
        }
        _ => Err(method_not_allowed().into()),
    }
}
