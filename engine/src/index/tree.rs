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

use std::ops::{ControlFlow, Range};

use super::sorted_node::{Sorted, head_after};
use crate::fault::{Faults, on_fault};
use crate::history::Entry;
use crate::memory::{NewNode, Node, NodeCell, NodePointer, OldNode};
use crate::sync::epoch::{Guard, pin};
use crate::sync::{AtomicU32, Ordering};

/// The maximum number of entries in a leaf: the number of bits of its bit set, and fewer under loom,
/// so that models split nodes.
const LEAF_ENTRIES_MAX: usize = if cfg!(any(loom, shuttle)) {
    2
} else {
    u64::BITS as usize
};
/// The maximum number of children of an inner node.
const CHILDREN_MAX: usize = if cfg!(any(loom, shuttle)) { 3 } else { 64 };
/// The minimum number of entries or children of a node. A node with fewer is joined with a
/// neighbour if possible.
const FILL_MIN: usize = if cfg!(any(loom, shuttle)) { 1 } else { 16 };
/// The smallest capacity of a leaf whose last key is a new one, for keys that are created in order.
const APPEND_CAPACITY_MIN: usize = 8;

/// The tree. Reads need a pin; the right to change it is an [`Editor`], of which the index has one.
#[derive(Debug)]
pub(crate) struct Tree {
    root: NodeCell<Entry>,
}

/// The right to change a tree, and what a change has replaced until it is freed.
#[derive(Debug)]
pub(crate) struct Editor {
    len: usize,
    old_nodes: Vec<OldNode<Entry>>,
    old_entries: Vec<Entry>,
    faults: Faults,
}

/// The result of an insertion below a node.
enum Grown {
    /// The key is in the tree already.
    Found(Entry),
    /// The node itself was kept.
    Kept,
    Replaced(NewNode<Entry>),
    Split(Split),
}

/// The result of a split.
struct Split {
    /// The replacement of the node; `None` if it was kept.
    left: Option<NewNode<Entry>>,
    /// A lower bound of the keys of the new right neighbour.
    separator: Entry,
    right: NewNode<Entry>,
}

/// The result of a removal below a node.
enum Shrunk {
    Absent,
    /// The node itself was kept.
    Kept,
    Replaced(NewNode<Entry>),
    Emptied,
}

impl Editor {
    /// Creates a tree and the right to change it.
    pub(crate) fn new(faults: Faults) -> (Tree, Self) {
        let tree = Tree {
            root: NodeCell::new(NewNode::new(0, 0, 0)),
        };
        let editor = Self {
            len: 0,
            old_nodes: Vec::new(),
            old_entries: Vec::new(),
            faults,
        };
        (tree, editor)
    }

    /// Returns the number of keys, live or not.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds an entry, as not live, unless its key is in the tree. Returns the entry of the key.
    pub(crate) fn insert(&mut self, tree: &Tree, entry: &Entry, guard: &Guard) -> Entry {
        let root = tree.root.load(guard);
        match self.insert_below(root, entry, guard) {
            Grown::Found(entry) => return entry,
            Grown::Kept => {}
            Grown::Replaced(new) => self.store(&tree.root, new.publish()),
            Grown::Split(Split {
                left,
                separator,
                right,
            }) => {
                let left_live = live_of(left.as_ref().map_or(root, NewNode::as_node));
                let mut new = NewNode::new(root.height() + 1, 1, separator.key().len());
                new.push(0, separator);
                new.set_child(1, live_of(right.as_node()), right.publish());
                let left = left.map_or(NodePointer::of(root), NewNode::publish);
                new.set_child(0, left_live, left);
                self.store(&tree.root, new.publish());
            }
        }
        self.len += 1;
        self.free(guard);
        entry.clone()
    }

