//! Transactions: the TXN and CMP clauses that need a store. The unit tests of the validation check
//! the clauses about requests.

use revstore_proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use revstore_proto::etcdserverpb::response_op::Response;
use revstore_proto::etcdserverpb::{
    Compare, DeleteRangeRequest, PutRequest, RangeRequest, ResponseHeader, TxnRequest, TxnResponse,
};
use tonic::Code;

use crate::support::{
    COMPACTED, FUTURE, KEY_NOT_FOUND, LEASE_NOT_FOUND, TestNode, assert_error, delete, from_key,
    get, header, op_delete, op_get, op_header, op_put, op_txn, put, txn_of,
};

fn version_is(key: &'static str, version: i64) -> Compare {
    Compare {
        key: key.into(),
        target_union: Some(TargetUnion::Version(version)),
        ..Compare::default()
    }
}

fn responses(response: TxnResponse) -> Vec<Response> {
    response
        .responses
        .into_iter()
        .map(|op| op.response.unwrap())
        .collect()
}

#[tokio::test]
async fn txn_27_dm_22_an_empty_transaction_succeeds_and_changes_nothing() {
    let response = TestNode::new().txn(TxnRequest::default()).await.unwrap();
    let expected = TxnResponse {
        header: header(1),
        succeeded: true,
        responses: Vec::new(),
    };
    assert_eq!(response, expected);
}

#[tokio::test]
async fn txn_20_txn_26_compares_select_the_branch_to_execute() {
    let node = TestNode::new();
    let create = || TxnRequest {
        compare: vec![version_is("k", 0)],
        success: vec![op_put(put("k", "v"))],
        failure: vec![op_get(get("k")), op_delete(delete("none", ""))],
    };
    let first = node.txn(create()).await.unwrap();
    assert_eq!((first.succeeded, &first.header), (true, &header(2)));
    assert!(matches!(responses(first)[..], [Response::ResponsePut(_)]));
    let second = node.txn(create()).await.unwrap();
    assert_eq!((second.succeeded, &second.header), (false, &header(2)));
    match &responses(second)[..] {
        [
            Response::ResponseRange(found),
            Response::ResponseDeleteRange(deleted),
        ] => {
            assert_eq!(found.kvs[0].value, "v");
            assert_eq!(deleted.deleted, 0);
        }
        other => panic!("expected a range and a delete response, got {other:?}"),
    }
}

#[tokio::test]
async fn dm_23_dm_24_each_operation_has_its_own_header() {
    let node = TestNode::new();
    node.fill(["a"]);
    let response = node
        .txn(txn_of(vec![
            op_get(get("a")),
            op_put(PutRequest {
                prev_kv: true,
                ..put("a", "new")
            }),
            op_get(get("a")),
            op_txn(txn_of(vec![op_delete(DeleteRangeRequest {
                prev_kv: true,
                ..delete("b", "")
            })])),
        ]))
        .await
        .unwrap();
    assert_eq!(response.header, header(3));
    match &responses(response)[..] {
        [
            Response::ResponseRange(before),
            Response::ResponsePut(written),
            Response::ResponseRange(after),
            Response::ResponseTxn(nested),
        ] => {
            assert_eq!(
                (&before.header, &before.kvs[0].value[..]),
                (&op_header(2), &b"v"[..])
            );
            assert_eq!(written.header, op_header(3));
            assert_eq!(written.prev_kv.as_ref().unwrap().value, "v");
            // TXN-21
            assert_eq!(
                (&after.header, &after.kvs[0].value[..]),
                (&op_header(3), &b"new"[..])
            );
            assert_eq!(nested.header, Some(ResponseHeader::default()));
            match nested.responses[0].response.as_ref().unwrap() {
                Response::ResponseDeleteRange(deleted) => {
                    assert_eq!(deleted.header, op_header(3));
                }
                other => panic!("expected a delete response, got {other:?}"),
            }
        }
        other => panic!("expected other responses, got {other:?}"),
    }
}

#[tokio::test]
async fn operations_of_a_transaction_behave_like_single_requests() {
    let node = TestNode::new();
    node.fill(["a", "b"]);
    let response = node
        .txn(txn_of(vec![
            op_get(RangeRequest {
                keys_only: true,
                limit: 1,
                ..from_key("a")
            }),
            op_delete(DeleteRangeRequest {
                prev_kv: true,
                ..delete("a", "c")
            }),
            op_delete(delete("a", "c")),
        ]))
        .await
        .unwrap();
    match &responses(response)[..] {
        [
            Response::ResponseRange(found),
            Response::ResponseDeleteRange(first),
            Response::ResponseDeleteRange(second),
        ] => {
            assert!(found.more && found.kvs[0].value.is_empty());
            assert_eq!((first.deleted, first.prev_kvs.len()), (2, 2));
            assert_eq!((second.deleted, second.prev_kvs.len()), (0, 0));
        }
        other => panic!("expected other responses, got {other:?}"),
    }
}

#[tokio::test]
async fn txn_7_txn_8_the_duplicate_check_has_the_gaps_of_etcd() {
    let node = TestNode::new();
    node.fill(["z"]);
    let gap = txn_of(vec![op_delete(delete("y", "\0")), op_put(put("z", "new"))]);
    let response = node.txn(gap).await.unwrap();
    assert_eq!(response.header, header(3));
    assert_eq!(node.range(get("z")).await.unwrap().kvs[0].version, 1);
    let siblings = txn_of(vec![
        op_txn(txn_of(vec![op_put(put("z", "newer"))])),
        op_txn(txn_of(vec![op_delete(delete("z", ""))])),
    ]);
    node.txn(siblings).await.unwrap();
    assert_eq!(node.range(get("z")).await.unwrap().count, 0);
    assert_eq!(node.revision(), 4);
}

