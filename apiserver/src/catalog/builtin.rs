//! The built-in resources, from the table of kinds.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;

use revstore_kinds as kinds;
use revstore_structured_merge::{ApplyError, FieldSet, Write, apply, track_update};
use revstore_watch_cache::RequestError;
use revstore_watch_cache::encode::TableColumn;
use revstore_watch_cache::registry::{JsonObject, Propagation, Strategy};
use serde_json::Value;

use crate::builtin;
use crate::catalog::forms;
use crate::catalog::versions::KindVersions;
use crate::catalog::{
    BuiltinStrategy, Catalog, Convert, Group, Names, Origin, Presentation, Resource, Rules,
    RuntimeConfig, Stored, Subresource, Version, View,
};
use crate::custom::definition;
use crate::decode::{self, DeleteOptions};
use crate::managed_fields::{Conversions, KindsSchema, ReplicaPaths, merge_granular, zero_object};
use crate::patch::{Patch, PatchError};
use crate::storage::{Seconds, Storage, Strategies};
use crate::table::{self, Column};
use crate::version::KUBERNETES_VERSION;

/// Adds the built-in resources. Those that are on by default and turned off are there for the server itself.
pub(crate) fn add_builtin(
    catalog: &Catalog,
    storage: &Storage,
    config: &RuntimeConfig,
) -> Result<(), RequestError> {
    let mut groups = BTreeMap::new();
    let mut shared = BTreeMap::new();
    let mut hidden = Vec::new();
    for group in kinds::groups() {
        let mut versions = Vec::new();
        for version in group.versions() {
            let mut resources = BTreeMap::new();
            for resource in version.resources() {
                let is_served = config.serves(resource);
                if !is_served && !resource.on_by_default() {
                    continue;
                }
                let built = Arc::new(build(resource, storage, &mut shared)?);
                if is_served {
                    resources.insert(resource.plural().to_owned(), built);
                } else {
                    hidden.push(built);
                }
            }
            if !resources.is_empty() {
                versions.push(Version {
                    name: version.name().to_owned(),
                    resources,
                });
            }
        }
        if !versions.is_empty() {
            let origin = Origin::Builtin;
            groups.insert(group.name().to_owned(), Group { origin, versions });
        }
    }
    // A catalog is filled once.
    let _ = catalog.hidden.set(hidden);
    catalog.change(|known| *known = groups);
    Ok(())
}

fn names(resource: &kinds::Resource) -> Names {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let kind = resource.kind();
    Names {
        group: resource.group().to_owned(),
        version: resource.version().to_owned(),
        plural: resource.plural().to_owned(),
        singular: resource.singular().to_owned(),
        kind: kind.to_owned(),
        list_kind: resource
            .list_kind()
            .map_or_else(|| format!("{kind}List"), str::to_owned),
        short_names: owned(resource.short_names()),
        categories: owned(resource.categories()),
    }
}

/// The resources whose objects are stored in another group or version, each as its group, version and plural, with
/// those of the version in which they are stored.
const VIEWS: [(&str, &str, &str, &str, &str, Convert); 15] = [
    ("events.k8s.io", "v1", "events", "", "v1", Convert::Event),
    (
        "autoscaling",
        "v1",
        "horizontalpodautoscalers",
        "autoscaling",
        "v2",
        Convert::Autoscaler,
    ),
    beta(NETWORKING, "v1beta1", "ipaddresses", Convert::Same),
    beta(NETWORKING, "v1beta1", "servicecidrs", Convert::Same),
    beta(
        "storage.k8s.io",
        "v1beta1",
        "volumeattributesclasses",
        Convert::Same,
    ),
    beta(
        ADMISSION,
        "v1beta1",
        "mutatingadmissionpolicies",
        Convert::Same,
    ),
    beta(
        ADMISSION,
        "v1beta1",
        "mutatingadmissionpolicybindings",
        Convert::Same,
    ),
    beta(DEVICES, "v1beta2", "deviceclasses", Convert::Same),
    beta(DEVICES, "v1beta2", "resourceclaims", Convert::Same),
    beta(DEVICES, "v1beta2", "resourceclaimtemplates", Convert::Same),
    beta(DEVICES, "v1beta2", "resourceslices", Convert::Same),
    beta(DEVICES, "v1beta1", "deviceclasses", Convert::Same),
    beta(DEVICES, "v1beta1", "resourceclaims", Convert::Claim),
    beta(
        DEVICES,
        "v1beta1",
        "resourceclaimtemplates",
        Convert::ClaimTemplate,
    ),
    beta(DEVICES, "v1beta1", "resourceslices", Convert::Slice),
];

