//! Authorization of requests (AU-7, AU-8), also within streams, locks and elections (WA-38, WA-60,
//! EL-4).

use futures_util::FutureExt;
use revstore_engine::LeaseId;
use revstore_proto::etcdserverpb::watch_client::WatchClient;
use revstore_proto::etcdserverpb::watch_request::RequestUnion;
use revstore_proto::etcdserverpb::{
    AlarmRequest, AuthDisableRequest, AuthEnableRequest, AuthRoleAddRequest, AuthRoleDeleteRequest,
    AuthRoleGetRequest, AuthRoleGrantPermissionRequest, AuthRoleListRequest,
    AuthRoleRevokePermissionRequest, AuthStatusRequest, AuthUserAddRequest,
    AuthUserChangePasswordRequest, AuthUserDeleteRequest, AuthUserGetRequest,
    AuthUserGrantRoleRequest, AuthUserListRequest, AuthUserRevokeRoleRequest, CompactionRequest,
    Compare, DeleteRangeRequest, DowngradeRequest, LeaseGrantRequest, LeaseKeepAliveRequest,
    LeaseLeasesRequest, LeaseRevokeRequest, LeaseTimeToLiveRequest, MemberAddRequest,
    MemberPromoteRequest, MemberRemoveRequest, MemberUpdateRequest, MoveLeaderRequest, PutRequest,
    RequestOp, StatusRequest, TxnRequest, WatchCreateRequest, WatchRequest,
};
use revstore_proto::v3electionpb::election_client::ElectionClient;
use revstore_proto::v3electionpb::{
    CampaignRequest, LeaderKey, LeaderRequest, ProclaimRequest, ResignRequest,
};
use revstore_proto::v3lockpb::lock_client::LockClient;
use revstore_proto::v3lockpb::{LockRequest, UnlockRequest};
use tokio_stream::StreamExt;
use tonic::{Code, Response, Status};

use super::{
    DENIED, INVALID_TOKEN, NO_TOKEN, USER_EMPTY, add_user, auth, enable, grant_role, node,
    node_with_auth, with_token,
};
use crate::support::{
    LEASE_NOT_FOUND, TestNode, assert_error, delete, get, header, op_delete, op_get, op_put,
    op_txn, put, txn_of, watch_of, within,
};

#[tokio::test]
async fn au_7_reads_and_writes_need_permission_for_every_key() {
    let (node, root, user) = node_with_auth().await;
    let check = async |token: &str, request: RequestOp, allowed: bool| {
        use revstore_proto::etcdserverpb::request_op::Request as Op;
        let description = format!("{request:?}");
        let single = match request.request.clone().unwrap() {
            Op::RequestRange(request) => call!(node.kv(), range, token, request).map(drop),
            Op::RequestPut(request) => call!(node.kv(), put, token, request).map(drop),
            Op::RequestDeleteRange(request) => {
                call!(node.kv(), delete_range, token, request).map(drop)
            }
            Op::RequestTxn(request) => call!(node.kv(), txn, token, request).map(drop),
        };
        // The same permissions are needed in both branches of a transaction, and in nested
        // transactions.
        let failure = TxnRequest {
            failure: vec![request.clone()],
            ..TxnRequest::default()
        };
        let nested = txn_of(vec![op_txn(failure.clone())]);
        let mut outcomes = vec![single];
        for txn in [txn_of(vec![request]), failure, nested] {
            outcomes.push(call!(node.kv(), txn, token, txn).map(drop));
        }
        for outcome in outcomes {
            if allowed {
                assert!(outcome.is_ok(), "{description}: {outcome:?}");
            } else {
                assert_error(outcome, DENIED);
            }
        }
    };
    let put_prev = |key| PutRequest {
        prev_kv: true,
        ..put(key, "v")
    };
    let delete_prev = |key| DeleteRangeRequest {
        prev_kv: true,
        ..delete(key, "")
    };
    for (request, allowed) in [
        (op_get(get("read")), true),
        (op_get(get("readz")), true),
        (op_get(get("reae")), false),
        (op_get(get("write")), false),
        (op_get(within("read", "reae")), true),
        (op_get(within("rea", "reae")), false),
        (op_get(within("read", "\0")), false),
        (op_put(put("write", "v")), true),
        (op_put(put("read", "v")), false),
        (op_put(put_prev("write")), false),
        (op_put(put_prev("both")), true),
        (op_delete(delete("write", "writf")), true),
        (op_delete(delete("write", "writg")), false),
        (op_delete(delete_prev("write")), false),
        (op_delete(delete_prev("both")), true),
    ] {
        check(&user, request.clone(), allowed).await;
        check(&root, request, true).await;
    }
    let compare = |key: &'static str| TxnRequest {
        compare: vec![Compare {
            key: key.into(),
            ..Compare::default()
        }],
        ..TxnRequest::default()
    };
    check(&user, op_txn(compare("read")), true).await;
    check(&user, op_txn(compare("write")), false).await;
    let mut streamed = call!(node.kv(), range_stream, &user, get("read")).unwrap();
    assert!(streamed.next().await.unwrap().is_ok());
    assert_error(call!(node.kv(), range_stream, &user, get("x")), DENIED);
}

