//! The Maintenance service: section G and HK clauses.

use revstore_engine::{KeyRange, Revision};
use revstore_grpc::{AlarmKind, Limits};
use revstore_proto::etcdserverpb::alarm_request::AlarmAction;
use revstore_proto::etcdserverpb::downgrade_request::DowngradeAction;
use revstore_proto::etcdserverpb::{
    AlarmMember, AlarmRequest, AlarmType, CompactionRequest, DefragmentRequest, DowngradeRequest,
    HashKvRequest, HashKvResponse, HashRequest, LeaseGrantRequest, LeaseRevokeRequest,
    MoveLeaderRequest, PutRequest, SnapshotRequest, StatusRequest, StatusResponse, TxnRequest,
};
use sha2::{Digest, Sha256};
use tokio_stream::StreamExt;
use tonic::{Code, Response, Status};

use crate::support::{
    COMPACTED, CORRUPT, FUTURE, MEMBER_ID, NO_SPACE, TestNode, assert_error, delete, get, header,
    op_delete, op_get, op_put, op_txn, put, txn_of,
};

async fn status(node: &TestNode) -> StatusResponse {
    let status = node.maintenance().status(StatusRequest {}).await;
    status.unwrap().into_inner()
}

async fn alarm(
    node: &TestNode,
    action: AlarmAction,
    member_id: u64,
    kind: AlarmType,
) -> Vec<(u64, AlarmType)> {
    let request = AlarmRequest {
        action: action.into(),
        member_id,
        alarm: kind.into(),
    };
    let response = node
        .maintenance()
        .alarm(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(response.header, header(node.revision()), "DM-25");
    let pair = |alarm: &AlarmMember| (alarm.member_id, alarm.alarm());
    response.alarms.iter().map(pair).collect()
}

#[tokio::test]
async fn mt_1_mt_2_status_reports_the_node_as_the_leader() {
    let node = TestNode::with(|builder| builder.version("3.5.99"));
    node.fill(["k"]);
    let status = status(&node).await;
    assert_eq!(status.header, header(2));
    assert_eq!((&*status.version, status.leader), ("3.5.99", MEMBER_ID));
    assert_eq!(
        (
            status.raft_term,
            status.raft_index,
            status.raft_applied_index
        ),
        (2, 4, 4)
    );
    let held = i64::try_from(node.engine.stats().history_bytes).unwrap();
    assert_eq!(
        (status.db_size, status.db_size_in_use, status.is_learner),
        (held, held, false)
    );
    assert!(status.errors.is_empty() && status.storage_version.is_empty());
}

/// kube-apiserver requests progress notifications from etcd 3.5.13 on.
#[tokio::test]
async fn mt_2_the_version_is_not_below_3_5_13() {
    let status = status(&TestNode::new()).await.version;
    let numbers: Vec<u32> = status.split('.').map(|it| it.parse().unwrap()).collect();
    assert!(numbers >= vec![3, 5, 13], "{status}");
}

/// Each count was measured on etcd 3.5.16.
#[tokio::test]
async fn dm_13_the_raft_index_counts_proposals_including_failed_ones() {
    let node = TestNode::new();
    let index = async || status(&node).await.raft_index;
    assert_eq!(index().await, 4);
    node.put(put("k", "v")).await.unwrap();
    assert_eq!(index().await, 5);
    let unknown_lease = PutRequest {
        lease: 77,
        ..put("k", "v")
    };
    node.put(unknown_lease).await.unwrap_err();
    assert_eq!(index().await, 6);
    node.put(put("", "v")).await.unwrap_err();
    node.range(get("k")).await.unwrap();
    node.txn(txn_of(vec![op_get(get("k"))])).await.unwrap();
    assert_eq!(index().await, 6);
    node.txn(txn_of(vec![op_delete(delete("none", ""))]))
        .await
        .unwrap();
    assert_eq!(index().await, 7);
    node.kv().delete_range(delete("none", "")).await.unwrap();
    assert_eq!(index().await, 8);
    let future = CompactionRequest {
        revision: 99,
        physical: false,
    };
    node.kv().compact(future).await.unwrap_err();
    assert_eq!(index().await, 9);
    let grant = LeaseGrantRequest { id: 0, ttl: 9 };
    node.lease().lease_grant(grant).await.unwrap();
    assert_eq!(index().await, 10);
    let revoke = LeaseRevokeRequest { id: 77 };
    node.lease().lease_revoke(revoke).await.unwrap_err();
    assert_eq!(index().await, 11);
    alarm(&node, AlarmAction::Get, 0, AlarmType::None).await;
    assert_eq!((index().await, node.services.raft_index()), (12, 12));
}

#[tokio::test]
async fn mt_3_mt_7_mt_8_alarms_are_raised_and_cleared_per_member() {
    use {AlarmAction as Do, AlarmType as Kind};
    let node = TestNode::new();
    let corrupt = [(5, Kind::Corrupt)];
    assert_eq!(alarm(&node, Do::Activate, 5, Kind::Corrupt).await, corrupt);
    assert_eq!(alarm(&node, Do::Activate, 5, Kind::Corrupt).await, corrupt);
    assert_eq!(
        alarm(&node, Do::Activate, 0, Kind::Nospace).await,
        [(0, Kind::Nospace)]
    );
    assert!(alarm(&node, Do::Activate, 5, Kind::None).await.is_empty());
    assert_eq!(alarm(&node, Do::Get, 9, Kind::None).await.len(), 2);
    assert_eq!(alarm(&node, Do::Get, 9, Kind::Corrupt).await, corrupt);
    let errors = status(&node).await.errors;
    assert_eq!(
        errors,
        ["memberID:0 alarm:NOSPACE ", "memberID:5 alarm:CORRUPT "]
    );
    assert!(
        alarm(&node, Do::Deactivate, 0, Kind::Corrupt)
            .await
            .is_empty()
    );
    assert!(alarm(&node, Do::Deactivate, 5, Kind::None).await.is_empty());
    assert_eq!(
        alarm(&node, Do::Deactivate, 5, Kind::Corrupt).await,
        corrupt
    );
    assert!(
        alarm(&node, Do::Deactivate, 5, Kind::Corrupt)
            .await
            .is_empty()
    );
    assert!(node.services.alarms().is_raised(AlarmKind::NoSpace));
}

#[tokio::test]
async fn unknown_alarms_and_actions_do_nothing() {
    let node = TestNode::new();
    for (action, kind) in [(1, 99), (2, -1), (77, 1)] {
        let request = AlarmRequest {
            action,
            member_id: 5,
            alarm: kind,
        };
        let response = node.maintenance().alarm(request).await.unwrap();
        assert!(response.into_inner().alarms.is_empty());
    }
    assert!(node.services.alarms().list(None).is_empty());
}

async fn grant(node: &TestNode) -> Result<(), Status> {
    let request = LeaseGrantRequest { id: 0, ttl: 9 };
    node.lease().lease_grant(request).await.map(drop)
}

async fn revoke(node: &TestNode, id: i64) -> Result<(), Status> {
    node.lease()
        .lease_revoke(LeaseRevokeRequest { id })
        .await
        .map(drop)
}

async fn compact(node: &TestNode, revision: i64) -> Result<(), Status> {
    let request = CompactionRequest {
        revision,
        physical: true,
    };
    node.kv().compact(request).await.map(drop)
}

#[tokio::test]
async fn mt_9_the_nospace_alarm_rejects_requests_that_add_data() {
    let node = TestNode::new();
    node.fill(["k"]);
    node.engine
        .grant(revstore_engine::LeaseId::new(7), 9)
        .unwrap();
    alarm(&node, AlarmAction::Activate, 5, AlarmType::Nospace).await;
    assert_error(node.put(put("k", "v")).await, NO_SPACE);
    assert_error(grant(&node).await, NO_SPACE);
    let puts_if_not = TxnRequest {
        failure: vec![op_put(put("k", "v"))],
        ..TxnRequest::default()
    };
    assert_error(node.txn(puts_if_not).await, NO_SPACE);
    let nested = txn_of(vec![op_txn(txn_of(vec![op_put(put("k", "v"))]))]);
    assert_error(node.txn(nested).await, NO_SPACE);
    assert_eq!(node.revision(), 2);
    node.range(get("k")).await.unwrap();
    node.txn(txn_of(vec![op_delete(delete("none", ""))]))
        .await
        .unwrap();
    node.kv().delete_range(delete("k", "")).await.unwrap();
    compact(&node, 2).await.unwrap();
    revoke(&node, 7).await.unwrap();
    node.maintenance()
        .defragment(DefragmentRequest {})
        .await
        .unwrap();
    alarm(&node, AlarmAction::Deactivate, 5, AlarmType::Nospace).await;
    node.put(put("k", "v")).await.unwrap();
}

#[tokio::test]
async fn mt_10_the_corrupt_alarm_rejects_all_writes() {
    let node = TestNode::new();
    node.fill(["k"]);
    node.engine
        .grant(revstore_engine::LeaseId::new(7), 9)
        .unwrap();
    alarm(&node, AlarmAction::Activate, 5, AlarmType::Corrupt).await;
    assert_error(node.put(put("k", "v")).await, CORRUPT);
    assert_error(node.kv().delete_range(delete("k", "")).await, CORRUPT);
    assert_error(compact(&node, 2).await, CORRUPT);
    assert_error(grant(&node).await, CORRUPT);
    assert_error(revoke(&node, 7).await, CORRUPT);
    let other_branch_writes = TxnRequest {
        success: vec![op_get(get("k"))],
        failure: vec![op_delete(delete("k", ""))],
        ..TxnRequest::default()
    };
    assert_error(node.txn(other_branch_writes).await, CORRUPT);
    node.range(get("k")).await.unwrap();
    node.txn(txn_of(vec![op_get(get("k"))])).await.unwrap();
    assert_eq!(node.revision(), 2);
}

#[tokio::test]
async fn mt_11_exceeding_the_quota_raises_nospace_and_compaction_does_not_clear_it() {
    let node = TestNode::with_limits(Limits::default().quota_bytes(Some(10_000)));
    let large = || PutRequest {
        key: "k".into(),
        value: vec![b'v'; 4000].into(),
        ..PutRequest::default()
    };
    node.put(large()).await.unwrap();
    node.put(large()).await.unwrap();
    assert_error(node.put(large()).await, NO_SPACE);
    assert!(node.engine.stats().history_bytes <= 10_000);
    assert_eq!(status(&node).await.errors.len(), 1);
    compact(&node, node.revision()).await.unwrap();
    assert_error(node.put(put("k", "v")).await, NO_SPACE);
    alarm(
        &node,
        AlarmAction::Deactivate,
        MEMBER_ID,
        AlarmType::Nospace,
    )
    .await;
    node.put(large()).await.unwrap();
    let without = TestNode::with_limits(Limits::default().quota_bytes(None));
    without.put(large()).await.unwrap();
    assert_eq!(status(&without).await.db_size_quota, 0);
}

async fn hash_kv(node: &TestNode, revision: i64) -> Result<HashKvResponse, Status> {
    let request = HashKvRequest { revision };
    node.maintenance()
        .hash_kv(request)
        .await
        .map(Response::into_inner)
}

#[tokio::test]
async fn hk_2_to_hk_4_hash_kv_hashes_the_store_at_a_revision() {
    let node = TestNode::new();
    let empty = hash_kv(&node, 0).await.unwrap();
    let known = HashKvResponse {
        header: header(1),
        hash: 1_084_519_789,
        compact_revision: -1,
        hash_revision: 1,
    };
    assert_eq!(empty, known);
    node.fill(["a", "b"]);
    let before = hash_kv(&node, 3).await.unwrap();
    node.engine.delete(&KeyRange::one("a")).unwrap();
    assert_eq!(hash_kv(&node, 3).await.unwrap().hash, before.hash);
    let current = hash_kv(&node, 0).await.unwrap();
    assert_eq!(
        (current.hash != before.hash, current.hash_revision),
        (true, 4)
    );
    for nothing in [-1, i64::MIN] {
        assert_eq!(hash_kv(&node, nothing).await.unwrap().hash, known.hash);
    }
    assert_error(hash_kv(&node, 5).await, FUTURE);
    assert_error(hash_kv(&node, i64::MAX).await, FUTURE);
    node.engine.compact(Revision(3)).unwrap().run();
    assert_error(hash_kv(&node, 2).await, COMPACTED);
    assert_eq!(hash_kv(&node, 0).await.unwrap().compact_revision, 3);
}

#[tokio::test]
async fn mt_4_hash_changes_only_with_the_store() {
    let node = TestNode::new();
    node.fill(["a"]);
    let hash = async || {
        let response = node.maintenance().hash(HashRequest {}).await.unwrap();
        response.into_inner()
    };
    let first = hash().await;
    assert_eq!(first.header, header(2));
    assert_eq!(hash().await.hash, first.hash);
    node.fill(["a"]);
    assert_ne!(hash().await.hash, first.hash);
}

#[tokio::test]
async fn mt_5_mt_12_dm_28_defragment_and_move_leader_return_no_header() {
    let node = TestNode::new();
    let done = node
        .maintenance()
        .defragment(DefragmentRequest {})
        .await
        .unwrap();
    assert_eq!(done.into_inner().header, None);
    let move_to = async |target_id| {
        let request = MoveLeaderRequest { target_id };
        node.maintenance().move_leader(request).await
    };
    assert_eq!(move_to(MEMBER_ID).await.unwrap().into_inner().header, None);
    let error = (
        Code::FailedPrecondition,
        "etcdserver: bad leader transferee",
    );
    for other in [0, 5, u64::MAX] {
        assert_error(move_to(other).await, error);
    }
}

#[tokio::test]
async fn mt_13_downgrade_validates_versions_and_cannot_be_enabled() {
    let node = TestNode::new();
    let downgrade = async |action: i32, version: &str| {
        let request = DowngradeRequest {
            action,
            version: version.to_owned(),
        };
        node.maintenance()
            .downgrade(request)
            .await
            .map(Response::into_inner)
    };
    let validate = DowngradeAction::Validate.into();
    let response = downgrade(validate, "3.4").await.unwrap();
    assert_eq!((&*response.version, response.header), ("3.5.0", header(1)));
    for (action, version, error) in [
        (
            validate,
            "x",
            (
                Code::InvalidArgument,
                "etcdserver: wrong downgrade target version format",
            ),
        ),
        (
            validate,
            "3.6",
            (
                Code::InvalidArgument,
                "etcdserver: invalid downgrade target version",
            ),
        ),
        (
            DowngradeAction::Enable.into(),
            "3.3",
            (
                Code::InvalidArgument,
                "etcdserver: invalid downgrade target version",
            ),
        ),
        (
            DowngradeAction::Enable.into(),
            "3.4",
            (
                Code::Unimplemented,
                "revstore: there is no older version to downgrade to",
            ),
        ),
        (
            DowngradeAction::Cancel.into(),
            "",
            (
                Code::FailedPrecondition,
                "etcdserver: no inflight downgrade job",
            ),
        ),
        (7, "3.4", (Code::Unknown, "etcdserver: unknown method")),
    ] {
        assert_error(downgrade(action, version).await, error);
    }
}

#[tokio::test]
async fn mt_6_a_snapshot_is_sent_in_chunks_and_ends_with_its_sha_256() {
    let node = TestNode::new();
    node.engine.put("large", vec![b'x'; 100_000]).unwrap();
    let snapshot = node.maintenance().snapshot(SnapshotRequest {}).await;
    let mut chunks = snapshot.unwrap().into_inner();
    let mut file = Vec::new();
    let mut remaining = None;
    loop {
        let chunk = chunks.next().await.unwrap().unwrap();
        // DM-29
        assert_eq!(chunk.header, None);
        if remaining == Some(0) {
            assert_eq!(chunk.remaining_bytes, 0);
            assert_eq!(&*chunk.blob, &*Sha256::digest(&file));
            break;
        }
        assert!(chunk.blob.len() <= 32 * 1024);
        file.extend_from_slice(&chunk.blob);
        let total = file.len() as u64 + chunk.remaining_bytes;
        if let Some(remaining) = remaining {
            assert_eq!(
                total,
                file.len() as u64 - chunk.blob.len() as u64 + remaining
            );
        }
        remaining = Some(chunk.remaining_bytes);
    }
    assert!(chunks.next().await.is_none());
    assert!(file.len() > 100_000 && file.len().is_multiple_of(512));
}
