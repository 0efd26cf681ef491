//! The entries of `managedFields`.

use std::collections::{HashMap, hash_map};
use std::fmt::Write as _;

use serde_json::{Map, Value};
use thiserror::Error;

use crate::element::escape_html;
use crate::versions::ByVersion;
use crate::{Comparison, FieldSet};

/// The kind of write of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// A server-side apply.
    Apply,
    /// Any other write.
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// An entry of `managedFields`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name of the manager.
    pub manager: String,
    /// The kind of its writes.
    pub operation: Operation,
    /// The version of the API that it used.
    pub api_version: String,
    /// The time of its last write that changed fields, as in `creationTimestamp`.
    pub time: Option<String>,
    /// The subresource that it wrote to, or empty.
    pub subresource: String,
    /// The fields that it has set.
    pub fields: FieldSet,
}

/// The error of an entry that a client has sent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EntryError {
    /// The operation is unknown.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// The version is missing.
    #[error("apiVersion must not be empty")]
    ApiVersion,
    /// The type of the fields is missing or not `FieldsV1`.
    #[error("invalid fieldsType {0:?} in managed fields entry")]
    FieldsType(String),
    /// The fields are malformed.
    #[error("error decoding set of fields")]
    Fields,
}

impl Entry {
    /// Returns whether two entries belong to the same manager. Those of applies are independent of the
    /// version of the API.
    pub fn is_same_manager(&self, other: &Self) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// Returns entries without the fields that a write takes from them: those of the version of the write without `lost`,
    /// and others by the comparisons in their versions. Entries of unknown versions, or without fields, are removed.
    pub(crate) fn without(
        entries: Vec<Self>,
        version: &str,
        lost: &FieldSet,
        others: &ByVersion<Option<Comparison>>,
    ) -> Vec<Self> {
        let entries = entries.into_iter().filter_map(|mut entry| {
            entry.fields = if entry.api_version == version {
                entry.fields.difference(lost)
            } else {
                let comparison = others.get(&entry.api_version)?.as_ref()?;
                let lost = comparison.changed().union(&comparison.removed);
                entry.fields.difference(&lost)
            };
            (!entry.fields.is_empty()).then_some(entry)
        });
        entries.collect()
    }

    /// Returns what distinguishes the manager from others.
    fn identity(&self) -> (String, Operation, String, String) {
        let version = match self.operation {
            Operation::Apply => "",
            Operation::Update => &self.api_version,
        };
        (
            self.manager.clone(),
            self.operation,
            self.subresource.clone(),
            version.to_owned(),
        )
    }

    /// Returns the text by whose order conflicts with managers are reported: the JSON of an entry without its fields
    /// and its time, as Go writes it.
    pub(crate) fn identifier(&self) -> String {
        let (manager, operation, subresource, version) = self.identity();
        let mut text = "{".to_owned();
        let operation = operation.name();
        for (name, value) in [
            ("manager", &*manager),
            ("operation", operation),
            ("apiVersion", &*version),
            ("subresource", &*subresource),
        ] {
            if !value.is_empty() {
                let comma = if text.len() > 1 { "," } else { "" };
                let value = Value::from(value);
                let _ = write!(text, "{comma}\"{name}\":{value}");
            }
        }
        escape_html(text + "}")
    }

    /// Reads an entry.
    ///
    /// # Errors
    /// [`EntryError`] if a field is missing or malformed.
    pub fn from_value(value: &Value) -> Result<Self, EntryError> {
        let text = |name| value.get(name).and_then(Value::as_str).unwrap_or_default();
        let operation = match text("operation") {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err(EntryError::Operation),
        };
        if text("apiVersion").is_empty() {
            return Err(EntryError::ApiVersion);
        }
        if text("fieldsType") != "FieldsV1" {
            return Err(EntryError::FieldsType(text("fieldsType").to_owned()));
        }
        let fields = match value.get("fieldsV1") {
            None | Some(Value::Null) => FieldSet::default(),
            Some(fields) => FieldSet::from_fields_v1(fields).ok_or(EntryError::Fields)?,
        };
        Ok(Self {
            manager: text("manager").to_owned(),
            operation,
            api_version: text("apiVersion").to_owned(),
            time: value.get("time").and_then(Value::as_str).map(str::to_owned),
            subresource: text("subresource").to_owned(),
            fields,
        })
    }

    /// Returns the JSON form.
    pub fn to_value(&self) -> Value {
        let mut entry = Map::new();
        let mut set = |name: &str, text: &str| {
            if !text.is_empty() {
                entry.insert(name.to_owned(), text.into());
            }
        };
        set("manager", &self.manager);
        set("operation", self.operation.name());
        set("apiVersion", &self.api_version);
        set("time", self.time.as_deref().unwrap_or_default());
        set("fieldsType", "FieldsV1");
        set("subresource", &self.subresource);
        entry.insert("fieldsV1".to_owned(), self.fields.to_fields_v1());
        entry.into()
    }

    /// The order of entries: applies first, then by time and name.
    fn sort_key(&self) -> (Operation, Option<String>, String, String, String) {
        (
            self.operation,
            self.time.clone(),
            self.manager.clone(),
            self.api_version.clone(),
            self.subresource.clone(),
        )
    }
}

/// Returns the entries of an object.
///
/// # Errors
/// [`EntryError`] if one of them is malformed.
pub fn entries_of(object: &Value) -> Result<Vec<Entry>, EntryError> {
    object.as_object().map_or(Ok(Vec::new()), read_entries)
}

/// Returns the entries of an object.
///
/// # Errors
/// [`EntryError`] if one of them is malformed.
pub fn read_entries(object: &Map<String, Value>) -> Result<Vec<Entry>, EntryError> {
    let entries = object
        .get("metadata")
        .and_then(|metadata| metadata.get("managedFields"));
    let entries = entries.and_then(Value::as_array).into_iter().flatten();
    let mut read: Vec<Entry> = Vec::new();
    // Of several entries of a manager the last one counts.
    let mut known = HashMap::new();
    for entry in entries {
        let entry = Entry::from_value(entry)?;
        match known.entry(entry.identity()) {
            hash_map::Entry::Occupied(place) => read[*place.get()] = entry,
            hash_map::Entry::Vacant(place) => {
                place.insert(read.len());
                read.push(entry);
            }
        }
    }
    Ok(read)
}

/// Sets the entries of an object, in their order; without entries the field is removed.
pub fn set_entries(object: &mut Map<String, Value>, mut entries: Vec<Entry>) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    if entries.is_empty() {
        metadata.remove("managedFields");
        return;
    }
    entries.sort_by_cached_key(Entry::sort_key);
    let entries = entries.into_iter();
    let entries = entries.map(|entry| entry.to_value()).collect();
    metadata.insert("managedFields".to_owned(), entries);
}
