//! Responses as JSON lines and as tables.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::Value;
use serde_json::value::RawValue;

use super::table::{Columns, Stream, table};

/// The form of a response.
#[derive(Debug)]
pub(super) enum Output {
    /// One object; a table has these fields.
    Fields(&'static [&'static str]),
    /// As `Fields`, and a text of several lines in the field with this name, if it is not empty. It follows an empty line.
    FieldsAndText(&'static [&'static str], &'static str),
    /// A list in the field with this name; a table has these columns.
    Rows(&'static str, Columns),
    /// Objects, one after the other; a table has these columns.
    Stream(Columns),
    /// Bytes for a file; `-` is standard output.
    File(PathBuf),
}

/// The fields of what is printed about a file that was written.
const FILE: &[&str] = &["file", "bytes", "revision", "time"];

impl Output {
    /// Returns a list in the field with this name, whose table has these columns.
    pub(super) const fn rows(list: &'static str, columns: &'static [&'static str]) -> Self {
        Self::Rows(list, Columns::of_both(columns))
    }
}

/// Writes a response.
#[derive(Debug)]
pub(super) struct Printer<'a> {
    output: &'a Output,
    is_json: bool,
    /// Of a stream, as a table.
    stream: Option<Stream>,
}

impl<'a> Printer<'a> {
    pub(super) fn new(output: &'a Output, is_json: bool) -> Self {
        let stream = match output {
            Output::Stream(columns) if !is_json => Some(Stream::new(*columns)),
            _ => None,
        };
        Self {
            output,
            is_json,
            stream,
        }
    }

    /// Writes an object of the response.
    pub(super) fn print(&mut self, out: &mut impl Write, line: &[u8]) -> io::Result<()> {
        if let Some(stream) = &mut self.stream {
            stream.write(out, &serde_json::from_slice(line)?)?;
            return out.flush();
        }
        print(out, self.output, self.is_json, line)
    }
}

fn print(out: &mut impl Write, output: &Output, is_json: bool, line: &[u8]) -> io::Result<()> {
    match output {
        // A stream has a table of its own.
        Output::Stream(_) => write_line(out, line)?,
        Output::Fields(_) | Output::FieldsAndText(..) | Output::File(_) if is_json => {
            write_line(out, line)?;
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
                let rows = rows.iter().map(|row| serde_json::from_str(row.get()));
                table(out, *columns, &rows.collect::<Result<Vec<_>, _>>()?)?;
            }
            let more = object.get("more").map_or("0", |more| more.get());
            if more != "0" {
                writeln!(io::stderr().lock(), "{more} more are not listed")?;
            }
        }
    }
    out.flush()
}

fn write_line(out: &mut impl Write, line: &[u8]) -> io::Result<()> {
    out.write_all(line)?;
    out.write_all(b"\n")
}

fn fields(out: &mut impl Write, names: &[&str], line: &[u8]) -> io::Result<()> {
    let object: Value = serde_json::from_slice(line)?;
    let width = names.iter().map(|name| name.len()).max().unwrap_or(0);
    for name in names {
        writeln!(out, "{name:width$}  {}", text(&object[name]))?;
    }
    Ok(())
}

/// Returns a value for people. Control characters are escaped, so that they do not reach the terminal.
pub(super) fn text(value: &Value) -> String {
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
        let mut printer = Printer::new(output, is_json);
        printer.print(&mut out, line.as_bytes()).unwrap();
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
        let rows = Output::rows("pending", &["kind", "id", "due"]);
        let line = r#"{"pending":[{"kind":"lease","id":"1f","due":"9s"},{"kind":"progress","id":"","due":"10m0s"}]}"#;
        let json = "{\"kind\":\"lease\",\"id\":\"1f\",\"due\":\"9s\"}\n{\"kind\":\"progress\",\"id\":\"\",\"due\":\"10m0s\"}\n";
        check(&rows, true, line, json);
        check(
            &rows,
            false,
            line,
            "KIND      ID  DUE\nlease     1f  9s\nprogress  -   10m0s\n",
        );
        check(&rows, true, r#"{"pending":[]}"#, "");
        check(
            &rows,
            false,
            r#"{"pending":[{"kind":"\u001b[2J"}]}"#,
            "KIND       ID  DUE\n\\u{1b}[2J  -   -\n",
        );
    }
}
