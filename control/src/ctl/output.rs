//! Responses as JSON lines and as tables.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use serde_json::value::RawValue;

/// The form of a response.
#[derive(Debug)]
pub(super) enum Output {
    /// One object; a table has these fields.
    Fields(&'static [&'static str]),
    /// As `Fields`, and a text of several lines in the field with this name, if it is not empty. It follows an empty line.
    FieldsAndText(&'static [&'static str], &'static str),
    /// A list in the field with this name; a table has these columns.
    Rows(&'static str, &'static [&'static str]),
    /// Objects, one after the other; a table has these columns, without a header.
    Stream(&'static [&'static str]),
    /// Bytes for a file; `-` is standard output.
    File(PathBuf),
}

/// The fields of what is printed about a file that was written.
const FILE: &[&str] = &["file", "bytes", "revision", "time"];

/// Writes an object of a response.
pub(super) fn print(
    out: &mut impl Write,
    output: &Output,
    is_json: bool,
    line: &[u8],
) -> io::Result<()> {
    match output {
        Output::Fields(_) | Output::FieldsAndText(..) | Output::Stream(_) | Output::File(_)
            if is_json =>
        {
            out.write_all(line)?;
            out.write_all(b"\n")?;
        }
        Output::File(_) => fields(out, FILE, line)?,
        Output::Fields(names) => fields(out, names, line)?,
        Output::FieldsAndText(names, name) => {
            fields(out, names, line)?;
            let object: Value = serde_json::from_slice(line)?;
            let lines = object[*name].as_str().unwrap_or_default().lines();
            for (at, line) in lines.enumerate() {
                if at == 0 {
                    writeln!(out)?;
                }
                writeln!(out, "{}", text(&Value::from(line)))?;
            }
        }
        Output::Stream(columns) => {
            let object: Value = serde_json::from_slice(line)?;
            let cells = columns.iter().map(|column| match *column {
                "request" => request(&object["request"]),
                column => text(&object[column]),
            });
            let cells: Vec<_> = cells.collect();
            writeln!(out, "{}", cells.join("  "))?;
        }
        Output::Rows(list, columns) => {
            let object: BTreeMap<&str, &RawValue> = serde_json::from_slice(line)?;
            let rows: Vec<&RawValue> = match object.get(list) {
                Some(rows) => serde_json::from_str(rows.get())?,
                None => Vec::new(),
            };
            if is_json {
                for row in &rows {
                    writeln!(out, "{}", row.get())?;
                }
            } else {
                table(out, columns, &rows)?;
            }
            let more = object.get("more").map_or("0", |more| more.get());
            if more != "0" {
                writeln!(io::stderr().lock(), "{more} more are not listed")?;
            }
        }
    }
    out.flush()
}

fn fields(out: &mut impl Write, names: &[&str], line: &[u8]) -> io::Result<()> {
    let object: Value = serde_json::from_slice(line)?;
    let width = names.iter().map(|name| name.len()).max().unwrap_or(0);
    for name in names {
        writeln!(out, "{name:width$}  {}", text(&object[name]))?;
    }
    Ok(())
}

fn table(out: &mut impl Write, columns: &[&str], rows: &[&RawValue]) -> io::Result<()> {
    let header = columns.iter().map(|column| column.to_uppercase()).collect();
    let mut cells: Vec<Vec<String>> = vec![header];
    for row in rows {
        let row: Value = serde_json::from_str(row.get())?;
        cells.push(
            columns
                .iter()
                .map(|column| cell(column, &row[*column]))
                .collect(),
        );
    }
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<_> = (0..columns.len())
        .map(|column| width(column).unwrap_or(0))
        .collect();
    for row in &cells {
        let cells = row.iter().zip(&widths);
        let cells: Vec<_> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        writeln!(out, "{}", cells.join("  ").trim_end())?;
    }
    Ok(())
}

/// Returns a cell of a table. Keys are in base64 in JSON.
fn cell(column: &str, value: &Value) -> String {
    let decoded = match (column, value) {
        ("key" | "range_end", Value::String(key)) => STANDARD.decode(key).ok(),
        _ => None,
    };
    match decoded {
        Some(key) => text(&Value::String(String::from_utf8_lossy(&key).into_owned())),
        None => text(value),
    }
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

/// Returns a value for people. Control characters are escaped, so that they do not reach the terminal.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => {
            let shown = |c: char| {
                if c.is_control() {
                    c.escape_default().collect()
                } else {
                    String::from(c)
                }
            };
            text.chars().map(shown).collect()
        }
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(output: &Output, is_json: bool, line: &str, expected: &str) {
        let mut out = Vec::new();
        print(&mut out, output, is_json, line.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn responses_are_lines_of_json_or_columns() {
        let fields = Output::Fields(&["mode", "now"]);
        let line = r#"{"revision":1,"mode":"manual","now":"1m0s"}"#;
        check(&fields, true, line, &format!("{line}\n"));
        check(&fields, false, line, "mode  manual\nnow   1m0s\n");
        let fork = Output::FieldsAndText(&["id"], "kubeconfig");
        let line = r#"{"id":"fork-1","kubeconfig":"a: 1\nb: \u001b[2J\n"}"#;
        check(&fork, true, line, &format!("{line}\n"));
        check(&fork, false, line, "id  fork-1\n\na: 1\nb: \\u{1b}[2J\n");
        check(&fork, false, r#"{"id":"fork-1"}"#, "id  fork-1\n");
        let rows = Output::Rows("pending", &["kind", "id", "due"]);
        let line = r#"{"pending":[{"kind":"lease","id":"1f","due":"9s"},{"kind":"progress","id":"","due":"10m0s"}]}"#;
        let json = "{\"kind\":\"lease\",\"id\":\"1f\",\"due\":\"9s\"}\n{\"kind\":\"progress\",\"id\":\"\",\"due\":\"10m0s\"}\n";
        check(&rows, true, line, json);
        check(
            &rows,
            false,
            line,
            "KIND      ID  DUE\nlease     1f  9s\nprogress      10m0s\n",
        );
        check(&rows, true, r#"{"pending":[]}"#, "");
        check(
            &rows,
            false,
            r#"{"pending":[{"kind":"\u001b[2J"}]}"#,
            "KIND       ID  DUE\n\\u{1b}[2J\n",
        );
    }

    #[test]
    fn requests_of_the_journal_are_on_the_line_of_their_record() {
        let output = Output::Stream(&["number", "request"]);
        let line = |request: &str| format!(r#"{{"number":1,"request":{request}}}"#);
        let put = r#"{"body":"CgFhEgEA","left_out":"","verb":"","path":""}"#;
        check(&output, false, &line(put), "1  \\n\\x01a\\x12\\x01\\x00\n");
        let large = r#"{"body":"","left_out":"size","verb":"PUT","path":"/api/v1/\u001b"}"#;
        check(
            &output,
            false,
            &line(large),
            "1  PUT /api/v1/\\u{1b} (size)\n",
        );
        check(&output, false, r#"{"number":1}"#, "1  \n");
        let long = STANDARD.encode([b'x'; REQUEST_BYTES_SHOWN + 1]);
        let long = line(&format!(r#"{{"body":"{long}","left_out":""}}"#));
        let expected = format!("1  {}...\n", "x".repeat(REQUEST_BYTES_SHOWN));
        check(&output, false, &long, &expected);
    }
}
