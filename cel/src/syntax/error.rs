//! Errors in the text of an expression.

use std::fmt;

/// A place in the text of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line, from 1.
    pub line: usize,
    /// The number of characters before it in the line.
    pub column: usize,
}

/// An error that the parser or the checker found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// Where, if it is at one place.
    pub position: Option<Position>,
    /// What is wrong.
    pub message: String,
}

/// The number of errors of syntax after which the parser stops.
const ISSUES_MAX: usize = 100;
/// The length of the longest line that an error repeats.
const SNIPPET_BYTES_MAX: usize = 16_384;

/// The errors of one expression.
#[derive(Clone, Debug, Default)]
pub(crate) struct Issues {
    list: Vec<Issue>,
}

impl Issues {
    pub(crate) fn report(&mut self, position: Option<Position>, message: String) {
        if self.list.len() < ISSUES_MAX {
            self.list.push(Issue { position, message });
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the errors by position.
    pub(crate) fn into_list(mut self) -> Vec<Issue> {
        self.list.sort_by_key(|issue| issue.position);
        self.list
    }
}

impl Issue {
    /// Writes the error with the line in which it is.
    pub(crate) fn write(&self, source: &str, out: &mut impl fmt::Write) -> fmt::Result {
        let Some(position) = self.position else {
            return write!(out, "ERROR: <input>:-1:0: {}", self.message);
        };
        let column = position.column + 1;
        write!(
            out,
            "ERROR: <input>:{}:{column}: {}",
            position.line, self.message
        )?;
        let Some(line) = source.split('\n').nth(position.line - 1) else {
            return Ok(());
        };
        if line.len() > SNIPPET_BYTES_MAX {
            return Ok(());
        }
        let line = line.replace('\t', " ");
        write!(out, "\n | {line}\n | ")?;
        let mut letters = line.chars();
        for letter in letters.by_ref().take(position.column) {
            // A wide dot below a letter that is not ASCII.
            out.write_char(if letter.len_utf8() > 1 {
                '\u{ff0e}'
            } else {
                '.'
            })?;
        }
        let is_wide = letters.next().is_some_and(|letter| letter.len_utf8() > 1);
        out.write_char(if is_wide { '\u{ff3e}' } else { '^' })
    }
}
