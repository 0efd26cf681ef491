//! Between the wire and the engine: the only place that knows what zero means on the wire.
//!
//! Requests give their bytes up to the engine's types; what is left of them says how to answer.

use std::mem;

use bytes::Bytes;
use revstore_engine::{
    Compare, CompareTarget, KeyRange, LeaseId, Op, Put, PutLease, Range, Relation, Revision,
    SortBy, SortOrder, Txn, WatchId, WatchOptions,
};
use revstore_proto::etcdserverpb::compare::{
    CompareResult, CompareTarget as WireTarget, TargetUnion,
};
use revstore_proto::etcdserverpb::range_request::{SortOrder as WireOrder, SortTarget};
use revstore_proto::etcdserverpb::request_op::Request;
use revstore_proto::etcdserverpb::watch_create_request::FilterType;
use revstore_proto::etcdserverpb::{
    Compare as WireCompare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
    WatchCreateRequest,
};

/// RG-3: the end of a range that has none.
pub(crate) const FROM_KEY_END: &[u8] = &[0];

/// WA-9: no key is smaller.
pub(crate) const SMALLEST_KEY: &[u8] = &[0];

/// RG-1 to RG-3, and RG-5: what lies between names no key.
fn keys(key: &mut Bytes, range_end: &mut Bytes) -> KeyRange {
    let start = mem::take(key);
    match &**range_end {
        [] => KeyRange::One(start),
        FROM_KEY_END => KeyRange::From(start),
        _ => KeyRange::Within {
            start,
            end: mem::take(range_end),
        },
    }
}

/// RG-30: a bound of zero is none.
fn bound(revision: i64) -> Option<Revision> {
    (revision != 0).then_some(Revision(revision))
}

/// A range outside of a transaction.
pub(crate) fn range(request: &mut RangeRequest) -> Range {
    // RG-10
    let at = (request.revision > 0).then_some(Revision(request.revision));
    range_at(request, at)
}

fn range_at(request: &mut RangeRequest, at: Option<Revision>) -> Range {
    let sort = sort(request);
    let mut range = Range::of(keys(&mut request.key, &mut request.range_end));
    range.at = at;
    // RG-20
    range.limit = usize::try_from(request.limit)
        .ok()
        .filter(|limit| *limit > 0);
    range.count_only = request.count_only;
    // A target without an order sorts what the limit has left (RG-41, RG-42).
    range.limit_first = sort.is_some() && request.sort_order() == WireOrder::None;
    range.sort = sort;
    range.filter.min_mod_revision = bound(request.min_mod_revision);
    range.filter.max_mod_revision = bound(request.max_mod_revision);
    range.filter.min_create_revision = bound(request.min_create_revision);
    range.filter.max_create_revision = bound(request.max_create_revision);
    range
}

fn sort(request: &RangeRequest) -> Option<(SortBy, SortOrder)> {
    let by = match request.sort_target() {
        SortTarget::Key => SortBy::Key,
        SortTarget::Version => SortBy::Version,
        SortTarget::Create => SortBy::CreateRevision,
        SortTarget::Mod => SortBy::ModRevision,
        SortTarget::Value => SortBy::Value,
    };
    let order = match request.sort_order() {
        WireOrder::None if by == SortBy::Key => return None,
        // RG-41
        WireOrder::None | WireOrder::Ascend => SortOrder::Ascending,
        WireOrder::Descend => SortOrder::Descending,
    };
    Some((by, order))
}

/// A put.
pub(crate) fn put(request: &mut PutRequest) -> Put {
    let key = mem::take(&mut request.key);
    let put = if request.ignore_value {
        Put::keeping_value(key)
    } else {
        Put::new(key, mem::take(&mut request.value))
    };
    put.with_lease(match LeaseId::new(request.lease) {
        _ if request.ignore_lease => PutLease::Keep,
        Some(lease) => PutLease::Attach(lease),
        None => PutLease::Detach,
    })
}

/// The keys to delete.
pub(crate) fn delete(request: &mut DeleteRangeRequest) -> KeyRange {
    keys(&mut request.key, &mut request.range_end)
}

/// A transaction; `never_compacted` decides what the revision -1 means in it.
pub(crate) fn txn(request: &mut TxnRequest, never_compacted: bool) -> Txn {
    let ops = |ops: &mut Vec<RequestOp>| -> Vec<Op> {
        let requests = ops.iter_mut().filter_map(|op| op.request.as_mut());
        requests
            .map(|request| op(request, never_compacted))
            .collect()
    };
    Txn::new()
        .when(request.compare.iter_mut().map(compare))
        .and_then(ops(&mut request.success))
        .or_else(ops(&mut request.failure))
}

