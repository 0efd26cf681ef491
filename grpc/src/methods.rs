//! The table of methods: one row for each method of each service, and the order of its checks.
//!
//! Every call has the same steps: validate the request, authorize the client, admit the proposal, convert the
//! request, call the engine, encode the response. [`Node::accept`] executes the first two steps for a row,
//! and the service executes the others. If etcd has another order, the documentation of the row describes it.
//!
//! A row is
//!
//! ```text
//! Name(Request): Kind, validate function, authorize rule, status function, paths "gateway/path";
//! ```
//!
//! - `Request` is the message that is checked. On client streams, it is one of the stream's messages,
//!   which [`Node::accept_on_stream`] checks.
//! - `validate` names a function in `request/`. Without it, every request is valid.
//! - `authorize` names a rule in `auth/authorize.rs`. Without it, every client is accepted.
//! - `status` names the function in `status.rs` that converts an error of the checks to a status, if it
//!   is not [`EtcdError::to_status`].
//! - `paths` lists the paths of the JSON gateway (HT-20).
//!
//! The router in `services.rs`, the checks, the gateway's routes and the counters of `grpc_server_*` metrics
//! are derived from the table. A test compares the table with the descriptors. A row that no service uses is
//! dead code, which the compiler reports.

use revstore_proto::etcdserverpb as pb;
use revstore_proto::health::HealthCheckRequest;
use revstore_proto::v3electionpb::{
    CampaignRequest, LeaderRequest, ProclaimRequest, ResignRequest,
};
use revstore_proto::v3lockpb::{LockRequest, UnlockRequest};
use tonic::{Request, Status};

use crate::auth::authorize::{self, Rule};
use crate::auth::credentials::Credentials;
use crate::node::Node;
use crate::node::admission::Limits;
use crate::request;
use crate::service;
use crate::status::{self, EtcdError};

/// A method of one of the services.
///
/// ```
/// use revstore_grpc::{RpcKind, RpcMethod};
/// let method = RpcMethod::of_path("/etcdserverpb.KV/Put").expect("a method of etcd");
/// assert_eq!((method.service(), method.name()), ("etcdserverpb.KV", "Put"));
/// assert_eq!(method.kind(), RpcKind::Unary);
/// assert_eq!(method.gateway_paths(), ["kv/put"]);
/// ```
#[derive(Debug)]
pub struct RpcMethod {
    pub(crate) service_id: ServiceId,
    service: &'static str,
    name: &'static str,
    path: &'static str,
    kind: RpcKind,
    gateway_paths: &'static [&'static str],
}

/// The number of messages that a call may have in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RpcKind {
    /// One request, one response.
    Unary,
    /// One request, many responses.
    ServerStream,
    /// Many requests, many responses.
    BidiStream,
}

/// A check that depends only on the request and the limits.
type Validation<T> = fn(&T, &Limits) -> Result<(), EtcdError>;

/// A row of the table as a type.
pub(crate) trait Call {
    type Request;
    const VALIDATE: Option<Validation<Self::Request>>;
    const AUTHORIZE: Option<Rule<Self::Request>>;
    const TO_STATUS: fn(EtcdError) -> Status;
}

impl Node {
    /// Validates a request and authorizes its client.
    pub(crate) fn accept<C: Call>(
        &self,
        request: Request<C::Request>,
    ) -> Result<C::Request, Status> {
        if let Some(validate) = C::VALIDATE {
            validate(request.get_ref(), &self.limits).map_err(C::TO_STATUS)?;
        }
        if let Some(rule) = C::AUTHORIZE {
            self.authorize(&request, rule).map_err(C::TO_STATUS)?;
        }
        Ok(request.into_inner())
    }

    /// Like [`accept`](Self::accept), for a request on a stream that the client has opened with
    /// `credentials`.
    pub(crate) fn accept_on_stream<C: Call>(
        &self,
        request: &C::Request,
        credentials: &Credentials,
    ) -> Result<(), EtcdError> {
        if let Some(validate) = C::VALIDATE {
            validate(request, &self.limits)?;
        }
        match C::AUTHORIZE {
            Some(rule) => self.authorize_on_stream(request, credentials, rule),
            None => Ok(()),
        }
    }
}

