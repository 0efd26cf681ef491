//! A server-side apply.

use std::fmt::Write as _;

use serde_json::{Map, Value};
use thiserror::Error;

use crate::compare::compare_objects;
use crate::element::escape_html;
use crate::update::UNTRACKED;
use crate::validate::check_versions;
use crate::{
    Entry, FieldSchema, FieldSet, Operation, PathElement, Write, fields_of, merge, path_text,
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

/// The largest number of conflicts that the text of an error names.
const CONFLICTS_SHOWN_MAX: usize = 500;

/// A field that another manager has set to another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldConflict {
    /// The manager, as in messages: with its subresource, and with the version of the API of updates.
    pub manager: String,
    /// The field, such as `.spec.replicas`.
    pub field: String,
    path: Vec<PathElement>,
}

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
    #[error("{}", conflict_text(.0))]
    Conflicts(Vec<FieldConflict>),
}

fn conflict_text(conflicts: &[FieldConflict]) -> String {
    if let [conflict] = conflicts {
        let (manager, field) = (&conflict.manager, &conflict.field);
        return format!("Apply failed with 1 conflict: conflict with {manager}: {field}");
    }
    let mut text = format!("Apply failed with {} conflicts: ", conflicts.len());
    let mut manager = None;
    for conflict in conflicts.iter().take(CONFLICTS_SHOWN_MAX) {
        if manager != Some(&conflict.manager) {
            if manager.is_some() {
                text.push('\n');
            }
            let _ = write!(text, "conflicts with {}:", conflict.manager);
            manager = Some(&conflict.manager);
        }
        let _ = write!(text, "\n- {}", conflict.field);
    }
    text
}

