//! The requests of a port: gRPC calls and the HTTP endpoints (HT-5 to HT-14).
//!
//! `dispatch` separates gRPC calls from other requests, and `calls` counts the gRPC calls. `access` restricts
//! the other requests. This file contains the routes of each kind of port. `health`, `metrics` and `debug`
//! contain the larger endpoints.

mod access;
mod calls;
mod debug;
mod dispatch;
mod extensive_calls;
mod health;
mod metrics;
mod probe;
mod request_timer;

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{
        HeaderName, HeaderValue, Method, StatusCode,
        header::{ALLOW, CONTENT_TYPE, LOCATION, X_CONTENT_TYPE_OPTIONS},
    },
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::any,
};
use revstore_engine::Engine;
use revstore_grpc::{ClusterMember, Identity, Services};
use revstore_persist::Persist;
use tower_service::Service;

use crate::version::{ETCD_CLUSTER_VERSION, ETCD_VERSION};

pub(crate) use access::Access;
pub(crate) use calls::CallCounters;
pub(crate) use calls::CountedResponse;
pub(crate) use dispatch::{CountedFuture, CountedServices, Dispatch, is_grpc};
pub(crate) use extensive_calls::ApplyTimes;
pub(crate) use probe::Probe;

/// The parts of a node that the endpoints use.
#[derive(Debug)]
pub(crate) struct NodeInfo {
    pub(crate) engine: Engine,
    pub(crate) services: Services,
    pub(crate) calls: CallCounters,
    pub(crate) identity: Identity,
    pub(crate) quota_bytes: Option<u64>,
    pub(crate) enable_pprof: bool,
    pub(crate) health_counters: HealthCounters,
    pub(crate) probe: Probe,
    /// With extensive metrics.
    pub(crate) apply_times: Option<ApplyTimes>,
    /// `None` if all data are in memory only.
    pub(crate) persist: Option<Persist>,
}

/// Counters of the results of `/health`.
#[derive(Debug, Default)]
pub(crate) struct HealthCounters {
    successes: AtomicU64,
    failures: AtomicU64,
}

impl HealthCounters {
    fn count(&self, is_healthy: bool) {
        let counter = if is_healthy {
            &self.successes
        } else {
            &self.failures
        };
        // Relaxed: the count does not order other memory accesses.
        counter.fetch_add(1, Relaxed);
    }

    /// Returns the numbers of successes and failures.
    fn counts(&self) -> (u64, u64) {
        // Relaxed: as above.
        (self.successes.load(Relaxed), self.failures.load(Relaxed))
    }
}

/// Returns the routes of client ports, with those of the gateway.
pub(crate) fn client_routes(
    info: &Arc<NodeInfo>,
    gateway: Router<Arc<NodeInfo>>,
    access: Access,
) -> Router {
    let routes = monitoring_routes()
        .merge(gateway)
        .merge(version_routes())
        .merge(debug::routes(info.enable_pprof))
        .fallback(not_found)
        .with_state(info.clone());
    access::require_host(access::restrict(routes, access, info))
}

/// Returns the routes of the ports of `--listen-metrics-urls` (HT-12).
pub(crate) fn metrics_routes(info: &Arc<NodeInfo>) -> Router {
    let routes = monitoring_routes().fallback(not_found);
    access::require_host(routes.with_state(info.clone()))
}

/// Returns the routes of peer ports (HT-14).
pub(crate) fn peer_routes(info: &Arc<NodeInfo>) -> Router {
    let routes = version_routes()
        .route("/members", any(members))
        .fallback(not_found);
    access::require_host(routes.with_state(info.clone()))
}

/// Returns the routes of health checks and metrics, which client and metrics ports share.
fn monitoring_routes() -> Router<Arc<NodeInfo>> {
    Router::new()
        .merge(health::routes().route_layer(middleware::from_fn(only_get)))
        .route("/metrics", any(metrics::show))
}

/// Returns the routes of the JSON gateway, which converts JSON requests to gRPC calls (HT-20). The gateway routes the paths
/// below the prefixes.
pub(crate) fn gateway_routes<G>(gateway: &G) -> Router<Arc<NodeInfo>>
where
    G: Service<
            Request,
            Response = axum::http::Response<tonic::body::Body>,
            Error = Infallible,
            Future: Send + 'static,
        > + Clone
        + Send
        + Sync
        + 'static,
{
    let routes = Router::new().route("/v3", any(redirect_to_gateway));
    let paths = ["/v3/", "/v3/{*path}", "/v3beta/", "/v3beta/{*path}"];
    paths.into_iter().fold(routes, |routes, path| {
        routes.route_service(path, gateway.clone())
    })
}

fn version_routes() -> Router<Arc<NodeInfo>> {
    Router::new()
        .route("/version", any(version))
        .route_layer(middleware::from_fn(only_get))
}

/// `/version` (HT-9).
async fn version() -> Response {
    let body =
        format!(r#"{{"etcdserver":"{ETCD_VERSION}","etcdcluster":"{ETCD_CLUSTER_VERSION}"}}"#);
    json_response(body)
}

/// `/members` on peer ports (HT-14).
async fn members(State(info): State<Arc<NodeInfo>>) -> Response {
    let identity = &info.identity;
    let members = info.services.members();
    let members: Vec<_> = members.iter().map(ClusterMember::to_json).collect();
    let mut response = json_response(format!("[{}]\n", members.join(",")));
    if let Ok(id) = HeaderValue::try_from(format!("{:x}", identity.cluster_id)) {
        let name = HeaderName::from_static("x-etcd-cluster-id");
        response.headers_mut().insert(name, id);
    }
    response
}

/// Redirects `/v3` to the gateway, like Go's router (HT-11).
async fn redirect_to_gateway() -> Response {
    let location = [(LOCATION, HeaderValue::from_static("/v3/"))];
    (StatusCode::MOVED_PERMANENTLY, location).into_response()
}

async fn not_found() -> Response {
    error(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// Rejects all methods except GET (HT-6). HEAD is rejected too.
async fn only_get(request: Request, next: Next) -> Response {
    if request.method() == Method::GET {
        return next.run(request).await;
    }
    let mut response = error(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n");
    let headers = response.headers_mut();
    headers.insert(ALLOW, HeaderValue::from_static("GET"));
    response
}

const TEXT: &str = "text/plain; charset=utf-8";

fn text(body: impl Into<Body>) -> Response {
    response(StatusCode::OK, TEXT, body)
}

fn json_response(body: impl Into<Body>) -> Response {
    response(StatusCode::OK, "application/json", body)
}

/// Returns a plain text with a header that prevents browsers from guessing another type.
fn error(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = response(status, TEXT, body);
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn response(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response {
    let content_type = HeaderValue::from_static(content_type);
    (status, [(CONTENT_TYPE, content_type)], body.into()).into_response()
}
