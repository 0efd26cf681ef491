//! The index of the last proposal, which etcd's clients see in Status.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts proposals (DM-13): writes, leases, alarms and compactions, the failed ones too.
#[derive(Debug)]
pub(crate) struct RaftIndex(AtomicU64);

impl RaftIndex {
    /// Where a fresh node stands.
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(4))
    }

    /// Counts one more; returns where it stood before.
    pub(crate) fn advance(&self) -> u64 {
        // Relaxed: a mere count, which orders nothing.
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn get(&self) -> u64 {
        // Relaxed: as above.
        self.0.load(Ordering::Relaxed)
    }
}
