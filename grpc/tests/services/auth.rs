//! Auth: AU-1 to AU-13, WA-38, WA-60, and what section J says of it.

use std::time::Duration;

use futures_util::FutureExt;
use revstore_engine::LeaseId;
use revstore_grpc::{AuthOptions, AuthTokens, Services};
use revstore_proto::authpb::permission::Type;
use revstore_proto::authpb::{Permission, UserAddOptions};
use revstore_proto::etcdserverpb::auth_client::AuthClient;
use revstore_proto::etcdserverpb::watch_client::WatchClient;
use revstore_proto::etcdserverpb::watch_request::RequestUnion;
use revstore_proto::etcdserverpb::{
    AlarmRequest, AuthDisableRequest, AuthEnableRequest, AuthRoleAddRequest, AuthRoleDeleteRequest,
    AuthRoleGetRequest, AuthRoleGrantPermissionRequest, AuthRoleListRequest,
    AuthRoleRevokePermissionRequest, AuthStatusRequest, AuthUserAddRequest,
    AuthUserChangePasswordRequest, AuthUserDeleteRequest, AuthUserGetRequest,
    AuthUserGrantRoleRequest, AuthUserListRequest, AuthUserRevokeRoleRequest, AuthenticateRequest,
    CompactionRequest, Compare, DefragmentRequest, DeleteRangeRequest, DowngradeRequest,
    HashKvRequest, HashRequest, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseLeasesRequest,
    LeaseRevokeRequest, LeaseTimeToLiveRequest, MemberAddRequest, MemberListRequest,
    MemberPromoteRequest, MemberRemoveRequest, MemberUpdateRequest, MoveLeaderRequest, PutRequest,
    RangeRequest, RequestOp, SnapshotRequest, StatusRequest, TxnRequest, WatchRequest,
};
use revstore_proto::v3electionpb::election_client::ElectionClient;
use revstore_proto::v3electionpb::{
    CampaignRequest, LeaderKey, LeaderRequest, ProclaimRequest, ResignRequest,
};
use revstore_proto::v3lockpb::lock_client::LockClient;
use revstore_proto::v3lockpb::{LockRequest, UnlockRequest};
use tokio_stream::StreamExt;
use tonic::{Code, Request, Response, Status};

use crate::support::{
    EMPTY_KEY, LEASE_NOT_FOUND, Node, Refusal, check_refused, delete, get, header, op_delete,
    op_get, op_put, op_txn, put, txn_of, watch_of, within,
};

const USER_EMPTY: Refusal = (Code::InvalidArgument, "etcdserver: user name is empty");
const BAD_TOKEN: Refusal = (Code::Unauthenticated, "etcdserver: invalid auth token");
const DENIED: Refusal = (Code::PermissionDenied, "etcdserver: permission denied");
const NOT_ENABLED: Refusal = (
    Code::FailedPrecondition,
    "etcdserver: authentication is not enabled",
);
const AUTH_FAILED: Refusal = (
    Code::InvalidArgument,
    "etcdserver: authentication failed, invalid user ID or password",
);
const BAD_MANAGEMENT: Refusal = (Code::InvalidArgument, "etcdserver: invalid auth management");
const USER_NOT_FOUND: Refusal = (Code::FailedPrecondition, "etcdserver: user name not found");
const ROLE_NOT_FOUND: Refusal = (Code::FailedPrecondition, "etcdserver: role name not found");

const TTL: Duration = Duration::from_secs(300);

/// Sends a request with a token, if there is one.
macro_rules! call {
    ($client:expr, $method:ident, $token:expr, $request:expr) => {
        $client
            .$method(with_token($token, $request))
            .await
            .map(Response::into_inner)
    };
}

fn with_token<T>(token: &str, request: T) -> Request<T> {
    let mut request = Request::new(request);
    if !token.is_empty() {
        let metadata = request.metadata_mut();
        metadata.insert("token", token.parse().unwrap());
    }
    request
}

/// No token.
const NONE: &str = "";

fn node() -> Node {
    node_with(AuthTokens::Simple { ttl: TTL })
}

