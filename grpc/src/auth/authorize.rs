//! What requests may, before they are looked at any further.
//!
//! Each rule stands between the method of a service and what it does. Checks that need nothing but
//! the request come first, as in etcd, so that a request that makes no sense is told so whoever
//! sends it.

use revstore_engine::{KeyRange, LeaseId};
use revstore_proto::etcdserverpb::alarm_request::AlarmAction;
use revstore_proto::etcdserverpb::request_op::Request as OpRequest;
use revstore_proto::etcdserverpb::{
    AlarmRequest, AuthRoleGetRequest, AuthUserGetRequest, DeleteRangeRequest,
    LeaseTimeToLiveRequest, PutRequest, RangeRequest, RequestOp, TxnRequest, WatchCreateRequest,
};
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::{Extensions, Request};

use crate::auth::client_name::CertifiedName;
use crate::auth::{Access, Claim};
use crate::node::Node;
use crate::request::convert::SMALLEST_KEY;
use crate::request::validate;
use crate::status::EtcdError;

/// Where a token may stand (AU-4).
const TOKEN_NAMES: [&str; 2] = ["token", "authorization"];

/// What a client sends to say who it is. Streams keep it for the requests that come on them.
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    token: Option<MetadataValue<Ascii>>,
    certified: Option<CertifiedName>,
}

impl Credentials {
    pub(crate) fn of<T>(request: &Request<T>) -> Self {
        Self::new(request.metadata(), request.extensions())
    }

    fn new(metadata: &MetadataMap, extensions: &Extensions) -> Self {
        let token = TOKEN_NAMES.iter().find_map(|name| metadata.get(*name));
        Self {
            token: token.cloned(),
            certified: extensions.get().cloned(),
        }
    }

    /// The token, or else whom the connection vouches for (TL-2).
    fn claim(&self) -> Option<Claim<'_>> {
        // No token has other than visible letters.
        let token = self.token.as_ref();
        let token = token.map(|token| Claim::Token(token.to_str().unwrap_or("")));
        let certified = self.certified.as_ref();
        token.or_else(|| certified.map(|name| Claim::Certified(name.as_str())))
    }
}

/// Who sends a request: looked up when a rule comes to it.
#[derive(Debug)]
pub(crate) struct Sender<'a> {
    node: &'a Node,
    metadata: &'a MetadataMap,
    extensions: &'a Extensions,
}

impl Sender<'_> {
    pub(crate) fn access(&self) -> Result<Access, EtcdError> {
        let credentials = Credentials::new(self.metadata, self.extensions);
        self.node.access(&credentials)
    }

    /// Any user will do.
    pub(crate) fn check_user(&self) -> Result<(), EtcdError> {
        self.access()?.check_user()
    }

    /// Only an administrator will do (AU-8).
    pub(crate) fn check_admin(&self) -> Result<(), EtcdError> {
        self.access()?.check_admin()
    }
}

