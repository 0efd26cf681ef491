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

use super::{Facts, error, not_found, text};

/// Something that must hold for a server to be live or ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// No alarm says that data was found damaged.
    DataCorruption,
    /// The server answers reads from what it has.
    SerializableRead,
    /// The server answers reads that a cluster would have to agree on.
    LinearizableRead,
    /// The server is a voting member.
    NonLearner,
}

/// What `/livez` asks.
pub(super) const LIVEZ: &[Check] = &[Check::SerializableRead];

/// What `/readyz` asks. A full store is ready; a damaged one is not.
pub(super) const READYZ: &[Check] = &[
    Check::DataCorruption,
    Check::SerializableRead,
    Check::LinearizableRead,
    Check::NonLearner,
];

impl Check {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::DataCorruption => "data_corruption",
            Self::SerializableRead => "serializable_read",
            Self::LinearizableRead => "linearizable_read",
            Self::NonLearner => "non_learner",
        }
    }

    /// Says why the check fails, if it does.
    pub(super) fn failure(self, facts: &Facts) -> Option<String> {
        match self {
            Self::DataCorruption => facts
                .services
                .alarms()
                .is_raised(AlarmKind::Corrupt)
                .then(|| format!("alarm activated: {}", AlarmKind::Corrupt)),
            Self::SerializableRead | Self::LinearizableRead => {
                // One member agrees with itself, and a read of the current revision cannot fail:
                // that this line is reached is the answer.
                let _ = facts.engine.current_revision();
                None
            }
            Self::NonLearner => None,
        }
    }
}

pub(super) fn routes() -> Router<Arc<Facts>> {
    Router::new()
        .route("/health", any(health))
        .route("/livez", any(livez))
        .route("/livez/{check}", any(one_of_livez))
        .route("/readyz", any(readyz))
        .route("/readyz/{check}", any(one_of_readyz))
}

/// HT-5, HT-6. `serializable` changes nothing on one node.
async fn health(State(facts): State<Arc<Facts>>, RawQuery(query): RawQuery) -> Response {
    let query = Query::new(query.as_deref());
    let alarms = facts.services.alarms().list(None);
    let alarm = alarms
        .iter()
        .map(|alarm| alarm.kind.to_string())
        .find(|kind| !query.excludes(kind));
    facts.probes.count(alarm.is_none());
    match alarm {
        None => text(r#"{"health":"true","reason":""}"#),
        Some(kind) => error(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("{{\"health\":\"false\",\"reason\":\"ALARM {kind}\"}}\n"),
        ),
    }
}

async fn livez(State(facts): State<Arc<Facts>>, RawQuery(query): RawQuery) -> Response {
    report(LIVEZ, &facts, &Query::new(query.as_deref()))
}

async fn readyz(State(facts): State<Arc<Facts>>, RawQuery(query): RawQuery) -> Response {
    report(READYZ, &facts, &Query::new(query.as_deref()))
}

async fn one_of_livez(
    State(facts): State<Arc<Facts>>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    report_one(LIVEZ, &name, &facts, query.as_deref()).await
}

async fn one_of_readyz(
    State(facts): State<Arc<Facts>>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    report_one(READYZ, &name, &facts, query.as_deref()).await
}

async fn report_one(checks: &[Check], name: &str, facts: &Facts, query: Option<&str>) -> Response {
    match checks.iter().find(|check| check.name() == name) {
        Some(check) => report(&[*check], facts, &Query::new(query)),
        None => not_found().await,
    }
}

/// HT-8: `ok`, with the checks in front if asked for; or the checks, with what is wrong.
fn report(checks: &[Check], facts: &Facts, query: &Query<'_>) -> Response {
    let mut lines = String::new();
    let mut is_well = true;
    for check in checks {
        let name = check.name();
        if query.excludes(name) {
            continue;
        }
        // Writing to a String cannot fail.
        let _ = match check.failure(facts) {
            None => writeln!(lines, "[+]{name} ok"),
            Some(failure) => {
                is_well = false;
                writeln!(lines, "[-]{name} failed: {failure}")
            }
        };
    }
    if !is_well {
        return error(StatusCode::SERVICE_UNAVAILABLE, lines + "\n");
    }
    let lines = if query.is_verbose() {
        lines
    } else {
        String::new()
    };
    error(StatusCode::OK, lines + "ok\n")
}

/// The part of a path after `?`. Names of checks and alarms need no escapes, so none are read.
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
    use super::*;

    #[test]
    fn ht_8_queries() {
        let query = Query::new(Some("verbose&exclude=a&exclude=b"));
        assert!(query.is_verbose() && query.excludes("a") && query.excludes("b"));
        assert!(!query.excludes("c") && !query.excludes(""));
        assert!(Query::new(Some("verbose=1")).is_verbose());
        assert!(!Query::new(None).is_verbose() && !Query::new(None).excludes("a"));
    }
}
