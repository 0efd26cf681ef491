//! The index: which keys there are, in order, and how many of them are live.
//!
//! Everything that knows how the ordered map is made and locked is in this file and `tree.rs`.

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

/// Entries that a scan looks at before it lets writers in.
const SCAN_STEP_ENTRIES: usize = 64;

/// Entries that a scan fetches from memory at once. About what a processor can wait for at a time.
const FETCHED_TOGETHER: usize = 8;

/// The ordered map from key to [`Entry`].
///
/// Writers change it only when a key is created, comes to life, dies or is retired, and hold the
/// lock for one descent; an update of a living key leaves it alone.
#[derive(Debug)]
pub(crate) struct Index {
    /// Rank `Index`. Held for one descent or one scan step, never for a whole range. Reads of newest
    /// versions happen with it held, and [`Index::free`] takes it to wait for them.
    keys: RwLock<Keys>,
    faults: Faults,
}

/// An entry that was found with the index locked, so that nothing it shows is freed meanwhile.
#[derive(Debug)]
pub(crate) struct Found<'a>(&'a Entry);

impl Found<'_> {
    pub(crate) fn entry(&self) -> &Entry {
        self.0
    }

    /// As [`Entry::read`].
    pub(crate) fn read(&self, at: Position) -> Option<KeyValue> {
        // SAFETY: only made with the index locked, and what is removed meanwhile is freed in
        // `Index::free`, with the lock taken in between.
        unsafe { self.0.read(at) }
    }

    fn touch_newest(&self) {
        // SAFETY: as in `read`.
        unsafe { self.0.touch_newest() }
    }
}

#[derive(Debug)]
struct Keys {
    tree: Tree,
    /// The last change that made a key live or dead: the counts hold all up to it, nothing later.
    counted_through: Position,
}

/// How many keys of a range were live, and when.
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

    /// The version of a key that was newest at `at`, if the key was live. One descent.
    pub(crate) fn read(&self, key: &[u8], at: Position) -> Option<KeyValue> {
        let keys = self.keys.read();
        keys.tree.get(key).and_then(|entry| Found(entry).read(at))
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Entry> {
        self.keys.read().tree.get(key).cloned()
    }

    /// Returns the entry that a pending record is to be added to. An entry that was retired since the
    /// record was created is no longer in the index, so its key gets a new one (I7). The caller must hold
    /// the sequencer.
    pub(crate) fn entry_for(&self, pending: &PendingRecord) -> Entry {
        let entry = pending.entry();
        if !pending.entry_found() {
            return self.get_or_insert(entry);
        }
        if entry.is_retired() && !self.faults.has(Fault::TrustFoundEntry) {
            return self.get_or_insert(&Entry::new(entry.key()));
        }
        entry.clone()
    }

    /// Returns the entry with the key of `new`; inserts `new` if there is none. The caller must hold
    /// the sequencer.
    pub(crate) fn get_or_insert(&self, new: &Entry) -> Entry {
        let mut keys = self.keys.write();
        if let Some(entry) = keys.tree.get(new.key()) {
            return entry.clone();
        }
        keys.tree.insert(new.clone());
        new.clone()
    }

    /// Counts a key in or out. Only the holder of the sequencer may, in revision order.
    pub(crate) fn set_live(&self, key: &[u8], live: bool, revision: Position) {
        let mut keys = self.keys.write();
        keys.tree.set_live(key, live);
        keys.counted_through = revision;
    }

    /// Takes a retired entry out. Only the holder of the sequencer may.
    pub(crate) fn remove(&self, key: &[u8]) {
        self.keys.write().tree.remove(key);
    }

    /// Frees versions that were removed from their entries, when no read can look at them any more.
    pub(crate) fn free(&self, removed: Removed) {
        if removed.is_empty() {
            return;
        }
        // Reads that began before the removal hold the lock; later ones do not find the versions.
        unless_fault!(self.faults, FreeAtOnce, drop(self.keys.write()));
        // SAFETY: just waited for all reads that began before.
        drop(unsafe { removed.into_freeable() });
    }

    /// Living keys in the range as of the last change that made one live or dead. Logarithmic.
    pub(crate) fn count(&self, range: &KeyRange) -> Count {
        let keys = self.keys.read();
        let tree = &keys.tree;
        let live = match range {
            KeyRange::One(key) => {
                let mut behind = key.to_vec();
                behind.push(0);
                tree.live_below(&behind) - tree.live_below(key)
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

    /// Keys in the index, dead ones included.
    pub(crate) fn len(&self) -> usize {
        self.keys.read().tree.len()
    }

    /// Shows the entries of a range in key order until `visit` breaks, a few dozen per lock.
    ///
    /// Entries that come or go meanwhile may or may not be seen; what they say at a fixed
    /// revision does not depend on it.
    pub(crate) fn scan(
        &self,
        range: &KeyRange,
        mut visit: impl FnMut(&Found<'_>) -> ControlFlow<()>,
    ) {
        enum Step {
            Done,
            GoOnBehind(Entry),
        }
        let mut behind: Option<Entry> = None;
        loop {
            let mut left = SCAN_STEP_ENTRIES;
            let start = behind.as_ref().map_or(range.start(), Entry::key);
            let step = self.keys.read().tree.visit_from(start, |entries| {
                let entries = match (entries, &behind) {
                    ([first, rest @ ..], Some(behind)) if first == behind => rest,
                    _ => entries,
                };
                let entries = &entries[..entries.len().min(left)];
                for group in entries.chunks(FETCHED_TOGETHER) {
                    group.iter().for_each(Entry::touch);
                    let inside = part_within(group, range);
                    let mut found = inside.iter().map(Found);
                    found.clone().for_each(|found| found.touch_newest());
                    let done = found.try_for_each(|found| visit(&found)).is_break();
                    if done || inside.len() < group.len() {
                        return ControlFlow::Break(Step::Done);
                    }
                }
                left -= entries.len();
                match entries.last() {
                    Some(last) if left == 0 => ControlFlow::Break(Step::GoOnBehind(last.clone())),
                    _ => ControlFlow::Continue(()),
                }
            });
            match step {
                Some(Step::GoOnBehind(entry)) => behind = Some(entry),
                Some(Step::Done) | None => return,
            }
        }
    }
}

/// The entries that lie before the end of the range.
fn part_within<'a>(entries: &'a [Entry], range: &KeyRange) -> &'a [Entry] {
    let is_behind = |entry: &Entry| range.ends_before(entry.key());
    if entries.last().is_some_and(is_behind) {
        &entries[..entries.partition_point(|entry| !is_behind(entry))]
    } else {
        entries
    }
}

/// Records name their entries and entries hold their records: whoever drops the index breaks the
/// circle.
impl Drop for Index {
    fn drop(&mut self) {
        self.scan(&KeyRange::all(), |found| {
            // SAFETY: the index is this thread's alone, so nobody reads.
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
    fn a_scan_crosses_its_steps_without_a_gap_or_a_double() {
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
    fn counts_say_through_which_change_they_hold() {
        let index = Index::new(Faults::default());
        for (main, key) in [(2, "a"), (3, "b"), (4, "c")] {
            index.get_or_insert(&Entry::new(key.as_bytes()));
            index.set_live(key.as_bytes(), true, Revision(main).start());
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
