//! What controllers read of all objects.

use revstore_watch_cache::Object;
use serde::Deserialize;
use serde_json::Value;

/// The finalizers by which clients ask the garbage collector.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
pub(super) const ORPHAN: &str = "orphan";

/// The metadata of an object. Fields of other types count as absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Metadata {
    pub(super) uid: String,
    pub(super) owners: Vec<Owner>,
    pub(super) finalizers: Vec<String>,
    pub(super) is_deleting: bool,
}

/// A reference to an owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Owner {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) block_owner_deletion: Option<bool>,
}

impl Owner {
    /// Returns whether an owner that is deleted in the foreground waits for the object with this reference.
    pub(super) fn blocks(&self) -> bool {
        self.block_owner_deletion == Some(true)
    }

    /// Returns the group of the owner.
    pub(super) fn group(&self) -> &str {
        let group = self.api_version.rsplit_once('/');
        group.map_or("", |(group, _)| group)
    }
}

#[derive(Deserialize)]
struct Parsed {
    #[serde(default)]
    metadata: ParsedMetadata,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ParsedMetadata {
    uid: String,
    owner_references: Option<Vec<Owner>>,
    finalizers: Option<Vec<String>>,
    deletion_timestamp: Option<String>,
}

impl Metadata {
    /// Reads the metadata of a stored object; `None` if it has none.
    pub(super) fn of(object: &Object) -> Option<Self> {
        let parsed: Parsed = serde_json::from_slice(object.value()).ok()?;
        let metadata = parsed.metadata;
        Some(Self {
            uid: metadata.uid,
            owners: metadata.owner_references.unwrap_or_default(),
            finalizers: metadata.finalizers.unwrap_or_default(),
            is_deleting: metadata.deletion_timestamp.is_some(),
        })
    }

    pub(super) fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|own| own == name)
    }

    /// Returns whether the object is to be removed after its dependents.
    pub(super) fn waits_for_dependents(&self) -> bool {
        self.is_deleting && self.has_finalizer(FOREGROUND)
    }

    /// Returns whether the object is to be removed after its dependents have forgotten it.
    pub(super) fn orphans_dependents(&self) -> bool {
        self.is_deleting && self.has_finalizer(ORPHAN)
    }
}

/// Returns the text at a path in an object, or an empty one.
pub(super) fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    let found = path.iter().try_fold(object, |value, name| value.get(name));
    found.and_then(Value::as_str).unwrap_or_default()
}

/// Reads a stored object with its resource version, so that it can be changed and written.
pub(super) fn versioned(object: &Object) -> Value {
    let mut value = value(object);
    value["metadata"]["resourceVersion"] = object.revision().to_string().into();
    value
}

/// Reads a stored object; null if it is none.
pub(super) fn value(object: &Object) -> Value {
    serde_json::from_slice(object.value()).unwrap_or_default()
}