    /// Removes a key, if it is in the tree.
    pub(crate) fn remove(&mut self, tree: &Tree, key: &[u8], guard: &Guard) {
        let mut root = tree.root.load(guard);
        match self.remove_below(root, key, guard) {
            Shrunk::Absent => return,
            Shrunk::Kept => {}
            Shrunk::Replaced(new) => self.store(&tree.root, new.publish()),
            Shrunk::Emptied => self.store(&tree.root, NewNode::new(0, 0, 0).publish()),
        }
        self.len -= 1;
        // A root with one child only adds height.
        root = tree.root.load(guard);
        while !root.is_leaf() && root.len() == 0 {
            let only = root.children(0)[0].load(guard);
            self.store(&tree.root, NodePointer::of(only));
            self.old_nodes.push(root.retire());
            root = only;
        }
        self.free(guard);
    }

    /// Marks a key as live or not live.
    #[expect(clippy::unused_self, reason = "the right to change the tree")]
    pub(crate) fn set_live(&mut self, tree: &Tree, key: &[u8], live: bool, guard: &Guard) {
        set_live_below(tree.root.load(guard), key, live, guard);
    }

    fn insert_below(&mut self, node: Node<'_, Entry>, entry: &Entry, guard: &Guard) -> Grown {
        if node.is_leaf() {
            return self.insert_into_leaf(node, entry);
        }
        let (at, cell) = child_of(node, entry.key());
        let split = match self.insert_below(cell.load(guard), entry, guard) {
            unchanged @ (Grown::Found(_) | Grown::Kept) => return unchanged,
            Grown::Replaced(new) => {
                self.store(cell, new.publish());
                return Grown::Kept;
            }
            Grown::Split(split) => split,
        };
        let children = node.len() + 1;
        if children == CHILDREN_MAX && at + 1 == children && split.left.is_none() {
            // Keys that are created in order leave full nodes.
            let mut right = NewNode::new(node.height(), 0, 0);
            right.set_child(0, live_of(split.right.as_node()), split.right.publish());
            return Grown::Split(Split {
                left: None,
                separator: split.separator,
                right,
            });
        }
        self.old_nodes.push(node.retire());
        let grown = inner_with(node, at, split, guard);
        if children < CHILDREN_MAX {
            return Grown::Replaced(grown);
        }
        let middle = CHILDREN_MAX.div_ceil(2);
        let all = grown.as_node();
        // SAFETY: `grown` is not published. Its items move to the two halves, except the separator
        // between them, which moves up.
        unsafe {
            Grown::Split(Split {
                left: Some(inner_part(all, 0..middle, guard)),
                separator: all.read_item(middle - 1),
                right: inner_part(all, middle..children + 1, guard),
            })
        }
    }

    fn insert_into_leaf(&mut self, leaf: Node<'_, Entry>, entry: &Entry) -> Grown {
        let sorted = sorted(leaf);
        let len = sorted.items.len();
        let at = match sorted.find(entry.key()) {
            Ok(at) => return Grown::Found(sorted.items[at].clone()),
            Err(at) => at,
        };
        let entry = entry.clone();
        if len < LEAF_ENTRIES_MAX {
            if at == len
                && len < leaf.capacity()
                && sorted.prefix_with(entry.key()) == sorted.prefix_len
            {
                let head = head_after(sorted.prefix_len, entry.key());
                // SAFETY: `self` is the right to change the tree.
                unsafe { leaf.append(head, entry) };
                return Grown::Kept;
            }
            let capacity = if at == len {
                let doubled = (len + 1).next_power_of_two();
                doubled.clamp(
                    APPEND_CAPACITY_MIN,
                    LEAF_ENTRIES_MAX.max(APPEND_CAPACITY_MIN),
                )
            } else {
                len + 1
            };
            self.old_nodes.push(leaf.retire());
            return Grown::Replaced(leaf_with(leaf, 0..len, at, entry, capacity));
        }
        // Keys that are created in order leave full leaves; other keys leave half full ones.
        if at == len {
            let separator = entry.clone();
            let right = leaf_with(leaf, len..len, len, entry, APPEND_CAPACITY_MIN);
            return Grown::Split(Split {
                left: None,
                separator,
                right,
            });
        }
        self.old_nodes.push(leaf.retire());
        let middle = LEAF_ENTRIES_MAX / 2;
        let (left, right) = if at <= middle {
            let left = leaf_with(leaf, 0..middle, at, entry, middle + 1);
            (left, leaf_part(leaf, middle..len))
        } else {
            let right = leaf_with(leaf, middle..len, at, entry, len - middle + 1);
            (leaf_part(leaf, 0..middle), right)
        };
        Grown::Split(Split {
            left: Some(left),
            separator: sorted_of_new(&right).items[0].clone(),
            right,
        })
    }

