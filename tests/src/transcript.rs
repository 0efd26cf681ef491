//! Sessions with `etcdctl` written down as text, and replayed.
//!
//! ```text
//! $ put greeting --ignore-value          run to its end ...
//! ! Error: etcdserver: key not found     ... prints this on stderr ...
//! ? 1                                    ... and exits with this code, 0 if nothing is said
//! $ put greeting                         another command ...
//! < hello                                ... with this line on its standard input ...
//! OK                                     ... prints exactly this on stdout
//! & watch greeting --rev=2               goes on: killed once it has printed what follows
//! PUT
//! greeting
//! hello
//! # a comment
//! ```
//!
//! Indentation common to all lines does not count; an empty line is an empty line of output.
//! Arguments are split at blanks; single or double quotes keep one together.
//!
//! `%name%` stands for a word that is not known beforehand, such as a lease id: where it is seen
//! first, it takes on the word at its place, and from then on it has to be the same one, also in
//! commands. `%name.dec%` is the same word, hexadecimal, as a decimal number, and `%_%` is any word
//! each time. `%address%` is the server's.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::{error, fmt, io};

use crate::etcdctl::Etcdctl;
use crate::process::{Failure, Stream};

/// A session did not go as written.
#[derive(Debug)]
pub struct Mismatch {
    command: String,
    expected: String,
    actual: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            command,
            expected,
            actual,
        } = self;
        write!(
            formatter,
            "the session went differently at\n{command}\n--- expected:\n{expected}--- actual:\n{actual}"
        )
    }
}

impl error::Error for Mismatch {}

/// Replays the session in `text` against the server of `ctl`.
///
/// # Errors
/// [`Mismatch`] for the first command that does not do what is written.
pub fn replay(ctl: &Etcdctl, text: &str) -> Result<(), Mismatch> {
    let mut words = Words::default();
    words.bind("address", ctl.endpoint());
    for step in parse(text) {
        let command = words.fill_in(&step.command);
        let arguments = split(&command);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let result = if step.goes_on {
            run_until_printed(ctl, &arguments, &step, &mut words)
        } else {
            run_to_the_end(ctl, &arguments, &step, &mut words)
        };
        result.map_err(|actual| Mismatch {
            command: format!("$ {command}"),
            expected: words.fill_in(&step.to_string()),
            actual,
        })?;
    }
    Ok(())
}

fn run_to_the_end(
    ctl: &Etcdctl,
    arguments: &[&str],
    step: &Step,
    words: &mut Words,
) -> Result<(), String> {
    let output = ctl
        .run(arguments, &step.stdin)
        .map_err(|error: io::Error| error.to_string())?;
    let actual = Outcome {
        stdout: lines(&output.stdout),
        stderr: lines(&output.stderr),
        code: output.code,
    };
    let agrees = actual.code == step.expected.code
        && words.agree(&step.expected.stdout, &actual.stdout)
        && words.agree(&step.expected.stderr, &actual.stderr);
    if agrees {
        Ok(())
    } else {
        Err(actual.to_string())
    }
}

fn run_until_printed(
    ctl: &Etcdctl,
    arguments: &[&str],
    step: &Step,
    words: &mut Words,
) -> Result<(), String> {
    let mut process = ctl.start(arguments).map_err(|error| error.to_string())?;
    process
        .send(&step.stdin)
        .map_err(|error| error.to_string())?;
    let printed = process.wait_for_output(Stream::Stdout, |stdout| {
        let complete = stdout.rfind('\n').map_or("", |end| &stdout[..=end]);
        (lines(complete).len() >= step.expected.stdout.len()).then_some(())
    });
    process.kill();
    let stdout = lines(&process.output(Stream::Stdout));
    match printed.map_err(|failure: Failure| failure.to_string()) {
        Ok(()) if words.agree(&step.expected.stdout, &stdout) => Ok(()),
        Ok(()) => Err(with_newlines(&stdout)),
        Err(failure) => Err(failure),
    }
}