#[tokio::test]
async fn au_7_lease_requests_need_permission_for_the_attached_keys() {
    let (node, root, user) = node_with_auth().await;
    let grant = |id| LeaseGrantRequest { id, ttl: 60 };
    assert_error(
        call!(node.lease(), lease_grant, NO_TOKEN, grant(7)),
        USER_EMPTY,
    );
    assert_error(
        call!(node.lease(), lease_grant, "x.1", grant(7)),
        INVALID_TOKEN,
    );
    for id in [7, 8, 9] {
        call!(node.lease(), lease_grant, &user, grant(id)).unwrap();
    }
    let put_on = |key: &'static str, lease| PutRequest {
        lease,
        ..put(key, "v")
    };
    call!(node.kv(), put, &root, put_on("secret", 7)).unwrap();
    call!(node.kv(), put, &user, put_on("both", 8)).unwrap();

    // A put and a transaction attach a key to the lease.
    assert_error(call!(node.kv(), put, &user, put_on("write", 7)), DENIED);
    let attach = txn_of(vec![op_put(put_on("write", 7))]);
    assert_error(call!(node.kv(), txn, &user, attach), DENIED);
    call!(node.kv(), put, &user, put_on("write", 8)).unwrap();
    let unknown = call!(node.kv(), put, &user, put_on("write", 99));
    assert_error(unknown, LEASE_NOT_FOUND);

    // The keys of a lease are returned only to users that may read all of them.
    let time_to_live = |id, keys| LeaseTimeToLiveRequest { id, keys };
    for (id, keys, expected) in [
        (7, false, Ok(())),
        (7, true, Err(DENIED)),
        (8, true, Err(DENIED)),
        (9, true, Ok(())),
        (99, true, Ok(())),
    ] {
        let response = call!(
            node.lease(),
            lease_time_to_live,
            &user,
            time_to_live(id, keys)
        );
        match expected {
            Ok(()) => drop(response.unwrap()),
            Err(expected) => assert_error(response, expected),
        }
    }
    let unauthenticated = call!(
        node.lease(),
        lease_time_to_live,
        NO_TOKEN,
        time_to_live(7, false)
    );
    assert_error(unauthenticated, USER_EMPTY);
    let list = || LeaseLeasesRequest {};
    assert_error(
        call!(node.lease(), lease_leases, NO_TOKEN, list()),
        USER_EMPTY,
    );
    assert_error(call!(node.lease(), lease_leases, &user, list()), DENIED);
    let all = call!(node.lease(), lease_leases, &root, list()).unwrap();
    assert_eq!(all.leases.len(), 3);

    // Revoking the lease needs write permission for its keys.
    let revoke = |id| LeaseRevokeRequest { id };
    assert_error(
        call!(node.lease(), lease_revoke, NO_TOKEN, revoke(7)),
        USER_EMPTY,
    );
    assert_error(call!(node.lease(), lease_revoke, &user, revoke(7)), DENIED);
    assert_error(
        call!(node.lease(), lease_revoke, &user, revoke(99)),
        LEASE_NOT_FOUND,
    );
    call!(node.lease(), lease_revoke, &user, revoke(8)).unwrap();
    call!(node.lease(), lease_revoke, &root, revoke(7)).unwrap();
    call!(node.lease(), lease_leases, &user, list()).unwrap();
}

#[tokio::test]
async fn au_7_each_keep_alive_of_a_stream_is_authorized() {
    let (node, _, user) = node_with_auth().await;
    for id in [7, 8] {
        node.engine.grant(LeaseId::new(id), 60).unwrap();
    }
    let secret = revstore_engine::Put::new("secret", "v");
    let lease = LeaseId::new(8).unwrap();
    node.engine.put_with(&secret.attached_to(lease)).unwrap();
    let renew = async |token: &str, ids: &[i64]| {
        let requests: Vec<_> = ids
            .iter()
            .map(|id| LeaseKeepAliveRequest { id: *id })
            .collect();
        let requests = with_token(token, tokio_stream::iter(requests));
        let responses = node.lease().lease_keep_alive(requests).await.unwrap();
        let responses = responses.into_inner().collect::<Vec<_>>().await;
        let ttls = responses.into_iter().map(|response| Ok(response?.ttl));
        ttls.collect::<Vec<Result<i64, Status>>>()
    };
    let mut responses = renew(&user, &[7, 99, 8, 7]).await.into_iter();
    assert_eq!(responses.next().unwrap().unwrap(), 60);
    assert_eq!(responses.next().unwrap().unwrap(), 0);
    assert_error(responses.next().unwrap(), DENIED);
    assert!(
        responses.next().is_none(),
        "a denied keep-alive ends the stream"
    );
    for (token, expected) in [(NO_TOKEN, USER_EMPTY), ("x.1", INVALID_TOKEN)] {
        assert_error(renew(token, &[7]).await.remove(0), expected);
    }
}

