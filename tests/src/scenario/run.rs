//! Running a scenario and writing down what is answered.

use std::collections::BTreeMap;
use std::io;

use bytes::Bytes;
use prost_reflect::DynamicMessage;
use prost_reflect::prost::Message as _;
use tonic::{Code, Status};

use crate::poll;
use crate::scenario::message;
use crate::scenario::normal::{self, Names};
use crate::scenario::stream::{Cause, Stream, Told};
use crate::scenario::target::{Kind, Target};
use crate::scenario::text::{Answer, Request, Scenario};
use crate::scenario::wire::Method;
use crate::server::Options;

/// How many moments of [`poll::INTERVAL`] a lease may take to expire.
const EXPIRY_POLLS_MAX: usize = 6000;

/// Runs a scenario on a fresh server; returns it with the answers that were given.
///
/// # Errors
/// When a step cannot be carried out, or what has to come does not.
pub fn run(scenario: &Scenario, kind: Kind) -> io::Result<Scenario> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut run = Run::new(Target::fresh(kind, &Options::default())?);
        let mut answered = scenario.clone();
        for step in &mut answered.steps {
            step.answers = run.step(&step.request).await.map_err(|error| {
                io::Error::other(format!("{}: {}{error}", scenario.name, step.request))
            })?;
        }
        Ok(answered)
    })
}

/// A scenario under way.
#[derive(Debug)]
struct Run {
    target: Target,
    streams: BTreeMap<String, Stream>,
    names: Names,
    /// The store's revision, as far as answers told.
    revision: i64,
    /// The revision up to which all streams have told everything.
    settled: i64,
}

impl Run {
    fn new(target: Target) -> Self {
        Self {
            target,
            streams: BTreeMap::new(),
            names: Names::default(),
            revision: 1,
            settled: 1,
        }
    }

    async fn step(&mut self, request: &Request) -> Result<Vec<Answer>, String> {
        let mut answers = Vec::new();
        let mut touched = None;
        match request {
            Request::Call { method, text } => {
                let lines = self.call(method, text).await?;
                answers.push(Answer {
                    stream: None,
                    lines,
                });
            }
            Request::Send {
                stream,
                method,
                text,
            } => {
                let cause = self.send(stream, method, text)?;
                touched = Some((stream.clone(), cause));
            }
            Request::Next(name) => {
                let told = self.stream(name)?.next().await?;
                answers.push(self.tell(name, told));
            }
            Request::Close(name) => {
                let stream = self.stream(name)?;
                stream.close();
                // A watch goes on (WA-16); everything else ends.
                if stream.method().name() != "Watch" {
                    let told = stream.next().await?;
                    answers.push(self.tell(name, told));
                }
            }
            Request::Drop(name) => {
                self.stream(name)?;
                self.streams.remove(name);
            }
            Request::Expire(lease) => self.expire(lease).await?,
        }
        answers.extend(self.settle(touched.as_ref()).await?);
        Ok(answers)
    }

    async fn call(&mut self, method: &Method, text: &str) -> Result<Vec<String>, String> {
        let request = message::parse(&method.input(), text, &self.names)?;
        match self.ask(method, &request).await {
            Ok(mut reply) => {
                self.names.learn(&request, &reply);
                normal::normalise(&mut reply);
                Ok(lines(&reply, &self.names))
            }
            Err(status) => Ok(vec![format!("error {}", status_text(&status))]),
        }
    }

    async fn ask(
        &mut self,
        method: &Method,
        request: &DynamicMessage,
    ) -> Result<DynamicMessage, Status> {
        let bytes = Bytes::from(request.encode_to_vec());
        let reply = self.target.transport().unary(method, bytes).await?;
        let reply = DynamicMessage::decode(method.output(), reply)
            .map_err(|error| Status::internal(format!("undecodable: {error}")))?;
        self.revision = self.revision.max(revision_of(&reply));
        Ok(reply)
    }

    fn send(&mut self, name: &str, method: &Method, text: &str) -> Result<Cause, String> {
        let request = message::parse(&method.input(), text, &self.names)?;
        let transport = self.target.transport();
        let stream = self
            .streams
            .entry(name.to_owned())
            .or_insert_with(|| Stream::open(transport, method));
        if stream.method() != method {
            return Err(format!("{name} is a stream of another method"));
        }
        stream.send(&request)
    }

    fn stream(&mut self, name: &str) -> Result<&mut Stream, String> {
        self.streams
            .get_mut(name)
            .ok_or_else(|| format!("no stream {name}"))
    }

    /// Waits until a lease is gone. Asking for it changes nothing.
    async fn expire(&mut self, lease: &str) -> Result<(), String> {
        let method = Method::of_name("LeaseTimeToLive").ok_or("no LeaseTimeToLive")?;
        let request = message::parse(&method.input(), &format!("ID: {lease}"), &self.names)?;
        for _ in 0..EXPIRY_POLLS_MAX {
            let reply = self.ask(&method, &request).await;
            let reply = reply.map_err(|status| status_text(&status))?;
            let left = reply.get_field_by_name("TTL");
            if left.and_then(|left| left.as_i64()) == Some(-1) {
                return Ok(());
            }
            self.target.pass(poll::INTERVAL).await;
        }
        Err(format!("lease {lease} does not expire"))
    }

    async fn settle(&mut self, touched: Option<&(String, Cause)>) -> Result<Vec<Answer>, String> {
        let mut answers = Vec::new();
        let moved = self.revision > self.settled;
        for (name, stream) in &mut self.streams {
            let cause = match touched {
                Some((touched, cause)) if touched == name => *cause,
                _ if moved => Cause::Elsewhere,
                _ => continue,
            };
            let mut told = stream
                .settle(cause, self.revision)
                .await
                .map_err(|error| format!("stream {name}: {error}"))?;
            // WA-37
            told.sort_by_key(|told| match told {
                Told::Message(message) => (false, normal::watch_of(message)),
                Told::End(_) => (true, 0),
            });
            answers.extend(told.into_iter().map(|told| (name.clone(), told)));
        }
        Ok(answers
            .into_iter()
            .map(|(name, told)| self.tell(&name, told))
            .collect())
    }

    fn tell(&mut self, stream: &str, told: Told) -> Answer {
        let lines = match told {
            Told::Message(mut message) => {
                self.revision = self.revision.max(revision_of(&message));
                normal::normalise(&mut message);
                lines(&message, &self.names)
            }
            Told::End(None) => vec!["end OK".to_owned()],
            Told::End(Some(status)) => vec![format!("end {}", status_text(&status))],
        };
        Answer {
            stream: Some(stream.to_owned()),
            lines,
        }
    }
}

/// The revision in the header of a message; zero if it has none.
pub fn revision_of(message: &DynamicMessage) -> i64 {
    let header = message.get_field_by_name("header");
    let header = header.as_ref().and_then(|header| header.as_message());
    let revision = header.and_then(|header| header.get_field_by_name("revision")?.as_i64());
    revision.unwrap_or(0)
}

/// A message in lines; an answer without any would not be seen.
fn lines(message: &DynamicMessage, names: &Names) -> Vec<String> {
    match message::lines(message, names) {
        lines if lines.is_empty() => vec!["{}".to_owned()],
        lines => lines,
    }
}

/// A code as the gRPC specification spells it, and the text.
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