#[tokio::test]
async fn txn_10_ignore_flags_for_a_key_that_the_transaction_deletes_return_an_error() {
    let node = TestNode::new();
    node.fill(["b"]);
    for (ignore_value, ignore_lease) in [(true, false), (false, true)] {
        let ignoring = PutRequest {
            ignore_value,
            ignore_lease,
            ..put("b", "")
        };
        let request = txn_of(vec![op_delete(delete("a", "\0")), op_put(ignoring)]);
        assert_error(node.txn(request).await, KEY_NOT_FOUND);
    }
    assert_eq!(
        (node.revision(), node.range(get("b")).await.unwrap().count),
        (2, 1)
    );
}

#[tokio::test]
async fn txn_22_to_25_a_failing_operation_fails_the_whole_transaction() {
    let node = TestNode::new();
    node.fill(["a"]);
    let with = |op| txn_of(vec![op_put(put("b", "v")), op]);
    let ignoring = PutRequest {
        ignore_value: true,
        ..put("c", "")
    };
    assert_error(node.txn(with(op_put(ignoring))).await, KEY_NOT_FOUND);
    let attached = PutRequest {
        lease: 77,
        ..put("c", "v")
    };
    assert_error(
        node.txn(with(op_put(attached.clone()))).await,
        LEASE_NOT_FOUND,
    );
    let at = |revision| {
        op_get(RangeRequest {
            revision,
            ..get("a")
        })
    };
    assert_error(node.txn(with(at(3))).await, FUTURE);
    assert_error(node.txn(with(at(i64::MAX))).await, FUTURE);
    assert_eq!(
        (node.revision(), node.range(get("b")).await.unwrap().count),
        (2, 0)
    );
    // TXN-23: operations of the branch that is not executed do not fail the transaction.
    let other_branch = TxnRequest {
        compare: vec![version_is("a", 9)],
        success: vec![op_put(attached)],
        failure: Vec::new(),
    };
    assert!(!node.txn(other_branch).await.unwrap().succeeded);
}

#[tokio::test]
async fn rg_14_negative_revisions_in_a_transaction_are_compacted() {
    let node = TestNode::new();
    node.fill(["a"]);
    let at = |revision| {
        txn_of(vec![op_get(RangeRequest {
            revision,
            ..get("a")
        })])
    };
    for revision in [0, -1] {
        let found = responses(node.txn(at(revision)).await.unwrap()).remove(0);
        assert!(matches!(found, Response::ResponseRange(found) if found.count == 1));
    }
    assert_error(node.txn(at(-2)).await, COMPACTED);
    assert_error(node.txn(at(i64::MIN)).await, COMPACTED);
    node.engine
        .compact(node.engine.current_revision())
        .unwrap()
        .run();
    assert_error(node.txn(at(-1)).await, COMPACTED);
    assert_error(node.txn(at(1)).await, COMPACTED);
}

#[tokio::test]
async fn cmp_1_cmp_2_absent_keys_compare_as_zero_and_have_no_value() {
    let node = TestNode::new();
    let compare = |target: CompareTarget, result: CompareResult, operand| Compare {
        key: "absent".into(),
        target: target.into(),
        result: result.into(),
        target_union: operand,
        ..Compare::default()
    };
    let number = TargetUnion::Version;
    for (condition, expected) in [
        (
            compare(
                CompareTarget::Version,
                CompareResult::Equal,
                Some(number(0)),
            ),
            true,
        ),
        (
            compare(CompareTarget::Version, CompareResult::Less, Some(number(1))),
            true,
        ),
        (
            compare(
                CompareTarget::Version,
                CompareResult::Greater,
                Some(number(-1)),
            ),
            true,
        ),
        (
            compare(CompareTarget::Mod, CompareResult::Equal, None),
            true,
        ),
        (
            compare(CompareTarget::Value, CompareResult::NotEqual, None),
            false,
        ),
        (
            compare(CompareTarget::Value, CompareResult::Equal, None),
            false,
        ),
        (
            Compare {
                result: 99,
                ..compare(CompareTarget::Create, CompareResult::Equal, Some(number(7)))
            },
            true,
        ),
        (
            Compare {
                target: -4,
                ..compare(CompareTarget::Create, CompareResult::Equal, Some(number(7)))
            },
            true,
        ),
    ] {
        let request = TxnRequest {
            compare: vec![condition.clone()],
            ..TxnRequest::default()
        };
        assert_eq!(
            node.txn(request).await.unwrap().succeeded,
            expected,
            "{condition:?}"
        );
    }
}

#[tokio::test]
async fn cmp_3_every_key_of_a_range_must_satisfy_the_compare() {
    let node = TestNode::new();
    node.fill(["a", "b", "b"]);
    let all_of_version = |version| TxnRequest {
        compare: vec![Compare {
            range_end: "c".into(),
            ..version_is("a", version)
        }],
        ..TxnRequest::default()
    };
    assert!(!node.txn(all_of_version(1)).await.unwrap().succeeded);
    node.fill(["a"]);
    assert!(node.txn(all_of_version(2)).await.unwrap().succeeded);
}

#[tokio::test]
async fn txn_1_the_operation_limit_is_configurable() {
    let node = TestNode::with_limits(revstore_grpc::Limits::default().txn_ops_max(2));
    let gets = |count| txn_of(vec![op_get(get("k")); count]);
    node.txn(gets(2)).await.unwrap();
    let text = "etcdserver: too many operations in txn request";
    assert_error(node.txn(gets(3)).await, (Code::InvalidArgument, text));
}
