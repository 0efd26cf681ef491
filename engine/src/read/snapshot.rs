//! Snapshots: reads at one revision that compactions do not end.

use std::iter::FusedIterator;
use std::ops::ControlFlow;
use std::time::Duration;
use std::vec;

use crate::error::SnapshotError;
use crate::fault::on_fault;
use crate::history::KeyValue;
use crate::index::Scan;
use crate::key::KeyRange;
use crate::revision::Revision;
use crate::store::Store;
use crate::sync::Arc;
use crate::sync::epoch::pin;

/// The number of versions kept for the snapshot that one step of an iterator reads.
const STEP_VERSIONS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 64 };

/// The live keys of a store at one revision, until the snapshot is dropped; created by
/// [`Engine::snapshot`](crate::Engine::snapshot).
///
/// # Guarantees
/// - All reads return the keys and values that were live at [`revision`](Self::revision), also if
///   that revision is compacted in the meantime. Other reads below the compacted revision fail as
///   without the snapshot.
/// - No compaction waits for a snapshot, and no writer does. A compaction keeps the versions that
///   only snapshots still read for them, and frees all others.
/// - What snapshots hold back is bounded, see
///   [`snapshot_bytes_max`](crate::EngineBuilder::snapshot_bytes_max). When the bound is passed, the
///   oldest snapshots that hold something back are *lost*: their versions are freed, and a read that
///   needs them fails with [`SnapshotError::Lost`]. A version that a snapshot returns is always the
///   correct one.
///
/// # Costs
/// A snapshot copies nothing. While it is open, a compaction of its revision takes one more search
/// for each version that it removes, and keeps the version with about 16 bytes. A read costs as
/// much as one at an old revision, and in addition a short lock if the key is not found in the
/// store. Dropping the snapshot takes time proportional to the number of versions kept for it, and
/// holds no lock meanwhile.
///
/// ```
/// # use revstore_engine::{Engine, KeyRange, Range, ReadError};
/// let engine = Engine::builder().build();
/// let first = engine.put("color", "red")?.revision;
/// let snapshot = engine.snapshot()?;
/// let second = engine.put("color", "blue")?.revision;
/// engine.compact(second)?.run();
///
/// let old = Range::of(KeyRange::one("color")).at(first);
/// assert!(matches!(engine.range(&old), Err(ReadError::Compacted { .. })));
/// assert_eq!(snapshot.get("color")?.unwrap().value(), b"red");
/// for kv in snapshot.iter(KeyRange::all()) {
///     assert_eq!(kv?.key(), b"color");
/// }
/// assert!(snapshot.pinned_bytes() > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "the snapshot ends when it is dropped"]
pub struct Snapshot {
    store: Arc<Store>,
    revision: Revision,
    /// The time at which the snapshot was opened.
    opened: Duration,
}

impl Snapshot {
    /// Opens a snapshot at the current revision.
    pub(crate) fn open(store: &Arc<Store>) -> Result<Self, SnapshotError> {
        // I8: a clock may be code of the user, so it is read with no lock held.
        let opened = store.clock.now();
        let revision = {
            // I7: under the sequencer, so that every compaction above the revision is announced
            // later, and finds the snapshot.
            let sequencer = store.sequencer.lock();
            let current = store.current.load();
            on_fault!(store.faults, OpenOutsideSequencer, drop(sequencer));
            store.snapshots.open(current)?;
            current
        };
        Ok(Self {
            store: store.clone(),
            revision,
            opened,
        })
    }

