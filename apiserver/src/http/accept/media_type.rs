//! The header `Content-Type`, as Go's `mime.ParseMediaType` reads it.

use std::collections::HashMap;

/// Returns the media type in lower case, without its parameters, or `None` if the text is malformed.
pub(crate) fn parse(text: &str) -> Option<String> {
    let end = text.find(';').unwrap_or(text.len());
    let media = text[..end].trim().to_lowercase();
    let (kind, subtype) = media.split_once('/').unwrap_or((&media, ""));
    let is_complete = is_token(kind) && (is_token(subtype) || !media.contains('/'));
    if !is_complete {
        return None;
    }
    let mut rest = text[end..].trim_start();
    let mut parameters: HashMap<String, &str> = HashMap::new();
    while !rest.is_empty() {
        if rest.trim() == ";" {
            break;
        }
        let (name, value, after) = parameter(rest)?;
        let before = parameters.insert(name, value);
        if before.is_some_and(|before| before != value) {
            return None;
        }
        rest = after.trim_start();
    }
    Some(media)
}

/// Reads one parameter with the semicolon before it. Returns its name, its value with the quotes, and what follows.
fn parameter(text: &str) -> Option<(String, &str, &str)> {
    let text = text.strip_prefix(';')?.trim_start();
    let (name, text) = token(text)?;
    let text = text.trim_start().strip_prefix('=')?.trim_start();
    let (value, rest) = match text.strip_prefix('"') {
        None => token(text)?,
        Some(quoted) => {
            let mut is_escaped = false;
            let end = quoted.find(|character| {
                let ends = character == '"' && !is_escaped;
                is_escaped = character == '\\' && !is_escaped;
                ends
            })?;
            (&text[..end + 2], &quoted[end + 1..])
        }
    };
    Some((name.to_lowercase(), value, rest))
}

fn token(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|character| !is_token_character(character));
    let (token, rest) = text.split_at(end.unwrap_or(text.len()));
    (!token.is_empty()).then_some((token, rest))
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_token_character)
}

fn is_token_character(character: char) -> bool {
    character.is_ascii_graphic() && !"()<>@,;:\\\"/[]?=".contains(character)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn media_types_are_read_as_by_go() {
        let json = Some("application/json");
        for (text, expected) in [
            ("application/json", json),
            ("APPLICATION/Json", json),
            (" application/json ;charset=utf-8", json),
            ("application/json;", json),
            ("application/json; ", json),
            ("application/json;a=b;a=b;c=\"x;\\\"y\"", json),
            ("json", Some("json")),
            ("", None),
            (";", None),
            ("application/", None),
            ("application/json/x", None),
            ("application/json, text/plain", None),
            ("application/json; x", None),
            ("application/json;a=b;a=c", None),
            ("application/json;a=\"b", None),
            ("application/json;;", None),
            ("application/j\u{e9}son", None),
        ] {
            assert_eq!(parse(text).as_deref(), expected, "{text}");
        }
    }
}
