//! The interest index: finds the watches whose range contains a key. etcd's `watcherGroup`.

use std::collections::HashMap;

use bytes::Bytes;

use super::interval_tree::{GroupId, IntervalTree, RangeEnd};
use crate::key::KeyRange;

/// The index of a watch in the hub.
pub(super) type WatchIndex = usize;

/// The ranges of all watches.
///
/// Watches with the same range form a group. The groups of single keys are found in a hash map, the
/// others in an interval tree. Adding a watch takes O(log n) time in the number of different
/// ranges, and so does removing one, whatever the number of watches in its group.
#[derive(Debug, Default)]
pub(super) struct InterestIndex {
    keys: HashMap<Bytes, GroupId>,
    ranges: IntervalTree,
    groups: Vec<Group>,
    /// Indexes of free slots in `groups`.
    free: Vec<GroupId>,
    /// The membership of each watch, by its index in the hub.
    memberships: Vec<Membership>,
}

/// The watches with one range.
#[derive(Debug)]
struct Group {
    range: KeyRange,
    watches: Vec<WatchIndex>,
}

/// The group of a watch, and its index there. Unused for a watch that was removed.
#[derive(Clone, Copy, Debug, Default)]
struct Membership {
    group: GroupId,
    index: usize,
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
    /// Adds a watch that is not in the index.
    pub(super) fn insert(&mut self, range: &KeyRange, watch: WatchIndex) {
        let unused = self.unused_group();
        let id = match bounds(range) {
            Err(key) => *self.keys.entry(key.clone()).or_insert(unused),
            Ok((start, end)) => self.ranges.insert(start, &end, unused),
        };
        if id == unused {
            self.fill_group(id, range);
        }
        let group = &mut self.groups[id as usize];
        if self.memberships.len() <= watch {
            self.memberships.resize(watch + 1, Membership::default());
        }
        self.memberships[watch] = Membership {
            group: id,
            index: group.watches.len(),
        };
        group.watches.push(watch);
    }

    /// Removes a watch that is in the index.
    pub(super) fn remove(&mut self, watch: WatchIndex) {
        let Membership { group: id, index } = self.memberships[watch];
        let group = &mut self.groups[id as usize];
        group.watches.swap_remove(index);
        if let Some(moved) = group.watches.get(index) {
            self.memberships[*moved].index = index;
        }
        if group.watches.is_empty() {
            match bounds(&group.range) {
                Err(key) => drop(self.keys.remove(key)),
                Ok((start, end)) => self.ranges.remove(start, &end),
            }
            // The slot keeps neither the range nor the memory of the list.
            *group = Group {
                range: KeyRange::One(Bytes::new()),
                watches: Vec::new(),
            };
            self.free.push(id);
        }
    }

    /// Calls `visit` with each watch whose range contains `key`.
    pub(super) fn visit(&self, key: &[u8], mut visit: impl FnMut(WatchIndex)) {
        let mut visit_group = |id: GroupId| {
            let watches = self.groups[id as usize].watches.iter();
            watches.copied().for_each(&mut visit);
        };
        if !self.keys.is_empty()
            && let Some(id) = self.keys.get(key)
        {
            visit_group(*id);
        }
        self.ranges.visit(key, visit_group);
    }

    /// Returns the slot that the next new group takes.
    fn unused_group(&self) -> GroupId {
        let unused = self.free.last().copied();
        unused.unwrap_or_else(|| {
            GroupId::try_from(self.groups.len()).expect("fewer than 2^32 ranges fit in memory")
        })
    }

    fn fill_group(&mut self, id: GroupId, range: &KeyRange) {
        let group = Group {
            range: range.clone(),
            watches: Vec::new(),
        };
        if self.free.pop().is_some() {
            self.groups[id as usize] = group;
        } else {
            self.groups.push(group);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::{InterestIndex, WatchIndex};
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

    proptest! {
        #[test]
        fn visit_finds_exactly_the_ranges_that_contain_the_key(
            steps in proptest::collection::vec((range(), any::<bool>()), 0..120),
        ) {
            let mut ranges = InterestIndex::default();
            let mut model: Vec<(WatchIndex, KeyRange)> = Vec::new();
            let mut unused: Vec<WatchIndex> = Vec::new();
            for (number, (range, add)) in steps.into_iter().enumerate() {
                if add || model.is_empty() {
                    // The hub uses the index of a removed watch again.
                    let index = unused.pop().unwrap_or(number);
                    ranges.insert(&range, index);
                    model.push((index, range));
                } else {
                    let (index, _) = model.swap_remove(number % model.len());
                    ranges.remove(index);
                    unused.push(index);
                }
                ranges.ranges.check();
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
            for (index, _) in model {
                ranges.remove(index);
            }
            prop_assert_eq!(ranges.ranges.check(), 0);
            prop_assert!(ranges.keys.is_empty());
            prop_assert_eq!(ranges.free.len(), ranges.groups.len());
        }
    }

    /// An order of 7,000 ranges chosen by a client once overflowed a stack of 2 MiB.
    #[test]
    fn the_height_of_the_tree_does_not_depend_on_the_order_of_the_ranges() {
        let orders: [fn(u32) -> u32; 4] = [
            |number| number,
            |number| 16_384 - number,
            |number| number.reverse_bits() >> 18,
            |number| {
                if number % 2 == 0 {
                    number
                } else {
                    16_384 - number
                }
            },
        ];
        let count: u32 = if cfg!(miri) { 512 } else { 16_384 };
        for order in orders {
            let mut ranges = InterestIndex::default();
            for number in 0..count {
                let start = order(number);
                let (start, end) = (start.to_be_bytes(), (100_000 - start).to_be_bytes());
                let range = KeyRange::within(start.to_vec(), end.to_vec());
                ranges.insert(&range, number as WatchIndex);
            }
            assert!(ranges.ranges.check() <= 20);
            for number in (0..count).step_by(3) {
                ranges.remove(number as WatchIndex);
            }
            assert!(ranges.ranges.check() <= 20);
        }
    }

    #[test]
    fn a_watch_is_removed_from_a_large_group_without_a_search() {
        let mut ranges = InterestIndex::default();
        let count = if cfg!(miri) { 100 } else { 10_000 };
        let all = KeyRange::prefix("a");
        for index in 0..count {
            ranges.insert(&all, index);
        }
        // With a search for each watch these would be 50 million comparisons.
        for index in 0..count - 1 {
            ranges.remove(index);
            assert_eq!(ranges.groups.len(), 1);
        }
        let mut found = Vec::new();
        ranges.visit(b"ab", |index| found.push(index));
        assert_eq!(found, [count - 1]);
    }
}