fn op(request: &mut Request, never_compacted: bool) -> Op {
    match request {
        Request::RequestRange(request) => {
            // RG-14: only zero is the latest, but the mark of a store without compactions is -1.
            let latest = request.revision == 0 || (request.revision == -1 && never_compacted);
            let at = (!latest).then_some(Revision(request.revision));
            Op::Range(range_at(request, at))
        }
        Request::RequestPut(request) => Op::Put(put(request)),
        Request::RequestDeleteRange(request) => Op::Delete(delete(request)),
        Request::RequestTxn(request) => Op::Txn(txn(request, never_compacted)),
    }
}

fn compare(request: &mut WireCompare) -> Compare {
    let target = compare_target(request);
    // CMP-5
    let relation =
        CompareResult::try_from(request.result).map_or(Relation::Any, |result| match result {
            CompareResult::Equal => Relation::Equal,
            CompareResult::NotEqual => Relation::NotEqual,
            CompareResult::Greater => Relation::Greater,
            CompareResult::Less => Relation::Less,
        });
    let keys = keys(&mut request.key, &mut request.range_end);
    Compare::new(keys, target, relation)
}

/// CMP-4: an operand that is missing, or not of the target's kind, is zero or empty.
fn compare_target(request: &mut WireCompare) -> CompareTarget {
    let Ok(target) = WireTarget::try_from(request.target) else {
        // CMP-5
        return CompareTarget::Nothing;
    };
    let operand = request.target_union.take();
    match target {
        WireTarget::Version => CompareTarget::Version(match operand {
            Some(TargetUnion::Version(version)) => version,
            _ => 0,
        }),
        WireTarget::Create => CompareTarget::CreateRevision(match operand {
            Some(TargetUnion::CreateRevision(revision)) => revision,
            _ => 0,
        }),
        WireTarget::Mod => CompareTarget::ModRevision(match operand {
            Some(TargetUnion::ModRevision(revision)) => revision,
            _ => 0,
        }),
        WireTarget::Value => CompareTarget::Value(match operand {
            Some(TargetUnion::Value(value)) => value,
            _ => Bytes::new(),
        }),
        WireTarget::Lease => CompareTarget::Lease(match operand {
            Some(TargetUnion::Lease(lease)) => lease,
            _ => 0,
        }),
    }
}

/// A new watch.
pub(crate) fn watch(mut request: WatchCreateRequest) -> WatchOptions {
    if request.key.is_empty() {
        // WA-9
        request.key = Bytes::from_static(SMALLEST_KEY);
    }
    // WA-35: numbers that name no filter are passed over.
    let filters = |wanted| {
        request
            .filters
            .iter()
            .any(|filter| *filter == i32::from(wanted))
    };
    let (no_put, no_delete) = (filters(FilterType::Noput), filters(FilterType::Nodelete));
    let mut options = WatchOptions::of(keys(&mut request.key, &mut request.range_end));
    options.start = (request.start_revision != 0).then_some(Revision(request.start_revision));
    options.no_put = no_put;
    options.no_delete = no_delete;
    options.prev_kv = request.prev_kv;
    options.progress_notify = request.progress_notify;
    // WA-2
    options.id = (request.watch_id != 0).then_some(WatchId(request.watch_id));
    options
}