    fn remove_below(&mut self, node: Node<'_, Entry>, key: &[u8], guard: &Guard) -> Shrunk {
        if node.is_leaf() {
            return self.remove_from_leaf(node, key);
        }
        let (at, cell) = child_of(node, key);
        let new = match self.remove_below(cell.load(guard), key, guard) {
            Shrunk::Absent => return Shrunk::Absent,
            Shrunk::Kept => {
                set_live_of_child(node, at, live_of(cell.load(guard)));
                return Shrunk::Kept;
            }
            Shrunk::Emptied if node.len() == 0 => {
                self.old_nodes.push(node.retire());
                return Shrunk::Emptied;
            }
            Shrunk::Emptied => {
                self.old_nodes.push(node.retire());
                let separator = at.saturating_sub(1);
                // SAFETY: the node is replaced, so the separator belongs to no node any more.
                self.old_entries.push(unsafe { node.read_item(separator) });
                return Shrunk::Replaced(inner_without(node, separator, at, None, guard));
            }
            Shrunk::Replaced(new) => new,
        };
        let Some(left_at) = joinable(node, at, fill(new.as_node()), guard) else {
            let live = live_of(new.as_node());
            self.store(cell, new.publish());
            set_live_of_child(node, at, live);
            return Shrunk::Kept;
        };
        let other_at = if left_at == at { at + 1 } else { left_at };
        let other = node.children(node.len())[other_at].load(guard);
        // SAFETY: the node is replaced by one without this separator.
        let separator = unsafe { node.read_item(left_at) };
        let (left, right) = if left_at == at {
            (new.as_node(), other)
        } else {
            (other, new.as_node())
        };
        let joined = if left.is_leaf() {
            self.old_entries.push(separator);
            joined_leaves(left, right)
        } else {
            joined_inner_nodes(left, separator, right, guard)
        };
        self.old_nodes.extend([node.retire(), other.retire()]);
        let shrunk = inner_without(node, left_at, left_at + 1, Some(joined), guard);
        Shrunk::Replaced(shrunk)
    }

    fn remove_from_leaf(&mut self, leaf: Node<'_, Entry>, key: &[u8]) -> Shrunk {
        let Ok(at) = sorted(leaf).find(key) else {
            return Shrunk::Absent;
        };
        self.old_nodes.push(leaf.retire());
        // SAFETY: the leaf is replaced by one without this entry.
        self.old_entries.push(unsafe { leaf.read_item(at) });
        let len = leaf.len();
        if len == 1 {
            return Shrunk::Emptied;
        }
        let mut new = NewNode::new(0, len - 1, leaf.prefix_len());
        // SAFETY: the leaf is replaced by the new one.
        unsafe {
            new.move_items(leaf, 0..at);
            new.move_items(leaf, at + 1..len);
        }
        let low = low_bits(at);
        new.set_live((leaf.live() & low) | ((leaf.live() >> 1) & !low));
        Shrunk::Replaced(new)
    }

    fn store(&self, cell: &NodeCell<Entry>, new: NodePointer<Entry>) {
        on_fault!(self.faults, LinkUnordered, {
            cell.store_unordered(new);
            return;
        });
        cell.store(new);
    }

