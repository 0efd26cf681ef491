//! Objects in the versions of their API.

use std::borrow::Cow;

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

/// Values for the versions of entries, in their order.
#[derive(Debug, Default)]
pub(crate) struct ByVersion<T>(Vec<(String, T)>);

impl<T> ByVersion<T> {
    pub(crate) fn get(&self, version: &str) -> Option<&T> {
        let found = self.0.iter().find(|(known, _)| known == version);
        found.map(|(_, value)| value)
    }

    /// Returns the value for each version of some entries.
    pub(crate) fn of<E>(
        entries: &[Entry],
        mut value: impl FnMut(&str) -> Result<T, E>,
    ) -> Result<Self, E> {
        let mut known = Self(Vec::new());
        for Entry { api_version, .. } in entries {
            if known.get(api_version).is_none() {
                let value = value(api_version)?;
                known.0.push((api_version.clone(), value));
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
