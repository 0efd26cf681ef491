//! The restrictions on HTTP requests: the `Host` header, `--host-whitelist` and `--cors` (HT-15 to HT-17).
//!
//! gRPC calls do not pass this file, as in etcd. A browser cannot send them.

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{
        HeaderMap, HeaderValue, Method, StatusCode, Version,
        header::{
            ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
            ACCESS_CONTROL_ALLOW_ORIGIN, CONNECTION, CONTENT_TYPE, HOST, ORIGIN,
        },
    },
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use revstore_grpc::CertifiedName;
use tracing::warn;

use super::{NodeInfo, TEXT, error};
use crate::config::AllowList;

/// The number of bytes of a rejected host name in the log and in the response. It exceeds the length of any
/// DNS name.
const SHOWN_HOST_BYTES_MAX: usize = 255;

/// The restrictions on the requests of a client URL.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    /// The host names that requests may be for.
    pub(crate) hosts: AllowList,
    /// The origins whose scripts may read responses.
    pub(crate) origins: AllowList,
    /// Whether the gateway is served, which does not authenticate by certificate.
    pub(crate) has_gateway: bool,
}

/// Restricts the requests to `routes`.
pub(super) fn restrict(routes: Router, access: Access, info: &Arc<NodeInfo>) -> Router {
    let state = (Arc::new(access), info.clone());
    routes.layer(middleware::from_fn_with_state(state, check))
}

/// Rejects requests without a single valid host (HT-15), and responds to `OPTIONS *`, as Go's server does
/// for all its ports.
pub(super) fn require_host<S: Clone + Send + Sync + 'static>(routes: Router<S>) -> Router<S> {
    routes.layer(middleware::from_fn(check_host_header))
}

async fn check_host_header(request: Request, next: Next) -> Response {
    let mut hosts = request.headers().get_all(HOST).iter();
    let problem = match (hosts.next(), hosts.next()) {
        (Some(_), Some(_)) => Some("400 Bad Request"),
        (Some(host), None) if !host.as_bytes().iter().copied().all(is_host_byte) => {
            Some("400 Bad Request: malformed Host header")
        }
        (None, _)
            if request.version() == Version::HTTP_11 && request.method() != Method::CONNECT =>
        {
            Some("400 Bad Request: missing required Host header")
        }
        _ => None,
    };
    match problem {
        Some(problem) => {
            let headers = [
                (CONTENT_TYPE, HeaderValue::from_static(TEXT)),
                (CONNECTION, HeaderValue::from_static("close")),
            ];
            (StatusCode::BAD_REQUEST, headers, problem).into_response()
        }
        None if request.method() == Method::OPTIONS && request.uri().path() == "*" => {
            StatusCode::OK.into_response()
        }
        None => next.run(request).await,
    }
}

/// Returns whether Go accepts a byte in a `Host` header.
fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!$%&'()*+,-.:;=[]_~".contains(&byte)
}

/// Checks a request in the order of etcd: the host, the certificate, the origin; then the method.
async fn check(
    State((access, info)): State<(Arc<Access>, Arc<NodeInfo>)>,
    request: Request,
    next: Next,
) -> Response {
    let host = hostname(host_and_port(&request));
    if !access.hosts.allows(host) {
        return misdirected(host);
    }
    if access.has_gateway && is_for_gateway(&request) && is_certified(&request, &info) {
        // TL-2.
        return error(
            StatusCode::BAD_REQUEST,
            "CommonName of client sending a request against gateway will be ignored and not used \
             as expected\n",
        );
    }
    let origin = allowed_origin(&access.origins, request.headers());
    let mut response = if request.method() == Method::OPTIONS {
        StatusCode::OK.into_response()
    } else {
        next.run(request).await
    };
    if let Some(origin) = origin {
        response.headers_mut().extend(HeaderMap::from_iter([
            (
                ACCESS_CONTROL_ALLOW_HEADERS,
                HeaderValue::from_static("accept, content-type, authorization"),
            ),
            (
                ACCESS_CONTROL_ALLOW_METHODS,
                HeaderValue::from_static("POST, GET, OPTIONS, PUT, DELETE"),
            ),
            (ACCESS_CONTROL_ALLOW_ORIGIN, origin),
        ]));
    }
    response
}

/// Returns the host that a request is for, with its port. The target of the request takes precedence over
/// the `Host` header, as in Go; with HTTP/2 it is `:authority`.
fn host_and_port(request: &Request) -> &str {
    if let Some(authority) = request.uri().authority() {
        let authority = authority.as_str();
        return authority
            .rsplit_once('@')
            .map_or(authority, |(_, host)| host);
    }
    let host = request.headers().get(HOST);
    host.and_then(|host| host.to_str().ok()).unwrap_or_default()
}

/// Removes the port from a host, and then the brackets of an IPv6 address. As in Go, they remain if there is
/// no port, or if the text is malformed.
fn hostname(text: &str) -> &str {
    let Some((host, port)) = text.rsplit_once(':') else {
        return text;
    };
    let is_bracket = |c| matches!(c, '[' | ']');
    if port.contains(is_bracket) {
        return text;
    }
    match host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
    {
        Some(address) if !address.contains(is_bracket) => address,
        None if !host.contains(is_bracket) && !host.contains(':') => host,
        _ => text,
    }
}

/// Returns the response to a request for a host that is not in `--host-whitelist` (HT-16).
fn misdirected(host: &str) -> Response {
    let host = host.get(..SHOWN_HOST_BYTES_MAX).unwrap_or(host);
    warn!(
        host,
        "rejected an HTTP request for a host that is not in --host-whitelist"
    );
    let body = format!(
        "The host {host:?} of the request is not in the list of --host-whitelist.\n\
         Requests without TLS must be for a host in this list, which protects browsers from DNS \
         rebinding (CVE-2018-5702).\n"
    );
    error(StatusCode::MISDIRECTED_REQUEST, Body::from(body))
}

/// Returns the origin that scripts must have to read the response to a request; `None` if none may (HT-17).
fn allowed_origin(origins: &AllowList, headers: &HeaderMap) -> Option<HeaderValue> {
    if *origins == AllowList::All {
        return Some(HeaderValue::from_static("*"));
    }
    let origin = headers.get(ORIGIN)?;
    let is_allowed = origin.to_str().is_ok_and(|origin| origins.allows(origin));
    is_allowed.then(|| origin.clone())
}

fn is_for_gateway(request: &Request) -> bool {
    let path = request.uri().path();
    path.starts_with("/v3/") || path.starts_with("/v3beta/")
}

/// Returns whether auth is enabled and the client has a user name in its certificate.
fn is_certified(request: &Request, info: &NodeInfo) -> bool {
    let user = request.extensions().get::<CertifiedName>();
    user.is_some_and(|user| !user.as_str().is_empty()) && info.services.is_auth_enabled()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ht_16_the_port_of_a_host_is_removed_as_in_go() {
        for (text, expected) in [
            ("", ""),
            ("a", "a"),
            ("a:1", "a"),
            ("a:", "a"),
            ("a:b", "a"),
            (":1", ""),
            ("a:1:2", "a:1:2"),
            ("::1", "::1"),
            ("[::1]", "[::1]"),
            ("[::1]:1", "::1"),
            ("[::1]:", "::1"),
            ("[::1]x:1", "[::1]x:1"),
            ("[::1:1", "[::1:1"),
            ("a]:1", "a]:1"),
            ("[a]b]:1", "[a]b]:1"),
            ("[[a]:1", "[[a]:1"),
            ("a:1]", "a:1]"),
        ] {
            assert_eq!(hostname(text), expected, "{text:?}");
        }
    }
}
