//! The names of pods, services and nodes to which requests are proxied.

/// What the name in the path of a proxied request says: `NAME`, `NAME:PORT` or `SCHEME:NAME:PORT`. Corresponds to
/// `SplitSchemeNamePort`; the scheme, which is `http`, `https` or empty, has no use here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Proxied<'a> {
    /// The name of the object.
    pub(super) name: &'a str,
    /// The number or the name of a port; empty for none.
    pub(super) port: &'a str,
}

impl<'a> Proxied<'a> {
    /// Parses the name in a path, or returns `None` if it is none.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(':');
        let parts = (parts.next()?, parts.next(), parts.next(), parts.next());
        let (scheme, name, port) = match parts {
            (name, None, ..) => ("", name, ""),
            (name, Some(port), None, _) => ("", name, port),
            (scheme, Some(name), Some(port), None) => (scheme, name, port),
            _ => return None,
        };
        let is_valid = !name.is_empty() && ["", "http", "https"].contains(&scheme);
        is_valid.then_some(Self { name, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_schemes_and_ports() {
        for (text, expected) in [
            ("a", Some(("a", ""))),
            ("a:", Some(("a", ""))),
            ("a:80", Some(("a", "80"))),
            ("https:a:web", Some(("a", "web"))),
            ("https:a:", Some(("a", ""))),
            (":a:80", Some(("a", "80"))),
            ("ftp:a:80", None),
            ("http::80", None),
            (":80", None),
            ("", None),
            ("http:a:80:x", None),
        ] {
            let found = Proxied::parse(text).map(|found| (found.name, found.port));
            assert_eq!(found, expected, "{text:?}");
        }
    }
}
