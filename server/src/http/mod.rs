//! The HTTP endpoints beside gRPC (HT-5 to HT-14).
//!
//! Here stands which port answers which path, and what all answers have in common.

mod debug;
mod health;
mod metrics;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{
        HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
        header::{
            ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
            ACCESS_CONTROL_ALLOW_ORIGIN, ALLOW, CONTENT_TYPE, LOCATION, X_CONTENT_TYPE_OPTIONS,
        },
    },
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::any,
};
use revstore_engine::Engine;
use revstore_grpc::{CertifiedName, Gateway, Identity, Services};
use serde_json::json;

use crate::{
    calls::Calls,
    dispatch::Grpc,
    version::{ETCD_CLUSTER_VERSION, ETCD_VERSION},
};

/// What the endpoints tell about.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) engine: Engine,
    pub(crate) services: Services,
    pub(crate) calls: Calls,
    pub(crate) identity: Identity,
    pub(crate) quota_bytes: Option<u64>,
    pub(crate) enable_pprof: bool,
    pub(crate) probes: Probes,
}

/// How often `/health` was asked, and what it said.
#[derive(Debug, Default)]
pub(crate) struct Probes {
    successes: AtomicU64,
    failures: AtomicU64,
}

impl Probes {
    fn count(&self, is_healthy: bool) {
        let counter = if is_healthy {
            &self.successes
        } else {
            &self.failures
        };
        // Relaxed: a mere count, which orders nothing.
        counter.fetch_add(1, Relaxed);
    }

    /// Successes and failures until now.
    fn counts(&self) -> (u64, u64) {
        // Relaxed: as above.
        (self.successes.load(Relaxed), self.failures.load(Relaxed))
    }
}

/// What client ports answer; `gateway` makes gRPC calls out of JSON.
pub(crate) fn client_routes(facts: &Arc<Facts>, gateway: &Gateway<Grpc>) -> Router {
    monitoring_routes()
        .merge(gateway_routes(facts, gateway))
        .merge(version_routes())
        .merge(debug::routes(facts.enable_pprof))
        .fallback(not_found)
        .layer(middleware::from_fn(allow_other_origins))
        .with_state(facts.clone())
}

/// What ports of `--listen-metrics-urls` answer (HT-12).
pub(crate) fn metrics_routes(facts: &Arc<Facts>) -> Router {
    monitoring_routes()
        .fallback(not_found)
        .with_state(facts.clone())
}

/// What peer ports answer (HT-14).
pub(crate) fn peer_routes(facts: &Arc<Facts>) -> Router {
    version_routes()
        .route("/members", any(members))
        .fallback(not_found)
        .with_state(facts.clone())
}

fn monitoring_routes() -> Router<Arc<Facts>> {
    Router::new()
        .merge(health::routes().route_layer(middleware::from_fn(only_get)))
        .route("/metrics", any(metrics::show))
}

/// HT-20. Which paths behind the prefixes there are is for the gateway to know.
fn gateway_routes(facts: &Arc<Facts>, gateway: &Gateway<Grpc>) -> Router<Arc<Facts>> {
    // HT-11.
    let routes = Router::new().route("/v3", any(to_gateway));
    let paths = ["/v3/", "/v3/{*path}", "/v3beta/", "/v3beta/{*path}"];
    let routes = paths.into_iter().fold(routes, |routes, path| {
        routes.route_service(path, gateway.clone())
    });
    let only_with_token = middleware::from_fn_with_state(facts.clone(), refuse_certified_users);
    routes.route_layer(only_with_token)
}

/// TL-2: behind the gateway, certificates do not say who asks. Who has one that would is told so.
async fn refuse_certified_users(
    State(facts): State<Arc<Facts>>,
    request: Request,
    next: Next,
) -> Response {
    let user = request.extensions().get::<CertifiedName>();
    let is_named = user.is_some_and(|user| !user.as_str().is_empty());
    if is_named && facts.services.is_auth_enabled() {
        return error(
            StatusCode::BAD_REQUEST,
            "CommonName of client sending a request against gateway will be ignored and not used \
             as expected\n",
        );
    }
    next.run(request).await
}

fn version_routes() -> Router<Arc<Facts>> {
    Router::new()
        .route("/version", any(version))
        .route_layer(middleware::from_fn(only_get))
}

/// HT-9.
async fn version() -> Response {
    let body =
        format!(r#"{{"etcdserver":"{ETCD_VERSION}","etcdcluster":"{ETCD_CLUSTER_VERSION}"}}"#);
    json_answer(body)
}

async fn members(State(facts): State<Arc<Facts>>) -> Response {
    let identity = &facts.identity;
    let mut answer = json_answer(format!(
        "[{{\"id\":{},\"peerURLs\":{},\"name\":{},\"clientURLs\":{}}}]\n",
        identity.member_id,
        json!(identity.peer_urls),
        json!(identity.name),
        json!(identity.client_urls),
    ));
    if let Ok(id) = HeaderValue::try_from(format!("{:x}", identity.cluster_id)) {
        let name = HeaderName::from_static("x-etcd-cluster-id");
        answer.headers_mut().insert(name, id);
    }
    answer
}

async fn to_gateway() -> Response {
    let location = [(LOCATION, HeaderValue::from_static("/v3/"))];
    (StatusCode::MOVED_PERMANENTLY, location).into_response()
}

async fn not_found() -> Response {
    error(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// HT-6: anything but GET is refused, HEAD too.
async fn only_get(request: Request, next: Next) -> Response {
    if request.method() == Method::GET {
        return next.run(request).await;
    }
    let mut refused = error(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n");
    let headers = refused.headers_mut();
    headers.insert(ALLOW, HeaderValue::from_static("GET"));
    refused
}

/// HT-11: scripts of any page may read the answers, and may ask beforehand whether they may.
async fn allow_other_origins(request: Request, next: Next) -> Response {
    let mut answer = if request.method() == Method::OPTIONS {
        StatusCode::OK.into_response()
    } else {
        next.run(request).await
    };
    answer.headers_mut().extend(HeaderMap::from_iter([
        (
            ACCESS_CONTROL_ALLOW_HEADERS,
            HeaderValue::from_static("accept, content-type, authorization"),
        ),
        (
            ACCESS_CONTROL_ALLOW_METHODS,
            HeaderValue::from_static("POST, GET, OPTIONS, PUT, DELETE"),
        ),
        (ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*")),
    ]));
    answer
}

const TEXT: &str = "text/plain; charset=utf-8";

fn text(body: impl Into<Body>) -> Response {
    answer(StatusCode::OK, TEXT, body)
}

fn json_answer(body: impl Into<Body>) -> Response {
    answer(StatusCode::OK, "application/json", body)
}

/// A text for people, which browsers are not to take for anything else.
fn error(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut answer = answer(status, TEXT, body);
    let headers = answer.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

fn answer(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response {
    let content_type = HeaderValue::from_static(content_type);
    (status, [(CONTENT_TYPE, content_type)], body.into()).into_response()
}
