//! The options of the source over an etcd cluster.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use thiserror::Error;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

/// The default of [`EtcdOptions::request_timeout`]. etcd itself ends a request after 7 s (5 s and two
/// election timeouts), so a shorter time would hide its errors.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The default of [`EtcdOptions::connect_timeout`], as in kube-apiserver.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// The defaults of [`EtcdOptions::keep_alive`], as in kube-apiserver.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));

/// The options of an [`EtcdSource`](super::EtcdSource).
///
/// | Option | Default |
/// |---|---|
/// | [`user`](Self::user) | none |
/// | [`tls`](Self::tls) | none |
/// | [`request_timeout`](Self::request_timeout) | 10 s |
/// | [`connect_timeout`](Self::connect_timeout) | 20 s |
/// | [`keep_alive`](Self::keep_alive) | ping after 30 s, answer within 10 s |
/// | [`revision_key`](Self::revision_key) | a zero byte |
///
/// ```
/// use revstore_watch_cache::source::{EtcdOptions, EtcdTls};
/// # let (ca, certificate, key) = ("", "", "");
/// let options = EtcdOptions::new(["https://10.0.0.1:2379", "https://10.0.0.2:2379"])
///     .user("cache", "password")
///     .tls(EtcdTls::new(ca).identity(certificate, key));
/// # let _ = options;
/// ```
#[derive(Clone)]
#[must_use]
pub struct EtcdOptions {
    endpoints: Vec<String>,
    pub(super) user: Option<(String, String)>,
    tls: Option<EtcdTls>,
    pub(super) request_timeout: Duration,
    connect_timeout: Duration,
    keep_alive: (Duration, Duration),
    pub(super) revision_key: Bytes,
}

/// The TLS options of an [`EtcdSource`](super::EtcdSource), in PEM.
#[derive(Clone)]
#[must_use]
pub struct EtcdTls {
    authorities: Vec<u8>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
    server_name: Option<String>,
}

/// The error of invalid [`EtcdOptions`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EtcdOptionsError {
    /// There are no endpoints.
    #[error("no endpoints: at least one is required")]
    NoEndpoints,
    /// An endpoint is not a URL with the scheme `http` or `https`, or does not fit the TLS options.
    #[error("invalid endpoint {endpoint:?}: {reason}")]
    Endpoint {
        /// The endpoint.
        endpoint: String,
        /// The reason.
        reason: String,
    },
    /// A time is zero.
    #[error("invalid {option}: it must be longer than 0 s")]
    ZeroTime {
        /// The name of the option.
        option: &'static str,
    },
}

impl EtcdOptions {
    /// Returns the options for a cluster with these client URLs, such as `http://127.0.0.1:2379`. The
    /// scheme may be left out. A request is sent to the endpoint that last worked, at first to the
    /// first one.
    pub fn new<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            user: None,
            tls: None,
            request_timeout: REQUEST_TIMEOUT,
            connect_timeout: CONNECT_TIMEOUT,
            keep_alive: KEEP_ALIVE,
            revision_key: Bytes::from_static(b"\0"),
        }
    }

    /// Sets the user, whose token is requested before the first call and again when it has expired.
    /// It needs read access to the keys of the watched range and to
    /// [`revision_key`](Self::revision_key), and write access to keys that are written.
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some((name.into(), password.into()));
        self
    }

    /// Sets the TLS options, which endpoints with the scheme `https` need.
    pub fn tls(mut self, tls: EtcdTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets the time limit of a request, with all attempts at other endpoints, and of opening a watch.
    /// A list is one request for each page of 1000 keys. An open watch fails if it does not answer a
    /// progress request in that time. Raise it if pages of large objects arrive over a slow link.
    pub fn request_timeout(mut self, limit: Duration) -> Self {
        self.request_timeout = limit;
        self
    }

    /// Sets the time limit of a connection attempt.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// Sets the time after which a connection with open calls is pinged, and the time limit of the
    /// answer, after which the calls fail. etcd closes connections with pings more frequent than one
    /// in 5 s (`--grpc-keepalive-min-time`).
    pub fn keep_alive(mut self, time: Duration, timeout: Duration) -> Self {
        self.keep_alive = (time, timeout);
        self
    }

    /// Sets the key that is read for the current revision. It need not exist. Set it if the user may
    /// not read the default, for example to the prefix of a resource with a further slash.
    pub fn revision_key(mut self, key: impl Into<Bytes>) -> Self {
        self.revision_key = key.into();
        self
    }

    /// Returns the endpoints with their URLs.
    pub(super) fn endpoints(&self) -> Result<Vec<(String, Endpoint)>, EtcdOptionsError> {
        let times = [
            ("request_timeout", self.request_timeout),
            ("connect_timeout", self.connect_timeout),
            ("keep_alive time", self.keep_alive.0),
            ("keep_alive timeout", self.keep_alive.1),
        ];
        if let Some((option, _)) = times.into_iter().find(|(_, time)| time.is_zero()) {
            return Err(EtcdOptionsError::ZeroTime { option });
        }
        if self.endpoints.is_empty() {
            return Err(EtcdOptionsError::NoEndpoints);
        }
        let endpoint = |url: &String| {
            let endpoint = self.endpoint(url);
            endpoint.map_err(|reason| EtcdOptionsError::Endpoint {
                endpoint: url.clone(),
                reason,
            })
        };
        self.endpoints.iter().map(endpoint).collect()
    }

    fn endpoint(&self, url: &str) -> Result<(String, Endpoint), String> {
        let url = match (url.split_once("://"), &self.tls) {
            (Some(("http", _)), Some(_)) => return Err("TLS needs the scheme https".into()),
            (Some(("https", _)), None) => return Err("https needs the option tls".into()),
            (Some(("http" | "https", _)), _) => url.to_owned(),
            (Some((scheme, _)), _) => return Err(format!("unknown scheme {scheme}")),
            (None, None) => format!("http://{url}"),
            (None, Some(_)) => format!("https://{url}"),
        };
        let (time, timeout) = self.keep_alive;
        let mut endpoint = Endpoint::from_shared(url.clone())
            .map_err(|error| chain(&error))?
            .connect_timeout(self.connect_timeout)
            .http2_keep_alive_interval(time)
            .keep_alive_timeout(timeout)
            // etcd closes connections that ping without an open call.
            .keep_alive_while_idle(false)
            .tcp_nodelay(true);
        if let Some(tls) = &self.tls {
            let config = tls.config();
            endpoint = endpoint.tls_config(config).map_err(|error| chain(&error))?;
        }
        Ok((url, endpoint))
    }
}

