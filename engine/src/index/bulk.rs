//! A new tree of entries that are sorted already.

use super::replacement::widen_prefix;
use super::tree::live_of;
use crate::history::Entry;
use crate::memory::NewNode;

/// A node that no other one contains yet, with a lower bound of its keys.
struct Part {
    node: NewNode<Entry>,
    first: Entry,
}

/// Builds the nodes of a tree, level by level from the leaves, and returns the root. The nodes are full,
/// as those that keys leave that are created in order.
pub(super) fn root_of(
    entries: Vec<(Entry, bool)>,
    leaf_max: usize,
    children_max: usize,
) -> NewNode<Entry> {
    let mut left = entries.len();
    let mut entries = entries.into_iter();
    let mut level = Vec::with_capacity(left.div_ceil(leaf_max));
    while left > 0 {
        let len = left.min(leaf_max);
        level.extend(leaf_of(&mut entries, len));
        left -= len;
    }
    let mut height = 1;
    while level.len() > 1 {
        let mut children = level.into_iter();
        level = Vec::with_capacity(children.len().div_ceil(children_max));
        while children.len() > 0 {
            let len = children.len().min(children_max);
            level.extend(inner_of(height, &mut children, len));
        }
        height += 1;
    }
    match level.pop() {
        Some(root) => root.node,
        None => NewNode::new(0, 0, 0),
    }
}

fn leaf_of(entries: &mut impl Iterator<Item = (Entry, bool)>, len: usize) -> Option<Part> {
    let mut node = NewNode::new(0, len, 0);
    let (mut bits, mut first) = (0, None);
    for (at, (entry, is_live)) in entries.take(len).enumerate() {
        bits |= u64::from(is_live) << at;
        first.get_or_insert_with(|| entry.clone());
        node.push(0, entry);
    }
    node.set_live(bits);
    widen_prefix(&mut node);
    Some(Part {
        node,
        first: first?,
    })
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
