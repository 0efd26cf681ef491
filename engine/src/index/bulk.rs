//! A new tree of entries that are sorted already.

use super::editor::{CHILDREN_MAX, LEAF_ENTRIES_MAX};
use super::replacement::widen_prefix;
use super::tree::{Tree, live_of, sorted};
use crate::history::Entry;
use crate::memory::{Batch, NewNode, NodeCell};

/// A node that no other one contains yet, with a lower bound of its keys.
#[derive(Debug)]
struct Part {
    node: NewNode<Entry>,
    first: Entry,
}

/// Builds a tree of entries that are added in key order. Its nodes are full, as those that keys leave that are created in
/// order.
#[derive(Debug)]
pub(crate) struct SortedTree {
    leaves: Vec<Part>,
    leaf: Option<Leaf>,
    /// So many entries are still expected.
    left: usize,
    len: usize,
}

/// The leaf to which entries are added.
#[derive(Debug)]
struct Leaf {
    node: NewNode<Entry>,
    live: u64,
}

impl SortedTree {
    /// Begins a tree of about so many entries. If there are fewer or more, the last leaf has unused room.
    pub(crate) fn expecting(entries: usize) -> Self {
        Self {
            leaves: Vec::with_capacity(entries.div_ceil(LEAF_ENTRIES_MAX)),
            leaf: None,
            left: entries,
            len: 0,
        }
    }

    /// Adds an entry after all others, with whether its key is live.
    pub(crate) fn push(&mut self, entry: Entry, is_live: bool, batch: &mut Batch) {
        let leaf = self.leaf.get_or_insert_with(|| Leaf {
            node: NewNode::leaf_in(
                batch,
                match self.left {
                    0 => LEAF_ENTRIES_MAX,
                    left => left.min(LEAF_ENTRIES_MAX),
                },
            ),
            live: 0,
        });
        let node = leaf.node.as_node();
        let (at, capacity) = (node.len(), node.capacity());
        leaf.live |= u64::from(is_live) << at;
        leaf.node.push(0, entry);
        self.len += 1;
        self.left = self.left.saturating_sub(1);
        // At once, while the keys are in the caches of the processor.
        if at + 1 == capacity {
            self.end_leaf();
        }
    }

    /// Adds the entries of another one, which are after all others, without a copy.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.end_leaf();
        other.end_leaf();
        self.leaves.append(&mut other.leaves);
        self.left = other.left;
        self.len += other.len;
    }

    /// Ends the last leaf, in which the next entry has no place then.
    pub(crate) fn end_leaf(&mut self) {
        let Some(Leaf { mut node, live }) = self.leaf.take() else {
            return;
        };
        node.set_live(live);
        widen_prefix(&mut node);
        let first = sorted(node.as_node()).items[0].clone();
        self.leaves.push(Part { node, first });
    }

    /// Frees the tree and its entries.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn discard(self) {
        drop(self.finish());
    }

    /// Returns the tree and the number of entries.
    pub(super) fn finish(mut self) -> (Tree, usize) {
        self.end_leaf();
        let mut level = self.leaves;
        let mut height = 1;
        while level.len() > 1 {
            let mut children = level.into_iter();
            level = Vec::with_capacity(children.len().div_ceil(CHILDREN_MAX));
            while children.len() > 0 {
                let len = children.len().min(CHILDREN_MAX);
                level.extend(inner_of(height, &mut children, len));
            }
            height += 1;
        }
        let root = level
            .pop()
            .map_or_else(|| NewNode::new(0, 0, 0), |root| root.node);
        let root = NodeCell::new(root);
        (Tree { root }, self.len)
    }
}

fn inner_of(height: u32, children: &mut impl Iterator<Item = Part>, len: usize) -> Option<Part> {
    let mut node = NewNode::new(height, len - 1, 0);
    let mut first = None;
    for (at, child) in children.take(len).enumerate() {
        // The separators are the bounds of all children but the first one, whose bound is that of the node.
        match first {
            None => first = Some(child.first),
            Some(_) => node.push(0, child.first),
        }
        node.set_child(at, live_of(child.node.as_node()), child.node.publish());
    }
    widen_prefix(&mut node);
    Some(Part {
        node,
        first: first?,
    })
}
