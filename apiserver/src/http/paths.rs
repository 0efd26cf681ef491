//! Paths that are not those of resources: health, version, discovery.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use http::header::CACHE_CONTROL;
use http::{HeaderValue, Method, StatusCode};
use revstore_host::metrics::CONTENT_TYPE;
use revstore_watch_cache::RequestError;
use revstore_watch_cache::status::Status;
use serde_json::json;

use crate::auth::{CONFIGURATION_PATH, Documents, KEYS_PATH};
use crate::http::{Accepted, Answer, Exchange, Front, method_not_allowed};
use crate::metrics;
use crate::version;
use crate::{discovery, openapi};

/// Answers a request for a path that is not one of a resource.
pub(crate) async fn answer(front: &Front, exchange: &Exchange) -> Result<Answer, RequestError> {
    let path = exchange.info.path.as_str();
    if path.starts_with("//") {
        return Ok(Answer::page_not_found());
    }
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let is_directory = path.len() > 1 && path.ends_with('/');
    let is_read = ["get", "head"].contains(&exchange.info.verb);
    match parts.as_slice() {
        ["" | "index.html"] if path == "/" || path == "/index.html" => Ok(index(front)),
        [".well-known", "openid-configuration"] => {
            let text = documents(front).map(|documents| &documents.configuration);
            openid(exchange, text, "application/json")
        }
        ["openid", "v1", "jwks"] => {
            let text = documents(front).map(|documents| &documents.keys);
            openid(exchange, text, KEYS_TYPE)
        }
        [".well-known", "openid-configuration", ..] | ["openid", "v1", "jwks", ..]
            if documents(front).is_some() =>
        {
            Err(Status::unknown_resource().into())
        }
        ["healthz" | "livez" | "readyz" | "metrics", ..] if is_directory => {
            Ok(Answer::page_not_found())
        }
        ["healthz" | "livez" | "readyz", ..] => Ok(health(front, exchange, &parts).await),
        ["metrics"] if is_read => {
            let page = metrics::page(
                &front.requests,
                &front.webhook_metrics,
                &front.metrics,
                front.limits.waiting(),
                &front.storage.cache,
            );
            let page = page.map_err(|error| RequestError::Internal(error.to_string()))?;
            Ok(Answer::new(StatusCode::OK, CONTENT_TYPE, page))
        }
        ["metrics", "slis"] if is_read => {
            let page = metrics::checks_page(&front.metrics);
            let page = page.map_err(|error| RequestError::Internal(error.to_string()))?;
            Ok(Answer::new(StatusCode::OK, CONTENT_TYPE, page))
        }
        // These take all methods.
        ["openapi", ..] => openapi::answer(front, exchange, &parts).await,
        ["version", _, ..] => Err(Status::unknown_resource().into()),
        ["version"] if exchange.info.verb != "get" => Err(method_not_allowed().into()),
        ["version"] => {
            let accepted = exchange.accepts_json()?;
            Ok(Answer::value(StatusCode::OK, accepted, &version::info()))
        }
        ["api" | "apis", ..] => {
            let groups = front.catalog.groups();
            discovery::answer(&groups, exchange, &parts, is_read)
        }
        _ => Ok(Answer::page_not_found()),
    }
}

/// The media type of a set of keys.
const KEYS_TYPE: &str = "application/jwk-set+json";
/// How long others may keep the documents about the issuer of tokens, as in kube-apiserver.
const OPENID_CACHE_CONTROL: &str = "public, max-age=3600";

fn documents(front: &Front) -> Option<&Documents> {
    front.authenticator.service_accounts.documents.as_ref()
}

/// Answers with a document about the issuer of the tokens of service accounts.
///
/// # Errors
/// 405; 406.
fn openid(
    exchange: &Exchange,
    document: Option<&String>,
    media_type: &'static str,
) -> Result<Answer, RequestError> {
    let Some(document) = document else {
        return Ok(Answer::page_not_found());
    };
    if exchange.method != Method::GET {
        return Err(method_not_allowed().into());
    }
    exchange.accepts(media_type)?;
    let answer = Answer::new(StatusCode::OK, media_type, document.clone());
    let cached = HeaderValue::from_static(OPENID_CACHE_CONTROL);
    Ok(answer.header(CACHE_CONTROL, cached))
}

