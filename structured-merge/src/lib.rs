#![doc = include_str!("../README.md")]

mod apply;
mod compare;
mod conflicts;
mod element;
mod entry;
mod fields;
mod fields_v1;
mod merge;
mod remove;
mod schema;
mod set;
mod update;
mod validate;
mod versions;

pub use apply::{ApplyError, apply, kind_text};
pub use compare::{CompareError, Comparison, compare};
pub use conflicts::{Conflicts, FieldConflict};
pub use element::{ElementError, KeyValue, PathElement, escape_html, path_text};
pub use entry::{Entry, EntryError, Operation, entries_of, read_entries, set_entries};
pub use fields::fields_of;
pub use merge::merge;
pub use remove::remove;
pub use schema::{FieldSchema, FieldShape, JsonType, ListKey, Untyped};
pub use set::FieldSet;
pub use update::{MAX_UPDATE_ENTRIES, Write, track_update};
pub use validate::validate;
pub use versions::{Converted, VersionError, Versions};
