//! The open snapshots, and the versions that compactions keep for them.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::error::SnapshotError;
use crate::history::KeyValue;
use crate::key::KeyRange;
use crate::revision::Revision;
use crate::sync::{Mutex, Rank};

/// The snapshots of a store.
///
/// - A snapshot is opened under the sequencer, at the current revision; a compaction publishes its
///   revision under the sequencer too. So the snapshots that a compaction affects were all opened
///   before it was announced.
/// - A compaction does not wait for snapshots. Before it removes a version from its entry, it adds
///   the version to each open snapshot that reads it. So a reader that looks first into the index
///   and then here finds the version in one of the two.
/// - A snapshot whose versions were given up is not open any more. Its revision is below the
///   compacted one, so no later snapshot has it.
#[derive(Debug)]
pub(crate) struct Snapshots {
    count_max: usize,
    bytes_max: u64,
    /// Rank `Snapshots`. Held for one look or change, and for a page of a reader; never while
    /// versions are freed.
    open: Mutex<OpenSnapshots>,
}

#[derive(Debug, Default)]
struct OpenSnapshots {
    by_revision: BTreeMap<Revision, KeptVersions>,
    /// The number of snapshots, over all revisions.
    count: usize,
    /// The sum of [`KeptVersions::bytes`].
    bytes: u64,
}

/// The versions that are kept for the snapshots of one revision: those that were live at the
/// revision, and that a compaction has removed, or is about to remove, from the index.
#[derive(Debug, Default)]
pub(crate) struct KeptVersions {
    /// The number of snapshots.
    snapshots: usize,
    by_key: BTreeSet<ByKey>,
    /// The sum of [`KeyValue::size_bytes`].
    bytes: u64,
}

impl Snapshots {
    pub(crate) fn new(count_max: usize, bytes_max: u64) -> Self {
        Self {
            count_max,
            bytes_max,
            open: Mutex::new(Rank::Snapshots, OpenSnapshots::default()),
        }
    }

    /// Opens a snapshot. The caller must hold the sequencer; `current` is the current revision.
    pub(crate) fn open(&self, current: Revision) -> Result<(), SnapshotError> {
        let mut open = self.open.lock();
        // The other half is a reserve for the snapshots that are open already.
        if open.count >= self.count_max || open.bytes > self.bytes_max / 2 {
            return Err(SnapshotError::TooMany {
                open: open.count,
                open_max: self.count_max,
                pinned_bytes: open.bytes,
                pinned_bytes_max: self.bytes_max,
            });
        }
        open.count += 1;
        open.by_revision.entry(current).or_default().snapshots += 1;
        Ok(())
    }

    /// Closes a snapshot. Returns the versions that were kept for it, unless another snapshot needs
    /// them; the caller frees them.
    pub(crate) fn close(&self, revision: Revision) -> Option<KeptVersions> {
        let mut open = self.open.lock();
        let kept = open.by_revision.get_mut(&revision)?;
        kept.snapshots -= 1;
        let is_last = kept.snapshots == 0;
        open.count -= 1;
        if is_last { open.remove(revision) } else { None }
    }

    /// Returns the revisions of the snapshots that a compaction at `compacted` affects, in ascending
    /// order.
    pub(crate) fn below(&self, compacted: Revision) -> Vec<Revision> {
        let open = self.open.lock();
        let affected = open.by_revision.range(..compacted);
        affected.map(|(revision, _)| *revision).collect()
    }

    /// Keeps versions, each for the snapshots of a revision, as far as these are still open. Gives
    /// up the oldest snapshots that have kept versions if the bound on bytes is passed.
    pub(crate) fn keep(&self, versions: &[(Revision, KeyValue)]) {
        if versions.is_empty() {
            return;
        }
        let mut given_up = Vec::new();
        let mut open = self.open.lock();
        for (revision, version) in versions {
            let Some(kept) = open.by_revision.get_mut(revision) else {
                continue;
            };
            let bytes = version.size_bytes();
            if kept.by_key.insert(ByKey(version.clone())) {
                kept.bytes += bytes;
                open.bytes += bytes;
            }
            while open.bytes > self.bytes_max
                && let Some(oldest) = open.oldest_with_versions()
            {
                given_up.extend(
                    open.remove(oldest)
                        .inspect(|kept| open.count -= kept.snapshots),
                );
            }
        }
        // The versions are freed without the lock.
        drop(open);
        drop(given_up);
    }

    /// Returns the version of a key that is kept for the snapshots of `revision`.
    pub(crate) fn get(
        &self,
        revision: Revision,
        key: &[u8],
    ) -> Result<Option<KeyValue>, SnapshotError> {
        let open = self.open.lock();
        let kept = self.kept(&open, revision)?;
        Ok(kept.by_key.get(key).map(|kept| kept.0.clone()))
    }

    /// Returns the first versions in `range` that are kept for the snapshots of `revision`, in key
    /// order, at most `max`.
    pub(crate) fn page(
        &self,
        revision: Revision,
        range: &KeyRange,
        max: usize,
    ) -> Result<Vec<KeyValue>, SnapshotError> {
        let open = self.open.lock();
        let kept = self.kept(&open, revision)?;
        let from = (Bound::Included(range.start()), Bound::Unbounded);
        let versions = kept.by_key.range::<[u8], _>(from).map(|kept| &kept.0);
        let inside = versions.take_while(|version| !range.ends_before(version.key()));
        Ok(inside.take(max).cloned().collect())
    }

    /// Returns the bytes that are kept for the snapshots of `revision`.
    pub(crate) fn pinned_bytes(&self, revision: Revision) -> u64 {
        let open = self.open.lock();
        open.by_revision.get(&revision).map_or(0, |kept| kept.bytes)
    }

    /// Returns the number of open snapshots, and the bytes that are kept for them.
    pub(crate) fn totals(&self) -> (usize, u64) {
        let open = self.open.lock();
        (open.count, open.bytes)
    }

    fn kept<'a>(
        &self,
        open: &'a OpenSnapshots,
        revision: Revision,
    ) -> Result<&'a KeptVersions, SnapshotError> {
        let lost = SnapshotError::Lost {
            revision,
            pinned_bytes_max: self.bytes_max,
        };
        open.by_revision.get(&revision).ok_or(lost)
    }
}

impl OpenSnapshots {
    /// Removes the snapshots of a revision, without their number.
    fn remove(&mut self, revision: Revision) -> Option<KeptVersions> {
        let kept = self.by_revision.remove(&revision)?;
        self.bytes -= kept.bytes;
        Some(kept)
    }

    fn oldest_with_versions(&self) -> Option<Revision> {
        let mut open = self.by_revision.iter();
        open.find(|(_, kept)| kept.bytes > 0)
            .map(|(revision, _)| *revision)
    }
}

/// A version, ordered by its key.
#[derive(Debug)]
struct ByKey(KeyValue);

impl Borrow<[u8]> for ByKey {
    fn borrow(&self) -> &[u8] {
        self.0.key()
    }
}
impl PartialEq for ByKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.key() == other.0.key()
    }
}
impl Eq for ByKey {}
impl PartialOrd for ByKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for ByKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.key().cmp(other.0.key())
    }
}
