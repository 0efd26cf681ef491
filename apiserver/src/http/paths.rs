//! Paths that are not those of resources: health, version, discovery.

use http::StatusCode;
use revstore_watch_cache::RequestError;

use crate::http::{Answer, Exchange, Form, Front, Offer, method_not_allowed};
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
        ["healthz" | "livez" | "readyz", ..] => Ok(health(exchange, &parts)),
        ["openapi", ..] if is_read => openapi::answer(exchange, &parts).await,
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

/// Answers a health path: the server answers at all, and its store is in the process.
fn health(exchange: &Exchange, parts: &[&str]) -> Answer {
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
