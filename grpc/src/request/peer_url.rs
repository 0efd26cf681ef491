//! Peer URLs: their validation, and the form in which they are stored.

use revstore_proto::etcdserverpb::MemberAddRequest;

use crate::node::admission::Limits;
use crate::status::EtcdError;

/// Requires at least one URL, all of them well-formed (CL-2). Whitespace around a URL is ignored.
pub(crate) fn validate_member_add(request: &MemberAddRequest, _: &Limits) -> Result<(), EtcdError> {
    let urls = &request.peer_ur_ls;
    if !urls.is_empty() && urls.iter().all(|url| is_valid(url.trim())) {
        Ok(())
    } else {
        Err(EtcdError::BadMemberUrls)
    }
}

/// Returns whether there is a URL, and all are well-formed, also without a change of whitespace.
pub(crate) fn are_valid(urls: &[String]) -> bool {
    !urls.is_empty() && urls.iter().all(|url| is_valid(url))
}

/// Returns a valid URL in the form in which etcd stores it: without whitespace around it and an empty fragment, and with
/// the scheme in lower case.
pub(crate) fn normalize(url: &str) -> String {
    let url = url.trim();
    let url = url.strip_suffix('#').unwrap_or(url);
    match url.split_once("://") {
        Some((scheme, rest)) => format!("{}://{rest}", scheme.to_ascii_lowercase()),
        None => url.to_owned(),
    }
}

/// Returns whether a URL has a scheme for peers, a host and a port.
fn is_valid(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else {
        return false;
    };
    if url.contains(|symbol: char| symbol.is_whitespace() || symbol.is_control()) {
        return false;
    }
    let scheme = scheme.to_ascii_lowercase();
    match &*scheme {
        "unix" | "unixs" => true,
        "http" | "https" => has_host_and_port(rest),
        _ => false,
    }
}

/// Parses the part after the scheme: a host and a port, with an optional user before them and an
/// optional query or fragment after them, but without a path.
fn has_host_and_port(rest: &str) -> bool {
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    let authority = &rest[..end];
    let host_and_port = authority
        .rsplit_once('@')
        .map_or(authority, |(_user, rest)| rest);
    let Some((host, port)) = host_and_port.rsplit_once(':') else {
        return false;
    };
    let bracketed = host.starts_with('[') && host.ends_with(']');
    let host_fits = bracketed || !host.contains([':', '[', ']', '%']);
    // A path would be part of the port here, which then contains characters other than digits.
    host_fits && port.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_accepted(peer_urls: &[&str]) -> bool {
        let request = MemberAddRequest {
            peer_ur_ls: peer_urls.iter().map(|&url| url.to_owned()).collect(),
            ..MemberAddRequest::default()
        };
        validate_member_add(&request, &Limits::default()).is_ok()
    }

    fn check(url: &str, expected: bool) {
        assert_eq!(is_accepted(&[url]), expected, "{url:?}");
    }

    /// The expected results are those of etcd 3.5.16.
    #[test]
    fn cl_2_peer_urls_have_scheme_host_and_port() {
        for url in [
            "http://a:1",
            " http://a:1 ",
            "unix://a:1",
            "http://:1",
            "http://a:",
            "unix://x/y",
            "unixs://a:1",
            "http://a:1?x=1",
            "HTTP://a:2",
            "http://[::1]:2",
            "http://u@a:1",
            "http://a:1#f",
            "http://a:99999",
            "unix://a",
            "unix://",
        ] {
            check(url, true);
        }
        for url in [
            "http://a",
            "http://a:1/x",
            "ftp://a:1",
            "a:1",
            "",
            "http://a:1/",
            "http://::1:2",
            "http://a:b",
            "http://a b:1",
            "http://a%20:1",
            "//a:1",
            "http:a:1",
        ] {
            check(url, false);
        }
        assert!(!is_accepted(&[]));
    }
    /// The expected results are those of etcd 3.5.16.
    #[test]
    fn cl_2_peer_urls_are_stored_in_one_form() {
        for (url, expected) in [
            ("HTTP://a:2", "http://a:2"),
            ("http://A:1", "http://A:1"),
            (" http://u@b:1?x=1#f ", "http://u@b:1?x=1#f"),
            ("http://a:1#", "http://a:1"),
            ("http://a:1?", "http://a:1?"),
            ("unix:///abc", "unix:///abc"),
        ] {
            assert_eq!(normalize(url), expected);
        }
    }
}
