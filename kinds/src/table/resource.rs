//! Groups, versions and resources: what discovery says.

use super::Type;
use super::types::TypeRef;

/// An API group.
#[derive(Debug)]
pub struct Group {
    pub(super) name: &'static str,
    pub(super) versions: Vec<Version>,
}

impl Group {
    /// The name, empty for the core group.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The versions, the preferred one first.
    pub fn versions(&self) -> &[Version] {
        &self.versions
    }
}

/// A version of an API group.
#[derive(Debug)]
pub struct Version {
    pub(super) group: &'static str,
    pub(super) name: &'static str,
    pub(super) on: bool,
    pub(super) resources: Vec<Resource>,
}

/// Resources of a version.
pub type Resources<'a> = std::slice::Iter<'a, Resource>;

impl Version {
    /// The group, empty for the core group.
    pub fn group(&self) -> &'static str {
        self.group
    }

    /// The name, such as `v1`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The `apiVersion` of its objects: `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.name.to_owned()
        } else {
            format!("{}/{}", self.group, self.name)
        }
    }

    /// Whether a kube-apiserver serves it by default. Beta versions are off.
    pub fn on_by_default(&self) -> bool {
        self.on
    }

    /// The resources by their plural names.
    pub fn resources(&self) -> Resources<'_> {
        self.resources.iter()
    }

    /// The resource with a plural name.
    pub fn resource(&self, plural: &str) -> Option<&Resource> {
        self.resources
            .iter()
            .find(|resource| resource.plural == plural)
    }
}

/// A resource of a version.
#[derive(Debug)]
pub struct Resource {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) on: bool,
    pub(super) plural: &'static str,
    pub(super) singular: &'static str,
    pub(super) kind: &'static str,
    pub(super) object: TypeRef,
    pub(super) list: Option<TypeRef>,
    pub(super) namespaced: bool,
    pub(super) verbs: Vec<&'static str>,
    pub(super) short_names: Vec<&'static str>,
    pub(super) categories: Vec<&'static str>,
    pub(super) subresources: Vec<Subresource>,
}

impl Resource {
    /// The group, empty for the core group.
    pub fn group(&self) -> &'static str {
        self.group
    }

    /// The version, such as `v1`.
    pub fn version(&self) -> &'static str {
        self.version
    }

    /// Whether a kube-apiserver serves it by default.
    pub fn on_by_default(&self) -> bool {
        self.on
    }

    /// The name in paths.
    pub fn plural(&self) -> &'static str {
        self.plural
    }

    /// The name for one object.
    pub fn singular(&self) -> &'static str {
        self.singular
    }

    /// The kind of its objects.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// The type of its objects.
    pub fn object(&self) -> &'static Type {
        self.object.get()
    }

    /// The type of its lists, if it can be listed.
    pub fn list(&self) -> Option<&'static Type> {
        self.list.map(TypeRef::get)
    }

    /// The kind of its lists, if it can be listed: `PodList`.
    pub fn list_kind(&self) -> Option<&'static str> {
        self.list().map(Type::name)
    }

    /// Whether its objects are in namespaces.
    pub fn namespaced(&self) -> bool {
        self.namespaced
    }

    /// The verbs, sorted.
    pub fn verbs(&self) -> &[&'static str] {
        &self.verbs
    }

    /// Whether it has a verb.
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }

    /// Short names, such as `po`.
    pub fn short_names(&self) -> &[&'static str] {
        &self.short_names
    }

    /// Categories, such as `all`.
    pub fn categories(&self) -> &[&'static str] {
        &self.categories
    }

    /// The subresources, sorted by their names.
    pub fn subresources(&self) -> &[Subresource] {
        &self.subresources
    }

    /// The subresource with a name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources
            .iter()
            .find(|subresource| subresource.name == name)
    }
}

/// A subresource, such as `pods/status`.
#[derive(Debug)]
pub struct Subresource {
    pub(super) name: &'static str,
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) kind: &'static str,
    pub(super) object: TypeRef,
    pub(super) verbs: Vec<&'static str>,
}

impl Subresource {
    /// The name without that of the resource.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The group of its kind, which may be another one than that of the resource.
    pub fn group(&self) -> &'static str {
        self.group
    }

    /// The version of its kind.
    pub fn version(&self) -> &'static str {
        self.version
    }

    /// Its kind.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// The type of its objects.
    pub fn object(&self) -> &'static Type {
        self.object.get()
    }

    /// The verbs, sorted.
    pub fn verbs(&self) -> &[&'static str] {
        &self.verbs
    }

    /// Whether it has a verb.
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }
}
