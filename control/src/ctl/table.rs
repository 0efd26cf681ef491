//! Rows of tables, for people.

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::output::text;
use crate::key_text::escape;

/// The columns of a table, by the API of the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Columns {
    /// Those of a server with etcd's API.
    pub(super) etcd: &'static [&'static str],
    /// Those of a Kubernetes API, whose rows have a field `resource`.
    pub(super) front: &'static [&'static str],
}

impl Columns {
    /// Returns all but the last of either.
    pub(super) fn without_last(self) -> Self {
        let shorter = |columns: &'static [&'static str]| match columns {
            [kept @ .., _] => kept,
            [] => columns,
        };
        Self {
            etcd: shorter(self.etcd),
            front: shorter(self.front),
        }
    }

    /// Returns columns that are the same for both.
    pub(super) const fn of_both(columns: &'static [&'static str]) -> Self {
        Self {
            etcd: columns,
            front: columns,
        }
    }

    /// Returns the columns for the server that has sent a row; without a row, those that both have.
    fn of(self, row: Option<&Value>) -> Vec<&'static str> {
        match row {
            Some(row) if row["resource"].as_str().is_some_and(|it| !it.is_empty()) => {
                self.front.to_vec()
            }
            Some(_) => self.etcd.to_vec(),
            None => {
                let columns = self.etcd.iter().copied();
                columns.filter(|it| self.front.contains(it)).collect()
            }
        }
    }
}

/// Writes a list with a header. The columns are as wide as their cells.
pub(super) fn table(out: &mut impl Write, columns: Columns, rows: &[Value]) -> io::Result<()> {
    let columns = columns.of(rows.first());
    let mut lines = vec![header(&columns)];
    for row in rows {
        lines.push(cells(&columns, row));
    }
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<_> = (0..columns.len())
        .map(|column| width(column).unwrap_or(0))
        .collect();
    for line in &lines {
        write_row(out, line, &widths)?;
    }
    Ok(())
}

/// A table whose rows arrive one after the other. Its columns have a minimum width.
#[derive(Debug)]
pub(super) struct Stream {
    columns: Columns,
    /// Those of the first row; empty before it.
    shown: Vec<&'static str>,
}

impl Stream {
    pub(super) fn new(columns: Columns) -> Self {
        Self {
            columns,
            shown: Vec::new(),
        }
    }

    /// Writes a row, after a header if it is the first.
    pub(super) fn write(&mut self, out: &mut impl Write, row: &Value) -> io::Result<()> {
        if self.shown.is_empty() {
            self.shown = self.columns.of(Some(row));
            write_row(out, &header(&self.shown), &self.widths())?;
        }
        write_row(out, &cells(&self.shown, row), &self.widths())
    }

    fn widths(&self) -> Vec<usize> {
        let widths = self.shown.iter().map(|column| match *column {
            "event" | "user" | "revision" => 8,
            "code" => 9,
            "method" | "namespace" | "name" | "duration" => 12,
            "keys" | "resource" => 20,
            column => column.len(),
        });
        widths.collect()
    }
}

/// Returns the cells of a row. Those that are empty are `-`.
fn cells(columns: &[&str], row: &Value) -> Vec<String> {
    let cells = columns.iter().map(|column| match cell(column, row) {
        cell if cell.is_empty() => "-".to_owned(),
        cell => cell,
    });
    cells.collect()
}

fn header(columns: &[&str]) -> Vec<String> {
    columns.iter().map(|column| column.to_uppercase()).collect()
}

fn write_row(out: &mut impl Write, cells: &[String], widths: &[usize]) -> io::Result<()> {
    let cells = cells.iter().zip(widths);
    let cells: Vec<_> = cells
        .map(|(cell, width)| format!("{cell:width$}"))
        .collect();
    writeln!(out, "{}", cells.join("  ").trim_end())
}

/// Returns the cell of a row in a column. Keys are in base64 in JSON. The number 0 of a revision, a watch, a
/// rule, a status or a connection stands for none.
fn cell(column: &str, row: &Value) -> String {
    let value = &row[column];
    match column {
        "key" | "range_end" => key(value, &[]),
        "keys" if value.is_array() => keys(row),
        "method" => {
            let method = value.as_str().unwrap_or_default();
            let method = method.rsplit_once('.').map_or(method, |(_, name)| name);
            text(&method.into())
        }
        "revision" | "watch" | "rule" | "status" | "connection" if *value == 0 => String::new(),
        "request" => request(value),
        _ => text(value),
    }
}

/// Returns a key. It is in base64 in JSON.
fn key(value: &Value, separators: &[char]) -> String {
    let key = STANDARD.decode(value.as_str().unwrap_or_default());
    escape(&key.unwrap_or_default(), separators)
}

