//! The Auth service and authorization: AU-1 to AU-16, WA-38, WA-60, and section J.

use std::time::Duration;

use revstore_grpc::{AuthOptions, AuthTokens, Services};
use revstore_proto::authpb::Permission;
use revstore_proto::authpb::permission::Type;
use revstore_proto::etcdserverpb::auth_client::AuthClient;
use revstore_proto::etcdserverpb::{
    AuthDisableRequest, AuthEnableRequest, AuthRoleAddRequest, AuthRoleGrantPermissionRequest,
    AuthStatusRequest, AuthUserAddRequest, AuthUserGrantRoleRequest, AuthUserRevokeRoleRequest,
    AuthenticateRequest,
};
use tonic::{Code, Request, Response, Status};

use crate::support::{ExpectedError, TestNode, get, header};

const USER_EMPTY: ExpectedError = (Code::InvalidArgument, "etcdserver: user name is empty");
const INVALID_TOKEN: ExpectedError = (Code::Unauthenticated, "etcdserver: invalid auth token");
const DENIED: ExpectedError = (Code::PermissionDenied, "etcdserver: permission denied");
const NOT_ENABLED: ExpectedError = (
    Code::FailedPrecondition,
    "etcdserver: authentication is not enabled",
);
const AUTH_FAILED: ExpectedError = (
    Code::InvalidArgument,
    "etcdserver: authentication failed, invalid user ID or password",
);
const INVALID_MANAGEMENT: ExpectedError =
    (Code::InvalidArgument, "etcdserver: invalid auth management");
const USER_NOT_FOUND: ExpectedError = (Code::FailedPrecondition, "etcdserver: user name not found");
const ROLE_NOT_FOUND: ExpectedError = (Code::FailedPrecondition, "etcdserver: role name not found");

const TTL: Duration = Duration::from_secs(300);

/// Sends a request with a token, or without one if it is [`NO_TOKEN`].
macro_rules! call {
    ($client:expr, $method:ident, $token:expr, $request:expr) => {
        $client
            .$method(with_token($token, $request))
            .await
            .map(Response::into_inner)
    };
}

// Declared after the macro that they use.
mod permissions;
mod roles;
mod state;
mod tokens;
mod users;

fn with_token<T>(token: &str, request: T) -> Request<T> {
    let mut request = Request::new(request);
    if !token.is_empty() {
        let metadata = request.metadata_mut();
        metadata.insert("token", token.parse().unwrap());
    }
    request
}

/// The token of a request without a token.
const NO_TOKEN: &str = "";

fn node() -> TestNode {
    node_with(AuthTokens::Simple { ttl: TTL })
}

fn node_with(tokens: AuthTokens) -> TestNode {
    TestNode::with(|builder| builder.auth(AuthOptions::default().tokens(tokens).bcrypt_cost(4)))
}

fn auth(node: &TestNode) -> AuthClient<Services> {
    AuthClient::new(node.services.clone())
}

async fn add_user(node: &TestNode, token: &str, name: &str, password: &str) -> Result<(), Status> {
    let request = AuthUserAddRequest {
        name: name.into(),
        password: password.into(),
        ..AuthUserAddRequest::default()
    };
    call!(auth(node), user_add, token, request).map(drop)
}

async fn add_role(node: &TestNode, token: &str, name: &str) -> Result<(), Status> {
    let request = AuthRoleAddRequest { name: name.into() };
    call!(auth(node), role_add, token, request).map(drop)
}

async fn grant_role(node: &TestNode, token: &str, user: &str, role: &str) -> Result<(), Status> {
    let request = AuthUserGrantRoleRequest {
        user: user.into(),
        role: role.into(),
    };
    call!(auth(node), user_grant_role, token, request).map(drop)
}

async fn revoke_role(node: &TestNode, token: &str, name: &str, role: &str) -> Result<(), Status> {
    let request = AuthUserRevokeRoleRequest {
        name: name.into(),
        role: role.into(),
    };
    call!(auth(node), user_revoke_role, token, request).map(drop)
}

async fn grant_permission(
    node: &TestNode,
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

async fn enable(node: &TestNode, token: &str) -> Result<(), Status> {
    call!(auth(node), auth_enable, token, AuthEnableRequest {}).map(drop)
}

async fn disable(node: &TestNode, token: &str) -> Result<(), Status> {
    call!(auth(node), auth_disable, token, AuthDisableRequest {}).map(drop)
}

async fn authenticate(node: &TestNode, name: &str, password: &str) -> Result<String, Status> {
    let request = AuthenticateRequest {
        name: name.into(),
        password: password.into(),
    };
    Ok(call!(auth(node), authenticate, NO_TOKEN, request)?.token)
}

/// Returns whether auth is enabled, and the auth revision.
async fn status(node: &TestNode, token: &str) -> Result<(bool, u64), Status> {
    let status = call!(auth(node), auth_status, token, AuthStatusRequest {})?;
    assert_eq!(status.header, header(node.revision()));
    Ok((status.enabled, status.auth_revision))
}

async fn read(node: &TestNode, token: &str, key: &'static str) -> Result<(), Status> {
    call!(node.kv(), range, token, get(key)).map(drop)
}

/// Returns a node with auth enabled, and the tokens of the users `root` and `u`. The role `r` of
/// `u` grants read permission for the prefix `read`, write permission for `write`, and both for
/// `both`.
async fn node_with_auth() -> (TestNode, String, String) {
    let node = node();
    for (user, role) in [("root", "root"), ("u", "r")] {
        if role != "root" {
            add_role(&node, NO_TOKEN, role).await.unwrap();
        }
        add_user(&node, NO_TOKEN, user, user).await.unwrap();
        grant_role(&node, NO_TOKEN, user, role).await.unwrap();
    }
    for granted in [
        permission(Type::Read, "read", "reae"),
        permission(Type::Write, "write", "writf"),
        permission(Type::Readwrite, "both", "boti"),
    ] {
        grant_permission(&node, NO_TOKEN, "r", granted)
            .await
            .unwrap();
    }
    enable(&node, NO_TOKEN).await.unwrap();
    let root = authenticate(&node, "root", "root").await.unwrap();
    let user = authenticate(&node, "u", "u").await.unwrap();
    (node, root, user)
}
