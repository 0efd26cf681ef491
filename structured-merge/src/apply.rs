//! A server-side apply.

use serde_json::{Map, Value};
use thiserror::Error;

use crate::compare::compare_objects;
use crate::element::escape_html;
use crate::update::UNTRACKED;
use crate::versions::{VersionCompareError, compare_in_versions, reconcile, see};
use crate::{
    Conflicts, Entry, FieldSchema, FieldSet, Operation, Versions, Write, fields_of, merge,
    read_entries, remove, set_entries, track_update, validate,
};

/// The manager of the fields that an object has before it is applied for the first time.
const FIRST_MANAGER: &str = "before-first-apply";
/// The manager that takes over from applies by clients, which leave an annotation.
const KUBECTL: &str = "kubectl";
/// The annotation with the object that a client has applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The largest size of all annotations, in bytes. The annotation above is removed if it does not fit.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

/// The error of an apply.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// The configuration has entries of its own.
    #[error("metadata.managedFields must be nil")]
    HasEntries,
    /// The configuration or the object does not fit the schema.
    #[error("{0}")]
    Unfit(String),
    /// Other managers have set fields to other values.
    #[error("{0}")]
    Conflicts(Conflicts),
}

/// Returns the version of an object after an apply, with its entries: the fields of the configuration are set, and those
/// that the manager has applied before and no longer sends are removed, unless others own them.
///
/// `live` is the current version, empty for an object that is created, and `zero` what [`track_update`] compares a new
/// object of the kind with.
///
/// # Errors
/// [`ApplyError`]. With `force` there are no conflicts: their fields are taken from the other managers.
pub fn apply<V: Versions>(
    (live, zero): (&Map<String, Value>, &Map<String, Value>),
    config: &Map<String, Value>,
    versions: &V,
    write: &Write<'_>,
    force: bool,
) -> Result<Map<String, Value>, ApplyError> {
    let entries = read_entries(live);
    let mut entries = entries
        .map_err(|error| ApplyError::Unfit(format!("failed to decode managed fields: {error}")))?;
    let mut live = without_entries(live);
    if entries.is_empty() && !live.is_empty() {
        let first = Write {
            manager: FIRST_MANAGER,
            ..write.clone()
        };
        track_update(zero, &mut live, versions, &first).map_err(|error| {
            ApplyError::Unfit(format!(
                "failed to create manager for existing fields: {error}"
            ))
        })?;
        entries = read_entries(&live).unwrap_or_default();
        set_entries(&mut live, Vec::new());
    }
    let sent = config
        .get("metadata")
        .and_then(|metadata| metadata.get("managedFields"));
    if sent.is_some_and(|entries| !entries.is_null()) {
        return Err(ApplyError::HasEntries);
    }
    let schema = versions.schema();
    validate_config(config, schema)?;
    let mut applied = apply_once(&live, config, versions, write, force, entries.clone());
    if let Err(ApplyError::Conflicts(conflicts)) = &mut applied
        && write.manager == KUBECTL
        && let Some(allowed) = last_applied(&live, schema, write)
    {
        conflicts.leave_out(&allowed);
        if conflicts.is_empty() {
            applied = apply_once(&live, config, versions, write, true, entries);
        }
    }
    let (mut applied, entries) = applied?;
    // The entries can take more memory than all the rest.
    drop(live);
    applied
        .entry("metadata")
        .or_insert_with(|| Map::new().into());
    set_entries(&mut applied, entries);
    if write.manager == KUBECTL {
        renew_last_applied(&mut applied, config);
    }
    Ok(applied)
}

/// Returns a copy of an object without its entries, which can be larger than all the rest.
fn without_entries(object: &Map<String, Value>) -> Map<String, Value> {
    let members = object.iter().map(|(name, value)| {
        let value = match value {
            Value::Object(metadata) if name == "metadata" => {
                let rest = metadata.iter().filter(|(name, _)| *name != "managedFields");
                rest.map(|(name, value)| (name.clone(), value.clone()))
                    .collect()
            }
            other => other.clone(),
        };
        (name.clone(), value)
    });
    members.collect()
}

