//! Checks of requests that need nothing but the request.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;

use revstore_proto::etcdserverpb::range_request::{SortOrder, SortTarget};
use revstore_proto::etcdserverpb::request_op::Request;
use revstore_proto::etcdserverpb::{
    DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
};

use crate::request::convert::FROM_KEY_END;
use crate::status::EtcdError;

/// RG-6, RG-44, RG-45.
pub(crate) fn range(request: &RangeRequest) -> Result<(), EtcdError> {
    check_key(&request.key)?;
    if SortOrder::try_from(request.sort_order).is_err()
        || SortTarget::try_from(request.sort_target).is_err()
    {
        return Err(EtcdError::InvalidSortOption);
    }
    Ok(())
}

/// RG-65: what a stream of chunks in key order cannot do, beyond what a range cannot.
pub(crate) fn range_stream(request: &RangeRequest) -> Result<(), EtcdError> {
    range(request)?;
    let in_key_order = match request.sort_order() {
        SortOrder::None => true,
        SortOrder::Ascend => request.sort_target() == SortTarget::Key,
        SortOrder::Descend => false,
    };
    if !in_key_order {
        return Err(EtcdError::StreamSortUnsupported);
    }
    let filters = [
        request.min_mod_revision,
        request.max_mod_revision,
        request.min_create_revision,
        request.max_create_revision,
    ];
    if filters != [0; 4] {
        return Err(EtcdError::StreamFilterUnsupported);
    }
    Ok(())
}

/// PUT-1, PUT-3.
pub(crate) fn put(request: &PutRequest) -> Result<(), EtcdError> {
    check_key(&request.key)?;
    if request.ignore_value && !request.value.is_empty() {
        return Err(EtcdError::ValueProvided);
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(EtcdError::LeaseProvided);
    }
    Ok(())
}

/// RG-6.
pub(crate) fn delete_range(request: &DeleteRangeRequest) -> Result<(), EtcdError> {
    check_key(&request.key)
}

/// TXN-1 to TXN-8: the whole transaction, both branches, before anything runs.
pub(crate) fn txn(request: &TxnRequest, ops_max: usize) -> Result<(), EtcdError> {
    check_ops(request, ops_max)?;
    check_writes(&request.success)?;
    check_writes(&request.failure)
}

fn check_key(key: &[u8]) -> Result<(), EtcdError> {
    if key.is_empty() {
        return Err(EtcdError::EmptyKey);
    }
    Ok(())
}

/// TXN-3: in this order. The recursion is as deep as the decoder let the request be.
fn check_ops(request: &TxnRequest, ops_max: usize) -> Result<(), EtcdError> {
    let lists = [
        request.compare.len(),
        request.success.len(),
        request.failure.len(),
    ];
    let longest = lists.into_iter().max().unwrap_or(0);
    // TXN-2: what is nested shares the budget with the longest list around it.
    let Some(left) = ops_max.checked_sub(longest) else {
        return Err(EtcdError::TooManyOps);
    };
    request
        .compare
        .iter()
        .try_for_each(|compare| check_key(&compare.key))?;
    let mut ops = request.success.iter().chain(&request.failure);
    ops.try_for_each(|op| check_op(op, left))
}

fn check_op(op: &RequestOp, ops_max: usize) -> Result<(), EtcdError> {
    match &op.request {
        Some(Request::RequestRange(request)) => range(request),
        Some(Request::RequestPut(request)) => put(request),
        Some(Request::RequestDeleteRange(request)) => delete_range(request),
        Some(Request::RequestTxn(request)) => check_ops(request, ops_max),
        // TXN-4
        None => Err(EtcdError::KeyNotFound),
    }
}

fn check_writes(branch: &[RequestOp]) -> Result<(), EtcdError> {
    let nested = |op: &RequestOp| matches!(op.request, Some(Request::RequestTxn(_)));
    // Most branches are like this, and have nothing to clash with.
    if branch.len() < 2 && !branch.iter().any(nested) {
        return Ok(());
    }
    Writes::of_branch(branch).map(drop)
}

/// What the operations of one branch may write, whatever the compares inside it decide.
#[derive(Debug, Default)]
struct Writes<'a> {
    puts: HashSet<&'a [u8]>,
    deletes: Deletes<'a>,
}

