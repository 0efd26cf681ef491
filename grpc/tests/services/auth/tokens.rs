//! Authentication with tokens (AU-4 to AU-6, AU-9, AU-13).

use std::time::Duration;

use revstore_grpc::AuthTokens;
use revstore_proto::etcdserverpb::{
    AuthUserChangePasswordRequest, AuthUserDeleteRequest, AuthenticateRequest, DefragmentRequest,
    HashKvRequest, HashRequest, MemberAddRequest, MemberListRequest, RangeRequest, SnapshotRequest,
};
use tonic::{Code, Request, Response};

use super::{
    AUTH_FAILED, DENIED, INVALID_TOKEN, NO_TOKEN, NOT_ENABLED, TTL, USER_EMPTY, add_role, add_user,
    auth, authenticate, disable, enable, grant_role, node, node_with, node_with_auth, read,
    revoke_role, with_token,
};
use crate::support::{EMPTY_KEY, assert_error, delete, get, op_get, put, txn_of};

#[tokio::test]
async fn au_4_the_token_is_read_from_token_or_authorization_metadata() {
    let (node, _, user) = node_with_auth().await;
    let with = |name: &'static str, value: &str| {
        let mut request = Request::new(get("read"));
        let value = value.parse().unwrap();
        request.metadata_mut().insert(name, value);
        request
    };
    for name in ["token", "authorization"] {
        node.kv().range(with(name, &user)).await.unwrap();
        let prefixed = node.kv().range(with(name, &format!("Bearer {user}"))).await;
        assert_error(prefixed, INVALID_TOKEN);
    }
    let mut both = with("token", &user);
    let other = "x".parse().unwrap();
    both.metadata_mut().insert("authorization", other);
    node.kv().range(both).await.unwrap();
}

#[tokio::test]
async fn au_5_requests_without_a_valid_token_are_rejected() {
    let (node, root, user) = node_with_auth().await;
    assert_error(read(&node, NO_TOKEN, "read").await, USER_EMPTY);
    assert_error(read(&node, "x.1", "read").await, INVALID_TOKEN);
    let list = MemberListRequest::default;
    assert_error(
        call!(node.cluster(), member_list, NO_TOKEN, list()),
        USER_EMPTY,
    );
    assert_error(
        call!(node.cluster(), member_list, "x.1", list()),
        INVALID_TOKEN,
    );
    for token in [&root, &user] {
        call!(node.cluster(), member_list, token, list()).unwrap();
    }
    // `Authenticate` needs no token and ignores an invalid one.
    let request = AuthenticateRequest {
        name: "u".into(),
        password: "u".into(),
    };
    call!(auth(&node), authenticate, "x.1", request).unwrap();
}

/// As in etcd 3.5.16: validation comes before authentication.
#[tokio::test]
async fn au_5_invalid_requests_are_rejected_before_authentication() {
    let (node, _, _) = node_with_auth().await;
    for token in [NO_TOKEN, "x.1"] {
        assert_error(read(&node, token, "").await, EMPTY_KEY);
        assert_error(call!(node.kv(), put, token, put("", "v")), EMPTY_KEY);
        assert_error(
            call!(node.kv(), delete_range, token, delete("", "")),
            EMPTY_KEY,
        );
        let txn = txn_of(vec![op_get(get(""))]);
        assert_error(call!(node.kv(), txn, token, txn), EMPTY_KEY);
        let bad_urls = (
            Code::InvalidArgument,
            "etcdserver: given member URLs are invalid",
        );
        let add = MemberAddRequest::default();
        assert_error(call!(node.cluster(), member_add, token, add), bad_urls);
    }
    // An empty transaction needs no token, but an invalid token is rejected.
    call!(node.kv(), txn, NO_TOKEN, txn_of(Vec::new())).unwrap();
    assert_error(
        call!(node.kv(), txn, "x.1", txn_of(Vec::new())),
        INVALID_TOKEN,
    );
}

#[tokio::test]
async fn au_6_some_maintenance_methods_report_auth_errors_as_unknown() {
    let (node, root, user) = node_with_auth().await;
    for (token, text) in [
        (NO_TOKEN, "auth: user name is empty"),
        ("x.1", "auth: invalid auth token"),
        (&user, "auth: permission denied"),
    ] {
        let expected = (Code::Unknown, text);
        let mut client = node.maintenance();
        assert_error(call!(client, hash, token, HashRequest {}), expected);
        assert_error(
            call!(client, hash_kv, token, HashKvRequest::default()),
            expected,
        );
        assert_error(
            call!(client, defragment, token, DefragmentRequest {}),
            expected,
        );
        assert_error(call!(client, snapshot, token, SnapshotRequest {}), expected);
    }
    call!(node.maintenance(), hash, &root, HashRequest {}).unwrap();
    call!(node.maintenance(), hash_kv, &root, HashKvRequest::default()).unwrap();
    call!(node.maintenance(), defragment, &root, DefragmentRequest {}).unwrap();
}

