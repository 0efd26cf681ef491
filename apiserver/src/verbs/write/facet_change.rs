//! The change of an object, or of one of its facets, that an update, a patch or an apply makes.

use std::borrow::Cow;

use futures_core::future::BoxFuture;
use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::{Admit, Change, JsonObject};
use revstore_watch_cache::status::{ResourceName, Status, StatusCause};
use serde_json::Value;

use crate::admission::{Admission, Operation};
use crate::catalog::Resource;
use crate::http::Front;
use crate::verbs::Tracker;
use crate::verbs::facet::Facet;
use crate::verbs::write::owners::{Stage, remove_duplicates};

/// A change that a request asks for: what the client wants, with entries of `managedFields`, is admitted, and completed
/// to a version of the object.
pub(crate) struct FacetChange<'a, F> {
    pub(crate) tracker: &'a Tracker<'a>,
    pub(crate) admission: Admission<'a>,
    pub(crate) facet: Facet,
    /// Returns what the client wants, with entries, as the client sees it. It gets the current version, if there is one,
    /// as it is stored and as the client sees it.
    pub(crate) wanted: F,
}

impl<F> FacetChange<'_, F>
where
    F: FnMut(Option<Current<'_>>) -> Result<JsonObject, RequestError> + Send,
{
    async fn new_version(&mut self, old: Option<&JsonObject>) -> Result<JsonObject, RequestError> {
        let Admission {
            front,
            exchange,
            resource,
            target,
            ..
        } = self.admission;
        let live = match old {
            Some(old) => Some(Facet::Whole.shown(resource, old)?),
            None => None,
        };
        let current = old
            .zip(live.as_deref())
            .map(|(stored, shown)| Current { stored, shown });
        let wanted = &mut self.wanted;
        let mut new = self.tracker.converting(|| wanted(current)).await?;
        let operation = match old {
            Some(_) => Operation::Update,
            None => Operation::Create,
        };
        let has_name =
            operation == Operation::Update && matches!(self.facet, Facet::Whole | Facet::Status);
        if has_name {
            check_requested_name(&target.name, &new)?;
        }
        let seen = match (self.facet, old) {
            (Facet::Scale, Some(old)) => Some(self.facet.shown(resource, old)?),
            _ => live.as_deref().map(Cow::Borrowed),
        };
        let admitted = self
            .admission
            .mutate(operation, Some(&mut new), seen.as_deref());
        admitted.await?;
        remove_duplicates(exchange, Stage::Mutated, &mut new);
        if has_name {
            check_name(resource, &target.name, &new)?;
        }
        if let Some(write) = Front::policy_write(exchange, resource, target) {
            write.check(&front.authorizer, &new, old)?;
        }
        self.tracker.completed(self.facet, old, new)
    }
}

/// Checks that what a client wants has the name of the path.
///
/// # Errors
/// 400.
pub(crate) fn check_requested_name(name: &str, object: &JsonObject) -> Result<(), RequestError> {
    let found = object
        .get("metadata")
        .and_then(|metadata| metadata.get("name"));
    let found = found.and_then(Value::as_str).unwrap_or_default();
    match found {
        _ if found == name => Ok(()),
        "" => Err(RequestError::BadRequest(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))),
        _ => Err(RequestError::BadRequest(format!(
            "the name of the object ({found}) does not match the name on the URL ({name})"
        ))),
    }
}

/// Checks that the admission has left the name as it is, with the causes that kube-apiserver finds in several places.
fn check_name(resource: &Resource, name: &str, new: &JsonObject) -> Result<(), RequestError> {
    let metadata = new.get("metadata");
    let found = metadata.and_then(|metadata| metadata.get("name"));
    let found = found.and_then(Value::as_str).unwrap_or_default();
    if found == name {
        return Ok(());
    }
    let immutable = StatusCause::invalid("metadata.name", found, "field is immutable");
    let mut causes = vec![immutable.clone(), immutable];
    if found.is_empty() {
        let required = "name or generateName is required";
        let missing = StatusCause::required("metadata.name", required);
        causes.insert(0, missing.clone());
        causes.push(missing);
    }
    let kind = ResourceName::new(&*resource.names.group, &*resource.names.kind);
    Err(Status::invalid(&kind, found, causes).into())
}

/// The current version of an object.
#[derive(Clone, Copy)]
pub(crate) struct Current<'a> {
    /// As it is stored.
    pub(crate) stored: &'a JsonObject,
    /// As the client sees it.
    pub(crate) shown: &'a JsonObject,
}

impl<F: Send> Admit for FacetChange<'_, F> {
    fn admit<'a>(
        &'a mut self,
        new: Option<&'a JsonObject>,
        old: Option<&'a JsonObject>,
    ) -> BoxFuture<'a, Result<(), RequestError>> {
        let (facet, admission) = (self.facet, self.admission);
        Box::pin(async move { admission.admit_stored(new, old, facet).await })
    }
}

impl<F> Change for FacetChange<'_, F>
where
    F: FnMut(Option<Current<'_>>) -> Result<JsonObject, RequestError> + Send,
{
    fn change<'a>(
        &'a mut self,
        old: Option<&'a JsonObject>,
    ) -> BoxFuture<'a, Result<JsonObject, RequestError>> {
        Box::pin(self.new_version(old))
    }
}
