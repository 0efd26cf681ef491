//! A bounded list of causes.

use std::collections::HashSet;

use revstore_watch_cache::status::{FieldPath, StatusCause};
use serde_json::Value;

/// The maximum number of causes of one check. Further ones are left out.
pub const CAUSES_MAX: usize = 500;
/// The maximum number of bytes in the causes of one check. Further ones are left out.
pub const CAUSE_BYTES_MAX: usize = 1024 * 1024;

/// Returns the error of a value that is none of the supported ones.
pub(crate) fn not_supported(field: FieldPath, value: &Value, supported: &[&str]) -> StatusCause {
    let mut cause = StatusCause::not_supported(field, value.clone(), supported);
    if value.is_null() {
        cause.message = cause.message.replacen("\"null\"", "null", 1);
    }
    cause
}

/// Causes of errors, up to a number and a size. It never forgets that there was one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Causes {
    list: Vec<StatusCause>,
    bytes: usize,
}

impl Causes {
    pub(crate) fn push(&mut self, cause: StatusCause) {
        if self.is_full() {
            return;
        }
        self.bytes += cause.field.len() + cause.message.len();
        self.list.push(cause);
    }

    pub(crate) fn extend(&mut self, causes: impl IntoIterator<Item = StatusCause>) {
        for cause in causes {
            self.push(cause);
        }
    }

    pub(crate) fn append(&mut self, other: Self) {
        if self.list.is_empty() {
            *self = other;
        } else {
            self.extend(other.list);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &StatusCause> {
        self.list.iter()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns whether further causes would be left out, so that a check can end.
    pub(crate) fn is_full(&self) -> bool {
        self.list.len() >= CAUSES_MAX || self.bytes >= CAUSE_BYTES_MAX
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.bytes = 0;
    }

    /// Returns the causes in their order, each one once.
    pub(crate) fn into_unique(self) -> Vec<StatusCause> {
        let mut seen = HashSet::new();
        let mut list = self.list;
        list.retain(|cause| seen.insert((cause.field.clone(), cause.message.clone())));
        list
    }

    /// Returns the causes sorted by their texts.
    pub(crate) fn into_sorted(self) -> Vec<StatusCause> {
        let mut list = self.into_unique();
        list.sort_by_cached_key(ToString::to_string);
        list
    }
}
