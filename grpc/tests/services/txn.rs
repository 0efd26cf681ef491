//! Transactions: TXN and CMP clauses that need a store. What the request alone decides is tested
//! beside the checks.

use revstore_proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use revstore_proto::etcdserverpb::response_op::Response;
use revstore_proto::etcdserverpb::{
    Compare, DeleteRangeRequest, PutRequest, RangeRequest, ResponseHeader, TxnRequest, TxnResponse,
};
use tonic::Code;

use crate::support::{
    COMPACTED, FUTURE, KEY_NOT_FOUND, LEASE_NOT_FOUND, Node, check_refused, delete, from_key, get,
    header, op_delete, op_get, op_header, op_put, op_txn, put, txn_of,
};

fn version_is(key: &'static str, version: i64) -> Compare {
    Compare {
        key: key.into(),
        target_union: Some(TargetUnion::Version(version)),
        ..Compare::default()
    }
}

fn responses(done: TxnResponse) -> Vec<Response> {
    done.responses
        .into_iter()
        .map(|op| op.response.unwrap())
        .collect()
}

#[tokio::test]
async fn txn_27_dm_22_an_empty_transaction_succeeds_and_changes_nothing() {
    let done = Node::new().txn(TxnRequest::default()).await.unwrap();
    let nothing = TxnResponse {
        header: header(1),
        succeeded: true,
        responses: Vec::new(),
    };
    assert_eq!(done, nothing);
}

#[tokio::test]
async fn txn_20_txn_26_compares_choose_the_branch_that_answers() {
    let node = Node::new();
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
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn dm_23_dm_24_operations_have_headers_of_their_own() {
    let node = Node::new();
    node.fill(["a"]);
    let done = node
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
    assert_eq!(done.header, header(3));
    match &responses(done)[..] {
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
                other => panic!("{other:?}"),
            }
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn operations_are_asked_and_answered_as_outside_of_a_transaction() {
    let node = Node::new();
    node.fill(["a", "b"]);
    let done = node
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
    match &responses(done)[..] {
        [
            Response::ResponseRange(found),
            Response::ResponseDeleteRange(first),
            Response::ResponseDeleteRange(second),
        ] => {
            assert!(found.more && found.kvs[0].value.is_empty());
            assert_eq!((first.deleted, first.prev_kvs.len()), (2, 2));
            assert_eq!((second.deleted, second.prev_kvs.len()), (0, 0));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn txn_7_txn_8_keys_may_change_twice_through_etcds_gaps() {
    let node = Node::new();
    node.fill(["z"]);
    let gap = txn_of(vec![op_delete(delete("y", "\0")), op_put(put("z", "new"))]);
    let done = node.txn(gap).await.unwrap();
    assert_eq!(done.header, header(3));
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
async fn txn_10_a_kept_value_that_the_transaction_deletes_is_an_error_and_no_panic() {
    let node = Node::new();
    node.fill(["b"]);
    for (ignore_value, ignore_lease) in [(true, false), (false, true)] {
        let keep = PutRequest {
            ignore_value,
            ignore_lease,
            ..put("b", "")
        };
        let trap = txn_of(vec![op_delete(delete("a", "\0")), op_put(keep)]);
        check_refused(node.txn(trap).await, KEY_NOT_FOUND);
    }
    assert_eq!(
        (node.revision(), node.range(get("b")).await.unwrap().count),
        (2, 1)
    );
}

#[tokio::test]
async fn txn_22_to_25_what_cannot_run_fails_the_whole_transaction() {
    let node = Node::new();
    node.fill(["a"]);
    let with = |op| txn_of(vec![op_put(put("b", "v")), op]);
    let keep = PutRequest {
        ignore_value: true,
        ..put("c", "")
    };
    check_refused(node.txn(with(op_put(keep))).await, KEY_NOT_FOUND);
    let attached = PutRequest {
        lease: 77,
        ..put("c", "v")
    };
    check_refused(
        node.txn(with(op_put(attached.clone()))).await,
        LEASE_NOT_FOUND,
    );
    let at = |revision| {
        op_get(RangeRequest {
            revision,
            ..get("a")
        })
    };
    check_refused(node.txn(with(at(3))).await, FUTURE);
    check_refused(node.txn(with(at(i64::MAX))).await, FUTURE);
    assert_eq!(
        (node.revision(), node.range(get("b")).await.unwrap().count),
        (2, 0)
    );
    // TXN-23: what will not run does not matter.
    let other_branch = TxnRequest {
        compare: vec![version_is("a", 9)],
        success: vec![op_put(attached)],
        failure: Vec::new(),
    };
    assert!(!node.txn(other_branch).await.unwrap().succeeded);
}

#[tokio::test]
async fn rg_14_negative_revisions_lie_below_the_mark() {
    let node = Node::new();
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
    check_refused(node.txn(at(-2)).await, COMPACTED);
    check_refused(node.txn(at(i64::MIN)).await, COMPACTED);
    node.engine
        .compact(node.engine.current_revision())
        .unwrap()
        .run();
    check_refused(node.txn(at(-1)).await, COMPACTED);
    check_refused(node.txn(at(1)).await, COMPACTED);
}

#[tokio::test]
async fn cmp_1_cmp_2_absent_keys_are_zero_and_have_no_value() {
    let node = Node::new();
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
    let node = Node::new();
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
async fn txn_1_the_limit_can_be_set() {
    let node = Node::with_limits(revstore_grpc::Limits {
        txn_ops_max: 2,
        ..revstore_grpc::Limits::default()
    });
    let gets = |count| txn_of(vec![op_get(get("k")); count]);
    node.txn(gets(2)).await.unwrap();
    let text = "etcdserver: too many operations in txn request";
    check_refused(node.txn(gets(3)).await, (Code::InvalidArgument, text));
}
