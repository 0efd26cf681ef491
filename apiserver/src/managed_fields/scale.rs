//! The entries of an object, as the subresource `scale` has them.

use revstore_structured_merge::{Entry, FieldSet, PathElement};
use revstore_watch_cache::registry::JsonObject;
use serde_json::Value;

/// The version of the API of scales.
const API_VERSION: &str = "autoscaling/v1";

/// Where the wanted replicas stand in the versions of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaPaths {
    /// The paths by the versions of the API; `None` for a version without scales.
    pub versions: Vec<(String, Option<Vec<PathElement>>)>,
}

impl ReplicaPaths {
    /// Adds a version with a path of names, separated by dots.
    pub fn add(&mut self, api_version: &str, path: Option<&str>) {
        let path = path.map(|path| {
            let names = path.trim_start_matches('.').split('.');
            names.map(|name| PathElement::Field(name.into())).collect()
        });
        self.versions.push((api_version.to_owned(), path));
    }

    fn has_version(&self, api_version: &str) -> bool {
        let mut versions = self.versions.iter();
        versions.any(|(version, _)| version == api_version)
    }

    fn path(&self, api_version: &str) -> Option<&[PathElement]> {
        let mut versions = self.versions.iter();
        let (_, path) = versions.find(|(version, _)| version == api_version)?;
        path.as_deref()
    }
}

/// Removes the wanted replicas from a scale that has 0 of them, and returns the field. The JSON of a scale leaves them out:
/// a write of 0 removes the field and its owners.
pub(crate) fn remove_zero_replicas(scale: &mut JsonObject) -> Option<(String, Value)> {
    let spec = scale.get_mut("spec")?.as_object_mut()?;
    let is_zero = |replicas: &Value| replicas.is_null() || replicas.as_i64() == Some(0);
    spec.get("replicas").filter(|replicas| is_zero(replicas))?;
    spec.remove_entry("replicas")
}

/// Returns the entries that a scale has: those of the managers of the replicas.
pub fn entries_of_scale(entries: &[Entry], paths: &ReplicaPaths) -> Vec<Entry> {
    let own = entries.iter().filter(|entry| {
        let path = paths.path(&entry.api_version);
        path.is_some_and(|path| entry.fields.contains(path))
    });
    let scale = own.map(|entry| Entry {
        api_version: API_VERSION.to_owned(),
        fields: FieldSet::of_names(&["spec.replicas"]),
        ..entry.clone()
    });
    scale.collect()
}

/// Returns the entries of an object after a write to its scale, which has left the entries `scale`. `api_version` is
/// the version of the API of the request for the object.
pub fn entries_with_scale(
    entries: Vec<Entry>,
    mut scale: Vec<Entry>,
    paths: &ReplicaPaths,
    api_version: &str,
) -> Vec<Entry> {
    let mut merged = Vec::new();
    for mut entry in entries {
        if !paths.has_version(&entry.api_version) {
            continue;
        }
        let path = paths.path(&entry.api_version);
        if let Some(path) = path.filter(|path| entry.fields.contains(path)) {
            let known = scale.iter().position(|known| known.is_same_manager(&entry));
            match known {
                Some(known) => {
                    scale.remove(known);
                }
                None => entry.fields = entry.fields.difference(&FieldSet::of_paths([path])),
            }
        }
        if !entry.fields.is_empty() {
            merged.push(entry);
        }
    }
    let replicas = FieldSet::of_names(&["spec.replicas"]);
    let path = paths.path(api_version).unwrap_or_default();
    for entry in scale {
        if !entry.fields.intersection(&replicas).is_empty() {
            merged.push(Entry {
                api_version: api_version.to_owned(),
                fields: FieldSet::of_paths([path]),
                // As in kube-apiserver, which looks for the time in the entries of the object.
                time: None,
                ..entry
            });
        }
    }
    merged
}
