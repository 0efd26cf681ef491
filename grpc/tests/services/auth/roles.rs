//! Roles: what users are given.

use revstore_proto::authpb::permission::Type;
use revstore_proto::etcdserverpb::{
    AuthRoleDeleteRequest, AuthRoleGetRequest, AuthRoleRevokePermissionRequest,
};
use tonic::{Code, Response};

use super::{
    BAD_MANAGEMENT, NONE, ROLE_NOT_FOUND, add_role, auth, grant_permission, node, permission,
    status, with_token,
};
use crate::support::{TOO_LARGE, check_refused};

/// What section J says of roles, and no other test provokes.
#[tokio::test]
async fn section_j_what_cannot_be_done_with_roles() {
    let node = node();
    add_role(&node, NONE, "r").await.unwrap();
    let exists = (
        Code::FailedPrecondition,
        "etcdserver: role name already exists",
    );
    check_refused(add_role(&node, NONE, "r").await, exists);
    let empty = (Code::InvalidArgument, "etcdserver: role name is empty");
    check_refused(add_role(&node, NONE, "").await, empty);
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
    assert_eq!(status(&node, NONE).await.unwrap(), (false, 2));
}

#[tokio::test]
async fn li_1_changes_of_roles_are_proposals_too() {
    let node = node();
    let long = "x".repeat(1_600_000);
    check_refused(add_role(&node, NONE, &long).await, TOO_LARGE);
    let granted = permission(Type::Read, "k", "");
    let granted = grant_permission(&node, NONE, &long, granted).await;
    check_refused(granted, TOO_LARGE);
    let revoke = AuthRoleRevokePermissionRequest {
        role: long.clone(),
        ..AuthRoleRevokePermissionRequest::default()
    };
    let revoked = call!(auth(&node), role_revoke_permission, NONE, revoke);
    check_refused(revoked, TOO_LARGE);
    let get = AuthRoleGetRequest { role: long.clone() };
    check_refused(call!(auth(&node), role_get, NONE, get), TOO_LARGE);
    let delete = AuthRoleDeleteRequest { role: long };
    check_refused(call!(auth(&node), role_delete, NONE, delete), TOO_LARGE);
    assert_eq!(status(&node, NONE).await.unwrap(), (false, 1));
}
