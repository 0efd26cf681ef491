//! Entries: a key and its versions; etcd's `keyIndex`.
//!
//! ```text
//! key "a"   2 ── 5 ── 6† ────── 9 ── 12        † tombstone: ends a generation
//!           └─ generation 1 ─┘  └─ generation 2 …
//! ```

use std::fmt;
use std::mem::ManuallyDrop;

use super::record::{Header, KeyValue};
use super::sequence::Sequence;
use crate::index::Keyed;
use crate::memory::{AtomicThin, Thin};
use crate::revision::{Position, Revision};
use crate::sync::{Mutex, MutexGuard, Rank};

/// The maximum number of versions that one cut removes. A key with more versions has more records
/// in the log, and is cut again for each of them.
const CUT_VERSIONS_MAX: usize = if cfg!(loom) { 2 } else { 128 };

/// A handle on a key and all its kept versions.
///
/// - Two handles are equal if their keys are equal; their order is the order of the keys (DM-9).
/// - Versions are in revision order. They are only added at the end, under the sequencer.
/// - Compaction removes versions from the front, at any time.
///   [`Index::free`](crate::index::Index::free) frees them, because reads access the newest version
///   without a lock.
/// - An entry that is empty after a compaction is *retired* and taken out of the index, both under
///   the sequencer. A writer that has found it before must look the key up again, so no write is
///   lost.
#[derive(Clone)]
pub(crate) struct Entry(Thin<EntryData>);

#[derive(Debug)]
pub(crate) struct EntryData {
    /// The newest version, apart from the others because most reads need only this one. Changed
    /// only with `older` locked; closed when the entry is retired.
    newest: AtomicThin<Header>,
    /// Rank `Entry`. The other versions; empty if there is no newest one. Held for a search, a push
    /// or a cut, never while a value is copied or freed.
    older: Mutex<Sequence>,
}

/// Versions that were removed from their entries, but that reads may still access. Dropping this
/// frees nothing; [`Index::free`](crate::index::Index::free) does.
#[derive(Debug, Default)]
pub(crate) struct Removed(ManuallyDrop<Vec<KeyValue>>);

impl Removed {
    /// Returns the versions, which the caller may free.
    ///
    /// # Safety
    /// All reads that began before the last of these versions was removed, and that access newest
    /// versions without a lock, must have ended.
    pub(crate) unsafe fn into_freeable(self) -> Vec<KeyValue> {
        ManuallyDrop::into_inner(self.0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.0.iter().map(KeyValue::size_bytes).sum()
    }
}

impl Entry {
    pub(crate) fn new(key: &[u8]) -> Self {
        let data = EntryData {
            newest: AtomicThin::new(),
            older: Mutex::new(Rank::Entry, Sequence::new()),
        };
        Self(Thin::new(data, 0, [key, &[]]))
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        self.0.bytes()
    }

    /// Returns whether both handles refer to the same allocation.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0.is(&other.0)
    }

    /// Returns the newest version at or before `at`, if the key is live there. Takes constant time
    /// and no lock for the newest version, otherwise the lock and time logarithmic in the number of
    /// versions.
    ///
    /// # Safety
    /// Versions that are [`Removed`] during the call must not be freed before it returns.
    #[inline]
    pub(crate) unsafe fn read(&self, at: Position) -> Option<KeyValue> {
        // SAFETY: guaranteed by the caller.
        let newest = unsafe { self.peek() }?;
        if newest.position() <= at {
            return live(&newest);
        }
        self.lock().older.at(at).and_then(live)
    }

    /// As [`Entry::read`], with the lock taken, for callers that cannot rule out that removed
    /// versions are freed.
    pub(crate) fn read_locked(&self, at: Position) -> Option<KeyValue> {
        self.version_at(at)
            .filter(|version| !version.is_tombstone())
    }

    /// Returns the version before `position`, which may be a tombstone.
    pub(crate) fn version_before(&self, position: Position) -> Option<KeyValue> {
        let before = match position.sub.checked_sub(1) {
            Some(sub) => Position { sub, ..position },
            None => position.revision.previous().end(),
        };
        self.version_at(before)
    }

    fn version_at(&self, at: Position) -> Option<KeyValue> {
        let versions = self.lock();
        match versions.newest()? {
            newest if newest.position() <= at => Some(KeyValue::clone(&newest)),
            _ => versions.older.at(at).cloned(),
        }
    }

    /// Prefetches the memory that a read of the newest version accesses. A caller that prefetches
    /// several entries before it reads the first waits for their cache misses at the same time.
    ///
    /// # Safety
    /// As for [`Entry::read`].
    #[inline]
    pub(crate) unsafe fn touch_newest(&self) {
        // SAFETY: guaranteed by the caller.
        let newest = unsafe { self.peek() };
        std::hint::black_box(newest.map(|newest| newest.mod_revision()));
    }

