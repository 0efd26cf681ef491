//! Messages as text: the protobuf text format, with three abbreviations.
//!
//! - A top-level header of a node with the ids and the term that all our servers have is `header @7`,
//!   which says its revision; any other header is written out.
//! - `%200(x)` is `x` two hundred times, in requests and in answers.
//! - `$1` is the first lease whose id the server picked; see [`Names`].

use std::fmt::Write as _;

use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, Value};

use crate::scenario::normal::Names;
use crate::scenario::target::{CLUSTER_ID, MEMBER_ID, RAFT_TERM};

/// How many equal bytes or lines in a row are worth an abbreviation.
const RUN_MIN: usize = 32;

/// Reads a message.
///
/// # Errors
/// Says what is wrong with the text.
pub fn parse(
    descriptor: &MessageDescriptor,
    text: &str,
    names: &Names,
) -> Result<DynamicMessage, String> {
    let expanded = names.resolve(&expand(text)?)?;
    DynamicMessage::parse_text_format(descriptor.clone(), &expanded)
        .map_err(|error| format!("{text}: {error}"))
}

/// Writes a message, a line for each of its fields.
pub fn lines(message: &DynamicMessage, names: &Names) -> Vec<String> {
    let fields = message
        .fields()
        .flat_map(|(field, value)| each(field, value));
    let lines: Vec<_> = fields
        .map(|(field, value)| top_level(&field, value, names))
        .collect();
    fold(&lines)
}

/// Writes a message on one line, as requests stand in a scenario.
pub fn line(message: &DynamicMessage) -> String {
    lines(message, &Names::default()).join(" ")
}

/// The elements of a list, or the one value of another field.
fn each(field: FieldDescriptor, value: &Value) -> Vec<(FieldDescriptor, &Value)> {
    match value {
        Value::List(values) => values.iter().map(|value| (field.clone(), value)).collect(),
        value => vec![(field, value)],
    }
}

fn top_level(field: &FieldDescriptor, value: &Value, names: &Names) -> String {
    match value {
        Value::Message(message) if field.name() == "header" => match full_header(message) {
            Some(revision) => format!("header @{revision}"),
            None => one(field, value, names),
        },
        value => one(field, value, names),
    }
}

/// The revision of a header that is otherwise as expected of a node.
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

fn one(field: &FieldDescriptor, value: &Value, names: &Names) -> String {
    let name = field.name();
    let text = match (value, field.kind()) {
        (Value::Message(message), _) => {
            let fields = message
                .fields()
                .flat_map(|(field, value)| each(field, value));
            let fields: Vec<_> = fields
                .map(|(field, value)| one(&field, value, names))
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
            .of(field, *number)
            .unwrap_or_else(|| number.to_string()),
        (Value::Bytes(bytes), _) => quoted(bytes),
        (Value::String(text), _) => quoted(text.as_bytes()),
        (Value::Bool(flag), _) => flag.to_string(),
        (Value::U64(number), _) => number.to_string(),
        (Value::U32(number), _) => number.to_string(),
        (Value::I32(number), _) => number.to_string(),
        (value, _) => value.to_string(),
    };
    format!("{name}: {text}")
}

/// Bytes in quotes, printable or in octal.
pub fn quoted(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for run in bytes.chunk_by(|one, next| one == next) {
        let byte = escaped(run[0]);
        if run.len() < RUN_MIN {
            text.push_str(&byte.repeat(run.len()));
        } else {
            let _ = write!(text, "%{}({byte})", run.len());
        }
    }
    text.push('"');
    text
}

fn escaped(byte: u8) -> String {
    match byte {
        b'"' | b'\\' => format!("\\{}", char::from(byte)),
        b' '..=b'~' => char::from(byte).to_string(),
        byte => format!("\\{byte:03o}"),
    }
}

/// Abbreviates lines that are there many times in a row.
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

/// Writes abbreviated repetitions out.
fn expand(text: &str) -> Result<String, String> {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        expanded.push_str(before);
        let repetition = after.split_once('(').and_then(|(times, after)| {
            let (what, after) = after.split_once(')')?;
            Some((times.parse::<usize>().ok()?, what, after))
        });
        let (times, what, after) = repetition.ok_or_else(|| format!("%{after}: no repetition"))?;
        for _ in 0..times {
            expanded.push_str(what);
            // Between fields; nothing is repeated inside a string but single bytes.
            if what.ends_with('}') {
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
        let message = parse(&input, text, &Names::default()).unwrap();
        assert_eq!(line(&message), expected);
        let again = parse(&input, expected, &Names::default()).unwrap();
        assert_eq!(again, message, "{expected}");
    }

    #[test]
    fn what_is_written_reads_as_the_same() {
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
    fn repetitions_are_expanded_and_found_again() {
        check("Put", "value: '%40(x)y'", r#"value: "%40(x)y""#);
        check("Txn", "%33(failure {})", "%33(failure {})");
        assert!(expand("%x(y)").is_err());
        assert!(expand("%3(y").is_err());
    }

    #[test]
    fn headers_of_a_node_are_abbreviated_and_others_are_not() {
        let output = Method::of_name("Compact").unwrap().output();
        let header = |term| {
            format!(
                "header {{ cluster_id: {CLUSTER_ID} member_id: {MEMBER_ID} revision: 7 raft_term: {term} }}"
            )
        };
        let line_of = |text: &str| line(&parse(&output, text, &Names::default()).unwrap());
        assert_eq!(line_of(&header(2)), "header @7");
        assert_eq!(line_of(&header(3)), header(3));
        assert_eq!(line_of("header { revision: 7 }"), "header { revision: 7 }");
    }
}
