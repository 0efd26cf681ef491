//! The counted B-tree of the engine, with the lock of its writer, as one of the maps.

use std::ops::ControlFlow;

use crate::editor::Editor;
use crate::entry::{Entry, Version};
use crate::fault::Faults;
use crate::maps::OrderedMap;
use crate::sync::epoch::{CachePadded, pin};
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, Rank};
use crate::tree::Tree;

/// The number of entries that a scan visits under one pin, as in the engine.
const SCAN_STEP_ENTRIES: usize = 256;

/// The number of entries that a scan prefetches at the same time, as in the engine.
const PREFETCHED_ENTRIES: usize = 8;

/// The number of times that a count reads the tree without the lock, as in the engine.
const COUNT_ATTEMPTS_MAX: usize = 16;

/// The tree with the lock of its writer, as the engine's `Index` combines them.
pub(crate) struct CountedTree {
    tree: CachePadded<Tree>,
    /// The number of begun and ended changes: odd during a change.
    edits: CachePadded<AtomicU64>,
    editor: CachePadded<Mutex<Editor>>,
}

/// A change of the tree.
struct Edit<'a> {
    editor: MutexGuard<'a, Editor>,
    edits: &'a AtomicU64,
}

impl CountedTree {
    pub(crate) fn new() -> Self {
        let (tree, editor) = Editor::new(Faults);
        Self {
            tree: CachePadded::new(tree),
            edits: CachePadded::new(AtomicU64::new(0)),
            editor: CachePadded::new(Mutex::new(Rank::Index, editor)),
        }
    }

    fn edit(&self) -> Edit<'_> {
        let editor = self.editor.lock();
        let edits = &self.edits;
        // Relaxed: as in the engine's `Index::edit`.
        edits.store(edits.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Edit { editor, edits }
    }
}

impl Drop for Edit<'_> {
    fn drop(&mut self) {
        self.editor.abandon();
        // Release: pairs with the Acquire in `count_below`.
        self.edits
            .store(self.edits.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

impl OrderedMap for CountedTree {
    fn get(&self, key: &[u8]) -> Option<Entry> {
        self.tree.get(key, &pin()).cloned()
    }

    fn read(&self, key: &[u8]) -> Option<Version> {
        let guard = pin();
        Some(self.tree.get(key, &guard)?.read(&guard))
    }

    fn scan(&self, start: &[u8], count: usize) -> usize {
        let mut visited = 0;
        let mut last: Option<Vec<u8>> = None;
        while visited < count {
            let guard = pin();
            let mut left = SCAN_STEP_ENTRIES.min(count - visited);
            let from = last.as_deref().unwrap_or(start);
            let step = self.tree.visit_from(from, &guard, |entries| {
                let entries = match (entries, &last) {
                    ([first, rest @ ..], Some(last)) if first.key() == last => rest,
                    _ => entries,
                };
                let entries = &entries[..entries.len().min(left)];
                for group in entries.chunks(PREFETCHED_ENTRIES) {
                    group.iter().for_each(Entry::touch);
                    for entry in group {
                        entry.touch_newest(&guard);
                    }
                    visited += group.iter().filter(|entry| entry.len(&guard) > 0).count();
                }
                left -= entries.len();
                match entries.last() {
                    Some(last) if left == 0 => ControlFlow::Break(last),
                    _ => ControlFlow::Continue(()),
                }
            });
            last = step.map(|last| last.key().to_vec());
            if last.is_none() {
                break;
            }
        }
        visited
    }

    fn create(&self, entry: &Entry) {
        // The engine makes two changes, each with the lock, but under the lock of its sequencer.
        let guard = pin();
        let mut edit = self.edit();
        edit.editor.insert(&self.tree, entry, &guard);
        edit.editor.set_live(&self.tree, entry.key(), true, &guard);
    }

    fn delete(&self, key: &[u8]) {
        let guard = pin();
        let mut edit = self.edit();
        edit.editor.set_live(&self.tree, key, false, &guard);
        edit.editor.remove(&self.tree, key, &guard);
    }

    fn count_below(&self, key: &[u8]) -> Option<usize> {
        let guard = pin();
        for _ in 0..COUNT_ATTEMPTS_MAX {
            // Acquire: pairs with the Release in `Edit::drop`.
            let before = self.edits.load(Ordering::Acquire);
            if before % 2 == 1 {
                std::hint::spin_loop();
                continue;
            }
            let count = self.tree.live_below(key, &guard);
            // Relaxed: as in the engine's `Index::count`.
            if self.edits.load(Ordering::Relaxed) == before {
                return Some(count);
            }
        }
        let editor = self.editor.lock();
        debug_assert!(self.tree.live(&guard) <= editor.len());
        Some(self.tree.live_below(key, &guard))
    }
}
