//! The text format of messages: the protobuf text format with three abbreviations.
//!
//! - `header @7` is a top-level header at revision 7 with the ids and the term of the servers under test.
//!   Every other header is written in full.
//! - `%200(x)` is `x` repeated 200 times, in requests and in responses.
//! - `$1` is the first lease or member whose id the server chose; see [`LeaseNames`].

use std::fmt::Write as _;

use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, Value};

use crate::scenario::normalize::LeaseNames;
use crate::scenario::target::{CLUSTER_ID, MEMBER_ID, RAFT_TERM};

/// The minimum number of consecutive equal bytes or lines that are abbreviated.
const RUN_MIN: usize = 32;

/// Parses a message.
///
/// # Errors
/// A description of the syntax error.
pub fn parse(
    descriptor: &MessageDescriptor,
    text: &str,
    names: &LeaseNames,
) -> Result<DynamicMessage, String> {
    let expanded = names.resolve(&expand(text)?)?;
    DynamicMessage::parse_text_format(descriptor.clone(), &expanded)
        .map_err(|error| format!("{text}: {error}"))
}

/// Formats a message, with one line for each of its fields.
pub fn lines(message: &DynamicMessage, names: &LeaseNames) -> Vec<String> {
    let fields = message
        .fields()
        .flat_map(|(field, value)| values_of(field, value));
    let lines: Vec<_> = fields
        .map(|(field, value)| top_level(&field, value, names))
        .collect();
    fold(&lines)
}

/// Formats a message on one line, as a request of a scenario.
pub fn line(message: &DynamicMessage) -> String {
    lines(message, &LeaseNames::default()).join(" ")
}

/// Returns the elements of a list, or the single value of another field.
fn values_of(field: FieldDescriptor, value: &Value) -> Vec<(FieldDescriptor, &Value)> {
    match value {
        Value::List(values) => values.iter().map(|value| (field.clone(), value)).collect(),
        value => vec![(field, value)],
    }
}

fn top_level(field: &FieldDescriptor, value: &Value, names: &LeaseNames) -> String {
    match value {
        Value::Message(message) if field.name() == "header" => match full_header(message) {
            Some(revision) => format!("header @{revision}"),
            None => format_field(field, value, names),
        },
        value => format_field(field, value, names),
    }
}

/// Returns the revision of a header whose other fields are those of a server under test.
fn full_header(header: &DynamicMessage) -> Option<i64> {
    let number = |name| {
        header
            .get_field_by_name(name)
            .and_then(|value| value.as_u64())
    };
    let expected = [
        ("cluster_id", CLUSTER_ID),
        ("member_id", MEMBER_ID),
        ("raft_term", RAFT_TERM),
    ];
    let full = expected
        .iter()
        .all(|(name, value)| number(name) == Some(*value));
    full.then(|| header.get_field_by_name("revision")?.as_i64())
        .flatten()
}

fn format_field(field: &FieldDescriptor, value: &Value, names: &LeaseNames) -> String {
    let name = field.name();
    let text = match (value, field.kind()) {
        (Value::Message(message), _) => {
            let fields = message
                .fields()
                .flat_map(|(field, value)| values_of(field, value));
            let fields: Vec<_> = fields
                .map(|(field, value)| format_field(&field, value, names))
                .collect();
            return match fields.join(" ") {
                fields if fields.is_empty() => format!("{name} {{}}"),
                fields => format!("{name} {{ {fields} }}"),
            };
        }
        (Value::EnumNumber(number), Kind::Enum(kind)) => match kind.get_value(*number) {
            Some(value) => value.name().to_owned(),
            None => number.to_string(),
        },
        (Value::I64(number), _) => names
            .of(field, number.cast_unsigned())
            .unwrap_or_else(|| number.to_string()),
        (Value::Bytes(bytes), _) => quoted(bytes),
        (Value::String(text), _) => quoted(text.as_bytes()),
        (Value::Bool(flag), _) => flag.to_string(),
        (Value::U64(number), _) => names
            .of(field, *number)
            .unwrap_or_else(|| number.to_string()),
        (Value::U32(number), _) => number.to_string(),
        (Value::I32(number), _) => number.to_string(),
        (value, _) => value.to_string(),
    };
    format!("{name}: {text}")
}

