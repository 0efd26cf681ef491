//! The policy that keeps the history within a number of bytes. etcd has no such policy.

use std::time::Duration;

use super::{Check, Policy};
use crate::revision::Revision;
use crate::store::Store;
use crate::sync::epoch::pin;

/// The maximum number of records that one step copies from the log.
const STEP_RECORDS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 128 };

/// Compacts at the lowest revision that brings the history down to `bytes_max`.
#[derive(Debug)]
pub(super) struct Size {
    pub(super) bytes_max: u64,
    pub(super) every: Duration,
}

impl Policy for Size {
    fn interval(&self) -> Duration {
        self.every
    }

    fn decide(&self, check: &Check<'_>) -> Option<Revision> {
        let excess = check
            .store
            .history_bytes
            .get()
            .checked_sub(self.bytes_max)?;
        (excess > 0).then(|| lowest_revision_that_frees(check.store, excess, check.current))
    }
}

/// Returns the lowest revision at which a compaction frees `excess` bytes, or `current` if no
/// compaction frees as much. Walks the log from the compacted revision up to the result.
///
/// A compaction at revision r frees, of each key, the versions that a version at or below r
/// replaced, and the tombstones below r (CO-5: a tombstone exactly at r stays).
fn lowest_revision_that_frees(store: &Store, excess: u64, current: Revision) -> Revision {
    let mut revision = store.compacted.load().unwrap_or(Revision(0));
    // The bytes that a compaction at `revision` frees, and the bytes of the tombstones at
    // `revision`, which only a compaction above it frees.
    let mut freed = 0;
    let mut tombstones = 0;
    let mut next = revision.start();
    loop {
        let step = store.log.copy(next, current.end(), STEP_RECORDS);
        let Some(last) = step.last() else {
            return current.min(revision.next());
        };
        next = last.position().next();
        for record in &step {
            if record.mod_revision() > revision {
                freed += std::mem::take(&mut tombstones);
                if freed >= excess {
                    return revision.next();
                }
                revision = record.mod_revision();
            }
            let guard = pin();
            let entry = store.entry_of(record);
            let previous = entry
                .as_ref()
                .and_then(|entry| entry.version_before(record.position(), &guard));
            match previous {
                Some(previous) if !previous.is_tombstone() => freed += previous.size_bytes(),
                // A tombstone that the same revision replaces is freed at this revision already.
                Some(previous) if previous.mod_revision() == revision => {
                    tombstones -= previous.size_bytes();
                    freed += previous.size_bytes();
                }
                Some(_) | None => {}
            }
            if freed >= excess {
                return revision;
            }
            if record.is_tombstone() {
                tombstones += record.size_bytes();
            }
        }
    }
}