impl RpcMethod {
    /// Returns all methods.
    pub fn all() -> &'static [Self] {
        METHODS
    }

    /// Returns the method with an HTTP path such as `/etcdserverpb.KV/Put`.
    pub fn of_path(path: &str) -> Option<&'static Self> {
        Self::position(path).map(|position| &METHODS[position])
    }

    /// Returns the position in [`all`](Self::all) of the method with an HTTP path. Costs a few string
    /// comparisons, the fewest for the most frequent methods.
    pub fn position(path: &str) -> Option<usize> {
        position(path)
    }

    /// Returns the full name of the service, such as `etcdserverpb.KV`.
    pub fn service(&self) -> &'static str {
        self.service
    }

    /// Returns the name of the method, such as `Put`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the HTTP path of the method over gRPC.
    pub fn path(&self) -> &'static str {
        self.path
    }

    /// Returns whether a call of the method may wait after its write has started: for a worker, or for the removal
    /// of history (CO-6).
    pub(crate) fn waits_for_its_write(&self) -> bool {
        self.service_id == ServiceId::Kv && matches!(self.name, "Txn" | "DeleteRange" | "Compact")
    }

    /// Returns whether the response of a call goes on with what is written later.
    pub(crate) fn shows_later_writes(&self) -> bool {
        match self.service_id {
            ServiceId::Watch => true,
            ServiceId::Election => self.name == "Observe",
            // In the headers.
            ServiceId::Lease => self.name == "LeaseKeepAlive",
            _ => false,
        }
    }

    /// Returns whether a call of the method may change something that a journal stores.
    pub(crate) fn may_write(&self) -> bool {
        match self.service_id {
            ServiceId::Kv => matches!(self.name, "Put" | "Txn" | "DeleteRange" | "Compact"),
            ServiceId::Lock => true,
            ServiceId::Election => matches!(self.name, "Campaign" | "Proclaim" | "Resign"),
            _ => self.writes_without_revision(),
        }
    }

    /// Returns whether a call of the method may change something that a journal stores without making a
    /// revision.
    pub(crate) fn writes_without_revision(&self) -> bool {
        match self.service_id {
            ServiceId::Kv => self.name == "Compact",
            ServiceId::Lease => matches!(self.name, "LeaseGrant" | "LeaseRevoke"),
            ServiceId::Maintenance => self.name == "Alarm",
            _ => self.changes_metadata(),
        }
    }

    /// Returns whether each call of the method changes users, roles, the state of auth or the members.
    pub(crate) fn changes_metadata(&self) -> bool {
        match self.service_id {
            ServiceId::Auth => !matches!(
                self.name,
                "AuthStatus" | "Authenticate" | "UserGet" | "UserList" | "RoleGet" | "RoleList"
            ),
            ServiceId::Cluster => {
                matches!(self.name, "MemberAdd" | "MemberRemove" | "MemberUpdate")
            }
            _ => false,
        }
    }

    /// Returns whether the response of a call depends on more than keys and revisions.
    pub(crate) fn uses_metadata(&self) -> bool {
        let has_metadata = matches!(self.service_id, ServiceId::Auth | ServiceId::Cluster);
        has_metadata || self.writes_without_revision()
    }

    /// Returns whether requests of the method have a password, which nothing may keep.
    pub fn has_secrets(&self) -> bool {
        self.service_id == ServiceId::Auth
            && matches!(self.name, "Authenticate" | "UserAdd" | "UserChangePassword")
    }

    /// Returns the number of messages in each direction.
    pub fn kind(&self) -> RpcKind {
        self.kind
    }

    /// Returns the paths of the method at the JSON gateway, without the prefix `/v3/`.
    pub fn gateway_paths(&self) -> &'static [&'static str] {
        self.gateway_paths
    }
}

impl RpcKind {
    /// Returns the value of the label `grpc_type` in `grpc_server_*` metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unary => "unary",
            Self::ServerStream => "server_stream",
            Self::BidiStream => "bidi_stream",
        }
    }
}