/// Returns the version of an object after an apply, with its entries: the fields of the configuration are set, and those
/// that the manager has applied before and no longer sends are removed, unless others own them.
///
/// `live` is the current version, empty for an object that is created, and `zero` what [`track_update`] compares a new
/// object of the kind with.
///
/// # Errors
/// [`ApplyError`]. With `force` there are no conflicts: their fields are taken from the other managers.
pub fn apply<S: FieldSchema>(
    (live, zero): (&Map<String, Value>, &Map<String, Value>),
    config: &Map<String, Value>,
    schema: S,
    write: &Write<'_>,
    force: bool,
) -> Result<Map<String, Value>, ApplyError> {
    let mut live = live.clone();
    let entries = read_entries(&live);
    let mut entries = entries
        .map_err(|error| ApplyError::Unfit(format!("failed to decode managed fields: {error}")))?;
    if entries.is_empty() && !live.is_empty() {
        let first = Write {
            manager: FIRST_MANAGER,
            ..write.clone()
        };
        track_update(zero, &mut live, schema, &first).map_err(|error| {
            ApplyError::Unfit(format!(
                "failed to create manager for existing fields: {error}"
            ))
        })?;
        entries = read_entries(&live).unwrap_or_default();
    }
    set_entries(&mut live, Vec::new());
    let sent = config
        .get("metadata")
        .and_then(|metadata| metadata.get("managedFields"));
    if sent.is_some_and(|entries| !entries.is_null()) {
        return Err(ApplyError::HasEntries);
    }
    validate_config(config, schema)?;
    let mut applied = apply_once(&live, config, schema, write, force, entries.clone());
    if let Err(ApplyError::Conflicts(conflicts)) = &mut applied
        && write.manager == KUBECTL
        && let Some(allowed) = last_applied(&live, schema, write)
    {
        conflicts.retain(|conflict| !allowed.contains(&conflict.path));
        if conflicts.is_empty() {
            applied = apply_once(&live, config, schema, write, true, entries);
        }
    }
    let mut applied = applied?;
    if write.manager == KUBECTL {
        renew_last_applied(&mut applied, config);
    }
    Ok(applied)
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

fn apply_once<S: FieldSchema>(
    live: &Map<String, Value>,
    config: &Map<String, Value>,
    schema: S,
    write: &Write<'_>,
    force: bool,
    mut entries: Vec<Entry>,
) -> Result<Map<String, Value>, ApplyError> {
    let unfit = |prefix: &str, error: String| ApplyError::Unfit(format!("{prefix}: {error}"));
    let version = write.api_version;
    check_versions(&entries, version, live, schema).map_err(ApplyError::Unfit)?;
    for entry in &mut entries {
        entry.fields.reconcile(schema);
    }
    let fields = fields_of(config, schema).recursive_difference(write.ignored);
    let mut own = Entry {
        manager: write.manager.to_owned(),
        operation: Operation::Apply,
        api_version: write.api_version.to_owned(),
        time: None,
        subresource: write.subresource.to_owned(),
        fields,
    };
    let before = entries.iter().position(|entry| entry.is_same_manager(&own));
    let before = before.map(|position| entries.remove(position));
    let merged =
        merge(live, config, schema).map_err(|error| unfit("failed to merge config", error))?;
    let new = match &before {
        Some(before) if !before.fields.is_empty() => {
            prune(&merged, &before.fields, &own.fields, &entries, schema)
        }
        _ => merged,
    };
    check_versions(&entries, version, &new, schema)
        .map_err(|error| unfit("failed to convert new object", error))?;
    let comparison = compare_objects(live, &new, schema)
        .map_err(|error| unfit("failed to compare objects", error.to_string()))?;
    let changed = comparison
        .modified
        .union(&comparison.added)
        .recursive_difference(write.ignored);
    let removed = comparison.removed.recursive_difference(write.ignored);
    if !force {
        let conflicts = conflicts(&entries, &changed);
        if !conflicts.is_empty() {
            return Err(ApplyError::Conflicts(conflicts));
        }
    }
    let lost = changed.union(&removed);
    for entry in &mut entries {
        entry.fields = entry.fields.difference(&lost);
    }
    entries.retain(|entry| !entry.fields.is_empty());
    own.fields = own.fields.difference(&FieldSet::of_names(&UNTRACKED));
    own.time = if new == *live {
        before.and_then(|before| before.time)
    } else {
        Some(write.time.to_owned())
    };
    if !own.fields.is_empty() {
        entries.push(own);
    }
    let mut new = new;
    new.entry("metadata").or_insert_with(|| Map::new().into());
    set_entries(&mut new, entries);
    Ok(new)
}

/// Returns the conflicts with the managers of changed fields.
fn conflicts(entries: &[Entry], changed: &FieldSet) -> Vec<FieldConflict> {
    let mut conflicts = Vec::new();
    let mut entries: Vec<&Entry> = entries.iter().collect();
    entries.sort_by_cached_key(|entry| entry.identifier());
    for entry in entries {
        let manager = manager_text(entry);
        entry
            .fields
            .intersection(changed)
            .for_each(&mut Vec::new(), &mut |path| {
                conflicts.push(FieldConflict {
                    manager: manager.clone(),
                    field: path_text(path),
                    path: path.to_vec(),
                });
            });
    }
    conflicts
}

/// Returns a manager as messages have it.
fn manager_text(entry: &Entry) -> String {
    let mut text = Value::from(&*entry.manager).to_string();
    if !entry.subresource.is_empty() {
        let subresource = Value::from(&*entry.subresource);
        let _ = write!(text, " with subresource {subresource}");
    }
    if entry.operation == Operation::Update {
        let _ = write!(text, " using {}", entry.api_version);
    }
    text
}

/// Removes the fields that a manager has applied before, unless it still applies them, or others own them.
fn prune<S: FieldSchema>(
    merged: &Map<String, Value>,
    last: &FieldSet,
    own: &FieldSet,
    others: &[Entry],
    schema: S,
) -> Map<String, Value> {
    let last = last.with_named(schema);
    let pruned = remove(merged, &last, schema);
    let all = fields_of(merged, schema).with_named(schema);
    let kept = fields_of(&pruned, schema).with_named(schema);
    let mut owned = own.clone();
    for entry in others {
        owned.extend(entry.fields.clone());
    }
    // Fields that somebody owns come back.
    let gone = all.difference(&kept.union(&owned.with_named(schema)));
    let pruned = remove(merged, &gone, schema);
    // So do those that the manager did not apply, although they are in others that it did.
    let kept = fields_of(&pruned, schema).with_named(schema);
    remove(merged, &all.difference(&kept).intersection(&last), schema)
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
