//! The log lines about users, roles and logins, with etcd's texts and levels.
//!
//! They are written after a change, never under the lock of the store.

use revstore_proto::authpb::permission;
use revstore_proto::etcdserverpb::AuthRoleGrantPermissionRequest;
use tracing::{error, info, warn};

use crate::status::EtcdError;

pub(crate) fn enabled(was_enabled: bool) {
    if was_enabled {
        info!("authentication is already enabled; ignored auth enable request");
    } else {
        info!("enabled authentication");
    }
}

pub(crate) fn disabled(was_enabled: bool) {
    if was_enabled {
        info!("disabled authentication");
    }
}

pub(crate) fn invalid_password(user: &str) {
    info!("user-name" = user, "invalid password");
}

/// The token is not logged, unlike in etcd: it may be valid for another server.
pub(super) fn invalid_token() -> EtcdError {
    warn!("invalid auth token");
    EtcdError::InvalidAuthToken
}

pub(super) fn password_changed() {
    info!("revision when password checked became stale; retrying");
}

pub(crate) fn invalid_authentication(user: &str, error: EtcdError) {
    if error != EtcdError::AuthNotEnabled {
        let text = error.text();
        let text = text.strip_prefix("etcdserver: ").unwrap_or(text);
        let error = format!("auth: {text}");
        warn!(user, error, "invalid authentication was requested");
    }
}

pub(crate) fn added_user(user: &str) {
    info!("user-name" = user, "added a user");
}

pub(crate) fn deleted_user(user: &str, roles: &[String]) {
    info!("user-name" = user, "user-roles" = ?roles, "deleted a user");
}

pub(crate) fn cannot_delete_root() {
    error!("user-name" = "root", "cannot delete 'root' user");
}

pub(crate) fn changed_password(user: &str, roles: &[String]) {
    info!("user-name" = user, "user-roles" = ?roles, "changed a password of a user");
}

pub(crate) fn granted_role(user: &str, roles: &[String], role: &str, is_new: bool) {
    if is_new {
        info!(
            "user-name" = user,
            "user-roles" = ?roles,
            "added-role-name" = role,
            "granted a role to a user"
        );
    } else {
        warn!(
            "user-name" = user,
            "user-roles" = ?roles,
            "duplicate-role-name" = role,
            "ignored grant role request to a user"
        );
    }
}

pub(crate) fn revoked_role(user: &str, old: &[String], new: &[String], role: &str) {
    info!(
        "user-name" = user,
        "old-user-roles" = ?old,
        "new-user-roles" = ?new,
        "revoked-role-name" = role,
        "revoked a role from a user"
    );
}

pub(crate) fn cannot_revoke_root() {
    error!(
        "user-name" = "root",
        "role-name" = "root",
        "'root' user cannot revoke 'root' role"
    );
}

pub(crate) fn created_role(role: &str) {
    info!("role-name" = role, "created a role");
}

pub(crate) fn deleted_role(role: &str) {
    info!("role-name" = role, "deleted a role");
}

pub(crate) fn cannot_delete_root_role() {
    error!("role-name" = "root", "cannot delete 'root' role");
}

/// As in etcd, the field `user-name` is the name of the role.
pub(crate) fn granted_permission(request: &AuthRoleGrantPermissionRequest) {
    let kind = request.perm.as_ref().map(|granted| granted.perm_type);
    let kind = kind.and_then(|kind| permission::Type::try_from(kind).ok());
    info!(
        "user-name" = request.name,
        "permission-name" = kind.map(|kind| kind.as_str_name()).unwrap_or_default(),
        "granted/updated a permission to a user"
    );
}

pub(crate) fn revoked_permission(role: &str, key: &[u8], range_end: &[u8]) {
    info!(
        "role-name" = role,
        "key" = &*String::from_utf8_lossy(key),
        "range-end" = &*String::from_utf8_lossy(range_end),
        "revoked a permission on range"
    );
}
