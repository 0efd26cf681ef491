//! The execution of a scenario.

use std::collections::BTreeMap;
use std::io;

use bytes::Bytes;
use prost_reflect::DynamicMessage;
use prost_reflect::prost::Message as _;
use tonic::{Code, Status};

use crate::poll;
use crate::scenario::message;
use crate::scenario::normalize::{self, LeaseNames};
use crate::scenario::stream::{ClientStream, StreamItem, Trigger};
use crate::scenario::target::{Target, TargetKind};
use crate::scenario::text::{Action, Answer, Scenario};
use crate::scenario::wire::Method;
use crate::server::Options;

/// The number of [`poll::INTERVAL`]s that a lease may take to expire.
const EXPIRY_POLLS_MAX: usize = 6000;

/// Runs a scenario on a new server and returns it with the answers of that server.
///
/// # Errors
/// If a step cannot be executed, or an expected message does not arrive.
pub fn run(scenario: &Scenario, kind: TargetKind) -> io::Result<Scenario> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut run = ScenarioRun::new(Target::fresh(kind, &Options::default())?);
        let mut answered = scenario.clone();
        for step in &mut answered.steps {
            step.answers = run.step(&step.action).await.map_err(|error| {
                io::Error::other(format!("{}: {}{error}", scenario.name, step.action))
            })?;
        }
        Ok(answered)
    })
}

/// The state of a running scenario.
#[derive(Debug)]
struct ScenarioRun {
    target: Target,
    streams: BTreeMap<String, ClientStream>,
    names: LeaseNames,
    /// The highest revision in the headers so far.
    revision: i64,
    /// The revision up to which all streams have delivered everything.
    settled: i64,
}

impl ScenarioRun {
    fn new(target: Target) -> Self {
        Self {
            target,
            streams: BTreeMap::new(),
            names: LeaseNames::default(),
            revision: 1,
            settled: 1,
        }
    }

    async fn step(&mut self, action: &Action) -> Result<Vec<Answer>, String> {
        let mut answers = Vec::new();
        let mut touched = None;
        match action {
            Action::Call { method, text } => {
                let lines = self.call(method, text).await?;
                answers.push(Answer {
                    stream: None,
                    lines,
                });
            }
            Action::Send {
                stream,
                method,
                text,
            } => {
                let trigger = self.send(stream, method, text)?;
                touched = Some((stream.clone(), trigger));
            }
            Action::Next(name) => {
                let item = self.stream(name)?.next().await?;
                answers.push(self.answer(name, item));
            }
            Action::Close(name) => {
                let stream = self.stream(name)?;
                stream.close();
                // A watch continues (WA-16); every other stream ends.
                if stream.method().name() != "Watch" {
                    let item = stream.next().await?;
                    answers.push(self.answer(name, item));
                }
            }
            Action::Drop(name) => {
                self.stream(name)?;
                self.streams.remove(name);
            }
            Action::Expire(lease) => self.expire(lease).await?,
        }
        answers.extend(self.settle(touched.as_ref()).await?);
        Ok(answers)
    }

    async fn call(&mut self, method: &Method, text: &str) -> Result<Vec<String>, String> {
        let request = message::parse(&method.input(), text, &self.names)?;
        match self.unary(method, &request).await {
            Ok(mut reply) => {
                self.names.learn(&request, &reply);
                normalize::normalize(&mut reply);
                Ok(lines(&reply, &self.names))
            }
            Err(status) => Ok(vec![format!("error {}", status_text(&status))]),
        }
    }

    async fn unary(
        &mut self,
        method: &Method,
        request: &DynamicMessage,
    ) -> Result<DynamicMessage, Status> {
        let bytes = Bytes::from(request.encode_to_vec());
        let reply = self.target.transport().unary(method, bytes).await?;
        let reply = DynamicMessage::decode(method.output(), reply)
            .map_err(|error| Status::internal(format!("cannot be decoded: {error}")))?;
        self.revision = self.revision.max(revision_of(&reply));
        Ok(reply)
    }

