//! Maintenance: section G and HK clauses.

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
    COMPACTED, CORRUPT, FUTURE, MEMBER_ID, NO_SPACE, Node, check_refused, delete, get, header,
    op_delete, op_get, op_put, op_txn, put, txn_of,
};

async fn status(node: &Node) -> StatusResponse {
    let status = node.maintenance().status(StatusRequest {}).await;
    status.unwrap().into_inner()
}

async fn alarm(
    node: &Node,
    action: AlarmAction,
    member_id: u64,
    kind: AlarmType,
) -> Vec<(u64, AlarmType)> {
    let request = AlarmRequest {
        action: action.into(),
        member_id,
        alarm: kind.into(),
    };
    let reply = node
        .maintenance()
        .alarm(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(reply.header, header(node.revision()), "DM-25");
    let shown = |alarm: &AlarmMember| (alarm.member_id, alarm.alarm());
    reply.alarms.iter().map(shown).collect()
}

#[tokio::test]
async fn mt_1_mt_2_status_tells_of_a_node_that_leads_itself() {
    let node = Node::with(|builder| builder.version("3.5.99"));
    node.fill(["k"]);
    let told = status(&node).await;
    assert_eq!(told.header, header(2));
    assert_eq!((&*told.version, told.leader), ("3.5.99", MEMBER_ID));
    assert_eq!(
        (told.raft_term, told.raft_index, told.raft_applied_index),
        (2, 4, 4)
    );
    let held = i64::try_from(node.engine.stats().history_bytes).unwrap();
    assert_eq!(
        (told.db_size, told.db_size_in_use, told.is_learner),
        (held, held, false)
    );
    assert!(told.errors.is_empty() && told.storage_version.is_empty());
}

/// From this version on kube-apiserver asks for progress notifications.
#[tokio::test]
async fn mt_2_the_version_is_not_below_3_5_13() {
    let told = status(&Node::new()).await.version;
    let numbers: Vec<u32> = told.split('.').map(|it| it.parse().unwrap()).collect();
    assert!(numbers >= vec![3, 5, 13], "{told}");
}

/// All of these were put to etcd 3.5.16.
#[tokio::test]
async fn dm_13_proposals_count_and_the_failed_ones_too() {
    let node = Node::new();
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
async fn mt_3_mt_7_mt_8_alarms_belong_to_members() {
    use {AlarmAction as Do, AlarmType as Kind};
    let node = Node::new();
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
    let node = Node::new();
    for (action, kind) in [(1, 99), (2, -1), (77, 1)] {
        let request = AlarmRequest {
            action,
            member_id: 5,
            alarm: kind,
        };
        let reply = node.maintenance().alarm(request).await.unwrap();
        assert!(reply.into_inner().alarms.is_empty());
    }
    assert!(node.services.alarms().list(None).is_empty());
}

async fn grant(node: &Node) -> Result<(), Status> {
    let request = LeaseGrantRequest { id: 0, ttl: 9 };
    node.lease().lease_grant(request).await.map(drop)
}

async fn revoke(node: &Node, id: i64) -> Result<(), Status> {
    node.lease()
        .lease_revoke(LeaseRevokeRequest { id })
        .await
        .map(drop)
}

async fn compact(node: &Node, revision: i64) -> Result<(), Status> {
    let request = CompactionRequest {
        revision,
        physical: true,
    };
    node.kv().compact(request).await.map(drop)
}

#[tokio::test]
async fn mt_9_without_space_nothing_grows() {
    let node = Node::new();
    node.fill(["k"]);
    node.engine
        .grant(revstore_engine::LeaseId::new(7), 9)
        .unwrap();
    alarm(&node, AlarmAction::Activate, 5, AlarmType::Nospace).await;
    check_refused(node.put(put("k", "v")).await, NO_SPACE);
    check_refused(grant(&node).await, NO_SPACE);
    let puts_if_not = TxnRequest {
        failure: vec![op_put(put("k", "v"))],
        ..TxnRequest::default()
    };
    check_refused(node.txn(puts_if_not).await, NO_SPACE);
    let nested = txn_of(vec![op_txn(txn_of(vec![op_put(put("k", "v"))]))]);
    check_refused(node.txn(nested).await, NO_SPACE);
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
async fn mt_10_a_corrupt_node_only_reads() {
    let node = Node::new();
    node.fill(["k"]);
    node.engine
        .grant(revstore_engine::LeaseId::new(7), 9)
        .unwrap();
    alarm(&node, AlarmAction::Activate, 5, AlarmType::Corrupt).await;
    check_refused(node.put(put("k", "v")).await, CORRUPT);
    check_refused(node.kv().delete_range(delete("k", "")).await, CORRUPT);
    check_refused(compact(&node, 2).await, CORRUPT);
    check_refused(grant(&node).await, CORRUPT);
    check_refused(revoke(&node, 7).await, CORRUPT);
    let other_branch_writes = TxnRequest {
        success: vec![op_get(get("k"))],
        failure: vec![op_delete(delete("k", ""))],
        ..TxnRequest::default()
    };
    check_refused(node.txn(other_branch_writes).await, CORRUPT);
    node.range(get("k")).await.unwrap();
    node.txn(txn_of(vec![op_get(get("k"))])).await.unwrap();
    assert_eq!(node.revision(), 2);
}

#[tokio::test]
async fn mt_11_the_quota_raises_the_alarm_and_freeing_does_not_clear_it() {
    let node = Node::with_limits(Limits {
        quota_bytes: Some(10_000),
        ..Limits::default()
    });
    let large = || PutRequest {
        key: "k".into(),
        value: vec![b'v'; 4000].into(),
        ..PutRequest::default()
    };
    node.put(large()).await.unwrap();
    node.put(large()).await.unwrap();
    check_refused(node.put(large()).await, NO_SPACE);
    assert!(node.engine.stats().history_bytes <= 10_000);
    assert_eq!(status(&node).await.errors.len(), 1);
    compact(&node, node.revision()).await.unwrap();
    check_refused(node.put(put("k", "v")).await, NO_SPACE);
    alarm(
        &node,
        AlarmAction::Deactivate,
        MEMBER_ID,
        AlarmType::Nospace,
    )
    .await;
    node.put(large()).await.unwrap();
    let without = Node::with_limits(Limits {
        quota_bytes: None,
        ..Limits::default()
    });
    without.put(large()).await.unwrap();
    assert_eq!(status(&without).await.db_size_quota, 0);
}

async fn hash_kv(node: &Node, revision: i64) -> Result<HashKvResponse, Status> {
    let request = HashKvRequest { revision };
    node.maintenance()
        .hash_kv(request)
        .await
        .map(Response::into_inner)
}

#[tokio::test]
async fn hk_2_to_hk_4_hashes_are_of_a_revision() {
    let node = Node::new();
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
    node.engine.delete(&KeyRange::one("a"));
    assert_eq!(hash_kv(&node, 3).await.unwrap().hash, before.hash);
    let now = hash_kv(&node, 0).await.unwrap();
    assert_eq!((now.hash != before.hash, now.hash_revision), (true, 4));
    for nothing in [-1, i64::MIN] {
        assert_eq!(hash_kv(&node, nothing).await.unwrap().hash, known.hash);
    }
    check_refused(hash_kv(&node, 5).await, FUTURE);
    check_refused(hash_kv(&node, i64::MAX).await, FUTURE);
    node.engine.compact(Revision(3)).unwrap().run();
    check_refused(hash_kv(&node, 2).await, COMPACTED);
    assert_eq!(hash_kv(&node, 0).await.unwrap().compact_revision, 3);
}

#[tokio::test]
async fn mt_4_the_hash_of_the_backend_is_stable() {
    let node = Node::new();
    node.fill(["a"]);
    let hash = async || {
        let reply = node.maintenance().hash(HashRequest {}).await.unwrap();
        reply.into_inner()
    };
    let first = hash().await;
    assert_eq!(first.header, header(2));
    assert_eq!(hash().await.hash, first.hash);
    node.fill(["a"]);
    assert_ne!(hash().await.hash, first.hash);
}

#[tokio::test]
async fn mt_5_mt_12_dm_28_defragment_and_move_leader_answer_without_a_header() {
    let node = Node::new();
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
    let refusal = (
        Code::FailedPrecondition,
        "etcdserver: bad leader transferee",
    );
    for other in [0, 5, u64::MAX] {
        check_refused(move_to(other).await, refusal);
    }
}

#[tokio::test]
async fn mt_13_downgrades_can_be_asked_about() {
    let node = Node::new();
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
    let reply = downgrade(validate, "3.4").await.unwrap();
    assert_eq!((&*reply.version, reply.header), ("3.5.0", header(1)));
    for (action, version, refusal) in [
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
        check_refused(downgrade(action, version).await, refusal);
    }
}

#[tokio::test]
async fn mt_6_a_snapshot_comes_in_pieces_and_ends_with_its_hash() {
    let node = Node::new();
    node.engine.put("large", vec![b'x'; 100_000]).unwrap();
    let snapshot = node.maintenance().snapshot(SnapshotRequest {}).await;
    let mut pieces = snapshot.unwrap().into_inner();
    let mut file = Vec::new();
    let mut remaining = None;
    loop {
        let piece = pieces.next().await.unwrap().unwrap();
        // DM-29
        assert_eq!(piece.header, None);
        if remaining == Some(0) {
            assert_eq!(piece.remaining_bytes, 0);
            assert_eq!(&*piece.blob, &*Sha256::digest(&file));
            break;
        }
        assert!(piece.blob.len() <= 32 * 1024);
        file.extend_from_slice(&piece.blob);
        let whole = file.len() as u64 + piece.remaining_bytes;
        if let Some(remaining) = remaining {
            assert_eq!(
                whole,
                file.len() as u64 - piece.blob.len() as u64 + remaining
            );
        }
        remaining = Some(piece.remaining_bytes);
    }
    assert!(pieces.next().await.is_none());
    assert!(file.len() > 100_000 && file.len().is_multiple_of(512));
}
