//! Users, and enabling auth (AU-1 to AU-3, AU-10 to AU-12).

use revstore_proto::authpb::UserAddOptions;
use revstore_proto::etcdserverpb::{
    AuthRoleDeleteRequest, AuthRoleListRequest, AuthUserAddRequest, AuthUserChangePasswordRequest,
    AuthUserDeleteRequest, AuthUserGetRequest, AuthUserListRequest,
};
use tonic::{Code, Response};

use super::{
    AUTH_FAILED, INVALID_MANAGEMENT, NO_TOKEN, NOT_ENABLED, ROLE_NOT_FOUND, USER_EMPTY,
    USER_NOT_FOUND, add_role, add_user, auth, authenticate, disable, enable, grant_role, node,
    node_with_auth, revoke_role, status, with_token,
};
use crate::support::{TOO_LARGE, assert_error, header};

#[tokio::test]
async fn au_1_au_2_enabling_auth_needs_a_root_user_with_the_root_role() {
    let node = node();
    let no_root = (
        Code::FailedPrecondition,
        "etcdserver: root user does not exist",
    );
    assert_error(enable(&node, NO_TOKEN).await, no_root);
    assert_error(authenticate(&node, "root", "p").await, NOT_ENABLED);
    add_user(&node, NO_TOKEN, "root", "p").await.unwrap();
    let no_role = (
        Code::FailedPrecondition,
        "etcdserver: root user does not have root role",
    );
    assert_error(enable(&node, NO_TOKEN).await, no_role);
    grant_role(&node, NO_TOKEN, "root", "root").await.unwrap();
    enable(&node, NO_TOKEN).await.unwrap();
    let root = authenticate(&node, "root", "p").await.unwrap();
    enable(&node, &root).await.unwrap();
    assert_error(enable(&node, NO_TOKEN).await, USER_EMPTY);
}

#[tokio::test]
async fn au_3_authenticate_needs_the_password_of_the_user() {
    let (node, root, _) = node_with_auth().await;
    let no_password = AuthUserAddRequest {
        name: "n".into(),
        password: "p".into(),
        options: Some(UserAddOptions { no_password: true }),
        ..AuthUserAddRequest::default()
    };
    call!(auth(&node), user_add, &root, no_password).unwrap();
    add_user(&node, &root, "e", "").await.unwrap();
    for (name, password) in [("u", "x"), ("u", ""), ("x", "u"), ("", ""), ("", "u")] {
        assert_error(authenticate(&node, name, password).await, AUTH_FAILED);
    }
    for password in ["p", ""] {
        let no_password = (
            Code::Unknown,
            "auth: authentication failed, password was given for no password user",
        );
        assert_error(authenticate(&node, "n", password).await, no_password);
    }
    // As in etcd 3.5.16: an empty password is a valid password.
    authenticate(&node, "e", "").await.unwrap();
    let too_long = (Code::Unknown, "bcrypt: password length exceeds 72 bytes");
    assert_error(add_user(&node, &root, "l", &"x".repeat(73)).await, too_long);
}

#[tokio::test]
async fn au_10_root_user_and_root_role_cannot_be_removed_while_auth_is_enabled() {
    let (node, root, _) = node_with_auth().await;
    let delete_root = || AuthUserDeleteRequest {
        name: "root".into(),
    };
    let deleted = call!(auth(&node), user_delete, &root, delete_root());
    assert_error(deleted, INVALID_MANAGEMENT);
    let revoked = revoke_role(&node, &root, "root", "root").await;
    assert_error(revoked, INVALID_MANAGEMENT);
    let delete_role = AuthRoleDeleteRequest {
        role: "root".into(),
    };
    let deleted = call!(auth(&node), role_delete, &root, delete_role);
    assert_error(deleted, INVALID_MANAGEMENT);
    disable(&node, &root).await.unwrap();
    call!(auth(&node), user_delete, NO_TOKEN, delete_root()).unwrap();
}