    /// Prefetches the entry and its key, as [`Entry::touch_newest`].
    #[inline]
    pub(crate) fn touch(&self) {
        std::hint::black_box((self.is_retired(), self.key().last()));
    }

    /// Returns the newest version, which may be a tombstone. Called with the sequencer held.
    #[inline]
    pub(crate) fn newest(&self) -> Option<KeyValue> {
        self.lock().newest().as_deref().cloned()
    }

    /// Adds the newest version. The caller must hold the sequencer.
    #[inline]
    pub(crate) fn push(&self, version: KeyValue) {
        let mut versions = self.lock();
        if let Some(previous) = self.newest_cell().replace(Some(version.into())) {
            versions.older.push(previous.into());
        }
    }

    /// Returns all kept versions up to `through`, oldest first.
    pub(crate) fn versions(&self, through: Revision) -> Vec<KeyValue> {
        let versions = self.lock();
        let newest = versions.newest();
        let kept = versions.older.iter().chain(newest.as_deref());
        kept.take_while(|version| version.mod_revision() <= through)
            .cloned()
            .collect()
    }

    /// Removes up to [`CUT_VERSIONS_MAX`] of the versions that a compaction at `compacted` drops
    /// (I7, CO-4, CO-5): the versions that a newer one at or below `compacted` replaces, and the
    /// newest one up to there if it is a tombstone below `compacted`. Returns whether the entry is
    /// empty.
    pub(crate) fn cut(&self, compacted: Revision, removed: &mut Removed) -> bool {
        // CO-5: a tombstone exactly at the compacted revision stays until the next compaction.
        let is_kept =
            |newest: &KeyValue| !newest.is_tombstone() || newest.mod_revision() >= compacted;
        let mut versions = self.lock();
        let Some(newest) = versions.newest() else {
            return true;
        };
        // One more than the maximum, in case that the last one is kept.
        let older = &mut versions.older;
        let through = older.count_through(compacted.end(), CUT_VERSIONS_MAX + 1);
        let superseded = if newest.mod_revision() <= compacted {
            through
        } else {
            // The last of these is the visible version at the compacted revision.
            through - usize::from(older.at(compacted.end()).is_some_and(is_kept))
        };
        older.take_front(superseded.min(CUT_VERSIONS_MAX), &mut removed.0);
        if versions.older.is_empty() && !is_kept(&newest) {
            removed
                .0
                .extend(self.newest_cell().replace(None).map(KeyValue::from));
            return true;
        }
        false
    }

    /// Retires the entry if it is empty; returns whether it is retired. The caller must hold the
    /// sequencer, and must then take the entry out of the index.
    pub(crate) fn retire(&self) -> bool {
        self.newest_cell().close();
        self.is_retired()
    }

    #[inline]
    pub(crate) fn is_retired(&self) -> bool {
        self.newest_cell().is_closed()
    }

    /// Frees all versions and retires the entry.
    ///
    /// # Safety
    /// No read may access the entry during the call or later.
    pub(crate) unsafe fn clear(&self) {
        let older = std::mem::take(&mut *self.lock().older);
        drop((self.newest_cell().take_and_close(), older));
    }

    #[inline]
    fn newest_cell(&self) -> &AtomicThin<Header> {
        &self.0.header().newest
    }

    fn lock(&self) -> Versions<'_> {
        Versions {
            entry: self,
            older: self.0.header().older.lock(),
        }
    }

    /// # Safety
    /// As for [`Entry::read`].
    #[inline]
    unsafe fn peek(&self) -> Option<ManuallyDrop<KeyValue>> {
        // SAFETY: a version that leaves the cell is kept in `older`, or is `Removed`, which the
        // caller guarantees not to be freed.
        let newest = unsafe { self.newest_cell().peek() }?;
        Some(ManuallyDrop::new(ManuallyDrop::into_inner(newest).into()))
    }
}

/// The versions of an entry, with the lock held.
struct Versions<'a> {
    entry: &'a Entry,
    older: MutexGuard<'a, Sequence>,
}

impl Versions<'_> {
    fn newest(&self) -> Option<ManuallyDrop<KeyValue>> {
        // SAFETY: the newest version changes only with the lock held, which `self` holds.
        unsafe { self.entry.peek() }
    }
}

#[inline]
fn live(version: &KeyValue) -> Option<KeyValue> {
    (!version.is_tombstone()).then(|| version.clone())
}

impl Keyed for Entry {
    fn key(&self) -> &[u8] {
        self.key()
    }
}

impl fmt::Debug for Entry {
    /// Formats the key only: a version contains its entry, so formatting the versions would not
    /// end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entry(\"{}\")", self.key().escape_ascii())
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(other.key())
    }
}

