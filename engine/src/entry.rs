//! Entries: what the index holds for each key.
//!
//! ```text
//! key "a"   2 ── 5 ── 6† ────── 9 ── 12        † tombstone: ends a generation
//!           └─ generation 1 ─┘  └─ generation 2 …
//! ```

use std::collections::VecDeque;
use std::fmt;

use triomphe::ThinArc;

use crate::record::KeyValue;
use crate::revision::{MainRevision, Revision};
use crate::sorted::Keyed;
use crate::sync::{Mutex, Rank};

/// A key and all its kept versions, in one heap allocation; a handle on it.
///
/// - Two handles are equal if their keys are; they order as their keys do (DM-9).
/// - Versions are in revision order and only ever added at the end, under the sequencer.
/// - Compaction removes versions from the front, at any time.
/// - An entry that compaction emptied is *retired* and leaves the index, both under the sequencer: a
///   writer that found it before must look the key up again, so no write is lost.
#[derive(Clone)]
pub(crate) struct Entry(ThinArc<Shared, u8>);

struct Shared {
    /// Rank `Entry`. Held for a search, a push or a cut, never while anything is copied or freed.
    history: Mutex<History>,
}

#[derive(Debug)]
struct History {
    versions: Versions,
    retired: bool,
}

/// The newest version stands apart: most reads want it, and find it without another step.
#[derive(Debug, Default)]
struct Versions {
    newest: Option<KeyValue>,
    /// The others, oldest first; there are none without a newest one.
    #[expect(
        clippy::box_collection,
        reason = "keys of one version pay one word for it"
    )]
    older: Option<Box<VecDeque<KeyValue>>>,
}

/// What a cut left behind.
#[derive(Debug)]
pub(crate) struct Cut {
    /// The removed versions, to be dropped when no lock is held.
    pub(crate) removed: VecDeque<KeyValue>,
    /// Whether nothing is left of the key.
    pub(crate) emptied: bool,
}

impl Entry {
    pub(crate) fn new(key: &[u8]) -> Self {
        let history = History {
            versions: Versions::default(),
            retired: false,
        };
        let shared = Shared {
            history: Mutex::new(Rank::Entry, history),
        };
        Self(ThinArc::from_header_and_slice(shared, key))
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.0.slice
    }

    /// Whether both handles are on the same allocation.
    pub(crate) fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self.key(), other.key())
    }

    fn history(&self) -> &Mutex<History> {
        &self.0.header.header.history
    }

    /// Reads a little of the entry, and of its key. Whoever does this to many entries before looking
    /// into the first has the processor fetch all of them from memory at once; locks, taken one by
    /// one, would make it wait for each.
    pub(crate) fn touch(&self) {
        std::hint::black_box((ThinArc::strong_count(&self.0), self.key().last()));
    }

    /// The version of the key that was newest at `at`, if the key was alive. Logarithmic in the
    /// number of versions; constant for the newest.
    pub(crate) fn read(&self, at: Revision) -> Option<KeyValue> {
        let history = self.history().lock();
        history
            .versions
            .at(at)
            .filter(|version| !version.is_tombstone())
            .cloned()
    }

    /// The newest version, tombstone or not. Meant for the holder of the sequencer.
    pub(crate) fn newest(&self) -> Option<KeyValue> {
        self.history().lock().versions.newest.clone()
    }

    /// Adds the newest version. Only the holder of the sequencer may.
    pub(crate) fn push(&self, version: KeyValue) {
        self.history().lock().versions.push(version);
    }

    /// All kept versions up to `through`, oldest first.
    pub(crate) fn versions(&self, through: MainRevision) -> Vec<KeyValue> {
        let history = self.history().lock();
        let kept = history.versions.iter();
        kept.take_while(|version| version.mod_revision() <= through)
            .cloned()
            .collect()
    }

    /// Removes what a compaction at `mark` drops (I7, CO-4, CO-5): every version that a newer one at
    /// or below the mark follows, and a tombstone below the mark that nothing follows up to it.
    pub(crate) fn cut(&self, mark: MainRevision) -> Cut {
        let mut history = self.history().lock();
        let removed = history.versions.cut(mark);
        Cut {
            removed,
            emptied: history.versions.is_empty(),
        }
    }

    /// Marks the entry as gone if it is still empty. Only the holder of the sequencer may, and must
    /// then take the entry out of the index.
    pub(crate) fn retire(&self) -> bool {
        let mut history = self.history().lock();
        if history.versions.is_empty() {
            history.retired = true;
        }
        history.retired
    }

    /// Forgets all versions.
    pub(crate) fn clear(&self) {
        let versions = std::mem::take(&mut self.history().lock().versions);
        drop(versions);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.history().lock().retired
    }
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

