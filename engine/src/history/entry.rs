//! Entries: a key and its versions; etcd's `keyIndex`.
//!
//! ```text
//! key "a"   2 ── 5 ── 6† ────── 9 ── 12        † tombstone: ends a generation
//!           └─ generation 1 ─┘  └─ generation 2 …
//! ```

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr;

use super::record::{Header, KeyValue, Record};
use super::sequence::{Sequence, SequenceWriter};
use crate::fault::{Faults, on_fault};
use crate::index::Keyed;
use crate::memory::{AtomicThin, Batch, Thin};
use crate::revision::{Position, Revision};
use crate::sync::epoch::Guard;
use crate::sync::{Mutex, Rank};

/// The maximum number of versions that one cut removes. A key with more versions has more records
/// in the log, and is cut again for each of them.
const CUT_VERSIONS_MAX: usize = if cfg!(any(loom, shuttle)) { 2 } else { 128 };

/// A handle on a key and all its kept versions.
///
/// - Two handles are equal if their keys are equal; their order is the order of the keys (DM-9).
/// - Versions are in revision order. They are only added at the end, under the sequencer.
/// - Compaction removes versions from the front, at any time, and frees them after the pins of that
///   time. So readers need a pin, and no lock.
/// - An entry that is empty after a compaction is *retired* and taken out of the index, both under
///   the sequencer. A writer that has found it before must look the key up again, so no write is
///   lost.
#[derive(Clone)]
pub(crate) struct Entry(Thin<EntryData>);

#[derive(Debug)]
pub(crate) struct EntryData {
    /// The newest version, apart from the others because most reads need only this one. Closed when
    /// the entry is retired.
    newest: AtomicThin<Header>,
    /// The other versions; empty if there is no newest one. While a version is added, the previous
    /// one is in both places.
    older: Sequence,
    /// Rank `Entry`. The right to change the other fields. Held for a push or a cut, never while a
    /// value is copied or freed.
    writer: Mutex<SequenceWriter>,
}

/// Versions that were removed from their entries or from the log, but that readers may still access.
/// Dropping this frees nothing; [`Removed::free`] does.
#[derive(Debug, Default)]
pub(crate) struct Removed(ManuallyDrop<Vec<KeyValue>>);

impl Removed {
    /// Adds versions, bit by bit.
    ///
    /// # Safety
    /// The caller must remove them from where they are, and not drop them.
    pub(crate) unsafe fn extend_moved(&mut self, versions: &[KeyValue]) {
        let moved = versions.iter().map(|version| {
            // SAFETY: guaranteed by the caller.
            unsafe { ptr::read(version) }
        });
        self.0.extend(moved);
    }

    /// Frees the versions after all pins that exist now have ended.
    pub(crate) fn free(self, guard: &Guard, faults: Faults) {
        if self.is_empty() {
            return;
        }
        let bytes = self.size_bytes();
        let Self(versions) = self;
        on_fault!(faults, FreeWithoutWaiting, {
            drop(ManuallyDrop::into_inner(versions));
            return;
        });
        // SAFETY: nothing leads to the versions any more, and they may be freed on any thread.
        unsafe { guard.defer(bytes, move || drop(ManuallyDrop::into_inner(versions))) };
    }

    /// Frees the versions at once.
    ///
    /// # Safety
    /// No pin may have a way to the versions.
    pub(crate) unsafe fn free_now(self) {
        drop(ManuallyDrop::into_inner(self.0));
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.0.iter().map(KeyValue::size_bytes).sum()
    }
}

impl Deref for Removed {
    type Target = [KeyValue];
    fn deref(&self) -> &[KeyValue] {
        &self.0
    }
}

impl Entry {
    pub(crate) fn new(key: &[u8]) -> Self {
        let (older, writer) = Sequence::new();
        let data = EntryData {
            newest: AtomicThin::new(),
            older,
            writer: Mutex::new(Rank::Entry, writer),
        };
        Self(Thin::new(data, 0, [key, &[]]))
    }