fn validate_config<S: FieldSchema>(
    config: &Map<String, Value>,
    schema: S,
) -> Result<(), ApplyError> {
    validate(config, schema).map_err(|error| {
        let text =
            |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let of = |name: &str| {
            text(
                config
                    .get("metadata")
                    .and_then(|metadata| metadata.get(name)),
            )
        };
        ApplyError::Unfit(format!(
            "failed to create typed patch object ({}/{}; {}): {error}",
            of("namespace"),
            of("name"),
            kind_text(config)
        ))
    })
}

/// Returns the group, the version and the kind of an object, as messages have them.
pub fn kind_text(object: &Map<String, Value>) -> String {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let api_version = text("apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    format!("{group}/{version}, Kind={}", text("kind"))
}

/// Returns the object after an apply without its entries, and these.
fn apply_once<V: Versions>(
    live: &Map<String, Value>,
    config: &Map<String, Value>,
    versions: &V,
    write: &Write<'_>,
    force: bool,
    entries: Vec<Entry>,
) -> Result<(Map<String, Value>, Vec<Entry>), ApplyError> {
    let unfit = |prefix: &str, error: String| ApplyError::Unfit(format!("{prefix}: {error}"));
    let (version, schema) = (write.api_version, versions.schema());
    let mut own = Entry {
        manager: write.manager.to_owned(),
        operation: Operation::Apply,
        api_version: write.api_version.to_owned(),
        time: None,
        subresource: write.subresource.to_owned(),
        fields: FieldSet::default(),
    };
    let last = entries.iter().find(|entry| entry.is_same_manager(&own));
    let last_time = last.and_then(|last| last.time.clone());
    let mut entries = reconcile(entries, live, versions, version).map_err(ApplyError::Unfit)?;
    let merged =
        merge(live, config, schema).map_err(|error| unfit("failed to merge config", error))?;
    own.fields = fields_of(config, schema).recursive_difference(write.ignored);
    let last = entries.iter().position(|entry| entry.is_same_manager(&own));
    let last = last.map(|position| entries.remove(position));
    let new = match &last {
        Some(last) if gives_up(last, &own, &entries) => {
            prune(merged, last, &own, &entries, versions)
                .map_err(|error| unfit("failed to prune fields", error))?
        }
        _ => merged,
    };
    let mut comparison = compare_objects(live, &new, schema)
        .map_err(|error| unfit("failed to compare objects", error.to_string()))?;
    comparison.leave_out(write.ignored);
    let others = compare_in_versions(&entries, (live, &new), versions, write);
    let others = others.map_err(|error| match error {
        VersionCompareError::Old(text) => unfit("failed to convert old object", text),
        VersionCompareError::New(text) => unfit("failed to convert new object", text),
        VersionCompareError::Compare(error) => {
            unfit("failed to compare objects", error.to_string())
        }
    })?;
    let changed = comparison.changed();
    if !force {
        let conflicts = Conflicts::of(&entries, version, &changed, &others);
        if !conflicts.is_empty() {
            return Err(ApplyError::Conflicts(conflicts));
        }
    }
    let gone = changed.union(&comparison.removed);
    let mut entries = Entry::without(entries, version, &gone, &others);
    own.fields = own.fields.difference(&FieldSet::of_names(&UNTRACKED));
    own.time = if new == *live {
        last_time
    } else {
        Some(write.time.to_owned())
    };
    if !own.fields.is_empty() {
        entries.push(own);
    }
    Ok((new, entries))
}

/// Returns whether an apply may remove fields. It does not if it has all that was applied before: then what contains them
/// stays, too.
fn gives_up(last: &Entry, own: &Entry, others: &[Entry]) -> bool {
    let mut all = others.iter().chain([last]);
    let is_one_version = all.all(|entry| entry.api_version == own.api_version);
    let keeps_all = is_one_version && last.fields.is_subset(&own.fields);
    !last.fields.is_empty() && !keeps_all
}

/// Removes the fields that a manager has applied before, unless it still applies them, or others own them. `merged` and
/// the result have the version of `own`.
fn prune<V: Versions>(
    merged: Map<String, Value>,
    last: &Entry,
    own: &Entry,
    others: &[Entry],
    versions: &V,
) -> Result<Map<String, Value>, String> {
    let failed =
        |what: &'static str| move |error: String| format!("failed to convert {what}: {error}");
    let (version, last_version) = (&*own.api_version, &*last.api_version);
    let in_last = see(versions, &merged, (version, last_version));
    let Some((in_last, schema)) =
        in_last.map_err(failed("merged object to last applied version"))?
    else {
        return Ok(merged);
    };
    let last_fields = last.fields.with_named(schema);
    let mut pruned = remove(&in_last, &last_fields, schema);
    let mut pruned_version = last_version;
    // Fields that somebody owns come back, those of the version of the last apply first.
    let entries = || others.iter().chain([own]);
    let mut done: Vec<&str> = Vec::new();
    for entry_version in [last_version]
        .into_iter()
        .chain(entries().map(|entry| &*entry.api_version))
    {
        let mut owners = entries().filter(|entry| entry.api_version == entry_version);
        let Some(owner) = owners.next().filter(|_| !done.contains(&entry_version)) else {
            continue;
        };
        done.push(entry_version);
        let sets = [owner].into_iter().chain(owners);
        let claimed = FieldSet::union_all(sets.map(|entry| entry.fields.clone()));
        let failed = |what: &str, error: &str| {
            format!(
                "failed add back owned items: failed to convert {what} object at version \
                 {entry_version}: {error}"
            )
        };
        let all = see(versions, &merged, (version, entry_version));
        let Some((all, schema)) = all.map_err(|error| failed("merged", &error))? else {
            continue;
        };
        let kept = see(versions, &pruned, (pruned_version, entry_version));
        let Some((kept, _)) = kept.map_err(|error| failed("pruned", &error))? else {
            continue;
        };
        let all_fields = fields_of(&all, schema).with_named(schema);
        let kept_fields = fields_of(&kept, schema).with_named(schema);
        let gone = all_fields.difference(&kept_fields.union(&claimed.with_named(schema)));
        pruned = remove(&all, &gone, schema);
        pruned_version = entry_version;
    }
    // So do those that the manager did not apply, although they are in others that it did.
    let kept = see(versions, &pruned, (pruned_version, last_version));
    let kept = kept.map_err(|error| {
        format!(
            "failed add back dangling items: failed to convert pruned object to last applied \
             version: {error}"
        )
    })?;
    let Some((kept, schema)) = kept else {
        return Ok(merged);
    };
    let kept_fields = fields_of(&kept, schema).with_named(schema);
    let all_fields = fields_of(&in_last, schema).with_named(schema);
    let gone = all_fields
        .difference(&kept_fields)
        .intersection(&last_fields);
    let pruned = remove(&in_last, &gone, schema);
    match see(versions, &pruned, (last_version, version))? {
        Some((pruned, _)) => Ok(pruned.into_owned()),
        None => Ok(merged),
    }
}

fn annotation(object: &Map<String, Value>) -> Option<&str> {
    let annotations = object.get("metadata")?.get("annotations")?;
    let text = annotations.get(LAST_APPLIED)?.as_str()?;
    (!text.is_empty()).then_some(text)
}

/// Returns the fields that a client has applied, by its annotation, and that still have their values.
fn last_applied<S: FieldSchema>(
    live: &Map<String, Value>,
    schema: S,
    write: &Write<'_>,
) -> Option<FieldSet> {
    let last: Map<String, Value> = serde_json::from_str(annotation(live)?).ok()?;
    if last.get("apiVersion")?.as_str()? != write.api_version {
        return None;
    }
    // An object with an item twice has no fields to compare with.
    validate(live, schema).ok()?;
    validate(&last, schema).ok()?;
    let fields = fields_of(&last, schema);
    let comparison = compare_objects(&last, live, schema).ok()?;
    let different = comparison
        .modified
        .union(&comparison.added)
        .union(&comparison.removed);
    Some(fields.difference(&different))
}

/// Sets the annotation of applies by clients, if there is one, to the configuration.
fn renew_last_applied(object: &mut Map<String, Value>, config: &Map<String, Value>) {
    if annotation(object).is_none() {
        return;
    }
    let mut config = Value::Object(config.clone());
    if let Some(annotations) = config
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.remove(LAST_APPLIED);
    }
    let text = escape_html(config.to_string()) + "\n";
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    let annotations =
        metadata.and_then(|metadata| metadata.get_mut("annotations")?.as_object_mut());
    if let Some(annotations) = annotations {
        annotations.insert(LAST_APPLIED.to_owned(), text.into());
        let sizes = annotations
            .iter()
            .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len));
        if sizes.sum::<usize>() > ANNOTATIONS_BYTES_MAX {
            annotations.remove(LAST_APPLIED);
        }
    }
}