    /// Returns the revision that the snapshot reads at.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Returns the newest version of a key at the revision, or `None` if the key was not live.
    ///
    /// # Errors
    /// [`SnapshotError::Lost`] if the snapshot is lost, and with it the answer.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<KeyValue>, SnapshotError> {
        let key = key.as_ref();
        // I7: in this order. A compaction keeps a version before it removes it from the index, and
        // removes the versions of a key from the oldest on: a version found is the right one.
        match self.store.index.read(key, self.revision.end()) {
            Some(found) => Ok(Some(found)),
            None => self.store.snapshots.get(self.revision, key),
        }
    }

    /// Returns an iterator over the live keys of a range at the revision, in key order.
    ///
    /// It reads the keys in steps of a few hundred and holds no lock between two steps, so it may be
    /// kept as long as the snapshot. After an error it ends.
    ///
    /// ```
    /// # use revstore_engine::{Engine, KeyRange};
    /// let engine = Engine::builder().build();
    /// engine.put("job/1", "queued")?;
    /// engine.put("job/2", "done")?;
    /// let snapshot = engine.snapshot()?;
    /// engine.delete(&KeyRange::prefix("job/"))?;
    /// let mut keys = Vec::new();
    /// for kv in snapshot.iter(KeyRange::prefix("job/")) {
    ///     keys.push(kv?.key_bytes());
    /// }
    /// assert_eq!(keys, ["job/1", "job/2"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn iter(&self, range: KeyRange) -> SnapshotIter<'_> {
        SnapshotIter {
            snapshot: self,
            rest: Some(range).filter(|range| !range.is_empty()),
            found: Vec::new().into_iter(),
        }
    }

    /// Returns the time since the snapshot was opened, by the engine's clock.
    pub fn age(&self) -> Duration {
        self.store.clock.now().saturating_sub(self.opened)
    }

    /// Returns the bytes of all versions that compactions have kept for this snapshot, each counted
    /// as [`KeyValue::size_bytes`]; 0 for a lost snapshot.
    ///
    /// Snapshots of one revision share these versions. A version that is kept for snapshots of
    /// several revisions is counted for each revision.
    pub fn pinned_bytes(&self) -> u64 {
        self.store.snapshots.pinned_bytes(self.revision)
    }

    /// Reads the keys of one step of an iterator. Returns them in key order, and the range of the
    /// keys after them, unless `range` contains no more.
    fn read_step(
        &self,
        range: &KeyRange,
    ) -> Result<(Vec<KeyValue>, Option<KeyRange>), SnapshotError> {
        let (store, at) = (&self.store, self.revision.end());
        let mut found = Vec::new();
        // I7: the index before the kept versions, as in `get`.
        let mut scan = Scan::of(range);
        scan.step(&store.index, &pin(), |entry| {
            found.extend(entry.read(at).as_deref().cloned());
            ControlFlow::Continue(())
        });
        let kept = store.snapshots.page(self.revision, range, STEP_VERSIONS)?;
        // The last key up to which both parts are complete; `None` if they are complete.
        let last_kept = kept.last().filter(|_| kept.len() == STEP_VERSIONS);
        let last = match (scan.last(), last_kept) {
            (Some(visited), Some(kept)) => Some(visited.min(kept.key())),
            (Some(visited), None) => Some(visited),
            (None, kept) => kept.map(KeyValue::key),
        };
        let rest = last.map(|last| range.after(last));
        let rest = rest.filter(|rest| !rest.is_empty());
        let is_complete = |kv: &KeyValue| last.is_none_or(|last| kv.key() <= last);
        found.retain(is_complete);
        found.extend(kept.iter().filter(|kv| is_complete(kv)).cloned());
        found.sort_by(|a, b| a.key().cmp(b.key()));
        // A version that was removed from the index in between is in both parts.
        found.dedup_by(|a, b| a.key() == b.key());
        Ok((found, rest))
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        // The versions are freed here, with no lock held.
        drop(self.store.snapshots.close(self.revision));
    }
}

/// An iterator over the keys of a [`Snapshot`], created by [`Snapshot::iter`].
#[derive(Debug)]
pub struct SnapshotIter<'a> {
    snapshot: &'a Snapshot,
    /// The keys that were not read yet; `None` at the end.
    rest: Option<KeyRange>,
    /// The keys of the current step.
    found: vec::IntoIter<KeyValue>,
}

impl Iterator for SnapshotIter<'_> {
    type Item = Result<KeyValue, SnapshotError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(kv) = self.found.next() {
                return Some(Ok(kv));
            }
            let range = self.rest.take()?;
            match self.snapshot.read_step(&range) {
                Ok((found, rest)) => {
                    self.found = found.into_iter();
                    self.rest = rest;
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl FusedIterator for SnapshotIter<'_> {}
