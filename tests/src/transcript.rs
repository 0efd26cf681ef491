//! Recorded sessions with `etcdctl`, and their replay.
//!
//! ```text
//! $ put greeting --ignore-value          runs a command until it exits
//! ! Error: etcdserver: key not found     expects this line on stderr
//! ? 1                                    expects this exit code (0 without such a line)
//! $ put greeting                         runs another command
//! < hello                                sends this line to its standard input
//! OK                                     expects exactly this line on stdout
//! & watch greeting --rev=2               runs a command, waits for the following lines, and kills it
//! PUT
//! greeting
//! hello
//! # a comment
//! ```
//!
//! Further output of a command that is killed is an error only if it arrives before that, so a session does
//! not show that there is none.
//!
//! Indentation common to all lines is removed. An empty line is an empty line of output. Arguments are
//! separated by blanks. Single or double quotes preserve blanks.
//!
//! `%name%` is a placeholder for a word that varies, such as a lease id: its first occurrence matches any
//! word, and every later occurrence, also in commands, is the same word. If the word is a hexadecimal number,
//! `%name.dec%` is that number in decimal. `%_%` matches any word. `%address%` is the address of the server.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::{error, fmt, io};

use crate::etcdctl::Etcdctl;
use crate::process::{Failure, OutputStream};

/// A command whose output or exit code differs from its session.
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
            "the session differs at\n{command}\n--- expected:\n{expected}--- actual:\n{actual}"
        )
    }
}

impl error::Error for Mismatch {}

/// Replays the session in `text` against the server of `ctl`.
///
/// # Errors
/// [`Mismatch`] for the first command whose output or exit code differs.
pub fn replay(ctl: &Etcdctl, text: &str) -> Result<(), Mismatch> {
    let mut words = WordBindings::default();
    words.bind("address", ctl.endpoint());
    for step in parse(text) {
        let command = words.substitute(&step.command);
        let arguments = split(&command);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let result = if step.is_killed {
            run_until_printed(ctl, &arguments, &step, &mut words)
        } else {
            run_until_exit(ctl, &arguments, &step, &mut words)
        };
        result.map_err(|actual| Mismatch {
            command: format!("$ {command}"),
            expected: words.substitute(&step.to_string()),
            actual,
        })?;
    }
    Ok(())
}

fn run_until_exit(
    ctl: &Etcdctl,
    arguments: &[&str],
    step: &CommandStep,
    words: &mut WordBindings,
) -> Result<(), String> {
    let output = ctl
        .run(arguments, &step.stdin)
        .map_err(|error: io::Error| error.to_string())?;
    let actual = Printed {
        stdout: lines(&output.stdout),
        stderr: lines(&output.stderr),
        code: output.code,
    };
    let matches = actual.code == step.expected.code
        && words.matches(&step.expected.stdout, &actual.stdout)
        && words.matches(&step.expected.stderr, &actual.stderr);
    if matches {
        Ok(())
    } else {
        Err(actual.to_string())
    }
}

fn run_until_printed(
    ctl: &Etcdctl,
    arguments: &[&str],
    step: &CommandStep,
    words: &mut WordBindings,
) -> Result<(), String> {
    let mut process = ctl.start(arguments).map_err(|error| error.to_string())?;
    process
        .send(&step.stdin)
        .map_err(|error| error.to_string())?;
    let printed = process.wait_for_output(OutputStream::Stdout, |stdout| {
        let complete = stdout.rfind('\n').map_or("", |end| &stdout[..=end]);
        (lines(complete).len() >= step.expected.stdout.len()).then_some(())
    });
    process.kill();
    let stdout = lines(&process.output(OutputStream::Stdout));
    match printed.map_err(|failure: Failure| failure.to_string()) {
        Ok(()) if words.matches(&step.expected.stdout, &stdout) => Ok(()),
        Ok(()) => Err(with_newlines(&stdout)),
        Err(failure) => Err(failure),
    }
}

/// A command with its expected output.
#[derive(Debug, PartialEq, Eq)]
struct CommandStep {
    command: String,
    is_killed: bool,
    stdin: String,
    expected: Printed,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Printed {
    stdout: Vec<String>,
    stderr: Vec<String>,
    code: Option<i32>,
}

impl fmt::Display for CommandStep {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.expected)
    }
}

