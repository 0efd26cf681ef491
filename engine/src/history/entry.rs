//! Entries: what the index holds for each key.
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

/// Versions that one cut removes at most. A key that was written often is in the log often, and so
/// is cut again.
const CUT_VERSIONS_MAX: usize = if cfg!(loom) { 2 } else { 128 };

/// A key and all its kept versions; a handle on it.
///
/// - Two handles are equal if their keys are; they order as their keys do (DM-9).
/// - Versions are in revision order and only ever added at the end, under the sequencer.
/// - Compaction removes versions from the front, at any time. What it removes goes through
///   [`Index::free`](crate::index::Index::free), because reads take no lock to see the newest one.
/// - An entry that compaction emptied is *retired* and leaves the index, both under the sequencer: a
///   writer that found it before must look the key up again, so no write is lost.
#[derive(Clone)]
pub(crate) struct Entry(Thin<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    /// The newest version stands apart: most reads want it, and find it without another step. Changed
    /// only with `older` locked; closed when the entry is retired.
    newest: AtomicThin<Header>,
    /// Rank `Entry`. The other versions; there are none without a newest one. Held for a search, a
    /// push or a cut, never while anything is copied or freed.
    older: Mutex<Sequence>,
}

/// Versions that no longer belong to their keys, but that reads may still look at. Dropping this
/// frees nothing; [`Index::free`](crate::index::Index::free) does.
#[derive(Debug, Default)]
pub(crate) struct Removed(ManuallyDrop<Vec<KeyValue>>);

impl Removed {
    /// Gives the versions to be freed.
    ///
    /// # Safety
    /// No read that looks at the newest version without a lock may have begun before the last of
    /// these was removed.
    pub(crate) unsafe fn into_freeable(self) -> Vec<KeyValue> {
        ManuallyDrop::into_inner(self.0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.0.iter().map(KeyValue::size_bytes).sum()
    }
}

impl Entry {
    pub(crate) fn new(key: &[u8]) -> Self {
        let shared = Shared {
            newest: AtomicThin::new(),
            older: Mutex::new(Rank::Entry, Sequence::new()),
        };
        Self(Thin::new(shared, 0, [key, &[]]))
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        self.0.bytes()
    }

    /// Whether both handles are on the same allocation.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0.is(&other.0)
    }

    /// The version of the key that was newest at `at`, if the key was alive. Logarithmic in the
    /// number of versions; constant and without a lock for the newest.
    ///
    /// # Safety
    /// Nothing that was [`Removed`] since this began may be freed before it ends.
    pub(crate) unsafe fn read(&self, at: Position) -> Option<KeyValue> {
        // SAFETY: the caller's promise.
        let newest = unsafe { self.peek() }?;
        if newest.position() <= at {
            return alive(&newest);
        }
        self.lock().older.at(at).and_then(alive)
    }

    /// As [`Entry::read`], for whoever does not hold removals back.
    pub(crate) fn read_locked(&self, at: Position) -> Option<KeyValue> {
        self.version_at(at)
            .filter(|version| !version.is_tombstone())
    }

    /// The version that the one at `position` follows, tombstone or not.
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

    /// Has the processor fetch what a read of the newest version looks at, without waiting for it.
    /// Whoever does this to many entries before reading the first waits once for all of them.
    ///
    /// # Safety
    /// As for [`Entry::read`].
    pub(crate) unsafe fn touch_newest(&self) {
        // SAFETY: the caller's promise.
        let newest = unsafe { self.peek() };
        std::hint::black_box(newest.map(|newest| newest.mod_revision()));
    }

    /// Has the processor fetch the entry and its key, as [`Entry::touch_newest`].
    pub(crate) fn touch(&self) {
        std::hint::black_box((self.is_retired(), self.key().last()));
    }

    /// The newest version, tombstone or not. Meant for the holder of the sequencer.
    pub(crate) fn newest(&self) -> Option<KeyValue> {
        self.lock().newest().as_deref().cloned()
    }

    /// Adds the newest version. Only the holder of the sequencer may.
    pub(crate) fn push(&self, version: KeyValue) {
        let mut versions = self.lock();
        if let Some(previous) = self.newest_slot().replace(Some(version.into())) {
            versions.older.push(previous.into());
        }
    }

    /// All kept versions up to `through`, oldest first.
    pub(crate) fn versions(&self, through: Revision) -> Vec<KeyValue> {
        let versions = self.lock();
        let newest = versions.newest();
        let kept = versions.older.iter().chain(newest.as_deref());
        kept.take_while(|version| version.mod_revision() <= through)
            .cloned()
            .collect()
    }

    /// Removes of what a compaction at `mark` drops (I7, CO-4, CO-5) up to [`CUT_VERSIONS_MAX`]
    /// versions: every one that a newer one at or below the mark follows, and a tombstone below the
    /// mark that nothing follows up to it. Returns whether nothing is left of the key.
    pub(crate) fn cut(&self, mark: Revision, removed: &mut Removed) -> bool {
        let is_kept = |newest: &KeyValue| {
            // CO-5: a tombstone exactly at the mark stays; the next compaction takes it.
            !newest.is_tombstone() || newest.mod_revision() >= mark
        };
        let mut versions = self.lock();
        let Some(newest) = versions.newest() else {
            return true;
        };
        let through = versions.older.count_through(mark.end());
        let superseded = if newest.mod_revision() <= mark {
            through
        } else {
            // The last one up to the mark is not superseded at the mark.
            match through
                .checked_sub(1)
                .map(|last| (last, versions.older.get(last)))
            {
                Some((last, Some(version))) if is_kept(version) => last,
                _ => through,
            }
        };
        let count = superseded.min(CUT_VERSIONS_MAX);
        versions.older.take_front(count, &mut removed.0);
        if versions.older.is_empty() && !is_kept(&newest) {
            removed
                .0
                .extend(self.newest_slot().replace(None).map(KeyValue::from));
            return true;
        }
        false
    }

