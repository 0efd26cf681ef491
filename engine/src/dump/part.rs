//! Parts of the copy of a store.

use std::collections::HashMap;
use std::ops::ControlFlow;

use crate::history::{Entry, KeyValue, LeaseId, NewSequence};
use crate::index::SortedTree;
use crate::key::KeyRange;
use crate::memory::Batch;
use crate::revision::{Position, Revision};
use crate::store::Store;
use crate::sync::epoch::pin;

/// The number of records of the log that are prefetched before the first of them is shared: about as many
/// cache misses as a processor overlaps.
const PREFETCHED_RECORDS: usize = 16;

/// What a copy contains.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// The compacted revision of the copy; `None` if nothing of it is compacted.
    pub(super) compacted: Option<Revision>,
    /// The last position of the copy.
    pub(super) through: Position,
}

/// Some records of the log, and some keys with their kept versions.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// The positions of the first and of the last record; `None` for no record.
    pub(super) records: Option<(Position, Position)>,
    /// `None` for no key.
    pub(super) keys: Option<KeyRange>,
    /// About how many versions and keys there are. Of more, and of 0, the copy may take a few KiB that it does not need.
    pub(super) expected: Expected,
}

/// About how many versions and keys are copied.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Expected {
    pub(super) versions: usize,
    pub(super) keys: usize,
}

/// A copy of a part: new nodes and new entries, which share the records.
#[derive(Debug)]
pub(super) struct PartCopy {
    /// The records of the log.
    pub(super) records: NewSequence,
    pub(super) entries: SortedTree,
    /// The keys of each lease, in key order.
    pub(super) leased: HashMap<LeaseId, Vec<Entry>>,
    /// The number of versions of the entries.
    pub(super) versions: u64,
    /// The bytes of these versions.
    pub(super) bytes: u64,
}

impl Part {
    /// Copies the part. The caller holds the history from the compacted revision of the extent on. Otherwise, the copy may
    /// lack versions.
    pub(super) fn copy(&self, origin: &Store, extent: Extent, batch: &mut Batch) -> PartCopy {
        let mut copy = PartCopy::expecting(self.expected);
        if let Some((first, last)) = self.records {
            copy.copy_records(origin, first, last, batch);
        }
        if let Some(keys) = &self.keys {
            copy.copy_entries(origin, extent, keys, batch);
        }
        copy
    }
}

impl PartCopy {
    fn expecting(expected: Expected) -> Self {
        Self {
            records: NewSequence::expecting(expected.versions),
            // Keys that are created meanwhile have no version up to the last position.
            entries: SortedTree::expecting(expected.keys),
            leased: HashMap::new(),
            versions: 0,
            bytes: 0,
        }
    }

    /// Joins the copies of all parts, in order.
    pub(super) fn joined(parts: impl Iterator<Item = Self>) -> Self {
        let mut all = Self::expecting(Expected::default());
        parts.for_each(|part| all.append(part));
        all
    }

    /// Adds the copy of the next part.
    fn append(&mut self, next: Self) {
        self.records.append(next.records);
        self.entries.append(next.entries);
        for (lease, keys) in next.leased {
            self.leased.entry(lease).or_default().extend(keys);
        }
        self.versions += next.versions;
        self.bytes += next.bytes;
    }

    /// Frees a copy that is not used.
    #[cfg(not(any(loom, shuttle)))]
    pub(super) fn discard(self) {
        // Until they belong to a sequence and to a tree, the nodes do not free what they contain.
        drop(self.records.finish());
        self.entries.discard();
    }

    fn copy_records(&mut self, origin: &Store, first: Position, last: Position, batch: &mut Batch) {
        let mut from = Some(first);
        while let Some(next) = from {
            let guard = pin();
            let (slice, is_last) = origin.log.slice(next, last, &guard);
            for group in slice.chunks(PREFETCHED_RECORDS) {
                for record in group {
                    std::hint::black_box(record.mod_revision());
                }
                for record in group {
                    self.records.push(record.clone(), batch);
                }
            }
            from = slice
                .last()
                .filter(|_| !is_last)
                .map(|last| last.position().next());
        }
    }

    fn copy_entries(&mut self, origin: &Store, extent: Extent, keys: &KeyRange, batch: &mut Batch) {
        let compacted = extent.compacted.unwrap_or(Revision(0));
        let mut versions = Vec::new();
        origin.index.scan(keys, |found| {
            let entry = found.entry();
            found.copy_kept(compacted, extent.through, &mut versions);
            let Some(newest) = versions.last() else {
                return ControlFlow::Continue(());
            };
            let (is_live, lease) = (!newest.is_tombstone(), newest.lease());
            self.versions += versions.len() as u64;
            self.bytes += versions.iter().map(KeyValue::size_bytes).sum::<u64>();
            let own = Entry::of_versions(entry.key(), &mut versions, batch);
            if let Some(lease) = lease {
                self.leased.entry(lease).or_default().push(own.clone());
            }
            self.entries.push(own, is_live, batch);
            ControlFlow::Continue(())
        });
        // As in a push: while the keys are in the caches of the processor.
        self.entries.end_leaf();
    }
}
