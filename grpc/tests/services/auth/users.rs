//! Users: who there is, and what keeps them (AU-1 to AU-3, AU-10 to AU-12).

use revstore_proto::authpb::UserAddOptions;
use revstore_proto::etcdserverpb::{
    AuthRoleDeleteRequest, AuthRoleListRequest, AuthUserAddRequest, AuthUserChangePasswordRequest,
    AuthUserDeleteRequest, AuthUserGetRequest, AuthUserListRequest,
};
use tonic::{Code, Response};

use super::{
    AUTH_FAILED, BAD_MANAGEMENT, NONE, NOT_ENABLED, ROLE_NOT_FOUND, USER_EMPTY, USER_NOT_FOUND,
    add_role, add_user, auth, disable, enable, enabled, grant_role, log_in, node, revoke_role,
    status, with_token,
};
use crate::support::{TOO_LARGE, check_refused, header};

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

/// What section J says of users, and no other test provokes.
#[tokio::test]
async fn section_j_what_cannot_be_done_with_users() {
    let node = node();
    add_user(&node, NONE, "u", "p").await.unwrap();
    add_role(&node, NONE, "r").await.unwrap();
    let exists = (
        Code::FailedPrecondition,
        "etcdserver: user name already exists",
    );
    check_refused(add_user(&node, NONE, "u", "p").await, exists);
    check_refused(add_user(&node, NONE, "", "p").await, USER_EMPTY);
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
    assert_eq!(status(&node, NONE).await.unwrap(), (false, 3));
}

#[tokio::test]
async fn li_1_changes_of_users_are_proposals_too() {
    let node = node();
    let long = "x".repeat(1_600_000);
    let add = add_user(&node, NONE, &long, "p").await;
    check_refused(add, TOO_LARGE);
    check_refused(add_user(&node, NONE, "u", &long).await, TOO_LARGE);
    check_refused(grant_role(&node, NONE, &long, "r").await, TOO_LARGE);
    check_refused(revoke_role(&node, NONE, "u", &long).await, TOO_LARGE);
    let get = AuthUserGetRequest { name: long.clone() };
    check_refused(call!(auth(&node), user_get, NONE, get), TOO_LARGE);
    let delete = AuthUserDeleteRequest { name: long.clone() };
    check_refused(call!(auth(&node), user_delete, NONE, delete), TOO_LARGE);
    let change = AuthUserChangePasswordRequest {
        name: long,
        ..AuthUserChangePasswordRequest::default()
    };
    let changed = call!(auth(&node), user_change_password, NONE, change);
    check_refused(changed, TOO_LARGE);
    assert_eq!(status(&node, NONE).await.unwrap(), (false, 1));
}