/// One command and what is expected of it.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    command: String,
    goes_on: bool,
    stdin: String,
    expected: Outcome,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    stdout: Vec<String>,
    stderr: Vec<String>,
    code: Option<i32>,
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.expected)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", with_newlines(&self.stdout))?;
        for line in &self.stderr {
            writeln!(formatter, "! {line}")?;
        }
        match self.code {
            Some(0) => Ok(()),
            Some(code) => writeln!(formatter, "? {code}"),
            None => writeln!(formatter, "? killed"),
        }
    }
}

fn parse(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    // A line of the quotes around the text is no part of the session.
    let text = text.strip_prefix('\n').unwrap_or(text);
    let text = match text.rsplit_once('\n') {
        Some((lines, rest)) if rest.trim().is_empty() => lines,
        _ => text,
    };
    let indentation = text.len() - text.trim_start_matches(' ').len();
    for line in text.split('\n') {
        let line = line.get(indentation..).unwrap_or_default();
        let (mark, rest) = line.split_at_checked(2).unwrap_or((line, ""));
        if let "$ " | "& " = mark {
            steps.push(Step {
                command: rest.to_owned(),
                goes_on: mark == "& ",
                stdin: String::new(),
                expected: Outcome {
                    code: Some(0),
                    ..Outcome::default()
                },
            });
            continue;
        }
        if mark == "# " {
            continue;
        }
        let step = steps
            .last_mut()
            .expect("a session begins with a command or a comment");
        match mark {
            "<" | "< " => step.stdin = format!("{}{rest}\n", step.stdin),
            "! " => step.expected.stderr.push(rest.to_owned()),
            "? " => step.expected.code = Some(rest.parse().expect("an exit code")),
            _ => step.expected.stdout.push(line.to_owned()),
        }
    }
    steps
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

fn with_newlines(lines: &[String]) -> String {
    lines.iter().fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "{line}");
        text
    })
}

/// Splits a command line at blanks outside quotes.
fn split(command: &str) -> Vec<String> {
    let mut arguments = Vec::new();
    let mut argument: Option<String> = None;
    let mut quote = None;
    for character in command.chars() {
        match quote {
            Some(open) if open == character => quote = None,
            None if character == '\'' || character == '"' => {
                quote = Some(character);
                argument.get_or_insert_default();
            }
            None if character == ' ' => arguments.extend(argument.take()),
            _ => argument.get_or_insert_default().push(character),
        }
    }
    arguments.extend(argument);
    arguments
}

/// The words that names stand for so far.
#[derive(Debug, Default)]
struct Words(BTreeMap<String, String>);

/// A piece of a line of a session.
#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    Literal(&'a str),
    Name(&'a str),
}

impl Words {
    fn bind(&mut self, name: &str, word: &str) {
        self.0.insert(name.to_owned(), word.to_owned());
    }

    /// `text` with each name that stands for a word replaced by it.
    fn fill_in(&self, text: &str) -> String {
        pieces(text)
            .into_iter()
            .fold(String::new(), |mut filled, piece| {
                let _ = match piece {
                    Piece::Literal(text) => write!(filled, "{text}"),
                    Piece::Name(name) => match self.lookup(name) {
                        Some(word) => write!(filled, "{word}"),
                        None => write!(filled, "%{name}%"),
                    },
                };
                filled
            })
    }

    fn lookup(&self, name: &str) -> Option<String> {
        if let Some(word) = self.0.get(name) {
            return Some(word.clone());
        }
        let word = self.0.get(name.strip_suffix(".dec")?)?;
        Some(i64::from_str_radix(word, 16).ok()?.to_string())
    }

    /// Whether `actual` is what `expected` describes; learns words from it if so.
    fn agree(&mut self, expected: &[String], actual: &[String]) -> bool {
        expected.len() == actual.len()
            && expected.iter().zip(actual).all(|(expected, actual)| {
                let pattern = self.fill_in(expected);
                let Some(learned) = match_line(&pieces(&pattern), actual) else {
                    return false;
                };
                for (name, word) in learned {
                    self.bind(name, word);
                }
                true
            })
    }
}