    fn send(&mut self, name: &str, method: &Method, text: &str) -> Result<Trigger, String> {
        let request = message::parse(&method.input(), text, &self.names)?;
        let transport = self.target.transport();
        let stream = self
            .streams
            .entry(name.to_owned())
            .or_insert_with(|| ClientStream::open(transport, method));
        if stream.method() != method {
            return Err(format!("{name} is a stream of another method"));
        }
        stream.send(&request)
    }

    fn stream(&mut self, name: &str) -> Result<&mut ClientStream, String> {
        self.streams
            .get_mut(name)
            .ok_or_else(|| format!("no stream {name}"))
    }

    /// Waits until a lease is gone. The requests for its remaining time change nothing.
    async fn expire(&mut self, lease: &str) -> Result<(), String> {
        let method = Method::of_name("LeaseTimeToLive").ok_or("no LeaseTimeToLive")?;
        let request = message::parse(&method.input(), &format!("ID: {lease}"), &self.names)?;
        for _ in 0..EXPIRY_POLLS_MAX {
            let reply = self.unary(&method, &request).await;
            let reply = reply.map_err(|status| status_text(&status))?;
            let remaining = reply.get_field_by_name("TTL");
            if remaining.and_then(|remaining| remaining.as_i64()) == Some(-1) {
                return Ok(());
            }
            self.target.advance(poll::INTERVAL).await;
        }
        Err(format!("lease {lease} does not expire"))
    }

    async fn settle(&mut self, touched: Option<&(String, Trigger)>) -> Result<Vec<Answer>, String> {
        let mut answers = Vec::new();
        let moved = self.revision > self.settled;
        for (name, stream) in &mut self.streams {
            let trigger = match touched {
                Some((touched, trigger)) if touched == name => *trigger,
                _ if moved => Trigger::OtherStep,
                _ => continue,
            };
            let mut items = stream
                .settle(trigger, self.revision)
                .await
                .map_err(|error| format!("stream {name}: {error}"))?;
            // WA-37: the order between watches is not compared.
            items.sort_by_key(|item| match item {
                StreamItem::Message(message) => (false, normalize::watch_of(message)),
                StreamItem::End(_) => (true, 0),
            });
            answers.extend(items.into_iter().map(|item| (name.clone(), item)));
        }
        Ok(answers
            .into_iter()
            .map(|(name, item)| self.answer(&name, item))
            .collect())
    }

    fn answer(&mut self, stream: &str, item: StreamItem) -> Answer {
        let lines = match item {
            StreamItem::Message(mut message) => {
                self.revision = self.revision.max(revision_of(&message));
                normalize::normalize(&mut message);
                lines(&message, &self.names)
            }
            StreamItem::End(None) => vec!["end OK".to_owned()],
            StreamItem::End(Some(status)) => vec![format!("end {}", status_text(&status))],
        };
        Answer {
            stream: Some(stream.to_owned()),
            lines,
        }
    }
}

/// Returns the revision in the header of a message, 0 without a header.
pub fn revision_of(message: &DynamicMessage) -> i64 {
    let header = message.get_field_by_name("header");
    let header = header.as_ref().and_then(|header| header.as_message());
    let revision = header.and_then(|header| header.get_field_by_name("revision")?.as_i64());
    revision.unwrap_or(0)
}

/// Formats a message. An empty one is `{}`, since an answer without lines would be invisible.
fn lines(message: &DynamicMessage, names: &LeaseNames) -> Vec<String> {
    match message::lines(message, names) {
        lines if lines.is_empty() => vec!["{}".to_owned()],
        lines => lines,
    }
}

/// Formats a status: the code as the gRPC specification spells it, and the text.
pub fn status_text(status: &Status) -> String {
    let text = message::quoted(status.message().as_bytes());
    format!("{} {text}", code_name(status.code()))
}

fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
