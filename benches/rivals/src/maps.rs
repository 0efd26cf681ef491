//! The maps, behind a trait with the operations that the engine needs from its index.

use std::collections::BTreeSet;
use std::ops::Bound;

use crossbeam_skiplist::SkipSet;
use masstree::{MassTree15, RangeBound};
use parking_lot::RwLock;
use scc::{Guard, TreeIndex};

use crate::counted::CountedTree;
use crate::entry::{Entry, Version};
use crate::sync::epoch::pin;

/// The number of entries that a scan reads before it releases the lock of a map that has one.
const SCAN_STEP: usize = 64;

/// The operations that the engine needs from its index. Any thread may call them; the maps serialize
/// changes where they need it.
pub trait OrderedMap: Send + Sync {
    /// Returns the entry of a key.
    fn get(&self, key: &[u8]) -> Option<Entry>;

    /// Returns the newest version of a key.
    fn read(&self, key: &[u8]) -> Option<Version>;

    /// Reads up to `count` keys from `start` on. Returns how many it has read.
    fn scan(&self, start: &[u8], count: usize) -> usize;

    /// Adds a key that is absent.
    fn create(&self, entry: &Entry);

    /// Removes a key.
    fn delete(&self, key: &[u8]);

    /// Returns the number of keys below `key`, if the map has this operation.
    fn count_below(&self, _key: &[u8]) -> Option<usize> {
        None
    }
}

/// The name of the engine's index.
pub const COUNTED: &str = "counted B-tree";
/// The name of the map of the standard library.
pub const LOCKED: &str = "BTreeMap, RwLock";
/// The name of the trie of B-trees.
pub const MASSTREE: &str = "masstree";

/// Creates an empty map.
pub type NewMap = fn() -> Box<dyn OrderedMap>;

/// All maps with their names.
pub const ALL: [(&str, NewMap); 5] = [
    (COUNTED, || Box::new(CountedTree::new())),
    (LOCKED, || Box::new(RwLock::new(BTreeSet::new()))),
    ("crossbeam-skiplist", || Box::new(SkipSet::new())),
    ("scc::TreeIndex", || Box::new(TreeIndex::new())),
    (MASSTREE, || Box::new(MassTree15::new())),
];

impl OrderedMap for RwLock<BTreeSet<Entry>> {
    fn get(&self, key: &[u8]) -> Option<Entry> {
        RwLock::read(self).get(key).cloned()
    }

    fn read(&self, key: &[u8]) -> Option<Version> {
        let guard = pin();
        Some(RwLock::read(self).get(key)?.read(&guard))
    }

    fn scan(&self, start: &[u8], count: usize) -> usize {
        let guard = pin();
        let mut visited = 0;
        let mut previous: Option<Entry> = None;
        while visited < count {
            let from = match &previous {
                Some(previous) => Bound::Excluded(previous.key()),
                None => Bound::Included(start),
            };
            let keys = RwLock::read(self);
            let mut last = None;
            for entry in keys
                .range::<[u8], _>((from, Bound::Unbounded))
                .take(SCAN_STEP.min(count - visited))
            {
                visited += usize::from(entry.len(&guard) > 0);
                last = Some(entry);
            }
            previous = last.cloned();
            if previous.is_none() {
                break;
            }
        }
        visited
    }

    fn create(&self, entry: &Entry) {
        self.write().insert(entry.clone());
    }

    fn delete(&self, key: &[u8]) {
        self.write().remove(key);
    }
}

impl OrderedMap for SkipSet<Entry> {
    fn get(&self, key: &[u8]) -> Option<Entry> {
        self.get(key).map(|found| found.value().clone())
    }

    fn read(&self, key: &[u8]) -> Option<Version> {
        let guard = pin();
        Some(self.get(key)?.value().read(&guard))
    }

    fn scan(&self, start: &[u8], count: usize) -> usize {
        let guard = pin();
        let from = (Bound::Included(start), Bound::Unbounded);
        let entries = self.range::<[u8], _>(from).take(count);
        entries
            .filter(|entry| entry.value().len(&guard) > 0)
            .count()
    }

    fn create(&self, entry: &Entry) {
        self.insert(entry.clone());
    }

    fn delete(&self, key: &[u8]) {
        self.remove(key);
    }
}

impl OrderedMap for TreeIndex<Entry, ()> {
    fn get(&self, key: &[u8]) -> Option<Entry> {
        self.peek_with(key, |entry, ()| entry.clone())
    }

    fn read(&self, key: &[u8]) -> Option<Version> {
        let guard = pin();
        self.peek_with(key, |entry, ()| entry.read(&guard))
    }

    fn scan(&self, start: &[u8], count: usize) -> usize {
        let (pinned, guard) = (pin(), Guard::new());
        let entries = self.range::<[u8], _>((Bound::Included(start), Bound::Unbounded), &guard);
        entries
            .take(count)
            .filter(|(entry, ())| entry.len(&pinned) > 0)
            .count()
    }

    fn create(&self, entry: &Entry) {
        let _ = self.insert_sync(entry.clone(), ());
    }

    fn delete(&self, key: &[u8]) {
        self.remove_sync(key);
    }
}

impl OrderedMap for MassTree15<Entry> {
    fn get(&self, key: &[u8]) -> Option<Entry> {
        let guard = self.guard();
        self.get_ref(key, &guard).map(|found| found.clone())
    }

    fn read(&self, key: &[u8]) -> Option<Version> {
        let (pinned, guard) = (pin(), self.guard());
        Some(self.get_ref(key, &guard)?.read(&pinned))
    }

    fn scan(&self, start: &[u8], count: usize) -> usize {
        let (pinned, guard) = (pin(), self.guard());
        let mut visited = 0;
        let visit =
            |_: &[u8], entry: <masstree::BoxPolicy<Entry> as masstree::LeafPolicy>::Output| {
                visited += usize::from(entry.len(&pinned) > 0);
                visited < count
            };
        self.scan(
            RangeBound::Included(start),
            RangeBound::Unbounded,
            visit,
            &guard,
        );
        visited
    }

    fn create(&self, entry: &Entry) {
        let guard = self.guard();
        self.insert_with_guard(entry.key(), entry.clone(), &guard);
    }

    fn delete(&self, key: &[u8]) {
        let guard = self.guard();
        let _ = self.remove_with_guard(key, &guard);
    }
}