/// Cuts `text` into names between percent signs and what is around them.
fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((name, start, end)) = next_name(rest) {
        pieces.push(Piece::Literal(&rest[..start]));
        pieces.push(Piece::Name(name));
        rest = &rest[end..];
    }
    pieces.push(Piece::Literal(rest));
    pieces
}

fn next_name(text: &str) -> Option<(&str, usize, usize)> {
    let start = text.find('%')?;
    let length = text[start + 1..].find('%')?;
    Some((&text[start + 1..][..length], start, start + 1 + length + 1))
}

/// Matches a line against a pattern; returns which word stood at the place of each name.
fn match_line<'a>(pattern: &[Piece<'a>], line: &'a str) -> Option<Vec<(&'a str, &'a str)>> {
    match pattern {
        [] => line.is_empty().then(Vec::new),
        [Piece::Literal(text), rest @ ..] => match_line(rest, line.strip_prefix(text)?),
        [Piece::Name(name), rest @ ..] => {
            let word = line
                .find(|character: char| !is_word(character))
                .unwrap_or(line.len());
            (1..=word).rev().find_map(|length| {
                let mut found = match_line(rest, &line[length..])?;
                if *name != "_" {
                    found.push((name, &line[..length]));
                }
                Some(found)
            })
        }
    }
}

/// Whether a word may hold `character`: all of these are one byte long.
fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '.' | ':' | '-' | '_' | '/')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|&line| line.to_owned()).collect()
    }

    #[test]
    fn parses_commands_input_outputs_and_codes() {
        let steps = parse(
            "
            # a comment
            $ put k
            < a value
            <
            OK

            & watch k
            $ nope
            ! Error: no
            ? 3
            the last line is empty

            ",
        );
        assert_eq!(
            steps,
            [
                Step {
                    command: "put k".to_owned(),
                    goes_on: false,
                    stdin: "a value\n\n".to_owned(),
                    expected: Outcome {
                        stdout: owned(&["OK", ""]),
                        stderr: vec![],
                        code: Some(0),
                    },
                },
                Step {
                    command: "watch k".to_owned(),
                    goes_on: true,
                    stdin: String::new(),
                    expected: Outcome {
                        stdout: vec![],
                        stderr: vec![],
                        code: Some(0),
                    },
                },
                Step {
                    command: "nope".to_owned(),
                    goes_on: false,
                    stdin: String::new(),
                    expected: Outcome {
                        stdout: owned(&["the last line is empty", ""]),
                        stderr: owned(&["Error: no"]),
                        code: Some(3),
                    },
                },
            ]
        );
    }

    #[test]
    fn splits_at_blanks_outside_quotes() {
        assert_eq!(split("get  k -w json"), ["get", "k", "-w", "json"]);
        assert_eq!(
            split(r#"put '' "a 'b'" x'y z'"#),
            ["put", "", "a 'b'", "xy z"]
        );
    }

    #[test]
    fn names_take_on_a_word_and_keep_it() {
        let mut words = Words::default();
        let mut check =
            |expected: &str, actual: &str| words.agree(&owned(&[expected]), &owned(&[actual]));
        assert!(check("lease %l% left(%_%s)", "lease 00ff left(99s)"));
        assert!(check("%l%: %l.dec%", "00ff: 255"));
        assert!(!check("%l%", "00fe"));
        assert!(!check("%unknown%", "two words"));
        assert!(!check("%unknown%", ""));
    }

    #[test]
    fn unknown_names_stay_in_commands() {
        let mut words = Words::default();
        words.bind("l", "1a");
        assert_eq!(
            words.fill_in("put k %m% --lease=%l%"),
            "put k %m% --lease=1a"
        );
        assert_eq!(words.fill_in("100% sure"), "100% sure");
    }
}