#[tokio::test]
async fn au_8_administrative_methods_need_the_root_role() {
    let (node, root, user) = node_with_auth().await;
    macro_rules! check_admin_only {
        ($($client:ident.$method:ident($request:expr);)*) => {$(
            assert_error(call!($client(&node), $method, NO_TOKEN, $request), USER_EMPTY);
            assert_error(call!($client(&node), $method, "x.1", $request), INVALID_TOKEN);
            assert_error(call!($client(&node), $method, &user, $request), DENIED);
        )*};
    }
    let maintenance = |node: &TestNode| node.maintenance();
    let cluster = |node: &TestNode| node.cluster();
    let kv = |node: &TestNode| node.kv();
    let alarm = |action| AlarmRequest {
        action,
        ..AlarmRequest::default()
    };
    let add = || MemberAddRequest {
        peer_ur_ls: vec!["http://localhost:1".into()],
        is_learner: false,
    };
    check_admin_only! {
        kv.compact(CompactionRequest::default());
        maintenance.status(StatusRequest {});
        maintenance.alarm(alarm(1));
        maintenance.alarm(alarm(2));
        maintenance.move_leader(MoveLeaderRequest::default());
        maintenance.downgrade(DowngradeRequest::default());
        cluster.member_add(add());
        cluster.member_remove(MemberRemoveRequest::default());
        cluster.member_update(MemberUpdateRequest::default());
        cluster.member_promote(MemberPromoteRequest::default());
        auth.auth_enable(AuthEnableRequest {});
        auth.auth_disable(AuthDisableRequest {});
        auth.auth_status(AuthStatusRequest {});
        auth.user_add(AuthUserAddRequest::default());
        auth.user_get(AuthUserGetRequest { name: "root".into() });
        auth.user_get(AuthUserGetRequest { name: "x".into() });
        auth.user_list(AuthUserListRequest {});
        auth.user_delete(AuthUserDeleteRequest { name: "u".into() });
        auth.user_change_password(AuthUserChangePasswordRequest::default());
        auth.user_grant_role(AuthUserGrantRoleRequest::default());
        auth.user_revoke_role(AuthUserRevokeRoleRequest::default());
        auth.role_add(AuthRoleAddRequest::default());
        auth.role_get(AuthRoleGetRequest { role: "root".into() });
        auth.role_get(AuthRoleGetRequest { role: "x".into() });
        auth.role_list(AuthRoleListRequest {});
        auth.role_delete(AuthRoleDeleteRequest { role: "r".into() });
        auth.role_grant_permission(AuthRoleGrantPermissionRequest::default());
        auth.role_revoke_permission(AuthRoleRevokePermissionRequest::default());
    }
    call!(node.maintenance(), status, &root, StatusRequest {}).unwrap();
    // Any user may list alarms and get itself and its roles.
    call!(node.maintenance(), alarm, &user, alarm(0)).unwrap();
    assert_error(
        call!(node.maintenance(), alarm, NO_TOKEN, alarm(0)),
        USER_EMPTY,
    );
    let itself = AuthUserGetRequest { name: "u".into() };
    let response = call!(auth(&node), user_get, &user, itself).unwrap();
    assert_eq!(
        (response.roles, response.header),
        (vec!["r".into()], header(1))
    );
    let own_role = AuthRoleGetRequest { role: "r".into() };
    let response = call!(auth(&node), role_get, &user, own_role).unwrap();
    let starts: Vec<_> = response.perm.iter().map(|perm| &*perm.key).collect();
    assert_eq!(starts, [&b"both"[..], b"read", b"write"]);
}

#[tokio::test]
async fn wa_38_existing_watches_continue_when_auth_is_enabled() {
    let node = node();
    add_user(&node, NO_TOKEN, "root", "root").await.unwrap();
    grant_role(&node, NO_TOKEN, "root", "root").await.unwrap();
    let mut watch = node.watch().await;
    watch.create(watch_of("k", "")).await;
    enable(&node, NO_TOKEN).await.unwrap();
    let response = watch.create(watch_of("k", "")).await;
    assert!(response.canceled);
    node.fill(["k"]);
    assert_eq!(watch.next().await.events.len(), 1);
}