fn node_with(tokens: AuthTokens) -> Node {
    Node::with(|builder| {
        builder.auth(AuthOptions {
            tokens,
            bcrypt_cost: 4,
        })
    })
}

fn auth(node: &Node) -> AuthClient<Services> {
    AuthClient::new(node.services.clone())
}

async fn add_user(node: &Node, token: &str, name: &str, password: &str) -> Result<(), Status> {
    let request = AuthUserAddRequest {
        name: name.into(),
        password: password.into(),
        ..AuthUserAddRequest::default()
    };
    call!(auth(node), user_add, token, request).map(drop)
}

async fn add_role(node: &Node, token: &str, name: &str) -> Result<(), Status> {
    let request = AuthRoleAddRequest { name: name.into() };
    call!(auth(node), role_add, token, request).map(drop)
}

async fn grant_role(node: &Node, token: &str, user: &str, role: &str) -> Result<(), Status> {
    let request = AuthUserGrantRoleRequest {
        user: user.into(),
        role: role.into(),
    };
    call!(auth(node), user_grant_role, token, request).map(drop)
}

async fn revoke_role(node: &Node, token: &str, name: &str, role: &str) -> Result<(), Status> {
    let request = AuthUserRevokeRoleRequest {
        name: name.into(),
        role: role.into(),
    };
    call!(auth(node), user_revoke_role, token, request).map(drop)
}

async fn grant_permission(
    node: &Node,
    token: &str,
    role: &str,
    permission: impl Into<Option<Permission>>,
) -> Result<(), Status> {
    let request = AuthRoleGrantPermissionRequest {
        name: role.into(),
        perm: permission.into(),
    };
    call!(auth(node), role_grant_permission, token, request).map(drop)
}

fn permission(kind: Type, key: &'static str, range_end: &'static str) -> Permission {
    Permission {
        perm_type: kind.into(),
        key: key.into(),
        range_end: range_end.into(),
    }
}

async fn enable(node: &Node, token: &str) -> Result<(), Status> {
    call!(auth(node), auth_enable, token, AuthEnableRequest {}).map(drop)
}

async fn disable(node: &Node, token: &str) -> Result<(), Status> {
    call!(auth(node), auth_disable, token, AuthDisableRequest {}).map(drop)
}

async fn log_in(node: &Node, name: &str, password: &str) -> Result<String, Status> {
    let request = AuthenticateRequest {
        name: name.into(),
        password: password.into(),
    };
    Ok(call!(auth(node), authenticate, NONE, request)?.token)
}

/// Whether auth is on, and its revision.
async fn status(node: &Node, token: &str) -> Result<(bool, u64), Status> {
    let status = call!(auth(node), auth_status, token, AuthStatusRequest {})?;
    assert_eq!(status.header, header(node.revision()));
    Ok((status.enabled, status.auth_revision))
}

async fn read(node: &Node, token: &str, key: &'static str) -> Result<(), Status> {
    call!(node.kv(), range, token, get(key)).map(drop)
}

/// A node where auth is on, with the tokens of `root` and of `u`. Role `r` of the latter may read
/// `read` and below, write `write` and below, and do both in `both` and below.
async fn enabled() -> (Node, String, String) {
    let node = node();
    for (user, role) in [("root", "root"), ("u", "r")] {
        if role != "root" {
            add_role(&node, NONE, role).await.unwrap();
        }
        add_user(&node, NONE, user, user).await.unwrap();
        grant_role(&node, NONE, user, role).await.unwrap();
    }
    for granted in [
        permission(Type::Read, "read", "reae"),
        permission(Type::Write, "write", "writf"),
        permission(Type::Readwrite, "both", "boti"),
    ] {
        grant_permission(&node, NONE, "r", granted).await.unwrap();
    }
    enable(&node, NONE).await.unwrap();
    let root = log_in(&node, "root", "root").await.unwrap();
    let user = log_in(&node, "u", "u").await.unwrap();
    (node, root, user)
}

