//! Server-side apply.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};

use revstore_host::net::RequestBody;
use revstore_watch_cache::RequestError;
use revstore_watch_cache::api::Preconditions;
use revstore_watch_cache::registry::{JsonObject, WriteRequest, Written};
use revstore_watch_cache::status::Status;
use serde_json::Value;

use crate::admission::{Admission, Operation};
use crate::catalog::{Resource, Stored};
use crate::decode::{self, FieldValidation, WriteOptions, strict_warnings};
use crate::http::{Accepted, Answer, Exchange, Front, Target, read_body};
use crate::verbs::Tracker;
use crate::verbs::facet::Facet;
use crate::verbs::read::reference;
use crate::verbs::write::facet_change::{Current, FacetChange, check_requested_name};
use crate::verbs::write::owners::{Stage, remove_duplicates};
use crate::verbs::write::{answer_written, complete_new};

/// The number of times that an apply is tried again, because another request creates or deletes its object meanwhile.
const ATTEMPTS_MAX: usize = 5;

/// An apply to an object, or to one of its facets.
pub(crate) struct Apply<'a> {
    pub front: &'a Front,
    pub resource: &'a Resource,
    pub stored: &'a Stored,
    pub target: &'a Target,
    pub facet: Facet,
}

impl Apply<'_> {
    /// Answers the request.
    // WC-418.
    pub(crate) async fn answer(
        &self,
        exchange: &mut Exchange,
        accepted: Accepted,
        options: WriteOptions,
        body: RequestBody,
    ) -> Result<Answer, RequestError> {
        let bytes = read_body(body).await?;
        let (config, mut strict) = read_config(&bytes)?;
        if options.field_validation == FieldValidation::Ignore {
            strict.clear();
        }
        let written = self.write(exchange, &options, &config, &strict).await?;
        for warning in strict_warnings(&strict) {
            exchange.warn(warning);
        }
        answer_written(
            exchange,
            self.resource,
            self.stored,
            accepted,
            self.facet,
            written,
        )
        .await
    }

    /// Updates the object, or creates it if it does not exist.
    async fn write(
        &self,
        exchange: &Exchange,
        options: &WriteOptions,
        config: &JsonObject,
        strict: &[String],
    ) -> Result<Written, RequestError> {
        let (resource, target) = (self.resource, self.target);
        let manager = &options.field_manager;
        let tracker = Tracker::new(self.front, exchange, resource, &target.subresource, manager);
        let applied = |live: Option<&JsonObject>| {
            let new = tracker.applied(self.facet, live, config, options.force)?;
            if options.field_validation == FieldValidation::Strict && !strict.is_empty() {
                let message = format!("error strict decoding YAML: {}", strict.join(", "));
                return Err(RequestError::BadRequest(message));
            }
            Ok(new)
        };
        let missing = || -> RequestError {
            let name = resource.names.resource_name();
            Status::not_found(&name, &target.name).into()
        };
        let request = WriteRequest::default().dry_run(options.dry_run);
        let reference = reference(resource, target);
        let store = self.facet.store(self.stored);
        let admission = Admission {
            front: self.front,
            exchange,
            resource,
            target,
            dry_run: options.dry_run,
            deletion: None,
        };
        // An error of the admission can be 404, too.
        let is_absent = AtomicBool::new(false);
        let mut change = FacetChange {
            tracker: &tracker,
            admission,
            facet: self.facet,
            wanted: |current: Option<Current<'_>>| {
                is_absent.store(current.is_none(), Ordering::Relaxed);
                match current {
                    Some(current) => applied(Some(current.shown)),
                    None => Err(missing()),
                }
            },
        };
        let conditions = Preconditions::default();
        let mut attempts = 0;
        loop {
            let updated = store.update_if(&reference, &request, &conditions, &mut change);
            match updated.await {
                Ok(written) => return Ok(written),
                Err(error) if !is_absent.load(Ordering::Relaxed) && !self.is_missing(&error) => {
                    return Err(error);
                }
                Err(_) if self.facet != Facet::Whole => return Err(missing()),
                Err(_) => {}
            }
            let create = exchange.info.attributes().with_verb("create");
            self.front.authorizer.check(&exchange.user, create)?;
            let mut new = applied(None)?;
            check_requested_name(&target.name, &new)?;
            check_no_uid(resource, target, &new)?;
            self.front.check_definition(resource, &target.name).await?;
            let mutated = admission.mutate(Operation::Create, Some(&mut new), None);
            mutated.await?;
            remove_duplicates(exchange, Stage::Mutated, &mut new);
            if let Some(write) = Front::policy_write(exchange, resource, target) {
                write.check(&self.front.authorizer, &new, None)?;
            }
            let mut new = tracker.completed(self.facet, None, new)?;
            complete_new(exchange, resource, &mut new);
            attempts += 1;
            let mut admission = admission;
            let created =
                self.stored
                    .store
                    .create_admitted(&target.namespace, new, &request, &mut admission);
            match created.await {
                Ok(object) => return Ok(Written::created(object)),
                Err(RequestError::AlreadyExists { .. }) if attempts < ATTEMPTS_MAX => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns whether an error is that of the store for an object that does not exist.
    fn is_missing(&self, error: &RequestError) -> bool {
        matches!(error, RequestError::NotFound { resource, name }
            if *name == self.target.name && *resource == self.resource.names.resource_name())
    }
}

/// Checks that an object that is to be created names no uid: that of an object which is gone.
fn check_no_uid(
    resource: &Resource,
    target: &Target,
    new: &JsonObject,
) -> Result<(), RequestError> {
    let uid = new.get("metadata").and_then(|it| it["uid"].as_str());
    match uid.unwrap_or_default() {
        "" => Ok(()),
        uid => {
            let detail = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            let name = resource.names.resource_name();
            Err(Status::conflict(&name, &target.name, &detail).into())
        }
    }
}

/// Reads the configuration, which is YAML or JSON, and what strict decoding would refuse of it.
fn read_config(bytes: &[u8]) -> Result<(JsonObject, Vec<String>), RequestError> {
    let undecodable =
        |error: &dyn Display| RequestError::BadRequest(format!("error decoding YAML: {error}"));
    let decoded = decode::from_yaml(bytes).map_err(|error| undecodable(&error))?;
    match decoded.value {
        Value::Object(config) => Ok((config, decoded.strict)),
        other => {
            let found = decode::json_type(&other);
            let text = format!("the configuration is {found}, not an object");
            Err(undecodable(&text))
        }
    }
}
