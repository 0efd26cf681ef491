//! The changed copies by which an editor replaces nodes.

use std::ops::Range;

use super::sorted_node::head_after;
use super::tree::{live_of, low_bits, sorted};
use crate::history::Entry;
use crate::memory::{NewNode, Node, NodePointer};
use crate::sync::Ordering;
use crate::sync::epoch::Guard;

/// The result of a split.
pub(super) struct Split {
    /// The replacement of the node; `None` if it was kept.
    pub(super) left: Option<NewNode<Entry>>,
    /// A lower bound of the keys of the new right neighbour.
    pub(super) separator: Entry,
    pub(super) right: NewNode<Entry>,
}

/// Creates a leaf with some of the entries of another, which it replaces, and a new entry in front of
/// entry `at`.
pub(super) fn leaf_with(
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
pub(super) fn leaf_part(leaf: Node<'_, Entry>, range: Range<usize>) -> NewNode<Entry> {
    let mut new = NewNode::new(0, range.len(), leaf.prefix_len());
    new.set_live(live_bits(leaf, range.clone()));
    // SAFETY: the caller replaces the leaf.
    unsafe { new.move_items(leaf, range) };
    widen_prefix(&mut new);
    new
}

/// Creates an inner node in which the child `at` is split; the caller replaces the node.
pub(super) fn inner_with(
    node: Node<'_, Entry>,
    at: usize,
    split: Split,
    guard: &Guard,
) -> NewNode<Entry> {
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
pub(super) fn inner_without(
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
pub(super) unsafe fn inner_part(
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
pub(super) fn joined_leaves(left: Node<'_, Entry>, right: Node<'_, Entry>) -> NewNode<Entry> {
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
pub(super) fn joined_inner_nodes(
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
pub(super) fn widen_prefix(node: &mut NewNode<Entry>) {
    let prefix_len = sorted(node.as_node()).longest_prefix();
    node.set_prefix(prefix_len, |entry| head_after(prefix_len, entry.key()));
}
