//! The table of `data/kinds.txt`: resources and types. It is read once, at the first use.

mod parse;
mod resource;
mod types;

use std::collections::HashMap;
use std::sync::LazyLock;

pub use resource::{Group, Resource, Resources, Subresource, Version};
pub use types::{Deprecation, Field, List, ListType, Package, Shape, Type, TypeRef, Union};

/// The kinds of Kubernetes 1.36.
static TABLE: LazyLock<Table> =
    LazyLock::new(|| parse::table(include_str!("../../data/kinds.txt")));

#[derive(Debug)]
struct Table {
    sources: Vec<(&'static str, &'static str)>,
    groups: Vec<Group>,
    packages: Vec<Package>,
    types: Vec<Type>,
    /// The types by their names, such as `core.v1.PodSpec` and `[]core.v1.Container`.
    by_name: HashMap<&'static str, TypeRef>,
}

/// The modules from which the table was generated, with their versions.
pub fn sources() -> &'static [(&'static str, &'static str)] {
    &TABLE.sources
}

/// The groups in the order of `/apis`, the core group first.
///
/// ```
/// let apps = revstore_kinds::groups().iter().find(|group| group.name() == "apps").unwrap();
/// assert_eq!(apps.versions()[0].name(), "v1");
/// ```
pub fn groups() -> &'static [Group] {
    &TABLE.groups
}

/// All resources, also those of versions that are off by default.
///
/// ```
/// assert!(revstore_kinds::resources().any(|resource| resource.plural() == "configmaps"));
/// ```
pub fn resources() -> impl Iterator<Item = &'static Resource> {
    groups()
        .iter()
        .flat_map(Group::versions)
        .flat_map(Version::resources)
}

/// The resource with a plural name.
///
/// ```
/// let deployments = revstore_kinds::resource("apps", "v1", "deployments").unwrap();
/// assert_eq!(deployments.kind(), "Deployment");
/// assert_eq!(deployments.short_names(), ["deploy"]);
/// ```
pub fn resource(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    self::version(group, version)?.resource(plural)
}

/// The resource whose objects have a kind.
///
/// ```
/// let pods = revstore_kinds::resource_of_kind("", "v1", "Pod").unwrap();
/// assert_eq!(pods.plural(), "pods");
/// ```
pub fn resource_of_kind(group: &str, version: &str, kind: &str) -> Option<&'static Resource> {
    self::version(group, version)?
        .resources()
        .find(|resource| resource.kind() == kind)
}

/// A version of a group.
pub fn version(group: &str, version: &str) -> Option<&'static Version> {
    groups()
        .iter()
        .find(|known| known.name() == group)?
        .versions()
        .iter()
        .find(|known| known.name() == version)
}

/// The type of the objects of a kind: of resources, their lists and subresources, and of the kinds of requests that
/// every group version has (`DeleteOptions`, `Status`, `WatchEvent` ...).
///
/// ```
/// let list = revstore_kinds::kind("apps", "v1", "DeploymentList").unwrap();
/// assert!(list.field("items").is_some());
/// assert!(revstore_kinds::kind("apps", "v1", "DeleteOptions").is_some());
/// ```
pub fn kind(group: &str, version: &str, kind: &str) -> Option<&'static Type> {
    let package = TABLE
        .packages
        .iter()
        .find(|package| package.group_version() == Some((group, version)));
    let found = package.and_then(|package| package.type_named(kind));
    let has_type_meta = |found: &&'static Type| {
        found.field("kind").is_some() && found.field("apiVersion").is_some()
    };
    if let Some(found) = found.filter(has_type_meta) {
        return Some(found);
    }
    let common = match kind {
        "CreateOptions" | "DeleteOptions" | "GetOptions" | "ListOptions" | "PatchOptions"
        | "UpdateOptions" | "WatchEvent" => {
            package.is_some() || (group, version) == ("meta.k8s.io", "v1")
        }
        "APIGroup" | "APIGroupList" | "APIResourceList" | "APIVersions" | "List" | "Status" => {
            (group, version) == ("", "v1")
        }
        "PartialObjectMetadata" | "PartialObjectMetadataList" => {
            group == "meta.k8s.io" && ["v1", "v1beta1"].contains(&version)
        }
        _ => false,
    };
    common.then(|| {
        TABLE
            .packages
            .iter()
            .find(|package| package.name() == "meta.v1")?
            .type_named(kind)
    })?
}

/// A type by its name in the table, such as `core.v1.PodSpec`.
///
/// ```
/// let spec = revstore_kinds::type_named("core.v1.PodSpec").unwrap();
/// assert_eq!(spec.openapi_name().unwrap(), "io.k8s.api.core.v1.PodSpec");
/// ```
pub fn type_named(name: &str) -> Option<&'static Type> {
    TABLE.by_name.get(name).map(|found| found.get())
}

/// All types of the table that have names.
pub fn types() -> impl Iterator<Item = &'static Type> {
    TABLE.types.iter().filter(|known| known.package().is_some())
}

#[cfg(test)]
mod tests;