#[tokio::test]
async fn au_1_au_2_root_comes_first() {
    let node = node();
    let no_root = (
        Code::FailedPrecondition,
        "etcdserver: root user does not exist",
    );
    check_refused(enable(&node, NONE).await, no_root);
    check_refused(log_in(&node, "root", "p").await, NOT_ENABLED);
    add_user(&node, NONE, "root", "p").await.unwrap();
    let no_role = (
        Code::FailedPrecondition,
        "etcdserver: root user does not have root role",
    );
    check_refused(enable(&node, NONE).await, no_role);
    grant_role(&node, NONE, "root", "root").await.unwrap();
    enable(&node, NONE).await.unwrap();
    let root = log_in(&node, "root", "p").await.unwrap();
    enable(&node, &root).await.unwrap();
    check_refused(enable(&node, NONE).await, USER_EMPTY);
}

#[tokio::test]
async fn au_3_names_and_passwords_must_fit() {
    let (node, root, _) = enabled().await;
    let no_password = AuthUserAddRequest {
        name: "n".into(),
        password: "p".into(),
        options: Some(UserAddOptions { no_password: true }),
        ..AuthUserAddRequest::default()
    };
    call!(auth(&node), user_add, &root, no_password).unwrap();
    add_user(&node, &root, "e", "").await.unwrap();
    for (name, password) in [("u", "x"), ("u", ""), ("x", "u"), ("", ""), ("", "u")] {
        check_refused(log_in(&node, name, password).await, AUTH_FAILED);
    }
    for password in ["p", ""] {
        let refused = (
            Code::Unknown,
            "auth: authentication failed, password was given for no password user",
        );
        check_refused(log_in(&node, "n", password).await, refused);
    }
    // As etcd 3.5.16 has it, an empty password is one.
    log_in(&node, "e", "").await.unwrap();
    let too_long = (Code::Unknown, "bcrypt: password length exceeds 72 bytes");
    check_refused(add_user(&node, &root, "l", &"x".repeat(73)).await, too_long);
}

#[tokio::test]
async fn au_4_a_token_comes_in_one_of_two_places() {
    let (node, _, user) = enabled().await;
    let with = |name: &'static str, value: &str| {
        let mut request = Request::new(get("read"));
        let value = value.parse().unwrap();
        request.metadata_mut().insert(name, value);
        request
    };
    for name in ["token", "authorization"] {
        node.kv().range(with(name, &user)).await.unwrap();
        let prefixed = node.kv().range(with(name, &format!("Bearer {user}"))).await;
        check_refused(prefixed, BAD_TOKEN);
    }
    let mut both = with("token", &user);
    let other = "x".parse().unwrap();
    both.metadata_mut().insert("authorization", other);
    node.kv().range(both).await.unwrap();
}

#[tokio::test]
async fn au_5_without_a_good_token_there_is_nothing() {
    let (node, root, user) = enabled().await;
    check_refused(read(&node, NONE, "read").await, USER_EMPTY);
    check_refused(read(&node, "x.1", "read").await, BAD_TOKEN);
    let list = MemberListRequest::default;
    check_refused(call!(node.cluster(), member_list, NONE, list()), USER_EMPTY);
    check_refused(call!(node.cluster(), member_list, "x.1", list()), BAD_TOKEN);
    for token in [&root, &user] {
        call!(node.cluster(), member_list, token, list()).unwrap();
    }
    // Logging in takes none, and minds no bad one.
    let request = AuthenticateRequest {
        name: "u".into(),
        password: "u".into(),
    };
    call!(auth(&node), authenticate, "x.1", request).unwrap();
}

/// As etcd 3.5.16 has it: what makes no sense is told so whoever sends it.
#[tokio::test]
async fn au_5_requests_that_make_no_sense_are_told_so_first() {
    let (node, _, _) = enabled().await;
    for token in [NONE, "x.1"] {
        check_refused(read(&node, token, "").await, EMPTY_KEY);
        check_refused(call!(node.kv(), put, token, put("", "v")), EMPTY_KEY);
        check_refused(
            call!(node.kv(), delete_range, token, delete("", "")),
            EMPTY_KEY,
        );
        let txn = txn_of(vec![op_get(get(""))]);
        check_refused(call!(node.kv(), txn, token, txn), EMPTY_KEY);
        let bad_urls = (
            Code::InvalidArgument,
            "etcdserver: given member URLs are invalid",
        );
        let add = MemberAddRequest::default();
        check_refused(call!(node.cluster(), member_add, token, add), bad_urls);
    }
    // A transaction that does nothing needs nobody to send it, but no bad token.
    call!(node.kv(), txn, NONE, txn_of(Vec::new())).unwrap();
    check_refused(call!(node.kv(), txn, "x.1", txn_of(Vec::new())), BAD_TOKEN);
}

