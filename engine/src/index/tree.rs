//! A B-tree with counts: the ordered map from key to entry, which stores the number of live keys of
//! every subtree next to the pointer to it.
//!
//! ```text
//!            inner   separators    "g"      "p"
//!                    live       3      4       2
//!                    children    │      │       │
//!            leaf  [a c e f]  [g h k m]  [p q z]     with one bit per key: live or not
//! ```
//!
//! A deleted key stays in the tree, not live, until compaction drops its last version. Lookup,
//! insertion, removal and counting a range take logarithmic time; a scan visits the leaves.
//!
//! Readers need only a pin. There is one writer at a time, which replaces a node by a changed copy,
//! with one store of the pointer to it; what it changes in place are that pointer, the counts, and
//! the end of a leaf. So a reader that descends while the tree changes finds every key that was there
//! when it began and is still there when it ends: a replaced node has the content of the time of its
//! replacement, which lies after the begin of every pin that can access it.

use std::ops::ControlFlow;

use super::sorted_node::Sorted;
use crate::history::Entry;
use crate::memory::{Node, NodeCell};
use crate::sync::epoch::{Guard, pin};
use crate::sync::{AtomicU32, Ordering};

/// The tree. Reads need a pin; the right to change it is an [`Editor`], of which the index has one.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(super) root: NodeCell<Entry>,
}

impl Tree {
    #[inline]
    pub(crate) fn get<'g>(&'g self, key: &[u8], guard: &'g Guard) -> Option<&'g Entry> {
        let mut node = self.root.load(guard);
        while !node.is_leaf() {
            let sorted = sorted(node);
            node = node.children(sorted.items.len())[sorted.child_of(key)].load(guard);
        }
        let sorted = sorted(node);
        sorted.find(key).ok().map(|at| &sorted.items[at])
    }

    /// Returns the number of live keys.
    pub(crate) fn live(&self, guard: &Guard) -> usize {
        live_of(self.root.load(guard)) as usize
    }

    /// Returns the number of live keys below `key`. If the tree changes during the call, the result
    /// includes an arbitrary part of the changes.
    pub(crate) fn live_below(&self, key: &[u8], guard: &Guard) -> usize {
        let mut below = 0;
        let mut node = self.root.load(guard);
        while !node.is_leaf() {
            let sorted = sorted(node);
            let (child, len) = (sorted.child_of(key), sorted.items.len());
            below += sum(&node.lives(len)[..child]) as usize;
            node = node.children(len)[child].load(guard);
        }
        let (Ok(at) | Err(at)) = sorted(node).find(key);
        below + (node.live() & low_bits(at)).count_ones() as usize
    }

    /// Returns the keys at which about `parts` parts of similar length begin, without that of the first part: at most twice as
    /// many, and fewer of a small tree.
    pub(crate) fn bounds<'g>(&'g self, parts: usize, guard: &'g Guard) -> Vec<&'g [u8]> {
        let root = self.root.load(guard);
        let mut bounds = Vec::new();
        for levels in 0..root.height() {
            bounds.clear();
            separators(root, levels, guard, &mut bounds);
            if 2 * bounds.len() >= parts {
                break;
            }
        }
        let step = (bounds.len() / parts.max(1)).max(1);
        let others = bounds.into_iter().skip(step - 1).step_by(step);
        others.map(Entry::key).collect()
    }

    /// Calls `visit` with the entries from `start` on in key order, one leaf at a time, until it
    /// breaks.
    pub(crate) fn visit_from<'g, B>(
        &'g self,
        start: &[u8],
        guard: &'g Guard,
        mut visit: impl FnMut(&'g [Entry]) -> ControlFlow<B>,
    ) -> Option<B> {
        match visit_below(self.root.load(guard), Some(start), guard, &mut visit) {
            ControlFlow::Break(value) => Some(value),
            ControlFlow::Continue(()) => None,
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        fn destroy(node: Node<'_, Entry>, guard: &Guard) {
            if !node.is_leaf() {
                for child in node.children(node.len()) {
                    destroy(child.load(guard), guard);
                }
            }
            // SAFETY: the tree is borrowed mutably, and its nodes own their items.
            unsafe { node.destroy() };
        }
        let guard = pin();
        destroy(self.root.load(&guard), &guard);
    }
}

/// Returns the content of a node.
#[inline]
pub(super) fn sorted(node: Node<'_, Entry>) -> Sorted<'_, Entry> {
    let (heads, items) = node.content(node.len());
    Sorted {
        prefix_len: node.prefix_len(),
        heads,
        items,
    }
}

/// Returns the child of an inner node that contains a key, if the tree does, with its index.
pub(super) fn child_of<'g>(node: Node<'g, Entry>, key: &[u8]) -> (usize, &'g NodeCell<Entry>) {
    let sorted = sorted(node);
    let at = sorted.child_of(key);
    (at, &node.children(sorted.items.len())[at])
}

pub(super) fn sum(lives: &[AtomicU32]) -> u32 {
    // Acquire: see `Node::lives`.
    lives.iter().map(|live| live.load(Ordering::Acquire)).sum()
}

/// Returns the number of live keys below a node.
pub(super) fn live_of(node: Node<'_, Entry>) -> u32 {
    if node.is_leaf() {
        node.live().count_ones()
    } else {
        sum(node.lives(node.len()))
    }
}

/// Adds the separators of an inner node and of some levels below it, in key order.
fn separators<'g>(
    node: Node<'g, Entry>,
    levels: u32,
    guard: &'g Guard,
    found: &mut Vec<&'g Entry>,
) {
    let items = sorted(node).items;
    for (at, child) in node.children(items.len()).iter().enumerate() {
        if levels > 0 {
            separators(child.load(guard), levels - 1, guard, found);
        }
        found.extend(items.get(at));
    }
}

/// Visits the entries from `start` on, or all of them.
fn visit_below<'g, B>(
    node: Node<'g, Entry>,
    start: Option<&[u8]>,
    guard: &'g Guard,
    visit: &mut impl FnMut(&'g [Entry]) -> ControlFlow<B>,
) -> ControlFlow<B> {
    let sorted = sorted(node);
    if node.is_leaf() {
        let first = start.map_or(0, |start| {
            let (Ok(first) | Err(first)) = sorted.find(start);
            first
        });
        return visit(&sorted.items[first..]);
    }
    let first = start.map_or(0, |start| sorted.child_of(start));
    let mut start = start;
    for child in &node.children(sorted.items.len())[first..] {
        visit_below(child.load(guard), start.take(), guard, visit)?;
    }
    ControlFlow::Continue(())
}

/// Returns a number with the lowest `count` bits set.
pub(super) fn low_bits(count: usize) -> u64 {
    if count >= u64::BITS as usize {
        u64::MAX
    } else {
        (1 << count) - 1
    }
}
