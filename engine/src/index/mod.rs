//! The index: the keys of the store in order, with the number of live keys of each range.
//!
//! This file contains the lock of the map and the safe reads of its entries, `tree` the map, a
//! B-tree with counts, and `sorted_node` the layout of one node. etcd's counterpart is mvcc's
//! `treeIndex`.

mod sorted_node;
mod tree;

use std::ops::ControlFlow;

use crate::fault::{Fault, Faults, unless_fault};
use crate::history::{Entry, KeyValue, PendingRecord, Removed};
use crate::key::KeyRange;
use crate::revision::{Position, Revision};
use crate::sync::{Rank, RwLock};

pub(crate) use sorted_node::Keyed;
use tree::Tree;

/// The number of entries that a scan visits before it releases the lock, so that writers can take
/// it.
const SCAN_STEP_ENTRIES: usize = if cfg!(loom) { 2 } else { 64 };

/// The number of entries that a scan prefetches at the same time: about as many cache misses as a
/// processor overlaps.
const PREFETCHED_ENTRIES: usize = 8;

/// The ordered map from key to [`Entry`].
///
/// A writer changes the index only if it creates a key, deletes it, writes a deleted key again or
/// retires an entry, and holds the lock for one descent. An update of a live key does not change
/// the index.
#[derive(Debug)]
pub(crate) struct Index {
    /// Rank `Index`. Held for one descent or one scan step, never for a whole range. Reads of
    /// newest versions hold it, and [`Index::free`] takes it to wait for these reads.
    keys: RwLock<Keys>,
    faults: Faults,
}

/// An entry that was found with the index locked, so that no version that it returns is freed
/// during the read.
#[derive(Debug)]
pub(crate) struct Found<'a>(&'a Entry);

impl Found<'_> {
    pub(crate) fn entry(&self) -> &Entry {
        self.0
    }

    /// As [`Entry::read`].
    #[inline]
    pub(crate) fn read(&self, at: Position) -> Option<KeyValue> {
        // SAFETY: `Found` exists only while the index is locked for reading. Versions removed
        // during the read are freed by `Index::free`, which takes the lock for writing between
        // removal and freeing.
        unsafe { self.0.read(at) }
    }

    #[inline]
    fn touch_newest(&self) {
        // SAFETY: as in `read`.
        unsafe { self.0.touch_newest() }
    }
}

#[derive(Debug)]
struct Keys {
    tree: Tree,
    /// The position of the last creation or deletion of a key that the counts include.
    counted_through: Position,
}

/// The number of live keys of a range, and the position of the last change that it includes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Count {
    pub(crate) live: usize,
    pub(crate) through: Position,
}

impl Index {
    pub(crate) fn new(faults: Faults) -> Self {
        let counted_through = Revision(0).start();
        Self {
            keys: RwLock::new(
                Rank::Index,
                Keys {
                    tree: Tree::new(),
                    counted_through,
                },
            ),
            faults,
        }
    }

    /// Returns the newest version of a key at or before `at`, if the key is live there. One
    /// descent.
    #[inline]
    pub(crate) fn read(&self, key: &[u8], at: Position) -> Option<KeyValue> {
        let keys = self.keys.read();
        keys.tree.get(key).and_then(|entry| Found(entry).read(at))
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Entry> {
        self.keys.read().tree.get(key).cloned()
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
        let mut keys = self.keys.write();
        if let Some(entry) = keys.tree.get(new.key()) {
            return entry.clone();
        }
        keys.tree.insert(new.clone());
        new.clone()
    }

    /// Adds a key to the counts or removes it. The caller must hold the sequencer; positions
    /// increase.
    pub(crate) fn set_live(&self, key: &[u8], live: bool, position: Position) {
        let mut keys = self.keys.write();
        keys.tree.set_live(key, live);
        keys.counted_through = position;
    }

    /// Removes a retired entry. The caller must hold the sequencer.
    pub(crate) fn remove(&self, key: &[u8]) {
        self.keys.write().tree.remove(key);
    }

    /// Frees versions that were removed from their entries, after all reads that may access them
    /// have ended.
    pub(crate) fn free(&self, removed: Removed) {
        if removed.is_empty() {
            return;
        }
        // Reads that began before the removal hold the lock; later ones do not find the versions.
        unless_fault!(self.faults, FreeWithoutWaiting, drop(self.keys.write()));
        // SAFETY: all reads that began before the removal have released the lock.
        drop(unsafe { removed.into_freeable() });
    }

    /// Returns the number of live keys in the range, in logarithmic time.
    pub(crate) fn count(&self, range: &KeyRange) -> Count {
        let keys = self.keys.read();
        let tree = &keys.tree;
        let live = match range {
            KeyRange::One(key) => {
                let mut next = key.to_vec();
                next.push(0);
                tree.live_below(&next) - tree.live_below(key)
            }
            KeyRange::Within { start, end } => {
                tree.live_below(end).saturating_sub(tree.live_below(start))
            }
            KeyRange::From(start) => tree.live() - tree.live_below(start),
        };
        Count {
            live,
            through: keys.counted_through,
        }
    }

    /// Returns the number of keys, including deleted ones.
    pub(crate) fn len(&self) -> usize {
        self.keys.read().tree.len()
    }

    /// Calls `visit` with the entries of a range in key order until it breaks. Releases the lock
    /// after every [`SCAN_STEP_ENTRIES`] entries.
    ///
    /// Entries that are added or removed during the scan may be visited or not. The result of a
    /// read at a fixed revision is the same in both cases.
    pub(crate) fn scan(
        &self,
        range: &KeyRange,
        mut visit: impl FnMut(&Found<'_>) -> ControlFlow<()>,
    ) {
        let mut last_visited = None;
        while let Some(entry) = self.scan_step(range, last_visited.as_ref(), &mut visit) {
            last_visited = Some(entry);
        }
    }

    /// As [`scan`](Self::scan), for one step after the entry `last_visited`. Returns the last entry
    /// that the step visited, or `None` at the end of the scan.
    pub(crate) fn scan_step(
        &self,
        range: &KeyRange,
        last_visited: Option<&Entry>,
        mut visit: impl FnMut(&Found<'_>) -> ControlFlow<()>,
    ) -> Option<Entry> {
        let mut left = SCAN_STEP_ENTRIES;
        let start = last_visited.map_or(range.start(), Entry::key);
        let step = self.keys.read().tree.visit_from(start, |entries| {
            let entries = match (entries, last_visited) {
                ([first, rest @ ..], Some(visited)) if first == visited => rest,
                _ => entries,
            };
            let entries = &entries[..entries.len().min(left)];
            for group in entries.chunks(PREFETCHED_ENTRIES) {
                group.iter().for_each(Entry::touch);
                let inside = part_within(group, range);
                let mut found = inside.iter().map(Found);
                found.clone().for_each(|found| found.touch_newest());
                let done = found.try_for_each(|found| visit(&found)).is_break();
                if done || inside.len() < group.len() {
                    return ControlFlow::Break(None);
                }
            }
            left -= entries.len();
            match entries.last() {
                Some(last) if left == 0 => ControlFlow::Break(Some(last.clone())),
                _ => ControlFlow::Continue(()),
            }
        });
        step.flatten()
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
            // SAFETY: the index is borrowed mutably, so no read exists.
            unsafe { found.entry().clear() };
            ControlFlow::Continue(())
        });
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::{Index, SCAN_STEP_ENTRIES};
    use crate::fault::Faults;
    use crate::history::Entry;
    use crate::key::KeyRange;
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
