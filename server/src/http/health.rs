//! `/health`, `/livez` and `/readyz` (HT-5 to HT-8).

use std::{fmt::Write, sync::Arc};

use axum::{
    Router,
    extract::{Path, RawQuery, State},
    http::StatusCode,
    response::Response,
    routing::any,
};
use revstore_grpc::AlarmKind;
use revstore_persist::Persist;

use super::{NodeInfo, error, not_found, probe::ProbeError, text};

/// A condition for a server to be live or ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HealthCheck {
    /// The CORRUPT alarm is not raised.
    DataCorruption,
    /// The server responds to serializable reads, and a write can begin.
    SerializableRead,
    /// The server responds to linearizable reads, and a write can begin.
    LinearizableRead,
    /// The server is a voting member.
    NonLearner,
    /// The data directory can be written. Only with `--persist`.
    Persist,
}

/// The checks of `/livez`.
pub(super) const LIVEZ: &[HealthCheck] = &[HealthCheck::SerializableRead];

/// The checks of `/readyz`. They do not include the NOSPACE alarm: a full store is ready.
pub(super) const READYZ: &[HealthCheck] = &[
    HealthCheck::DataCorruption,
    HealthCheck::SerializableRead,
    HealthCheck::LinearizableRead,
    HealthCheck::NonLearner,
];

/// The checks of `/readyz` with `--persist`.
pub(super) const READYZ_PERSIST: &[HealthCheck] = &[
    HealthCheck::DataCorruption,
    HealthCheck::SerializableRead,
    HealthCheck::LinearizableRead,
    HealthCheck::NonLearner,
    HealthCheck::Persist,
];

fn readyz_checks(info: &NodeInfo) -> &'static [HealthCheck] {
    match info.persist {
        None => READYZ,
        Some(_) => READYZ_PERSIST,
    }
}

impl HealthCheck {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::DataCorruption => "data_corruption",
            Self::SerializableRead => "serializable_read",
            Self::LinearizableRead => "linearizable_read",
            Self::NonLearner => "non_learner",
            Self::Persist => "persist",
        }
    }

    /// Returns the reason if the check fails. `engine` is the result of the probe.
    pub(super) fn failure(self, info: &NodeInfo, engine: Result<(), ProbeError>) -> Option<String> {
        match self {
            Self::DataCorruption => info
                .services
                .alarms()
                .is_raised(AlarmKind::Corrupt)
                .then(|| format!("alarm activated: {}", AlarmKind::Corrupt)),
            // With one member, a read needs no agreement.
            Self::SerializableRead | Self::LinearizableRead => {
                engine.err().map(|error| error.to_string())
            }
            Self::NonLearner => None,
            Self::Persist => {
                let health = info.persist.as_ref().map(Persist::health);
                health.and_then(Result::err).map(|error| error.to_string())
            }
        }
    }
}

pub(super) fn routes() -> Router<Arc<NodeInfo>> {
    Router::new()
        .route("/health", any(health))
        .route("/livez", any(livez))
        .route("/livez/{check}", any(livez_check))
        .route("/readyz", any(readyz))
        .route("/readyz/{check}", any(readyz_check))
}