    /// Creates an entry with versions of another entry of the same key, oldest first. The versions
    /// are taken out of the vector.
    pub(crate) fn of_versions(key: &[u8], versions: &mut Vec<KeyValue>, batch: &mut Batch) -> Self {
        let newest = versions.pop().map(Thin::from);
        let (older, writer) = if versions.is_empty() {
            Sequence::new()
        } else {
            Sequence::of(versions.drain(..), batch)
        };
        let data = EntryData {
            newest: AtomicThin::of(newest),
            older,
            writer: Mutex::new(Rank::Entry, writer),
        };
        Self(Thin::new_in(batch, data, 0, [key, &[]]))
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
    /// for the newest version, otherwise time logarithmic in the number of versions.
    #[inline]
    pub(crate) fn read<'g>(&'g self, at: Position, guard: &'g Guard) -> Option<Record<'g>> {
        self.version_at(at, guard)
            .filter(|version| !version.is_tombstone())
    }

    /// As [`Entry::read`]; returns a tombstone too.
    #[inline]
    pub(crate) fn version_at<'g>(&'g self, at: Position, guard: &'g Guard) -> Option<Record<'g>> {
        let newest = self.newest(guard)?;
        if newest.position() <= at {
            return Some(newest);
        }
        // A version that is replaced in the meantime is among the older ones before it is replaced.
        self.data().older.at(at, guard).map(Record::from)
    }

    /// Returns the version before `position`, which may be a tombstone.
    pub(crate) fn version_before<'g>(
        &'g self,
        position: Position,
        guard: &'g Guard,
    ) -> Option<Record<'g>> {
        self.version_at(position.previous(), guard)
    }

    /// Prefetches the memory that a read of the newest version accesses. A caller that prefetches
    /// several entries before it reads the first waits for their cache misses at the same time.
    #[inline]
    pub(crate) fn touch_newest(&self, guard: &Guard) {
        let newest = self.newest(guard);
        std::hint::black_box(newest.map(|newest| newest.mod_revision()));
    }

    /// Prefetches the entry and its key, as [`Entry::touch_newest`].
    #[inline]
    pub(crate) fn touch(&self) {
        std::hint::black_box((self.is_retired(), self.key().last()));
    }

    /// Returns the newest version, which may be a tombstone.
    #[inline]
    pub(crate) fn newest<'g>(&'g self, guard: &'g Guard) -> Option<Record<'g>> {
        self.data().newest.load(guard).map(Record::from)
    }

    /// Adds the newest version. The caller must hold the sequencer.
    #[inline]
    pub(crate) fn push(&self, version: KeyValue, guard: &Guard, faults: Faults) {
        let EntryData {
            newest,
            older,
            writer,
        } = self.data();
        let mut writer = writer.lock();
        on_fault!(faults, ReplaceBeforeKeeping, {
            let previous = newest.replace(Some(version.clone().into()));
            if let Some(previous) = previous {
                older.push(
                    &mut writer,
                    ManuallyDrop::into_inner(previous).into(),
                    guard,
                );
            }
            return;
        });
        if let Some(previous) = newest.load(guard) {
            let previous = ManuallyDrop::into_inner(previous.into_inner());
            // The version has two places until it is replaced; from then on it belongs to `older`.
            older.push(&mut writer, previous.into(), guard);
        }
        let _replaced: Option<ManuallyDrop<_>> = newest.replace(Some(version.into()));
    }

    /// Returns kept versions from `from` to `through`, oldest first: a bounded number of them, and
    /// at least one if there are any.
    pub(crate) fn versions(
        &self,
        from: Position,
        through: Position,
        guard: &Guard,
    ) -> Vec<KeyValue> {
        // First, because a version that is replaced in the meantime goes to the older ones.
        let newest = self.newest(guard);
        let older = self.data().older.slice_from(from, guard).records;
        let inside = |version: &&KeyValue| version.position() <= through;
        let mut versions: Vec<_> = older.iter().take_while(inside).cloned().collect();
        if let Some(newest) = newest
            && (versions.is_empty() && from <= newest.position() && newest.position() <= through)
        {
            versions.push(newest.clone());
        }
        versions
    }

    /// Appends what a compaction at `compacted` would leave, up to `through`, oldest first (I7, CO-4,
    /// CO-5). The caller holds the history from `compacted` on.
    pub(crate) fn copy_kept(
        &self,
        compacted: Revision,
        through: Position,
        copied: &mut Vec<KeyValue>,
        guard: &Guard,
    ) {
        // First, because a version that is replaced in the meantime goes to the older ones.
        let Some(newest) = self.newest(guard) else {
            return;
        };
        let older = &self.data().older;
        if newest.position() > through || !older.is_empty(guard) {
            let visible = older.at(compacted.end().min(through), guard);
            let mut from = visible.map_or(Position::FIRST, KeyValue::position);
            loop {
                let slice = older.slice_from(from, guard);
                let inside = |version: &&KeyValue| version.position() <= through;
                copied.extend(slice.records.iter().take_while(inside).cloned());
                match slice.records.last() {
                    Some(last) if !slice.is_last && last.position() < through => {
                        from = last.position().next();
                    }
                    _ => break,
                }
            }
            // A version that is being replaced is in both places.
            copied.truncate(copied.partition_point(|it| it.position() < newest.position()));
        }
        if newest.position() <= through {
            copied.push(newest.clone());
        }
        // The first one is the only one at or below the compacted revision, unless the newest one is, too.
        if copied.len() > 1 && copied[1].mod_revision() <= compacted {
            copied.drain(..1);
        }
        let is_dropped =
            |first: &KeyValue| first.is_tombstone() && first.mod_revision() < compacted;
        if copied.first().is_some_and(is_dropped) {
            copied.drain(..1);
        }
    }

    /// Removes up to [`CUT_VERSIONS_MAX`] of the versions that a compaction at `compacted` drops
    /// (I7, CO-4, CO-5): the versions that a newer one at or below `compacted` replaces, and the
    /// newest one up to there if it is a tombstone below `compacted`. Returns whether the entry is
    /// empty.
    pub(crate) fn cut(&self, compacted: Revision, removed: &mut Removed, guard: &Guard) -> bool {
        // CO-5: a tombstone exactly at the compacted revision stays until the next compaction.
        let is_kept =
            |newest: &KeyValue| !newest.is_tombstone() || newest.mod_revision() >= compacted;
        let EntryData {
            newest: cell,
            older,
            writer,
        } = self.data();
        let mut writer = writer.lock();
        let Some(newest) = self.newest(guard) else {
            return true;
        };
        // One more than the maximum, in case that the last one is kept.
        let through = older.count_through(compacted.end(), CUT_VERSIONS_MAX + 1, guard);
        let superseded = if newest.mod_revision() <= compacted {
            through
        } else {
            // The last of these is the visible version at the compacted revision.
            through - usize::from(older.at(compacted.end(), guard).is_some_and(is_kept))
        };
        let count = superseded.min(CUT_VERSIONS_MAX);
        older.take_front(&mut writer, count, removed, guard);
        if older.is_empty(guard) && !is_kept(&newest) {
            let replaced = cell.replace(None).map(ManuallyDrop::into_inner);
            removed.0.extend(replaced.map(KeyValue::from));
            return true;
        }
        false
    }

    /// Retires the entry if it is empty; returns whether it is retired. The caller must hold the
    /// sequencer, and must then take the entry out of the index.
    pub(crate) fn retire(&self) -> bool {
        self.data().newest.close();
        self.is_retired()
    }

    #[inline]
    pub(crate) fn is_retired(&self) -> bool {
        self.data().newest.is_closed()
    }

    /// Removes all versions.
    pub(crate) fn clear(&self, removed: &mut Removed, guard: &Guard) {
        let EntryData {
            newest,
            older,
            writer,
        } = self.data();
        if self.is_retired() {
            return;
        }
        let mut writer = writer.lock();
        older.take_front(&mut writer, usize::MAX, removed, guard);
        let newest = newest.replace(None).map(ManuallyDrop::into_inner);
        removed.0.extend(newest.map(KeyValue::from));
    }

    #[inline]
    fn data(&self) -> &EntryData {
        self.0.header()
    }
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
    use crate::fault::Faults;
    use crate::history::{KeyValue, PendingRecord};
    use crate::revision::{Position, Revision};
    use crate::sync::epoch::pin;

    /// Puts at the positive revisions, deletions at the negated ones.
    fn entry(changes: &[i64]) -> Entry {
        let entry = Entry::new(b"k");
        for change in changes {
            let position = Revision(change.abs()).start();
            let newest = entry.newest(&pin()).as_deref().cloned();
            let previous = newest.filter(|newest| !newest.is_tombstone());
            let version = if *change < 0 {
                KeyValue::tombstone(entry.clone(), position)
            } else {
                let pending = PendingRecord::for_entry(entry.clone(), b"v", false);
                pending.finish(&entry, position, previous.as_ref(), None)
            };
            entry.push(version, &pin(), Faults::default());
        }
        entry
    }

    fn check_read(changes: &[i64], at: i64, expected: Option<i64>) {
        let (entry, at) = (entry(changes), Revision(at).end());
        let guard = pin();
        assert_eq!(
            entry.read(at, &guard).map(|kv| kv.mod_revision().0),
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
        let emptied = entry.cut(Revision(compacted), &mut removed, &pin());
        let count = removed.len();
        removed.free(&pin(), Faults::default());
        (emptied, count)
    }

    fn kept_versions(entry: &Entry) -> Vec<i64> {
        let mut kept = Vec::new();
        let mut from = Position::FIRST;
        while let versions @ [.., last] =
            &entry.versions(from, Revision(i64::MAX).end(), &pin())[..]
        {
            kept.extend(versions.iter().map(|kv| kv.mod_revision().0));
            from = last.position().next();
        }
        kept
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
        let guard = pin();
        let read = |at: i64| {
            entry
                .read(Revision(at).end(), &guard)
                .map(|kv| kv.mod_revision().0)
        };
        assert_eq!(read(kept[0] - 1), None);
        for revision in kept {
            assert_eq!(read(*revision), Some(*revision));
        }
    }
}
