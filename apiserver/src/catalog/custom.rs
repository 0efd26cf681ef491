//! Custom resources, from their definitions.

use std::fmt;
use std::sync::Arc;

use revstore_structured_merge::{ApplyError, FieldSet, Write, apply, track_update};
use revstore_watch_cache::encode::TableColumn;
use revstore_watch_cache::registry::{JsonObject, Propagation};
use revstore_watch_cache::{RequestError, ResourceCache};
use serde_json::Value;

use crate::catalog::versions::CustomVersions;
use crate::catalog::{
    Names, Origin, Position, Presentation, Resource, Rules, Stored, Subresource, forms,
};
use crate::custom::conversion::{Converter, ConvertingStorage};
use crate::custom::definition::Definition;
use crate::custom::resource::{CustomResource, CustomStatus, PresentedStorage, finalizer_warnings};
use crate::managed_fields::{Conversions, CustomSchema, ReplicaPaths, merge_granular};
use crate::patch::{Patch, PatchError};
use crate::storage::{Seconds, Storage};
use crate::webhook::Clients;

/// The verbs of all custom resources, in the order of discovery.
const VERBS: [&str; 8] = [
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];

/// Returns the resources of all served versions of a definition, over one cache.
pub(crate) fn build(
    definition: &Arc<Definition>,
    cache: &ResourceCache,
    storage: &Storage,
    webhooks: &Arc<Clients>,
) -> Vec<Arc<Resource>> {
    let served = definition.served_versions().into_iter();
    let resources = served.map(|version| {
        let number = definition
            .versions
            .iter()
            .position(|known| known.name == version.name);
        let number = number
            .and_then(|number| u16::try_from(number).ok())
            .unwrap_or_default();
        let own = CustomResource::new(definition.clone(), version.clone());
        let converter = Converter::new(webhooks, &own);
        Arc::new(build_version(own, number, cache, storage, converter))
    });
    resources.collect()
}

/// Returns the names of a version of a definition.
pub(crate) fn names(definition: &Definition, version: &str) -> Names {
    let accepted = &definition.accepted;
    Names {
        group: definition.group.clone(),
        version: version.to_owned(),
        plural: accepted.plural.clone(),
        singular: accepted.singular.clone(),
        kind: accepted.kind.clone(),
        list_kind: accepted.list_kind.clone(),
        short_names: accepted.short_names.clone(),
        categories: accepted.categories.clone(),
    }
}

fn build_version(
    own: CustomResource,
    number: u16,
    cache: &ResourceCache,
    storage: &Storage,
    converter: Option<Arc<Converter>>,
) -> Resource {
    let (definition, version) = (own.definition().clone(), own.version().clone());
    let names = names(&definition, &version.name);
    let rules: Arc<dyn Rules> = Arc::new(CustomRules {
        resource: own.clone(),
        seconds: storage.seconds(),
    });
    // What a webhook has converted is shown as it is.
    let is_presented = converter.is_none() && !own.is_presented_verbatim();
    let view: Option<Arc<dyn Presentation>> = if is_presented {
        Some(Arc::new(CustomView(own.clone())))
    } else {
        None
    };
    let presented = is_presented.then(|| PresentedStorage::new(cache.clone(), own.clone()));
    forms::add(cache, number, &names, Origin::Custom, &rules, view.as_ref());
    let namespaced = definition.namespaced;
    let store = |strategy| match (&converter, &presented) {
        (Some(converter), _) => {
            let converting = ConvertingStorage::new(cache.clone(), converter.clone());
            storage.custom_store(converting, &names, namespaced, strategy)
        }
        (None, Some(presented)) => {
            storage.custom_store(presented.clone(), &names, namespaced, strategy)
        }
        (None, None) => storage.custom_store(cache.clone(), &names, namespaced, strategy),
    };
    let stored = Stored {
        store: store(Arc::new(own.clone())),
        status: version
            .has_status
            .then(|| store(Arc::new(CustomStatus(own.clone())))),
        prepared: store(Arc::new(own.clone())),
        prepared_counted: store(Arc::new(own)),
        cache: cache.clone(),
        followed: Position::default(),
    };
    let verbs = ["get", "patch", "update"].map(str::to_owned).to_vec();
    let status = version.has_status.then(|| Subresource {
        group: names.group.clone(),
        version: names.version.clone(),
        kind: names.kind.clone(),
        verbs: verbs.clone(),
    });
    let scale = version.scale.as_ref().map(|_| Subresource {
        group: "autoscaling".to_owned(),
        version: "v1".to_owned(),
        kind: "Scale".to_owned(),
        verbs,
    });
    let subresources = [("status", status), ("scale", scale)].into_iter();
    let subresources = subresources.filter_map(|(name, sub)| Some((name.to_owned(), sub?)));
    Resource {
        origin: Origin::Custom,
        namespaced: definition.namespaced,
        verbs: VERBS.map(str::to_owned).to_vec(),
        subresources: subresources.collect(),
        rules,
        version: number,
        stored: Some(Arc::new(stored)),
        // The stores contain objects of the version.
        view: None,
        converter,
        names,
    }
}

/// Objects of a version that differ from how they are stored.
#[derive(Debug)]
struct CustomView(CustomResource);

