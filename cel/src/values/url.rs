//! URLs: absolute, or a path from the root.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use super::go_quote;

/// A URL in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    text: String,
    pub(crate) scheme: String,
    /// With the port.
    pub(crate) host: String,
    pub(crate) path: String,
    query: String,
}

impl Url {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let fail = |reason: &str| format!("parse {}: {reason}", go_quote(text, false));
        if text.chars().any(|letter| letter.is_ascii_control()) {
            return Err(fail("net/url: invalid control character in URL"));
        }
        if text.is_empty() {
            return Err(fail("empty url"));
        }
        let (scheme, rest) = scheme(text).map_err(&fail)?;
        let without_fragment = rest.split_once('#').map_or(rest, |(before, _)| before);
        let (before, query) = without_fragment
            .split_once('?')
            .unwrap_or((without_fragment, ""));
        if !before.starts_with('/') && scheme.is_empty() {
            return Err(fail("invalid URI for request"));
        }
        let is_opaque = !before.starts_with('/');
        let (host, path) = match before.strip_prefix("//") {
            Some(rest) if !scheme.is_empty() => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            _ => ("", if is_opaque { "" } else { before }),
        };
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        check_host(host).map_err(|reason| fail(&reason))?;
        check_escapes(path).map_err(|reason| fail(&reason))?;
        Ok(Self {
            text: text.to_owned(),
            scheme: scheme.to_ascii_lowercase(),
            host: unescape(host, false).unwrap_or_else(|| host.to_owned()),
            path: escape_path(path),
            query: query.to_owned(),
        })
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

fn scheme(text: &str) -> Result<(&str, &str), &'static str> {
    for (index, letter) in text.char_indices() {
        match letter {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if index > 0 => {}
            ':' if index == 0 => return Err("missing protocol scheme"),
            ':' => return Ok((&text[..index], &text[index + 1..])),
            _ => break,
        }
    }
    let first = text.split('/').next().unwrap_or_default();
    if !text.starts_with('/') && first.contains(':') {
        return Err("first path segment in URL cannot contain colon");
    }
    Ok(("", text))
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
    let mut out = String::new();
    for byte in plain.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}