/// Returns the error for a path without a method (HL-3).
pub(crate) fn no_such_method(path: &str) -> Status {
    let parts = path
        .strip_prefix('/')
        .and_then(|path| path.rsplit_once('/'));
    let Some((service, method)) = parts else {
        return status::malformed_path(path);
    };
    if METHODS.iter().any(|known| known.service == service) {
        status::unknown_method(service, method)
    } else {
        status::unknown_service(service)
    }
}

macro_rules! optional {
    () => {
        None
    };
    ($function:path) => {
        Some($function)
    };
}

macro_rules! to_status {
    () => {
        EtcdError::to_status
    };
    ($function:path) => {
        $function
    };
}

macro_rules! methods {
    ($($module:ident: $server:ident $service:literal {
        $($(#[$doc:meta])* $name:ident($request:ty): $kind:ident
            $(, validate $validate:path)? $(, authorize $rule:path)? $(, status $status_fn:path)?
            $(, paths $($path:literal)+)?;)*
    })*) => {
        /// The generated server of a method, one for each service.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum ServiceId {
            $($server,)*
        }

        const METHODS: &[RpcMethod] = &[$($(RpcMethod {
            service_id: ServiceId::$server,
            service: $service,
            name: stringify!($name),
            path: concat!("/", $service, "/", stringify!($name)),
            kind: RpcKind::$kind,
            gateway_paths: &[$($($path),+)?],
        },)*)*];

        fn position(path: &str) -> Option<usize> {
            match path {
                $($(concat!("/", $service, "/", stringify!($name)) => {
                    Some(const { index_of(concat!("/", $service, "/", stringify!($name))) })
                })*)*
                _ => None,
            }
        }

        $(
            /// The rows of one service as types.
            pub(crate) mod $module {
                $($(#[$doc])*
                pub(crate) enum $name {})*
            }

            $(impl Call for $module::$name {
                type Request = $request;
                const VALIDATE: Option<Validation<$request>> = optional!($($validate)?);
                const AUTHORIZE: Option<Rule<$request>> = optional!($($rule)?);
                const TO_STATUS: fn(EtcdError) -> Status = to_status!($($status_fn)?);
            })*
        )*
    };
}

methods! {
    kv: Kv "etcdserverpb.KV" {
        Range(pb::RangeRequest): Unary,
            validate request::kv::validate_range, authorize authorize::range, paths "kv/range";
        Put(pb::PutRequest): Unary,
            validate request::kv::validate_put, authorize authorize::put, paths "kv/put";
        Txn(pb::TxnRequest): Unary,
            validate request::txn::validate_txn, authorize authorize::txn, paths "kv/txn";
        DeleteRange(pb::DeleteRangeRequest): Unary,
            validate request::kv::validate_delete_range, authorize authorize::delete_range,
            paths "kv/deleterange";
        Compact(pb::CompactionRequest): Unary, authorize authorize::admin, paths "kv/compaction";
        /// RG-60: the gateway has no path for it.
        RangeStream(pb::RangeRequest): ServerStream,
            validate request::kv::validate_range_stream, authorize authorize::range;
    }
    watch: Watch "etcdserverpb.Watch" {
        /// Order: each request to create a watcher is authorized, not the stream, and an error is a response
        /// on the stream (WA-60). Watchers that exist when auth is enabled continue (WA-38).
        Watch(pb::WatchCreateRequest): BidiStream, authorize authorize::watch_create, paths "watch";
    }
    lease: Lease "etcdserverpb.Lease" {
        LeaseGrant(pb::LeaseGrantRequest): Unary, authorize authorize::user, paths "lease/grant";
        LeaseRevoke(pb::LeaseRevokeRequest): Unary, authorize authorize::lease_revoke,
            paths "lease/revoke" "kv/lease/revoke";
        /// Order: each request on the stream is authorized. An error ends the stream.
        LeaseKeepAlive(pb::LeaseKeepAliveRequest): BidiStream, authorize authorize::lease_keep_alive,
            paths "lease/keepalive";
        LeaseTimeToLive(pb::LeaseTimeToLiveRequest): Unary, authorize authorize::lease_time_to_live,
            paths "lease/timetolive" "kv/lease/timetolive";
        LeaseLeases(pb::LeaseLeasesRequest): Unary, authorize authorize::lease_leases,
            paths "lease/leases" "kv/lease/leases";
    }
    cluster: Cluster "etcdserverpb.Cluster" {
        MemberAdd(pb::MemberAddRequest): Unary,
            validate request::peer_url::validate_member_add, authorize authorize::admin,
            paths "cluster/member/add";
        MemberRemove(pb::MemberRemoveRequest): Unary, authorize authorize::admin,
            paths "cluster/member/remove";
        MemberUpdate(pb::MemberUpdateRequest): Unary, authorize authorize::admin,
            paths "cluster/member/update";
        /// AU-5
        MemberList(pb::MemberListRequest): Unary, authorize authorize::user,
            paths "cluster/member/list";
        MemberPromote(pb::MemberPromoteRequest): Unary, authorize authorize::admin,
            paths "cluster/member/promote";
    }
    maintenance: Maintenance "etcdserverpb.Maintenance" {
        Alarm(pb::AlarmRequest): Unary, authorize authorize::alarm, paths "maintenance/alarm";
        Status(pb::StatusRequest): Unary, authorize authorize::admin, paths "maintenance/status";
        Defragment(pb::DefragmentRequest): Unary,
            authorize authorize::admin, status status::untranslated,
            paths "maintenance/defragment";
        Hash(pb::HashRequest): Unary,
            authorize authorize::admin, status status::untranslated, paths "maintenance/hash";
        HashKV(pb::HashKvRequest): Unary,
            authorize authorize::admin, status status::untranslated, paths "maintenance/hashkv";
        Snapshot(pb::SnapshotRequest): ServerStream,
            authorize authorize::admin, status status::untranslated, paths "maintenance/snapshot";
        MoveLeader(pb::MoveLeaderRequest): Unary, authorize authorize::admin,
            paths "maintenance/transfer-leadership";
        Downgrade(pb::DowngradeRequest): Unary, authorize authorize::admin,
            paths "maintenance/downgrade";
    }
    auth: Auth "etcdserverpb.Auth" {
        AuthEnable(pb::AuthEnableRequest): Unary, authorize authorize::admin, paths "auth/enable";
        AuthDisable(pb::AuthDisableRequest): Unary, authorize authorize::admin, paths "auth/disable";
        AuthStatus(pb::AuthStatusRequest): Unary, authorize authorize::admin, paths "auth/status";
        /// Order: only a request with the correct password is admitted (DM-13).
        Authenticate(pb::AuthenticateRequest): Unary, paths "auth/authenticate";
        UserAdd(pb::AuthUserAddRequest): Unary, authorize authorize::admin, paths "auth/user/add";
        UserGet(pb::AuthUserGetRequest): Unary, authorize authorize::user_get, paths "auth/user/get";
        UserList(pb::AuthUserListRequest): Unary, authorize authorize::admin, paths "auth/user/list";
        UserDelete(pb::AuthUserDeleteRequest): Unary, authorize authorize::admin,
            paths "auth/user/delete";
        UserChangePassword(pb::AuthUserChangePasswordRequest): Unary, authorize authorize::admin,
            paths "auth/user/changepw";
        UserGrantRole(pb::AuthUserGrantRoleRequest): Unary, authorize authorize::admin,
            paths "auth/user/grant";
        UserRevokeRole(pb::AuthUserRevokeRoleRequest): Unary, authorize authorize::admin,
            paths "auth/user/revoke";
        RoleAdd(pb::AuthRoleAddRequest): Unary, authorize authorize::admin, paths "auth/role/add";
        RoleGet(pb::AuthRoleGetRequest): Unary, authorize authorize::role_get, paths "auth/role/get";
        RoleList(pb::AuthRoleListRequest): Unary, authorize authorize::admin, paths "auth/role/list";
        RoleDelete(pb::AuthRoleDeleteRequest): Unary, authorize authorize::admin,
            paths "auth/role/delete";
        RoleGrantPermission(pb::AuthRoleGrantPermissionRequest): Unary, authorize authorize::admin,
            paths "auth/role/grant";
        RoleRevokePermission(pb::AuthRoleRevokePermissionRequest): Unary, authorize authorize::admin,
            paths "auth/role/revoke";
    }
    lock: Lock "v3lockpb.Lock" {
        /// Order: a proposal is admitted for the lease that is granted to a waiter without one (EL-2), and
        /// for each write to the key of the waiter.
        Lock(LockRequest): Unary,
            authorize authorize::lock, status status::of_recipe, paths "lock/lock";
        Unlock(UnlockRequest): Unary,
            validate request::concurrency::validate_unlock, authorize authorize::unlock,
            status status::of_recipe, paths "lock/unlock";
    }
    election: Election "v3electionpb.Election" {
        /// Order: as for a lock (EL-6).
        Campaign(CampaignRequest): Unary,
            authorize authorize::campaign, status status::of_recipe, paths "election/campaign";
        Proclaim(ProclaimRequest): Unary,
            validate request::concurrency::validate_proclaim, authorize authorize::proclaim,
            status status::of_recipe, paths "election/proclaim";
        Leader(LeaderRequest): Unary,
            authorize authorize::leader, status status::of_recipe, paths "election/leader";
        Observe(LeaderRequest): ServerStream,
            authorize authorize::leader, status status::of_recipe, paths "election/observe";
        Resign(ResignRequest): Unary,
            validate request::concurrency::validate_resign, authorize authorize::resign,
            status status::of_recipe, paths "election/resign";
    }
    health: Health "grpc.health.v1.Health" {
        Check(HealthCheckRequest): Unary, validate service::health::validate_check;
        Watch(HealthCheckRequest): ServerStream, validate service::health::validate_check;
    }
}

/// Returns the position of a path in the table, at compile time.
const fn index_of(path: &str) -> usize {
    let mut index = 0;
    while !is_equal(METHODS[index].path.as_bytes(), path.as_bytes()) {
        index += 1;
    }
    index
}

const fn is_equal(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use prost_reflect::DescriptorPool;
    use tonic::Code;

    use super::*;

    #[test]
    fn the_table_lists_the_methods_of_the_descriptors() {
        let pool = DescriptorPool::decode(revstore_proto::FILE_DESCRIPTOR_SET).unwrap();
        let mut described = Vec::new();
        for service in pool.services() {
            for method in service.methods() {
                let kind = match (method.is_client_streaming(), method.is_server_streaming()) {
                    (false, false) => RpcKind::Unary,
                    (false, true) => RpcKind::ServerStream,
                    (true, true) => RpcKind::BidiStream,
                    (true, false) => panic!("{} has no kind", method.full_name()),
                };
                let path = format!("/{}/{}", service.full_name(), method.name());
                described.push((path, kind.as_str()));
            }
        }
        let mut listed: Vec<_> = METHODS
            .iter()
            .map(|method| (method.path.to_owned(), method.kind.as_str()))
            .collect();
        described.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, described);
    }

    #[test]
    fn every_method_is_found_by_its_path() {
        for (position, method) in METHODS.iter().enumerate() {
            assert_eq!(RpcMethod::position(method.path), Some(position));
            let expected = format!("/{}/{}", method.service, method.name);
            assert_eq!(method.path, expected);
        }
    }

    #[test]
    fn hl_3_unknown_methods_services_and_malformed_paths_have_different_errors() {
        let check = |path: &str, text: &str| {
            assert!(RpcMethod::of_path(path).is_none());
            let status = no_such_method(path);
            assert_eq!(
                (status.code(), status.message()),
                (Code::Unimplemented, text)
            );
        };
        check(
            "/etcdserverpb.KV/Nope",
            "unknown method Nope for service etcdserverpb.KV",
        );
        check(
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            "unknown service grpc.reflection.v1alpha.ServerReflection",
        );
        check("/nope", "malformed method name: \"/nope\"");
    }
}
