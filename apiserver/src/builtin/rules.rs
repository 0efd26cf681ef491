//! The rules of a built-in kind, as a [`Strategy`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::{JsonObject, Strategy};
use revstore_watch_cache::status::StatusCause;

use super::causes::Causes;
use super::edit;
use super::field::Field;
use super::gates::Gates;
use super::{families, names};

/// Returns the time of day in the form of a timestamp, such as `2024-01-01T00:00:00Z`.
pub type Now = Arc<dyn Fn() -> String + Send + Sync>;

/// When an object's generation counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Generation {
    /// The kind has none. That of a client is kept.
    None,
    /// 1 at first, and 1 more with each change outside of the metadata and the status.
    Counts,
    /// 1, always.
    One,
    /// Absent at first, and 1 more with each change outside of the metadata and the status.
    CountsFromZero,
}

/// A kind, and what distinguishes it from others.
#[derive(Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are independent facts about a kind"
)]
pub(super) struct Kind {
    pub(super) group: &'static str,
    pub(super) name: &'static str,
    /// The version that these rules are for; empty for all versions.
    pub(super) version: &'static str,
    /// Whether there is a status subresource.
    pub(super) has_status: bool,
    pub(super) generation: Generation,
    pub(super) unconditional_update: bool,
    pub(super) creates_on_update: bool,
    /// Whether the status subresource keeps the labels.
    pub(super) status_keeps_labels: bool,
    /// Whether the status subresource keeps all metadata but the managed fields.
    pub(super) status_keeps_metadata: bool,
    /// Whether a new object keeps the status of its client.
    pub(super) keeps_status_on_create: bool,
    pub(super) name_error: fn(&str) -> Option<String>,
    /// Sets the defaults that any version gets when it is read from a request.
    pub(super) default: fn(&mut JsonObject),
    /// Completes a new object.
    pub(super) create: fn(&mut JsonObject, &str),
    /// Completes a new version. The status has been restored.
    pub(super) update: fn(&mut JsonObject, &JsonObject),
    /// Completes a new version that the status subresource writes. All but the status and the metadata has
    /// been restored.
    pub(super) update_status: fn(&mut JsonObject, &JsonObject, &str),
    /// Checks a new version.
    pub(super) validate: fn(&Field<'_>, &mut Causes),
    /// Checks what only a new object cannot have, after `validate`.
    pub(super) validate_create: fn(&Field<'_>, &mut Causes),
    /// Checks a new version as the successor of an old one, after `validate`.
    pub(super) validate_update: fn(&Field<'_>, &Field<'_>, &mut Causes),
    /// Checks a new version that the status subresource writes.
    pub(super) validate_status: fn(&Field<'_>, &Field<'_>, &mut Causes),
}

impl Kind {
    /// Returns a kind with the rules that most have: no generation, unconditional updates, and names that
    /// are subdomains.
    pub(super) const fn new(group: &'static str, kind: &'static str) -> Self {
        Self {
            group,
            name: kind,
            version: "",
            has_status: false,
            generation: Generation::None,
            unconditional_update: true,
            creates_on_update: false,
            status_keeps_labels: false,
            status_keeps_metadata: false,
            keeps_status_on_create: false,
            name_error: names::subdomain_error,
            default: |_| {},
            create: |_, _| {},
            update: |_, _| {},
            update_status: |_, _, _| {},
            validate: |_, _| {},
            validate_create: |_, _| {},
            validate_update: |_, _, _| {},
            validate_status: |_, _, _| {},
        }
    }

    /// Adds a status subresource.
    pub(super) const fn with_status(mut self) -> Self {
        self.has_status = true;
        self
    }

    /// Adds a generation that counts.
    pub(super) const fn with_generation(mut self) -> Self {
        self.generation = Generation::Counts;
        self
    }

    /// Refuses updates without a resource version.
    pub(super) const fn conditional(mut self) -> Self {
        self.unconditional_update = false;
        self
    }

    /// Lets updates create.
    pub(super) const fn creates_on_update(mut self) -> Self {
        self.creates_on_update = true;
        self
    }
}

/// The part of an object that requests change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Target {
    Main,
    Status,
    /// A new version that a function has computed and checked. It has the value whether a change outside
    /// of the metadata and the status counts in the generation.
    Prepared {
        counts: bool,
    },
}

/// The rules of a built-in kind in one version: for the resource itself, or for its status subresource.
///
/// Cloning is cheap.
#[derive(Clone)]
pub struct Rules {
    kind: &'static Kind,
    api_version: String,
    /// The name of the kind, of which `kind` may have a general description.
    name: String,
    target: Target,
    now: Now,
    /// The fields of features that are off.
    gates: Option<&'static Gates>,
    /// How long new versions of events are kept.
    event_ttl: Option<Duration>,
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules")
            .field("api_version", &self.api_version)
            .field("kind", &self.name)
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

impl Rules {
    /// Returns the rules of a kind, with `now` as the time of day. A kind that is not known has the rules
    /// that most kinds have, with a generation.
    pub fn new(group: &str, version: &str, kind: &str, now: Now) -> Self {
        let api_version = if group.is_empty() {
            version.to_owned()
        } else {
            format!("{group}/{version}")
        };
        Self {
            kind: families::find(group, version, kind),
            api_version,
            name: kind.to_owned(),
            target: Target::Main,
            now,
            gates: Gates::of(group, kind),
            event_ttl: None,
        }
    }

