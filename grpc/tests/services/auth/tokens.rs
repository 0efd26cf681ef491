//! Tokens: who asks (AU-4 to AU-6, AU-9, AU-13).

use std::time::Duration;

use revstore_grpc::AuthTokens;
use revstore_proto::etcdserverpb::{
    AuthUserChangePasswordRequest, AuthUserDeleteRequest, AuthenticateRequest, DefragmentRequest,
    HashKvRequest, HashRequest, MemberAddRequest, MemberListRequest, RangeRequest, SnapshotRequest,
};
use tonic::{Code, Request, Response};

use super::{
    AUTH_FAILED, BAD_TOKEN, DENIED, NONE, NOT_ENABLED, TTL, USER_EMPTY, add_role, add_user, auth,
    disable, enable, enabled, grant_role, log_in, node, node_with, read, revoke_role, with_token,
};
use crate::support::{EMPTY_KEY, check_refused, delete, get, op_get, put, txn_of};

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

/// All of this was seen on etcd 3.5.16.
#[tokio::test]
async fn au_2_au_3_li_1_only_good_logins_are_proposed() {
    let node = node();
    let index = || node.services.raft_index();
    let start = index();
    check_refused(log_in(&node, "u", "p").await, NOT_ENABLED);
    let long = "x".repeat(1_600_000);
    check_refused(log_in(&node, &long, "p").await, NOT_ENABLED);
    assert_eq!(index(), start);

    let (node, _, _) = enabled().await;
    let index = || node.services.raft_index();
    let start = index();
    check_refused(log_in(&node, "u", "x").await, AUTH_FAILED);
    check_refused(log_in(&node, &long, "p").await, AUTH_FAILED);
    assert_eq!(index(), start);
    // The token was made before the login was agreed on.
    let token = log_in(&node, "u", "u").await.unwrap();
    assert!(token.ends_with(&format!(".{start}")), "{token} at {start}");
    assert_eq!(index(), start + 1);
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
