//! Paths that are not those of resources: health, version, discovery.

use std::fmt::Write as _;

use http::StatusCode;
use revstore_host::metrics::CONTENT_TYPE;
use revstore_watch_cache::RequestError;

use crate::http::{Answer, Exchange, Form, Front, Offer, method_not_allowed};
use crate::metrics;
use crate::version;
use crate::{discovery, openapi};

/// What paths without resources can answer.
const PLAIN: Offer<'static> = Offer {
    forms: &[Form::Whole],
    protobuf: false,
    checks_media_first: false,
};

/// Answers a request for a path that is not one of a resource.
pub(crate) async fn answer(front: &Front, exchange: &Exchange) -> Result<Answer, RequestError> {
    let path = exchange.info.path.as_str();
    if path.starts_with("//") {
        return Ok(Answer::page_not_found());
    }
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let is_read = ["get", "head"].contains(&exchange.info.verb);
    match parts.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => Ok(health(front, exchange, &parts)),
        ["metrics"] if is_read => {
            let page = metrics::page(&front.requests, &front.storage.cache);
            let page = page.map_err(|error| RequestError::Internal(error.to_string()))?;
            Ok(Answer::new(StatusCode::OK, CONTENT_TYPE, page))
        }
        ["openapi", ..] if is_read => openapi::answer(front, exchange, &parts).await,
        ["version" | "api" | "apis", ..] if !is_read => Err(method_not_allowed().into()),
        ["version"] => {
            let accepted = exchange.negotiate(PLAIN)?;
            Ok(Answer::value(StatusCode::OK, accepted, &version::info()))
        }
        ["api" | "apis", ..] => discovery::answer(&front.catalog.groups(), exchange, &parts),
        _ => Ok(Answer::page_not_found()),
    }
}

/// The checks of the health paths.
const CHECKS: [&str; 2] = ["ping", "etcd"];
/// The check of `/readyz` that fails while the server stops.
const SHUTDOWN: &str = "shutdown";

/// Answers a health path: the server answers at all, and its store is in the process.
fn health(front: &Front, exchange: &Exchange, parts: &[&str]) -> Answer {
    if parts[0] == "readyz" {
        return readiness(front, exchange, parts);
    }
    match parts[1..] {
        [] if exchange.query.flag("verbose").unwrap_or_default() => {
            let excluded: Vec<&str> = exchange.query.all("exclude").collect();
            let line = |check: &str| {
                let excluded = if excluded.contains(&check) {
                    " excluded:"
                } else {
                    ""
                };
                format!("[+]{check}{excluded} ok\n")
            };
            let lines: String = CHECKS.into_iter().map(line).collect();
            Answer::text(
                StatusCode::OK,
                format!("{lines}{} check passed\n", parts[0]),
            )
        }
        [] => Answer::text(StatusCode::OK, "ok"),
        [check] if CHECKS.contains(&check) => Answer::text(StatusCode::OK, "ok"),
        _ => Answer::page_not_found(),
    }
}

/// Answers `/readyz`, which fails while the server stops, so that load balancers leave it before it is gone.
fn readiness(front: &Front, exchange: &Exchange, parts: &[&str]) -> Answer {
    let fails = |check: &str| check == SHUTDOWN && front.is_stopping();
    let mut checks = CHECKS.into_iter().chain([SHUTDOWN]);
    match parts[1..] {
        [] => {
            let excluded: Vec<&str> = exchange.query.all("exclude").collect();
            let mut lines = String::new();
            let mut has_failed = false;
            for check in checks {
                let (mark, result) = if excluded.contains(&check) {
                    ('+', "excluded: ok")
                } else if fails(check) {
                    has_failed = true;
                    ('-', "failed: reason withheld")
                } else {
                    ('+', "ok")
                };
                let _ = writeln!(lines, "[{mark}]{check} {result}");
            }
            if has_failed {
                let text = format!("{lines}readyz check failed\n");
                Answer::text(StatusCode::INTERNAL_SERVER_ERROR, text)
            } else if exchange.query.flag("verbose").unwrap_or_default() {
                Answer::text(StatusCode::OK, format!("{lines}readyz check passed\n"))
            } else {
                Answer::text(StatusCode::OK, "ok")
            }
        }
        [check] if checks.any(|known| known == check) => {
            if fails(check) {
                let text = format!("internal server error: {check} failed: reason withheld\n");
                Answer::text(StatusCode::INTERNAL_SERVER_ERROR, text)
            } else {
                Answer::text(StatusCode::OK, "ok")
            }
        }
        _ => Answer::page_not_found(),
    }
}
