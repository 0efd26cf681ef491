//! The index: the keys of the store in order, with the number of live keys of each range.
//!
//! This file contains the reads and the lock of the writer, `tree` the map, a B-tree with counts,
//! `editor` its changes, `bulk` a new tree of sorted entries, `replacement` the nodes that they build, and `sorted_node` the search in one
//! node. etcd's counterpart is mvcc's `treeIndex`.

mod bulk;
mod editor;
mod replacement;
mod sorted_node;
mod tree;

use std::ops::ControlFlow;

use bytes::Bytes;

use crate::fault::{Fault, Faults};
use crate::history::{Entry, KeyValue, PendingRecord, Record, Removed};
use crate::key::KeyRange;
use crate::revision::{Position, Revision};
use crate::sync::epoch::{CachePadded, Guard, pin};
use crate::sync::{AtomicI64, AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering, Rank};

pub(crate) use bulk::SortedTree;
use editor::Editor;
pub(crate) use sorted_node::Keyed;
use tree::Tree;

/// The number of entries that a scan visits under one pin. What is removed meanwhile is not freed.
const SCAN_STEP_ENTRIES: usize = if cfg!(any(loom, shuttle)) { 2 } else { 256 };

/// The number of entries that a scan prefetches at the same time: about as many cache misses as a
/// processor overlaps.
const PREFETCHED_ENTRIES: usize = 8;

/// The number of times that a count reads the index without the lock, if keys are created or deleted
/// meanwhile. Then it takes the lock.
const COUNT_ATTEMPTS_MAX: usize = if cfg!(any(loom, shuttle)) { 1 } else { 16 };

/// The ordered map from key to [`Entry`].
///
/// - Readers need a pin and no lock. They write no memory that other threads access, except for a
///   count that meets a change in each of its attempts.
/// - A writer changes the index only if it creates a key, deletes it, writes a deleted key again or
///   retires an entry. An update of a live key does not change the index.
#[derive(Debug)]
pub(crate) struct Index {
    tree: CachePadded<Tree>,
    counted: CachePadded<Counted>,
    /// Rank `Index`. The right to change the other fields. Held for one descent.
    editor: CachePadded<Mutex<Editor>>,
    faults: Faults,
}

/// What a count needs besides the tree.
#[derive(Debug)]
struct Counted {
    /// The number of begun and ended changes of the index: odd during a change.
    edits: AtomicU64,
    /// The position of the last creation or deletion of a key that the counts include.
    revision: AtomicI64,
    sub: AtomicU32,
}

/// An entry that was found under a pin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found<'g> {
    entry: &'g Entry,
    guard: &'g Guard,
}

impl<'g> Found<'g> {
    pub(crate) fn entry(&self) -> &'g Entry {
        self.entry
    }

    /// As [`Entry::copy_kept`].
    pub(crate) fn copy_kept(
        &self,
        compacted: Revision,
        through: Position,
        copied: &mut Vec<KeyValue>,
    ) {
        self.entry.copy_kept(compacted, through, copied, self.guard);
    }

    /// As [`Entry::read`].
    #[inline]
    pub(crate) fn read(&self, at: Position) -> Option<Record<'g>> {
        self.entry.read(at, self.guard)
    }
}

/// The number of live keys of a range, and the position of the last change that it includes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Count {
    pub(crate) live: usize,
    pub(crate) through: Position,
}

/// A scan of a range, step by step.
#[derive(Debug)]
pub(crate) struct Scan<'a> {
    range: &'a KeyRange,
    /// The key of the last visited entry.
    last: Option<Vec<u8>>,
}

impl Index {
    pub(crate) fn new(faults: Faults) -> Self {
        Self::of(Editor::new(faults), Revision(0).start(), faults)
    }

    /// Creates an index of a tree that was built, in time linear in the number of its leaves.
    /// The last creation or deletion of a key was at or before `through`.
    pub(crate) fn of_sorted(faults: Faults, tree: SortedTree, through: Position) -> Self {
        Self::of(Editor::of_sorted(faults, tree), through, faults)
    }

