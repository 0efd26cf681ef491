//! URLs, as Go's `net/url` reads them.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use super::go_quote;

/// A URL in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    text: String,
    pub(crate) scheme: String,
    /// The name of a user, with a password, in front of the host, escaped as Go shows them.
    user: Option<String>,
    /// With the port.
    pub(crate) host: String,
    pub(crate) path: String,
    query: String,
    fragment: String,
}

impl Url {
    /// Reads a URL that is absolute, or a path from the root. Corresponds to `url.ParseRequestURI`.
    ///
    /// # Errors
    /// The text of Go's error.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        // Its fragment is not separated, but for programs that is a part of the path.
        let before = text.split_once('#').map_or(text, |(before, _)| before);
        let fail = |reason: &str| format!("parse {}: {reason}", go_quote(text, false));
        if text.is_empty() {
            return Err(fail("empty url"));
        }
        Self::read(text, before, true).map_err(|reason| fail(&reason))
    }

    /// Reads a URL that may be relative or empty. Corresponds to `url.Parse`.
    ///
    /// ```
    /// use revstore_cel::Url;
    ///
    /// let url = Url::parse_reference("https://user@example.com:80/a?b=c#d")?;
    /// assert_eq!((url.scheme(), url.host()), ("https", "example.com:80"));
    /// assert_eq!((url.user(), url.raw_query(), url.fragment()), (Some("user"), "b=c", "d"));
    /// let error = Url::parse_reference("https://a b/");
    /// assert_eq!(error.unwrap_err(), r#"parse "https://a b/": invalid character " " in host name"#);
    /// # Ok::<(), String>(())
    /// ```
    ///
    /// # Errors
    /// The text of Go's error.
    pub fn parse_reference(text: &str) -> Result<Self, String> {
        let (before, fragment) = text.split_once('#').unwrap_or((text, ""));
        let fail = |text, reason: &str| format!("parse {}: {reason}", go_quote(text, false));
        let mut url = Self::read(text, before, false).map_err(|reason| fail(before, &reason))?;
        check_escapes(fragment).map_err(|reason| fail(text, &reason))?;
        url.fragment = unescape(fragment, false).unwrap_or_else(|| fragment.to_owned());
        Ok(url)
    }

    /// Reads a text without its fragment.
    fn read(text: &str, before: &str, is_request: bool) -> Result<Self, String> {
        if text.chars().any(|letter| letter.is_ascii_control()) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        let (scheme, rest) = scheme(before)?;
        let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
        let is_opaque = !before.starts_with('/');
        if is_opaque && scheme.is_empty() {
            if is_request {
                return Err("invalid URI for request".to_owned());
            }
            if before.split('/').next().unwrap_or_default().contains(':') {
                return Err("first path segment in URL cannot contain colon".to_owned());
            }
        }
        let has_authority = !scheme.is_empty() || !is_request && !before.starts_with("///");
        let (authority, path) = match before.strip_prefix("//") {
            Some(rest) if has_authority => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            _ if is_opaque && !scheme.is_empty() => ("", ""),
            _ => ("", before),
        };
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        check_host(host)?;
        let user = user.map(shown_user).transpose()?;
        check_escapes(path)?;
        Ok(Self {
            text: text.to_owned(),
            scheme: scheme.to_ascii_lowercase(),
            user,
            host: unescape(host, false).unwrap_or_else(|| host.to_owned()),
            path: escape_path(path),
            query: query.to_owned(),
            fragment: String::new(),
        })
    }

    /// Returns the scheme in lower case, or an empty text.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Returns the host with its port, or an empty text.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the name of the user, with `:` and the password if there is one, escaped.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Returns the query as it was written, or an empty text.
    pub fn raw_query(&self) -> &str {
        &self.query
    }

    /// Returns the fragment, unescaped, or an empty text.
    pub fn fragment(&self) -> &str {
        &self.fragment
    }

    /// Returns the host without its port and brackets.
    pub(crate) fn hostname(&self) -> &str {
        self.split_host().0
    }

    pub(crate) fn port(&self) -> &str {
        self.split_host().1
    }

    fn split_host(&self) -> (&str, &str) {
        if let Some(rest) = self.host.strip_prefix('[') {
            let (name, after) = rest.split_once(']').unwrap_or((rest, ""));
            return (name, after.strip_prefix(':').unwrap_or(""));
        }
        match self.host.rsplit_once(':') {
            Some((name, port)) => (name, port),
            None => (&self.host, ""),
        }
    }

    /// Returns the parameters of the query. Malformed ones are left out.
    pub(crate) fn query(&self) -> BTreeMap<String, Vec<String>> {
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for part in self.query.split('&') {
            if part.is_empty() || part.contains(';') {
                continue;
            }
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            if let (Some(key), Some(value)) = (unescape(key, true), unescape(value, true)) {
                found.entry(key).or_default().push(value);
            }
        }
        found
    }
}