#[cfg(test)]
mod tests {
    use super::{CUT_VERSIONS_MAX, Entry, Removed};
    use crate::history::{KeyValue, PendingRecord};
    use crate::revision::Revision;

    /// Puts at the positive revisions, deletions at the negated ones.
    fn entry(changes: &[i64]) -> Entry {
        let entry = Entry::new(b"k");
        for change in changes {
            let position = Revision(change.abs()).start();
            let previous = entry.newest().filter(|newest| !newest.is_tombstone());
            entry.push(if *change < 0 {
                KeyValue::tombstone(entry.clone(), position)
            } else {
                let pending = PendingRecord::for_entry(entry.clone(), b"v", false);
                pending.finish(&entry, position, previous.as_ref(), None)
            });
        }
        entry
    }

    fn check_read(changes: &[i64], at: i64, expected: Option<i64>) {
        let (entry, at) = (entry(changes), Revision(at).end());
        // SAFETY: nothing is removed.
        let found = unsafe { entry.read(at) };
        assert_eq!(found, entry.read_locked(at));
        assert_eq!(
            found.map(|kv| kv.mod_revision().0),
            expected,
            "{changes:?} at {at:?}"
        );
    }

    #[test]
    fn a_read_finds_the_newest_version_at_its_revision() {
        check_read(&[], 9, None);
        check_read(&[5], 4, None);
        check_read(&[5], 5, Some(5));
        check_read(&[2, 5, -6, 9, 12], 4, Some(2));
        check_read(&[2, 5, -6, 9, 12], 5, Some(5));
        check_read(&[2, 5, -6, 9, 12], 8, None);
        check_read(&[2, 5, -6, 9, 12], 11, Some(9));
        check_read(&[2, 5, -6, 9, 12], 99, Some(12));
    }

    fn check_cut(changes: &[i64], compacted: i64, kept: &[i64]) {
        let entry = entry(changes);
        let (emptied, removed) = cut(&entry, compacted);
        assert_eq!(
            kept_versions(&entry),
            kept,
            "{changes:?} cut at {compacted}"
        );
        assert_eq!(removed + kept.len(), changes.len());
        assert_eq!(emptied, kept.is_empty());
    }

    fn cut(entry: &Entry, compacted: i64) -> (bool, usize) {
        let mut removed = Removed::default();
        let emptied = entry.cut(Revision(compacted), &mut removed);
        // SAFETY: no other thread has the entry.
        (emptied, unsafe { removed.into_freeable() }.len())
    }

    fn kept_versions(entry: &Entry) -> Vec<i64> {
        let versions = entry.versions(Revision(i64::MAX));
        versions.iter().map(|kv| kv.mod_revision().0).collect()
    }

    #[test]
    fn i7_a_cut_keeps_the_versions_visible_at_the_compacted_revision_or_later() {
        check_cut(&[2, 5, 8], 1, &[2, 5, 8]);
        check_cut(&[2, 5, 8], 2, &[2, 5, 8]);
        check_cut(&[2, 5, 8], 6, &[5, 8]);
        check_cut(&[2, 5, 8], 8, &[8]);
        check_cut(&[2, 5, -6, 9], 7, &[9]);
        check_cut(&[2, -6], 7, &[]);
    }

    #[test]
    fn co_5_a_tombstone_exactly_at_the_compacted_revision_is_kept() {
        check_cut(&[2, -6], 6, &[6]);
        check_cut(&[2, -6, 7], 6, &[6, 7]);
    }

    #[test]
    fn only_an_empty_entry_is_retired() {
        let live = entry(&[2]);
        assert!(!live.retire() && !live.is_retired());
        let emptied = entry(&[2, -3]);
        assert!(cut(&emptied, 4).0);
        assert!(emptied.retire() && emptied.is_retired());
    }

    #[test]
    fn a_key_of_many_versions_is_cut_in_steps() {
        let max = i64::try_from(CUT_VERSIONS_MAX).expect("a small number");
        let puts: Vec<i64> = (1..=3 * max).collect();
        let entry = entry(&puts);
        for step in 1..=2 {
            assert_eq!(cut(&entry, 2 * max + 1), (false, CUT_VERSIONS_MAX));
            assert_eq!(kept_versions(&entry), puts[step * CUT_VERSIONS_MAX..]);
            check_reads(&entry, &puts[step * CUT_VERSIONS_MAX..]);
        }
        assert_eq!(cut(&entry, 2 * max + 1), (false, 0));
    }

    fn check_reads(entry: &Entry, kept: &[i64]) {
        let read = |at: i64| entry.read_locked(Revision(at).end());
        assert_eq!(read(kept[0] - 1), None);
        for revision in kept {
            let found = read(*revision).map(|kv| kv.mod_revision().0);
            assert_eq!(found, Some(*revision));
        }
    }
}
