//! The entries after a create, an update or a patch.

use serde_json::{Map, Value};

use crate::compare::compare_objects;
use crate::versions::{VersionCompareError, compare_in_versions, reconcile};
use crate::{CompareError, Entry, FieldSet, Operation, Versions, read_entries, set_entries};

/// The largest number of entries of updates. The oldest ones of a version are merged into one with the
/// manager `ancient-changes`.
pub const MAX_UPDATE_ENTRIES: usize = 10;

/// The manager of merged entries.
const MERGED_MANAGER: &str = "ancient-changes";

/// The manager of writes without a name.
const UNKNOWN_MANAGER: &str = "unknown";

/// The fields that are not tracked.
pub(crate) const UNTRACKED: [&str; 12] = [
    "apiVersion",
    "kind",
    "metadata",
    "metadata.name",
    "metadata.namespace",
    "metadata.creationTimestamp",
    "metadata.selfLink",
    "metadata.uid",
    "metadata.clusterName",
    "metadata.generation",
    "metadata.managedFields",
    "metadata.resourceVersion",
];

/// What is known about a write.
#[derive(Clone, Debug)]
pub struct Write<'a> {
    /// The name of the manager ; empty for `unknown`.
    pub manager: &'a str,
    /// The version of the API of the request: `apps/v1`.
    pub api_version: &'a str,
    /// The subresource, or empty.
    pub subresource: &'a str,
    /// The current time, as in `creationTimestamp`.
    pub time: &'a str,
    /// The fields, with all in them, that the write does not change although they differ: `status` of a
    /// write to the object, `spec` of one to `/status`.
    pub ignored: &'a FieldSet,
}

/// Sets `managedFields` of the new version of an object.
///
/// `live` is the current version. For a create it is the empty object of the kind: for a built-in kind
/// the object with the zero values of Go, for others an object with `apiVersion` and `kind`. The entries in `new`
/// replace those of `live`, if they are well-formed and there are any; a list with one empty entry, or none,
/// removes all. An object without entries is not tracked, unless it is created. Entries of versions that are not known
/// are removed.
///
/// # Errors
/// [`CompareError`] if lists have items that cannot be identified, or the object cannot be seen in the version of an entry. Then `new` has no entries any more, as in
/// kube-apiserver, and the write can go on.
pub fn track_update<V: Versions>(
    live: &Map<String, Value>,
    new: &mut Map<String, Value>,
    versions: &V,
    write: &Write<'_>,
) -> Result<(), CompareError> {
    let entries = entries_before(live, new, !write.subresource.is_empty());
    set_entries(new, Vec::new());
    let uid = metadata(live, "uid");
    let is_create = uid.is_none_or(|uid| uid.is_null() || uid == "");
    if entries.is_empty() && !is_create {
        return Ok(());
    }
    let version = write.api_version;
    let entries =
        reconcile(entries, live, versions, version).map_err(CompareError::Unconvertible)?;
    let mut comparison = compare_objects(live, new, versions.schema())?;
    comparison.leave_out(write.ignored);
    let others = compare_in_versions(&entries, (live, new), versions, write);
    let others = others.map_err(|error| match error {
        VersionCompareError::Old(text) | VersionCompareError::New(text) => {
            CompareError::Unconvertible(text)
        }
        VersionCompareError::Compare(error) => error,
    })?;
    let changed = comparison.modified.union(&comparison.added);
    let lost = changed.union(&comparison.removed);
    let mut entries = Entry::without(entries, version, &lost, &others);
    let own = changed.difference(&FieldSet::of_names(&UNTRACKED));
    if !own.is_empty() {
        let entry = Entry {
            manager: match write.manager {
                "" => UNKNOWN_MANAGER.to_owned(),
                manager => manager.to_owned(),
            },
            operation: Operation::Update,
            api_version: write.api_version.to_owned(),
            time: Some(write.time.to_owned()),
            subresource: write.subresource.to_owned(),
            fields: own,
        };
        match entries
            .iter_mut()
            .find(|known| known.is_same_manager(&entry))
        {
            Some(known) => {
                known.fields.extend(&entry.fields);
                known.time = entry.time;
            }
            None => entries.push(entry),
        }
    }
    cap(&mut entries);
    set_entries(new, entries);
    Ok(())
}

/// Returns the entries that a write starts from.
fn entries_before(
    live: &Map<String, Value>,
    new: &Map<String, Value>,
    is_subresource: bool,
) -> Vec<Entry> {
    let live = || read_entries(live).unwrap_or_default();
    if is_subresource {
        return live();
    }
    let sent = metadata(new, "managedFields").and_then(Value::as_array);
    let is_reset = match sent.map(Vec::as_slice) {
        Some([]) => true,
        Some([entry]) => entry.as_object().is_some_and(Map::is_empty),
        _ => false,
    };
    if is_reset {
        return Vec::new();
    }
    match read_entries(new) {
        Ok(entries) if !entries.is_empty() => entries,
        _ => live(),
    }
}

/// Returns a field of the metadata.
fn metadata<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    object.get("metadata")?.get(name)
}

/// The entry of a version into which others are merged.
struct Bucket {
    version: String,
    entry: usize,
    /// The fields of the others.
    merged: Vec<FieldSet>,
}

/// Merges the oldest entries of updates of a version until there are not too many.
fn cap(entries: &mut Vec<Entry>) {
    let mut updates: Vec<usize> = (0..entries.len())
        .filter(|index| entries[*index].operation == Operation::Update)
        .collect();
    let mut excess = updates.len().saturating_sub(MAX_UPDATE_ENTRIES);
    if excess == 0 {
        return;
    }
    updates.sort_by_cached_key(|index| {
        let entry = &entries[*index];
        (
            entry.time.clone(),
            entry.manager.clone(),
            entry.api_version.clone(),
        )
    });
    let mut removed = vec![false; entries.len()];
    // For each version, the entry into which others are merged.
    let mut buckets: Vec<Bucket> = Vec::new();
    for index in updates {
        if excess == 0 {
            break;
        }
        let version = entries[index].api_version.clone();
        let bucket = buckets.iter_mut().find(|bucket| bucket.version == version);
        let Some(Bucket {
            entry: bucket,
            merged: sets,
            ..
        }) = bucket
        else {
            buckets.push(Bucket {
                version,
                entry: index,
                merged: Vec::new(),
            });
            continue;
        };
        sets.push(std::mem::take(&mut entries[index].fields));
        let time = entries[index].time.take();
        let merged = &mut entries[*bucket];
        MERGED_MANAGER.clone_into(&mut merged.manager);
        merged.subresource.clear();
        merged.time = time;
        removed[index] = true;
        excess -= 1;
    }
    for Bucket { entry, merged, .. } in buckets {
        let fields = &mut entries[entry].fields;
        *fields = FieldSet::union_all([std::mem::take(fields)].into_iter().chain(merged));
    }
    let mut removed = removed.into_iter();
    entries.retain(|_| !removed.next().unwrap_or_default());
}

#[cfg(test)]
#[path = "update_tests.rs"]
mod tests;
