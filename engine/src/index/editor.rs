//! The right to change a tree, and the changes: insertion, removal, and the numbers of live keys.

use super::bulk::SortedTree;
use super::replacement::{
    Split, inner_part, inner_with, inner_without, joined_inner_nodes, joined_leaves, leaf_part,
    leaf_with,
};
use super::sorted_node::head_after;
use super::tree::{Tree, child_of, live_of, low_bits, sorted};
use crate::fault::{Faults, on_fault};
use crate::history::Entry;
use crate::memory::{NewNode, Node, NodeCell, NodePointer, OldNode};
use crate::sync::Ordering;
use crate::sync::epoch::Guard;

/// The maximum number of entries in a leaf: the number of bits of its bit set, and fewer under loom,
/// so that models split nodes.
pub(super) const LEAF_ENTRIES_MAX: usize = if cfg!(any(loom, shuttle)) {
    2
} else {
    u64::BITS as usize
};
/// The maximum number of children of an inner node.
pub(super) const CHILDREN_MAX: usize = if cfg!(any(loom, shuttle)) { 3 } else { 64 };
/// The minimum number of entries or children of a node. A node with fewer is joined with a
/// neighbour if possible.
const FILL_MIN: usize = if cfg!(any(loom, shuttle)) { 1 } else { 16 };
/// The smallest capacity of a leaf whose last key is a new one, for keys that are created in order.
const APPEND_CAPACITY_MIN: usize = 8;

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

    /// Finishes a tree, and returns it with the right to change it.
    pub(crate) fn of_sorted(faults: Faults, tree: SortedTree) -> (Tree, Self) {
        let (_, mut editor) = Self::new(faults);
        let (tree, len) = tree.finish();
        editor.len = len;
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
        let content = sorted(leaf);
        let len = content.items.len();
        let at = match content.find(entry.key()) {
            Ok(at) => return Grown::Found(content.items[at].clone()),
            Err(at) => at,
        };
        let entry = entry.clone();
        if len < LEAF_ENTRIES_MAX {
            if at == len
                && len < leaf.capacity()
                && content.prefix_with(entry.key()) == content.prefix_len
            {
                let head = head_after(content.prefix_len, entry.key());
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
            separator: sorted(right.as_node()).items[0].clone(),
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::ControlFlow;

    use super::Editor;
    use crate::fault::Faults;
    use crate::history::Entry;
    use crate::index::tree::{live_of, sorted, sum};
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
            assert_eq!(sum(&node.lives(node.len())[at..=at]), live_of(child));
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
