//! URLs of endpoints: a scheme, a host and a port.
//!
//! The `url` crate follows the WHATWG rules, which remove a default port and add a slash. The text of an
//! endpoint must not change, because it is sent to clients and is part of the hash of member ids.

use std::fmt;

const SCHEMES: [&str; 4] = ["http", "https", "unix", "unixs"];

/// The error of a text that is not the URL of an endpoint, or of a URL that cannot be used.
///
/// The messages are those of etcd.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UrlError(pub(super) String);

/// The URL of an endpoint of a server.
///
/// With `http` and `https` it has a host, a port (each of which may be empty) and no path. With
/// `unix` and `unixs`, host and path together name a socket file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndpointUrl {
    text: String,
    scheme: &'static str,
}

impl EndpointUrl {
    /// Returns `http://localhost:port`.
    pub fn localhost(port: u16) -> Self {
        let (text, scheme) = (format!("http://localhost:{port}"), "http");
        Self { text, scheme }
    }

    /// Returns the same URL with TLS.
    #[must_use]
    pub fn under_tls(&self) -> Self {
        let scheme = if self.is_unix() { "unixs" } else { "https" };
        let text = format!("{scheme}{}", &self.text[self.scheme.len()..]);
        Self { text, scheme }
    }

    /// Parses a URL. Blanks around it are ignored.
    ///
    /// # Errors
    /// The text is not a URL as described for this type.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let text = text.trim();
        let error = |message| Err(UrlError(message));
        if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return error(format!("parse {text:?}: invalid character in URL"));
        }
        let (given, rest) = text.split_once(':').unwrap_or_default();
        let mut schemes = SCHEMES.into_iter();
        let Some(scheme) = schemes.find(|scheme| given.eq_ignore_ascii_case(scheme)) else {
            let schemes = "http, https, unix, or unixs";
            return error(format!("URL scheme must be {schemes}: {text}"));
        };
        let url = Self {
            text: format!("{scheme}:{rest}"),
            scheme,
        };
        let (authority, path) = url.authority_and_path();
        let port = port_of(authority);
        if let Some(port) = port.filter(|port| !port.bytes().all(|b| b.is_ascii_digit())) {
            let port = format!(":{port}");
            return error(format!("parse {text:?}: invalid port {port:?} after host"));
        }
        if !url.is_unix() && port.is_none() {
            let form = "\"host:port\"";
            return error(format!("URL address does not have the form {form}: {text}"));
        }
        if !url.is_unix() && !path.is_empty() {
            return error(format!("URL must not contain a path: {text}"));
        }
        Ok(url)
    }

    /// Parses a comma-separated list, sorts it and removes duplicates.
    ///
    /// # Errors
    /// The error of [`EndpointUrl::parse`] for the first invalid URL. An empty list is an error.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, UrlError> {
        let urls: Result<Vec<_>, _> = text.split(',').map(Self::parse).collect();
        let mut urls = urls?;
        urls.sort();
        urls.dedup();
        Ok(urls)
    }

    /// Returns the scheme: `http`, `https`, `unix` or `unixs`.
    pub fn scheme(&self) -> &'static str {
        self.scheme
    }

    /// Returns whether connections use TLS: the scheme is `https` or `unixs`.
    pub fn is_tls(&self) -> bool {
        self.scheme.ends_with('s')
    }

    /// Returns whether the URL names a socket file: the scheme is `unix` or `unixs`.
    pub fn is_unix(&self) -> bool {
        self.scheme.starts_with("unix")
    }

    /// Returns the URL as text, with its scheme in lower case and otherwise as given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the host and the port. The host has no brackets around an IPv6 address.
    ///
    /// # Errors
    /// The URL has no port, which is possible only for Unix sockets.
    pub fn host_and_port(&self) -> Result<(&str, &str), UrlError> {
        let (authority, _) = self.authority_and_path();
        let missing = || UrlError("missing port in address".to_owned());
        let port = port_of(authority).ok_or_else(missing)?;
        let host = &authority[..authority.len() - port.len() - 1];
        let address = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        Ok((address.unwrap_or(host), port))
    }

    /// Checks that a client can connect to the URL.
    ///
    /// # Errors
    /// The URL has no port or no host.
    pub fn check_dialable(&self) -> Result<(), UrlError> {
        match self.host_and_port()? {
            ("", _) => Err(UrlError(format!("unexpected empty host ({self})"))),
            _ => Ok(()),
        }
    }

    /// Returns the name of the file of a Unix socket: the host followed by the path.
    pub fn socket_path(&self) -> String {
        let (authority, path) = self.authority_and_path();
        format!("{authority}{path}")
    }

    /// Returns the part with host and port, and the path. Both are empty without two slashes, as in Go.
    fn authority_and_path(&self) -> (&str, &str) {
        let rest = &self.text[self.scheme.len() + 1..];
        let rest = rest.strip_prefix("//").unwrap_or_default();
        let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (_, authority) = authority.rsplit_once('@').unwrap_or(("", authority));
        (authority, tail.split(['?', '#']).next().unwrap_or_default())
    }
}