#[tokio::test]
async fn au_6_some_methods_use_words_of_their_own() {
    let (node, root, user) = enabled().await;
    for (token, text) in [
        (NONE, "auth: user name is empty"),
        ("x.1", "auth: invalid auth token"),
        (&user, "auth: permission denied"),
    ] {
        let expected = (Code::Unknown, text);
        let mut client = node.maintenance();
        check_refused(call!(client, hash, token, HashRequest {}), expected);
        check_refused(
            call!(client, hash_kv, token, HashKvRequest::default()),
            expected,
        );
        check_refused(
            call!(client, defragment, token, DefragmentRequest {}),
            expected,
        );
        check_refused(call!(client, snapshot, token, SnapshotRequest {}), expected);
    }
    call!(node.maintenance(), hash, &root, HashRequest {}).unwrap();
    call!(node.maintenance(), hash_kv, &root, HashKvRequest::default()).unwrap();
    call!(node.maintenance(), defragment, &root, DefragmentRequest {}).unwrap();
}

#[tokio::test]
async fn au_7_reads_and_writes_need_permission_for_every_key() {
    let (node, root, user) = enabled().await;
    let check = async |token: &str, request: RequestOp, allowed: bool| {
        use revstore_proto::etcdserverpb::request_op::Request as Op;
        let shown = format!("{request:?}");
        let alone = match request.request.clone().unwrap() {
            Op::RequestRange(request) => call!(node.kv(), range, token, request).map(drop),
            Op::RequestPut(request) => call!(node.kv(), put, token, request).map(drop),
            Op::RequestDeleteRange(request) => {
                call!(node.kv(), delete_range, token, request).map(drop)
            }
            Op::RequestTxn(request) => call!(node.kv(), txn, token, request).map(drop),
        };
        // The same holds on both branches of a transaction, and at any depth.
        let failure = TxnRequest {
            failure: vec![request.clone()],
            ..TxnRequest::default()
        };
        let nested = txn_of(vec![op_txn(failure.clone())]);
        let mut outcomes = vec![alone];
        for txn in [txn_of(vec![request]), failure, nested] {
            outcomes.push(call!(node.kv(), txn, token, txn).map(drop));
        }
        for outcome in outcomes {
            if allowed {
                assert!(outcome.is_ok(), "{shown}: {outcome:?}");
            } else {
                check_refused(outcome, DENIED);
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
    check_refused(call!(node.kv(), range_stream, &user, get("x")), DENIED);
}

#[tokio::test]
async fn au_7_a_lease_is_as_protected_as_the_keys_on_it() {
    let (node, root, user) = enabled().await;
    let grant = |id| LeaseGrantRequest { id, ttl: 60 };
    check_refused(call!(node.lease(), lease_grant, NONE, grant(7)), USER_EMPTY);
    check_refused(call!(node.lease(), lease_grant, "x.1", grant(7)), BAD_TOKEN);
    for id in [7, 8, 9] {
        call!(node.lease(), lease_grant, &user, grant(id)).unwrap();
    }
    let put_on = |key: &'static str, lease| PutRequest {
        lease,
        ..put(key, "v")
    };
    call!(node.kv(), put, &root, put_on("secret", 7)).unwrap();
    call!(node.kv(), put, &user, put_on("both", 8)).unwrap();

    // Attaching: alone and in a transaction.
    check_refused(call!(node.kv(), put, &user, put_on("write", 7)), DENIED);
    let attach = txn_of(vec![op_put(put_on("write", 7))]);
    check_refused(call!(node.kv(), txn, &user, attach), DENIED);
    call!(node.kv(), put, &user, put_on("write", 8)).unwrap();
    let unknown = call!(node.kv(), put, &user, put_on("write", 99));
    check_refused(unknown, LEASE_NOT_FOUND);

    // Looking: who may not read `secret` is not told of it, nor of `write`.
    let look = |id, keys| LeaseTimeToLiveRequest { id, keys };
    for (id, keys, expected) in [
        (7, false, Ok(())),
        (7, true, Err(DENIED)),
        (8, true, Err(DENIED)),
        (9, true, Ok(())),
        (99, true, Ok(())),
    ] {
        let told = call!(node.lease(), lease_time_to_live, &user, look(id, keys));
        match expected {
            Ok(()) => drop(told.unwrap()),
            Err(refusal) => check_refused(told, refusal),
        }
    }
    let unnamed = call!(node.lease(), lease_time_to_live, NONE, look(7, false));
    check_refused(unnamed, USER_EMPTY);
    let list = || LeaseLeasesRequest {};
    check_refused(call!(node.lease(), lease_leases, NONE, list()), USER_EMPTY);
    check_refused(call!(node.lease(), lease_leases, &user, list()), DENIED);
    let all = call!(node.lease(), lease_leases, &root, list()).unwrap();
    assert_eq!(all.leases.len(), 3);

    // Ending.
    let revoke = |id| LeaseRevokeRequest { id };
    check_refused(
        call!(node.lease(), lease_revoke, NONE, revoke(7)),
        USER_EMPTY,
    );
    check_refused(call!(node.lease(), lease_revoke, &user, revoke(7)), DENIED);
    check_refused(
        call!(node.lease(), lease_revoke, &user, revoke(99)),
        LEASE_NOT_FOUND,
    );
    call!(node.lease(), lease_revoke, &user, revoke(8)).unwrap();
    call!(node.lease(), lease_revoke, &root, revoke(7)).unwrap();
    call!(node.lease(), lease_leases, &user, list()).unwrap();
}

#[tokio::test]
async fn au_7_renewals_are_checked_one_by_one() {
    let (node, _, user) = enabled().await;
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
        let replies = node.lease().lease_keep_alive(requests).await.unwrap();
        let replies = replies.into_inner().collect::<Vec<_>>().await;
        let ttls = replies.into_iter().map(|reply| Ok(reply?.ttl));
        ttls.collect::<Vec<Result<i64, Status>>>()
    };
    let mut replies = renew(&user, &[7, 99, 8, 7]).await.into_iter();
    assert_eq!(replies.next().unwrap().unwrap(), 60);
    assert_eq!(replies.next().unwrap().unwrap(), 0);
    check_refused(replies.next().unwrap(), DENIED);
    assert!(replies.next().is_none(), "a refusal ends the stream");
    for (token, expected) in [(NONE, USER_EMPTY), ("x.1", BAD_TOKEN)] {
        check_refused(renew(token, &[7]).await.remove(0), expected);
    }
}

#[tokio::test]
async fn au_8_administration_is_for_administrators() {
    let (node, root, user) = enabled().await;
    macro_rules! check_admin_only {
        ($($client:ident.$method:ident($request:expr);)*) => {$(
            check_refused(call!($client(&node), $method, NONE, $request), USER_EMPTY);
            check_refused(call!($client(&node), $method, "x.1", $request), BAD_TOKEN);
            check_refused(call!($client(&node), $method, &user, $request), DENIED);
        )*};
    }
    let maintenance = |node: &Node| node.maintenance();
    let cluster = |node: &Node| node.cluster();
    let kv = |node: &Node| node.kv();
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
    // Any user may look at alarms, at itself and at its roles.
    call!(node.maintenance(), alarm, &user, alarm(0)).unwrap();
    check_refused(call!(node.maintenance(), alarm, NONE, alarm(0)), USER_EMPTY);
    let itself = AuthUserGetRequest { name: "u".into() };
    let told = call!(auth(&node), user_get, &user, itself).unwrap();
    assert_eq!((told.roles, told.header), (vec!["r".into()], header(1)));
    let own_role = AuthRoleGetRequest { role: "r".into() };
    let told = call!(auth(&node), role_get, &user, own_role).unwrap();
    let starts: Vec<_> = told.perm.iter().map(|perm| &*perm.key).collect();
    assert_eq!(starts, [&b"both"[..], b"read", b"write"]);
}

#[tokio::test]
async fn au_9_tokens_survive_changes_but_not_that_of_the_password() {
    let (node, root, user) = enabled().await;
    add_user(&node, &root, "v", "v").await.unwrap();
    let other = log_in(&node, "v", "v").await.unwrap();
    add_role(&node, &root, "s").await.unwrap();
    revoke_role(&node, &root, "u", "r").await.unwrap();
    check_refused(read(&node, &user, "read").await, DENIED);
    grant_role(&node, &root, "u", "r").await.unwrap();
    read(&node, &user, "read").await.unwrap();
    let change = AuthUserChangePasswordRequest {
        name: "u".into(),
        password: "new".into(),
        ..AuthUserChangePasswordRequest::default()
    };
    call!(auth(&node), user_change_password, &root, change).unwrap();
    check_refused(read(&node, &user, "read").await, BAD_TOKEN);
    check_refused(read(&node, &other, "read").await, DENIED);
    check_refused(log_in(&node, "u", "u").await, AUTH_FAILED);
    let user = log_in(&node, "u", "new").await.unwrap();
    read(&node, &user, "read").await.unwrap();
    let delete = AuthUserDeleteRequest { name: "u".into() };
    call!(auth(&node), user_delete, &root, delete).unwrap();
    check_refused(read(&node, &user, "read").await, BAD_TOKEN);
}

#[tokio::test]
async fn au_10_what_auth_stands_on_stays_while_it_is_on() {
    let (node, root, _) = enabled().await;
    let delete_root = || AuthUserDeleteRequest {
        name: "root".into(),
    };
    let deleted = call!(auth(&node), user_delete, &root, delete_root());
    check_refused(deleted, BAD_MANAGEMENT);
    let revoked = revoke_role(&node, &root, "root", "root").await;
    check_refused(revoked, BAD_MANAGEMENT);
    let delete_role = AuthRoleDeleteRequest {
        role: "root".into(),
    };
    let deleted = call!(auth(&node), role_delete, &root, delete_role);
    check_refused(deleted, BAD_MANAGEMENT);
    disable(&node, &root).await.unwrap();
    call!(auth(&node), user_delete, NONE, delete_root()).unwrap();
}

#[tokio::test]
async fn au_11_au_12_changes_count_apart_from_the_keys() {
    let node = node();
    assert_eq!(status(&node, NONE).await.unwrap(), (false, 1));
    disable(&node, NONE).await.unwrap();
    assert_eq!(status(&node, NONE).await.unwrap(), (false, 1));
    for user in ["u", "root"] {
        add_user(&node, NONE, user, user).await.unwrap();
    }
    for (user, expected) in [("u", 4), ("u", 4), ("root", 5)] {
        grant_role(&node, NONE, user, "root").await.unwrap();
        assert_eq!(status(&node, NONE).await.unwrap(), (false, expected));
    }
    for role in ["s", "r"] {
        add_role(&node, NONE, role).await.unwrap();
    }
    let users = call!(auth(&node), user_list, NONE, AuthUserListRequest {}).unwrap();
    assert_eq!(
        (users.users, users.header),
        (vec!["root".into(), "u".into()], header(1))
    );
    let roles = call!(auth(&node), role_list, NONE, AuthRoleListRequest {}).unwrap();
    assert_eq!(roles.roles, ["r", "s"]);
    enable(&node, NONE).await.unwrap();
    let root = log_in(&node, "root", "root").await.unwrap();
    assert_eq!(status(&node, &root).await.unwrap(), (true, 7));
    disable(&node, &root).await.unwrap();
    assert_eq!(status(&node, NONE).await.unwrap(), (false, 8));
    assert_eq!(node.revision(), 1);
}

#[tokio::test]
async fn au_13_a_token_is_good_until_it_was_not_used_for_a_while() {
    let (node, _, user) = enabled().await;
    let (word, index) = user.split_once('.').unwrap();
    assert!(word.len() == 16 && index.parse::<u64>().is_ok(), "{user}");
    for _ in 0..3 {
        node.clock
            .advance(TTL.saturating_sub(Duration::from_millis(1)));
        read(&node, &user, "read").await.unwrap();
    }
    node.clock.advance(TTL);
    check_refused(read(&node, &user, "read").await, BAD_TOKEN);
}

#[tokio::test]
async fn au_13_disabling_logs_everybody_out() {
    let (node, root, _) = enabled().await;
    disable(&node, &root).await.unwrap();
    // Nobody is asked, so a bad token does not matter.
    for token in [NONE, "x.1", &root] {
        read(&node, token, "x").await.unwrap();
    }
    enable(&node, NONE).await.unwrap();
    check_refused(read(&node, &root, "x").await, BAD_TOKEN);
}

/// As etcd 3.5.16 has it with `--auth-token=`.
#[tokio::test]
async fn au_13_without_tokens_nobody_can_log_in() {
    let node = node_with(AuthTokens::Disabled);
    add_user(&node, NONE, "root", "p").await.unwrap();
    grant_role(&node, NONE, "root", "root").await.unwrap();
    enable(&node, NONE).await.unwrap();
    check_refused(log_in(&node, "root", "p").await, AUTH_FAILED);
    check_refused(read(&node, NONE, "x").await, USER_EMPTY);
    check_refused(read(&node, "x.1", "x").await, BAD_TOKEN);
}

/// What section J says of users and roles, and no other test provokes.
#[tokio::test]
async fn section_j_what_cannot_be_managed() {
    let node = node();
    add_user(&node, NONE, "u", "p").await.unwrap();
    add_role(&node, NONE, "r").await.unwrap();
    let exists = (
        Code::FailedPrecondition,
        "etcdserver: user name already exists",
    );
    check_refused(add_user(&node, NONE, "u", "p").await, exists);
    check_refused(add_user(&node, NONE, "", "p").await, USER_EMPTY);
    let exists = (
        Code::FailedPrecondition,
        "etcdserver: role name already exists",
    );
    check_refused(add_role(&node, NONE, "r").await, exists);
    let empty = (Code::InvalidArgument, "etcdserver: role name is empty");
    check_refused(add_role(&node, NONE, "").await, empty);
    let unknown_user = || AuthUserGetRequest { name: "x".into() };
    let got = call!(auth(&node), user_get, NONE, unknown_user());
    check_refused(got, USER_NOT_FOUND);
    let change = AuthUserChangePasswordRequest {
        name: "x".into(),
        ..AuthUserChangePasswordRequest::default()
    };
    let changed = call!(auth(&node), user_change_password, NONE, change);
    check_refused(changed, USER_NOT_FOUND);
    let delete = AuthUserDeleteRequest { name: "x".into() };
    check_refused(
        call!(auth(&node), user_delete, NONE, delete),
        USER_NOT_FOUND,
    );
    check_refused(grant_role(&node, NONE, "x", "y").await, USER_NOT_FOUND);
    check_refused(grant_role(&node, NONE, "u", "x").await, ROLE_NOT_FOUND);
    let not_granted = (
        Code::FailedPrecondition,
        "etcdserver: role is not granted to the user",
    );
    check_refused(revoke_role(&node, NONE, "u", "r").await, not_granted);
    let get = AuthRoleGetRequest { role: "x".into() };
    check_refused(call!(auth(&node), role_get, NONE, get), ROLE_NOT_FOUND);
    let delete = AuthRoleDeleteRequest { role: "x".into() };
    check_refused(
        call!(auth(&node), role_delete, NONE, delete),
        ROLE_NOT_FOUND,
    );
    let not_given = (Code::InvalidArgument, "etcdserver: permission not given");
    check_refused(grant_permission(&node, NONE, "r", None).await, not_given);
    let backwards = permission(Type::Read, "b", "a");
    let granted = grant_permission(&node, NONE, "r", backwards).await;
    check_refused(granted, BAD_MANAGEMENT);
    let revoke = AuthRoleRevokePermissionRequest {
        role: "r".into(),
        key: "k".into(),
        range_end: "".into(),
    };
    let not_granted = (
        Code::FailedPrecondition,
        "etcdserver: permission is not granted to the role",
    );
    let revoked = call!(auth(&node), role_revoke_permission, NONE, revoke);
    check_refused(revoked, not_granted);
    assert_eq!(status(&node, NONE).await.unwrap(), (false, 3));
}

#[tokio::test]
async fn wa_38_watches_go_on_when_auth_is_enabled() {
    let node = node();
    add_user(&node, NONE, "root", "root").await.unwrap();
    grant_role(&node, NONE, "root", "root").await.unwrap();
    let mut watch = node.watch().await;
    watch.create(watch_of("k", "")).await;
    enable(&node, NONE).await.unwrap();
    let refused = watch.create(watch_of("k", "")).await;
    assert!(refused.canceled);
    node.fill(["k"]);
    assert_eq!(watch.next().await.events.len(), 1);
}

#[tokio::test]
async fn wa_60_a_denied_watch_leaves_the_stream_alone() {
    let (node, _, user) = enabled().await;
    let create = |key, range_end| WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(watch_of(key, range_end))),
    };
    for (token, request, expected) in [
        (
            NONE,
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
            // WA-9: an empty key is the smallest one.
            create("", "reae"),
            "rpc error: code = PermissionDenied desc = etcdserver: permission denied",
        ),
        // What makes no sense comes second here.
        (
            NONE,
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
        let refused = stream.next().await.unwrap().unwrap();
        assert_eq!((refused.watch_id, refused.header), (-1, header(1)));
        assert!(refused.created && refused.canceled);
        assert_eq!(refused.cancel_reason, expected);
        let next = stream.next().await.unwrap().unwrap();
        assert_eq!(next.canceled, token != user);
        assert!(stream.next().now_or_never().is_none());
    }
}