/// Answers with a list of the paths of the server, to all methods.
fn index(front: &Front) -> Answer {
    let mut paths: BTreeSet<String> = [
        "/apis",
        "/apis/",
        "/metrics",
        "/metrics/slis",
        "/openapi/v2",
        "/openapi/v3",
        "/openapi/v3/",
        "/version",
    ]
    .map(str::to_owned)
    .into();
    if documents(front).is_some() {
        paths.extend([CONFIGURATION_PATH, KEYS_PATH].map(str::to_owned));
    }
    for name in ["healthz", "livez", "readyz"] {
        paths.insert(format!("/{name}"));
        paths.extend(checks(name).map(|check| format!("/{name}/{check}")));
    }
    for (name, group) in front.catalog.groups().iter() {
        let root = match name.as_str() {
            "" => "/api".to_owned(),
            name => format!("/apis/{name}"),
        };
        let versions = group.versions.iter();
        paths.extend(versions.map(|version| format!("{root}/{}", version.name)));
        paths.insert(root);
    }
    let accepted = Accepted {
        pretty: true,
        ..Accepted::default()
    };
    Answer::value(StatusCode::OK, accepted, &json!({"paths": paths}))
}

/// The checks of the health paths.
const CHECKS: [&str; 2] = ["ping", "etcd"];
/// The check of `/readyz` that fails while the server stops.
const SHUTDOWN: &str = "shutdown";

/// Returns the checks of a health path.
fn checks(name: &str) -> impl Iterator<Item = &'static str> + use<> {
    let shutdown = (name == "readyz").then_some(SHUTDOWN);
    CHECKS.into_iter().chain(shutdown)
}

/// Answers a health path: the server answers at all, its store does, and, for `/readyz`, it does not stop, so that load
/// balancers leave it before it is gone.
async fn health(front: &Front, exchange: &Exchange, parts: &[&str]) -> Answer {
    let name = parts[0];
    let checks: Vec<&str> = checks(name).collect();
    let excluded: Vec<&str> = exchange.query.all("exclude").collect();
    let asked: Vec<&str> = match parts[1..] {
        [] => checks
            .iter()
            .copied()
            .filter(|check| !excluded.contains(check))
            .collect(),
        [check] if checks.contains(&check) => vec![check],
        _ => return Answer::page_not_found(),
    };
    let mut failed = Vec::new();
    for check in &asked {
        let result = match *check {
            "etcd" => front.storage.check().await,
            SHUTDOWN if front.is_stopping() => Err(format!("{check} failed: reason withheld")),
            _ => Ok(()),
        };
        front.metrics.checked(name, check, result.is_ok());
        failed.extend(result.err().map(|error| (*check, error)));
    }
    if parts.len() > 1 {
        return match failed.first() {
            None => Answer::text(StatusCode::OK, "ok"),
            Some((_, error)) => {
                let text = format!("internal server error: {error}\n");
                Answer::text(StatusCode::INTERNAL_SERVER_ERROR, text)
            }
        };
    }
    let mut lines = String::new();
    for check in checks {
        let (mark, result) = if !asked.contains(&check) {
            ('+', "excluded: ok")
        } else if failed.iter().any(|(failed, _)| *failed == check) {
            ('-', "failed: reason withheld")
        } else {
            ('+', "ok")
        };
        let _ = writeln!(lines, "[{mark}]{check} {result}");
    }
    if !failed.is_empty() {
        let text = format!("{lines}{name} check failed\n");
        return Answer::text(StatusCode::INTERNAL_SERVER_ERROR, text);
    }
    if exchange.query.flag("verbose").unwrap_or_default() {
        return Answer::text(StatusCode::OK, format!("{lines}{name} check passed\n"));
    }
    Answer::text(StatusCode::OK, "ok")
}
