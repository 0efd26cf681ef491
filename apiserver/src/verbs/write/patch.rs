//! Patches.

use http::header::CONTENT_TYPE;
use revstore_host::net::RequestBody;
use revstore_watch_cache::RequestError;
use revstore_watch_cache::api::Preconditions;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{ResourceName, Status, StatusCause};
use serde_json::Value;

use crate::admission::Admission;
use crate::catalog::{Origin, Resource, Stored};
use crate::decode::{FieldValidation, WriteOptions, integral_floats_to_integers, strict_warnings};
use crate::http::{Answer, Exchange, Front, Target, read_body};
use crate::patch::{Patch, PatchError, PatchType};
use crate::verbs::facet::Facet;
use crate::verbs::read::{FORMS, reference};
use crate::verbs::write::apply::Apply;
use crate::verbs::write::facet_change::{Current, FacetChange};
use crate::verbs::write::{answer_written, write_request};
use crate::verbs::{Tracker, offer};

/// Answers a patch of an object, or of one of its facets.
// WC-415, WC-416.
pub(crate) async fn patch(
    front: &Front,
    exchange: &mut Exchange,
    resource: &Resource,
    stored: &Stored,
    target: &Target,
    facet: Facet,
    body: RequestBody,
) -> Result<Answer, RequestError> {
    let media = exchange.header(CONTENT_TYPE.as_str());
    let patch_type = PatchType::of_request(media, resource.origin == Origin::Builtin)?;
    if target.name.is_empty() {
        return Err(RequestError::BadRequest("name must be provided".to_owned()));
    }
    let accepted = exchange.negotiate(offer(resource, &FORMS))?;
    let is_apply = patch_type == PatchType::Apply;
    let options = WriteOptions::patch(&exchange.query, is_apply)?;
    if is_apply {
        let apply = Apply {
            front,
            resource,
            stored,
            target,
            facet,
        };
        return apply.answer(exchange, accepted, options, body).await;
    }
    let bytes = read_body(body).await?;
    let validation = options.field_validation;
    let patch = Patch::from_body(patch_type, &bytes, validation);
    let manager = &options.field_manager;
    let tracker = Tracker::new(front, exchange, resource, &target.subresource, manager);
    let mut warnings: Vec<String> = Vec::new();
    let seen = &*exchange;
    let wanted = |current: Option<Current<'_>>| {
        let Some(current) = current else {
            let name = resource.names.resource_name();
            return Err(Status::not_found(&name, &target.name).into());
        };
        // After the object is found: a malformed patch of none is 404.
        let (patch, duplicates) = patch.as_ref().map_err(PatchError::status)?;
        let (requested, strict) = patched(resource, facet, patch, duplicates, validation, current)?;
        warnings = strict;
        tracker.tracked(facet, Some(current.shown), requested)
    };
    let mut change = FacetChange {
        tracker: &tracker,
        admission: Admission {
            front,
            exchange: seen,
            resource,
            target,
            dry_run: options.dry_run,
            deletion: None,
        },
        facet,
        wanted,
    };
    let request = write_request(options.dry_run);
    let store = facet.store(stored);
    let (reference, conditions) = (reference(resource, target), Preconditions::default());
    let written = store
        .update_if(&reference, &request, &conditions, &mut change)
        .await?;
    for warning in warnings {
        exchange.warn(warning);
    }
    answer_written(exchange, resource, stored, accepted, facet, written).await
}

/// Returns what a patch makes of the current version of an object, as clients see it, and warnings.
fn patched(
    resource: &Resource,
    facet: Facet,
    patch: &Patch,
    duplicates: &[String],
    validation: FieldValidation,
    current: Current<'_>,
) -> Result<(JsonObject, Vec<String>), RequestError> {
    let shown = Value::Object(facet.show(&*resource.rules, current.shown, false)?);
    let result = if facet.is_object() {
        resource.rules.patch(patch, &shown)
    } else {
        match revstore_kinds::kind("autoscaling", "v1", "Scale") {
            Some(scale) => patch.apply(&shown, scale),
            None => patch.apply(&shown, ()),
        }
    };
    let result = result.map_err(|error| error.status())?;
    let text = || patch.shown(&result);
    let mut typed = result.clone();
    if let Patch::Strategic(_) = patch {
        // Go converts the result to a value of its type, for which a float can be an integer.
        integral_floats_to_integers(&mut typed);
    }
    let Value::Object(mut object) = typed else {
        let detail = "the result of the patch is not an object";
        return Err(PatchError::invalid_result(&text(), detail).into());
    };
    let mut strict = duplicates.to_vec();
    if facet.is_object() {
        if resource.origin == Origin::Custom && !object.contains_key("kind") {
            let detail = format!("Object 'Kind' is missing in '{result}'");
            return Err(PatchError::invalid_result(&text(), &detail).into());
        }
        if let Patch::Strategic(_) = patch {
            // It is applied to a value of a type, which it cannot change.
            object.insert("kind".to_owned(), resource.names.kind.clone().into());
            object.insert("apiVersion".to_owned(), resource.names.api_version().into());
        }
        check_type(resource, &object, current.stored, text)?;
        match resource.rules.conform(&mut object) {
            Ok(unknown) => strict.extend(unknown),
            Err(error) => {
                let (kind, version) = (&resource.names.kind, &resource.names.version);
                let prefix =
                    format!("{kind} in version \"{version}\" cannot be handled as a {kind}: ");
                let message = error.to_string();
                let detail = message.strip_prefix(&prefix).unwrap_or(&message);
                return Err(PatchError::invalid_result(&text(), detail).into());
            }
        }
    }
    match validation {
        FieldValidation::Ignore => strict.clear(),
        FieldValidation::Strict if !strict.is_empty() => {
            return Err(PatchError::strict_result(&text(), &strict).into());
        }
        _ => {}
    }
    Ok((object, strict_warnings(&strict)))
}

/// Checks that a patch has not changed the kind of an object.
fn check_type(
    resource: &Resource,
    object: &JsonObject,
    old: &JsonObject,
    shown: impl Fn() -> String,
) -> Result<(), RequestError> {
    let names = &resource.names;
    let of = |field: &str| {
        object
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (kind, api_version) = (of("kind"), of("apiVersion"));
    let expected = [
        ("kind", kind, names.kind.clone()),
        ("apiVersion", api_version, names.api_version()),
    ];
    let wrong = expected
        .iter()
        .filter(|(_, found, expected)| !found.is_empty() && found != expected);
    let causes: Vec<_> = wrong
        .map(|(field, found, expected)| {
            StatusCause::invalid(*field, *found, &format!("must be {expected}"))
        })
        .collect();
    if causes.is_empty() {
        return Ok(());
    }
    if resource.origin == Origin::Builtin {
        let detail = format!("no kind \"{kind}\" is registered for version \"{api_version}\"");
        return Err(PatchError::invalid_result(&shown(), &detail).into());
    }
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let name = old
        .get("metadata")
        .and_then(|metadata| metadata.get("name"));
    let name = name.and_then(Value::as_str).unwrap_or_default();
    Err(Status::invalid(&ResourceName::new(group, kind), name, causes).into())
}