/// Formats bytes in quotes, unprintable ones in octal.
pub fn quoted(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for run in bytes.chunk_by(|one, next| one == next) {
        let byte = escape(run[0]);
        if run.len() < RUN_MIN {
            text.push_str(&byte.repeat(run.len()));
        } else {
            let _ = write!(text, "%{}({byte})", run.len());
        }
    }
    text.push('"');
    text
}

fn escape(byte: u8) -> String {
    match byte {
        b'"' | b'\\' => format!("\\{}", char::from(byte)),
        b' '..=b'~' => char::from(byte).to_string(),
        byte => format!("\\{byte:03o}"),
    }
}

/// Abbreviates runs of at least [`RUN_MIN`] equal lines.
fn fold(lines: &[String]) -> Vec<String> {
    let mut folded = Vec::new();
    for run in lines.chunk_by(|one, next| one == next) {
        if run.len() < RUN_MIN {
            folded.extend_from_slice(run);
        } else {
            folded.push(format!("%{}({})", run.len(), run[0]));
        }
    }
    folded
}

/// Expands abbreviated repetitions.
fn expand(text: &str) -> Result<String, String> {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        expanded.push_str(before);
        let repetition = after.split_once('(').and_then(|(times, after)| {
            let (repeated, after) = after.split_once(')')?;
            Some((times.parse::<usize>().ok()?, repeated, after))
        });
        let (times, repeated, after) = repetition.ok_or_else(|| {
            format!("invalid repetition \"%{after}\": the format is %NUMBER(TEXT)")
        })?;
        for _ in 0..times {
            expanded.push_str(repeated);
            // Fields are separated by blanks. In a string, only single bytes are repeated.
            if repeated.ends_with('}') {
                expanded.push(' ');
            }
        }
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::wire::Method;

    fn check(method: &str, text: &str, expected: &str) {
        let input = Method::of_name(method).unwrap().input();
        let message = parse(&input, text, &LeaseNames::default()).unwrap();
        assert_eq!(line(&message), expected);
        let again = parse(&input, expected, &LeaseNames::default()).unwrap();
        assert_eq!(again, message, "{expected}");
    }

    #[test]
    fn formatted_messages_parse_to_the_same() {
        check("Put", "", "");
        check(
            "Put",
            "value: '\\x00\"' key: 'k'",
            r#"key: "k" value: "\000\"""#,
        );
        check(
            "Put",
            "lease: -9223372036854775808",
            "lease: -9223372036854775808",
        );
        check(
            "Txn",
            "success { request_txn {} } compare { key: 'k' target: 9 version: 0 }",
            r#"compare { target: 9 key: "k" version: 0 } success { request_txn {} }"#,
        );
    }

    #[test]
    fn repetitions_are_expanded_and_abbreviated() {
        check("Put", "value: '%40(x)y'", r#"value: "%40(x)y""#);
        check("Txn", "%33(failure {})", "%33(failure {})");
        assert!(expand("%x(y)").is_err());
        assert!(expand("%3(y").is_err());
    }

    #[test]
    fn only_headers_of_servers_under_test_are_abbreviated() {
        let output = Method::of_name("Compact").unwrap().output();
        let header = |term| {
            format!(
                "header {{ cluster_id: {CLUSTER_ID} member_id: {MEMBER_ID} revision: 7 raft_term: {term} }}"
            )
        };
        let line_of = |text: &str| line(&parse(&output, text, &LeaseNames::default()).unwrap());
        assert_eq!(line_of(&header(2)), "header @7");
        assert_eq!(line_of(&header(3)), header(3));
        assert_eq!(line_of("header { revision: 7 }"), "header { revision: 7 }");
    }
}
