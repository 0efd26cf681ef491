//! Where the services of webhooks are, as the flag `--webhook-resolver` says.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The address of a service that webhooks name, in a server without a network of pods.
///
/// ```
/// use revstore_apiserver::WebhookRoute;
/// let route: WebhookRoute = "system/hooks:443=127.0.0.1:9443".parse()?;
/// assert_eq!((route.namespace.as_str(), route.port), ("system", Some(443)));
/// assert_eq!(route.address, "127.0.0.1:9443");
/// # Ok::<(), revstore_apiserver::RouteError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WebhookRoute {
    /// The namespace of the service.
    pub namespace: String,
    /// The name of the service.
    pub name: String,
    /// The port of the service; `None` for all ports.
    pub port: Option<u16>,
    /// The host and the port to connect to.
    pub address: String,
}

/// The error of a text that is no [`WebhookRoute`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not NAMESPACE/NAME[:PORT]=HOST:PORT")]
pub struct RouteError(String);

impl WebhookRoute {
    /// Returns whether the route is that of a port of a service.
    pub(crate) fn is_of(&self, namespace: &str, name: &str, port: u16) -> bool {
        self.namespace == namespace && self.name == name && self.port.is_none_or(|own| own == port)
    }
}

impl FromStr for WebhookRoute {
    type Err = RouteError;

    /// Parses `NAMESPACE/NAME[:PORT]=HOST:PORT`.
    fn from_str(text: &str) -> Result<Self, RouteError> {
        let parse = || {
            let (service, address) = text.split_once('=')?;
            let (namespace, name) = service.split_once('/')?;
            let (name, port) = match name.split_once(':') {
                Some((name, port)) => (name, Some(port.parse().ok().filter(|port| *port != 0)?)),
                None => (name, None),
            };
            let (host, target) = address.rsplit_once(':')?;
            let is_port = target.parse::<u16>().is_ok_and(|port| port != 0);
            let is_host = !host.is_empty() && (!host.contains(':') || host.starts_with('['));
            let is_valid = !namespace.is_empty() && !name.is_empty() && is_host && is_port;
            is_valid.then(|| Self {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                port,
                address: address.to_owned(),
            })
        };
        parse().ok_or_else(|| RouteError(text.to_owned()))
    }
}

impl fmt::Display for WebhookRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)?;
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        write!(f, "={}", self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::WebhookRoute;

    #[test]
    fn routes_are_parsed() {
        for text in ["a/b=127.0.0.1:1", "a/b:443=[::1]:9443", "a/b=localhost:80"] {
            let route: WebhookRoute = text.parse().unwrap();
            assert_eq!(route.to_string(), text);
        }
        for text in [
            "",
            "a/b",
            "b=127.0.0.1:1",
            "/b=127.0.0.1:1",
            "a/=h:1",
            "a/b:x=h:1",
            "a/b:0=h:1",
            "a/b=h",
            "a/b=:1",
            "a/b=h:0",
            "a/b=::1:80",
        ] {
            assert!(text.parse::<WebhookRoute>().is_err(), "{text}");
        }
        let route: WebhookRoute = "a/b:443=h:1".parse().unwrap();
        assert!(route.is_of("a", "b", 443) && !route.is_of("a", "b", 80));
    }
}
