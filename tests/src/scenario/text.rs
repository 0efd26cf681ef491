//! The text of a file of scenarios.
//!
//! ```text
//! # What the file is about.
//!
//! === a_name (RG-1 RG-2)
//! > Put key: "k" value: "v"
//!   header @2
//! > w: Watch create_request { key: "k" start_revision: 2 }
//! < w
//!   header @2
//!   created: true
//! < w
//!   header @2
//!   events { kv { key: "k" create_revision: 2 mod_revision: 2 version: 1 value: "v" } }
//! > Range
//!   error INVALID_ARGUMENT "etcdserver: key is not provided"
//! ```
//!
//! `===` begins a scenario: its name and the clauses that it shows. `>` is a step; lines with `|`
//! belong to the one before. What follows is what the step caused: first the answer to it, then, each
//! under the name of its stream, what streams told. A field that is absent is absent or zero.
//!
//! | Step | Does |
//! |---|---|
//! | `> Put key: "k"` | calls a method |
//! | `> w: Watch ...` | sends a request on a stream, which the first one opens |
//! | `> w: next` | waits for the next answer; for streams whose client's side is closed |
//! | `> w: close` | closes the client's side |
//! | `> w: drop` | gives the stream up |
//! | `> expire 7` | waits until the lease has expired |

use std::fmt::{self, Write as _};

use crate::scenario::wire::Method;

/// How wide a line may be before a step's fields get lines of their own.
const WIDTH: usize = 100;

/// A file of scenarios.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct File {
    /// The lines before the first scenario.
    pub comments: Vec<String>,
    /// The scenarios in order.
    pub scenarios: Vec<Scenario>,
}

/// Steps on a fresh server, and all that they cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Its name, once in a file.
    pub name: String,
    /// The clauses of the behaviour specification that it shows.
    pub clauses: Vec<String>,
    /// The steps in order.
    pub steps: Vec<Step>,
}

/// A request and its consequences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The lines before it.
    pub comments: Vec<String>,
    /// What is done.
    pub request: Request,
    /// What comes of it.
    pub answers: Vec<Answer>,
}

/// What a step does. Texts are messages as [`message`](super::message) reads them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Calls a method.
    Call {
        /// The method.
        method: Method,
        /// The message.
        text: String,
    },
    /// Sends a message on a stream and opens it if it is not yet open.
    Send {
        /// The stream's name.
        stream: String,
        /// The method that the stream is of.
        method: Method,
        /// The message.
        text: String,
    },
    /// Waits for the next answer on a stream.
    Next(String),
    /// Closes the client's side of a stream.
    Close(String),
    /// Gives a stream up.
    Drop(String),
    /// Waits until a lease has expired.
    Expire(String),
}

/// Lines that a step caused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The stream that told them; none for the answer to the step itself.
    pub stream: Option<String>,
    /// Fields, or an error.
    pub lines: Vec<String>,
}

impl Scenario {
    /// The scenario without what its steps caused.
    #[must_use]
    pub fn questions(&self) -> Self {
        let mut questions = self.clone();
        for step in &mut questions.steps {
            step.answers.clear();
        }
        questions
    }
}

impl Step {
    /// A step of which it is not known yet what it causes.
    pub fn new(request: Request) -> Self {
        Self {
            comments: Vec::new(),
            request,
            answers: Vec::new(),
        }
    }
}

impl Request {
    /// Reads a step as it stands behind `>`.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let rest = rest.trim();
        if word == "expire" {
            return Ok(Self::Expire(rest.to_owned()));
        }
        let Some(stream) = word.strip_suffix(':').map(str::to_owned) else {
            let method = method(word)?;
            return Ok(Self::Call {
                method,
                text: rest.to_owned(),
            });
        };
        Ok(match rest {
            "next" => Self::Next(stream),
            "close" => Self::Close(stream),
            "drop" => Self::Drop(stream),
            rest => {
                let (word, text) = rest.split_once(' ').unwrap_or((rest, ""));
                let method = method(word)?;
                Self::Send {
                    stream,
                    method,
                    text: text.trim().to_owned(),
                }
            }
        })
    }
}

fn method(name: &str) -> Result<Method, String> {
    Method::of_name(name).ok_or_else(|| format!("{name}: no such method"))
}

impl fmt::Display for Request {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (head, text) = match self {
            Self::Call { method, text } => (method.name().to_owned(), text.as_str()),
            Self::Send {
                stream,
                method,
                text,
            } => (format!("{stream}: {}", method.name()), text.as_str()),
            Self::Next(stream) => (format!("{stream}: next"), ""),
            Self::Close(stream) => (format!("{stream}: close"), ""),
            Self::Drop(stream) => (format!("{stream}: drop"), ""),
            Self::Expire(lease) => ("expire".to_owned(), lease.as_str()),
        };
        let line = format!("> {head} {text}");
        let fields = fields(text);
        if line.len() <= WIDTH || fields.len() < 2 {
            return writeln!(formatter, "{}", line.trim_end());
        }
        writeln!(formatter, "> {head}")?;
        fields
            .iter()
            .try_for_each(|field| writeln!(formatter, "| {field}"))
    }
}

