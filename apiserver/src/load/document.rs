//! The documents of a file.

use bytes::Bytes;
use serde::de::IgnoredAny;
use serde_json::Deserializer;

use crate::decode::Format;

/// A document, as it is in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Document {
    pub(super) text: Bytes,
    pub(super) format: Format,
    /// The number in the file, from 1. Empty documents do not count.
    pub(super) number: usize,
    /// The line in which it begins, from 1.
    pub(super) line: usize,
}

/// Returns the documents of a file. Malformed ones are found when they are decoded.
pub(super) fn split(text: &Bytes, format: Format) -> Vec<Document> {
    match format {
        Format::Yaml => split_yaml(text),
        Format::Json => split_json(text),
    }
}

/// Splits at the lines that begin or end a document, as those of YAML: `---` and `...`.
fn split_yaml(text: &Bytes) -> Vec<Document> {
    let mut documents = Vec::new();
    let (mut start, mut start_line) = (0, 1);
    let (mut position, mut line) = (0, 1);
    let mut add = |from: usize, to: usize, line: usize| {
        let part = &text[from..to];
        let is_blank = part.split(|byte| *byte == b'\n').all(|line| {
            let line = if is_marker(line) { &line[3..] } else { line };
            let line = line.trim_ascii();
            line.is_empty() || line.starts_with(b"#")
        });
        if !is_blank {
            documents.push(Document {
                text: text.slice(from..to),
                format: Format::Yaml,
                number: documents.len() + 1,
                line,
            });
        }
    };
    while position < text.len() {
        let rest = &text[position..];
        let length = rest.iter().position(|byte| *byte == b'\n');
        let length = length.map_or(rest.len(), |end| end + 1);
        if is_marker(&rest[..length]) {
            add(start, position, start_line);
            (start, start_line) = (position, line);
        }
        position += length;
        line += 1;
    }
    add(start, position, start_line);
    documents
}

fn is_marker(line: &[u8]) -> bool {
    let Some(rest) = line
        .strip_prefix(b"---")
        .or_else(|| line.strip_prefix(b"..."))
    else {
        return false;
    };
    rest.first().is_none_or(u8::is_ascii_whitespace)
}

/// Splits between values that follow each other. What is after a malformed one belongs to it.
fn split_json(text: &Bytes) -> Vec<Document> {
    let mut documents: Vec<Document> = Vec::new();
    let mut values = Deserializer::from_slice(text).into_iter::<IgnoredAny>();
    let (mut start, mut line) = (0, 1);
    loop {
        let space = text[start..]
            .iter()
            .take_while(|it| it.is_ascii_whitespace());
        let space = space.count();
        line += newlines(&text[start..start + space]);
        start += space;
        let end = match values.next() {
            None => return documents,
            Some(Ok(_)) => values.byte_offset(),
            Some(Err(_)) => text.len(),
        };
        documents.push(Document {
            text: text.slice(start..end),
            format: Format::Json,
            number: documents.len() + 1,
            line,
        });
        if end == text.len() {
            return documents;
        }
        line += newlines(&text[start..end]);
        start = end;
    }
}

fn newlines(text: &[u8]) -> usize {
    text.split(|byte| *byte == b'\n').count() - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(format: Format, text: &'static str, expected: &[(usize, &str)]) {
        let documents = split(&Bytes::from_static(text.as_bytes()), format);
        let found: Vec<_> = documents
            .iter()
            .map(|it| (it.line, std::str::from_utf8(&it.text).unwrap()))
            .collect();
        assert_eq!(found, expected, "{text:?}");
        let numbers: Vec<_> = documents.iter().map(|it| it.number).collect();
        assert_eq!(numbers, (1..=expected.len()).collect::<Vec<_>>());
    }

    #[test]
    fn documents_of_yaml_are_split_at_markers() {
        let check = |text, expected: &[_]| check(Format::Yaml, text, expected);
        check("", &[]);
        check("a: 1", &[(1, "a: 1")]);
        check(
            "---\na: 1\n---\nb: 2",
            &[(1, "---\na: 1\n"), (3, "---\nb: 2")],
        );
        check("# x\n--- # y\n\n---\na: 1\n...\n", &[(4, "---\na: 1\n")]);
        check(
            "a: 1\r\n---\r\nb: 2\r\n",
            &[(1, "a: 1\r\n"), (2, "---\r\nb: 2\r\n")],
        );
        check(
            "--- {a: 1}\n--- {b: 2}",
            &[(1, "--- {a: 1}\n"), (2, "--- {b: 2}")],
        );
        // Not at texts with the same beginning, or in a block.
        check(
            "---a: 1\nb: |\n  ---\n ...\n",
            &[(1, "---a: 1\nb: |\n  ---\n ...\n")],
        );
    }

    #[test]
    fn values_of_json_follow_each_other() {
        let check = |text, expected: &[_]| check(Format::Json, text, expected);
        check(" \n", &[]);
        check("{}", &[(1, "{}")]);
        check(
            "{\"a\":\n1}{}\n\n{}\n",
            &[(1, "{\"a\":\n1}"), (2, "{}"), (4, "{}")],
        );
        check("{}\n{]\n{}", &[(1, "{}"), (2, "{]\n{}")]);
    }
}