#[tokio::test]
async fn wa_60_a_denied_watch_does_not_end_the_stream() {
    let (node, _, user) = node_with_auth().await;
    let create = |key, range_end| WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(watch_of(key, range_end))),
    };
    let create_from = |start_revision, range_end| WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(WatchCreateRequest {
            start_revision,
            ..watch_of("read", range_end)
        })),
    };
    for (token, request, expected) in [
        (
            NO_TOKEN,
            create("read", ""),
            "rpc error: code = InvalidArgument desc = etcdserver: user name is empty",
        ),
        (
            "x.1",
            create("read", ""),
            "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token",
        ),
        (
            &user,
            create("write", ""),
            "rpc error: code = PermissionDenied desc = etcdserver: permission denied",
        ),
        (
            &user,
            // WA-9: an empty key is the smallest key.
            create("", "reae"),
            "rpc error: code = PermissionDenied desc = etcdserver: permission denied",
        ),
        // WA-7: a negative start is checked first, as in etcd 3.5.30.
        (
            NO_TOKEN,
            create_from(-1, "read"),
            "etcdserver: mvcc: required revision has been compacted",
        ),
        (
            "x.1",
            create_from(-1, "read"),
            "etcdserver: mvcc: required revision has been compacted",
        ),
        // In watches, authorization comes before the check of the range.
        (
            NO_TOKEN,
            create("read", "read"),
            "rpc error: code = InvalidArgument desc = etcdserver: user name is empty",
        ),
        (
            &user,
            create("read", "read"),
            "mvcc: watcher range is empty",
        ),
    ] {
        let requests = tokio_stream::iter([request, create("read", "reae")]);
        let requests = requests.chain(tokio_stream::pending());
        let mut client = WatchClient::new(node.services.clone());
        let stream = client.watch(with_token(token, requests)).await;
        let mut stream = stream.unwrap().into_inner();
        let response = stream.next().await.unwrap().unwrap();
        assert_eq!((response.watch_id, response.header), (-1, header(1)));
        assert!(response.created && response.canceled);
        assert_eq!(response.cancel_reason, expected);
        let next = stream.next().await.unwrap().unwrap();
        assert_eq!(next.canceled, token != user);
        assert!(stream.next().now_or_never().is_none());
    }
}

#[tokio::test]
async fn el_4_lock_and_election_methods_need_the_permissions_of_their_requests() {
    let (node, root, user) = node_with_auth().await;
    for id in [7, 8] {
        node.engine.grant(LeaseId::new(id), 60).unwrap();
    }
    let lock = |name: &'static str, lease| LockRequest {
        name: name.into(),
        lease,
    };
    let mut locks = LockClient::new(node.services.clone());
    let mut elections = ElectionClient::new(node.services.clone());
    let campaign = |name: &'static str| CampaignRequest {
        name: name.into(),
        lease: 8,
        value: "v".into(),
    };
    let leader = |name: &'static str| LeaderRequest { name: name.into() };
    let key = |key: &'static str| {
        Some(LeaderKey {
            key: key.into(),
            rev: 1,
            ..LeaderKey::default()
        })
    };
    let proclaim = |of| ProclaimRequest {
        leader: key(of),
        value: "v".into(),
    };
    let resign = |of| ResignRequest { leader: key(of) };
    let unlock = |key: &'static str| UnlockRequest { key: key.into() };
    for (token, text) in [
        (NO_TOKEN, "etcdserver: user name is empty"),
        ("x.1", "etcdserver: invalid auth token"),
        (&user, "etcdserver: permission denied"),
    ] {
        let expected = (Code::Unknown, text);
        for name in ["x", "read", "write"] {
            assert_error(call!(locks, lock, token, lock(name, 7)), expected);
            assert_error(call!(locks, lock, token, lock(name, 0)), expected);
            assert_error(call!(elections, campaign, token, campaign(name)), expected);
        }
        assert_error(call!(locks, unlock, token, unlock("x/7")), expected);
        assert_error(call!(elections, leader, token, leader("x")), expected);
        assert_error(call!(elections, observe, token, leader("x")), expected);
        assert_error(call!(elections, proclaim, token, proclaim("x/7")), expected);
        assert_error(call!(elections, resign, token, resign("x/7")), expected);
    }
    assert_eq!((node.revision(), node.engine.leases().len()), (1, 2));
    for token in [&user, &root] {
        for lease in [7, 0] {
            let response = call!(locks, lock, token, lock("both", lease)).unwrap();
            let request = UnlockRequest { key: response.key };
            call!(locks, unlock, token, request).unwrap();
        }
        let response = call!(elections, campaign, token, campaign("both")).unwrap();
        call!(elections, leader, token, leader("both")).unwrap();
        let request = ResignRequest {
            leader: response.leader,
        };
        call!(elections, resign, token, request).unwrap();
    }
}