    /// Marks the entry as gone if it is still empty. Only the holder of the sequencer may, and must
    /// then take the entry out of the index.
    pub(crate) fn retire(&self) -> bool {
        self.newest_slot().close();
        self.is_retired()
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.newest_slot().is_closed()
    }

    /// Forgets all versions, for good.
    ///
    /// # Safety
    /// As if all of them were [`Removed`] and freed.
    pub(crate) unsafe fn clear(&self) {
        let older = std::mem::take(&mut *self.lock().older);
        drop((self.newest_slot().take_and_close(), older));
    }

    fn newest_slot(&self) -> &AtomicThin<Header> {
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
    unsafe fn peek(&self) -> Option<ManuallyDrop<KeyValue>> {
        // SAFETY: what leaves the slot is in `older`, or was removed; the caller sees to that.
        let newest = unsafe { self.newest_slot().peek() }?;
        Some(ManuallyDrop::new(ManuallyDrop::into_inner(newest).into()))
    }
}

/// The versions of an entry, locked.
struct Versions<'a> {
    entry: &'a Entry,
    older: MutexGuard<'a, Sequence>,
}

impl Versions<'_> {
    fn newest(&self) -> Option<ManuallyDrop<KeyValue>> {
        // SAFETY: the newest version changes only with the lock held, ...
        unsafe { self.entry.peek() }
    }
}

fn alive(version: &KeyValue) -> Option<KeyValue> {
    (!version.is_tombstone()).then(|| version.clone())
}

impl Keyed for Entry {
    fn key(&self) -> &[u8] {
        self.key()
    }
}

impl fmt::Debug for Entry {
    /// Shows the key: the versions would show the entry again.
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
    fn a_read_finds_the_newest_version_of_its_time() {
        check_read(&[], 9, None);
        check_read(&[5], 4, None);
        check_read(&[5], 5, Some(5));
        check_read(&[2, 5, -6, 9, 12], 4, Some(2));
        check_read(&[2, 5, -6, 9, 12], 5, Some(5));
        check_read(&[2, 5, -6, 9, 12], 8, None);
        check_read(&[2, 5, -6, 9, 12], 11, Some(9));
        check_read(&[2, 5, -6, 9, 12], 99, Some(12));
    }

    fn check_cut(changes: &[i64], mark: i64, kept: &[i64]) {
        let entry = entry(changes);
        let (emptied, removed) = cut(&entry, mark);
        assert_eq!(left(&entry), kept, "{changes:?} cut at {mark}");
        assert_eq!(removed + kept.len(), changes.len());
        assert_eq!(emptied, kept.is_empty());
    }

    fn cut(entry: &Entry, mark: i64) -> (bool, usize) {
        let mut removed = Removed::default();
        let emptied = entry.cut(Revision(mark), &mut removed);
        // SAFETY: nobody reads.
        (emptied, unsafe { removed.into_freeable() }.len())
    }

    fn left(entry: &Entry) -> Vec<i64> {
        let versions = entry.versions(Revision(i64::MAX));
        versions.iter().map(|kv| kv.mod_revision().0).collect()
    }

    #[test]
    fn i7_a_cut_keeps_what_a_read_at_the_mark_or_later_needs() {
        check_cut(&[2, 5, 8], 1, &[2, 5, 8]);
        check_cut(&[2, 5, 8], 2, &[2, 5, 8]);
        check_cut(&[2, 5, 8], 6, &[5, 8]);
        check_cut(&[2, 5, 8], 8, &[8]);
        check_cut(&[2, 5, -6, 9], 7, &[9]);
        check_cut(&[2, -6], 7, &[]);
    }

    #[test]
    fn co_5_a_tombstone_exactly_at_the_mark_is_kept() {
        check_cut(&[2, -6], 6, &[6]);
        check_cut(&[2, -6, 7], 6, &[6, 7]);
    }

    #[test]
    fn a_retired_entry_is_empty_and_stays_retired() {
        let alive = entry(&[2]);
        assert!(!alive.retire() && !alive.is_retired());
        let gone = entry(&[2, -3]);
        assert!(cut(&gone, 4).0);
        assert!(gone.retire() && gone.is_retired());
    }

    #[test]
    fn a_key_of_many_versions_is_cut_in_steps() {
        let max = i64::try_from(CUT_VERSIONS_MAX).expect("a small number");
        let puts: Vec<i64> = (1..=3 * max).collect();
        let entry = entry(&puts);
        for step in 1..=2 {
            assert_eq!(cut(&entry, 2 * max + 1), (false, CUT_VERSIONS_MAX));
            assert_eq!(left(&entry), puts[step * CUT_VERSIONS_MAX..]);
            check_reads(&entry, &puts[step * CUT_VERSIONS_MAX..]);
        }
        assert_eq!(cut(&entry, 2 * max + 1), (false, 0));
    }

    fn check_reads(entry: &Entry, kept: &[i64]) {
        let read = |at: i64| entry.read_locked(Revision(at).end());
        assert_eq!(read(kept[0] - 1), None);
        for main in kept {
            assert_eq!(read(*main).map(|kv| kv.mod_revision().0), Some(*main));
        }
    }
}
