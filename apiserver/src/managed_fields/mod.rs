//! The entries of `metadata.managedFields`: which manager has set which fields of an object.
//!
//! [`FieldSet`] is a set of fields with its JSON form, `FieldsV1`; [`compare()`] finds the fields in which two
//! objects differ, by the [`FieldSchema`] of their kind; [`track_update`] writes the entries of updates, and [`apply()`] is
//! the whole of a server-side apply: [`merge()`], conflicts, and the removal of fields that are no longer applied.
//! Corresponds to `structured-merge-diff` and to the package `managedfields` of Kubernetes' apimachinery.

mod apply;
mod compare;
mod custom_schema;
mod entry;
mod fields_v1;
mod kinds_schema;
mod merge;
mod path;
mod scale;
mod schema;
mod set;
mod typed;
mod update;

pub use apply::{ApplyError, FieldConflict, apply, kind_text};
pub use compare::{CompareError, Comparison, compare};
pub use custom_schema::CustomSchema;
pub use entry::{Entry, EntryError, Operation, entries_of, read_entries, set_entries};
pub use kinds_schema::{KindsSchema, zero_object};
pub use merge::merge;
pub use path::PathElement;
pub use scale::{ReplicaPaths, entries_of_scale, entries_with_scale};
pub use schema::{FieldSchema, FieldShape, JsonType, ListKey, Untyped};
pub use set::FieldSet;
pub use typed::{fields_of, path_text, remove, validate};
pub use update::{MAX_UPDATE_ENTRIES, Write, track_update};