    fn of((tree, editor): (Tree, Editor), through: Position, faults: Faults) -> Self {
        let counted = Counted {
            edits: AtomicU64::new(0),
            revision: AtomicI64::new(through.revision.0),
            sub: AtomicU32::new(through.sub),
        };
        Self {
            tree: CachePadded::new(tree),
            counted: CachePadded::new(counted),
            editor: CachePadded::new(Mutex::new(Rank::Index, editor)),
            faults,
        }
    }

    /// Returns the newest version of a key at or before `at`, if the key is live there. One
    /// descent.
    #[inline]
    pub(crate) fn read(&self, key: &[u8], at: Position) -> Option<KeyValue> {
        let guard = pin();
        self.find(key, at, &guard).as_deref().cloned()
    }

    /// As [`Index::read`], without a counted reference.
    #[inline]
    pub(crate) fn find<'g>(
        &'g self,
        key: &[u8],
        at: Position,
        guard: &'g Guard,
    ) -> Option<Record<'g>> {
        self.tree.get(key, guard)?.read(at, guard)
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Entry> {
        self.tree.get(key, &pin()).cloned()
    }

    /// Returns the entry for a pending record. An entry that was retired since the record was
    /// created is no longer in the index, so its key gets a new one (I7). The caller must hold the
    /// sequencer.
    #[inline]
    pub(crate) fn entry_for(&self, pending: &PendingRecord) -> Entry {
        let entry = pending.entry();
        if !pending.entry_found() {
            return self.get_or_insert(entry);
        }
        if entry.is_retired() && !self.faults.has(Fault::UseRetiredEntry) {
            return self.get_or_insert(&Entry::new(entry.key()));
        }
        entry.clone()
    }

    /// Returns the entry with the key of `new`; inserts `new` if there is none. The caller must
    /// hold the sequencer.
    pub(crate) fn get_or_insert(&self, new: &Entry) -> Entry {
        let guard = pin();
        self.edit().editor.insert(&self.tree, new, &guard)
    }

    /// Adds a key to the counts or removes it. The caller must hold the sequencer; positions
    /// increase.
    pub(crate) fn set_live(&self, key: &[u8], live: bool, position: Position) {
        let guard = pin();
        let mut edit = self.edit();
        edit.editor.set_live(&self.tree, key, live, &guard);
        // Release: pairs with the Acquire in `count`, as the numbers of the tree.
        let counted = &self.counted;
        counted
            .revision
            .store(position.revision.0, Ordering::Release);
        counted.sub.store(position.sub, Ordering::Release);
    }

    /// Removes a retired entry. The caller must hold the sequencer.
    pub(crate) fn remove(&self, key: &[u8]) {
        let guard = pin();
        self.edit().editor.remove(&self.tree, key, &guard);
    }

    /// Returns the number of live keys in the range, in logarithmic time.
    pub(crate) fn count(&self, range: &KeyRange) -> Count {
        let guard = pin();
        let counted = &self.counted;
        for _ in 0..COUNT_ATTEMPTS_MAX {
            // Acquire: pairs with the Release in `Edit::drop`, so that all changes before are seen.
            let before = counted.edits.load(Ordering::Acquire);
            if before % 2 == 1 {
                std::hint::spin_loop();
                continue;
            }
            let count = self.count_at_once(range, &guard);
            // Relaxed: what this thread has read from a change makes it see that the change has
            // begun, because all that a count reads is loaded with Acquire.
            let is_exact = counted.edits.load(Ordering::Relaxed) == before;
            if is_exact || self.faults.has(Fault::CountUnchecked) {
                return count;
            }
        }
        let _no_changes = self.editor.lock();
        self.count_at_once(range, &guard)
    }

    /// As [`Index::count`]; not exact if the index changes meanwhile.
    fn count_at_once(&self, range: &KeyRange, guard: &Guard) -> Count {
        let tree = &self.tree;
        let live = match range {
            KeyRange::One(key) => {
                let mut next = key.to_vec();
                next.push(0);
                let below_next = tree.live_below(&next, guard);
                below_next.saturating_sub(tree.live_below(key, guard))
            }
            KeyRange::Within { start, end } => {
                let below_end = tree.live_below(end, guard);
                below_end.saturating_sub(tree.live_below(start, guard))
            }
            KeyRange::From(start) => {
                let all = tree.live(guard);
                all.saturating_sub(tree.live_below(start, guard))
            }
        };
        // Acquire: pairs with the Release in `set_live`.
        let through = Position {
            revision: Revision(self.counted.revision.load(Ordering::Acquire)),
            sub: self.counted.sub.load(Ordering::Acquire),
        };
        Count { live, through }
    }

    /// Divides all keys into about `parts` ranges, in order; there is at least one. They have about the same number of
    /// entries, until the index changes.
    pub(crate) fn parts(&self, parts: usize) -> Vec<KeyRange> {
        let guard = pin();
        let mut divided = Vec::new();
        let mut start = Bytes::new();
        for bound in self.tree.bounds(parts, &guard) {
            if *start < *bound {
                let end = Bytes::copy_from_slice(bound);
                divided.push(KeyRange::within(start, end.clone()));
                start = end;
            }
        }
        divided.push(KeyRange::From(start));
        divided
    }

    /// Returns the number of keys, including deleted ones.
    pub(crate) fn len(&self) -> usize {
        self.editor.lock().len()
    }

    /// Calls `visit` with the entries of a range in key order until it breaks. Pins again after
    /// every [`SCAN_STEP_ENTRIES`] entries.
    ///
    /// Entries that are added or removed during the scan may be visited or not. The result of a
    /// read at a fixed revision is the same in both cases.
    pub(crate) fn scan(
        &self,
        range: &KeyRange,
        mut visit: impl FnMut(Found<'_>) -> ControlFlow<()>,
    ) {
        let mut scan = Scan::of(range);
        while scan.step(self, &pin(), &mut visit) {}
    }

    fn edit(&self) -> Edit<'_> {
        let editor = self.editor.lock();
        let edits = &self.counted.edits;
        // Relaxed: only the holder of the lock changes the number, and a count that reads something
        // of this change has synchronized with a later store of this thread.
        edits.store(edits.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Edit { editor, edits }
    }
}

