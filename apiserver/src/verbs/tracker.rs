//! The entries of `metadata.managedFields` that writes make.

use http::header::USER_AGENT;
use revstore_kinds as kinds;
use revstore_structured_merge::{
    ApplyError, FieldSet, Write, apply, kind_text, read_entries, set_entries, track_update,
};
use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{
    CauseReason, FieldPath, Reason, ResourceName, Status, StatusCause, StatusDetails,
};
use serde_json::Value;

use crate::catalog::Resource;
use crate::decode::{field_manager_causes, manager_or_user_agent};
use crate::http::{Exchange, Front};
use crate::managed_fields::{
    Conversions, KindsSchema, entries_of_scale, entries_with_scale, remove_zero_replicas,
    zero_object,
};
use crate::verbs::facet::Facet;

/// The name of the manager of writes by the server itself.
const SERVER: &str = "kube-apiserver";
/// The version of the API of scales.
const SCALE_VERSION: &str = "autoscaling/v1";
/// The largest length of the name of a subresource in an entry, in bytes.
const MAX_SUBRESOURCE_BYTES: usize = 256;

/// Who makes a write, and what kind of write it is.
#[derive(Debug)]
pub(crate) struct Tracker<'a> {
    resource: &'a Resource,
    manager: String,
    api_version: String,
    subresource: &'a str,
    time: String,
    reset: FieldSet,
    conversions: Conversions,
}

impl<'a> Tracker<'a> {
    /// Returns the tracker of a request. `field_manager` is the option of that name.
    pub(crate) fn new(
        front: &Front,
        exchange: &Exchange,
        resource: &'a Resource,
        subresource: &'a str,
        field_manager: &str,
    ) -> Self {
        let agent = exchange.header(USER_AGENT.as_str());
        Self {
            manager: manager_or_user_agent(field_manager, agent),
            ..Self::of_server(resource, subresource, front.now())
        }
    }

    /// Returns the tracker of writes by the server itself.
    pub(crate) fn of_server(resource: &'a Resource, subresource: &'a str, time: String) -> Self {
        Self {
            manager: SERVER.to_owned(),
            api_version: resource.names.api_version(),
            subresource,
            time,
            reset: resource.rules.reset_fields(subresource),
            conversions: Conversions::default(),
            resource,
        }
    }

    /// Sets the name of the manager.
    pub(crate) fn managed_by(mut self, manager: &str) -> Self {
        manager.clone_into(&mut self.manager);
        self
    }

    pub(crate) fn write<'b>(&'b self, api_version: &'b str) -> Write<'b> {
        Write {
            manager: &self.manager,
            api_version,
            subresource: self.subresource,
            time: &self.time,
            ignored: &self.reset,
        }
    }

    /// Sets the entries of a new version of an object, of which `live` is the current one. Both are as clients see
    /// them.
    pub(crate) fn track(&self, live: Option<&JsonObject>, new: &mut JsonObject) {
        let write = self.write(&self.api_version);
        let (rules, conversions) = (&self.resource.rules, &self.conversions);
        rules.track(live, new, &write, conversions);
    }

    /// Returns an object that is created with its entries.
    ///
    /// # Errors
    /// 422 if the client has sent entries with names that are not allowed.
    pub(crate) async fn create(&self, mut new: JsonObject) -> Result<JsonObject, RequestError> {
        self.check_entries(&new)?;
        if self.resource.converter.is_none() {
            self.track(None, &mut new);
            return Ok(new);
        }
        let tracked = self.converting(|| {
            let mut new = new.clone();
            self.track(None, &mut new);
            new
        });
        Ok(tracked.await)
    }

    /// Computes something, again after each conversion of an object by a webhook that the entries needed.
    pub(crate) async fn converting<T>(&self, compute: impl FnMut() -> T) -> T {
        let converter = self.resource.converter.as_deref();
        self.conversions.computing(converter, compute).await
    }

