//! The set of keys that a transaction writes, to reject a transaction that writes a key twice.
//!
//! In etcd, this check is `checkIntervals`, with an interval tree.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;

use revstore_proto::etcdserverpb::request_op::Request;
use revstore_proto::etcdserverpb::{RequestOp, TxnRequest};

use crate::request::kv::FROM_KEY_END;
use crate::status::EtcdError;

/// The keys that the operations of one branch may write, for all results of nested compares.
#[derive(Debug, Default)]
pub(super) struct WriteSet<'a> {
    puts: HashSet<&'a [u8]>,
    deletes: KeySet<'a>,
}

impl<'a> WriteSet<'a> {
    /// Collects the writes of a branch. Returns an error (TXN-5) if two operations that may both run put the
    /// same key, or one of them puts a key that the other deletes.
    ///
    /// Two cases are accepted, as in etcd (TXN-9). TXN-7: deletes from a key on, without an end, are ignored.
    /// TXN-8: a nested transaction may delete a key that an earlier nested one puts.
    pub(super) fn of_branch(ops: &'a [RequestOp]) -> Result<Self, EtcdError> {
        let mut writes = Self::default();
        for op in ops {
            if let Some(Request::RequestDeleteRange(request)) = &op.request {
                writes.deletes.add(&request.key, &request.range_end);
            }
        }
        for op in ops {
            if let Some(Request::RequestTxn(request)) = &op.request {
                writes.add_nested(request)?;
            }
        }
        for op in ops {
            if let Some(Request::RequestPut(request)) = &op.request {
                writes.check_put(&request.key)?;
                writes.puts.insert(&request.key);
            }
        }
        Ok(writes)
    }

    /// TXN-6: only one branch of a nested transaction runs, so its branches do not conflict with each
    /// other.
    fn add_nested(&mut self, request: &'a TxnRequest) -> Result<(), EtcdError> {
        let branches = [
            Self::of_branch(&request.success)?,
            Self::of_branch(&request.failure)?,
        ];
        for branch in &branches {
            branch.puts.iter().try_for_each(|key| self.check_put(key))?;
        }
        for branch in branches {
            self.puts.extend(branch.puts);
            self.deletes.merge(branch.deletes);
        }
        Ok(())
    }

    fn check_put(&self, key: &[u8]) -> Result<(), EtcdError> {
        if self.puts.contains(key) || self.deletes.contains(key) {
            return Err(EtcdError::DuplicateKey);
        }
        Ok(())
    }
}

/// A set of keys as disjoint ranges: a map from the start of each range to its end.
#[derive(Debug, Default)]
struct KeySet<'a> {
    ranges: BTreeMap<&'a [u8], WriteEnd<'a>>,
}

/// The end of a range. It is inclusive for a range of one key, and exclusive for all other ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteEnd<'a> {
    Inclusive(&'a [u8]),
    Exclusive(&'a [u8]),
}

impl<'a> WriteEnd<'a> {
    /// Returns whether the range contains a key that is not before its start.
    fn includes(self, key: &[u8]) -> bool {
        match self {
            Self::Inclusive(last) => key <= last,
            Self::Exclusive(end) => key < end,
        }
    }

    /// Returns the upper bound for the starts of ranges that may overlap.
    fn bound(self) -> Bound<&'a [u8]> {
        match self {
            Self::Inclusive(last) => Bound::Included(last),
            Self::Exclusive(end) => Bound::Excluded(end),
        }
    }

    /// Returns a value that orders ends by the keys that they include.
    fn order(self) -> (&'a [u8], bool) {
        match self {
            Self::Exclusive(end) => (end, false),
            Self::Inclusive(last) => (last, true),
        }
    }
}

impl<'a> KeySet<'a> {
    fn add(&mut self, key: &'a [u8], range_end: &'a [u8]) {
        match range_end {
            [] => self.insert(key, WriteEnd::Inclusive(key)),
            // TXN-7: such a delete is ignored.
            FROM_KEY_END => {}
            // RG-5: the range is empty.
            _ if range_end <= key => {}
            _ => self.insert(key, WriteEnd::Exclusive(range_end)),
        }
    }

    fn merge(&mut self, other: Self) {
        for (start, end) in other.ranges {
            self.insert(start, end);
        }
    }

    fn contains(&self, key: &[u8]) -> bool {
        self.last_from(Bound::Included(key))
            .is_some_and(|(_, end)| end.includes(key))
    }

    /// Inserts a range and merges it with all ranges that overlap it. Each range is merged at most once.
    fn insert(&mut self, mut start: &'a [u8], mut end: WriteEnd<'a>) {
        while let Some((other_start, other_end)) = self.last_from(end.bound()) {
            // A range overlaps if its start is inside the new range, or its end reaches the start of the new
            // range. The ranges are disjoint, so below the first range that does not overlap, no range
            // overlaps.
            if other_start < start && !other_end.includes(start) {
                break;
            }
            self.ranges.remove(other_start);
            start = start.min(other_start);
            if other_end.order() > end.order() {
                end = other_end;
            }
        }
        self.ranges.insert(start, end);
    }

    /// Returns the last range that starts within `bound`.
    fn last_from(&self, bound: Bound<&[u8]>) -> Option<(&'a [u8], WriteEnd<'a>)> {
        let range = self.ranges.range::<[u8], _>((Bound::Unbounded, bound));
        range.last().map(|(start, end)| (*start, *end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_ranges_are_merged() {
        let mut keys = KeySet::default();
        for (start, end) in [("c", "d"), ("b", "bb"), ("f", ""), ("a", "c"), ("e", "g")] {
            keys.add(start.as_bytes(), end.as_bytes());
        }
        assert_eq!(keys.ranges.len(), 3, "{keys:?}");
        for key in ["a", "b", "bc", "c", "cz", "e", "f", "fz"] {
            assert!(keys.contains(key.as_bytes()), "{key} is in the set");
        }
        for key in ["", "A", "d", "dz", "g"] {
            assert!(!keys.contains(key.as_bytes()), "{key} is not in the set");
        }
    }
}
