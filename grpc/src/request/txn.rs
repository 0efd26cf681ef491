//! Transactions: validation and conversion.

use bytes::Bytes;
use revstore_engine::{Compare, CompareTarget, Op, Relation, Revision, Txn};
use revstore_proto::etcdserverpb::compare::{
    CompareResult, CompareTarget as WireTarget, TargetUnion,
};
use revstore_proto::etcdserverpb::request_op::Request;
use revstore_proto::etcdserverpb::{Compare as WireCompare, RequestOp, TxnRequest};

use crate::node::admission::Limits;
use crate::request::kv::{
    convert_delete_range, convert_keys, convert_put, convert_range_at, validate_delete_range,
    validate_key, validate_put, validate_range,
};
use crate::request::write_set::WriteSet;
use crate::status::EtcdError;

/// Validates the whole transaction with both branches before any operation runs (TXN-1 to TXN-8).
pub(crate) fn validate_txn(request: &TxnRequest, limits: &Limits) -> Result<(), EtcdError> {
    validate_ops(request, limits.txn_ops_max, limits)?;
    validate_writes(&request.success)?;
    validate_writes(&request.failure)
}

/// TXN-3: the checks run in this order. [`NESTING_MAX`](super::nesting::NESTING_MAX) limits the depth of the
/// recursion.
fn validate_ops(request: &TxnRequest, ops_max: usize, limits: &Limits) -> Result<(), EtcdError> {
    let lists = [
        request.compare.len(),
        request.success.len(),
        request.failure.len(),
    ];
    let longest = lists.into_iter().max().unwrap_or(0);
    // TXN-2: a nested transaction shares the limit with the longest list of its parent.
    let Some(remaining) = ops_max.checked_sub(longest) else {
        return Err(EtcdError::TooManyOps);
    };
    request
        .compare
        .iter()
        .try_for_each(|compare| validate_key(&compare.key))?;
    let mut ops = request.success.iter().chain(&request.failure);
    ops.try_for_each(|op| validate_op(op, remaining, limits))
}

fn validate_op(op: &RequestOp, ops_max: usize, limits: &Limits) -> Result<(), EtcdError> {
    match &op.request {
        Some(Request::RequestRange(request)) => validate_range(request, limits),
        Some(Request::RequestPut(request)) => validate_put(request, limits),
        Some(Request::RequestDeleteRange(request)) => validate_delete_range(request, limits),
        Some(Request::RequestTxn(request)) => validate_ops(request, ops_max, limits),
        // TXN-4
        None => Err(EtcdError::KeyNotFound),
    }
}

fn validate_writes(branch: &[RequestOp]) -> Result<(), EtcdError> {
    let is_nested = |op: &RequestOp| matches!(op.request, Some(Request::RequestTxn(_)));
    // The usual case: a single operation cannot conflict with another one.
    if branch.len() < 2 && !branch.iter().any(is_nested) {
        return Ok(());
    }
    WriteSet::of_branch(branch).map(drop)
}

/// Converts a transaction. `never_compacted` determines the meaning of revision -1 (RG-14).
pub(crate) fn convert_txn(request: &mut TxnRequest, never_compacted: bool) -> Txn {
    let ops = |ops: &mut Vec<RequestOp>| -> Vec<Op> {
        let requests = ops.iter_mut().filter_map(|op| op.request.as_mut());
        requests
            .map(|request| convert_op(request, never_compacted))
            .collect()
    };
    let mut txn = Txn::new();
    txn.compares = request.compare.iter_mut().map(convert_compare).collect();
    txn.success = ops(&mut request.success);
    txn.failure = ops(&mut request.failure);
    txn
}

fn convert_op(request: &mut Request, never_compacted: bool) -> Op {
    match request {
        Request::RequestRange(request) => {
            // RG-14: only 0 means the current revision. Every other revision is taken literally,
            // and the compacted revision of a store that was never compacted is -1.
            let is_current = request.revision == 0 || (request.revision == -1 && never_compacted);
            let at = (!is_current).then_some(Revision(request.revision));
            Op::Range(convert_range_at(request, at))
        }
        Request::RequestPut(request) => Op::Put(convert_put(request)),
        Request::RequestDeleteRange(request) => Op::Delete(convert_delete_range(request)),
        Request::RequestTxn(request) => Op::Txn(convert_txn(request, never_compacted)),
    }
}

fn convert_compare(request: &mut WireCompare) -> Compare {
    let target = convert_compare_target(request);
    // CMP-5
    let relation =
        CompareResult::try_from(request.result).map_or(Relation::Any, |result| match result {
            CompareResult::Equal => Relation::Equal,
            CompareResult::NotEqual => Relation::NotEqual,
            CompareResult::Greater => Relation::Greater,
            CompareResult::Less => Relation::Less,
        });
    let keys = convert_keys(&mut request.key, &mut request.range_end);
    Compare::new(keys, target, relation)
}

