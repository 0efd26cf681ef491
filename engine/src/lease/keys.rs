//! The keys attached to a lease, and lists of them.

use std::collections::{BTreeSet, btree_set};
use std::ops::Bound::{Excluded, Unbounded};

use bytes::Bytes;

use super::lessor::GrantNumber;
use crate::history::Entry;

/// The number of keys that a step of a list copies. Between two steps other threads can take the lock of
/// the leases.
const STEP_KEYS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 256 };

/// The number of times that a list of keys begins again because they have changed. After that it is
/// copied in one step.
const RESTARTS_MAX: usize = 16;

/// The keys of one lease, in order.
#[derive(Debug, Default)]
pub(super) struct LeaseKeys {
    keys: BTreeSet<Entry>,
    /// The number of insertions and removals.
    changes: u64,
}

impl LeaseKeys {
    /// Creates the keys of a lease from some in order.
    pub(super) fn of(keys: impl Iterator<Item = Entry>) -> Self {
        Self {
            keys: keys.collect(),
            changes: 0,
        }
    }

    pub(super) fn insert(&mut self, key: Entry) {
        self.keys.insert(key);
        self.changes += 1;
    }

    pub(super) fn remove(&mut self, key: &Entry) {
        self.keys.remove(key);
        self.changes += 1;
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

impl IntoIterator for LeaseKeys {
    type Item = Entry;
    type IntoIter = btree_set::IntoIter<Entry>;

    fn into_iter(self) -> Self::IntoIter {
        self.keys.into_iter()
    }
}

/// A list of the keys that a lease has at one moment, copied in steps.
#[derive(Debug, Default)]
pub(super) struct KeyList {
    copied: Vec<Bytes>,
    last: Option<Entry>,
    /// The grant of the lease, and its number of changes, at the first step.
    of: Option<(GrantNumber, u64)>,
    restarts: usize,
}

impl KeyList {
    /// Copies further keys of a lease. Begins again if they have changed since the previous step.
    /// Returns whether the list is complete.
    pub(super) fn step(&mut self, grant: GrantNumber, lease: &LeaseKeys) -> bool {
        let of = (grant, lease.changes);
        if self.of.is_some_and(|first| first != of) {
            self.restarts += 1;
            self.copied.clear();
            self.last = None;
        }
        self.of = Some(of);
        let keys = if self.restarts < RESTARTS_MAX {
            STEP_KEYS
        } else {
            usize::MAX
        };
        let start = self.last.as_ref().map_or(Unbounded, Excluded);
        let mut rest = lease.keys.range((start, Unbounded));
        let mut last = None;
        for key in rest.by_ref().take(keys) {
            self.copied.push(Bytes::copy_from_slice(key.key()));
            last = Some(key);
        }
        let is_complete = rest.next().is_none();
        if let Some(last) = last {
            self.last = Some(last.clone());
        }
        is_complete
    }

    /// Returns the keys of a complete list.
    pub(super) fn into_keys(self) -> Vec<Bytes> {
        self.copied
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRANT: GrantNumber = GrantNumber(1);

    fn keys(count: usize) -> LeaseKeys {
        let mut keys = LeaseKeys::default();
        for number in 0..count {
            keys.insert(Entry::new(format!("{number:06}").as_bytes()));
        }
        keys
    }

    fn check(list: KeyList, keys: &LeaseKeys) {
        let expected = keys.keys.iter().map(Entry::key);
        assert!(list.into_keys().iter().eq(expected));
    }

    #[test]
    fn a_list_is_copied_in_steps() {
        for count in [0, 1, STEP_KEYS, STEP_KEYS + 1, 3 * STEP_KEYS] {
            let (keys, mut list) = (keys(count), KeyList::default());
            let mut steps = 1;
            while !list.step(GRANT, &keys) {
                assert_eq!(list.copied.len(), steps * STEP_KEYS);
                steps += 1;
            }
            assert_eq!(steps, count.div_ceil(STEP_KEYS).max(1));
            check(list, &keys);
        }
    }

    #[test]
    fn a_list_begins_again_when_the_keys_change_and_ends_nevertheless() {
        let (mut keys, mut list) = (keys(3 * STEP_KEYS), KeyList::default());
        for change in 0..RESTARTS_MAX {
            assert!(!list.step(GRANT, &keys));
            assert_eq!(list.copied.len(), STEP_KEYS);
            let key = Entry::new(format!("{change:06}").as_bytes());
            keys.remove(&key);
        }
        assert!(list.step(GRANT, &keys));
        check(list, &keys);
    }

    #[test]
    fn a_list_does_not_mix_the_keys_of_leases_with_the_same_id() {
        let (first, second) = (keys(2 * STEP_KEYS), keys(2 * STEP_KEYS));
        let mut list = KeyList::default();
        assert!(!list.step(GRANT, &first));
        assert!(!list.step(GrantNumber(2), &second));
        assert!(list.step(GrantNumber(2), &second));
        check(list, &second);
    }
}
