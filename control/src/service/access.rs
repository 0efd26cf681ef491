//! Who may send requests: token, host and origin.

use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::PathBuf;

use http::{HeaderMap, Uri, header};
use subtle::ConstantTimeEq;
use tonic::{Code, Status};

/// The maximum size of a token file.
const TOKEN_BYTES_MAX: u64 = 4096;

/// The rules of access to a port of control.
#[derive(Clone, Debug)]
pub struct Access {
    /// The file with the token that requests must have; `None` for no token.
    pub token: Option<TokenFile>,
    /// Whether requests may name any host. Otherwise it must be an address of the loopback interface or `localhost`,
    /// so that no web site can reach the port under its own name (DNS rebinding).
    pub any_host: bool,
}

/// A file whose content, without white space at both ends, is a token. It is read for each request, so a new token
/// counts at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenFile(PathBuf);

/// The error of a token file.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the token file {}: {source}", path.display())]
pub struct TokenFileError {
    path: PathBuf,
    source: io::Error,
}

impl TokenFile {
    /// Checks that the file can be read and has a token.
    ///
    /// # Errors
    /// It is no regular file, cannot be read, is larger than 4 KiB, or contains no token or more than one line.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, TokenFileError> {
        let file = Self(path.into());
        file.read().map(drop)?;
        Ok(file)
    }

    /// Returns the token.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn read(&self) -> Result<String, TokenFileError> {
        let error = |source| TokenFileError {
            path: self.0.clone(),
            source,
        };
        self.try_read().map_err(error)
    }

    fn try_read(&self) -> io::Result<String> {
        // A pipe or a device could block, or never end.
        if !std::fs::metadata(&self.0)?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        let mut text = String::new();
        let mut file = File::open(&self.0)?.take(TOKEN_BYTES_MAX + 1);
        file.read_to_string(&mut text)?;
        if text.len() as u64 > TOKEN_BYTES_MAX {
            return Err(io::Error::other("the file is larger than 4 KiB"));
        }
        let token = text.trim();
        if token.is_empty() {
            return Err(io::Error::other("the file contains no token"));
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            let message = "a token consists of printable ASCII characters without blanks";
            return Err(io::Error::other(message));
        }
        Ok(token.to_owned())
    }
}

impl Access {
    /// Checks a request. Reads the token file.
    pub(super) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Status> {
        // Browsers send it with every request of a script that is not a GET.
        if headers.contains_key(header::ORIGIN) {
            let message = "requests of web pages are refused: the header Origin is not permitted";
            return Err(Status::permission_denied(message));
        }
        if !self.any_host {
            let host = host_of(uri, headers);
            if !host.is_some_and(is_loopback) {
                return Err(Status::permission_denied(format!(
                    "the host {:?} is refused: it must be localhost or an address of the loopback interface",
                    host.unwrap_or_default()
                )));
            }
        }
        let Some(file) = &self.token else {
            return Ok(());
        };
        let Some(presented) = bearer(headers) else {
            let message = "a token is required: send the header Authorization: Bearer TOKEN";
            return Err(Status::unauthenticated(message));
        };
        let token = file.read().map_err(|error| {
            tracing::error!(%error, "requests of control are refused");
            Status::new(Code::Unavailable, "the token file cannot be read")
        })?;
        if bool::from(token.as_bytes().ct_eq(presented)) {
            Ok(())
        } else {
            Err(Status::unauthenticated("the token is not valid"))
        }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme
        .eq_ignore_ascii_case(b"Bearer ")
        .then(|| token.trim_ascii())
}

/// Returns the host that a request is for, without a port: HTTP/2 has it in the URI.
fn host_of<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    if let Some(host) = uri.host() {
        return Some(host);
    }
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next()?.to_str().ok()?;
    if hosts.next().is_some() {
        return None;
    }
    let end = if host.starts_with('[') {
        host.find(']')? + 1
    } else {
        host.find(':').unwrap_or(host.len())
    };
    let (host, port) = host.split_at(end);
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let is_valid = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
    is_valid.then_some(host)
}