impl fmt::Display for Printed {
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

fn parse(text: &str) -> Vec<CommandStep> {
    let mut steps: Vec<CommandStep> = Vec::new();
    // The lines of the quotes around the text are not part of the session.
    let text = text.strip_prefix('\n').unwrap_or(text);
    let text = match text.rsplit_once('\n') {
        Some((lines, rest)) if rest.trim().is_empty() => lines,
        _ => text,
    };
    let indentation = text.len() - text.trim_start_matches(' ').len();
    for line in text.split('\n') {
        let line = line.get(indentation..).unwrap_or_default();
        let (prefix, rest) = line.split_at_checked(2).unwrap_or((line, ""));
        if let "$ " | "& " = prefix {
            steps.push(CommandStep {
                command: rest.to_owned(),
                is_killed: prefix == "& ",
                stdin: String::new(),
                expected: Printed {
                    code: Some(0),
                    ..Printed::default()
                },
            });
            continue;
        }
        if prefix == "# " {
            continue;
        }
        let step = steps
            .last_mut()
            .expect("the first line of a session is a command or a comment");
        match prefix {
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

/// Splits a command line at blanks outside of quotes.
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

/// The words that placeholders have matched so far.
#[derive(Debug, Default)]
struct WordBindings(BTreeMap<String, String>);

/// A part of a line of a session.
#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    Literal(&'a str),
    Name(&'a str),
}

impl WordBindings {
    fn bind(&mut self, name: &str, word: &str) {
        self.0.insert(name.to_owned(), word.to_owned());
    }

    /// Returns `text` with each bound placeholder replaced by its word.
    fn substitute(&self, text: &str) -> String {
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

    /// Returns whether `actual` matches `expected`; binds its placeholders if so.
    fn matches(&mut self, expected: &[String], actual: &[String]) -> bool {
        expected.len() == actual.len()
            && expected.iter().zip(actual).all(|(expected, actual)| {
                let pattern = self.substitute(expected);
                let Some(bound) = match_line(&pieces(&pattern), actual) else {
                    return false;
                };
                for (name, word) in bound {
                    self.bind(name, word);
                }
                true
            })
    }
}

/// Splits `text` into placeholders and the literals around them.
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

/// Matches a line against a pattern and returns the word of each placeholder.
fn match_line<'a>(pattern: &[Piece<'a>], line: &'a str) -> Option<Vec<(&'a str, &'a str)>> {
    match pattern {
        [] => line.is_empty().then(Vec::new),
        [Piece::Literal(text), rest @ ..] => match_line(rest, line.strip_prefix(text)?),
        [Piece::Name(name), rest @ ..] => {
            let word = line
                .find(|character: char| !is_word(character))
                .unwrap_or(line.len());
            let lengths = (1..=word).rev();
            let mut lengths = lengths.filter(|length| line.is_char_boundary(*length));
            lengths.find_map(|length| {
                let mut found = match_line(rest, &line[length..])?;
                if *name != "_" {
                    found.push((name, &line[..length]));
                }
                Some(found)
            })
        }
    }
}

/// Returns whether `character` may be part of a word. A duration below a millisecond has the letter for a millionth.
fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '.' | ':' | '-' | '_' | '/' | 'µ')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|&line| line.to_owned()).collect()
    }

    #[test]
    fn a_session_has_commands_input_output_and_exit_codes() {
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
                CommandStep {
                    command: "put k".to_owned(),
                    is_killed: false,
                    stdin: "a value\n\n".to_owned(),
                    expected: Printed {
                        stdout: owned(&["OK", ""]),
                        stderr: vec![],
                        code: Some(0),
                    },
                },
                CommandStep {
                    command: "watch k".to_owned(),
                    is_killed: true,
                    stdin: String::new(),
                    expected: Printed {
                        stdout: vec![],
                        stderr: vec![],
                        code: Some(0),
                    },
                },
                CommandStep {
                    command: "nope".to_owned(),
                    is_killed: false,
                    stdin: String::new(),
                    expected: Printed {
                        stdout: owned(&["the last line is empty", ""]),
                        stderr: owned(&["Error: no"]),
                        code: Some(3),
                    },
                },
            ]
        );
    }

    #[test]
    fn arguments_are_split_at_blanks_outside_of_quotes() {
        assert_eq!(split("get  k -w json"), ["get", "k", "-w", "json"]);
        assert_eq!(
            split(r#"put '' "a 'b'" x'y z'"#),
            ["put", "", "a 'b'", "xy z"]
        );
    }

    #[test]
    fn a_placeholder_keeps_its_first_match() {
        let mut words = WordBindings::default();
        let mut check =
            |expected: &str, actual: &str| words.matches(&owned(&[expected]), &owned(&[actual]));
        assert!(check("lease %l% left(%_%s)", "lease 00ff left(99s)"));
        assert!(check("took = %_%", "took = 743.19µs"));
        assert!(check("took = %_%s", "took = 743.19µs"));
        assert!(check("took = %_%µs", "took = 743.19µs"));
        assert!(check("%l%: %l.dec%", "00ff: 255"));
        assert!(!check("%l%", "00fe"));
        assert!(!check("%unknown%", "two words"));
        assert!(!check("%unknown%", ""));
    }

    #[test]
    fn unbound_placeholders_stay_in_commands() {
        let mut words = WordBindings::default();
        words.bind("l", "1a");
        assert_eq!(
            words.substitute("put k %m% --lease=%l%"),
            "put k %m% --lease=1a"
        );
        assert_eq!(words.substitute("100% sure"), "100% sure");
    }
}
