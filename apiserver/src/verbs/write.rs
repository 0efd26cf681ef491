//! Creates, updates and patches.

use revstore_host::net::RequestBody;
use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::{JsonObject, WriteRequest};
use revstore_watch_cache::status::Status;

use crate::catalog::{Resource, Stored};
use crate::http::{Answer, CREATED, Exchange, Front, Target, read_body};
use crate::verbs::offer;
use crate::verbs::read::{FORMS, shown};

/// Answers a create.
pub(crate) async fn create(
    _front: &Front,
    exchange: &mut Exchange,
    resource: &Resource,
    stored: &Stored,
    target: &Target,
    body: RequestBody,
) -> Result<Answer, RequestError> {
    let accepted = exchange.negotiate(offer(resource, &FORMS))?;
    let bytes = read_body(body).await?;
    let object: JsonObject =
        serde_json::from_slice(&bytes).map_err(|error| Status::bad_request(error.to_string()))?;
    let created = stored
        .store
        .create(&target.namespace, object, &WriteRequest::default())
        .await;
    let created = created?;
    shown(exchange, resource, accepted, CREATED, created)
}
