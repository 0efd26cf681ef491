//! Authorization of requests: the rules that the table of methods (`methods.rs`) refers to.
//!
//! A rule takes a valid request, and the client with the permissions of its user. While auth is
//! disabled, no rule runs, and a request costs one atomic load. In etcd, these rules are in
//! `authApplierV3`, `authMaintenanceServer` and `EtcdServer`, and `AuthInfoFromCtx` returns the
//! user.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::sync::Arc;

use bytes::Bytes;
use revstore_engine::{KeyRange, LeaseId};
use revstore_proto::etcdserverpb::alarm_request::AlarmAction;
use revstore_proto::etcdserverpb::request_op::Request as OpRequest;
use revstore_proto::etcdserverpb::{
    AlarmRequest, AuthRoleGetRequest, AuthUserGetRequest, DeleteRangeRequest,
    LeaseKeepAliveRequest, LeaseRevokeRequest, LeaseTimeToLiveRequest, PutRequest, RangeRequest,
    RequestOp, TxnRequest, WatchCreateRequest,
};
use revstore_proto::v3electionpb::{
    CampaignRequest, LeaderKey, LeaderRequest, ProclaimRequest, ResignRequest,
};
use revstore_proto::v3lockpb::{LockRequest, UnlockRequest};

use crate::auth::credentials::Credentials;
use crate::auth::permission::Grants;
use crate::node::Node;
use crate::request::kv::FROM_KEY_END;
use crate::request::watch::SMALLEST_KEY;
use crate::service::concurrency::wait_queue;
use crate::status::EtcdError;

/// A rule for requests of type `T`.
pub(crate) type Rule<T> = fn(&T, &Client<'_>) -> Result<(), EtcdError>;

impl Node {
    /// Checks a unary or server-streaming request against a rule.
    pub(crate) fn authorize<T>(
        &self,
        request: &tonic::Request<T>,
        rule: Rule<T>,
    ) -> Result<(), EtcdError> {
        if !self.auth.is_enabled() {
            return Ok(());
        }
        let client = self.client(&Credentials::of(request))?;
        rule(request.get_ref(), &client)
    }

    /// Checks a request that arrived on an open stream against a rule.
    pub(crate) fn authorize_on_stream<T>(
        &self,
        request: &T,
        credentials: &Credentials,
        rule: Rule<T>,
    ) -> Result<(), EtcdError> {
        if !self.auth.is_enabled() {
            return Ok(());
        }
        rule(request, &self.client(credentials)?)
    }

    fn client(&self, credentials: &Credentials) -> Result<Client<'_>, EtcdError> {
        let (access, age) = self
            .auth
            .access(credentials.identity(), self.engine.now())?;
        Ok(Client {
            node: self,
            access,
            age,
        })
    }
}

/// The client that sent a request, with the permissions of its user.
#[derive(Debug)]
pub(crate) struct Client<'a> {
    node: &'a Node,
    access: Access,
    age: AuthAge,
}

/// The age of a JWT token, from the auth revision that it contains (AU-16). Anything else that
/// identifies a client is current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthAge {
    /// The token has the auth revision 0, which for requests for keys is no user.
    Unset,
    /// Users, roles or permissions have changed after the creation of the token.
    Old,
    Current,
    /// The token has an auth revision that the server has not reached.
    Newer,
}

impl AuthAge {
    pub(super) fn of(revision: u64, current: u64) -> Self {
        if revision == 0 {
            return Self::Unset;
        }
        match revision.cmp(&current) {
            Less => Self::Old,
            Equal => Self::Current,
            Greater => Self::Newer,
        }
    }

    /// Checks the token of a request for keys.
    fn check(self) -> Result<(), EtcdError> {
        match self {
            Self::Unset => Err(EtcdError::UserEmpty),
            Self::Old => Err(EtcdError::AuthOldRevision),
            Self::Current | Self::Newer => Ok(()),
        }
    }

    /// Checks the token of a range or a read-only transaction after the permissions.
    fn check_read_only(self) -> Result<(), EtcdError> {
        match self {
            Self::Unset | Self::Current => Ok(()),
            Self::Old | Self::Newer => Err(EtcdError::AuthOldRevision),
        }
    }
}

/// The permissions that a request has.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// All permissions: auth is disabled.
    Unrestricted,
    /// No permissions: the request has neither a token nor a certificate.
    Anonymous,
    /// The permissions of every user: the certificate (TL-2) or the JWT token names a user that does not
    /// exist.
    UnknownUser {
        /// The name in the certificate or the token.
        name: Arc<str>,
    },
    /// The permissions of a user.
    User {
        /// The user's name.
        name: Arc<str>,
        /// The permissions of its roles.
        grants: Arc<Grants>,
    },
}