    /// Sets how long a new version of an object is kept, if its kind is that of events.
    #[must_use]
    pub fn event_ttl(mut self, ttl: Duration) -> Self {
        self.event_ttl = (self.name == "Event").then_some(ttl);
        self
    }

    /// Returns the rules of the status subresource, or `None` if there is none.
    #[must_use]
    pub fn status(&self) -> Option<Self> {
        self.kind.has_status.then(|| Self {
            target: Target::Status,
            ..self.clone()
        })
    }

    /// Returns the rules for new versions that a function of this module has computed and checked, such as
    /// [`bind`](super::bind). `raises_generation` says whether their changes count in the generation: those
    /// of `ephemeralcontainers` and `resize` do.
    #[must_use]
    pub fn prepared(&self, raises_generation: bool) -> Self {
        Self {
            target: Target::Prepared {
                counts: raises_generation,
            },
            ..self.clone()
        }
    }

    /// Returns the fields that writes to a subresource, or to the object, reset to their old values.
    pub fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        match (self.name.as_str(), subresource) {
            ("CertificateSigningRequest", "") => &["spec", "status"],
            ("CertificateSigningRequest", "status") => &["spec", "status.conditions"],
            ("CertificateSigningRequest", "approval") => &["spec", "status.certificate"],
            ("Pod", "status") => &[
                "spec",
                "metadata.deletionTimestamp",
                "metadata.ownerReferences",
            ],
            ("Namespace", "finalize") => &["status"],
            (_, "") if self.kind.has_status => &["status"],
            (_, "status") if self.kind.status_keeps_metadata => &["spec", "metadata"],
            (_, "status") if self.kind.status_keeps_labels => &["spec", "metadata.labels"],
            (_, "status") => &["spec"],
            _ => &[],
        }
    }

    /// Sets the defaults of an object that was read from a request. Admission comes after it; the store
    /// sets the defaults again, which changes nothing.
    pub fn default(&self, object: &mut JsonObject) {
        (self.kind.default)(object);
    }

    /// Checks the names of finalizers, which have a rule of their own in all groups but three.
    fn check_finalizers(&self, object: &Field<'_>, causes: &mut Causes) {
        const WITHOUT: [&str; 3] = [
            "admissionregistration.k8s.io",
            "apiextensions.k8s.io",
            "apiregistration.k8s.io",
        ];
        let group = self
            .api_version
            .split_once('/')
            .map_or("", |(group, _)| group);
        if !WITHOUT.contains(&group) {
            super::families::pod::check_finalizers(object, causes);
        }
    }

    fn prepare_main_update(&self, new: &mut JsonObject, old: &JsonObject) {
        if self.kind.has_status {
            edit::restore(new, old, "status");
        }
        (self.kind.update)(new, old);
        let counts = self.kind.generation == Generation::CountsFromZero;
        if counts && edit::at(new, &["spec"]) != edit::at(old, &["spec"]) {
            raise_generation(new, old);
        }
    }

    fn prepare_status_update(&self, new: &mut JsonObject, old: &JsonObject) {
        let names: Vec<String> = new
            .keys()
            .chain(old.keys())
            .filter(|name| !KEPT.contains(&name.as_str()))
            .cloned()
            .collect();
        for name in names {
            edit::restore(new, old, &name);
        }
        if self.kind.status_keeps_metadata {
            restore_metadata(new, old, &[]);
        } else if self.kind.status_keeps_labels
            && let Some(metadata) = edit::ensure(new, "metadata")
            && let Some(old) = old.get("metadata").and_then(|old| old.as_object())
        {
            edit::restore(metadata, old, "labels");
        }
        (self.kind.update_status)(new, old, &(self.now)());
    }
}

/// The members of an object that writes of the status subresource may change.
const KEPT: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];
/// The members of the metadata by which the store recognizes a version.
const IDENTITY: [&str; 4] = ["name", "namespace", "resourceVersion", "managedFields"];