/// Returns the text after the colon that follows the host, or `None` without such a colon. Colons in a
/// bracketed IPv6 address do not count.
fn port_of(authority: &str) -> Option<&str> {
    let host_end = match authority.strip_prefix('[') {
        Some(rest) => rest.find(']')? + 2,
        None => 0,
    };
    let (_, port) = authority[host_end..].split_once(':')?;
    Some(port)
}

impl fmt::Display for EndpointUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Joins URLs with commas, as in the values of flags.
pub fn join_urls(urls: &[EndpointUrl]) -> String {
    let texts: Vec<&str> = urls.iter().map(EndpointUrl::as_str).collect();
    texts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of a URL, with its host and port if it has them.
    type Shown<'a> = (&'a str, Option<(&'a str, &'a str)>);

    fn check(text: &str, expected: Result<Shown<'_>, &str>) {
        let actual = EndpointUrl::parse(text);
        let actual = actual
            .as_ref()
            .map(|url| (url.as_str(), url.host_and_port().ok()))
            .map_err(ToString::to_string);
        assert_eq!(actual, expected.map_err(str::to_owned), "{text:?}");
    }

    #[test]
    fn urls_keep_their_text() {
        check(
            "http://localhost:2379",
            Ok(("http://localhost:2379", Some(("localhost", "2379")))),
        );
        check(
            " HTTPS://10.0.0.1:80 ",
            Ok(("https://10.0.0.1:80", Some(("10.0.0.1", "80")))),
        );
        check(
            "http://[::1]:2379",
            Ok(("http://[::1]:2379", Some(("::1", "2379")))),
        );
        check("http://:2379", Ok(("http://:2379", Some(("", "2379")))));
        check(
            "http://127.0.0.1:",
            Ok(("http://127.0.0.1:", Some(("127.0.0.1", "")))),
        );
        check(
            "unix://localhost:2379",
            Ok(("unix://localhost:2379", Some(("localhost", "2379")))),
        );
        check("unix:///run/etcd.sock", Ok(("unix:///run/etcd.sock", None)));
    }

    #[test]
    fn errors_have_the_texts_of_etcd() {
        check("", Err("URL scheme must be http, https, unix, or unixs: "));
        check(
            "localhost:2379",
            Err("URL scheme must be http, https, unix, or unixs: localhost:2379"),
        );
        check(
            "http://localhost",
            Err("URL address does not have the form \"host:port\": http://localhost"),
        );
        check(
            "http://[::1]",
            Err("URL address does not have the form \"host:port\": http://[::1]"),
        );
        check(
            "http://localhost:1/",
            Err("URL must not contain a path: http://localhost:1/"),
        );
        check(
            "http://localhost:abc",
            Err("parse \"http://localhost:abc\": invalid port \":abc\" after host"),
        );
        check(
            "http://a b:1",
            Err("parse \"http://a b:1\": invalid character in URL"),
        );
    }

    #[test]
    fn localhost_equals_the_parsed_url() {
        let (made, parsed) = (
            EndpointUrl::localhost(2379),
            EndpointUrl::parse("http://localhost:2379").unwrap(),
        );
        assert_eq!(format!("{made:?}"), format!("{parsed:?}"));
    }

    #[test]
    fn fl_11_lists_are_sorted_and_unique() {
        let urls = EndpointUrl::parse_list("http://b:1, http://a:1,http://b:1").unwrap();
        assert_eq!(join_urls(&urls), "http://a:1,http://b:1");
        assert!(EndpointUrl::parse_list("http://a:1,").is_err());
    }

    #[test]
    fn tl_3_an_absolute_socket_path_cannot_be_dialled() {
        let url = EndpointUrl::parse("unix:///run/etcd.sock").unwrap();
        assert_eq!(
            url.check_dialable().unwrap_err().to_string(),
            "missing port in address"
        );
        assert_eq!(url.socket_path(), "/run/etcd.sock");
        let url = EndpointUrl::parse("http://:2379").unwrap();
        assert_eq!(
            url.check_dialable().unwrap_err().to_string(),
            "unexpected empty host (http://:2379)"
        );
    }
}