impl Client<'_> {
    /// Accepts any user.
    fn check_user(&self) -> Result<(), EtcdError> {
        match self.access {
            Access::UnknownUser { .. } => Ok(()),
            _ => self.check(|_| true),
        }
    }

    /// Accepts administrators only (AU-8).
    fn check_admin(&self) -> Result<(), EtcdError> {
        match &self.access {
            Access::UnknownUser { name } if name.is_empty() => Err(EtcdError::UserEmpty),
            Access::UnknownUser { .. } => Err(EtcdError::UserNotFound),
            _ => self.check(Grants::is_admin),
        }
    }

    /// Accepts users with read permission for all keys of a range (AU-7). `range_end` is as in
    /// requests.
    fn check_read(&self, key: &[u8], range_end: &[u8]) -> Result<(), EtcdError> {
        self.age.check()?;
        self.check(|grants| grants.may_read(key, range_end))
    }

    /// Accepts users with write permission for all keys of a range.
    fn check_write(&self, key: &[u8], range_end: &[u8]) -> Result<(), EtcdError> {
        self.age.check()?;
        self.check(|grants| grants.may_write(key, range_end))
    }

    /// Accepts users with write permission for all keys of a lease. This permission is required to
    /// attach a key to the lease, to renew it and to revoke it.
    fn check_lease_write(&self, lease: i64) -> Result<(), EtcdError> {
        self.check_user()?;
        let keys = self.lease_keys(LeaseId::new(lease));
        keys.iter().try_for_each(|key| self.check_write(key, b""))
    }

    fn check_lease_read(&self, lease: Option<LeaseId>) -> Result<(), EtcdError> {
        let keys = self.lease_keys(lease);
        keys.iter().try_for_each(|key| self.check_read(key, b""))
    }

    /// Returns the keys of a lease if it exists and the user is not an administrator.
    fn lease_keys(&self, lease: Option<LeaseId>) -> Vec<Bytes> {
        if self.check_admin().is_ok() {
            return Vec::new();
        }
        let status = lease.and_then(|lease| self.node.engine.lease(lease, true).ok());
        status.map_or_else(Vec::new, |status| status.keys)
    }

    /// Returns the name of the user, if it exists.
    fn user(&self) -> Option<&str> {
        match &self.access {
            Access::User { name, .. } => Some(name),
            Access::Unrestricted | Access::Anonymous | Access::UnknownUser { .. } => None,
        }
    }

    fn check(&self, is_allowed: impl FnOnce(&Grants) -> bool) -> Result<(), EtcdError> {
        match &self.access {
            Access::Unrestricted => Ok(()),
            Access::Anonymous => Err(EtcdError::UserEmpty),
            Access::User { grants, .. } if is_allowed(grants) => Ok(()),
            Access::User { .. } | Access::UnknownUser { .. } => Err(EtcdError::PermissionDenied),
        }
    }
}

/// Accepts any user.
pub(crate) fn user<T>(_: &T, client: &Client<'_>) -> Result<(), EtcdError> {
    client.check_user()
}

/// Accepts administrators only (AU-8).
pub(crate) fn admin<T>(_: &T, client: &Client<'_>) -> Result<(), EtcdError> {
    client.check_admin()
}

pub(crate) fn range(request: &RangeRequest, client: &Client<'_>) -> Result<(), EtcdError> {
    client.check_read(&request.key, &request.range_end)?;
    client.age.check_read_only()
}

pub(crate) fn put(request: &PutRequest, client: &Client<'_>) -> Result<(), EtcdError> {
    client.check_write(&request.key, b"")?;
    // The key is deleted when the lease ends, so the user must have the permission to revoke the
    // lease.
    client.check_lease_write(request.lease)?;
    if request.prev_kv {
        client.check_read(&request.key, b"")?;
    }
    Ok(())
}

pub(crate) fn delete_range(
    request: &DeleteRangeRequest,
    client: &Client<'_>,
) -> Result<(), EtcdError> {
    client.check_write(&request.key, &request.range_end)?;
    if request.prev_kv {
        client.check_read(&request.key, &request.range_end)?;
    }
    Ok(())
}

/// Checks compares and both branches, at every depth (AU-7). The decoder limits the depth of the
/// recursion. An empty transaction is accepted from every client.
pub(crate) fn txn(request: &TxnRequest, client: &Client<'_>) -> Result<(), EtcdError> {
    txn_permissions(request, client)?;
    let mut ops = request.success.iter().chain(&request.failure);
    if ops.all(|op| matches!(op.request, Some(OpRequest::RequestRange(_)))) {
        client.age.check_read_only()?;
    }
    Ok(())
}

fn txn_permissions(request: &TxnRequest, client: &Client<'_>) -> Result<(), EtcdError> {
    let mut compares = request.compare.iter();
    compares.try_for_each(|compare| client.check_read(&compare.key, &compare.range_end))?;
    let mut ops = request.success.iter().chain(&request.failure);
    ops.try_for_each(|op| txn_op(op, client))
}

fn txn_op(op: &RequestOp, client: &Client<'_>) -> Result<(), EtcdError> {
    match &op.request {
        Some(OpRequest::RequestRange(request)) => {
            client.check_read(&request.key, &request.range_end)
        }
        Some(OpRequest::RequestPut(request)) => put(request, client),
        Some(OpRequest::RequestDeleteRange(request)) => delete_range(request, client),
        Some(OpRequest::RequestTxn(request)) => txn_permissions(request, client),
        None => Ok(()),
    }
}

