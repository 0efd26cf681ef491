//! The requests of a journal, sent to another server.
//!
//! A [`Replay`] has the requests of a journal in the order in which they took effect, and sends them to an
//! [`Endpoint`], one after the other. The answers are compared with those in the journal.
//!
//! | file | contents |
//! |---|---|
//! | `plan.rs` | **which requests are sent, and in which order** |
//! | `lines.rs` | journals in files |
//! | `endpoint.rs` | the other server |
//! | `client.rs` | one request and its answer |
//! | `error.rs` | the errors |

mod client;
mod endpoint;
mod error;
mod lines;
mod plan;

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

pub use endpoint::Endpoint;
pub use error::ReplayError;
pub use lines::{JOURNAL_BYTES_MAX, LINE_BYTES_MAX};
pub use plan::Selection;

use self::client::Client;
use self::plan::Planned;

/// The default of [`Options::answer_time`].
pub const ANSWER_TIME: Duration = Duration::from_secs(30);

/// The requests of a journal, in the order in which they took effect.
#[derive(Clone, Debug)]
pub struct Replay {
    requests: Vec<Planned>,
    /// The number of requests that the server has not executed.
    not_executed: u64,
}

/// How requests are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Whether a request is not sent before as much time has passed since the first one as in the journal, by the clock of
    /// its server. Otherwise, each request follows the answer to the one before it.
    pub timing: bool,
    /// The time of the wall in which each answer must arrive; 30 s by default.
    pub answer_time: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            timing: false,
            answer_time: ANSWER_TIME,
        }
    }
}

/// What the sender of requests learns while they are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// An answer differs from that in the journal.
    Difference {
        /// The number of the record.
        number: u64,
        /// The method in the record.
        method: String,
        /// The answer of the server with the journal.
        recorded: Answer,
        /// The answer now.
        replayed: Answer,
    },
    /// A request cannot be sent.
    Skipped {
        /// The number of the record.
        number: u64,
        /// The method in the record.
        method: String,
        /// `size`, `secret` or `unread`, as in the journal, or `unanswered` if the client has gone before the answer.
        reason: String,
    },
}

/// The answer to a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The gRPC code, such as `OK`.
    pub code: String,
    /// The text of an error; of a Kubernetes API the message of its `Status`, if that is JSON.
    pub error: String,
    /// The revision in the answer; 0 if there is none. Not of a Kubernetes API.
    pub revision: i64,
    /// The HTTP status of a Kubernetes API, otherwise 0.
    pub status: u32,
}

/// What was done with the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The requests that were sent.
    pub sent: u64,
    /// Those of them whose answers differ.
    pub differences: u64,
    /// The requests that could not be sent.
    pub skipped: u64,
    /// The requests that the server with the journal has not executed, which are not sent.
    pub not_executed: u64,
}

impl Replay {
    /// Returns the number of requests that are sent.
    pub fn len(&self) -> usize {
        let sent = self.requests.iter().filter(|it| it.skipped.is_none());
        sent.count()
    }

    /// Returns whether no request is sent.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sends the requests, each after the answer to the one before it, and calls `found` with what differs.
    ///
    /// Dropping the future ends the connection. The requests until then are executed.
    ///
    /// # Errors
    /// [`ReplayError::Connection`] and [`ReplayError::Answer`]: the server cannot be reached, or does not answer in time. The
    /// later requests are not sent.
    pub async fn send(
        &self,
        endpoint: &Endpoint,
        options: &Options,
        mut found: impl FnMut(&Finding),
    ) -> Result<Summary, ReplayError> {
        let mut summary = Summary {
            not_executed: self.not_executed,
            ..Summary::default()
        };
        let mut client = Client::new(endpoint, options.answer_time);
        let begun = Instant::now();
        let first = self.requests.first().map_or(Duration::ZERO, |it| it.time);
        for request in &self.requests {
            let (number, method) = (request.number, request.method.clone());
            if let Some(reason) = &request.skipped {
                summary.skipped += 1;
                let reason = reason.clone();
                found(&Finding::Skipped {
                    number,
                    method,
                    reason,
                });
                continue;
            }
            if options.timing {
                tokio::time::sleep_until(begun + request.time.saturating_sub(first)).await;
            }
            let replayed = client.send(request).await?;
            summary.sent += 1;
            if replayed != request.recorded {
                summary.differences += 1;
                let recorded = request.recorded.clone();
                found(&Finding::Difference {
                    number,
                    method,
                    recorded,
                    replayed,
                });
            }
        }
        Ok(summary)
    }
}

impl Answer {
    /// Returns the answer as a JSON object.
    fn json(&self) -> Value {
        let mut object = json!({"code": self.code, "error": self.error});
        if self.status == 0 {
            object["revision"] = self.revision.into();
        } else {
            object["status"] = self.status.into();
        }
        object
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            0 => write!(f, "{}", self.code)?,
            status => write!(f, "{status}")?,
        }
        if !self.error.is_empty() {
            write!(f, " {:?}", self.error)?;
        }
        if self.revision != 0 {
            write!(f, " at revision {}", self.revision)?;
        }
        Ok(())
    }
}

impl Finding {
    /// Returns the finding as a JSON object: `number`, `method`, and either `recorded` and `replayed` or `skipped`.
    pub fn json(&self) -> Value {
        match self {
            Self::Difference {
                number,
                method,
                recorded,
                replayed,
            } => json!({
                "number": number,
                "method": method,
                "recorded": recorded.json(),
                "replayed": replayed.json(),
            }),
            Self::Skipped {
                number,
                method,
                reason,
            } => json!({"number": number, "method": method, "skipped": reason}),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Difference {
                number,
                method,
                recorded,
                replayed,
            } => write!(
                f,
                "{number}  {method}  recorded {recorded}, replayed {replayed}"
            ),
            Self::Skipped {
                number,
                method,
                reason,
            } => write!(f, "{number}  {method}  skipped: {reason}"),
        }
    }
}