/// A change of the index.
struct Edit<'a> {
    editor: MutexGuard<'a, Editor>,
    edits: &'a AtomicU64,
}

impl Drop for Edit<'_> {
    fn drop(&mut self) {
        // Without effect, unless the change panicked.
        self.editor.abandon();
        // Release: pairs with the Acquire in `Index::count`.
        self.edits
            .store(self.edits.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

impl<'a> Scan<'a> {
    /// Begins a scan.
    pub(crate) fn of(range: &'a KeyRange) -> Self {
        Self { range, last: None }
    }

    /// Returns the key of the entry that the next step begins after; `None` before the first step
    /// and after the last one.
    pub(crate) fn last(&self) -> Option<&[u8]> {
        self.last.as_deref()
    }

    /// As [`Index::scan`], for the next entries, under the caller's pin. Returns whether there are
    /// more.
    pub(crate) fn step<'g>(
        &mut self,
        index: &'g Index,
        guard: &'g Guard,
        mut visit: impl FnMut(Found<'g>) -> ControlFlow<()>,
    ) -> bool {
        let (range, last) = (self.range, self.last.as_deref());
        let mut left = SCAN_STEP_ENTRIES;
        let start = last.unwrap_or(range.start());
        let step = index.tree.visit_from(start, guard, |entries| {
            let entries = match (entries, last) {
                ([first, rest @ ..], Some(last)) if first.key() == last => rest,
                _ => entries,
            };
            let entries = &entries[..entries.len().min(left)];
            for group in entries.chunks(PREFETCHED_ENTRIES) {
                group.iter().for_each(Entry::touch);
                let inside = part_within(group, range);
                for entry in inside {
                    entry.touch_newest(guard);
                }
                let mut found = inside.iter().map(|entry| Found { entry, guard });
                let done = found.try_for_each(&mut visit).is_break();
                if done || inside.len() < group.len() {
                    return ControlFlow::Break(None);
                }
            }
            left -= entries.len();
            match entries.last() {
                Some(last) if left == 0 => ControlFlow::Break(Some(last)),
                _ => ControlFlow::Continue(()),
            }
        });
        let last = step.flatten().map(|last| last.key().to_vec());
        self.last = last;
        self.last.is_some()
    }
}

/// Returns the entries before the end of the range.
fn part_within<'a>(entries: &'a [Entry], range: &KeyRange) -> &'a [Entry] {
    let is_after = |entry: &Entry| range.ends_before(entry.key());
    if entries.last().is_some_and(is_after) {
        &entries[..entries.partition_point(|entry| !is_after(entry))]
    } else {
        entries
    }
}