#[tokio::test]
async fn au_9_password_change_and_user_deletion_invalidate_tokens() {
    let (node, root, user) = node_with_auth().await;
    add_user(&node, &root, "v", "v").await.unwrap();
    let other = authenticate(&node, "v", "v").await.unwrap();
    add_role(&node, &root, "s").await.unwrap();
    revoke_role(&node, &root, "u", "r").await.unwrap();
    assert_error(read(&node, &user, "read").await, DENIED);
    grant_role(&node, &root, "u", "r").await.unwrap();
    read(&node, &user, "read").await.unwrap();
    let change = AuthUserChangePasswordRequest {
        name: "u".into(),
        password: "new".into(),
        ..AuthUserChangePasswordRequest::default()
    };
    call!(auth(&node), user_change_password, &root, change).unwrap();
    assert_error(read(&node, &user, "read").await, INVALID_TOKEN);
    assert_error(read(&node, &other, "read").await, DENIED);
    assert_error(authenticate(&node, "u", "u").await, AUTH_FAILED);
    let user = authenticate(&node, "u", "new").await.unwrap();
    read(&node, &user, "read").await.unwrap();
    let delete = AuthUserDeleteRequest { name: "u".into() };
    call!(auth(&node), user_delete, &root, delete).unwrap();
    assert_error(read(&node, &user, "read").await, INVALID_TOKEN);
}

#[tokio::test]
async fn au_13_a_simple_token_expires_after_its_ttl_without_use() {
    let (node, _, user) = node_with_auth().await;
    let (word, index) = user.split_once('.').unwrap();
    assert!(word.len() == 16 && index.parse::<u64>().is_ok(), "{user}");
    for _ in 0..3 {
        node.clock
            .advance(TTL.saturating_sub(Duration::from_millis(1)));
        read(&node, &user, "read").await.unwrap();
    }
    node.clock.advance(TTL);
    assert_error(read(&node, &user, "read").await, INVALID_TOKEN);
}

#[tokio::test]
async fn au_13_disabling_auth_invalidates_all_tokens() {
    let (node, root, _) = node_with_auth().await;
    disable(&node, &root).await.unwrap();
    // Tokens are not checked, so an invalid one is accepted.
    for token in [NO_TOKEN, "x.1", &root] {
        read(&node, token, "x").await.unwrap();
    }
    enable(&node, NO_TOKEN).await.unwrap();
    assert_error(read(&node, &root, "x").await, INVALID_TOKEN);
}

/// The expected results were recorded with etcd 3.5.16.
#[tokio::test]
async fn au_2_au_3_li_1_only_successful_authentication_is_proposed() {
    let node = node();
    let index = || node.services.raft_index();
    let start = index();
    assert_error(authenticate(&node, "u", "p").await, NOT_ENABLED);
    let long = "x".repeat(1_600_000);
    assert_error(authenticate(&node, &long, "p").await, NOT_ENABLED);
    assert_eq!(index(), start);

    let (node, _, _) = node_with_auth().await;
    let index = || node.services.raft_index();
    let start = index();
    assert_error(authenticate(&node, "u", "x").await, AUTH_FAILED);
    assert_error(authenticate(&node, &long, "p").await, AUTH_FAILED);
    assert_eq!(index(), start);
    // The token contains the raft index before the proposal of the authentication.
    let token = authenticate(&node, "u", "u").await.unwrap();
    assert!(token.ends_with(&format!(".{start}")), "{token} at {start}");
    assert_eq!(index(), start + 1);
}

/// As in etcd 3.5.16 with `--auth-token=`.
#[tokio::test]
async fn au_13_authentication_fails_when_tokens_are_disabled() {
    let node = node_with(AuthTokens::Disabled);
    add_user(&node, NO_TOKEN, "root", "p").await.unwrap();
    grant_role(&node, NO_TOKEN, "root", "root").await.unwrap();
    enable(&node, NO_TOKEN).await.unwrap();
    assert_error(authenticate(&node, "root", "p").await, AUTH_FAILED);
    assert_error(read(&node, NO_TOKEN, "x").await, USER_EMPTY);
    assert_error(read(&node, "x.1", "x").await, INVALID_TOKEN);
}

#[tokio::test]
async fn requests_are_authorized_only_while_auth_is_enabled() {
    let (node, root, _) = node_with_auth().await;
    assert_error(read(&node, NO_TOKEN, "x").await, USER_EMPTY);
    disable(&node, &root).await.unwrap();
    let everything = RangeRequest {
        key: "\0".into(),
        range_end: "\0".into(),
        ..RangeRequest::default()
    };
    node.range(everything).await.unwrap();
}