impl EtcdTls {
    /// Returns the options to trust servers with certificates of these authorities.
    pub fn new(authorities: impl Into<Vec<u8>>) -> Self {
        Self {
            authorities: authorities.into(),
            identity: None,
            server_name: None,
        }
    }

    /// Sets the certificate and the private key of the client.
    pub fn identity(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    /// Sets the name that the certificates of the servers must have, instead of the host of the URL.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    fn config(&self) -> ClientTlsConfig {
        let authorities = Certificate::from_pem(&self.authorities);
        let mut config = ClientTlsConfig::new().ca_certificate(authorities);
        if let Some((certificate, key)) = &self.identity {
            config = config.identity(Identity::from_pem(certificate, key));
        }
        if let Some(name) = &self.server_name {
            config = config.domain_name(name);
        }
        config
    }
}

/// Returns the text of an error with its causes.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let part = error.to_string();
        if !text.ends_with(&part) {
            text = format!("{text}: {part}");
        }
        cause = error.source();
    }
    text
}

// Without the password and the private key.
impl fmt::Debug for EtcdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdOptions")
            .field("endpoints", &self.endpoints)
            .field("user", &self.user.as_ref().map(|(name, _)| name))
            .field("tls", &self.tls)
            .field("request_timeout", &self.request_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("keep_alive", &self.keep_alive)
            .field("revision_key", &self.revision_key)
            .finish()
    }
}

impl fmt::Debug for EtcdTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdTls")
            .field("has_identity", &self.identity.is_some())
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(options: &EtcdOptions) -> String {
        options.endpoints().unwrap_err().to_string()
    }

    #[test]
    fn invalid_options_are_refused_with_their_name_and_value() {
        let tls = || EtcdTls::new("");
        let one = |url: &str| EtcdOptions::new([url]);
        let none: [&str; 0] = [];
        let cases = [
            (EtcdOptions::new(none), "no endpoints"),
            (one("ftp://a:1"), "\"ftp://a:1\": unknown scheme ftp"),
            (one("https://a:1"), "https needs the option tls"),
            (one("http://a:1").tls(tls()), "TLS needs the scheme https"),
            (one("http://a b"), "invalid endpoint \"http://a b\""),
            (one(""), "invalid endpoint \"\""),
            (
                one("a:1").request_timeout(Duration::ZERO),
                "invalid request_timeout",
            ),
            (
                one("a:1").keep_alive(Duration::ZERO, REQUEST_TIMEOUT),
                "invalid keep_alive time",
            ),
        ];
        for (options, expected) in cases {
            let text = refused(&options);
            assert!(text.contains(expected), "{text}");
        }
        let urls = |options: EtcdOptions| {
            let endpoints = options.endpoints().unwrap();
            endpoints.into_iter().map(|(url, _)| url).next().unwrap()
        };
        assert_eq!(urls(one("a:1")), "http://a:1");
    }

    #[test]
    fn secrets_are_not_in_the_debug_output() {
        let tls = EtcdTls::new("").identity("", "private");
        let options = EtcdOptions::new(["a:1"]).user("u", "secret").tls(tls);
        let text = format!("{options:?}");
        assert!(text.contains("\"u\"") && !text.contains("secret") && !text.contains("private"));
    }
}
