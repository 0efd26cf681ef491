//! The maps, behind what the engine asks of its index.

use std::collections::BTreeSet;
use std::ops::{Bound, ControlFlow};

use crossbeam_skiplist::SkipSet;
use masstree::{MassTree15, RangeBound};
use parking_lot::RwLock;
use scc::{Guard, TreeIndex};

use crate::entry::Entry;
use crate::tree::Tree;

/// Entries that a scan sees before a lock lets writers in, as in the engine.
const STEP: usize = 64;

/// What the engine asks of its index. Only one thread at a time creates and deletes.
pub trait Ordered: Send + Sync {
    /// Reads one key.
    fn get(&self, key: &[u8]) -> Option<Entry>;

    /// Reads `count` keys from `start` on; returns how many there were.
    fn scan(&self, start: &[u8], count: usize) -> usize;

    /// Adds a key that is not there.
    fn create(&self, entry: Entry);

    /// Takes a key out.
    fn delete(&self, key: &[u8]);

    /// How many keys are below this one, where the map knows.
    fn count_below(&self, _key: &[u8]) -> Option<usize> {
        None
    }
}

/// Every map, by name.
pub const ALL: [(&str, fn() -> Box<dyn Ordered>); 5] = [
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

impl Ordered for RwLock<Tree> {
    fn get(&self, key: &[u8]) -> Option<Entry> {
        self.read().get(key).cloned()
    }

    fn scan(&self, start: &[u8], count: usize) -> usize {
        let mut seen = 0;
        let mut behind: Option<Entry> = None;
        while seen < count {
            let mut left = STEP.min(count - seen);
            let from = behind.as_ref().map_or(start, Entry::key);
            let last = self.read().visit_from(from, |entries| {
                let entries = match (entries, &behind) {
                    ([first, rest @ ..], Some(behind)) if first == behind => rest,
                    _ => entries,
                };
                let entries = &entries[..entries.len().min(left)];
                seen += entries.iter().filter(|entry| entry.read() > 0).count();
                left -= entries.len();
                match entries.last() {
                    Some(last) if left == 0 => ControlFlow::Break(last.clone()),
                    _ => ControlFlow::Continue(()),
                }
            });
            if last.is_none() {
                break;
            }
            behind = last;
        }
        seen
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

impl Ordered for RwLock<BTreeSet<Entry>> {
    fn get(&self, key: &[u8]) -> Option<Entry> {
        self.read().get(key).cloned()
    }

    fn scan(&self, start: &[u8], count: usize) -> usize {
        let mut seen = 0;
        let mut behind: Option<Entry> = None;
        while seen < count {
            let from = match &behind {
                Some(behind) => Bound::Excluded(behind.key()),
                None => Bound::Included(start),
            };
            let keys = self.read();
            let mut last = None;
            for entry in keys
                .range::<[u8], _>((from, Bound::Unbounded))
                .take(STEP.min(count - seen))
            {
                seen += usize::from(entry.read() > 0);
                last = Some(entry);
            }
            behind = last.cloned();
            if behind.is_none() {
                break;
            }
        }
        seen
    }

    fn create(&self, entry: Entry) {
        self.write().insert(entry);
    }

    fn delete(&self, key: &[u8]) {
        self.write().remove(key);
    }
}

impl Ordered for SkipSet<Entry> {
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

impl Ordered for TreeIndex<Entry, ()> {
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

impl Ordered for MassTree15<Entry> {
    fn get(&self, key: &[u8]) -> Option<Entry> {
        let guard = self.guard();
        self.get_ref(key, &guard).map(|found| found.clone())
    }

    fn scan(&self, start: &[u8], count: usize) -> usize {
        let guard = self.guard();
        let mut seen = 0;
        let visit =
            |_: &[u8], entry: <masstree::BoxPolicy<Entry> as masstree::LeafPolicy>::Output| {
                seen += usize::from(entry.read() > 0);
                seen < count
            };
        self.scan(
            RangeBound::Included(start),
            RangeBound::Unbounded,
            visit,
            &guard,
        );
        seen
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
