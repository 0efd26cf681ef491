//! Where a webhook is: the field `clientConfig` of its configuration.

use std::hash::{Hash, Hasher};
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use serde_json::Value;
use thiserror::Error;

/// The port of services and URLs that name none.
pub(super) const DEFAULT_PORT: u16 = 443;

/// Where a webhook is, and which certificate it has. Webhooks with equal endpoints share their connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(super) target: Target,
    /// The scheme, host and port, as in error messages.
    pub(super) origin: String,
    /// The path, without a slash at the end.
    pub(super) path: String,
    /// The name in the certificate of the server.
    pub(super) server_name: String,
    /// The authorities in PEM; `None` for those of the system.
    pub(super) authorities: Option<Vec<u8>>,
}

impl Hash for Endpoint {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Endpoints that differ only in their authorities, which are long, are few.
        (&self.origin, &self.path).hash(state);
    }
}

/// What to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Host {
        host: String,
        port: u16,
    },
    Service {
        namespace: String,
        name: String,
        port: u16,
    },
}

/// The error of a field `clientConfig`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum EndpointError {
    #[error("webhook configuration must have either service or URL")]
    Missing,
    #[error("Unparsable URL: {0}")]
    Url(String),
}

impl Endpoint {
    /// Reads a field `clientConfig`.
    ///
    /// # Errors
    /// [`EndpointError`].
    pub(crate) fn parse(config: &Value) -> Result<Self, EndpointError> {
        let bundle = config.get("caBundle").and_then(Value::as_str);
        let bundle = bundle.map(|text| STANDARD.decode(text).unwrap_or_default());
        let authorities = bundle.filter(|pem| !pem.trim_ascii().is_empty());
        let text = |object: &Value, field: &str| {
            let text = object.get(field).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        if let Some(service) = config.get("service").filter(|service| service.is_object()) {
            let (namespace, name) = (text(service, "namespace"), text(service, "name"));
            let port = service.get("port").and_then(Value::as_u64);
            let port = port.and_then(|port| u16::try_from(port).ok());
            let port = port.filter(|port| *port != 0).unwrap_or(DEFAULT_PORT);
            let server_name = format!("{name}.{namespace}.svc");
            return Ok(Self {
                origin: format!("https://{server_name}:{port}"),
                path: clean(&text(service, "path")),
                target: Target::Service {
                    namespace,
                    name,
                    port,
                },
                server_name,
                authorities,
            });
        }
        let url = text(config, "url");
        if url.is_empty() {
            return Err(EndpointError::Missing);
        }
        let uri: Uri = url
            .parse()
            .map_err(|error| EndpointError::Url(format!("{error}")))?;
        let host = uri.host().unwrap_or_default();
        if uri.scheme_str() != Some("https") || host.is_empty() {
            return Err(EndpointError::Url(format!("{url:?} is not one of https")));
        }
        let authority = uri.authority().map_or(host, |authority| authority.as_str());
        let host = host.trim_matches(['[', ']']).to_owned();
        Ok(Self {
            origin: format!("https://{authority}"),
            path: clean(uri.path()),
            server_name: host.clone(),
            target: Target::Host {
                host,
                port: uri.port_u16().unwrap_or(DEFAULT_PORT),
            },
            authorities,
        })
    }

    /// Returns the place and the URL to which the answer of a URL redirects. The certificates stay the same.
    ///
    /// # Errors
    /// The location cannot be parsed.
    pub(super) fn redirected(&self, url: &str, location: &str) -> Result<(Self, String), String> {
        let bad = || format!("failed to parse Location header {location:?}");
        let next = redirected_url(url, location);
        let uri: Uri = next.parse().map_err(|_| bad())?;
        let (scheme, authority) = uri.scheme_str().zip(uri.authority()).ok_or_else(bad)?;
        let origin = format!("{scheme}://{authority}");
        if origin == self.origin {
            return Ok((self.clone(), next));
        }
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let place = Self {
            target: Target::Host {
                host: host.to_owned(),
                port: uri.port_u16().unwrap_or(DEFAULT_PORT),
            },
            origin,
            path: "/".to_owned(),
            server_name: host.to_owned(),
            authorities: self.authorities.clone(),
        };
        Ok((place, next))
    }

    /// Returns whether HTTP/2 is offered: only to this machine, as by kube-apiserver, so that other connections
    /// are spread over several servers.
    pub(super) fn offers_http2(&self) -> bool {
        match &self.target {
            Target::Service { .. } => false,
            Target::Host { host, .. } => {
                host.eq_ignore_ascii_case("localhost")
                    || host
                        .parse::<IpAddr>()
                        .is_ok_and(|address| address.is_loopback())
            }
        }
    }
}

/// Returns the URL to which the answer of a URL redirects.
pub(crate) fn redirected_url(url: &str, location: &str) -> String {
    let base = url.split(['?', '#']).next().unwrap_or_default();
    let scheme = base.find("://").unwrap_or_default();
    let authority = scheme + "://".len();
    let rest = base.get(authority..).unwrap_or_default();
    let origin = authority + rest.find('/').unwrap_or(rest.len());
    if has_scheme(location) {
        location.to_owned()
    } else if location.starts_with("//") {
        format!("{}:{location}", &base[..scheme])
    } else if location.starts_with('/') {
        format!("{}{location}", &base[..origin])
    } else if location.starts_with('?') {
        format!("{base}{location}")
    } else {
        let folder = base.rfind('/').map_or(base, |end| &base[..=end]);
        format!("{folder}{location}")
    }
}

/// Returns whether a location is absolute. Others may have a URL in their query.
fn has_scheme(location: &str) -> bool {
    let end = location.find(['/', '?', '#']).unwrap_or(location.len());
    let (scheme, rest) = location.split_at(end);
    scheme.ends_with(':') && rest.starts_with("//")
}

/// Returns a path with a slash at its beginning, none at its end, and single ones between its parts.
fn clean(path: &str) -> String {
    let parts = path.split('/').filter(|part| !part.is_empty());
    format!("/{}", parts.collect::<Vec<_>>().join("/"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Endpoint, EndpointError, Target};

    #[test]
    fn client_configs_are_read() {
        let url = Endpoint::parse(&json!({"url": "https://[::1]:9443/a/", "caBundle": "Cg=="}));
        let url = url.unwrap();
        assert_eq!(
            (url.origin.as_str(), url.path.as_str()),
            ("https://[::1]:9443", "/a")
        );
        assert_eq!((url.server_name.as_str(), &url.authorities), ("::1", &None));
        assert!(url.offers_http2());
        let redirected = |location: &str| {
            let (place, next) = url.redirected("https://[::1]:9443/a?b", location).unwrap();
            (place.origin, next)
        };
        let own = "https://[::1]:9443".to_owned();
        assert_eq!(redirected("/c"), (own.clone(), format!("{own}/c")));
        for location in ["c?d", "a?d", "/c?d=https://h/"] {
            let path = location.trim_start_matches('/');
            assert_eq!(redirected(location), (own.clone(), format!("{own}/{path}")));
        }
        assert_eq!(redirected("?d"), (own.clone(), format!("{own}/a?d")));
        let other = ("https://h".to_owned(), "https://h/c".to_owned());
        assert_eq!(redirected("//h/c"), other);
        assert_eq!(redirected("https://h/c"), other);
        assert!(url.redirected("https://a", "https://").is_err());
        let service = json!({"service": {"namespace": "n", "name": "s", "path": "x//y"}});
        let service = Endpoint::parse(&service).unwrap();
        assert_eq!(service.origin, "https://s.n.svc:443");
        assert_eq!(service.path, "/x/y");
        assert!(matches!(service.target, Target::Service { port: 443, .. }));
        assert!(!service.offers_http2());
        assert_eq!(Endpoint::parse(&json!({})), Err(EndpointError::Missing));
        for url in ["http://a/b", "https://", "::", "https://a b"] {
            assert!(Endpoint::parse(&json!({ "url": url })).is_err(), "{url}");
        }
    }
}
