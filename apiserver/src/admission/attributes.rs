//! What a plugin knows of a request.

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{ResourceName, Status};
use serde_json::{Value, json};

use crate::auth::User;
use crate::catalog::Resource;
use crate::decode::{DeleteOptions, Propagation};
use crate::http::{Exchange, Front};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
    /// Opens a stream, such as that of `exec`.
    Connect,
}

impl Operation {
    /// Returns the name in the rules of webhooks and policies.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// The group, version and kind of the object of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectKind<'a> {
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) kind: &'a str,
}

/// One request, as plugins see it: everything but the new object, which is a parameter of each phase.
#[derive(Debug)]
pub(crate) struct Attributes<'a> {
    /// The state of the server: the catalog with the stores, the authorizer, the time.
    pub(crate) front: &'a Front,
    /// The request, which also takes warnings and audit annotations.
    pub(crate) exchange: &'a Exchange,
    pub(crate) operation: Operation,
    /// The resource, in the version of the request.
    pub(crate) resource: &'a Resource,
    /// The kind of the objects, which is that of the subresource if it has its own, such as `Scale`.
    pub(crate) kind: ObjectKind<'a>,
    /// Empty for the object itself.
    pub(crate) subresource: &'a str,
    /// Empty for a resource without namespaces; the name of a namespace for the namespace itself.
    pub(crate) namespace: &'a str,
    /// Empty for an object whose name is not generated yet, and for the objects of a collection.
    pub(crate) name: Cow<'a, str>,
    /// The current version, of an update or a deletion, as clients of the requested version see it.
    pub(crate) old: Option<&'a JsonObject>,
    pub(crate) dry_run: bool,
    /// The options of a deletion.
    pub(crate) deletion: Option<&'a DeleteOptions>,
    /// What plugins keep between their calls for one object.
    pub(crate) memory: &'a Memory,
}

impl Attributes<'_> {
    /// Returns who makes the request.
    pub(crate) fn user(&self) -> &User {
        &self.exchange.user
    }

    /// Returns whether the request is for objects of a group and resource, or for a subresource of them.
    pub(crate) fn is_for(&self, group: &str, plural: &str, subresource: &str) -> bool {
        let names = &self.resource.names;
        names.group == group && names.plural == plural && self.subresource == subresource
    }

    /// Returns the namespace that webhooks and policies see: a namespace that is created is in itself, as others are by
    /// their paths.
    pub(crate) fn shown_namespace(&self) -> &str {
        if self.namespace.is_empty() && self.is_for("", "namespaces", "") {
            &self.name
        } else {
            self.namespace
        }
    }

    /// Returns the options of the request: `CreateOptions`, `UpdateOptions`, which patches have too, or `DeleteOptions`.
    pub(crate) fn options(&self) -> Value {
        let kind = match self.operation {
            Operation::Connect => return Value::Null,
            Operation::Delete => "DeleteOptions",
            Operation::Create => "CreateOptions",
            Operation::Update => "UpdateOptions",
        };
        let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
        if self.dry_run {
            options["dryRun"] = json!(["All"]);
        }
        if let Some(deletion) = self.deletion {
            set_deletion(&mut options, deletion);
            return options;
        }
        for name in ["fieldManager", "fieldValidation"] {
            let value = self.exchange.query.first(name);
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                options[name] = value.into();
            }
        }
        options
    }

    /// Returns the name for errors: a name that is not generated yet is shown by its prefix.
    pub(crate) fn shown_name<'b>(&'b self, object: Option<&'b JsonObject>) -> &'b str {
        if !self.name.is_empty() {
            return &self.name;
        }
        let metadata = object.and_then(|object| object.get("metadata"));
        let names = ["name", "generateName"].into_iter();
        let mut names = names.filter_map(|name| metadata?.get(name)?.as_str());
        names.find(|name| !name.is_empty()).unwrap_or("Unknown")
    }

    /// Returns the error by which a plugin refuses a request. Corresponds to `admission.NewForbidden`.
    pub(crate) fn forbidden(&self, object: Option<&JsonObject>, detail: &str) -> Status {
        let resource: ResourceName = self.resource.names.resource_name();
        Status::forbidden(&resource, self.shown_name(object), detail)
    }
}

fn set_deletion(options: &mut Value, deletion: &DeleteOptions) {
    if let Some(seconds) = deletion.grace_period_seconds {
        options["gracePeriodSeconds"] = seconds.into();
    }
    if let Some(propagation) = deletion.propagation {
        let name = match propagation {
            Propagation::Background => "Background",
            Propagation::Foreground => "Foreground",
            Propagation::Orphan => "Orphan",
        };
        options["propagationPolicy"] = name.into();
    }
    if let Some(orphan) = deletion.orphan_dependents {
        options["orphanDependents"] = orphan.into();
    }
    let conditions = &deletion.preconditions;
    let members = [
        ("uid", &conditions.uid),
        ("resourceVersion", &conditions.resource_version),
    ];
    for (name, value) in members {
        if let Some(value) = value {
            options["preconditions"][name] = value.as_str().into();
        }
    }
}

/// What plugins keep between their calls for one object in the mutating phase, which may call all of them twice.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    is_reinvocation: AtomicBool,
    wants_reinvocation: AtomicBool,
    states: Mutex<BTreeMap<&'static str, Box<dyn Any + Send>>>,
}

impl Memory {
    /// Returns whether the plugins are called for the second time.
    pub(crate) fn is_reinvocation(&self) -> bool {
        // Relaxed: one task reads and writes it.
        self.is_reinvocation.load(Ordering::Relaxed)
    }

    /// Asks for a second call of all plugins.
    pub(crate) fn request_reinvocation(&self) {
        // Relaxed: as above.
        self.wants_reinvocation.store(true, Ordering::Relaxed);
    }

    /// Begins the second call, if a plugin has asked for it in the first one.
    pub(super) fn begin_reinvocation(&self) -> bool {
        // Relaxed: as above.
        let wanted = self.wants_reinvocation.load(Ordering::Relaxed) && !self.is_reinvocation();
        self.is_reinvocation.store(wanted, Ordering::Relaxed);
        wanted
    }

    /// Changes the state of a plugin, which is the default one at first.
    pub(crate) fn with<S: Default + Send + 'static, R>(
        &self,
        plugin: &'static str,
        change: impl FnOnce(&mut S) -> R,
    ) -> Option<R> {
        let mut states = self.states.lock();
        let state = states
            .entry(plugin)
            .or_insert_with(|| Box::new(S::default()));
        state.downcast_mut::<S>().map(change)
    }
}