pub(crate) fn watch_create(
    request: &WatchCreateRequest,
    client: &Client<'_>,
) -> Result<(), EtcdError> {
    let key = match &*request.key {
        // WA-9
        [] => SMALLEST_KEY,
        key => key,
    };
    client.check_read(key, &request.range_end)
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "all rules have the same signature"
)]
pub(crate) fn lease_revoke(
    request: &LeaseRevokeRequest,
    client: &Client<'_>,
) -> Result<(), EtcdError> {
    client.check_lease_write(request.id)
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "all rules have the same signature"
)]
pub(crate) fn lease_keep_alive(
    request: &LeaseKeepAliveRequest,
    client: &Client<'_>,
) -> Result<(), EtcdError> {
    client.check_lease_write(request.id)
}

/// Accepts any user. If the request includes the keys of the lease, accepts users with read
/// permission for all of them.
pub(crate) fn lease_time_to_live(
    request: &LeaseTimeToLiveRequest,
    client: &Client<'_>,
) -> Result<(), EtcdError> {
    client.check_user()?;
    if request.keys {
        client.check_lease_read(LeaseId::new(request.id))?;
    }
    Ok(())
}

/// Accepts users with read permission for all keys of all leases.
pub(crate) fn lease_leases<T>(_: &T, client: &Client<'_>) -> Result<(), EtcdError> {
    client.check_user()?;
    if client.check_admin().is_ok() {
        return Ok(());
    }
    let mut leases = client.node.engine.leases().into_iter();
    leases.try_for_each(|lease| client.check_lease_read(Some(lease)))
}

/// Accepts any user for a list of alarms, and only administrators for a change.
pub(crate) fn alarm(request: &AlarmRequest, client: &Client<'_>) -> Result<(), EtcdError> {
    if request.action == i32::from(AlarmAction::Get) {
        client.check_user()
    } else {
        client.check_admin()
    }
}

/// Accepts administrators, and the user that the request names (AU-8).
pub(crate) fn user_get(request: &AuthUserGetRequest, client: &Client<'_>) -> Result<(), EtcdError> {
    if client.user() == Some(&*request.name) {
        return Ok(());
    }
    client.check_admin()
}

/// Accepts administrators, and users that have the role (AU-8).
pub(crate) fn role_get(request: &AuthRoleGetRequest, client: &Client<'_>) -> Result<(), EtcdError> {
    let auth = &client.node.auth;
    let has_role = |user: &str| auth.read(|store| store.has_role(user, &request.role));
    if client.user().is_some_and(has_role) {
        return Ok(());
    }
    client.check_admin()
}

pub(crate) fn lock(request: &LockRequest, client: &Client<'_>) -> Result<(), EtcdError> {
    join_queue(&request.name, request.lease, client)
}

pub(crate) fn unlock(request: &UnlockRequest, client: &Client<'_>) -> Result<(), EtcdError> {
    client.check_write(&request.key, b"")
}

pub(crate) fn campaign(request: &CampaignRequest, client: &Client<'_>) -> Result<(), EtcdError> {
    join_queue(&request.name, request.lease, client)
}

pub(crate) fn proclaim(request: &ProclaimRequest, client: &Client<'_>) -> Result<(), EtcdError> {
    match &request.leader {
        Some(leader) => change_waiter(leader, leader.lease, client),
        None => Ok(()),
    }
}

pub(crate) fn leader(request: &LeaderRequest, client: &Client<'_>) -> Result<(), EtcdError> {
    let (key, range_end) = &bounds(wait_queue::range(&request.name));
    client.check_read(key, range_end)
}

pub(crate) fn resign(request: &ResignRequest, client: &Client<'_>) -> Result<(), EtcdError> {
    match &request.leader {
        Some(leader) => change_waiter(leader, 0, client),
        None => Ok(()),
    }
}

/// Checks a request to join a wait queue, which reads the queue and puts a key that is attached to
/// a lease. Without a lease, the key is not known yet, so the user needs write permission for the
/// whole queue.
fn join_queue(name: &[u8], lease: i64, client: &Client<'_>) -> Result<(), EtcdError> {
    let (start, end) = &bounds(wait_queue::range(name));
    match LeaseId::new(lease) {
        Some(lease) => client.check_write(&wait_queue::key(name, lease), b"")?,
        None => client.check_write(start, end)?,
    }
    client.check_lease_write(lease)?;
    client.check_read(start, end)
}

/// Changing or deleting the key of a waiter compares its revision first, which reads it.
fn change_waiter(leader: &LeaderKey, lease: i64, client: &Client<'_>) -> Result<(), EtcdError> {
    client.check_read(&leader.key, b"")?;
    client.check_write(&leader.key, b"")?;
    client.check_lease_write(lease)
}

/// Returns a range as the key and the range end of a request.
fn bounds(keys: KeyRange) -> (Bytes, Bytes) {
    match keys {
        KeyRange::One(key) => (key, Bytes::new()),
        KeyRange::Within { start, end } => (start, end),
        KeyRange::From(start) => (start, Bytes::from_static(FROM_KEY_END)),
    }
}
