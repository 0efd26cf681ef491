//! YAML output, in the form of `sigs.k8s.io/yaml`: block style, sorted keys, quotes only where a text would
//! be read as something else.

use std::fmt::Write as _;

use serde_json::Value;

use super::yaml_scalar;

/// Returns a value as a YAML document.
///
/// ```
/// use revstore_apiserver::decode::to_yaml;
/// use serde_json::json;
/// let pod = json!({"kind": "Pod", "apiVersion": "v1", "spec": {"args": ["-v", "yes", 1]}});
/// assert_eq!(
///     to_yaml(&pod),
///     "apiVersion: v1\nkind: Pod\nspec:\n  args:\n  - -v\n  - \"yes\"\n  - 1\n"
/// );
/// ```
pub fn to_yaml(value: &Value) -> String {
    let mut text = String::new();
    write_value(&mut text, value, 0, Position::Line);
    text
}

/// Where a value begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    /// At the beginning of a line, after its indentation.
    Line,
    /// After a key and its colon.
    Key,
    /// After the dash of an item.
    Item,
}

/// Appends a value, and the end of its last line.
fn write_value(text: &mut String, value: &Value, indent: usize, position: Position) {
    match value {
        Value::Object(object) if !object.is_empty() => {
            let mut first = position != Position::Key;
            if !first {
                text.push('\n');
            }
            if position == Position::Item {
                text.push(' ');
            }
            let mut members: Vec<_> = object.iter().collect();
            members.sort_unstable_by_key(|(key, _)| *key);
            for (key, value) in members {
                if !std::mem::take(&mut first) {
                    push_indent(text, indent);
                }
                write_key(text, key, indent);
                text.push(':');
                let inner = if value.is_array() { indent } else { indent + 2 };
                write_value(text, value, inner, Position::Key);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let mut first = position != Position::Key;
            if !first {
                text.push('\n');
            }
            if position == Position::Item {
                text.push(' ');
            }
            for item in items {
                if !std::mem::take(&mut first) {
                    push_indent(text, indent);
                }
                text.push('-');
                write_value(text, item, indent + 2, Position::Item);
            }
        }
        scalar => {
            if position != Position::Line {
                text.push(' ');
            }
            write_scalar(text, scalar, indent);
            text.push('\n');
        }
    }
}

fn push_indent(text: &mut String, indent: usize) {
    text.extend(std::iter::repeat_n(' ', indent));
}

fn write_scalar(text: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Array(_) => text.push_str("[]"),
        Value::Object(_) => text.push_str("{}"),
        Value::String(string) if is_block(string) => write_block(text, string, indent),
        Value::String(string) => write_text(text, string),
        other => {
            // Writing to a string does not fail.
            let _ = write!(text, "{other}");
        }
    }
}

/// Writes a key. A long one has an explicit indicator, because YAML limits the length of others.
fn write_key(text: &mut String, key: &str, indent: usize) {
    const SIMPLE_KEY_BYTES: usize = 128;
    if key.len() > SIMPLE_KEY_BYTES {
        text.push_str("? ");
        write_text(text, key);
        text.push('\n');
        push_indent(text, indent);
    } else {
        write_text(text, key);
    }
}

/// Returns whether a text is written as a literal block.
fn is_block(text: &str) -> bool {
    text.contains('\n')
        // A block cannot begin with space without an indicator, and cannot hold control characters.
        && !text.starts_with([' ', '\n', '\t'])
        && !text.contains(" \n")
        && !text.ends_with(' ')
        && text.chars().all(|letter| letter == '\n' || is_printable(letter))
}

fn write_block(text: &mut String, string: &str, indent: usize) {
    let body = string.trim_end_matches('\n');
    text.push_str(match string.len() - body.len() {
        0 => "|-",
        1 => "|",
        _ => "|+",
    });
    let lines = string.strip_suffix('\n').unwrap_or(string);
    for line in lines.split('\n') {
        text.push('\n');
        if !line.is_empty() {
            push_indent(text, indent.max(2));
            text.push_str(line);
        }
    }
}

/// Writes a text on one line, with quotes if it needs them.
fn write_text(text: &mut String, string: &str) {
    if is_plain(string) {
        text.push_str(string);
    } else if needs_single_quotes(string) {
        text.push('\'');
        text.push_str(&string.replace('\'', "''"));
        text.push('\'');
    } else {
        write_quoted(text, string);
    }
}

/// Returns whether a text needs no quotes.
fn is_plain(text: &str) -> bool {
    is_text(text) && has_plain_syntax(text)
}

/// Returns whether a text without special letters is quoted with single quotes.
fn needs_single_quotes(text: &str) -> bool {
    is_text(text) && text.chars().all(is_printable)
}

/// Returns whether a text without quotes is read as a text, also by readers that know numbers to the base 60.
fn is_text(text: &str) -> bool {
    let is_string = matches!(yaml_scalar::resolve(text, None), Ok(Value::String(_)));
    is_string && !is_base_60(text) && !is_date(text) && !matches!(text, "<<" | "=")
}