/// Returns the keys of a record of the journal: ranges are `A:B`, as in rules.
fn keys(record: &Value) -> String {
    let keys = record["keys"].as_array().into_iter().flatten();
    let keys = keys.map(|range| {
        let [start, end] = ["key", "range_end"].map(|name| key(&range[name], &[':', ',']));
        if end.is_empty() {
            start
        } else {
            format!("{start}:{end}")
        }
    });
    let mut keys: Vec<_> = keys.collect();
    let more = record["more_keys"].as_u64().unwrap_or_default();
    if more > 0 {
        keys.push(format!("{more} more"));
    }
    keys.join(",")
}

/// The number of bytes of a request that a table shows.
const REQUEST_BYTES_SHOWN: usize = 200;

/// Returns a request of the journal for people: what there is of its path and its body, which is in base64 in JSON.
fn request(value: &Value) -> String {
    let Some(object) = value.as_object() else {
        return String::new();
    };
    let of = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or("");
    let body = match of("left_out") {
        "" => shown(&STANDARD.decode(of("body")).unwrap_or_default()),
        reason => format!("({reason})"),
    };
    let parts = [text(&of("verb").into()), text(&of("path").into()), body];
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(" ")
}

/// Returns the start of a body with escape sequences.
fn shown(body: &[u8]) -> String {
    let start = &body[..body.len().min(REQUEST_BYTES_SHOWN)];
    let rest = if start.len() < body.len() { "..." } else { "" };
    format!("{}{rest}", start.escape_ascii())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const COLUMNS: Columns = Columns {
        etcd: &["number", "method", "keys", "code", "revision", "reason"],
        front: &["number", "method", "resource", "name", "status", "reason"],
    };

    fn check(columns: Columns, rows: &[Value], expected: &str) {
        let mut out = Vec::new();
        let mut stream = Stream::new(columns);
        for row in rows {
            stream.write(&mut out, row).unwrap();
        }
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn streams_have_a_header_and_the_columns_of_their_server() {
        let keys = json!([{"key": "YTpi", "range_end": "Yw=="}, {"key": "/w==", "range_end": ""}]);
        let range = json!({
            "number": 1, "method": "etcdserverpb.KV/Range", "keys": keys, "more_keys": 2,
            "code": "OK", "revision": 0, "reason": "", "resource": "",
        });
        let expected = "NUMBER  METHOD        KEYS                  CODE       REVISION  REASON\n\
                        1       KV/Range      a\\:b:c,\\xff,2 more    OK         -         -\n";
        check(COLUMNS, &[range], expected);
        let watch = json!({
            "number": 2, "method": "watch", "resource": "configmaps", "name": "a", "status": 200,
            "reason": "client gone",
        });
        let expected = "NUMBER  METHOD        RESOURCE              NAME          STATUS  REASON\n\
                        2       watch         configmaps            a             200     client gone\n";
        check(COLUMNS, &[watch], expected);
    }

    #[test]
    fn lists_have_the_columns_of_their_server() {
        let columns = Columns {
            etcd: &["id", "key", "range_end", "state"],
            front: &["id", "resource", "name", "state"],
        };
        let check = |rows: &[Value], expected: &str| {
            let mut out = Vec::new();
            table(&mut out, columns, rows).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        };
        check(&[], "ID  STATE\n");
        let watch = json!({"id": 1, "key": "YQ==", "range_end": "AA==", "state": "held"});
        let expected = "ID  KEY  RANGE_END  STATE\n1   a    \\x00       held\n";
        check(&[watch], expected);
        let watch = json!({"id": 1, "key": "", "resource": "pods", "name": "", "state": "held"});
        let expected = "ID  RESOURCE  NAME  STATE\n1   pods      -     held\n";
        check(&[watch], expected);
    }

    #[test]
    fn requests_of_the_journal_are_on_the_line_of_their_record() {
        let columns = Columns::of_both(&["request"]);
        let check = |row: Value, expected: &str| {
            check(columns, &[row], &format!("REQUEST\n{expected}\n"));
        };
        let put = json!({"body": "CgFhEgEA", "left_out": "", "verb": "", "path": ""});
        check(json!({"request": put}), "\\n\\x01a\\x12\\x01\\x00");
        let large =
            json!({"body": "", "left_out": "size", "verb": "PUT", "path": "/api/v1/\u{1b}"});
        check(json!({"request": large}), "PUT /api/v1/\\u{1b} (size)");
        check(json!({}), "-");
        let long = STANDARD.encode([b'x'; REQUEST_BYTES_SHOWN + 1]);
        let expected = format!("{}...", "x".repeat(REQUEST_BYTES_SHOWN));
        check(
            json!({"request": {"body": long, "left_out": ""}}),
            &expected,
        );
    }
}
