//! The text format of scenario files.
//!
//! ```text
//! # A comment about the file.
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
//! `===` begins a scenario with its name and the clauses that it tests. `>` begins a step, and lines with `|`
//! continue it. The responses follow the step: first the response to the step itself, then the messages that
//! streams delivered, each below the name of its stream. A field that is not listed is absent or zero.
//!
//! | Step | Action |
//! |---|---|
//! | `> Put key: "k"` | calls a method |
//! | `> w: Watch ...` | sends a request on a stream; the first one opens the stream |
//! | `> w: next` | waits for the next message, after the client has closed its side of the stream |
//! | `> w: close` | closes the client's side of the stream |
//! | `> w: drop` | cancels the stream |
//! | `> expire 7` | waits until the lease has expired |

use std::fmt::{self, Write as _};

use crate::scenario::wire::Method;

/// The maximum width of a step on one line. In a wider step, each field is on a separate line.
const WIDTH: usize = 100;

/// A file of scenarios.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScenarioFile {
    /// The lines before the first scenario.
    pub comments: Vec<String>,
    /// The scenarios in order.
    pub scenarios: Vec<Scenario>,
}

/// A sequence of steps on a new server, with their responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Its name, unique in its file.
    pub name: String,
    /// The clauses of the specification that it tests.
    pub clauses: Vec<String>,
    /// The steps in order.
    pub steps: Vec<Step>,
}

/// An action and its responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The comment lines before the step.
    pub comments: Vec<String>,
    /// The action.
    pub action: Action,
    /// The responses, in order.
    pub responses: Vec<Response>,
}

/// The action of a step. Texts are messages in the format of [`message`](super::message).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Calls a method.
    Call {
        /// The method.
        method: Method,
        /// The message.
        text: String,
    },
    /// Sends a message on a stream, which is opened if necessary.
    Send {
        /// The stream's name.
        stream: String,
        /// The method of the stream.
        method: Method,
        /// The message.
        text: String,
    },
    /// Waits for the next message of a stream.
    Next(String),
    /// Closes the client's side of a stream.
    Close(String),
    /// Cancels a stream.
    Drop(String),
    /// Waits until a lease has expired.
    Expire(String),
}

/// A response to a step, or a message that a stream delivered after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The stream that delivered it; `None` for the response to the step itself.
    pub stream: Option<String>,
    /// Fields, or an error.
    pub lines: Vec<String>,
}

impl Scenario {
    /// Returns the scenario without its responses.
    #[must_use]
    pub fn without_responses(&self) -> Self {
        let mut copy = self.clone();
        for step in &mut copy.steps {
            step.responses.clear();
        }
        copy
    }
}

impl Step {
    /// Returns a step without responses.
    pub fn new(action: Action) -> Self {
        Self {
            comments: Vec::new(),
            action,
            responses: Vec::new(),
        }
    }
}

impl Action {
    /// Parses the text of a step, without its `>`.
    ///
    /// # Errors
    /// A description of the syntax error.
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
    Method::of_name(name).ok_or_else(|| format!("unknown method {name}"))
}

impl fmt::Display for Action {
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

/// Splits a message into its fields. Nested messages are in braces.
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
        // A value ends before a blank, and so does the name of a nested message.
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

impl fmt::Display for Response {
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
        write!(formatter, "{}", self.action)?;
        self.responses
            .iter()
            .try_for_each(|response| write!(formatter, "{response}"))
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

impl fmt::Display for ScenarioFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for comment in &self.comments {
            writeln!(formatter, "{comment}")?;
        }
        self.scenarios
            .iter()
            .try_for_each(|scenario| write!(formatter, "\n{scenario}"))
    }
}

impl std::str::FromStr for ScenarioFile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut file = Self::default();
        let mut comments = Vec::new();
        let mut request = String::new();
        let mut lines = text.lines().enumerate().peekable();
        while let Some((at, line)) = lines.next() {
            let invalid = |error: &str| format!("line {}: {error}: {line}", at + 1);
            let scenario = file.scenarios.last_mut();
            let step = scenario.and_then(|scenario| scenario.steps.last_mut());
            if let Some(head) = line.strip_prefix("=== ") {
                let scenario = heading(head).ok_or_else(|| invalid("expected name (CLAUSES)"))?;
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
                let parsed = Action::parse(request.trim()).map_err(|error| invalid(&error))?;
                request.clear();
                let scenario = file
                    .scenarios
                    .last_mut()
                    .ok_or_else(|| invalid("a step before the first scenario"))?;
                let comments = std::mem::take(&mut comments);
                scenario.steps.push(Step {
                    comments,
                    ..Step::new(parsed)
                });
            } else if let Some(stream) = line.strip_prefix("< ") {
                let step = step.ok_or_else(|| invalid("a response before the first step"))?;
                step.responses.push(Response {
                    stream: Some(stream.to_owned()),
                    lines: Vec::new(),
                });
            } else if let Some(text) = line.strip_prefix("  ") {
                let step = step.ok_or_else(|| invalid("a response before the first step"))?;
                if step.responses.is_empty() {
                    step.responses.push(Response {
                        stream: None,
                        lines: Vec::new(),
                    });
                }
                let response = step
                    .responses
                    .last_mut()
                    .ok_or_else(|| invalid("no response"))?;
                response.lines.push(text.to_owned());
            } else if !line.is_empty() {
                return Err(invalid("expected a step or a response"));
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
    fn a_parsed_file_formats_to_the_same_text() {
        let file: ScenarioFile = FILE.parse().unwrap();
        assert_eq!(file.to_string(), FILE);
        assert_eq!(file.scenarios[0].clauses, ["RG-1", "RG-2"]);
        let step = &file.scenarios[0].steps[1];
        assert_eq!(step.responses.len(), 2);
        assert!(matches!(&step.action, Action::Send { stream, .. } if stream == "w"));
    }

    #[test]
    fn errors_name_the_line() {
        let error = |text: &str| text.parse::<ScenarioFile>().unwrap_err();
        assert_eq!(error("=== a"), "line 1: expected name (CLAUSES): === a");
        assert_eq!(error("\nx"), "line 2: expected a step or a response: x");
        assert_eq!(
            error("=== a (X-1)\n> Push"),
            "line 2: unknown method Push: > Push"
        );
        assert_eq!(
            error("  header"),
            "line 1: a response before the first step:   header"
        );
    }

    #[test]
    fn messages_are_split_between_fields() {
        assert_eq!(
            fields(r#"a: 1 b {} %3(c { d: 1 }) e: "x y\" {""#),
            ["a: 1", "b {}", "%3(c { d: 1 })", r#"e: "x y\" {""#,]
        );
    }
}