    /// Leaks what a change that panicked was about to replace: a part of it may still be reachable.
    pub(crate) fn abandon(&mut self) {
        self.old_nodes.clear();
        self.old_entries.drain(..).for_each(std::mem::forget);
    }

    /// Frees what a change has replaced, after the pins of this time.
    fn free(&mut self, guard: &Guard) {
        for node in self.old_nodes.drain(..) {
            // SAFETY: the change has made the node unreachable.
            unsafe { node.free(guard) };
        }
        for entry in self.old_entries.drain(..) {
            // SAFETY: the change has made this handle unreachable.
            unsafe { guard.defer(0, move || drop(entry)) };
        }
    }
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
fn sorted(node: Node<'_, Entry>) -> Sorted<'_, Entry> {
    let (heads, items) = node.content(node.len());
    Sorted {
        prefix_len: node.prefix_len(),
        heads,
        items,
    }
}

fn sorted_of_new(node: &NewNode<Entry>) -> Sorted<'_, Entry> {
    sorted(node.as_node())
}

/// Returns the child of an inner node that contains a key, if the tree does, with its index.
fn child_of<'g>(node: Node<'g, Entry>, key: &[u8]) -> (usize, &'g NodeCell<Entry>) {
    let sorted = sorted(node);
    let at = sorted.child_of(key);
    (at, &node.children(sorted.items.len())[at])
}

fn sum(lives: &[AtomicU32]) -> u32 {
    // Acquire: see `Node::lives`.
    lives.iter().map(|live| live.load(Ordering::Acquire)).sum()
}

/// Returns the number of live keys below a node.
fn live_of(node: Node<'_, Entry>) -> u32 {
    if node.is_leaf() {
        node.live().count_ones()
    } else {
        sum(node.lives(node.len()))
    }
}

fn fill(node: Node<'_, Entry>) -> usize {
    if node.is_leaf() {
        node.len()
    } else {
        node.len() + 1
    }
}

fn set_live_of_child(node: Node<'_, Entry>, at: usize, live: u32) {
    // Release: see `Node::lives`.
    node.lives(node.len())[at].store(live, Ordering::Release);
}