/// Whole seconds: what is left of one counts as none (LE-10).
pub(crate) fn seconds(time: std::time::Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use revstore_engine::Filter;

    use super::*;

    fn bytes(text: &'static [u8]) -> Bytes {
        Bytes::from_static(text)
    }

    #[test]
    fn rg_1_to_5_a_range_has_three_forms() {
        let check = |key: &'static [u8], end: &'static [u8], expected| {
            assert_eq!(keys(&mut bytes(key), &mut bytes(end)), expected);
        };
        check(b"a", b"", KeyRange::one("a"));
        check(b"a", b"c", KeyRange::within("a", "c"));
        check(b"c", b"a", KeyRange::within("c", "a"));
        check(b"a", b"\0", KeyRange::From(bytes(b"a")));
        check(b"\0", b"\0", KeyRange::From(bytes(b"\0")));
        check(b"\0", b"\0\0", KeyRange::within(&b"\0"[..], &b"\0\0"[..]));
    }

    #[test]
    fn rg_10_rg_20_rg_30_zero_is_none() {
        let mut request = RangeRequest {
            key: "k".into(),
            revision: -7,
            limit: i64::MIN,
            ..RangeRequest::default()
        };
        assert_eq!(range(&mut request.clone()), Range::of(KeyRange::one("k")));
        request.limit = i64::MAX;
        request.max_mod_revision = -1;
        request.min_create_revision = i64::MAX;
        let filter = Filter::default()
            .max_mod_revision(Revision(-1))
            .min_create_revision(Revision(i64::MAX));
        let limit = usize::try_from(i64::MAX).unwrap();
        assert_eq!(
            range(&mut request),
            Range::of(KeyRange::one("k")).limit(limit).filtered(filter)
        );
    }

    #[test]
    fn rg_41_a_target_without_an_order_ascends() {
        let check = |target: SortTarget, order: WireOrder, expected| {
            let request = RangeRequest {
                sort_target: target.into(),
                sort_order: order.into(),
                ..RangeRequest::default()
            };
            assert_eq!(sort(&request), expected);
        };
        check(SortTarget::Key, WireOrder::None, None);
        check(
            SortTarget::Mod,
            WireOrder::None,
            Some((SortBy::ModRevision, SortOrder::Ascending)),
        );
        check(
            SortTarget::Key,
            WireOrder::Descend,
            Some((SortBy::Key, SortOrder::Descending)),
        );
    }

    #[test]
    fn rg_14_negative_revisions_in_a_transaction_are_taken_literally() {
        let check = |revision, never_compacted, expected: Option<i64>| {
            let mut request = Request::RequestRange(RangeRequest {
                key: "k".into(),
                revision,
                ..RangeRequest::default()
            });
            let Op::Range(range) = op(&mut request, never_compacted) else {
                panic!("a range became something else");
            };
            assert_eq!(range.at, expected.map(Revision), "{revision}");
        };
        check(0, false, None);
        check(-1, true, None);
        check(-1, false, Some(-1));
        check(-2, true, Some(-2));
        check(9, true, Some(9));
    }

    #[test]
    fn put_5_ignored_parts_are_kept() {
        let mut request = PutRequest {
            key: "k".into(),
            ignore_value: true,
            ignore_lease: true,
            ..PutRequest::default()
        };
        let kept = put(&mut request);
        assert_eq!((kept.value, kept.lease), (None, PutLease::Keep));
        request.ignore_lease = false;
        assert_eq!(put(&mut request).lease, PutLease::Detach);
        request.lease = -5;
        let lease = LeaseId::new(-5).unwrap();
        assert_eq!(put(&mut request).lease, PutLease::Attach(lease));
    }

    #[test]
    fn cmp_4_cmp_5_odd_compares_are_read_as_etcd_reads_them() {
        let check = |target, result, operand, expected_target, expected_relation| {
            let converted = compare(&mut WireCompare {
                key: "k".into(),
                target,
                result,
                target_union: operand,
                ..WireCompare::default()
            });
            assert_eq!(
                (converted.target, converted.relation),
                (expected_target, expected_relation)
            );
        };
        let version = CompareTarget::Version;
        check(0, 0, None, version(0), Relation::Equal);
        let lease = Some(TargetUnion::Lease(7));
        check(0, 1, lease.clone(), version(0), Relation::Greater);
        check(
            3,
            2,
            lease.clone(),
            CompareTarget::Value(Bytes::new()),
            Relation::Less,
        );
        check(
            4,
            3,
            lease.clone(),
            CompareTarget::Lease(7),
            Relation::NotEqual,
        );
        check(0, 4, lease.clone(), version(0), Relation::Any);
        check(5, -1, lease, CompareTarget::Nothing, Relation::Any);
    }

    #[test]
    fn wa_9_an_empty_key_is_the_smallest_one() {
        let check = |range_end: &'static [u8], expected| {
            let request = WatchCreateRequest {
                range_end: bytes(range_end),
                ..WatchCreateRequest::default()
            };
            assert_eq!(watch(request), WatchOptions::of(expected));
        };
        check(b"", KeyRange::One(bytes(b"\0")));
        check(b"\0", KeyRange::From(bytes(b"\0")));
        check(b"b", KeyRange::within(&b"\0"[..], &b"b"[..]));
    }

    #[test]
    fn wa_35_unknown_filters_are_passed_over() {
        let options = watch(WatchCreateRequest {
            key: "k".into(),
            filters: vec![7, FilterType::Nodelete.into(), -1],
            ..WatchCreateRequest::default()
        });
        assert!(options.no_delete && !options.no_put);
    }

    #[test]
    fn le_10_parts_of_a_second_do_not_count() {
        use std::time::Duration;
        assert_eq!(seconds(Duration::from_millis(9999)), 9);
        assert_eq!(seconds(Duration::MAX), i64::MAX);
    }
}
