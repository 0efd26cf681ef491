//! What counts as the URL of a peer.

/// CL-2: whether a new member could have these URLs: at least one, and each with a scheme that
/// peers speak, a host and a port. Blanks around a URL do not count.
pub(crate) fn are_valid(urls: &[String]) -> bool {
    !urls.is_empty() && urls.iter().all(|url| is_valid(url.trim()))
}

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

/// Looks at what follows the scheme: a host and a port, perhaps a user before and a query behind,
/// but no path.
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
    // A path would end up in the port.
    host_fits && port.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    fn check(url: &str, expected: bool) {
        assert_eq!(super::are_valid(&[url.to_owned()]), expected, "{url:?}");
    }

    /// All of these were put to etcd 3.5.16.
    #[test]
    fn cl_2_urls_are_those_that_peers_can_listen_on() {
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
        assert!(!super::are_valid(&[]));
    }
}
