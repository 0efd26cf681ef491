//! Which watches a key concerns: ranges that can be asked for the ones that hold a key.

use std::cmp::Ordering;
use std::collections::HashMap;

use bytes::Bytes;

use crate::key::KeyRange;

/// Where a watch is kept in the hub.
pub(super) type WatchIndex = usize;

/// The ranges of all watches.
///
/// Single keys are found by hash. Ranges stand in a treap ordered by start, each node of which
/// knows the largest end below it, so that asking costs O(log n + found) and not a look at every
/// range. Watches of the same range share a node.
#[derive(Debug, Default)]
pub(super) struct InterestIndex {
    keys: HashMap<Bytes, Vec<WatchIndex>>,
    root: Link,
    /// State of the generator of priorities; any sequence will do that is not in key order.
    priority: u64,
}

type Link = Option<Box<Node>>;

#[derive(Debug)]
struct Node {
    start: Bytes,
    end: End,
    slots: Vec<WatchIndex>,
    /// The largest end in this subtree.
    max_end: End,
    priority: u64,
    left: Link,
    right: Link,
}

/// The end of a range, which it does not include.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Before(Bytes),
    Never,
}

impl End {
    fn is_behind(&self, key: &[u8]) -> bool {
        match self {
            Self::Before(end) => *key < **end,
            Self::Never => true,
        }
    }
}

/// A range as start and end, or the single key that it is.
fn bounds(range: &KeyRange) -> Result<(&Bytes, End), &Bytes> {
    match range {
        KeyRange::One(key) => Err(key),
        KeyRange::Within { start, end } => Ok((start, End::Before(end.clone()))),
        KeyRange::From(start) => Ok((start, End::Never)),
    }
}

impl InterestIndex {
    pub(super) fn insert(&mut self, range: &KeyRange, slot: WatchIndex) {
        match bounds(range) {
            Err(key) => self.keys.entry(key.clone()).or_default().push(slot),
            Ok((start, end)) => {
                let priority = self.next_priority();
                insert(&mut self.root, start, end, slot, priority);
            }
        }
    }

    pub(super) fn remove(&mut self, range: &KeyRange, slot: WatchIndex) {
        match bounds(range) {
            Err(key) => {
                if let Some(slots) = self.keys.get_mut(key) {
                    forget(slots, slot);
                    if slots.is_empty() {
                        self.keys.remove(key);
                    }
                }
            }
            Ok((start, end)) => remove(&mut self.root, start, &end, slot),
        }
    }

    /// Shows each watch whose range holds `key`.
    pub(super) fn visit(&self, key: &[u8], mut visit: impl FnMut(WatchIndex)) {
        if !self.keys.is_empty()
            && let Some(slots) = self.keys.get(key)
        {
            slots.iter().copied().for_each(&mut visit);
        }
        visit_holding(&self.root, key, &mut visit);
    }

