//! The admission of one request.

use std::borrow::Cow;

use futures_core::future::BoxFuture;
use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::{Admit, JsonObject};
use serde_json::Value;

use crate::admission::attributes::{Attributes, Memory, ObjectKind, Operation};
use crate::admission::claims;
use crate::admission::plugin::Phase;
use crate::admission::{new_events, parameters};
use crate::catalog::Resource;
use crate::decode::DeleteOptions;
use crate::http::{Exchange, Front, Target};
use crate::verbs::Facet;

/// The admission of one request. Cheap to make and to copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission<'a> {
    pub(crate) front: &'a Front,
    pub(crate) exchange: &'a Exchange,
    pub(crate) resource: &'a Resource,
    pub(crate) target: &'a Target,
    pub(crate) dry_run: bool,
    pub(crate) deletion: Option<&'a DeleteOptions>,
}

impl Admission<'_> {
    /// Changes the object of a request. `old` is the current version, as the client sees it.
    ///
    /// # Errors
    /// A plugin refuses the request.
    pub(crate) async fn mutate(
        &self,
        operation: Operation,
        object: Option<&mut JsonObject>,
        old: Option<&JsonObject>,
    ) -> Result<(), RequestError> {
        let memory = Memory::default();
        let name = self.name(operation, object.as_deref()).into_owned();
        let request = self.attributes(operation, Cow::Owned(name), old, &memory);
        let mut object = object;
        if let Some(object) = object.as_deref_mut() {
            complete(&request, object);
        }
        self.front.admission.mutate(&request, object).await
    }

    /// Checks the complete object of a request, or a deletion. The versions are as the client sees them.
    ///
    /// # Errors
    /// A plugin refuses the request.
    pub(crate) async fn validate(
        &self,
        operation: Operation,
        object: Option<&JsonObject>,
        old: Option<&JsonObject>,
    ) -> Result<(), RequestError> {
        let memory = Memory::default();
        let name = self.name(operation, object);
        let request = self.attributes(operation, name, old, &memory);
        self.front.admission.validate(&request, object).await
    }

    /// Changes and checks the object of a request that stores none.
    ///
    /// # Errors
    /// A plugin refuses the request.
    pub(crate) async fn admit_unstored(
        &self,
        operation: Operation,
        object: &mut JsonObject,
    ) -> Result<(), RequestError> {
        self.mutate(operation, Some(object), None).await?;
        self.validate(operation, Some(object), None).await
    }

    /// Checks a complete version before it is stored, or a deletion. `facet` is what the client
    /// sees of them. The client gets the warnings about the version, whether it is refused or not.
    ///
    /// # Errors
    /// A plugin refuses the request.
    pub(crate) async fn admit_stored(
        &self,
        new: Option<&JsonObject>,
        old: Option<&JsonObject>,
        facet: Facet,
    ) -> Result<(), RequestError> {
        let operation = match (new, old) {
            (None, _) => Operation::Delete,
            (Some(_), None) => Operation::Create,
            (Some(_), Some(_)) => Operation::Update,
        };
        if let Some(new) = new {
            let warnings = match facet {
                Facet::Whole | Facet::Scale => self.resource.rules.warnings(new, old),
                Facet::Status => self.resource.rules.status_warnings(new),
                // They have strategies of their own, which warn of nothing.
                _ => Vec::new(),
            };
            for warning in warnings {
                self.exchange.warn(warning);
            }
        }
        let memory = Memory::default();
        let request = self.attributes(operation, self.name(operation, new), None, &memory);
        claims::check(&request, new, old).await?;
        parameters::check(&request, new, old).await?;
        new_events::check(&request, new, old)?;
        let chain = &self.front.admission;
        if !chain.handles(Phase::Validate, &request)
            && (new.is_some() || !chain.handles(Phase::Mutate, &request))
        {
            return Ok(());
        }
        let shown = |object| facet.shown(self.resource, object);
        let new = new.map(shown).transpose()?;
        let old = old.map(shown).transpose()?;
        let deletion = self.deletion.zip(old.as_deref());
        let completed = deletion
            .and_then(|(options, old)| self.resource.rules.completed_deletion(old, options));
        let request = Attributes {
            old: old.as_deref(),
            deletion: completed.as_ref().or(self.deletion),
            ..request
        };
        if operation == Operation::Delete {
            chain.mutate(&request, None).await?;
        }
        chain.validate(&request, new.as_deref()).await
    }

    fn name<'b>(&'b self, operation: Operation, object: Option<&'b JsonObject>) -> Cow<'b, str> {
        let target = &self.target.name;
        if operation != Operation::Create || !target.is_empty() {
            return Cow::Borrowed(target);
        }
        let metadata = object.and_then(|object| object.get("metadata"));
        let name = metadata.and_then(|metadata| metadata.get("name")?.as_str());
        Cow::Borrowed(name.unwrap_or_default())
    }

    fn attributes<'b>(
        &'b self,
        operation: Operation,
        name: Cow<'b, str>,
        old: Option<&'b JsonObject>,
        memory: &'b Memory,
    ) -> Attributes<'b> {
        Attributes {
            front: self.front,
            exchange: self.exchange,
            operation,
            resource: self.resource,
            kind: self.kind(),
            subresource: &self.target.subresource,
            namespace: self.target.shown_namespace(),
            name,
            old,
            dry_run: self.dry_run,
            deletion: self.deletion,
            memory,
        }
    }

    fn kind(&self) -> ObjectKind<'_> {
        let names = &self.resource.names;
        let own = ObjectKind {
            group: &names.group,
            version: &names.version,
            kind: &names.kind,
        };
        if self.target.subresource.is_empty() {
            return own;
        }
        match self.resource.subresource(&self.target.subresource) {
            Some(sub) if sub.version.is_empty() => ObjectKind {
                kind: &sub.kind,
                ..own
            },
            Some(sub) => ObjectKind {
                group: &sub.group,
                version: &sub.version,
                kind: &sub.kind,
            },
            None => own,
        }
    }
}

/// Gives an object what clients may leave out: its kind, its version and its namespace.
fn complete(request: &Attributes<'_>, object: &mut JsonObject) {
    let kind = &request.kind;
    let version = match kind.group {
        "" => kind.version.to_owned(),
        group => format!("{group}/{}", kind.version),
    };
    let is_set = |object: &JsonObject, field: &str| {
        let text = object.get(field).and_then(Value::as_str);
        text.is_some_and(|text| !text.is_empty())
    };
    if !is_set(object, "apiVersion") {
        object.insert("apiVersion".to_owned(), version.into());
    }
    if !is_set(object, "kind") {
        object.insert("kind".to_owned(), kind.kind.into());
    }
    if let Some(Value::Object(metadata)) = object.get_mut("metadata")
        && request.resource.namespaced
        && !is_set(metadata, "namespace")
    {
        metadata.insert("namespace".to_owned(), request.namespace.into());
    }
}

/// Admits creates and deletions of whole objects.
impl Admit for Admission<'_> {
    fn admit<'a>(
        &'a mut self,
        new: Option<&'a JsonObject>,
        old: Option<&'a JsonObject>,
    ) -> BoxFuture<'a, Result<(), RequestError>> {
        Box::pin(self.admit_stored(new, old, Facet::Whole))
    }
}
