//! One resource of one group and version.

use revstore_structured_merge::{ApplyError, FieldSet, Write};
use std::sync::Arc;

use revstore_watch_cache::api::ObjectList;
use revstore_watch_cache::encode::TableColumn;
use revstore_watch_cache::registry::{JsonObject, ObjectStore, Propagation};
use revstore_watch_cache::status::{ResourceName, Status};
use revstore_watch_cache::{Object, RequestError, ResourceCache};
use serde_json::Value;

use crate::catalog::{Position, Presentation};
use crate::custom::conversion::Converter;
use crate::custom::definition;
use crate::decode::DeleteOptions;
use crate::http::Target;
use crate::http::method_not_allowed;
use crate::managed_fields::{Conversions, ReplicaPaths};
use crate::patch::{Patch, PatchError};

/// Where a resource comes from. Paths and errors differ in details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It is part of the server.
    Builtin,
    /// A `CustomResourceDefinition` describes it.
    Custom,
}

/// The names of a resource.
#[expect(clippy::struct_field_names, reason = "they are those of Kubernetes")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
}

impl Names {
    /// Returns the group and the version, as in `apiVersion`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Returns the name that errors have.
    pub(crate) fn resource_name(&self) -> ResourceName {
        ResourceName::new(self.group.as_str(), self.plural.as_str())
    }
}

/// A subresource, as discovery describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subresource {
    /// The group, version and kind of its bodies.
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) verbs: Vec<String>,
}

/// The cache and the store of a resource.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) cache: ResourceCache,
    pub(crate) store: ObjectStore,
    /// The store of the subresource `status`.
    pub(crate) status: Option<ObjectStore>,
    /// The store of versions that the server itself has computed and checked, and the one of those whose
    /// changes count in the generation.
    pub(crate) prepared: ObjectStore,
    pub(crate) prepared_counted: ObjectStore,
    /// How far the server has followed the changes, if it does.
    pub(crate) followed: Position,
}

/// What differs between built-in and custom resources, beyond the rules of their store.
pub(crate) trait Rules: std::fmt::Debug + Send + Sync {
    /// Gives an object of a request the fields of its kind: fields that it does not have are removed, and
    /// defaults are set. Returns what strict validation reports.
    ///
    /// # Errors
    /// 400 if a field has the wrong type.
    fn conform(&self, object: &mut JsonObject) -> Result<Vec<String>, RequestError>;

    /// Applies a patch.
    ///
    /// # Errors
    /// The patch does not fit the object.
    fn patch(&self, patch: &Patch, object: &Value) -> Result<Value, PatchError>;

    /// Returns the warnings about a valid version of an object, as it is stored, and the version that it replaces.
    fn warnings(&self, new: &JsonObject, old: Option<&JsonObject>) -> Vec<String>;

    /// Returns the warnings about a valid version whose status is written by itself.
    fn status_warnings(&self, _new: &JsonObject) -> Vec<String> {
        Vec::new()
    }

    /// Returns the warnings about a new object before it is prepared and checked.
    fn creation_warnings(&self, _new: &JsonObject) -> Vec<String> {
        Vec::new()
    }

    /// Returns the warning that every request for the resource gets.
    fn kind_warning(&self) -> Option<String>;

    /// Returns the warning of a deletion without a propagation policy.
    fn deletion_warning(&self) -> Option<&'static str>;

    /// Returns what happens to dependents if a deletion does not say it.
    fn default_propagation(&self) -> Option<Propagation>;

    /// Returns whether an update creates an object that does not exist.
    fn creates_on_update(&self) -> bool;

    /// Returns whether a deletion answers with the object that is gone, instead of a status.
    fn shows_deleted(&self) -> bool;

    /// Returns the scale of an object. `complete` is whether the number of replicas must be there.
    ///
    /// # Errors
    /// 500 if the object has no scale.
    fn scale_of(&self, object: &JsonObject, complete: bool) -> Result<JsonObject, RequestError>;

    /// Returns an object with the replicas of a scale.
    ///
    /// # Errors
    /// The scale is invalid.
    fn set_scale(
        &self,
        object: &JsonObject,
        requested: &JsonObject,
    ) -> Result<JsonObject, RequestError>;

    /// Returns the options of a deletion with what they become for an object, or `None` if they stay as they are.
    fn completed_deletion(
        &self,
        object: &JsonObject,
        options: &DeleteOptions,
    ) -> Option<DeleteOptions> {
        let _ = (object, options);
        None
    }

    /// Returns the definition of a custom resource.
    fn definition(&self) -> Option<&Arc<definition::Definition>> {
        None
    }

    /// Sets `managedFields` of a new version of an object, of which `live` is the current one.
    fn track(
        &self,
        live: Option<&JsonObject>,
        new: &mut JsonObject,
        write: &Write<'_>,
        conversions: &Conversions,
    );

    /// Returns what an apply of a configuration makes of an object, with its entries.
    ///
    /// # Errors
    /// [`ApplyError`].
    fn apply(
        &self,
        live: &JsonObject,
        config: &JsonObject,
        write: &Write<'_>,
        force: bool,
        conversions: &Conversions,
    ) -> Result<JsonObject, ApplyError>;

    /// Returns an object with the fields of a configuration, without owners. Lists and objects that are one field
    /// cannot be in it.
    ///
    /// # Errors
    /// Why the configuration does not fit.
    fn merge(&self, object: &JsonObject, config: &JsonObject) -> Result<JsonObject, String>;

