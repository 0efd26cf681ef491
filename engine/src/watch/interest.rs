//! The interest index: finds the watches whose range contains a key. etcd's counterpart is the
//! interval tree of a `watcherGroup`.

use std::cmp::Ordering;
use std::collections::HashMap;

use bytes::Bytes;

use crate::key::KeyRange;

/// The index of a watch in the hub.
pub(super) type WatchIndex = usize;

/// The ranges of all watches.
///
/// Ranges of one key are in a hash map. The others are in a treap ordered by start, in which every
/// node stores the largest end below it, so a search takes O(log n + results) time. Watches with
/// the same range share a node.
#[derive(Debug, Default)]
pub(super) struct InterestIndex {
    keys: HashMap<Bytes, Vec<WatchIndex>>,
    root: Link,
    /// The state of the generator of priorities. Any sequence is sufficient that does not follow
    /// the order of the keys.
    priority: u64,
}

type Link = Option<Box<IntervalNode>>;

#[derive(Debug)]
struct IntervalNode {
    start: Bytes,
    end: RangeEnd,
    indexes: Vec<WatchIndex>,
    /// The largest end in this subtree.
    max_end: RangeEnd,
    priority: u64,
    left: Link,
    right: Link,
}

/// The exclusive end of a range.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RangeEnd {
    Before(Bytes),
    Never,
}

impl RangeEnd {
    /// Returns whether the end lies after `key`.
    fn is_after(&self, key: &[u8]) -> bool {
        match self {
            Self::Before(end) => *key < **end,
            Self::Never => true,
        }
    }
}

/// Returns the start and the end of a range, or its key if it is a range of one key.
fn bounds(range: &KeyRange) -> Result<(&Bytes, RangeEnd), &Bytes> {
    match range {
        KeyRange::One(key) => Err(key),
        KeyRange::Within { start, end } => Ok((start, RangeEnd::Before(end.clone()))),
        KeyRange::From(start) => Ok((start, RangeEnd::Never)),
    }
}

impl InterestIndex {
    pub(super) fn insert(&mut self, range: &KeyRange, index: WatchIndex) {
        match bounds(range) {
            Err(key) => self.keys.entry(key.clone()).or_default().push(index),
            Ok((start, end)) => {
                let priority = self.next_priority();
                insert(&mut self.root, start, end, index, priority);
            }
        }
    }

    pub(super) fn remove(&mut self, range: &KeyRange, index: WatchIndex) {
        match bounds(range) {
            Err(key) => {
                if let Some(indexes) = self.keys.get_mut(key) {
                    remove_from(indexes, index);
                    if indexes.is_empty() {
                        self.keys.remove(key);
                    }
                }
            }
            Ok((start, end)) => remove(&mut self.root, start, &end, index),
        }
    }

    /// Calls `visit` with each watch whose range contains `key`.
    pub(super) fn visit(&self, key: &[u8], mut visit: impl FnMut(WatchIndex)) {
        if !self.keys.is_empty()
            && let Some(indexes) = self.keys.get(key)
        {
            indexes.iter().copied().for_each(&mut visit);
        }
        visit_containing(&self.root, key, &mut visit);
    }

    fn next_priority(&mut self) -> u64 {
        // A Weyl sequence with a mixing step: fast, and the same in every run.
        self.priority = self.priority.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.priority ^ (self.priority >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^ (mixed >> 32)
    }
}

fn remove_from(indexes: &mut Vec<WatchIndex>, index: WatchIndex) {
    if let Some(at) = indexes.iter().position(|other| *other == index) {
        indexes.swap_remove(at);
    }
}

fn visit_containing(link: &Link, key: &[u8], visit: &mut impl FnMut(WatchIndex)) {
    let Some(node) = link else { return };
    if !node.max_end.is_after(key) {
        return;
    }
    visit_containing(&node.left, key, visit);
    if *node.start <= *key {
        if node.end.is_after(key) {
            node.indexes.iter().copied().for_each(&mut *visit);
        }
        visit_containing(&node.right, key, visit);
    }
}

fn insert(link: &mut Link, start: &Bytes, end: RangeEnd, index: WatchIndex, priority: u64) {
    let Some(node) = link else {
        let (max_end, start) = (end.clone(), start.clone());
        let indexes = vec![index];
        let node = IntervalNode {
            start,
            end,
            indexes,
            max_end,
            priority,
            left: None,
            right: None,
        };
        *link = Some(Box::new(node));
        return;
    };
    match start.cmp(&node.start).then_with(|| end.cmp(&node.end)) {
        Ordering::Equal => node.indexes.push(index),
        Ordering::Less => {
            insert(&mut node.left, start, end, index, priority);
            if node
                .left
                .as_ref()
                .is_some_and(|left| left.priority > node.priority)
            {
                rotate_right(link);
            }
        }
        Ordering::Greater => {
            insert(&mut node.right, start, end, index, priority);
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

fn remove(link: &mut Link, start: &Bytes, end: &RangeEnd, index: WatchIndex) {
    let Some(node) = link else { return };
    match start.cmp(&node.start).then_with(|| end.cmp(&node.end)) {
        Ordering::Less => remove(&mut node.left, start, end, index),
        Ordering::Greater => remove(&mut node.right, start, end, index),
        Ordering::Equal => {
            remove_from(&mut node.indexes, index);
            if node.indexes.is_empty() {
                let (left, right) = (node.left.take(), node.right.take());
                *link = join(left, right);
            }
        }
    }
    refresh(link);
}

/// Joins two trees. Every start in `left` is at or below every start in `right`.
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

/// Recomputes the largest end below a node from its children.
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
        fn visit_finds_exactly_the_ranges_that_contain_the_key(
            steps in proptest::collection::vec((range(), any::<bool>()), 0..120),
        ) {
            let mut ranges = InterestIndex::default();
            let mut model: Vec<(WatchIndex, KeyRange)> = Vec::new();
            for (index, (range, add)) in steps.into_iter().enumerate() {
                if add || model.is_empty() {
                    ranges.insert(&range, index);
                    model.push((index, range));
                } else {
                    let (index, range) = model.swap_remove(index % model.len());
                    ranges.remove(&range, index);
                }
                check_heap(&ranges.root);
            }
            for key in [&[0][..], &[1], &[1, 0], &[1, 3], &[2, 2], &[3, 3], &[9]] {
                let mut found = Vec::new();
                ranges.visit(key, |index| found.push(index));
                found.sort_unstable();
                let containing = model.iter().filter(|(_, range)| range.contains(key));
                let mut expected: Vec<WatchIndex> = containing.map(|(index, _)| *index).collect();
                expected.sort_unstable();
                prop_assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn nested_ranges_in_order_do_not_make_a_deep_tree() {
        let mut ranges = InterestIndex::default();
        for index in 0..4096_u32 {
            let (start, end) = (index.to_be_bytes(), (100_000 - index).to_be_bytes());
            ranges.insert(
                &KeyRange::within(start.to_vec(), end.to_vec()),
                index as WatchIndex,
            );
        }
        assert!(check_heap(&ranges.root) < 64);
    }
}
