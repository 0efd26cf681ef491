//! URLs as etcd's flags take them: a scheme, a host and a port, and nothing more.
//!
//! Not the `url` crate: it follows the WHATWG rules, which drop a default port and add a slash,
//! and the text of a URL is hashed into the member id (DM-11) and shown to clients (`MemberList`).

use std::{cmp::Ordering, fmt};

/// The scheme of an [`EndpointUrl`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// TCP, in the clear.
    Http,
    /// TCP under TLS.
    Https,
    /// A Unix socket, in the clear.
    Unix,
    /// A Unix socket under TLS.
    Unixs,
}

impl Scheme {
    fn parse(text: &str) -> Option<Self> {
        [Self::Http, Self::Https, Self::Unix, Self::Unixs]
            .into_iter()
            .find(|scheme| text.eq_ignore_ascii_case(scheme.as_str()))
    }

    /// The scheme as it is written in a URL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Unix => "unix",
            Self::Unixs => "unixs",
        }
    }

    /// Whether connections to such a URL speak TLS.
    pub fn is_tls(self) -> bool {
        matches!(self, Self::Https | Self::Unixs)
    }

    /// Whether such a URL names a socket file rather than an address.
    pub fn is_unix(self) -> bool {
        matches!(self, Self::Unix | Self::Unixs)
    }
}

/// A URL under which a member is, or says that it is, reachable.
///
/// Invariants: with `http` and `https` there is a host (perhaps empty) and a port (perhaps empty),
/// and no path. Ordered and compared by its text, as etcd does.
#[derive(Clone, Debug)]
pub struct EndpointUrl {
    scheme: Scheme,
    text: String,
    authority: String,
    path: String,
}

/// Why a text is not an [`EndpointUrl`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// No scheme, or another one.
    #[error("URL scheme must be http, https, unix, or unixs: {url}")]
    Scheme {
        /// The URL as given.
        url: String,
    },
    /// An `http` or `https` URL without a port.
    #[error("URL address does not have the form \"host:port\": {url}")]
    NoPort {
        /// The URL as given.
        url: String,
    },
    /// An `http` or `https` URL with a path, even a lone slash.
    #[error("URL must not contain a path: {url}")]
    Path {
        /// The URL as given.
        url: String,
    },
    /// A port that is not a number.
    #[error("parse {url:?}: invalid port {port:?} after host")]
    Port {
        /// The URL as given.
        url: String,
        /// What stands where the port should.
        port: String,
    },
    /// A character that no URL may contain.
    #[error("parse {url:?}: invalid character in URL")]
    Character {
        /// The URL as given.
        url: String,
    },
}

/// Why the address of a URL is not `host:port`. The texts are Go's, since etcd passes them on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostPortError {
    /// Nothing after a last colon, or no colon at all.
    #[error("missing port in address")]
    MissingPort,
    /// No host before the colon.
    #[error("unexpected empty host ({url})")]
    EmptyHost {
        /// The URL as given.
        url: String,
    },
}

impl EndpointUrl {
    /// `http://localhost:port`, where clients of one machine meet.
    pub fn localhost(port: u16) -> Self {
        let authority = format!("localhost:{port}");
        Self {
            scheme: Scheme::Http,
            text: format!("http://{authority}"),
            authority,
            path: String::new(),
        }
    }

    /// The same URL with TLS under it.
    #[must_use]
    pub fn under_tls(&self) -> Self {
        let scheme = if self.scheme.is_unix() {
            Scheme::Unixs
        } else {
            Scheme::Https
        };
        let rest = self.text.split_once(':').map_or("", |(_, rest)| rest);
        Self {
            scheme,
            text: format!("{}:{rest}", scheme.as_str()),
            ..self.clone()
        }
    }