    /// Returns the fields that writes to a subresource, or to the object, do not change.
    fn reset_fields(&self, subresource: &str) -> FieldSet;

    /// Returns where the wanted replicas stand in the versions of the resource.
    fn replica_paths(&self) -> ReplicaPaths;

    /// Returns the columns of tables.
    fn columns(&self) -> Vec<TableColumn>;

    /// Returns the cells of a row.
    fn cells(&self, object: &JsonObject) -> Vec<Value>;

    /// Returns the time of day in seconds since 1970, from which ages are computed.
    fn seconds(&self) -> i64;

    /// Returns the conditions of a row.
    fn row_conditions(&self, object: &JsonObject) -> Vec<Value> {
        let _ = object;
        Vec::new()
    }
}

/// One resource of one group and version.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) names: Names,
    pub(crate) origin: Origin,
    pub(crate) namespaced: bool,
    pub(crate) verbs: Vec<String>,
    /// The subresources in the order of discovery.
    pub(crate) subresources: Vec<(String, Subresource)>,
    pub(crate) rules: Arc<dyn Rules>,
    /// `None` for a resource whose objects are not stored, such as reviews.
    pub(crate) stored: Option<Arc<Stored>>,
    /// The number of the version, by which the forms of the cache are distinguished.
    pub(crate) version: u16,
    /// How clients see the objects of the stores, if these are of another version.
    pub(crate) view: Option<Arc<dyn Presentation>>,
    /// What converts the objects of the cache before anything else is done with them. The stores convert by themselves.
    pub(crate) converter: Option<Arc<Converter>>,
}

impl Resource {
    /// Returns an object of a client as it is in the stores.
    pub(crate) fn to_stored(&self, object: JsonObject) -> JsonObject {
        match &self.view {
            Some(view) => view.to_stored(object),
            None => object,
        }
    }

    /// Returns a list of the cache with objects in the version of the resource.
    ///
    /// # Errors
    /// 500 if a webhook cannot convert them.
    pub(crate) async fn converted(&self, list: ObjectList) -> Result<ObjectList, RequestError> {
        match &self.converter {
            Some(converter) => converter.show_list(list).await,
            None => Ok(list),
        }
    }

    /// Returns an object of the cache in the version of the resource.
    ///
    /// # Errors
    /// 500 if a webhook cannot convert it.
    pub(crate) async fn converted_object(&self, object: Object) -> Result<Object, RequestError> {
        match &self.converter {
            Some(converter) => converter.show(object).await,
            None => Ok(object),
        }
    }

    /// Returns objects of the cache in the version of the resource.
    ///
    /// # Errors
    /// 500 if a webhook cannot convert them.
    pub(crate) async fn converted_objects(
        &self,
        objects: Vec<Object>,
    ) -> Result<Vec<Object>, RequestError> {
        match &self.converter {
            Some(converter) => converter.show_all(objects).await,
            None => Ok(objects),
        }
    }

    /// Returns an object of the version of the resource in another version of it. The fields of custom resources, which a
    /// webhook or nobody converts, are not checked.
    ///
    /// # Errors
    /// 500 if a webhook cannot convert it.
    pub(crate) async fn convert_to(
        &self,
        other: &Self,
        object: JsonObject,
    ) -> Result<JsonObject, RequestError> {
        let version = other.names.api_version();
        let mut new = match &self.converter {
            Some(converter) => converter.convert(object, &version).await?,
            None => other.to_shown(self.to_stored(object)),
        };
        new.insert("apiVersion".to_owned(), version.into());
        Ok(new)
    }

    /// Returns an object of the stores as clients see it.
    pub(crate) fn to_shown(&self, object: JsonObject) -> JsonObject {
        match &self.view {
            Some(view) => view.to_shown(object),
            None => object,
        }
    }

    /// Returns whether the objects are the definitions of custom resources.
    pub(crate) fn is_definitions(&self) -> bool {
        self.names.group == definition::GROUP && self.names.plural == definition::PLURAL
    }

    /// Returns a subresource.
    pub(crate) fn subresource(&self, name: &str) -> Option<&Subresource> {
        let mut subresources = self.subresources.iter();
        let (_, found) = subresources.find(|(known, _)| known == name)?;
        Some(found)
    }

    /// Checks that a path has a scope that the resource has, and that it has the verb.
    ///
    /// # Errors
    /// 404 or 405.
    // WC-401.
    pub(crate) fn check_path(&self, verb: &str, target: &Target) -> Result<(), RequestError> {
        let has_namespace = !target.namespace.is_empty();
        let has_watch = self.verbs.iter().any(|verb| *verb == "watch");
        if has_namespace && !self.namespaced || target.is_watch_path && !has_watch {
            return Err(Status::unknown_resource().into());
        }
        if self.namespaced && !has_namespace {
            match verb {
                // Nothing is at the path of all namespaces.
                _ if self.origin == Origin::Builtin && self.stored.is_none() => {
                    return Err(Status::unknown_resource().into());
                }
                "list" | "watch" if target.name.is_empty() || target.is_watch_path => {}
                "create" | "update" | "patch"
                    if target.name.is_empty() && self.origin == Origin::Builtin =>
                {
                    return Err(method_not_allowed().into());
                }
                _ => return Err(Status::unknown_resource().into()),
            }
        }
        Ok(())
    }
}