/// Returns the change of the number of live keys: -1, 0 or 1.
fn set_live_below(node: Node<'_, Entry>, key: &[u8], live: bool, guard: &Guard) -> i32 {
    if !node.is_leaf() {
        let (at, cell) = child_of(node, key);
        let change = set_live_below(cell.load(guard), key, live, guard);
        let lives = node.lives(node.len());
        // Relaxed: only the writer changes it.
        let before = lives[at].load(Ordering::Relaxed);
        set_live_of_child(node, at, before.saturating_add_signed(change));
        return change;
    }
    let Ok(at) = sorted(node).find(key) else {
        return 0;
    };
    let (bits, bit) = (node.live(), 1 << at);
    match (bits & bit != 0, live) {
        (false, true) => {
            node.set_live(bits | bit);
            1
        }
        (true, false) => {
            node.set_live(bits & !bit);
            -1
        }
        _ => 0,
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

/// Returns the left one of two children to join, if the child `at`, which has shrunk to this fill, is
/// small, and has a neighbour with which it leaves room for growth.
fn joinable(node: Node<'_, Entry>, at: usize, shrunk: usize, guard: &Guard) -> Option<usize> {
    if shrunk >= FILL_MIN {
        return None;
    }
    let left_at = at.min(node.len().checked_sub(1)?);
    let other_at = if left_at == at { at + 1 } else { left_at };
    let other = node.children(node.len())[other_at].load(guard);
    let room = LEAF_ENTRIES_MAX.min(CHILDREN_MAX) * 3 / 4;
    (shrunk + fill(other) <= room).then_some(left_at)
}

/// Creates a leaf with some of the entries of another, which it replaces, and a new entry in front of
/// entry `at`.
fn leaf_with(
    leaf: Node<'_, Entry>,
    range: Range<usize>,
    at: usize,
    entry: Entry,
    capacity: usize,
) -> NewNode<Entry> {
    let (bits, low) = (live_bits(leaf, range.clone()), low_bits(at - range.start));
    // SAFETY: the caller replaces the leaf.
    let mut new = unsafe { with_item(leaf, range, at, entry, capacity) };
    new.set_live((bits & low) | ((bits & !low) << 1));
    new
}

/// Creates a node with some of the items of another, and a new item in front of item `at`.
///
/// # Safety
/// As for [`NewNode::move_items`].
unsafe fn with_item(
    node: Node<'_, Entry>,
    range: Range<usize>,
    at: usize,
    item: Entry,
    capacity: usize,
) -> NewNode<Entry> {
    let prefix_len = sorted(node).prefix_with(item.key());
    let keeps_heads = range == (0..node.len()) && prefix_len == node.prefix_len();
    let head = if keeps_heads {
        head_after(prefix_len, item.key())
    } else {
        0
    };
    let mut new = NewNode::new(node.height(), capacity, node.prefix_len());
    // SAFETY: guaranteed by the caller.
    unsafe {
        new.move_items(node, range.start..at);
        new.push(head, item);
        new.move_items(node, at..range.end);
    }
    if !keeps_heads {
        widen_prefix(&mut new);
    }
    new
}

/// Returns the bits of some of the entries of a leaf: whether they are live.
fn live_bits(leaf: Node<'_, Entry>, range: Range<usize>) -> u64 {
    let bits = if range.is_empty() {
        0
    } else {
        leaf.live() >> range.start
    };
    bits & low_bits(range.len())
}

/// Creates a leaf with some of the entries of another, which the caller replaces.
fn leaf_part(leaf: Node<'_, Entry>, range: Range<usize>) -> NewNode<Entry> {
    let mut new = NewNode::new(0, range.len(), leaf.prefix_len());
    new.set_live(live_bits(leaf, range.clone()));
    // SAFETY: the caller replaces the leaf.
    unsafe { new.move_items(leaf, range) };
    widen_prefix(&mut new);
    new
}

/// Creates an inner node in which the child `at` is split; the caller replaces the node.
fn inner_with(node: Node<'_, Entry>, at: usize, split: Split, guard: &Guard) -> NewNode<Entry> {
    let len = node.len();
    // SAFETY: the caller replaces the node.
    let mut new = unsafe { with_item(node, 0..len, at, split.separator, len + 1) };
    for from in 0..=len {
        copy_child(&mut new, from + usize::from(from > at), node, from, guard);
    }
    if let Some(left) = split.left {
        new.set_child(at, live_of(left.as_node()), left.publish());
    }
    let right_live = live_of(split.right.as_node());
    new.set_child(at + 1, right_live, split.right.publish());
    new
}

/// Creates an inner node without one separator and one child; the caller replaces the node.
/// `joined` replaces the child in front of the one that is left out.
fn inner_without(
    node: Node<'_, Entry>,
    separator: usize,
    child: usize,
    joined: Option<NewNode<Entry>>,
    guard: &Guard,
) -> NewNode<Entry> {
    let len = node.len();
    let mut new = NewNode::new(node.height(), len - 1, node.prefix_len());
    // SAFETY: the caller replaces the node.
    unsafe {
        new.move_items(node, 0..separator);
        new.move_items(node, separator + 1..len);
    }
    for from in (0..=len).filter(|from| *from != child) {
        copy_child(
            &mut new,
            from - usize::from(from > child),
            node,
            from,
            guard,
        );
    }
    if let Some(joined) = joined {
        let live = live_of(joined.as_node());
        new.set_child(child - 1, live, joined.publish());
    }
    new
}

/// Creates an inner node with some of the children of another, and the separators between them.
///
/// # Safety
/// As for [`NewNode::move_items`].
unsafe fn inner_part(
    node: Node<'_, Entry>,
    children: Range<usize>,
    guard: &Guard,
) -> NewNode<Entry> {
    let mut new = NewNode::new(node.height(), children.len() - 1, node.prefix_len());
    // SAFETY: guaranteed by the caller.
    unsafe { new.move_items(node, children.start..children.end - 1) };
    widen_prefix(&mut new);
    for (at, from) in children.enumerate() {
        copy_child(&mut new, at, node, from, guard);
    }
    new
}

/// Joins two neighbours; the caller replaces both.
fn joined_leaves(left: Node<'_, Entry>, right: Node<'_, Entry>) -> NewNode<Entry> {
    let len = left.len() + right.len();
    let mut new = NewNode::new(0, len, 0);
    // SAFETY: the caller replaces both.
    unsafe {
        new.move_items(left, 0..left.len());
        new.move_items(right, 0..right.len());
    }
    widen_prefix(&mut new);
    new.set_live(left.live() | (right.live() << left.len()));
    new
}

/// As [`joined_leaves`]; the separator is the lower bound of the right one.
fn joined_inner_nodes(
    left: Node<'_, Entry>,
    separator: Entry,
    right: Node<'_, Entry>,
    guard: &Guard,
) -> NewNode<Entry> {
    let mut new = NewNode::new(left.height(), left.len() + 1 + right.len(), 0);
    // SAFETY: the caller replaces both.
    unsafe {
        new.move_items(left, 0..left.len());
        new.push(0, separator);
        new.move_items(right, 0..right.len());
    }
    widen_prefix(&mut new);
    for from in 0..=left.len() {
        copy_child(&mut new, from, left, from, guard);
    }
    for from in 0..=right.len() {
        copy_child(&mut new, left.len() + 1 + from, right, from, guard);
    }
    new
}

fn copy_child(
    to: &mut NewNode<Entry>,
    at: usize,
    from: Node<'_, Entry>,
    child: usize,
    guard: &Guard,
) {
    let len = from.len();
    let pointer = NodePointer::of(from.children(len)[child].load(guard));
    // Relaxed: only the writer changes it.
    to.set_child(at, from.lives(len)[child].load(Ordering::Relaxed), pointer);
}

/// Sets the prefix of a node to all bytes that its keys share.
fn widen_prefix(node: &mut NewNode<Entry>) {
    let prefix_len = sorted_of_new(node).longest_prefix();
    node.set_prefix(prefix_len, |entry| head_after(prefix_len, entry.key()));
}

/// Returns a number with the lowest `count` bits set.
fn low_bits(count: usize) -> u64 {
    if count >= u64::BITS as usize {
        u64::MAX
    } else {
        (1 << count) - 1
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::ControlFlow;

    use super::{Editor, live_of, sorted};
    use crate::fault::Faults;
    use crate::history::Entry;
    use crate::memory::Node;
    use crate::sync::epoch::{Guard, collect, pin};
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u16),
        Remove(u16),
        SetLive(u16, bool),
    }

    fn bytes(number: u16) -> Vec<u8> {
        format!("/registry/pods/{number:05}").into_bytes()
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..3000_u16).prop_map(Step::Insert),
            2 => (0..3000_u16).prop_map(Step::Remove),
            3 => ((0..3000_u16), any::<bool>()).prop_map(|(key, live)| Step::SetLive(key, live)),
        ];
        proptest::collection::vec(step, 0..3000)
    }

    /// Checks all invariants that the types do not enforce; returns the height.
    fn check_shape(
        node: Node<'_, Entry>,
        low: Option<&Entry>,
        high: Option<&Entry>,
        root: bool,
        guard: &Guard,
    ) -> u32 {
        let content = sorted(node);
        for (head, item) in content.heads.iter().zip(content.items) {
            assert_eq!(*head, super::head_after(content.prefix_len, item.key()));
        }
        assert!(content.items.is_sorted_by(|a, b| a < b));
        if node.is_leaf() {
            assert!(root || !content.items.is_empty());
            assert_eq!(node.live() & !super::low_bits(content.items.len()), 0);
            for entry in content.items {
                assert!(low.is_none_or(|low| low <= entry));
                assert!(high.is_none_or(|high| entry < high));
            }
        }
        let children = if node.is_leaf() { 0 } else { node.len() + 1 };
        for at in 0..children {
            let low = at.checked_sub(1).map_or(low, |at| content.items.get(at));
            let high = content.items.get(at).or(high);
            let child = node.children(node.len())[at].load(guard);
            assert_eq!(
                check_shape(child, low, high, false, guard) + 1,
                node.height()
            );
            assert_eq!(super::sum(&node.lives(node.len())[at..=at]), live_of(child));
        }
        node.height()
    }

    fn check(steps: &[Step]) {
        let (tree, mut editor) = Editor::new(Faults::default());
        let guard = pin();
        let mut model: BTreeMap<Vec<u8>, bool> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Insert(number) => {
                    if let std::collections::btree_map::Entry::Vacant(vacant) =
                        model.entry(bytes(*number))
                    {
                        editor.insert(&tree, &Entry::new(vacant.key()), &guard);
                        vacant.insert(false);
                    }
                }
                Step::Remove(number) => {
                    model.remove(&bytes(*number));
                    editor.remove(&tree, &bytes(*number), &guard);
                }
                Step::SetLive(number, live) => {
                    if let Some(state) = model.get_mut(&bytes(*number)) {
                        *state = *live;
                    }
                    editor.set_live(&tree, &bytes(*number), *live, &guard);
                }
            }
        }
        check_shape(tree.root.load(&guard), None, None, true, &guard);
        assert_eq!(editor.len(), model.len());
        for probe in (0..3000).step_by(211) {
            let probe = bytes(probe);
            let below = model
                .range(..probe.clone())
                .filter(|(_, live)| **live)
                .count();
            assert_eq!(tree.live_below(&probe, &guard), below);
            assert_eq!(
                tree.get(&probe, &guard).is_some(),
                model.contains_key(&probe)
            );
            let mut seen = Vec::new();
            tree.visit_from(&probe, &guard, |entries| {
                seen.extend(entries.iter().map(|entry| entry.key().to_vec()));
                if seen.len() >= 100 {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            });
            seen.truncate(100);
            let expected: Vec<_> = model
                .range(probe..)
                .take(100)
                .map(|(key, _)| key.clone())
                .collect();
            assert_eq!(seen, expected);
        }
        assert_eq!(
            tree.live(&guard),
            model.values().filter(|live| **live).count()
        );
    }

    /// A change that panics leaves a list of what it was about to replace. That is still reachable, so
    /// the next change must not free it.
    #[test]
    fn what_a_panicking_change_has_not_replaced_is_not_freed() {
        let (tree, mut editor) = Editor::new(Faults::default());
        let guard = pin();
        for number in 0..200 {
            editor.insert(&tree, &Entry::new(&bytes(number)), &guard);
        }
        let mut root = tree.root.load(&guard);
        while !root.is_leaf() {
            editor.old_nodes.push(root.retire());
            root = root.children(root.len())[0].load(&guard);
        }
        editor.abandon();
        editor.set_live(&tree, &bytes(3), true, &guard);
        editor.insert(&tree, &Entry::new(&bytes(3)), &guard);
        assert_eq!((editor.old_nodes.len(), tree.live(&guard)), (0, 1));
        drop(guard);
        collect();
        let guard = pin();
        for number in 0..200 {
            assert!(tree.get(&bytes(number), &guard).is_some());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn the_tree_agrees_with_a_plain_map(steps in steps()) {
            check(&steps);
        }
    }

    #[test]
    fn growing_in_order_and_shrinking_to_nothing_keeps_the_shape() {
        let all = 0..3000;
        let mut steps: Vec<Step> = all.clone().map(Step::Insert).collect();
        steps.extend(all.clone().map(|key| Step::SetLive(key, key % 3 == 0)));
        check(&steps);
        steps.extend(all.rev().map(Step::Remove));
        check(&steps);
    }
}
