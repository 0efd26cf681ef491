//! The lists of work that is due later.

use std::time::Duration;

/// Work that is due at a time, as [`Timed::pending`](crate::Timed::pending) lists it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DueWork {
    /// The time of the clock at which the work is due.
    pub due: Duration,
    /// The kind of the work, such as `lease`.
    pub kind: &'static str,
    /// The id of what the work is about: of a lease, its hexadecimal number. Empty for work that exists once.
    pub id: String,
}

/// A part of the work that is due later: what is due first, and the number of what is not listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingWork {
    /// The listed work, in the order of its due times.
    pub work: Vec<DueWork>,
    /// The number of further entries, which are due at the time of the last listed one or later.
    pub more: u64,
}

impl PendingWork {
    /// Adds the work of another list, and keeps the `max` entries that are due first. The time is that of
    /// sorting both lists.
    pub fn merge(&mut self, other: Self, max: usize) {
        self.more = self.more.saturating_add(other.more);
        self.work.extend(other.work);
        self.work.sort();
        self.truncate(max);
    }

    /// Removes what exceeds `max` entries from the list, and counts it.
    pub fn truncate(&mut self, max: usize) {
        let removed = self.work.len().saturating_sub(max);
        self.work.truncate(max);
        self.more = self.more.saturating_add(removed as u64);
    }
}