const NETWORKING: &str = "networking.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";
const DEVICES: &str = "resource.k8s.io";

/// A row of [`VIEWS`] for a resource that is stored as version `v1` of its group.
const fn beta<'a>(
    group: &'a str,
    version: &'a str,
    plural: &'a str,
    convert: Convert,
) -> (&'a str, &'a str, &'a str, &'a str, &'a str, Convert) {
    (group, version, plural, group, "v1", convert)
}

/// Returns whether a resource is that of the definitions of custom resources, which have rules of their own.
fn is_definitions(resource: &kinds::Resource) -> bool {
    (resource.group(), resource.plural()) == (definition::GROUP, definition::PLURAL)
}

/// Returns the strategies of the stores of a resource.
fn strategies(rules: builtin::Rules, object: &'static kinds::Type, group: &str) -> Strategies {
    let of = |rules| -> Arc<dyn Strategy> {
        let storage = go_storage(group);
        Arc::new(BuiltinStrategy {
            rules,
            object,
            storage,
        })
    };
    Strategies {
        status: rules.status().map(of),
        prepared: of(rules.prepared(false)),
        prepared_counted: of(rules.prepared(true)),
        main: of(rules),
    }
}

/// The stores that several versions share, by group, version and plural.
type Shared = BTreeMap<(String, String, String), Arc<Stored>>;

/// Returns the number of the version of a resource in its cache: 0 for the one that is stored.
fn version_number(resource: &kinds::Resource) -> u16 {
    let own = (resource.group(), resource.version());
    let of_plural = || VIEWS.iter().filter(|view| view.2 == resource.plural());
    let Some(view) = of_plural().find(|view| (view.0, view.1) == own) else {
        return 0;
    };
    let stored = (view.3, view.4);
    let views = of_plural().filter(|view| (view.3, view.4) == stored);
    let before = views.take_while(|view| (view.0, view.1) != own).count();
    u16::try_from(before + 1).unwrap_or(u16::MAX)
}

fn build(
    resource: &'static kinds::Resource,
    storage: &Storage,
    shared: &mut Shared,
) -> Result<Resource, RequestError> {
    let names = names(resource);
    let view = VIEWS.iter().find(|(group, version, plural, ..)| {
        (*group, *version, *plural) == (resource.group(), resource.version(), resource.plural())
    });
    let mut stored_names = names.clone();
    if let Some((.., group, version, _)) = view {
        (*group).clone_into(&mut stored_names.group);
        (*version).clone_into(&mut stored_names.version);
    }
    let fields =
        builtin::selectable_fields(&stored_names.group, &stored_names.version, &names.kind);
    let fields: Vec<String> = fields.into_iter().map(str::to_owned).collect();
    let key = (
        stored_names.group.clone(),
        stored_names.version.clone(),
        names.plural.clone(),
    );
    let stored = match shared.get(&key) {
        Some(stored) => Some(stored.clone()),
        None if resource.has_verb("list") => {
            let (group, version, kind) = (&key.0, &key.1, &names.kind);
            let strategies = if is_definitions(resource) {
                Strategies {
                    main: Arc::new(definition::Definitions),
                    status: Some(Arc::new(definition::DefinitionStatus)),
                    prepared: Arc::new(definition::Definitions),
                    prepared_counted: Arc::new(definition::Definitions),
                }
            } else {
                let object = kinds::kind(group, version, kind);
                let object = object.unwrap_or_else(|| resource.object());
                let rules = builtin::Rules::new(group, version, kind, storage.now());
                let rules = match storage.event_ttl {
                    Some(ttl) => rules.event_ttl(ttl),
                    None => rules,
                };
                strategies(rules, object, group)
            };
            let namespaced = resource.namespaced();
            let stored = storage.add(&stored_names, namespaced, &fields, &strategies)?;
            let stored = Arc::new(stored);
            shared.insert(key, stored.clone());
            Some(stored)
        }
        None => None,
    };
    let version = version_number(resource);
    let view = view.map(|(.., convert)| -> Arc<dyn Presentation> {
        Arc::new(View {
            convert: *convert,
            shown: names.api_version(),
            stored: stored_names.api_version(),
        })
    });
    let rules: Arc<dyn Rules> = Arc::new(BuiltinRules {
        resource,
        rules: builtin::Rules::new(&names.group, &names.version, &names.kind, storage.now()),
        seconds: storage.seconds(),
    });
    if let Some(stored) = &stored {
        let view = view.as_ref();
        forms::add(
            &stored.cache,
            version,
            &names,
            Origin::Builtin,
            &rules,
            view,
        );
    }
    let subresources = resource.subresources().iter().map(|sub| {
        let described = Subresource {
            group: sub.group().to_owned(),
            version: sub.version().to_owned(),
            kind: sub.kind().to_owned(),
            verbs: sub.verbs().iter().map(|verb| (*verb).to_owned()).collect(),
        };
        (sub.name().to_owned(), described)
    });
    Ok(Resource {
        origin: Origin::Builtin,
        namespaced: resource.namespaced(),
        verbs: resource
            .verbs()
            .iter()
            .map(|verb| (*verb).to_owned())
            .collect(),
        subresources: subresources.collect(),
        rules,
        stored,
        version,
        view,
        converter: None,
        names,
    })
}

fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

/// Returns the warning of a kind that is deprecated in the version of Kubernetes that this server has.
fn deprecation_warning(resource: &kinds::Resource) -> Option<String> {
    let deprecation = resource.object().deprecation()?;
    let number = |version: &str| -> Option<(u32, u32)> {
        let (major, rest) = version.trim_start_matches('v').split_once('.')?;
        let minor = rest.split('.').next()?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    if number(deprecation.since)? > number(KUBERNETES_VERSION)? {
        return None;
    }
    let own = api_version(resource.group(), resource.version());
    let mut warning = format!(
        "{own} {} is deprecated in v{}+",
        resource.kind(),
        deprecation.since
    );
    if let Some(removed) = deprecation.removed {
        // Writing to a string does not fail.
        let _ = write!(warning, ", unavailable in v{removed}+");
    }
    if let Some((group, version, kind)) = deprecation.replacement {
        let replacement = api_version(group, version);
        let _ = write!(warning, "; use {replacement} {kind}");
    }
    Some(warning)
}

/// Returns the form in which kube-apiserver stores the objects of a group.
fn go_storage(group: &str) -> kinds::Storage {
    match group {
        "apiextensions.k8s.io" | "apiregistration.k8s.io" => kinds::Storage::Json,
        _ => kinds::Storage::Protobuf,
    }
}

/// The rules of a built-in resource beyond those of its store.
struct BuiltinRules {
    resource: &'static kinds::Resource,
    rules: builtin::Rules,
    /// Returns the time of day in seconds since 1970.
    seconds: Seconds,
}

impl fmt::Debug for BuiltinRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BuiltinRules")
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

impl BuiltinRules {
    fn versions(&self) -> KindVersions {
        let own = (self.resource.group(), self.resource.version());
        let plural = self.resource.plural();
        let stored_of = |view: &(
            &'static str,
            &'static str,
            &'static str,
            &'static str,
            &'static str,
            Convert,
        )| { (view.3, view.4) };
        let mut views = VIEWS.iter().filter(|view| view.2 == plural);
        let stored = views.find(|view| (view.0, view.1) == own || stored_of(view) == own);
        let stored = stored.map(stored_of);
        let views = VIEWS
            .iter()
            .filter(|view| view.2 == plural && Some(stored_of(view)) == stored);
        KindVersions {
            resource: self.resource,
            views: views
                .map(|(shown_group, shown, _, of, stored, convert)| View {
                    convert: *convert,
                    shown: api_version(shown_group, shown),
                    stored: api_version(of, stored),
                })
                .collect(),
        }
    }
}

impl Rules for BuiltinRules {
    fn creates_on_update(&self) -> bool {
        self.rules.creates_on_update()
    }

    fn scale_of(&self, object: &JsonObject, _: bool) -> Result<JsonObject, RequestError> {
        Ok(builtin::scale_of(object))
    }

    fn set_scale(
        &self,
        object: &JsonObject,
        requested: &JsonObject,
    ) -> Result<JsonObject, RequestError> {
        builtin::set_scale(object, requested)
    }

    fn track(
        &self,
        live: Option<&JsonObject>,
        new: &mut JsonObject,
        write: &Write<'_>,
        _: &Conversions,
    ) {
        let ty = self.resource.object();
        let versions = self.versions();
        // An object that cannot be compared has no entries.
        let _ = match live {
            Some(live) => track_update(live, new, &versions, write),
            None => track_update(&zero_object(ty), new, &versions, write),
        };
    }

    fn apply(
        &self,
        live: &JsonObject,
        config: &JsonObject,
        write: &Write<'_>,
        force: bool,
        _: &Conversions,
    ) -> Result<JsonObject, ApplyError> {
        let zero = zero_object(self.resource.object());
        apply((live, &zero), config, &self.versions(), write, force)
    }

    fn merge(&self, object: &JsonObject, config: &JsonObject) -> Result<JsonObject, String> {
        merge_granular(object, config, KindsSchema::new(self.resource.object()))
    }

    fn completed_deletion(
        &self,
        object: &JsonObject,
        options: &DeleteOptions,
    ) -> Option<DeleteOptions> {
        if self.rules.kind() != "Pod" {
            return None;
        }
        let metadata = object.get("metadata");
        let of = |field: &str| metadata.and_then(|metadata| metadata.get(field));
        let requested = options.grace_period_seconds;
        let seconds = if of("deletionTimestamp").is_none() {
            Some(self.rules.grace_period_seconds(object, requested))
        } else {
            // Deletions that go on may be shortened.
            requested.or(of("deletionGracePeriodSeconds").and_then(Value::as_i64))
        };
        Some(DeleteOptions {
            grace_period_seconds: seconds,
            ..options.clone()
        })
    }

    fn reset_fields(&self, subresource: &str) -> FieldSet {
        FieldSet::of_names(self.rules.reset_fields(subresource))
    }

    fn replica_paths(&self) -> ReplicaPaths {
        let mut paths = ReplicaPaths::default();
        let (group, version) = (self.resource.group(), self.resource.version());
        paths.add(&api_version(group, version), Some("spec.replicas"));
        paths
    }

    fn conform(&self, object: &mut JsonObject) -> Result<Vec<String>, RequestError> {
        if is_definitions(self.resource) {
            let unknown = definition::admit(object)?;
            definition::set_defaults(object);
            return Ok(unknown
                .iter()
                .map(|path| format!("unknown field \"{path}\""))
                .collect());
        }
        let storage = go_storage(self.resource.group());
        let mut value = Value::Object(std::mem::take(object));
        let unknown = kinds::normalize(self.resource.object(), &mut value, storage);
        if let Value::Object(normal) = value {
            *object = normal;
        }
        let (kind, version) = (self.resource.kind(), self.resource.version());
        let unknown =
            unknown.map_err(|error| decode::unhandled(kind, version, kind, &error.to_string()))?;
        self.rules.default(object);
        Ok(unknown.iter().map(ToString::to_string).collect())
    }

    fn patch(&self, patch: &Patch, object: &Value) -> Result<Value, PatchError> {
        patch.apply(object, self.resource.object())
    }

    fn warnings(&self, new: &JsonObject, old: Option<&JsonObject>) -> Vec<String> {
        if is_definitions(self.resource) {
            return definition::warnings(new, old);
        }
        builtin::warnings(new, old)
    }

    fn status_warnings(&self, new: &JsonObject) -> Vec<String> {
        builtin::status_warnings(new)
    }

    fn creation_warnings(&self, new: &JsonObject) -> Vec<String> {
        builtin::creation_warnings(new)
    }

    fn kind_warning(&self) -> Option<String> {
        let resource = self.resource;
        let warning = builtin::kind_warning(resource.group(), resource.version(), resource.kind());
        let warning = warning.map(str::to_owned);
        warning.or_else(|| deprecation_warning(resource))
    }

    fn deletion_warning(&self) -> Option<&'static str> {
        builtin::deletion_warning(self.resource.group(), self.resource.kind())
    }

    fn default_propagation(&self) -> Option<Propagation> {
        builtin::default_propagation(self.resource.group(), self.resource.kind())
    }

    fn shows_deleted(&self) -> bool {
        builtin::deletion_returns_object(self.resource.group(), self.resource.kind())
    }

    fn columns(&self) -> Vec<TableColumn> {
        let columns = table::columns(self.resource.group(), self.resource.kind());
        columns.iter().map(Column::definition).collect()
    }

    fn cells(&self, object: &JsonObject) -> Vec<Value> {
        let (resource, now) = (self.resource, (self.seconds)());
        table::cells(resource.group(), resource.kind(), object, now)
    }

    fn seconds(&self) -> i64 {
        (self.seconds)()
    }

    fn row_conditions(&self, object: &JsonObject) -> Vec<Value> {
        table::row_conditions(self.resource.group(), self.resource.kind(), object)
    }
}