impl Versions {
    fn is_empty(&self) -> bool {
        self.newest.is_none()
    }

    fn iter(&self) -> impl Iterator<Item = &KeyValue> {
        self.older
            .iter()
            .flat_map(|older| older.iter())
            .chain(&self.newest)
    }

    fn at(&self, at: Revision) -> Option<&KeyValue> {
        let newest = self.newest.as_ref()?;
        if newest.revision() <= at {
            return Some(newest);
        }
        let older = self.older.as_ref()?;
        let behind = older.partition_point(|version| version.revision() <= at);
        behind.checked_sub(1).map(|found| &older[found])
    }

    fn push(&mut self, version: KeyValue) {
        if let Some(previous) = self.newest.replace(version) {
            self.older.get_or_insert_default().push_back(previous);
        }
    }

    fn cut(&mut self, mark: MainRevision) -> VecDeque<KeyValue> {
        let is_kept = |newest: &KeyValue| {
            // CO-5: a tombstone exactly at the mark stays; the next compaction takes it.
            !newest.is_tombstone() || newest.mod_revision() >= mark
        };
        let Some(newest) = &self.newest else {
            return VecDeque::new();
        };
        if newest.mod_revision() <= mark {
            let mut removed = self.older.take().map_or_else(VecDeque::new, |all| *all);
            removed.extend(self.newest.take_if(|newest| !is_kept(newest)));
            return removed;
        }
        let Some(older) = &mut self.older else {
            return VecDeque::new();
        };
        let at_or_below = older.partition_point(|version| version.mod_revision() <= mark);
        let kept_from = match at_or_below.checked_sub(1) {
            Some(newest) if is_kept(&older[newest]) => newest,
            _ => at_or_below,
        };
        let mut kept = older.split_off(kept_from);
        kept.shrink_to_fit();
        let removed = std::mem::replace(&mut **older, kept);
        self.older.take_if(|older| older.is_empty());
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::Entry;
    use crate::record::{Draft, KeyValue};
    use crate::revision::MainRevision;

    /// Puts at the positive revisions, deletions at the negated ones.
    fn entry(changes: &[i64]) -> Entry {
        let entry = Entry::new(b"k");
        for change in changes {
            let position = MainRevision(change.abs()).start();
            let previous = entry.newest().filter(|newest| !newest.is_tombstone());
            entry.push(if *change < 0 {
                KeyValue::tombstone(entry.clone(), position)
            } else {
                Draft::new(entry.clone(), b"v").finish(&entry, position, previous.as_ref(), None)
            });
        }
        entry
    }

    fn check_read(changes: &[i64], at: i64, expected: Option<i64>) {
        let found = entry(changes).read(MainRevision(at).end());
        assert_eq!(
            found.map(|kv| kv.mod_revision().0),
            expected,
            "{changes:?} at {at}"
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
        let cut = entry.cut(MainRevision(mark));
        let left: Vec<i64> = entry
            .versions(MainRevision(i64::MAX))
            .iter()
            .map(|kv| kv.mod_revision().0)
            .collect();
        assert_eq!(left, kept, "{changes:?} cut at {mark}");
        assert_eq!(cut.removed.len() + kept.len(), changes.len());
        assert_eq!(cut.emptied, kept.is_empty());
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
        assert!(gone.cut(MainRevision(4)).emptied);
        assert!(gone.retire() && gone.is_retired());
    }
}