/// CMP-4: an operand that is missing, or belongs to another target, is zero or empty.
fn convert_compare_target(request: &mut WireCompare) -> CompareTarget {
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

#[cfg(test)]
mod tests {
    use revstore_proto::etcdserverpb::{DeleteRangeRequest, PutRequest, RangeRequest};

    use super::*;

    const OPS_MAX: usize = 128;

    fn validate(request: &TxnRequest) -> Result<(), EtcdError> {
        let limits = Limits {
            txn_ops_max: OPS_MAX,
            ..Limits::default()
        };
        validate_txn(request, &limits)
    }

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
        assert_eq!(validate(&request), expected, "{request:?}");
        // Both branches have the same rules.
        request.failure = std::mem::take(&mut request.success);
        assert_eq!(validate(&request), expected, "{request:?}");
    }

    fn check_compares(compares: Vec<&'static str>, expected: Result<(), EtcdError>) {
        let compare = |key: &'static str| WireCompare {
            key: key.into(),
            ..WireCompare::default()
        };
        let request = TxnRequest {
            compare: compares.into_iter().map(compare).collect(),
            success: vec![put(""); OPS_MAX],
            failure: Vec::new(),
        };
        assert_eq!(validate(&request), expected);
    }

    #[test]
    fn txn_1_the_limit_applies_to_each_list() {
        check(vec![get("k"); OPS_MAX], Ok(()));
        check(vec![get("k"); OPS_MAX + 1], Err(EtcdError::TooManyOps));
    }

    #[test]
    fn txn_2_nested_transactions_share_the_limit() {
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
    fn txn_3_lengths_are_checked_before_keys_and_keys_before_conflicts() {
        check(vec![put(""); OPS_MAX + 1], Err(EtcdError::TooManyOps));
        check(vec![put("k"), put("k"), get("")], Err(EtcdError::EmptyKey));
        check_compares(vec!["k"; OPS_MAX + 1], Err(EtcdError::TooManyOps));
        check_compares(vec!["k", ""], Err(EtcdError::EmptyKey));
    }

    #[test]
    fn txn_4_an_operation_without_a_request_is_rejected() {
        check(
            vec![RequestOp { request: None }],
            Err(EtcdError::KeyNotFound),
        );
    }

    #[test]
    fn txn_5_a_branch_that_writes_a_key_twice_is_rejected() {
        let conflict = Err(EtcdError::DuplicateKey);
        check(vec![put("a"), put("b")], Ok(()));
        check(vec![put("a"), put("a")], conflict);
        check(vec![put("b"), delete("a", "c")], conflict);
        check(vec![delete("a", "c"), put("b")], conflict);
        check(vec![delete("b", ""), put("b")], conflict);
        check(vec![delete("a", "c"), put("c")], Ok(()));
        check(
            vec![delete("a", "c"), delete("b", "d"), delete("b", "")],
            Ok(()),
        );
        check(vec![delete("c", "a"), put("b")], Ok(()));
    }

    #[test]
    fn txn_5_the_two_branches_may_write_the_same_key() {
        let request = TxnRequest {
            compare: Vec::new(),
            success: vec![put("k")],
            failure: vec![put("k"), delete("j", "")],
        };
        assert_eq!(validate(&request), Ok(()));
    }

    /// The expected results are those of etcd 3.5.16.
    #[test]
    fn txn_6_nested_operations_conflict_with_the_operations_around_them() {
        let conflict = Err(EtcdError::DuplicateKey);
        let k = || vec![put("k")];
        let delete_k = || vec![delete("k", "")];
        check(vec![nested(k(), k())], Ok(()));
        check(vec![nested(delete_k(), k())], Ok(()));
        check(vec![nested(k(), delete_k())], Ok(()));
        check(vec![nested(vec![nested(k(), k())], k())], Ok(()));
        check(vec![nested(k(), vec![]), nested(k(), vec![])], conflict);
        check(vec![nested(k(), vec![]), nested(vec![], k())], conflict);
        check(vec![put("k"), nested(k(), vec![])], conflict);
        check(vec![put("k"), nested(delete_k(), vec![])], conflict);
        check(vec![nested(k(), vec![]), delete("a", "z")], conflict);
        check(vec![nested(delete_k(), vec![]), delete("a", "z")], Ok(()));
    }

    #[test]
    fn txn_7_a_delete_without_an_end_never_conflicts() {
        check(vec![delete("y", "\0"), put("z")], Ok(()));
        check(vec![put("z"), delete("y", "\0")], Ok(()));
    }

    #[test]
    fn txn_8_a_later_nested_transaction_may_delete_a_key_that_an_earlier_one_puts() {
        let (k, delete_k) = (vec![put("k")], vec![delete("k", "")]);
        check(
            vec![nested(k.clone(), vec![]), nested(delete_k.clone(), vec![])],
            Ok(()),
        );
        check(
            vec![nested(delete_k, vec![]), nested(k, vec![])],
            Err(EtcdError::DuplicateKey),
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
            let Op::Range(range) = convert_op(&mut request, never_compacted) else {
                panic!("expected a range, got another operation for {request:?}");
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
    fn cmp_4_cmp_5_mismatched_compares_have_zero_operands() {
        let check = |target, result, operand, expected_target, expected_relation| {
            let converted = convert_compare(&mut WireCompare {
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
}