impl Node {
    /// Holds a request to a rule. Costs one atomic load while auth is off.
    pub(crate) fn guard<T>(
        &self,
        request: &Request<T>,
        rule: impl FnOnce(&T, &Sender<'_>) -> Result<(), EtcdError>,
    ) -> Result<(), EtcdError> {
        if !self.auth.is_on() {
            return Ok(());
        }
        let sender = Sender {
            node: self,
            metadata: request.metadata(),
            extensions: request.extensions(),
        };
        rule(request.get_ref(), &sender)
    }

    /// What somebody may.
    pub(crate) fn access(&self, credentials: &Credentials) -> Result<Access, EtcdError> {
        self.auth.access(credentials.claim(), self.engine.now())
    }
}

/// Any user will do.
pub(crate) fn user<T>(_: &T, sender: &Sender<'_>) -> Result<(), EtcdError> {
    sender.check_user()
}

/// Only an administrator will do (AU-8).
pub(crate) fn admin<T>(_: &T, sender: &Sender<'_>) -> Result<(), EtcdError> {
    sender.check_admin()
}

pub(crate) fn range(request: &RangeRequest, sender: &Sender<'_>) -> Result<(), EtcdError> {
    validate::range(request)?;
    check_range(request, &sender.access()?)
}

pub(crate) fn range_stream(request: &RangeRequest, sender: &Sender<'_>) -> Result<(), EtcdError> {
    validate::range_stream(request)?;
    check_range(request, &sender.access()?)
}

pub(crate) fn put(request: &PutRequest, sender: &Sender<'_>) -> Result<(), EtcdError> {
    validate::put(request)?;
    check_put(sender.node, request, &sender.access()?)
}

pub(crate) fn delete_range(
    request: &DeleteRangeRequest,
    sender: &Sender<'_>,
) -> Result<(), EtcdError> {
    validate::delete_range(request)?;
    check_delete(request, &sender.access()?)
}

pub(crate) fn txn(request: &TxnRequest, sender: &Sender<'_>) -> Result<(), EtcdError> {
    validate::txn(request, sender.node.limits.txn_ops_max)?;
    check_txn(sender.node, request, &sender.access()?)
}

/// WA-60: a denied watch is a reply on the stream, not the end of it.
pub(crate) fn watch(
    node: &Node,
    request: &WatchCreateRequest,
    credentials: &Credentials,
) -> Result<(), EtcdError> {
    if !node.auth.is_on() {
        return Ok(());
    }
    let key = match &*request.key {
        // WA-9
        [] => SMALLEST_KEY,
        key => key,
    };
    node.access(credentials)?
        .check_read(key, &request.range_end)
}

pub(crate) fn lease_revoke(lease: i64, sender: &Sender<'_>) -> Result<(), EtcdError> {
    check_lease_write(sender.node, lease, &sender.access()?)
}

/// A renewal on a stream of them.
pub(crate) fn keep_alive(
    node: &Node,
    lease: i64,
    credentials: &Credentials,
) -> Result<(), EtcdError> {
    if !node.auth.is_on() {
        return Ok(());
    }
    check_lease_write(node, lease, &node.access(credentials)?)
}

/// Which keys hang on a lease is told to those who may read them.
pub(crate) fn lease_time_to_live(
    request: &LeaseTimeToLiveRequest,
    sender: &Sender<'_>,
) -> Result<(), EtcdError> {
    let access = sender.access()?;
    access.check_user()?;
    if request.keys {
        check_lease_read(sender.node, LeaseId::new(request.id), &access)?;
    }
    Ok(())
}

/// What leases there are is told to those who may read all keys on them.
pub(crate) fn lease_leases<T>(_: &T, sender: &Sender<'_>) -> Result<(), EtcdError> {
    let access = sender.access()?;
    access.check_user()?;
    if access.check_admin().is_ok() {
        return Ok(());
    }
    let mut leases = sender.node.engine.leases().into_iter();
    leases.try_for_each(|lease| check_lease_read(sender.node, Some(lease), &access))
}

/// Alarms may be looked at by any user, but only changed by administrators.
pub(crate) fn alarm(request: &AlarmRequest, sender: &Sender<'_>) -> Result<(), EtcdError> {
    if request.action == i32::from(AlarmAction::Get) {
        sender.check_user()
    } else {
        sender.check_admin()
    }
}

/// AU-8: a user may look at itself.
pub(crate) fn user_get(request: &AuthUserGetRequest, sender: &Sender<'_>) -> Result<(), EtcdError> {
    let access = sender.access()?;
    if access.user() == Some(&*request.name) {
        return Ok(());
    }
    access.check_admin()
}

/// AU-8: a user may look at the roles that it has.
pub(crate) fn role_get(request: &AuthRoleGetRequest, sender: &Sender<'_>) -> Result<(), EtcdError> {
    let access = sender.access()?;
    let has_role =
        |user: &str| (sender.node.auth).look(|store| store.has_role(user, &request.role));
    if access.user().is_some_and(has_role) {
        return Ok(());
    }
    access.check_admin()
}

/// Standing in line takes a look at the line, and a key in it on a lease. Which key that is with a
/// lease yet to be made nobody knows, so all of them must be allowed then.
pub(crate) fn stand_in_line(
    line: &KeyRange,
    key: Option<&[u8]>,
    lease: i64,
    sender: &Sender<'_>,
) -> Result<(), EtcdError> {
    let access = sender.access()?;
    match key {
        Some(key) => access.check_write(key, b"")?,
        None => access.check_write_of(line)?,
    }
    check_lease_write(sender.node, lease, &access)?;
    access.check_read_of(line)
}

/// Changing what a place in a line shows takes a look at it too. A place without a key, which is
/// none, is left for the request to be refused for.
pub(crate) fn place(key: &[u8], lease: i64, sender: &Sender<'_>) -> Result<(), EtcdError> {
    if key.is_empty() {
        return Ok(());
    }
    let access = sender.access()?;
    access.check_read(key, b"")?;
    access.check_write(key, b"")?;
    check_lease_write(sender.node, lease, &access)
}

fn check_range(request: &RangeRequest, access: &Access) -> Result<(), EtcdError> {
    access.check_read(&request.key, &request.range_end)
}

fn check_put(node: &Node, request: &PutRequest, access: &Access) -> Result<(), EtcdError> {
    access.check_write(&request.key, b"")?;
    // Whoever attaches a key to a lease must be able to end it.
    check_lease_write(node, request.lease, access)?;
    if request.prev_kv {
        access.check_read(&request.key, b"")?;
    }
    Ok(())
}

fn check_delete(request: &DeleteRangeRequest, access: &Access) -> Result<(), EtcdError> {
    access.check_write(&request.key, &request.range_end)?;
    if request.prev_kv {
        access.check_read(&request.key, &request.range_end)?;
    }
    Ok(())
}

/// AU-7: whatever the compares decide, and at every depth. The recursion is as deep as the decoder
/// let the request be. A transaction that does nothing needs nobody to send it.
fn check_txn(node: &Node, request: &TxnRequest, access: &Access) -> Result<(), EtcdError> {
    let mut compares = request.compare.iter();
    compares.try_for_each(|compare| access.check_read(&compare.key, &compare.range_end))?;
    let mut ops = request.success.iter().chain(&request.failure);
    ops.try_for_each(|op| check_op(node, op, access))
}

fn check_op(node: &Node, op: &RequestOp, access: &Access) -> Result<(), EtcdError> {
    match &op.request {
        Some(OpRequest::RequestRange(request)) => check_range(request, access),
        Some(OpRequest::RequestPut(request)) => check_put(node, request, access),
        Some(OpRequest::RequestDeleteRange(request)) => check_delete(request, access),
        Some(OpRequest::RequestTxn(request)) => check_txn(node, request, access),
        None => Ok(()),
    }
}

/// A lease may be ended, renewed and used by who may write the keys on it.
fn check_lease_write(node: &Node, lease: i64, access: &Access) -> Result<(), EtcdError> {
    access.check_user()?;
    let keys = lease_keys(node, LeaseId::new(lease), access);
    let mut keys = keys.iter();
    keys.try_for_each(|key| access.check_write(key, b""))
}

fn check_lease_read(node: &Node, lease: Option<LeaseId>, access: &Access) -> Result<(), EtcdError> {
    let keys = lease_keys(node, lease, access);
    let mut keys = keys.iter();
    keys.try_for_each(|key| access.check_read(key, b""))
}

/// The keys on a lease, if it is there. Administrators need not ask.
fn lease_keys(node: &Node, lease: Option<LeaseId>, access: &Access) -> Vec<bytes::Bytes> {
    if access.check_admin().is_ok() {
        return Vec::new();
    }
    let status = lease.and_then(|lease| node.engine.lease(lease, true).ok());
    status.map_or_else(Vec::new, |status| status.keys)
}