/// Returns whether a text is a date, or begins like one.
fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 8 && bytes[..4].iter().all(u8::is_ascii_digit) && bytes[4] == b'-'
}

/// Returns whether a text is a number to the base 60, such as `190:20:30`.
fn is_base_60(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let mut parts = unsigned.split(':');
    let is_number = |part: &str| {
        part.starts_with(|first: char| first.is_ascii_digit())
            && part
                .bytes()
                .all(|byte| byte.is_ascii_digit() || b"_.".contains(&byte))
    };
    parts.next().is_some_and(is_number)
        && unsigned.contains(':')
        && parts.all(|part| part.is_empty() || is_number(part))
}

/// Returns whether a text can stand without quotes in a block.
fn has_plain_syntax(text: &str) -> bool {
    let mut letters = text.chars();
    let (Some(first), second) = (letters.next(), letters.next()) else {
        return false;
    };
    let follows = second.is_some_and(|second| second != ' ');
    let starts = match first {
        '-' | '?' | ':' => follows,
        ',' | '[' | ']' | '{' | '}' | '#' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%'
        | '@' | '`' | ' ' => false,
        _ => true,
    };
    starts
        && !text.starts_with("---")
        && !text.starts_with("...")
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && text.chars().all(is_printable)
}

fn is_printable(letter: char) -> bool {
    matches!(letter, ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}'
        | '\u{10000}'..)
        && !matches!(letter, '\u{2028}' | '\u{2029}')
}

fn write_quoted(text: &mut String, string: &str) {
    text.push('"');
    for letter in string.chars() {
        match letter {
            '"' | '\\' => text.extend(['\\', letter]),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            letter if is_printable(letter) => text.push(letter),
            letter => {
                let number = u32::from(letter);
                // Writing to a string does not fail.
                let _ = match number {
                    0..=0xff => write!(text, "\\x{number:02X}"),
                    0x100..=0xffff => write!(text, "\\u{number:04X}"),
                    _ => write!(text, "\\U{number:08X}"),
                };
            }
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::to_yaml;
    use crate::decode::from_yaml;

    #[test]
    fn documents_have_the_form_of_sigs_yaml() {
        for (value, expected) in [
            (json!(null), "null\n"),
            (json!({}), "{}\n"),
            (json!([]), "[]\n"),
            (
                json!([[], {}, [[1, 2]], {"a": 1, "b": [3]}]),
                "- []\n- {}\n- - - 1\n    - 2\n- a: 1\n  b:\n  - 3\n",
            ),
            (
                json!({"a": {"b": null}, "c": [{"d": {}}], "e": []}),
                "a:\n  b: null\nc:\n- d: {}\ne: []\n",
            ),
            (
                json!({"a": "", "b": "true", "c": "1:2", "d": "2001-01-01", "e": "1", "f": "~"}),
                "a: \"\"\nb: \"true\"\nc: \"1:2\"\nd: \"2001-01-01\"\ne: \"1\"\nf: \"~\"\n",
            ),
            (
                json!({"a": "x\ny\n", "b": "x\ny", "c": "x\n\n", "d": "a: b", "e": "#x", "yes": "'"}),
                "a: |\n  x\n  y\nb: |-\n  x\n  y\nc: |+\n  x\n\nd: 'a: b'\ne: '#x'\n\"yes\": ''''\n",
            ),
            (
                json!(["a\u{7}", " x", "-", "- x", "-x", "*"]),
                "- \"a\\x07\"\n- ' x'\n- '-'\n- '- x'\n- -x\n- '*'\n",
            ),
        ] {
            assert_eq!(to_yaml(&value), expected);
            assert_eq!(from_yaml(expected.as_bytes()).unwrap().value, value);
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let texts = prop_oneof![
            "\\PC{0,8}",
            "[-+0-9.:_exob]{0,6}",
            "[ \n\t#:'\"a,\\-?{}\\[\\]&*!|>%@`\\\\]{0,8}",
            any::<String>(),
            "[ab]{130}",
        ];
        let scalars = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-1e15..1e15_f64).prop_map(|float| json!(float + 0.5)),
            texts.clone().prop_map(Value::from),
        ];
        scalars.prop_recursive(4, 32, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((texts.clone(), inner), 0..4)
                    .prop_map(|members| Value::Object(Map::from_iter(members))),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_document_is_read_as_the_value_it_was_written_from(value in values()) {
            let mut expected = value.clone();
            crate::decode::integral_floats_to_integers(&mut expected);
            let text = to_yaml(&value);
            let decoded = from_yaml(text.as_bytes());
            prop_assert_eq!(decoded.map(|decoded| decoded.value), Ok(expected), "{}", text);
        }

        #[test]
        fn decoding_never_panics(text in any::<String>(), bytes in any::<Vec<u8>>()) {
            let _ = from_yaml(text.as_bytes());
            let _ = from_yaml(&bytes);
            let _ = crate::decode::from_json(&bytes);
        }
    }
}