fn is_loopback(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let address = address.unwrap_or(host).parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|it| it.is_loopback())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn check(access: &Access, uri: &str, headers: &[(&'static str, &str)]) -> Result<(), Code> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        let checked = access.check(&uri.parse().unwrap(), &map);
        checked.map_err(|status| status.code())
    }

    #[test]
    fn only_loopback_hosts_are_accepted() {
        let access = Access {
            token: None,
            any_host: false,
        };
        let host = |host: &str| check(&access, "/", &[("host", host)]);
        for good in [
            "localhost",
            "localhost:2378",
            "LOCALHOST:1",
            "127.0.0.1:2378",
            "127.1.2.3",
            "[::1]:5",
            "[::1]",
        ] {
            assert_eq!(host(good), Ok(()), "{good}");
        }
        let bad = [
            "example.com",
            "example.com:2378",
            "localhost.example.com",
            "127.0.0.1.example.com",
            "10.0.0.1:2378",
            "[::2]",
            "[::1",
            "[::1].example.com",
            "[::1]example.com:80",
            "localhost:80@example.com",
            "localhost:80:80",
            "localhost:http",
            "",
            "0.0.0.0",
        ];
        for bad in bad {
            assert_eq!(host(bad), Err(Code::PermissionDenied), "{bad}");
        }
        assert_eq!(check(&access, "/", &[]), Err(Code::PermissionDenied));
        let twice = [("host", "localhost"), ("host", "example.com")];
        assert_eq!(check(&access, "/", &twice), Err(Code::PermissionDenied));
        assert_eq!(check(&access, "http://127.0.0.1:5/x", &[]), Ok(()));
        let user = check(&access, "http://localhost:80@example.com/x", &[]);
        assert_eq!(user, Err(Code::PermissionDenied));
        let rebound = check(&access, "http://example.com/x", &[("host", "localhost")]);
        assert_eq!(rebound, Err(Code::PermissionDenied));
        let any = Access {
            token: None,
            any_host: true,
        };
        assert_eq!(check(&any, "/", &[("host", "example.com")]), Ok(()));
    }

    #[test]
    fn requests_of_web_pages_are_refused() {
        let access = Access {
            token: None,
            any_host: true,
        };
        for origin in ["http://localhost:2378", "null", "https://example.com"] {
            let headers = [("host", "localhost"), ("origin", origin)];
            assert_eq!(check(&access, "/", &headers), Err(Code::PermissionDenied));
        }
    }

    #[test]
    fn a_token_counts_as_soon_as_its_file_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        TokenFile::open(&path).unwrap_err();
        for bad in ["", " \n", "two words", "two\nlines", &"x".repeat(5_000)] {
            std::fs::write(&path, bad).unwrap();
            TokenFile::open(&path).unwrap_err();
        }
        TokenFile::open(dir.path()).unwrap_err();
        std::fs::write(&path, "first\n").unwrap();
        let token = Some(TokenFile::open(&path).unwrap());
        let access = Access {
            token,
            any_host: true,
        };
        let with = |value: &str| check(&access, "/", &[("authorization", value)]);
        assert_eq!(with("Bearer first"), Ok(()));
        assert_eq!(with("bearer  first"), Ok(()));
        for bad in [
            "Bearer firs",
            "Bearer first2",
            "Bearer ",
            "Basic first",
            "first",
            "Bearer",
        ] {
            assert_eq!(with(bad), Err(Code::Unauthenticated), "{bad}");
        }
        assert_eq!(check(&access, "/", &[]), Err(Code::Unauthenticated));
        std::fs::write(&path, "second").unwrap();
        assert_eq!(with("Bearer first"), Err(Code::Unauthenticated));
        assert_eq!(with("Bearer second"), Ok(()));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(with("Bearer second"), Err(Code::Unavailable));
    }
}
