//! A compaction: the revision is announced first, then history is removed step by step along the
//! log.

use crate::error::CompactError;
use crate::fault::{on_fault, unless_fault};
use crate::history::{Entry, KeyValue, Removed};
use crate::revision::Revision;
use crate::store::Store;
use crate::sync::Arc;
use crate::sync::epoch::{collect, pin};

/// The number of records that one step removes. Between two steps other threads can take the locks.
const STEP_RECORDS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 128 };

/// An announced compaction, before it frees memory.
///
/// As soon as [`Engine::compact`](crate::Engine::compact) has returned this, reads below the
/// compacted revision fail, and watches that start below it end. [`Compaction::run`] then frees the
/// history that can no longer be read. If the value is dropped instead, the next compaction frees
/// that history too.
///
/// ```
/// # use revstore_engine::{Engine, Revision, Range, KeyRange, ReadError};
/// # let engine = Engine::builder().build();
/// for value in ["1", "2", "3"] {
///     engine.put("key", value)?;
/// }
/// engine.compact(Revision(4))?.run();
/// let old = engine.range(&Range::of(KeyRange::one("key")).at(Revision(3)));
/// assert!(matches!(old, Err(ReadError::Compacted { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "`run` frees the memory"]
pub struct Compaction {
    store: Arc<Store>,
    revision: Revision,
}

impl Compaction {
    /// Publishes `requested` as the compacted revision (CO-4): from now on no read below it
    /// succeeds.
    pub(crate) fn announce(store: &Arc<Store>, requested: Revision) -> Result<Self, CompactError> {
        // Under the sequencer, so that the compacted revision does not change during a transaction
        // (TXN-22), and so that the removal either waits for a pin or does not affect its position.
        let _sequencer = store.sequencer.lock();
        let current = store.current.load();
        if let Some(compacted) = store.compacted.load().filter(|last| requested <= *last) {
            return Err(CompactError::Compacted {
                requested,
                compacted,
            });
        }
        // CO-3: a store that was never compacted has the compacted revision -1, so 0 is accepted
        // once.
        if requested < Revision(0) {
            return Err(CompactError::Compacted {
                requested,
                compacted: Revision(0),
            });
        }
        if requested > current {
            return Err(CompactError::Future { requested, current });
        }
        store.compacted.publish(requested);
        Ok(Self {
            store: store.clone(),
            revision: requested,
        })
    }

    /// Returns the compaction at a revision that was announced before.
    pub(crate) fn again(store: &Arc<Store>, compacted: Revision) -> Self {
        Self {
            store: store.clone(),
            revision: compacted,
        }
    }

    /// Returns the compacted revision: the oldest one that can still be read.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Frees the history below the compacted revision.
    ///
    /// The cost is proportional to the number of versions freed, not to the size of the store. No
    /// writer waits for more than one step, which processes up to 128 keys. If a transaction still
    /// reads history that the compaction removes, the call waits for it. It does not wait for
    /// [snapshots](crate::Snapshot): the versions that they read are kept for them. What a
    /// [dump](crate::Dump) or a [follower](crate::Follower) has yet to read is freed when they have read it.
    pub fn run(mut self) {
        let store = self.store.clone();
        // I5: the dispatch reads published events from the log, so it comes before the removal. All
        // revisions to remove were published when the compaction was announced. I8: it wakes tasks,
        // so no lock is held.
        unless_fault!(store.faults, RemoveUndispatched, store.hub.dispatch(&store));
        let _one_at_a_time = store.compaction.lock();
        unless_fault!(
            store.faults,
            IgnorePins,
            store.pins.wait_until_unaffected(self.revision)
        );
        unless_fault!(
            store.faults,
            IgnoreHolds,
            self.revision = store.holds.limit(self.revision)
        );
        // Complete: snapshots that are opened after the announcement read no version that this
        // compaction removes.
        let snapshots = store.snapshots.below(self.revision);
        self.remove_below(&snapshots);
        self.remove_replaced_at(&snapshots);
        collect();
    }

    /// Removes the versions that a record below the compacted revision names, and these records.
    fn remove_below(&self, snapshots: &[Revision]) {
        loop {
            let step = self.store.log.take_below(self.revision, STEP_RECORDS);
            if step.is_empty() {
                break;
            }
            self.cut(&step, snapshots);
            step.free(&pin(), self.store.faults);
        }
    }

    /// Removes older versions of the keys that were written exactly at the compacted revision. The
    /// log keeps their records.
    fn remove_replaced_at(&self, snapshots: &[Revision]) {
        let mut next = self.revision.start();
        loop {
            let log = &self.store.log;
            let step = log.copy(next, self.revision.end(), STEP_RECORDS);
            let Some(last) = step.last() else { break };
            next = last.position().next();
            self.cut(&step, snapshots);
        }
    }

    /// Cuts the entries of some records, and removes the entries that become empty. Keeps the
    /// versions that the snapshots at some revisions read.
    fn cut(&self, records: &[KeyValue], snapshots: &[Revision]) {
        let store = &*self.store;
        let mut removed = Removed::default();
        let mut emptied = Vec::new();
        for record in records {
            let Some(entry) = store.entry_of(record) else {
                continue;
            };
            let entry = &*entry;
            let read = self.read_by_snapshots(entry, snapshots);
            // I7: before the removal, so that a snapshot finds the version in one of both places.
            unless_fault!(store.faults, KeepAfterCut, store.snapshots.keep(&read));
            if entry.cut(self.revision, &mut removed, &pin()) {
                emptied.push(entry.clone());
            }
            on_fault!(store.faults, KeepAfterCut, store.snapshots.keep(&read));
        }
        store.history_bytes.subtract(removed.size_bytes());
        store.versions.subtract(removed.len() as u64);
        store.compacted_versions.add(removed.len() as u64);
        store.compacted_bytes.add(removed.size_bytes());
        removed.free(&pin(), store.faults);
        self.retire(&emptied);
    }

    /// Returns the versions of an entry that this compaction removes although snapshots read them,
    /// each with the revision of the snapshots.
    fn read_by_snapshots(
        &self,
        entry: &Entry,
        snapshots: &[Revision],
    ) -> Vec<(Revision, KeyValue)> {
        let mut read = Vec::new();
        if snapshots.is_empty() {
            return read;
        }
        // All versions before the visible one at the compacted revision are removed.
        let guard = pin();
        let Some(visible) = entry.version_at(self.revision.end(), &guard) else {
            return read;
        };
        let mut found: Option<KeyValue> = None;
        for revision in snapshots.iter().rev() {
            let at = revision.end();
            if visible.position() <= at {
                continue;
            }
            // Snapshots at adjacent revisions mostly read the same version.
            if found.as_ref().is_none_or(|found| at < found.position()) {
                found = entry.read(at, &guard).as_deref().cloned();
            }
            read.extend(found.clone().map(|found| (*revision, found)));
        }
        read
    }

    /// Retires empty entries and takes them out of the index, except those that a writer has added
    /// a version to in the meantime.
    fn retire(&self, emptied: &[Entry]) {
        if emptied.is_empty() {
            return;
        }
        let _sequencer = self.store.sequencer.lock();
        for entry in emptied {
            if !entry.is_retired() && entry.retire() {
                self.store.index.remove(entry.key());
            }
        }
    }
}