/// `/health` (HT-5, HT-6). `serializable` has no effect with one member.
async fn health(State(info): State<Arc<NodeInfo>>, RawQuery(query): RawQuery) -> Response {
    let query = Query::new(query.as_deref());
    let alarms = info.services.alarms().list(None);
    let alarm = alarms
        .iter()
        .map(|alarm| alarm.kind.to_string())
        .find(|kind| !query.excludes(kind));
    let reason = match alarm {
        Some(kind) => Some(format!("ALARM {kind}")),
        None => info
            .probe
            .is_alive()
            .await
            .err()
            .map(|error| format!("RANGE ERROR:{error}")),
    };
    info.health_counters.count(reason.is_none());
    match reason {
        None => text(r#"{"health":"true","reason":""}"#),
        Some(reason) => error(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("{{\"health\":\"false\",\"reason\":\"{reason}\"}}\n"),
        ),
    }
}

async fn livez(State(info): State<Arc<NodeInfo>>, RawQuery(query): RawQuery) -> Response {
    report(LIVEZ, &info, &Query::new(query.as_deref())).await
}

async fn readyz(State(info): State<Arc<NodeInfo>>, RawQuery(query): RawQuery) -> Response {
    report(readyz_checks(&info), &info, &Query::new(query.as_deref())).await
}

async fn livez_check(
    State(info): State<Arc<NodeInfo>>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    report_check(LIVEZ, &name, &info, query.as_deref()).await
}

async fn readyz_check(
    State(info): State<Arc<NodeInfo>>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    report_check(readyz_checks(&info), &name, &info, query.as_deref()).await
}

async fn report_check(
    checks: &[HealthCheck],
    name: &str,
    info: &NodeInfo,
    query: Option<&str>,
) -> Response {
    match checks.iter().find(|check| check.name() == name) {
        Some(check) => report(&[*check], info, &Query::new(query)).await,
        None => not_found().await,
    }
}

/// Returns `ok` if all checks pass, preceded by the list of checks if `verbose` is set. Otherwise returns the
/// list of checks with the reasons for failures (HT-8).
async fn report(checks: &[HealthCheck], info: &NodeInfo, query: &Query<'_>) -> Response {
    let engine = info.probe.is_alive().await;
    let mut lines = String::new();
    let mut all_pass = true;
    for check in checks {
        let name = check.name();
        if query.excludes(name) {
            continue;
        }
        // Writing to a String cannot fail.
        let _ = match check.failure(info, engine) {
            None => writeln!(lines, "[+]{name} ok"),
            Some(failure) => {
                all_pass = false;
                writeln!(lines, "[-]{name} failed: {failure}")
            }
        };
    }
    if !all_pass {
        return error(StatusCode::SERVICE_UNAVAILABLE, lines + "\n");
    }
    let lines = if query.is_verbose() {
        lines
    } else {
        String::new()
    };
    error(StatusCode::OK, lines + "ok\n")
}

/// The query of a URL. Escapes are not decoded: names of checks and alarms need none.
struct Query<'a>(&'a str);

impl<'a> Query<'a> {
    fn new(query: Option<&'a str>) -> Self {
        Self(query.unwrap_or_default())
    }

    fn pairs(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let pairs = self.0.split('&');
        pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    }

    fn excludes(&self, name: &str) -> bool {
        self.pairs().any(|pair| pair == ("exclude", name))
    }

    fn is_verbose(&self) -> bool {
        self.pairs().any(|(key, _)| key == "verbose")
    }
}

#[cfg(test)]
mod tests {
    use axum::{
        body::{Body, to_bytes},
        extract::Request,
    };
    use revstore_engine::{Engine, WriteError};
    use revstore_grpc::{Identity, Services};
    use tower_service::Service as _;

    use super::*;
    use crate::http::{CallCounters, HealthCounters, Probe, metrics_routes};

    #[test]
    fn ht_8_queries_select_verbose_output_and_exclude_checks() {
        let query = Query::new(Some("verbose&exclude=a&exclude=b"));
        assert!(query.is_verbose() && query.excludes("a") && query.excludes("b"));
        assert!(!query.excludes("c") && !query.excludes(""));
        assert!(Query::new(Some("verbose=1")).is_verbose());
        assert!(!Query::new(None).is_verbose() && !Query::new(None).excludes("a"));
    }

    /// Returns a node over an engine for which the probe is not asked.
    fn node(probe: Probe) -> Arc<NodeInfo> {
        let engine = Engine::builder().build();
        Arc::new(NodeInfo {
            services: Services::builder(engine.clone()).build(),
            engine,
            calls: CallCounters::new(false),
            identity: Identity::default(),
            quota_bytes: None,
            enable_pprof: false,
            health_counters: HealthCounters::default(),
            probe,
            apply_times: None,
            persist: None,
        })
    }

    async fn get(info: &Arc<NodeInfo>, path: &str) -> (StatusCode, String) {
        let request = Request::get(path)
            .header("host", "localhost")
            .body(Body::empty())
            .unwrap();
        let mut routes = metrics_routes(info);
        let response = routes.call(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    #[tokio::test]
    async fn ht_19_a_store_that_refuses_writes_after_a_panic_is_not_healthy() {
        let damaged = node(Probe::of_refusing(WriteError::Damaged));
        for path in ["/health", "/livez", "/readyz", "/livez/serializable_read"] {
            let (status, body) = get(&damaged, path).await;
            assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{path}");
            assert!(body.contains(&WriteError::Damaged.to_string()), "{body}");
        }
        let well = node(Probe::new(Engine::builder().build()));
        for path in ["/health", "/livez", "/readyz", "/livez/serializable_read"] {
            assert_eq!(get(&well, path).await.0, StatusCode::OK, "{path}");
        }
        for (info, poisoned) in [
            (damaged, "revstore_poisoned 1"),
            (well, "revstore_poisoned 0"),
        ] {
            let (status, page) = get(&info, "/metrics").await;
            assert_eq!(status, StatusCode::OK);
            assert!(page.lines().any(|line| line == poisoned), "{page}");
        }
    }
}
