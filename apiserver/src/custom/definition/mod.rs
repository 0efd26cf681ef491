//! Definitions of custom resources: `CustomResourceDefinition`.

mod approval;
mod change;
mod check;
mod deletion;
pub mod priority;
mod selectable;
mod shape;
mod status;
mod strategy;
#[cfg(test)]
mod tests;
mod version;

use std::sync::Arc;

use revstore_watch_cache::registry::JsonObject;
use serde_json::Value;

use crate::custom::conversion::Conversion;
use crate::custom::schema::SchemaError;
pub use approval::report_approval;
pub use change::{Change, change};
pub use deletion::{
    CLEANUP_FINALIZER, DefinitionStores, Instances, Progress, begin_deletion, finish_deletion,
};
pub use shape::admit;
pub use status::{accept_names, establish};
pub(crate) use strategy::set_defaults;
pub use strategy::{DefinitionStatus, Definitions, warnings};
pub(crate) use version::v1beta1::to_v1;
pub use version::{SelectableField, Version};

/// The API group of definitions.
pub const GROUP: &str = "apiextensions.k8s.io";
/// The kind of definitions.
pub const KIND: &str = "CustomResourceDefinition";
/// The plural name of definitions.
pub const PLURAL: &str = "customresourcedefinitions";
/// The API version of definitions.
pub const API_VERSION: &str = "apiextensions.k8s.io/v1";

/// The names of a custom resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The plural name, as in paths.
    pub plural: String,
    /// The singular name.
    pub singular: String,
    /// The short names of kubectl.
    pub short_names: Vec<String>,
    /// The kind of objects.
    pub kind: String,
    /// The kind of lists.
    pub list_kind: String,
    /// The categories, such as `all`.
    pub categories: Vec<String>,
}

impl Names {
    /// Reads the names in a definition's spec or status.
    pub(crate) fn parse(names: Option<&Value>) -> Self {
        let text = |name: &str| {
            let text = names
                .and_then(|names| names.get(name))
                .and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        let texts = |name: &str| {
            let list = names
                .and_then(|names| names.get(name))
                .and_then(Value::as_array);
            let items = list.into_iter().flatten().filter_map(Value::as_str);
            items.map(str::to_owned).collect()
        };
        Self {
            plural: text("plural"),
            singular: text("singular"),
            short_names: texts("shortNames"),
            kind: text("kind"),
            list_kind: text("listKind"),
            categories: texts("categories"),
        }
    }
}

/// A stored definition, as the server needs it to serve its resource.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent facts")]
pub struct Definition {
    /// The name of the definition: `<plural>.<group>`.
    pub name: String,
    /// The uid of the definition.
    pub uid: String,
    /// The generation of the definition.
    pub generation: i64,
    /// The API group of the resource.
    pub group: String,
    /// Whether objects are in namespaces.
    pub namespaced: bool,
    /// The names that the definition asks for.
    pub names: Names,
    /// The names that were accepted.
    pub accepted: Names,
    /// The versions, in the order of the definition.
    pub versions: Vec<Arc<Version>>,
    /// Whether the names were accepted: the condition `NamesAccepted`.
    pub names_accepted: bool,
    /// Whether the resource is served: the condition `Established`.
    pub established: bool,
    /// Whether the definition is being deleted.
    pub terminating: bool,
    /// The webhook that converts versions; `None` if they differ in their API version alone.
    pub(crate) conversion: Option<Conversion>,
}

impl Definition {
    /// Reads a definition.
    ///
    /// # Errors
    /// [`SchemaError`] if a schema is too large. A definition that was validated has no such schema.
    pub fn parse(definition: &JsonObject) -> Result<Self, SchemaError> {
        let part = |name: &str, field: &str| definition.get(name).and_then(|part| part.get(field));
        let text = |name: &str, field: &str| {
            let text = part(name, field).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        let group = text("spec", "group");
        let names = Names::parse(part("spec", "names"));
        let all = part("spec", "versions").and_then(Value::as_array);
        let all = all.map_or(&[][..], Vec::as_slice);
        let mut versions: Vec<Arc<Version>> = Vec::new();
        for version in all {
            let parsed = Version::parse(version, &group, &names.kind, all)?;
            versions.push(Arc::new(parsed));
        }
        Ok(Self {
            name: text("metadata", "name"),
            uid: text("metadata", "uid"),
            generation: part("metadata", "generation")
                .and_then(Value::as_i64)
                .unwrap_or_default(),
            namespaced: text("spec", "scope") == "Namespaced",
            accepted: Names::parse(part("status", "acceptedNames")),
            names_accepted: condition(definition, "NamesAccepted") == Some("True"),
            established: condition(definition, "Established") == Some("True"),
            terminating: part("metadata", "deletionTimestamp").is_some_and(|time| !time.is_null()),
            conversion: Conversion::parse(part("spec", "conversion")),
            group,
            names,
            versions,
        })
    }

    /// Returns a version by its name.
    pub fn version(&self, name: &str) -> Option<&Arc<Version>> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// Returns the version in which objects are stored.
    pub fn storage_version(&self) -> Option<&Arc<Version>> {
        self.versions.iter().find(|version| version.storage)
    }

    /// Returns the versions that clients can use, the preferred one first.
    pub fn served_versions(&self) -> Vec<&Arc<Version>> {
        let mut served: Vec<_> = self
            .versions
            .iter()
            .filter(|version| version.served)
            .collect();
        served.sort_by(|one, other| priority::compare(&other.name, &one.name));
        served
    }

    /// Returns the names of the fields by which objects of any version can be selected, sorted.
    pub fn selectable_fields(&self) -> Vec<&str> {
        let fields = self.versions.iter().flat_map(|version| &version.selectable);
        let mut names: Vec<_> = fields.map(|field| field.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// Returns the status of a condition.
pub(crate) fn condition<'a>(definition: &'a JsonObject, kind: &str) -> Option<&'a str> {
    whole_condition(definition, kind)?.get("status")?.as_str()
}

/// Returns a condition with its message.
pub(crate) fn whole_condition<'a>(definition: &'a JsonObject, kind: &str) -> Option<&'a Value> {
    let conditions = definition.get("status")?.get("conditions")?.as_array()?;
    conditions
        .iter()
        .find(|condition| condition["type"] == kind)
}
