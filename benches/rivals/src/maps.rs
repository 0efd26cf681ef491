//! The maps, behind a trait with the operations that the engine needs from its index.

use std::collections::BTreeSet;
use std::ops::{Bound, ControlFlow};

use crossbeam_skiplist::SkipSet;
use masstree::{MassTree15, RangeBound};
use parking_lot::RwLock;
use scc::{Guard, TreeIndex};

use crate::entry::Entry;
use crate::tree::Tree;

/// The number of entries that a scan reads before it releases the lock, as in the engine.
const SCAN_STEP: usize = 64;

/// The operations that the engine needs from its index. Only one thread at a time creates and
/// deletes.
pub trait OrderedMap: Send + Sync {
    /// Reads one key.
    fn get(&self, key: &[u8]) -> Option<Entry>;

    /// Reads up to `count` keys from `start` on. Returns how many it has read.
    fn scan(&self, start: &[u8], count: usize) -> usize;

    /// Adds a key that is absent.
    fn create(&self, entry: Entry);

    /// Removes a key.
    fn delete(&self, key: &[u8]);

    /// Returns the number of keys below `key`, if the map has this operation.
    fn count_below(&self, _key: &[u8]) -> Option<usize> {
        None
    }
}

/// All maps with their names.
pub const ALL: [(&str, fn() -> Box<dyn OrderedMap>); 5] = [
    ("counted B-tree, RwLock", || {
        Box::new(RwLock::new(Tree::new()))
    }),
    ("BTreeMap, RwLock", || {
        Box::new(RwLock::new(BTreeSet::new()))
    }),
    ("crossbeam-skiplist", || Box::new(SkipSet::new())),
    ("scc::TreeIndex", || Box::new(TreeIndex::new())),
    ("masstree", || Box::new(MassTree15::new())),
];

impl OrderedMap for RwLock<Tree> {
    fn get(&self, key: &[u8]) -> Option<Entry> {
        self.read().get(key).cloned()
    }

    fn scan(&self, start: &[u8], count: usize) -> usize {
        let mut visited = 0;
        let mut previous: Option<Entry> = None;
        while visited < count {
            let mut left = SCAN_STEP.min(count - visited);
            let from = previous.as_ref().map_or(start, Entry::key);
            let last = self.read().visit_from(from, |entries| {
                let entries = match (entries, &previous) {
                    ([first, rest @ ..], Some(previous)) if first == previous => rest,
                    _ => entries,
                };
                let entries = &entries[..entries.len().min(left)];
                visited += entries.iter().filter(|entry| entry.read() > 0).count();
                left -= entries.len();
                match entries.last() {
                    Some(last) if left == 0 => ControlFlow::Break(last.clone()),
                    _ => ControlFlow::Continue(()),
                }
            });
            if last.is_none() {
                break;
            }
            previous = last;
        }
        visited
    }

    fn create(&self, entry: Entry) {
        let mut tree = self.write();
        tree.insert(entry.clone());
        tree.set_live(entry.key(), true);
    }

    fn delete(&self, key: &[u8]) {
        let mut tree = self.write();
        tree.set_live(key, false);
        tree.remove(key);
    }

    fn count_below(&self, key: &[u8]) -> Option<usize> {
        let tree = self.read();
        debug_assert!(tree.live() <= tree.len());
        Some(tree.live_below(key))
    }
}

impl OrderedMap for RwLock<BTreeSet<Entry>> {
    fn get(&self, key: &[u8]) -> Option<Entry> {
        self.read().get(key).cloned()
    }

    fn scan(&self, start: &[u8], count: usize) -> usize {
        let mut visited = 0;
        let mut previous: Option<Entry> = None;
        while visited < count {
            let from = match &previous {
                Some(previous) => Bound::Excluded(previous.key()),
                None => Bound::Included(start),
            };
            let keys = self.read();
            let mut last = None;
            for entry in keys
                .range::<[u8], _>((from, Bound::Unbounded))
                .take(SCAN_STEP.min(count - visited))
            {
                visited += usize::from(entry.read() > 0);
                last = Some(entry);
            }
            previous = last.cloned();
            if previous.is_none() {
                break;
            }
        }
        visited
    }

    fn create(&self, entry: Entry) {
        self.write().insert(entry);
    }

    fn delete(&self, key: &[u8]) {
        self.write().remove(key);
    }
}

impl OrderedMap for SkipSet<Entry> {
    fn get(&self, key: &[u8]) -> Option<Entry> {
        self.get(key).map(|found| found.value().clone())
    }

    fn scan(&self, start: &[u8], count: usize) -> usize {
        let from = (Bound::Included(start), Bound::Unbounded);
        let entries = self.range::<[u8], _>(from).take(count);
        entries.filter(|entry| entry.value().read() > 0).count()
    }

    fn create(&self, entry: Entry) {
        self.insert(entry);
    }

    fn delete(&self, key: &[u8]) {
        self.remove(key);
    }
}

impl OrderedMap for TreeIndex<Entry, ()> {
    fn get(&self, key: &[u8]) -> Option<Entry> {
        self.peek_with(key, |entry, ()| entry.clone())
    }

    fn scan(&self, start: &[u8], count: usize) -> usize {
        let guard = Guard::new();
        let entries = self.range::<[u8], _>((Bound::Included(start), Bound::Unbounded), &guard);
        entries
            .take(count)
            .filter(|(entry, ())| entry.read() > 0)
            .count()
    }

    fn create(&self, entry: Entry) {
        let _ = self.insert_sync(entry, ());
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

    fn scan(&self, start: &[u8], count: usize) -> usize {
        let guard = self.guard();
        let mut visited = 0;
        let visit =
            |_: &[u8], entry: <masstree::BoxPolicy<Entry> as masstree::LeafPolicy>::Output| {
                visited += usize::from(entry.read() > 0);
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

    fn create(&self, entry: Entry) {
        let guard = self.guard();
        let key = entry.clone();
        self.insert_with_guard(key.key(), entry, &guard);
    }

    fn delete(&self, key: &[u8]) {
        let guard = self.guard();
        let _ = self.remove_with_guard(key, &guard);
    }
}