impl Presentation for CustomView {
    fn to_stored(&self, mut object: JsonObject) -> JsonObject {
        let _ = self.0.to_stored(&mut object);
        object
    }

    fn to_shown(&self, mut object: JsonObject) -> JsonObject {
        // An object that does not fit its schema any more is shown as it is.
        let _ = self.0.present(&mut object);
        object
    }
}

/// The rules of a version of a custom resource beyond those of its store.
struct CustomRules {
    resource: CustomResource,
    /// Returns the time of day in seconds since 1970.
    seconds: Seconds,
}

impl CustomRules {
    fn versions<'a>(&'a self, conversions: &'a Conversions) -> CustomVersions<'a> {
        CustomVersions {
            definition: self.resource.definition(),
            version: self.resource.version(),
            conversions,
        }
    }
}

impl fmt::Debug for CustomRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomRules")
            .field("definition", &self.resource.definition().name)
            .field("version", &self.resource.version().name)
            .finish_non_exhaustive()
    }
}

impl Rules for CustomRules {
    fn creates_on_update(&self) -> bool {
        false
    }

    fn conform(&self, object: &mut JsonObject) -> Result<Vec<String>, RequestError> {
        let unknown = self.resource.admit(object)?;
        let unknown = unknown
            .iter()
            .map(|path| format!("unknown field \"{path}\""));
        Ok(unknown.collect())
    }

    fn patch(&self, patch: &Patch, object: &Value) -> Result<Value, PatchError> {
        patch.apply(object, ())
    }

    fn warnings(&self, new: &JsonObject, old: Option<&JsonObject>) -> Vec<String> {
        finalizer_warnings(new, old)
    }

    fn kind_warning(&self) -> Option<String> {
        self.resource.version().deprecation.clone()
    }

    fn deletion_warning(&self) -> Option<&'static str> {
        None
    }

    fn default_propagation(&self) -> Option<Propagation> {
        None
    }

    fn shows_deleted(&self) -> bool {
        false
    }

    fn scale_of(&self, object: &JsonObject, complete: bool) -> Result<JsonObject, RequestError> {
        match &self.resource.version().scale {
            Some(scale) if complete => scale.of(object),
            Some(scale) => scale.read(object),
            None => Ok(object.clone()),
        }
    }

    fn set_scale(
        &self,
        object: &JsonObject,
        requested: &JsonObject,
    ) -> Result<JsonObject, RequestError> {
        let mut new = object.clone();
        if let Some(scale) = &self.resource.version().scale {
            scale.apply(&mut new, requested)?;
        }
        Ok(new)
    }

    fn definition(&self) -> Option<&Arc<Definition>> {
        Some(self.resource.definition())
    }

    fn track(
        &self,
        live: Option<&JsonObject>,
        new: &mut JsonObject,
        write: &Write<'_>,
        conversions: &Conversions,
    ) {
        let versions = self.versions(conversions);
        let empty = JsonObject::from_iter(
            ["apiVersion", "kind"].map(|name| (name.to_owned(), new.get(name).cloned().into())),
        );
        // An object that cannot be compared has no entries.
        let _ = track_update(live.unwrap_or(&empty), new, &versions, write);
    }

    fn apply(
        &self,
        live: &JsonObject,
        config: &JsonObject,
        write: &Write<'_>,
        force: bool,
        conversions: &Conversions,
    ) -> Result<JsonObject, ApplyError> {
        let versions = self.versions(conversions);
        let empty = JsonObject::from_iter(
            ["apiVersion", "kind"].map(|name| (name.to_owned(), config.get(name).cloned().into())),
        );
        apply((live, &empty), config, &versions, write, force)
    }

    fn merge(&self, object: &JsonObject, config: &JsonObject) -> Result<JsonObject, String> {
        let schema = CustomSchema::new(self.resource.version().schema.as_ref());
        merge_granular(object, config, schema)
    }

    fn reset_fields(&self, subresource: &str) -> FieldSet {
        FieldSet::of_names(match subresource {
            "" if self.resource.version().has_status => &["status"],
            "status" => &["metadata", "spec"],
            _ => &[],
        })
    }

    fn replica_paths(&self) -> ReplicaPaths {
        let definition = self.resource.definition();
        let mut paths = ReplicaPaths::default();
        for version in &definition.versions {
            let path = version.scale.as_ref().map(|scale| &*scale.spec_path);
            paths.add(&format!("{}/{}", definition.group, version.name), path);
        }
        paths
    }

    fn columns(&self) -> Vec<TableColumn> {
        let columns = self.resource.columns();
        let columns = columns.as_array().into_iter().flatten().map(|column| {
            let text = |name: &str| column[name].as_str().unwrap_or_default();
            let priority = column["priority"].as_i64().unwrap_or_default();
            TableColumn::new(text("name"), text("type"))
                .format(text("format"))
                .description(text("description"))
                .priority(i32::try_from(priority).unwrap_or(i32::MAX))
        });
        columns.collect()
    }

    fn cells(&self, object: &JsonObject) -> Vec<Value> {
        self.resource.cells(object, (self.seconds)())
    }

    fn seconds(&self) -> i64 {
        (self.seconds)()
    }
}