/// Records hold their entries and entries hold their records, so the index breaks this cycle when
/// it is dropped.
impl Drop for Index {
    fn drop(&mut self) {
        self.scan(&KeyRange::all(), |found| {
            let mut removed = Removed::default();
            found.entry.clear(&mut removed, found.guard);
            // SAFETY: the index is borrowed mutably, so no pin leads to its entries.
            unsafe { removed.free_now() };
            ControlFlow::Continue(())
        });
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::{Index, SCAN_STEP_ENTRIES, SortedTree};
    use crate::fault::Faults;
    use crate::history::Entry;
    use crate::key::KeyRange;
    use crate::memory::Batch;
    use crate::revision::Revision;

    #[test]
    fn a_scan_visits_each_entry_once_across_its_steps() {
        let index = Index::new(Faults::default());
        let name = |number: usize| format!("k{number:04}");
        for number in 0..=SCAN_STEP_ENTRIES * 3 {
            index.get_or_insert(&Entry::new(name(number).as_bytes()));
        }
        let mut seen = Vec::new();
        index.scan(
            &KeyRange::within(name(1), name(SCAN_STEP_ENTRIES * 3)),
            |found| {
                seen.push(found.entry().key().to_vec());
                ControlFlow::Continue(())
            },
        );
        let expected: Vec<_> = (1..SCAN_STEP_ENTRIES * 3)
            .map(|number| name(number).into_bytes())
            .collect();
        assert_eq!(seen, expected);
    }

    #[test]
    fn an_index_of_sorted_entries_can_be_read_and_changed() {
        for len in [0, 1, 2, 3, 63, 64, 65, 4096, 64 * 64 + 1, 64 * 65 + 3] {
            let key = |number: usize| format!("/registry/pods/{number:06}").into_bytes();
            let mut batch = Batch::expecting(0);
            // With more entries than expected, as many, and fewer.
            let mut tree = SortedTree::expecting(len * (len % 4) / 2);
            for number in 0..len {
                tree.push(Entry::new(&key(2 * number)), number % 3 != 0, &mut batch);
            }
            let through = Revision(9).end();
            let index = Index::of_sorted(Faults::default(), tree, through);
            assert_eq!(index.len(), len);
            let live = |below: usize| below - below.div_ceil(3);
            let count = index.count(&KeyRange::all());
            assert_eq!((count.live, count.through), (live(len), through));
            for number in (0..len).step_by(len / 50 + 1) {
                assert_eq!(index.get(&key(2 * number)).unwrap().key(), key(2 * number));
                assert!(index.get(&key(2 * number + 1)).is_none());
                let below = KeyRange::within("", key(2 * number));
                assert_eq!(index.count(&below).live, live(number));
            }
            // Keys between the others, and then none.
            for number in 0..len {
                index.get_or_insert(&Entry::new(&key(2 * number + 1)));
                index.set_live(&key(2 * number + 1), true, Revision(10).start());
            }
            assert_eq!(index.len(), 2 * len);
            assert_eq!(index.count(&KeyRange::all()).live, live(len) + len);
            for number in 0..2 * len {
                index.remove(&key(number));
            }
            assert_eq!((index.len(), index.count(&KeyRange::all()).live), (0, 0));
        }
    }

    #[test]
    fn counts_include_the_last_change_of_a_live_key() {
        let index = Index::new(Faults::default());
        for (revision, key) in [(2, "a"), (3, "b"), (4, "c")] {
            index.get_or_insert(&Entry::new(key.as_bytes()));
            index.set_live(key.as_bytes(), true, Revision(revision).start());
        }
        index.set_live(b"b", false, Revision(9).start());
        let counted = |range: KeyRange| {
            let count = index.count(&range);
            assert_eq!(count.through, Revision(9).start());
            count.live
        };
        assert_eq!(counted(KeyRange::all()), 2);
        assert_eq!(counted(KeyRange::one("b")), 0);
        assert_eq!(counted(KeyRange::one("c")), 1);
        assert_eq!(counted(KeyRange::within("b", "d")), 1);
        assert_eq!(counted(KeyRange::within("d", "b")), 0);
    }
}
