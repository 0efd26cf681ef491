//! Objects in the versions of their API.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::compare::compare_objects;
use crate::{CompareError, Comparison, Entry, FieldSchema, Write, validate};

/// An object in a version, with its type.
pub type Converted<'a, S> = Result<(Cow<'a, Map<String, Value>>, S), VersionError>;

/// The versions of the API of a kind. An entry says which fields a manager has set in the version that it used, so that
/// objects are compared in the versions of all entries.
///
/// Each [`FieldSchema`] implements it for an API whose versions have the same fields.
pub trait Versions {
    /// The types of objects in one of the versions.
    type Schema: FieldSchema;

    /// Returns the type of objects in the version of the write.
    fn schema(&self) -> Self::Schema;

    /// Returns an object of the version `from` in the version `to`, with its type. If both are the same, it is the object
    /// itself.
    ///
    /// # Errors
    /// [`VersionError`].
    fn convert<'a>(
        &'a self,
        object: &'a Map<String, Value>,
        from: &str,
        to: &str,
    ) -> Converted<'a, Self::Schema>;

    /// Returns whether the fields that a write ignores are those of `version`, too.
    fn ignores_same(&self, version: &str) -> bool {
        let _ = version;
        true
    }
}

impl<S: FieldSchema> Versions for S {
    type Schema = S;

    fn schema(&self) -> S {
        *self
    }

    fn convert<'a>(&'a self, object: &'a Map<String, Value>, _: &str, _: &str) -> Converted<'a, S> {
        Ok((Cow::Borrowed(object), *self))
    }
}

/// Why there is no object in another version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionError {
    /// The API does not have the version, and never refuses entries for it: they are removed.
    Unknown,
    /// The conversion fails with this text: an apply fails, and an update leaves no entries.
    Failed(String),
}

/// An object with its type, or `None` for a version that is not known.
pub(crate) type Seen<'a, S> = Option<(Cow<'a, Map<String, Value>>, S)>;

/// Returns an object in a version. One in another version than that of the write must fit its type; as in kube-apiserver, it must have no list
/// with an item that occurs twice, although a write may have one.
pub(crate) fn see<'a, V: Versions>(
    versions: &'a V,
    object: &'a Map<String, Value>,
    (from, to): (&str, &str),
) -> Result<Seen<'a, V::Schema>, String> {
    match versions.convert(object, from, to) {
        Ok((object, schema)) => {
            if from != to {
                validate(&object, schema)?;
            }
            Ok(Some((object, schema)))
        }
        Err(VersionError::Unknown) => Ok(None),
        Err(VersionError::Failed(error)) => Err(error),
    }
}

/// Values for the versions of entries, of which a client can send many.
#[derive(Debug, Default)]
pub(crate) struct ByVersion<T>(HashMap<String, T>);

impl<T> ByVersion<T> {
    pub(crate) fn get(&self, version: &str) -> Option<&T> {
        self.0.get(version)
    }

    /// Returns the value for each version of some entries. It is computed in the order of the entries.
    pub(crate) fn of<E>(
        entries: &[Entry],
        mut value: impl FnMut(&str) -> Result<T, E>,
    ) -> Result<Self, E> {
        let mut known = Self(HashMap::new());
        for Entry { api_version, .. } in entries {
            if known.get(api_version).is_none() {
                let value = value(api_version)?;
                known.0.insert(api_version.clone(), value);
            }
        }
        Ok(known)
    }
}

/// Adapts the fields of entries to types that have become atomic, and removes those of unknown versions.
pub(crate) fn reconcile<V: Versions>(
    entries: Vec<Entry>,
    live: &Map<String, Value>,
    versions: &V,
    version: &str,
) -> Result<Vec<Entry>, String> {
    let schemas = ByVersion::of(&entries, |entry_version| {
        let seen = see(versions, live, (version, entry_version))?;
        Ok::<_, String>(seen.map(|(_, schema)| schema))
    })?;
    let entries = entries.into_iter().filter_map(|mut entry| {
        let schema = (*schemas.get(&entry.api_version)?)?;
        entry.fields.reconcile(schema);
        Some(entry)
    });
    Ok(entries.collect())
}

/// Compares two objects in the versions of entries, without the fields that the write ignores. For a version that is not known there is no comparison.
pub(crate) fn compare_in_versions<V: Versions>(
    entries: &[Entry],
    (old, new): (&Map<String, Value>, &Map<String, Value>),
    versions: &V,
    write: &Write<'_>,
) -> Result<ByVersion<Option<Comparison>>, VersionCompareError> {
    let version = write.api_version;
    ByVersion::of(entries, |entry_version| {
        if entry_version == version {
            return Ok(None);
        }
        let old = see(versions, old, (version, entry_version));
        let Some((old, schema)) = old.map_err(VersionCompareError::Old)? else {
            return Ok(None);
        };
        let new = see(versions, new, (version, entry_version));
        let Some((new, _)) = new.map_err(VersionCompareError::New)? else {
            return Ok(None);
        };
        let compared = compare_objects(&old, &new, schema);
        let mut comparison = compared.map_err(VersionCompareError::Compare)?;
        if versions.ignores_same(entry_version) {
            comparison.leave_out(write.ignored);
        }
        Ok(Some(comparison))
    })
}

/// The error of [`compare_in_versions`].
#[derive(Debug)]
pub(crate) enum VersionCompareError {
    Old(String),
    New(String),
    Compare(CompareError),
}

#[cfg(test)]
mod tests {
    use super::ByVersion;
    use crate::{Entry, FieldSet, Operation};

    // With a search through all versions for each entry, this takes minutes.
    #[test]
    fn entries_of_many_versions_are_read_in_linear_time() {
        const VERSIONS: usize = 60_000;
        let entry = |number: usize| Entry {
            manager: "one".to_owned(),
            operation: Operation::Update,
            api_version: format!("example.com/a-version-that-does-not-exist-{}", number / 2),
            time: None,
            subresource: String::new(),
            fields: FieldSet::EMPTY,
        };
        let entries: Vec<_> = (0..2 * VERSIONS).map(entry).collect();
        let mut order = Vec::new();
        let lengths = ByVersion::of(&entries, |version| {
            order.push(version.to_owned());
            Ok::<_, ()>(version.len())
        });
        let lengths = lengths.expect("no version is refused");
        let known = entries.iter().step_by(2).map(|entry| &*entry.api_version);
        assert!(known.eq(order.iter().map(String::as_str)));
        for Entry { api_version, .. } in &entries {
            assert_eq!(lengths.get(api_version), Some(&api_version.len()));
        }
        assert_eq!(lengths.get("v1"), None);
    }
}
