//! Creates and updates.

mod apply;
mod facet_change;
mod owners;
pub(super) mod patch;

use http::StatusCode;
use revstore_host::net::RequestBody;
use revstore_watch_cache::api::Preconditions;
use revstore_watch_cache::registry::{JsonObject, WriteRequest, Written};
use revstore_watch_cache::status::Status;
use revstore_watch_cache::{RequestError, Revision};
use serde_json::Value;

use self::facet_change::{Current, FacetChange};
use self::owners::{Stage, remove_duplicates};
use crate::admission::{Admission, Operation};
use crate::builtin;
use crate::catalog::{Resource, Stored};
use crate::decode::WriteOptions;
use crate::http::{Accepted, Answer, CREATED, Exchange, Front, Target};
use crate::verbs::body::{read_object, read_plain};
use crate::verbs::facet::Facet;
use crate::verbs::read::{FORMS, reference, shown};
use crate::verbs::{Tracker, offer, scale};

/// Answers a create.
pub(crate) async fn create(
    front: &Front,
    exchange: &mut Exchange,
    resource: &Resource,
    stored: &Stored,
    target: &Target,
    body: RequestBody,
) -> Result<Answer, RequestError> {
    let accepted = exchange.negotiate(offer(resource, &FORMS))?;
    let options = WriteOptions::create(&exchange.query)?;
    let object = read_object(exchange, resource, body, options.field_validation).await?;
    let name = object
        .get("metadata")
        .and_then(|metadata| metadata.get("name"));
    let name = name.and_then(|name| name.as_str()).unwrap_or_default();
    front.check_definition(resource, name).await?;
    let request = write_request(options.dry_run);
    let tracker = Tracker::new(front, exchange, resource, "", &options.field_manager);
    let mut object = object;
    remove_duplicates(exchange, Stage::Sent, &mut object);
    let mut object = tracker.create(object).await?;
    let exchange = &*exchange;
    let mut admission = Admission {
        front,
        exchange,
        resource,
        target,
        dry_run: options.dry_run,
        deletion: None,
    };
    let mutated = admission.mutate(Operation::Create, Some(&mut object), None);
    mutated.await?;
    remove_duplicates(exchange, Stage::Mutated, &mut object);
    if let Some(write) = Front::policy_write(exchange, resource, target) {
        write.check(&front.authorizer, &object, None)?;
    }
    let mut object = resource.to_stored(object);
    complete_new(exchange, resource, &mut object);
    let created = stored
        .store
        .create_admitted(&target.namespace, object, &request, &mut admission)
        .await?;
    settle(stored, &created).await;
    shown(exchange, resource, stored, accepted, CREATED, created)
}

/// Returns how creates, updates and patches write.
fn write_request(dry_run: bool) -> WriteRequest {
    WriteRequest::default()
        .dry_run(dry_run)
        .drops_managed_fields(true)
}

/// Warns of what the preparation of a new object replaces, and gives a certificate request the user who creates it.
pub(crate) fn complete_new(exchange: &Exchange, resource: &Resource, object: &mut JsonObject) {
    for warning in resource.rules.creation_warnings(object) {
        exchange.warn(warning);
    }
    if resource.names.kind != "CertificateSigningRequest" {
        return;
    }
    let user = &exchange.user;
    builtin::set_requester(object, &user.name, &user.uid, &user.groups, &user.extra);
}

/// Answers an update of an object, or of its status.
pub(crate) async fn update(
    front: &Front,
    exchange: &mut Exchange,
    resource: &Resource,
    stored: &Stored,
    target: &Target,
    facet: Facet,
    body: RequestBody,
) -> Result<Answer, RequestError> {
    if target.name.is_empty() {
        return Err(RequestError::BadRequest("name must be provided".to_owned()));
    }
    let accepted = exchange.negotiate(offer(resource, &FORMS))?;
    let options = WriteOptions::update(&exchange.query)?;
    let request = write_request(options.dry_run);
    let reference = reference(resource, target);
    let store = facet.store(stored);
    let mut object = if facet.is_object() {
        read_object(exchange, resource, body, options.field_validation).await?
    } else {
        read_plain(exchange, "Scale", body).await?
    };
    let is_own = matches!(facet, Facet::Whole | Facet::Status);
    if is_own {
        // An object that is not that of the request is refused whether that of the request exists or not.
        // The store knows the version in which objects are stored.
        let mut stored = resource.to_stored(object);
        store.check_target(&reference, &mut stored)?;
        object = resource.to_shown(stored);
    } else {
        check_name(&target.name, &object)?;
    }
    let conditions = Preconditions::of_update(&object);
    remove_duplicates(exchange, Stage::Sent, &mut object);
    let manager = &options.field_manager;
    let tracker = Tracker::new(front, exchange, resource, &target.subresource, manager);
    let exchange = &*exchange;
    let wanted = |current: Option<Current<'_>>| {
        if current.is_none() {
            if facet != Facet::Whole {
                let name = resource.names.resource_name();
                return Err(Status::not_found(&name, &target.name).into());
            }
            front.check_create_on_update(exchange, resource)?;
        }
        let live = current.map(|current| current.shown);
        tracker.tracked(facet, live, object.clone())
    };
    let mut change = FacetChange {
        tracker: &tracker,
        admission: Admission {
            front,
            exchange,
            resource,
            target,
            dry_run: options.dry_run,
            deletion: None,
        },
        facet,
        wanted,
    };
    let written = store
        .update_if(&reference, &request, &conditions, &mut change)
        .await?;
    answer_written(exchange, resource, stored, accepted, facet, written).await
}

/// Returns the answer to an update or a patch.
pub(crate) async fn answer_written(
    exchange: &Exchange,
    resource: &Resource,
    stored: &Stored,
    accepted: Accepted,
    facet: Facet,
    written: Written,
) -> Result<Answer, RequestError> {
    let status = if written.created {
        CREATED
    } else {
        StatusCode::OK
    };
    settle(stored, &written.object).await;
    if !facet.is_object() {
        let object = resource.to_shown(written.object);
        let scale = facet.show(&*resource.rules, &object, false)?;
        return scale::shown(exchange, resource, accepted, status, scale);
    }
    shown(exchange, resource, stored, accepted, status, written.object)
}

/// Waits until the cache has a version that was written, so that a client sees its own writes in lists and watches from
/// the cache, and until the server follows it, where it does. Not for longer than a request waits for a resource version.
pub(crate) async fn settle(stored: &Stored, object: &JsonObject) {
    let metadata = object.get("metadata");
    let revision = metadata.and_then(|metadata| metadata.get("resourceVersion"));
    let revision = revision.and_then(Value::as_str);
    if let Some(revision) = revision.and_then(|revision| revision.parse().ok()) {
        // The write has succeeded, whatever the cache does.
        let _ = stored.cache.wait_until_fresh(Revision(revision)).await;
        stored.followed.wait(Revision(revision)).await;
    }
}

/// Checks that an object that is not written itself has the name of the path.
fn check_name(name: &str, object: &JsonObject) -> Result<(), RequestError> {
    let found = object
        .get("metadata")
        .and_then(|metadata| metadata.get("name"));
    match found.and_then(Value::as_str) {
        Some(found) if found != name => Err(RequestError::BadRequest(format!(
            "the name of the object ({found}) does not match the name on the URL ({name})"
        ))),
        _ => Ok(()),
    }
}
