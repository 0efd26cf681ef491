//! The entries of `metadata.managedFields`: which manager has set which fields of an object.
//!
//! [`FieldSet`] is a set of fields with its JSON form, `FieldsV1`; [`compare()`] finds the fields in which two
//! objects differ, by the [`FieldSchema`] of their kind; [`track_update`] writes the entries of updates.
//! Corresponds to `structured-merge-diff` and to the package `managedfields` of Kubernetes' apimachinery.

mod compare;
mod entry;
mod fields_v1;
mod kinds_schema;
mod path;
mod schema;
mod set;
mod update;

pub use compare::{CompareError, Comparison, compare};
pub use entry::{Entry, EntryError, Operation, entries_of, set_entries};
pub use kinds_schema::{KindsSchema, zero_object};
pub use path::PathElement;
pub use schema::{FieldSchema, FieldShape, ListKey, Untyped};
pub use set::FieldSet;
pub use update::{MAX_UPDATE_ENTRIES, Write, track_update};