/// Cuts a message into its fields, for which it must have braces around messages.
fn fields(text: &str) -> Vec<&str> {
    let mut fields = Vec::new();
    let (mut depth, mut quote, mut escaped, mut start) = (0_usize, None, false, 0);
    let mut bytes = text.bytes().enumerate().peekable();
    while let Some((at, byte)) = bytes.next() {
        match (quote, byte) {
            (Some(_), b'\\') if !escaped => {
                escaped = true;
                continue;
            }
            (Some(open), byte) if byte == open && !escaped => quote = None,
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, b'{' | b'(') => depth += 1,
            (None, b'}' | b')') => depth = depth.saturating_sub(1),
            _ => {}
        }
        escaped = false;
        // A value ends before a blank, its name does too.
        let ends = depth == 0
            && quote.is_none()
            && !matches!(byte, b':' | b' ')
            && matches!(bytes.peek(), None | Some((_, b' ')));
        let rest = text[at + 1..].trim_start();
        if ends && !rest.starts_with('{') && !text[start..=at].trim().is_empty() {
            fields.push(text[start..=at].trim());
            start = at + 1;
        }
    }
    fields
}

impl fmt::Display for Answer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(stream) = &self.stream {
            writeln!(formatter, "< {stream}")?;
        }
        self.lines
            .iter()
            .try_for_each(|line| writeln!(formatter, "  {line}"))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for comment in &self.comments {
            writeln!(formatter, "{comment}")?;
        }
        write!(formatter, "{}", self.request)?;
        self.answers
            .iter()
            .try_for_each(|answer| write!(formatter, "{answer}"))
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "=== {} ({})", self.name, self.clauses.join(" "))?;
        self.steps
            .iter()
            .try_for_each(|step| write!(formatter, "{step}"))
    }
}

impl fmt::Display for File {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for comment in &self.comments {
            writeln!(formatter, "{comment}")?;
        }
        self.scenarios
            .iter()
            .try_for_each(|scenario| write!(formatter, "\n{scenario}"))
    }
}

impl std::str::FromStr for File {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut file = Self::default();
        let mut comments = Vec::new();
        let mut request = String::new();
        let mut lines = text.lines().enumerate().peekable();
        while let Some((at, line)) = lines.next() {
            let wrong = |what: &str| format!("line {}: {what}: {line}", at + 1);
            let scenario = file.scenarios.last_mut();
            let step = scenario.and_then(|scenario| scenario.steps.last_mut());
            if let Some(head) = line.strip_prefix("=== ") {
                let scenario = heading(head).ok_or_else(|| wrong("no name (CLAUSES)"))?;
                file.scenarios.push(scenario);
            } else if line.starts_with('#') {
                if file.scenarios.is_empty() {
                    file.comments.push(line.to_owned());
                } else {
                    comments.push(line.to_owned());
                }
            } else if let Some(text) = line.strip_prefix('>').or(line.strip_prefix('|')) {
                let _ = write!(request, " {}", text.trim());
                if lines.peek().is_some_and(|(_, next)| next.starts_with('|')) {
                    continue;
                }
                let parsed = Request::parse(request.trim()).map_err(|error| wrong(&error))?;
                request.clear();
                let scenario = file
                    .scenarios
                    .last_mut()
                    .ok_or_else(|| wrong("no scenario"))?;
                let comments = std::mem::take(&mut comments);
                scenario.steps.push(Step {
                    comments,
                    ..Step::new(parsed)
                });
            } else if let Some(stream) = line.strip_prefix("< ") {
                let step = step.ok_or_else(|| wrong("no step"))?;
                step.answers.push(Answer {
                    stream: Some(stream.to_owned()),
                    lines: Vec::new(),
                });
            } else if let Some(text) = line.strip_prefix("  ") {
                let step = step.ok_or_else(|| wrong("no step"))?;
                if step.answers.is_empty() {
                    step.answers.push(Answer {
                        stream: None,
                        lines: Vec::new(),
                    });
                }
                let answer = step.answers.last_mut().ok_or_else(|| wrong("no answer"))?;
                answer.lines.push(text.to_owned());
            } else if !line.is_empty() {
                return Err(wrong("neither a step nor an answer"));
            }
        }
        Ok(file)
    }
}

fn heading(text: &str) -> Option<Scenario> {
    let (name, clauses) = text.strip_suffix(')')?.split_once(" (")?;
    Some(Scenario {
        name: name.to_owned(),
        clauses: clauses.split(' ').map(str::to_owned).collect(),
        steps: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"# About.

=== one (RG-1 RG-2)
# Why.
> Put key: "k" value: "v"
  header @2
> w: Watch create_request { key: "k" }
< w
  header @2
  created: true
< w
  end OK

=== two (TXN-1)
> Txn
| compare { key: "a long key a long key a long key a long key" result: EQUAL target: VERSION }
| success { request_range { key: "k }" } }
  succeeded: true
> expire 7
> w: close
"#;

    #[test]
    fn a_file_is_written_as_it_was_read() {
        let file: File = FILE.parse().unwrap();
        assert_eq!(file.to_string(), FILE);
        assert_eq!(file.scenarios[0].clauses, ["RG-1", "RG-2"]);
        let step = &file.scenarios[0].steps[1];
        assert_eq!(step.answers.len(), 2);
        assert!(matches!(&step.request, Request::Send { stream, .. } if stream == "w"));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let error = |text: &str| text.parse::<File>().unwrap_err();
        assert_eq!(error("=== a"), "line 1: no name (CLAUSES): === a");
        assert_eq!(error("\nx"), "line 2: neither a step nor an answer: x");
        assert_eq!(
            error("=== a (X-1)\n> Push"),
            "line 2: Push: no such method: > Push"
        );
        assert_eq!(error("  header"), "line 1: no step:   header");
    }

    #[test]
    fn messages_are_cut_between_fields() {
        assert_eq!(
            fields(r#"a: 1 b {} %3(c { d: 1 }) e: "x y\" {""#),
            ["a: 1", "b {}", "%3(c { d: 1 })", r#"e: "x y\" {""#,]
        );
    }
}