impl<'a> Writes<'a> {
    /// Fails with TXN-5 if a key is put twice, or put and deleted, by operations that may both run.
    ///
    /// Two gaps are etcd's and kept (TXN-9). TXN-7: deletes from a key on count for nothing.
    /// TXN-8: of nested transactions, a later one may delete what an earlier one puts.
    fn of_branch(ops: &'a [RequestOp]) -> Result<Self, EtcdError> {
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
                writes.check(&request.key)?;
                writes.puts.insert(&request.key);
            }
        }
        Ok(writes)
    }

    /// TXN-6: only one of the two branches will run, so they do not clash with each other.
    fn add_nested(&mut self, request: &'a TxnRequest) -> Result<(), EtcdError> {
        let branches = [
            Self::of_branch(&request.success)?,
            Self::of_branch(&request.failure)?,
        ];
        for branch in &branches {
            branch.puts.iter().try_for_each(|key| self.check(key))?;
        }
        for branch in branches {
            self.puts.extend(branch.puts);
            self.deletes.merge(branch.deletes);
        }
        Ok(())
    }

    fn check(&self, key: &[u8]) -> Result<(), EtcdError> {
        if self.puts.contains(key) || self.deletes.hold(key) {
            return Err(EtcdError::DuplicateKey);
        }
        Ok(())
    }
}

/// A set of keys, as ranges that do not overlap: each start with the end that belongs to it.
#[derive(Debug, Default)]
struct Deletes<'a> {
    ranges: BTreeMap<&'a [u8], End<'a>>,
}

/// Where a range of deleted keys ends. The last key of a single-key range is the key itself; a
/// longer range stops before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End<'a> {
    Through(&'a [u8]),
    Before(&'a [u8]),
}

impl<'a> End<'a> {
    /// Whether a key at or behind the start is inside.
    fn includes(self, key: &[u8]) -> bool {
        match self {
            Self::Through(last) => key <= last,
            Self::Before(end) => key < end,
        }
    }

    /// The end as a bound for the starts of ranges that may overlap.
    fn bound(self) -> Bound<&'a [u8]> {
        match self {
            Self::Through(last) => Bound::Included(last),
            Self::Before(end) => Bound::Excluded(end),
        }
    }

    /// Ends in the order of what they include.
    fn order(self) -> (&'a [u8], bool) {
        match self {
            Self::Before(end) => (end, false),
            Self::Through(last) => (last, true),
        }
    }
}

impl<'a> Deletes<'a> {
    fn add(&mut self, key: &'a [u8], range_end: &'a [u8]) {
        match range_end {
            [] => self.insert(key, End::Through(key)),
            // TXN-7: such a delete is not seen.
            FROM_KEY_END => {}
            // RG-5: no key at all.
            _ if range_end <= key => {}
            _ => self.insert(key, End::Before(range_end)),
        }
    }

    fn merge(&mut self, other: Self) {
        for (start, end) in other.ranges {
            self.insert(start, end);
        }
    }

    fn hold(&self, key: &[u8]) -> bool {
        self.last_from(Bound::Included(key))
            .is_some_and(|(_, end)| end.includes(key))
    }