/// Sets the metadata to that of the old version, except for its identity and the members named.
pub(super) fn restore_metadata(new: &mut JsonObject, old: &JsonObject, except: &[&str]) {
    let Some(old) = old.get("metadata").and_then(|old| old.as_object()) else {
        return;
    };
    let Some(metadata) = edit::ensure(new, "metadata") else {
        return;
    };
    let names: Vec<String> = metadata.keys().chain(old.keys()).cloned().collect();
    for name in names {
        if !IDENTITY.contains(&name.as_str()) && !except.contains(&name.as_str()) {
            edit::restore(metadata, old, &name);
        }
    }
}

/// Sets the generation to 1 more than that of the old version.
pub(super) fn raise_generation(new: &mut JsonObject, old: &JsonObject) {
    let old = edit::at(old, &["metadata", "generation"]);
    let generation = old.and_then(serde_json::Value::as_i64).unwrap_or_default();
    if let Some(metadata) = edit::ensure(new, "metadata") {
        metadata.insert("generation".to_owned(), json!(generation + 1));
    }
}

impl Strategy for Rules {
    fn api_version(&self) -> &str {
        &self.api_version
    }

    fn kind(&self) -> &str {
        &self.name
    }

    fn has_generation(&self) -> bool {
        self.kind.generation == Generation::Counts
            && self.target != Target::Prepared { counts: false }
    }

    fn allows_unconditional_update(&self) -> bool {
        self.kind.unconditional_update
    }

    fn creates_on_update(&self) -> bool {
        self.kind.creates_on_update && self.target == Target::Main
    }

    fn name_error(&self, name: &str) -> Option<String> {
        (self.kind.name_error)(name)
    }

    fn time_to_live(&self, _: &JsonObject) -> Option<Duration> {
        self.event_ttl
    }

    fn grace_period_seconds(&self, object: &JsonObject, requested: Option<i64>) -> i64 {
        if self.name == "Pod" {
            super::families::pod::grace_period_seconds(object, requested)
        } else {
            0
        }
    }

    fn prepare_create(&self, object: &mut JsonObject) -> Result<(), RequestError> {
        (self.kind.default)(object);
        if self.kind.has_status && !self.kind.keeps_status_on_create {
            object.remove("status");
        }
        if self.kind.generation == Generation::One
            && let Some(metadata) = edit::ensure(object, "metadata")
        {
            metadata.insert("generation".to_owned(), json!(1));
        }
        if let Some(gates) = self.gates {
            gates.drop_fields(object, None);
        }
        (self.kind.create)(object, &(self.now)());
        if self.kind.has_status {
            // The defaults of an empty status, such as a phase.
            (self.kind.default)(object);
        }
        Ok(())
    }

    fn prepare_update(&self, new: &mut JsonObject, old: &JsonObject) -> Result<(), RequestError> {
        match self.target {
            Target::Main => {
                (self.kind.default)(new);
                self.prepare_main_update(new, old);
            }
            Target::Status => {
                (self.kind.default)(new);
                self.prepare_status_update(new, old);
            }
            Target::Prepared { .. } => return Ok(()),
        }
        if let Some(gates) = self.gates {
            gates.drop_fields(new, Some(old));
        }
        Ok(())
    }

    fn validate_create(&self, object: &JsonObject) -> Vec<StatusCause> {
        let mut causes = Causes::default();
        let object = Field::root(object);
        self.check_finalizers(&object, &mut causes);
        (self.kind.validate)(&object, &mut causes);
        (self.kind.validate_create)(&object, &mut causes);
        causes.into_vec()
    }

    fn validate_update(&self, new: &JsonObject, old: &JsonObject) -> Vec<StatusCause> {
        let mut causes = Causes::default();
        let (new, old) = (Field::root(new), Field::root(old));
        match self.target {
            Target::Main => {
                self.check_finalizers(&new, &mut causes);
                (self.kind.validate)(&new, &mut causes);
                (self.kind.validate_update)(&new, &old, &mut causes);
            }
            Target::Status => (self.kind.validate_status)(&new, &old, &mut causes),
            Target::Prepared { .. } => {}
        }
        causes.into_vec()
    }
}