    /// Checks the names in the entries that a client has sent, if they can be read.
    fn check_entries(&self, object: &JsonObject) -> Result<(), RequestError> {
        let entries = if self.subresource.is_empty() {
            read_entries(object).unwrap_or_default()
        } else {
            Vec::new()
        };
        let mut causes = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let path = FieldPath::new("metadata")
                .child("managedFields")
                .index(index);
            causes.extend(field_manager_causes(
                &entry.manager,
                path.clone().child("manager"),
            ));
            if entry.subresource.len() > MAX_SUBRESOURCE_BYTES {
                let path = path.child("subresource");
                causes.push(StatusCause::too_long(path, MAX_SUBRESOURCE_BYTES));
            }
        }
        if causes.is_empty() {
            return Ok(());
        }
        let names = &self.resource.names;
        let kind = ResourceName::new(&*names.group, &*names.kind);
        let name = object
            .get("metadata")
            .and_then(|metadata| metadata.get("name"));
        let name = name.and_then(Value::as_str).unwrap_or_default();
        Err(Status::invalid(&kind, name, causes).into())
    }

    /// Sets the entries of what a request for a facet asks for. `live` is the current version of the object, and
    /// `requested` what the client has sent, both as it sees them. A scale gets the entries of the object.
    ///
    /// # Errors
    /// The request is invalid.
    pub(crate) fn tracked(
        &self,
        facet: Facet,
        live: Option<&JsonObject>,
        mut requested: JsonObject,
    ) -> Result<JsonObject, RequestError> {
        if facet == Facet::Scale {
            let Some(live) = live else {
                return Err(RequestError::Internal(
                    "a scale without an object".to_owned(),
                ));
            };
            requested
                .entry("metadata")
                .or_insert_with(|| JsonObject::new().into());
            let zero = remove_zero_replicas(&mut requested);
            let mut scale = self.with_entries_of_object(live, |live, ty, write| {
                let mut new = requested;
                // An object that cannot be compared has no entries.
                let _ = track_update(live, &mut new, &KindsSchema::new(ty), write);
                Ok(new)
            })?;
            let is_first = self.resource.rules.scale_of(live, true).is_err();
            if let Some(spec) = scale.get_mut("spec").and_then(Value::as_object_mut) {
                // An object without a number keeps none unless the scale has one.
                spec.extend(zero.filter(|_| is_first));
            }
            return Ok(scale);
        }
        self.check_entries(&requested)?;
        self.track(live, &mut requested);
        Ok(requested)
    }

    /// Returns what an apply makes of an object, with its entries, both as the client sees them. `live` is the current
    /// version, or `None` to create it. A scale gets the entries of the object.
    ///
    /// # Errors
    /// 400, 409 or 500, or the configuration is invalid.
    pub(crate) fn applied(
        &self,
        facet: Facet,
        live: Option<&JsonObject>,
        config: &JsonObject,
        force: bool,
    ) -> Result<JsonObject, RequestError> {
        let resource = self.resource;
        let names = &resource.names;
        let expected = match facet {
            Facet::Scale => format!("{SCALE_VERSION}, Kind=Scale"),
            _ => format!("{}/{}, Kind={}", names.group, names.version, names.kind),
        };
        let found = kind_text(config);
        if found != expected {
            return Err(RequestError::BadRequest(format!(
                "invalid object type: {found}"
            )));
        }
        let none = JsonObject::new();
        let current = live.unwrap_or(&none);
        if facet == Facet::Scale {
            return self.with_entries_of_object(current, |live, ty, write| {
                apply(
                    (live, &zero_object(ty)),
                    config,
                    &KindsSchema::new(ty),
                    write,
                    force,
                )
                .map_err(|error| refused(&error))
            });
        }
        let write = self.write(&self.api_version);
        let applied = resource
            .rules
            .apply(current, config, &write, force, &self.conversions);
        let mut new = applied.map_err(|error| refused(&error))?;
        resource.rules.conform(&mut new)?;
        keep_version(current, &mut new);
        Ok(new)
    }

    /// Returns the new version of an object as it is stored, with what a request for a facet asks for, which has its
    /// entries. `old` is the current version as it is stored.
    ///
    /// # Errors
    /// The request is invalid.
    pub(crate) fn completed(
        &self,
        facet: Facet,
        old: Option<&JsonObject>,
        requested: JsonObject,
    ) -> Result<JsonObject, RequestError> {
        match (facet, old) {
            (Facet::Scale, Some(old)) => self.scaled(old, requested),
            (_, Some(old)) => {
                let requested = self.resource.to_stored(requested);
                facet.change(&*self.resource.rules, old, requested, &self.time)
            }
            (_, None) => Ok(self.resource.to_stored(requested)),
        }
    }

    /// Returns an object with a scale, which has the entries of the object.
    fn scaled(&self, old: &JsonObject, mut scale: JsonObject) -> Result<JsonObject, RequestError> {
        let entries = scale.get_mut("metadata").and_then(Value::as_object_mut);
        let entries = entries.and_then(|metadata| metadata.remove("managedFields"));
        let mut new = Facet::Scale.change(&*self.resource.rules, old, scale, &self.time)?;
        if let Some(metadata) = new.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
            metadata.extend(entries.map(|entries| ("managedFields".to_owned(), entries)));
        }
        Ok(new)
    }

    /// Returns what `write` makes of the scale of an object, with the entries that the object will have instead of those
    /// of the scale.
    fn with_entries_of_object(
        &self,
        live: &JsonObject,
        write: impl FnOnce(
            &JsonObject,
            &'static kinds::Type,
            &Write<'_>,
        ) -> Result<JsonObject, RequestError>,
    ) -> Result<JsonObject, RequestError> {
        let rules = &*self.resource.rules;
        let paths = rules.replica_paths();
        let entries = read_entries(live).unwrap_or_default();
        let mut scale = rules.scale_of(live, false)?;
        set_entries(&mut scale, entries_of_scale(&entries, &paths));
        let Some(ty) = kinds::kind("autoscaling", "v1", "Scale") else {
            return Err(RequestError::Internal("there are no scales".to_owned()));
        };
        let by = self.write(SCALE_VERSION);
        let mut new = write(&scale, ty, &by)?;
        let after = read_entries(&new).unwrap_or_default();
        let merged = entries_with_scale(entries, after, &paths, &self.api_version);
        set_entries(&mut new, merged);
        Ok(new)
    }
}

/// Returns the answer to an apply that fails.
fn refused(error: &ApplyError) -> RequestError {
    let text = error.to_string();
    match error {
        ApplyError::HasEntries => RequestError::BadRequest(text),
        ApplyError::Conflicts(conflicts) => {
            let causes = conflicts.shown().into_iter().map(|conflict| {
                let message = format!("conflict with {}", conflict.manager);
                let mut cause = StatusCause::new(CauseReason::FIELD_MANAGER_CONFLICT, message);
                cause.field = conflict.field;
                cause
            });
            let details = StatusDetails {
                causes: causes.collect(),
                ..StatusDetails::default()
            };
            Status::failure(Reason::Conflict, text)
                .with_details(details)
                .into()
        }
        _ => Status::unclassified(text).into(),
    }
}

/// Gives what an apply makes of an object its resource version, unless the configuration has one.
fn keep_version(old: &JsonObject, new: &mut JsonObject) {
    const VERSION: &str = "resourceVersion";
    let version = old
        .get("metadata")
        .and_then(|metadata| metadata.get(VERSION));
    if let (Some(version), Some(Value::Object(metadata))) = (version, new.get_mut("metadata")) {
        metadata.entry(VERSION).or_insert_with(|| version.clone());
    }
}