#[tokio::test]
async fn el_4_locks_and_elections_ask_like_the_requests_they_are_made_of() {
    let (node, root, user) = enabled().await;
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
        (NONE, "etcdserver: user name is empty"),
        ("x.1", "etcdserver: invalid auth token"),
        (&user, "etcdserver: permission denied"),
    ] {
        let expected = (Code::Unknown, text);
        for name in ["x", "read", "write"] {
            check_refused(call!(locks, lock, token, lock(name, 7)), expected);
            check_refused(call!(locks, lock, token, lock(name, 0)), expected);
            check_refused(call!(elections, campaign, token, campaign(name)), expected);
        }
        check_refused(call!(locks, unlock, token, unlock("x/7")), expected);
        check_refused(call!(elections, leader, token, leader("x")), expected);
        check_refused(call!(elections, observe, token, leader("x")), expected);
        check_refused(call!(elections, proclaim, token, proclaim("x/7")), expected);
        check_refused(call!(elections, resign, token, resign("x/7")), expected);
    }
    assert_eq!((node.revision(), node.engine.leases().len()), (1, 2));
    for token in [&user, &root] {
        for lease in [7, 0] {
            let held = call!(locks, lock, token, lock("both", lease)).unwrap();
            let request = UnlockRequest { key: held.key };
            call!(locks, unlock, token, request).unwrap();
        }
        let won = call!(elections, campaign, token, campaign("both")).unwrap();
        call!(elections, leader, token, leader("both")).unwrap();
        let request = ResignRequest { leader: won.leader };
        call!(elections, resign, token, request).unwrap();
    }
}

#[tokio::test]
async fn requests_are_only_checked_while_auth_is_on() {
    let (node, root, _) = enabled().await;
    check_refused(read(&node, NONE, "x").await, USER_EMPTY);
    disable(&node, &root).await.unwrap();
    let everything = RangeRequest {
        key: "\0".into(),
        range_end: "\0".into(),
        ..RangeRequest::default()
    };
    node.range(everything).await.unwrap();
}