impl fmt::Display for Url {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

fn scheme(text: &str) -> Result<(&str, &str), String> {
    for (index, letter) in text.char_indices() {
        match letter {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if index > 0 => {}
            ':' if index == 0 => return Err("missing protocol scheme".to_owned()),
            ':' => return Ok((&text[..index], &text[index + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

/// Returns the name of a user and the password as Go shows them.
fn shown_user(text: &str) -> Result<String, String> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
    if !text.bytes().all(is_valid) {
        return Err("net/url: invalid userinfo".to_owned());
    }
    check_escapes(text)?;
    let part = |text: &str| {
        let plain = unescape(text, false).unwrap_or_else(|| text.to_owned());
        escape(&plain, b"-_.~$&+,;=")
    };
    Ok(match text.split_once(':') {
        Some((name, password)) => format!("{}:{}", part(name), part(password)),
        None => part(text),
    })
}

fn check_host(host: &str) -> Result<(), String> {
    let after = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((_, after)) => after,
            None => return Err("missing ']' in host".to_owned()),
        },
        None => host.find(':').map_or("", |index| &host[index..]),
    };
    let is_port = after.is_empty()
        || after
            .strip_prefix(':')
            .is_some_and(|port| port.bytes().all(|it| it.is_ascii_digit()));
    if !is_port {
        return Err(format!(
            "invalid port {} after host",
            go_quote(after, false)
        ));
    }
    if let Some(bad) = host.chars().find(|letter| " \"<>\\^`{|}".contains(*letter)) {
        let bad = go_quote(&bad.to_string(), false);
        return Err(format!("invalid character {bad} in host name"));
    }
    // Only bytes that are not ASCII may be escaped in a host, outside of a zone.
    let name = host.split_once("%25").map_or(host, |(before, _)| before);
    check_escapes(name)?;
    for (index, _) in name.match_indices('%') {
        let escaped = &name[index..index + 3];
        if matches!(escaped.as_bytes()[1], b'0'..=b'7') {
            return Err(format!("invalid URL escape {}", go_quote(escaped, false)));
        }
    }
    check_escapes(host)
}

fn check_escapes(text: &str) -> Result<(), String> {
    let bytes = text.as_bytes();
    for (index, byte) in bytes.iter().enumerate() {
        let digits = bytes.get(index + 1..index + 3);
        let is_fine =
            *byte != b'%' || digits.is_some_and(|it| it.iter().all(u8::is_ascii_hexdigit));
        if !is_fine {
            let shown: String = text[index..].chars().take(3).collect();
            return Err(format!("invalid URL escape {}", go_quote(&shown, false)));
        }
    }
    Ok(())
}

fn unescape(text: &str, is_query: bool) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                let digits = std::str::from_utf8(&digits).ok()?.to_owned();
                out.push(u8::from_str_radix(&digits, 16).ok()?);
            }
            b'+' if is_query => out.push(b' '),
            byte => out.push(byte),
        }
    }
    Some(String::from_utf8_lossy(&out).into_owned())
}

/// Escapes what may not stand in a path, unless it is a valid path already.
fn escape_path(path: &str) -> String {
    let is_valid = path
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@!'()*[]%".contains(&byte));
    if is_valid {
        return path.to_owned();
    }
    let plain = unescape(path, false).unwrap_or_else(|| path.to_owned());
    escape(&plain, b"-_.~$&+,/:;=@")
}

/// Escapes all bytes but letters, digits and those named.
fn escape(plain: &str, kept: &[u8]) -> String {
    let mut out = String::new();
    for byte in plain.bytes() {
        if byte.is_ascii_alphanumeric() || kept.contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}