    fn next_priority(&mut self) -> u64 {
        // A Weyl sequence through a mixing step: cheap, and the same in every run.
        self.priority = self.priority.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.priority ^ (self.priority >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^ (mixed >> 32)
    }
}

fn forget(slots: &mut Vec<WatchIndex>, slot: WatchIndex) {
    if let Some(at) = slots.iter().position(|one| *one == slot) {
        slots.swap_remove(at);
    }
}

fn visit_holding(link: &Link, key: &[u8], visit: &mut impl FnMut(WatchIndex)) {
    let Some(node) = link else { return };
    if !node.max_end.is_behind(key) {
        return;
    }
    visit_holding(&node.left, key, visit);
    if *node.start <= *key {
        if node.end.is_behind(key) {
            node.slots.iter().copied().for_each(&mut *visit);
        }
        visit_holding(&node.right, key, visit);
    }
}

fn insert(link: &mut Link, start: &Bytes, end: End, slot: WatchIndex, priority: u64) {
    let Some(node) = link else {
        let (max_end, start) = (end.clone(), start.clone());
        let slots = vec![slot];
        let node = Node {
            start,
            end,
            slots,
            max_end,
            priority,
            left: None,
            right: None,
        };
        *link = Some(Box::new(node));
        return;
    };
    match start.cmp(&node.start).then_with(|| end.cmp(&node.end)) {
        Ordering::Equal => node.slots.push(slot),
        Ordering::Less => {
            insert(&mut node.left, start, end, slot, priority);
            if node
                .left
                .as_ref()
                .is_some_and(|left| left.priority > node.priority)
            {
                rotate_right(link);
            }
        }
        Ordering::Greater => {
            insert(&mut node.right, start, end, slot, priority);
            if node
                .right
                .as_ref()
                .is_some_and(|right| right.priority > node.priority)
            {
                rotate_left(link);
            }
        }
    }
    refresh(link);
}

fn remove(link: &mut Link, start: &Bytes, end: &End, slot: WatchIndex) {
    let Some(node) = link else { return };
    match start.cmp(&node.start).then_with(|| end.cmp(&node.end)) {
        Ordering::Less => remove(&mut node.left, start, end, slot),
        Ordering::Greater => remove(&mut node.right, start, end, slot),
        Ordering::Equal => {
            forget(&mut node.slots, slot);
            if node.slots.is_empty() {
                let (left, right) = (node.left.take(), node.right.take());
                *link = join(left, right);
            }
        }
    }
    refresh(link);
}

/// One tree of two, where every start on the left is at or below every start on the right.
fn join(left: Link, right: Link) -> Link {
    match (left, right) {
        (None, only) | (only, None) => only,
        (Some(mut left), Some(mut right)) => {
            let mut root = if left.priority > right.priority {
                left.right = join(left.right.take(), Some(right));
                Some(left)
            } else {
                right.left = join(Some(left), right.left.take());
                Some(right)
            };
            refresh(&mut root);
            root
        }
    }
}

fn rotate_right(link: &mut Link) {
    if let Some(mut node) = link.take() {
        let mut above = node.left.take();
        if let Some(above) = &mut above {
            node.left = above.right.take();
            let mut node = Some(node);
            refresh(&mut node);
            above.right = node;
        }
        *link = above;
    }
}

fn rotate_left(link: &mut Link) {
    if let Some(mut node) = link.take() {
        let mut above = node.right.take();
        if let Some(above) = &mut above {
            node.right = above.left.take();
            let mut node = Some(node);
            refresh(&mut node);
            above.left = node;
        }
        *link = above;
    }
}

/// Computes the largest end below a node anew from its children.
fn refresh(link: &mut Link) {
    if let Some(node) = link {
        let children = [&node.left, &node.right].into_iter().flatten();
        let largest = children
            .map(|child| &child.max_end)
            .chain([&node.end])
            .max();
        if let Some(largest) = largest.filter(|largest| **largest != node.max_end).cloned() {
            node.max_end = largest;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::{InterestIndex, Link, WatchIndex};
    use crate::key::KeyRange;

    fn range() -> impl Strategy<Value = KeyRange> {
        let key = || proptest::collection::vec(0..4_u8, 1..3);
        prop_oneof![
            key().prop_map(KeyRange::one),
            (key(), key()).prop_map(|(start, end)| KeyRange::within(start, end)),
            key().prop_map(|start| KeyRange::From(start.into())),
            key().prop_map(KeyRange::prefix),
        ]
    }

    fn check_heap(link: &Link) -> usize {
        let Some(node) = link else { return 0 };
        for child in [&node.left, &node.right].into_iter().flatten() {
            assert!(child.priority <= node.priority && child.max_end <= node.max_end);
        }
        1 + check_heap(&node.left).max(check_heap(&node.right))
    }

    proptest! {
        #[test]
        fn asking_finds_just_the_ranges_that_hold_the_key(
            steps in proptest::collection::vec((range(), any::<bool>()), 0..120),
        ) {
            let mut ranges = InterestIndex::default();
            let mut model: Vec<(WatchIndex, KeyRange)> = Vec::new();
            for (slot, (range, add)) in steps.into_iter().enumerate() {
                if add || model.is_empty() {
                    ranges.insert(&range, slot);
                    model.push((slot, range));
                } else {
                    let (slot, range) = model.swap_remove(slot % model.len());
                    ranges.remove(&range, slot);
                }
                check_heap(&ranges.root);
            }
            for key in [&[0][..], &[1], &[1, 0], &[1, 3], &[2, 2], &[3, 3], &[9]] {
                let mut found = Vec::new();
                ranges.visit(key, |slot| found.push(slot));
                found.sort_unstable();
                let holding = model.iter().filter(|(_, range)| range.contains(key));
                let mut expected: Vec<WatchIndex> = holding.map(|(slot, _)| *slot).collect();
                expected.sort_unstable();
                prop_assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn nested_ranges_in_order_do_not_make_a_deep_tree() {
        let mut ranges = InterestIndex::default();
        for slot in 0..4096_u32 {
            let (start, end) = (slot.to_be_bytes(), (100_000 - slot).to_be_bytes());
            ranges.insert(
                &KeyRange::within(start.to_vec(), end.to_vec()),
                slot as WatchIndex,
            );
        }
        assert!(check_heap(&ranges.root) < 64);
    }
}