#[tokio::test]
async fn au_11_au_12_changes_advance_the_auth_revision_and_not_the_store_revision() {
    let node = node();
    assert_eq!(status(&node, NO_TOKEN).await.unwrap(), (false, 1));
    disable(&node, NO_TOKEN).await.unwrap();
    assert_eq!(status(&node, NO_TOKEN).await.unwrap(), (false, 1));
    for user in ["u", "root"] {
        add_user(&node, NO_TOKEN, user, user).await.unwrap();
    }
    for (user, expected) in [("u", 4), ("u", 4), ("root", 5)] {
        grant_role(&node, NO_TOKEN, user, "root").await.unwrap();
        assert_eq!(status(&node, NO_TOKEN).await.unwrap(), (false, expected));
    }
    for role in ["s", "r"] {
        add_role(&node, NO_TOKEN, role).await.unwrap();
    }
    let users = call!(auth(&node), user_list, NO_TOKEN, AuthUserListRequest {}).unwrap();
    assert_eq!(
        (users.users, users.header),
        (vec!["root".into(), "u".into()], header(1))
    );
    let roles = call!(auth(&node), role_list, NO_TOKEN, AuthRoleListRequest {}).unwrap();
    assert_eq!(roles.roles, ["r", "s"]);
    enable(&node, NO_TOKEN).await.unwrap();
    let root = authenticate(&node, "root", "root").await.unwrap();
    assert_eq!(status(&node, &root).await.unwrap(), (true, 7));
    disable(&node, &root).await.unwrap();
    assert_eq!(status(&node, NO_TOKEN).await.unwrap(), (false, 8));
    assert_eq!(node.revision(), 1);
}

/// The errors of section J for users that no other test covers.
#[tokio::test]
async fn section_j_user_requests_report_the_errors_of_etcd() {
    let node = node();
    add_user(&node, NO_TOKEN, "u", "p").await.unwrap();
    add_role(&node, NO_TOKEN, "r").await.unwrap();
    let exists = (
        Code::FailedPrecondition,
        "etcdserver: user name already exists",
    );
    assert_error(add_user(&node, NO_TOKEN, "u", "p").await, exists);
    assert_error(add_user(&node, NO_TOKEN, "", "p").await, USER_EMPTY);
    let unknown_user = || AuthUserGetRequest { name: "x".into() };
    let got = call!(auth(&node), user_get, NO_TOKEN, unknown_user());
    assert_error(got, USER_NOT_FOUND);
    let change = AuthUserChangePasswordRequest {
        name: "x".into(),
        ..AuthUserChangePasswordRequest::default()
    };
    let changed = call!(auth(&node), user_change_password, NO_TOKEN, change);
    assert_error(changed, USER_NOT_FOUND);
    let delete = AuthUserDeleteRequest { name: "x".into() };
    assert_error(
        call!(auth(&node), user_delete, NO_TOKEN, delete),
        USER_NOT_FOUND,
    );
    assert_error(grant_role(&node, NO_TOKEN, "x", "y").await, USER_NOT_FOUND);
    assert_error(grant_role(&node, NO_TOKEN, "u", "x").await, ROLE_NOT_FOUND);
    let not_granted = (
        Code::FailedPrecondition,
        "etcdserver: role is not granted to the user",
    );
    assert_error(revoke_role(&node, NO_TOKEN, "u", "r").await, not_granted);
    assert_eq!(status(&node, NO_TOKEN).await.unwrap(), (false, 3));
}

#[tokio::test]
async fn li_1_user_requests_have_the_size_limit_of_proposals() {
    let node = node();
    let long = "x".repeat(1_600_000);
    let add = add_user(&node, NO_TOKEN, &long, "p").await;
    assert_error(add, TOO_LARGE);
    assert_error(add_user(&node, NO_TOKEN, "u", &long).await, TOO_LARGE);
    assert_error(grant_role(&node, NO_TOKEN, &long, "r").await, TOO_LARGE);
    assert_error(revoke_role(&node, NO_TOKEN, "u", &long).await, TOO_LARGE);
    let get = AuthUserGetRequest { name: long.clone() };
    assert_error(call!(auth(&node), user_get, NO_TOKEN, get), TOO_LARGE);
    let delete = AuthUserDeleteRequest { name: long.clone() };
    assert_error(call!(auth(&node), user_delete, NO_TOKEN, delete), TOO_LARGE);
    let change = AuthUserChangePasswordRequest {
        name: long,
        ..AuthUserChangePasswordRequest::default()
    };
    let changed = call!(auth(&node), user_change_password, NO_TOKEN, change);
    assert_error(changed, TOO_LARGE);
    assert_eq!(status(&node, NO_TOKEN).await.unwrap(), (false, 1));
}