    /// Reads one URL; blanks around it are dropped.
    ///
    /// # Errors
    /// Anything but a scheme of [`Scheme`] with what that scheme needs.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let text = text.trim();
        let url = || text.to_owned();
        if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(UrlError::Character { url: url() });
        }
        let (scheme, rest) = text
            .split_once(':')
            .and_then(|(scheme, rest)| Some((Scheme::parse(scheme)?, rest)))
            .ok_or_else(|| UrlError::Scheme { url: url() })?;
        // Without the slashes Go sees neither host nor path; with them, the host ends where a
        // path, a query or a fragment begins.
        let (authority, tail) = rest.strip_prefix("//").map_or(("", ""), |rest| {
            rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()))
        });
        let authority = authority
            .rsplit_once('@')
            .map_or(authority, |(_, host)| host);
        let path = tail.split(['?', '#']).next().unwrap_or_default();

        let port = port_of(authority);
        if let Some(port) = port
            && !port.bytes().all(|b| b.is_ascii_digit())
        {
            return Err(UrlError::Port {
                url: url(),
                port: format!(":{port}"),
            });
        }
        if !scheme.is_unix() {
            if port.is_none() {
                return Err(UrlError::NoPort { url: url() });
            }
            if !path.is_empty() {
                return Err(UrlError::Path { url: url() });
            }
        }
        Ok(Self {
            scheme,
            text: format!("{}:{rest}", scheme.as_str()),
            authority: authority.to_owned(),
            path: path.to_owned(),
        })
    }

    /// Reads a comma-separated list, sorts it and drops repetitions, as etcd does (FL-11).
    ///
    /// # Errors
    /// Those of [`EndpointUrl::parse`], for the first URL that has one; an empty list is one too.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, UrlError> {
        let mut urls = text
            .split(',')
            .map(Self::parse)
            .collect::<Result<Vec<_>, _>>()?;
        urls.sort();
        urls.dedup();
        Ok(urls)
    }

    /// The scheme.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The URL as text, with its scheme in lower case and otherwise as given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Host and port, the host without the brackets of an IPv6 address.
    ///
    /// # Errors
    /// [`HostPortError::MissingPort`], possible only for Unix sockets (TL-3).
    pub fn host_and_port(&self) -> Result<(&str, &str), HostPortError> {
        let port = port_of(&self.authority).ok_or(HostPortError::MissingPort)?;
        let host = &self.authority[..self.authority.len() - port.len() - 1];
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        Ok((bare.unwrap_or(host), port))
    }

    /// Checks that a client could dial the URL.
    ///
    /// # Errors
    /// No port, or no host.
    pub fn check_dialable(&self) -> Result<(), HostPortError> {
        match self.host_and_port()? {
            ("", _) => Err(HostPortError::EmptyHost {
                url: self.text.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// For a Unix socket, the name of its file: the host and the path together (TL-3).
    pub fn socket_path(&self) -> String {
        format!("{}{}", self.authority, self.path)
    }
}

/// What follows the colon after the host; `None` without such a colon. A bracketed IPv6 address
/// has colons of its own.
fn port_of(authority: &str) -> Option<&str> {
    let after_brackets = if authority.starts_with('[') {
        authority.find(']')? + 1
    } else {
        0
    };
    let rest = &authority[after_brackets..];
    rest.find(':').map(|colon| &rest[colon + 1..])
}

impl fmt::Display for EndpointUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq for EndpointUrl {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for EndpointUrl {}

impl PartialOrd for EndpointUrl {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for EndpointUrl {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

/// URLs joined by commas, as the flags take them.
pub fn join(urls: &[EndpointUrl]) -> String {
    urls.iter()
        .map(EndpointUrl::as_str)
        .collect::<Vec<_>>()
        .join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text a URL is shown as, with its host and port if it has them.
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
    fn errors_read_like_etcds() {
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
    fn localhost_is_what_would_have_been_parsed() {
        let (made, parsed) = (
            EndpointUrl::localhost(2379),
            EndpointUrl::parse("http://localhost:2379").unwrap(),
        );
        assert_eq!(format!("{made:?}"), format!("{parsed:?}"));
    }

    #[test]
    fn fl_11_lists_are_sorted_and_unique() {
        let urls = EndpointUrl::parse_list("http://b:1, http://a:1,http://b:1").unwrap();
        assert_eq!(join(&urls), "http://a:1,http://b:1");
        assert!(EndpointUrl::parse_list("http://a:1,").is_err());
    }

    #[test]
    fn tl_3_an_absolute_socket_path_cannot_be_dialled() {
        let url = EndpointUrl::parse("unix:///run/etcd.sock").unwrap();
        assert_eq!(url.check_dialable(), Err(HostPortError::MissingPort));
        assert_eq!(url.socket_path(), "/run/etcd.sock");
        let url = EndpointUrl::parse("http://:2379").unwrap();
        assert_eq!(
            url.check_dialable(),
            Err(HostPortError::EmptyHost {
                url: url.to_string()
            })
        );
    }
}
