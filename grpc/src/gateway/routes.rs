//! Which path of the gateway is which method.

use std::collections::HashMap;
use std::sync::LazyLock;

use http::uri::PathAndQuery;
use prost_reflect::{DescriptorPool, MethodDescriptor, ServiceDescriptor};

/// A method with a path.
#[derive(Clone, Debug)]
pub(super) struct Route {
    pub(super) method: MethodDescriptor,
    pub(super) grpc_path: PathAndQuery,
}

impl Route {
    /// HT-20: paths are those behind either prefix.
    pub(super) fn of_path(path: &str) -> Option<&'static Self> {
        let path = path
            .strip_prefix("/v3/")
            .or_else(|| path.strip_prefix("/v3beta/"))?;
        ROUTES.get(path)
    }

    fn new(service: &ServiceDescriptor, method: &str) -> Option<Self> {
        let method = service.methods().find(|known| known.name() == method)?;
        let grpc_path = format!("/{}/{}", service.full_name(), method.name());
        Some(Self {
            method,
            grpc_path: PathAndQuery::try_from(grpc_path).ok()?,
        })
    }
}

/// Made when the first request comes: most servers never see one, and are to start quickly.
static ROUTES: LazyLock<HashMap<&'static str, Route>> = LazyLock::new(|| {
    let pool = DescriptorPool::decode(revstore_proto::FILE_DESCRIPTOR_SET);
    let pool = pool.expect("the descriptors are our own");
    let routes = PATHS.iter().flat_map(|(service, methods)| {
        let service = pool.get_service_by_name(service);
        let service = service.expect("the table names our own services");
        methods.iter().map(move |(method, path)| {
            let route = Route::new(&service, method);
            (*path, route.expect("the table names our own methods"))
        })
    });
    routes.collect()
});

type Paths = &'static [(&'static str, &'static str)];

/// HT-20. `RangeStream` has no path (RG-60), nor have health checks.
const PATHS: [(&str, Paths); 8] = [
    (
        "etcdserverpb.KV",
        &[
            ("Range", "kv/range"),
            ("Put", "kv/put"),
            ("DeleteRange", "kv/deleterange"),
            ("Txn", "kv/txn"),
            ("Compact", "kv/compaction"),
        ],
    ),
    ("etcdserverpb.Watch", &[("Watch", "watch")]),
    (
        "etcdserverpb.Lease",
        &[
            ("LeaseGrant", "lease/grant"),
            ("LeaseRevoke", "lease/revoke"),
            ("LeaseRevoke", "kv/lease/revoke"),
            ("LeaseKeepAlive", "lease/keepalive"),
            ("LeaseTimeToLive", "lease/timetolive"),
            ("LeaseTimeToLive", "kv/lease/timetolive"),
            ("LeaseLeases", "lease/leases"),
            ("LeaseLeases", "kv/lease/leases"),
        ],
    ),
    (
        "etcdserverpb.Cluster",
        &[
            ("MemberAdd", "cluster/member/add"),
            ("MemberRemove", "cluster/member/remove"),
            ("MemberUpdate", "cluster/member/update"),
            ("MemberList", "cluster/member/list"),
            ("MemberPromote", "cluster/member/promote"),
        ],
    ),
    (
        "etcdserverpb.Maintenance",
        &[
            ("Alarm", "maintenance/alarm"),
            ("Status", "maintenance/status"),
            ("Defragment", "maintenance/defragment"),
            ("Hash", "maintenance/hash"),
            ("HashKV", "maintenance/hashkv"),
            ("Snapshot", "maintenance/snapshot"),
            ("MoveLeader", "maintenance/transfer-leadership"),
            ("Downgrade", "maintenance/downgrade"),
        ],
    ),
    (
        "etcdserverpb.Auth",
        &[
            ("AuthEnable", "auth/enable"),
            ("AuthDisable", "auth/disable"),
            ("AuthStatus", "auth/status"),
            ("Authenticate", "auth/authenticate"),
            ("UserAdd", "auth/user/add"),
            ("UserGet", "auth/user/get"),
            ("UserList", "auth/user/list"),
            ("UserDelete", "auth/user/delete"),
            ("UserChangePassword", "auth/user/changepw"),
            ("UserGrantRole", "auth/user/grant"),
            ("UserRevokeRole", "auth/user/revoke"),
            ("RoleAdd", "auth/role/add"),
            ("RoleGet", "auth/role/get"),
            ("RoleList", "auth/role/list"),
            ("RoleDelete", "auth/role/delete"),
            ("RoleGrantPermission", "auth/role/grant"),
            ("RoleRevokePermission", "auth/role/revoke"),
        ],
    ),
    (
        "v3lockpb.Lock",
        &[("Lock", "lock/lock"), ("Unlock", "lock/unlock")],
    ),
    (
        "v3electionpb.Election",
        &[
            ("Campaign", "election/campaign"),
            ("Proclaim", "election/proclaim"),
            ("Leader", "election/leader"),
            ("Observe", "election/observe"),
            ("Resign", "election/resign"),
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn method(path: &str) -> Option<&'static str> {
        Route::of_path(path).map(|route| route.method.full_name())
    }

    #[test]
    fn ht_20_paths_lead_to_methods() {
        let of_table: usize = PATHS.iter().map(|(_, methods)| methods.len()).sum();
        assert_eq!(ROUTES.len(), of_table);
        assert_eq!(method("/v3/kv/range"), Some("etcdserverpb.KV.Range"));
        assert_eq!(method("/v3beta/kv/range"), Some("etcdserverpb.KV.Range"));
        let revoke = Some("etcdserverpb.Lease.LeaseRevoke");
        assert_eq!(method("/v3/lease/revoke"), revoke);
        assert_eq!(method("/v3/kv/lease/revoke"), revoke);
        for path in ["/v3alpha/kv/range", "/v3/", "/v3/kv", "/v3/kv/range/", ""] {
            assert_eq!(method(path), None, "{path}");
        }
    }

    #[test]
    fn rg_60_every_method_but_range_stream_and_health_has_a_path() {
        let pool = DescriptorPool::decode(revstore_proto::FILE_DESCRIPTOR_SET).unwrap();
        let services: Vec<_> = pool.services().collect();
        let methods = services.iter().flat_map(ServiceDescriptor::methods);
        let without_path = methods.filter(|method| {
            let mut routes = ROUTES.values();
            !routes.any(|route| route.method.full_name() == method.full_name())
        });
        let mut names: Vec<_> = without_path.map(|it| it.full_name().to_owned()).collect();
        names.sort_unstable();
        let expected = [
            "etcdserverpb.KV.RangeStream",
            "grpc.health.v1.Health.Check",
            "grpc.health.v1.Health.Watch",
        ];
        assert_eq!(names, expected);
    }
}
