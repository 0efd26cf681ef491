//! Blocks of PEM, read as Go's `encoding/pem` does: text around them is skipped.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// A block of PEM.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block<'a> {
    pub(super) kind: &'a str,
    pub(super) has_headers: bool,
    pub(super) content: Vec<u8>,
}

/// Returns the first block of a text, and the text after it.
pub(super) fn first(mut text: &str) -> Option<(Block<'_>, &str)> {
    loop {
        let (line, rest) = split_line(text)?;
        text = rest;
        let kind = line.strip_prefix("-----BEGIN ");
        let Some(kind) = kind.and_then(|line| line.strip_suffix("-----")) else {
            continue;
        };
        let end = format!("-----END {kind}-----");
        let (mut body, mut has_headers, mut rest) = (String::new(), false, rest);
        let is_complete = loop {
            let Some((line, after)) = split_line(rest) else {
                break false;
            };
            if line == end {
                rest = after;
                break true;
            }
            if line.starts_with("-----BEGIN ") || line.starts_with("-----END ") {
                break false;
            }
            // A header has a colon, which base64 does not have.
            if line.contains(':') && body.is_empty() {
                has_headers = true;
            } else {
                body.extend(line.split_whitespace());
            }
            rest = after;
        };
        if !is_complete {
            continue;
        }
        if let Ok(content) = STANDARD.decode(body) {
            let block = Block {
                kind,
                has_headers,
                content,
            };
            return Some((block, rest));
        }
        text = rest;
    }
}

/// Returns the first line without white space at its end, and the text after it.
fn split_line(text: &str) -> Option<(&str, &str)> {
    if text.is_empty() {
        return None;
    }
    let (line, rest) = text.split_once('\n').unwrap_or((text, ""));
    Some((line.trim_end(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_in_other_text() {
        let check = |text: &str, expected: Option<(&str, bool, &str)>| {
            let found = first(text).map(|(block, rest)| {
                assert_eq!(block.content, b"hello", "{text}");
                (block.kind, block.has_headers, rest)
            });
            assert_eq!(found, expected, "{text}");
        };
        check(
            "-----BEGIN A-----\naGVs\nbG8=\n-----END A-----\n",
            Some(("A", false, "")),
        );
        check(
            "x\n-----BEGIN A-----\r\naGVsbG8=\r\n-----END A-----\nrest",
            Some(("A", false, "rest")),
        );
        check(
            "-----BEGIN A-----\nK: v\n\naGVsbG8=\n-----END A-----",
            Some(("A", true, "")),
        );
        // What is malformed is skipped.
        check(
            "-----BEGIN A-----\naGVs\n-----BEGIN B-----\naGVsbG8=\n-----END B-----\n",
            Some(("B", false, "")),
        );
        check("-----BEGIN A-----\n!\n-----END A-----\n", None);
        check("-----BEGIN A-----\naGVsbG8=\n-----END B-----\n", None);
        check("-----BEGIN A-----\naGVsbG8=", None);
        check("", None);
    }
}