    /// Adds a range and swallows those that overlap it; each is swallowed at most once.
    fn insert(&mut self, mut start: &'a [u8], mut end: End<'a>) {
        while let Some((other_start, other_end)) = self.last_from(end.bound()) {
            // What starts inside overlaps, and so does what reaches the start. As ranges do not
            // overlap each other, one that does neither is followed by none that does.
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

    /// The last range that starts within the bound.
    fn last_from(&self, bound: Bound<&[u8]>) -> Option<(&'a [u8], End<'a>)> {
        let range = self.ranges.range::<[u8], _>((Bound::Unbounded, bound));
        range.last().map(|(start, end)| (*start, *end))
    }
}

#[cfg(test)]
mod tests {
    use revstore_proto::etcdserverpb::request_op::Request;
    use revstore_proto::etcdserverpb::{
        Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
    };

    use super::{Deletes, EtcdError};

    const OPS_MAX: usize = 128;

    fn op(request: Request) -> RequestOp {
        RequestOp {
            request: Some(request),
        }
    }

    fn put(key: &'static str) -> RequestOp {
        op(Request::RequestPut(PutRequest {
            key: key.into(),
            ..PutRequest::default()
        }))
    }

    fn delete(key: &'static str, range_end: &'static str) -> RequestOp {
        op(Request::RequestDeleteRange(DeleteRangeRequest {
            key: key.into(),
            range_end: range_end.into(),
            ..DeleteRangeRequest::default()
        }))
    }

    fn get(key: &'static str) -> RequestOp {
        op(Request::RequestRange(RangeRequest {
            key: key.into(),
            ..RangeRequest::default()
        }))
    }

    fn nested(success: Vec<RequestOp>, failure: Vec<RequestOp>) -> RequestOp {
        op(Request::RequestTxn(TxnRequest {
            compare: Vec::new(),
            success,
            failure,
        }))
    }

    fn check(success: Vec<RequestOp>, expected: Result<(), EtcdError>) {
        let mut request = TxnRequest {
            success,
            ..TxnRequest::default()
        };
        assert_eq!(super::txn(&request, OPS_MAX), expected, "{request:?}");
        // What holds for one branch holds for the other.
        request.failure = std::mem::take(&mut request.success);
        assert_eq!(super::txn(&request, OPS_MAX), expected, "{request:?}");
    }

    fn check_compares(compares: Vec<&'static str>, expected: Result<(), EtcdError>) {
        let compare = |key: &'static str| Compare {
            key: key.into(),
            ..Compare::default()
        };
        let request = TxnRequest {
            compare: compares.into_iter().map(compare).collect(),
            success: vec![put(""); OPS_MAX],
            failure: Vec::new(),
        };
        assert_eq!(super::txn(&request, OPS_MAX), expected);
    }

    #[test]
    fn txn_1_each_list_has_a_limit_of_its_own() {
        check(vec![get("k"); OPS_MAX], Ok(()));
        check(vec![get("k"); OPS_MAX + 1], Err(EtcdError::TooManyOps));
    }

    #[test]
    fn txn_2_nested_transactions_share_the_budget() {
        let with = |outer: usize, inner: usize| {
            let mut ops = vec![get("k"); outer - 1];
            ops.push(nested(vec![get("k"); inner], Vec::new()));
            ops
        };
        check(with(1, 127), Ok(()));
        check(with(1, 128), Err(EtcdError::TooManyOps));
        check(with(64, 64), Ok(()));
        check(with(64, 65), Err(EtcdError::TooManyOps));
        check(with(128, 0), Ok(()));
        check(with(128, 1), Err(EtcdError::TooManyOps));
    }

    #[test]
    fn txn_3_numbers_come_before_keys_and_keys_before_clashes() {
        check(vec![put(""); OPS_MAX + 1], Err(EtcdError::TooManyOps));
        check(vec![put("k"), put("k"), get("")], Err(EtcdError::EmptyKey));
        check_compares(vec!["k"; OPS_MAX + 1], Err(EtcdError::TooManyOps));
        check_compares(vec!["k", ""], Err(EtcdError::EmptyKey));
    }

    #[test]
    fn txn_4_an_operation_without_a_request_is_refused() {
        check(
            vec![RequestOp { request: None }],
            Err(EtcdError::KeyNotFound),
        );
    }

    #[test]
    fn txn_5_a_branch_writes_a_key_once() {
        let clash = Err(EtcdError::DuplicateKey);
        check(vec![put("a"), put("b")], Ok(()));
        check(vec![put("a"), put("a")], clash);
        check(vec![put("b"), delete("a", "c")], clash);
        check(vec![delete("a", "c"), put("b")], clash);
        check(vec![delete("b", ""), put("b")], clash);
        check(vec![delete("a", "c"), put("c")], Ok(()));
        check(
            vec![delete("a", "c"), delete("b", "d"), delete("b", "")],
            Ok(()),
        );
        check(vec![delete("c", "a"), put("b")], Ok(()));
    }

    #[test]
    fn txn_5_the_branches_are_separate() {
        let request = TxnRequest {
            compare: Vec::new(),
            success: vec![put("k")],
            failure: vec![put("k"), delete("j", "")],
        };
        assert_eq!(super::txn(&request, OPS_MAX), Ok(()));
    }

    /// All of these were put to etcd 3.5.16.
    #[test]
    fn txn_6_what_is_nested_may_clash_with_what_is_around_it() {
        let clash = Err(EtcdError::DuplicateKey);
        let k = || vec![put("k")];
        let gone = || vec![delete("k", "")];
        check(vec![nested(k(), k())], Ok(()));
        check(vec![nested(gone(), k())], Ok(()));
        check(vec![nested(k(), gone())], Ok(()));
        check(vec![nested(vec![nested(k(), k())], k())], Ok(()));
        check(vec![nested(k(), vec![]), nested(k(), vec![])], clash);
        check(vec![nested(k(), vec![]), nested(vec![], k())], clash);
        check(vec![put("k"), nested(k(), vec![])], clash);
        check(vec![put("k"), nested(gone(), vec![])], clash);
        check(vec![nested(k(), vec![]), delete("a", "z")], clash);
        check(vec![nested(gone(), vec![]), delete("a", "z")], Ok(()));
    }

    #[test]
    fn txn_7_a_delete_from_a_key_on_is_not_seen() {
        check(vec![delete("y", "\0"), put("z")], Ok(()));
        check(vec![put("z"), delete("y", "\0")], Ok(()));
    }

    #[test]
    fn txn_8_a_later_sibling_may_delete_what_an_earlier_one_puts() {
        let (k, gone) = (vec![put("k")], vec![delete("k", "")]);
        check(
            vec![nested(k.clone(), vec![]), nested(gone.clone(), vec![])],
            Ok(()),
        );
        check(
            vec![nested(gone, vec![]), nested(k, vec![])],
            Err(EtcdError::DuplicateKey),
        );
    }

    #[test]
    fn deleted_ranges_are_joined_where_they_overlap() {
        let mut deletes = Deletes::default();
        for (start, end) in [("c", "d"), ("b", "bb"), ("f", ""), ("a", "c"), ("e", "g")] {
            deletes.add(start.as_bytes(), end.as_bytes());
        }
        assert_eq!(deletes.ranges.len(), 3, "{deletes:?}");
        for key in ["a", "b", "bc", "c", "cz", "e", "f", "fz"] {
            assert!(deletes.hold(key.as_bytes()), "{key} is deleted");
        }
        for key in ["", "A", "d", "dz", "g"] {
            assert!(!deletes.hold(key.as_bytes()), "{key} is not deleted");
        }
    }

    #[test]
    fn rg_44_rg_45_unknown_sort_options_are_refused() {
        for (order, target) in [(3, 0), (0, 5), (-1, 0), (0, i32::MIN)] {
            let request = RangeRequest {
                key: "k".into(),
                sort_order: order,
                sort_target: target,
                ..RangeRequest::default()
            };
            assert_eq!(super::range(&request), Err(EtcdError::InvalidSortOption));
        }
    }

    #[test]
    fn rg_65_streams_come_in_key_order_and_unfiltered() {
        let request = |sort_order, sort_target, max_mod_revision| RangeRequest {
            key: "k".into(),
            sort_order,
            sort_target,
            max_mod_revision,
            ..RangeRequest::default()
        };
        assert_eq!(super::range_stream(&request(0, 0, 0)), Ok(()));
        assert_eq!(super::range_stream(&request(1, 0, 0)), Ok(()));
        assert_eq!(super::range_stream(&request(0, 4, 0)), Ok(()));
        for (order, target) in [(1, 1), (2, 0), (2, 3)] {
            assert_eq!(
                super::range_stream(&request(order, target, 0)),
                Err(EtcdError::StreamSortUnsupported)
            );
        }
        assert_eq!(
            super::range_stream(&request(0, 0, -1)),
            Err(EtcdError::StreamFilterUnsupported)
        );
    }

    #[test]
    fn put_3_what_is_kept_is_not_given() {
        let request = |value: &'static str, ignore_value, lease, ignore_lease| PutRequest {
            key: "k".into(),
            value: value.into(),
            lease,
            ignore_value,
            ignore_lease,
            ..PutRequest::default()
        };
        assert_eq!(super::put(&request("", true, 0, true)), Ok(()));
        assert_eq!(
            super::put(&request("v", true, 1, true)),
            Err(EtcdError::ValueProvided)
        );
        assert_eq!(
            super::put(&request("v", false, -1, true)),
            Err(EtcdError::LeaseProvided)
        );
    }
}
