//! Roles.

use revstore_proto::authpb::permission::Type;
use revstore_proto::etcdserverpb::{
    AuthRoleDeleteRequest, AuthRoleGetRequest, AuthRoleRevokePermissionRequest,
};
use tonic::{Code, Response};

use super::{
    INVALID_MANAGEMENT, NO_TOKEN, ROLE_NOT_FOUND, add_role, auth, grant_permission, node,
    permission, status, with_token,
};
use crate::support::{TOO_LARGE, assert_error};

/// The errors of section J for roles that no other test covers.
#[tokio::test]
async fn section_j_role_requests_report_the_errors_of_etcd() {
    let node = node();
    add_role(&node, NO_TOKEN, "r").await.unwrap();
    let exists = (
        Code::FailedPrecondition,
        "etcdserver: role name already exists",
    );
    assert_error(add_role(&node, NO_TOKEN, "r").await, exists);
    let empty = (Code::InvalidArgument, "etcdserver: role name is empty");
    assert_error(add_role(&node, NO_TOKEN, "").await, empty);
    let get = AuthRoleGetRequest { role: "x".into() };
    assert_error(call!(auth(&node), role_get, NO_TOKEN, get), ROLE_NOT_FOUND);
    let delete = AuthRoleDeleteRequest { role: "x".into() };
    assert_error(
        call!(auth(&node), role_delete, NO_TOKEN, delete),
        ROLE_NOT_FOUND,
    );
    let not_given = (Code::InvalidArgument, "etcdserver: permission not given");
    assert_error(
        grant_permission(&node, NO_TOKEN, "r", None).await,
        not_given,
    );
    let backwards = permission(Type::Read, "b", "a");
    let granted = grant_permission(&node, NO_TOKEN, "r", backwards).await;
    assert_error(granted, INVALID_MANAGEMENT);
    let revoke = AuthRoleRevokePermissionRequest {
        role: "r".into(),
        key: "k".into(),
        range_end: "".into(),
    };
    let not_granted = (
        Code::FailedPrecondition,
        "etcdserver: permission is not granted to the role",
    );
    let revoked = call!(auth(&node), role_revoke_permission, NO_TOKEN, revoke);
    assert_error(revoked, not_granted);
    assert_eq!(status(&node, NO_TOKEN).await.unwrap(), (false, 2));
}

#[tokio::test]
async fn li_1_role_requests_have_the_size_limit_of_proposals() {
    let node = node();
    let long = "x".repeat(1_600_000);
    assert_error(add_role(&node, NO_TOKEN, &long).await, TOO_LARGE);
    let granted = permission(Type::Read, "k", "");
    let granted = grant_permission(&node, NO_TOKEN, &long, granted).await;
    assert_error(granted, TOO_LARGE);
    let revoke = AuthRoleRevokePermissionRequest {
        role: long.clone(),
        ..AuthRoleRevokePermissionRequest::default()
    };
    let revoked = call!(auth(&node), role_revoke_permission, NO_TOKEN, revoke);
    assert_error(revoked, TOO_LARGE);
    let get = AuthRoleGetRequest { role: long.clone() };
    assert_error(call!(auth(&node), role_get, NO_TOKEN, get), TOO_LARGE);
    let delete = AuthRoleDeleteRequest { role: long };
    assert_error(call!(auth(&node), role_delete, NO_TOKEN, delete), TOO_LARGE);
    assert_eq!(status(&node, NO_TOKEN).await.unwrap(), (false, 1));
}
