//! The routes of the gateway: a method for each path, derived from the table of methods.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use http::uri::PathAndQuery;
use prost_reflect::{DescriptorPool, MethodDescriptor, ServiceDescriptor};

use super::json_writer::JsonLayout;
use crate::methods::RpcMethod;

/// A method that has a path at the gateway.
#[derive(Clone, Debug)]
pub(super) struct Route {
    pub(super) method: MethodDescriptor,
    pub(super) grpc_path: PathAndQuery,
    /// The layout of answers that can be converted while they are sent.
    pub(super) layout: Option<Arc<JsonLayout>>,
}

impl Route {
    /// Returns the route of a path with one of the two prefixes (HT-20).
    pub(super) fn of_path(path: &str) -> Option<&'static Self> {
        let path = path
            .strip_prefix("/v3/")
            .or_else(|| path.strip_prefix("/v3beta/"))?;
        ROUTES.get(path)
    }
}

/// The routes by path. They are built at the first request, because most servers receive no request
/// for the gateway and must start fast.
static ROUTES: LazyLock<HashMap<&'static str, Route>> = LazyLock::new(|| {
    let pool = DescriptorPool::decode(revstore_proto::FILE_DESCRIPTOR_SET);
    let pool = pool.expect("the descriptors are compiled in");
    let mut routes = HashMap::new();
    for method in RpcMethod::all() {
        let service = pool.get_service_by_name(method.service());
        let mut described = service.iter().flat_map(ServiceDescriptor::methods);
        let described = described.find(|described| described.name() == method.name());
        let described = described.expect("every method of the table has a descriptor");
        let is_unary = !described.is_client_streaming() && !described.is_server_streaming();
        let route = Route {
            layout: is_unary
                .then(|| JsonLayout::of(&described.output()))
                .flatten()
                .map(Arc::new),
            method: described,
            grpc_path: PathAndQuery::from_static(method.path()),
        };
        for path in method.gateway_paths() {
            routes.insert(*path, route.clone());
        }
    }
    routes
});

#[cfg(test)]
mod tests {
    use super::*;

    fn method(path: &str) -> Option<&'static str> {
        Route::of_path(path).map(|route| route.method.full_name())
    }

    #[test]
    fn ht_20_both_prefixes_have_all_paths() {
        let all = RpcMethod::all().iter();
        let of_table: usize = all.map(|method| method.gateway_paths().len()).sum();
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
