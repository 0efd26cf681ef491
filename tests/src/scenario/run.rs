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
use crate::scenario::stream::{ClientStream, StepKind, StreamItem};
use crate::scenario::target::{Target, TargetKind};
use crate::scenario::text::{Action, Response, Scenario};
use crate::scenario::wire::Method;
use crate::server::Options;

/// The maximum number of [`poll::INTERVAL`]s until a lease has expired.
const EXPIRY_POLLS_MAX: u32 = 6000;

/// Runs a scenario on a new server and returns it with the responses of that server.
///
/// # Errors
/// If a step cannot be executed, or an expected message does not arrive.
pub fn run(scenario: &Scenario, kind: TargetKind) -> io::Result<Scenario> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut run = ScenarioRun::new(Target::fresh(kind, &Options::default())?);
        let mut recorded = scenario.clone();
        for step in &mut recorded.steps {
            step.responses = run.step(&step.action).await.map_err(|error| {
                io::Error::other(format!("{}: {}{error}", scenario.name, step.action))
            })?;
        }
        Ok(recorded)
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
    /// The revision up to which all streams are drained.
    drained: i64,
}

impl ScenarioRun {
    fn new(target: Target) -> Self {
        Self {
            target,
            streams: BTreeMap::new(),
            names: LeaseNames::default(),
            revision: 1,
            drained: 1,
        }
    }

    async fn step(&mut self, action: &Action) -> Result<Vec<Response>, String> {
        let mut responses = Vec::new();
        let mut touched = None;
        match action {
            Action::Call { method, text } => {
                let lines = self.call(method, text).await?;
                responses.push(Response {
                    stream: None,
                    lines,
                });
            }
            Action::Send {
                stream,
                method,
                text,
            } => {
                let step = self.send(stream, method, text)?;
                touched = Some((stream.clone(), step));
            }
            Action::Next(name) => {
                let item = self.stream(name)?.next().await?;
                responses.push(self.response(name, item));
            }
            Action::Close(name) => {
                let stream = self.stream(name)?;
                stream.close();
                // A watch continues (WA-16); every other stream ends.
                if stream.method().name() != "Watch" {
                    let item = stream.next().await?;
                    responses.push(self.response(name, item));
                }
            }
            Action::Drop(name) => {
                self.stream(name)?;
                self.streams.remove(name);
            }
            Action::Expire(lease) => self.expire(lease).await?,
        }
        responses.extend(self.drain(touched.as_ref()).await?);
        Ok(responses)
    }

    async fn call(&mut self, method: &Method, text: &str) -> Result<Vec<String>, String> {
        let request = message::parse(&method.input(), text, &self.names)?;
        match self.unary(method, &request).await {
            Ok(mut response) => {
                self.names.learn(&request, &response);
                normalize::normalize(&mut response);
                Ok(lines(&response, &self.names))
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
        let response = self.target.transport().unary(method, bytes).await?;
        let response = DynamicMessage::decode(method.output(), response)
            .map_err(|error| Status::internal(format!("invalid response: {error}")))?;
        self.revision = self.revision.max(revision_of(&response));
        Ok(response)
    }

    fn send(&mut self, name: &str, method: &Method, text: &str) -> Result<StepKind, String> {
        let request = message::parse(&method.input(), text, &self.names)?;
        let transport = self.target.transport();
        let stream = self
            .streams
            .entry(name.to_owned())
            .or_insert_with(|| ClientStream::open(transport, method));
        if stream.method() != method {
            return Err(format!(
                "stream {name} has the method {}, not {}",
                stream.method().name(),
                method.name()
            ));
        }
        stream.send(&request)
    }

    fn stream(&mut self, name: &str) -> Result<&mut ClientStream, String> {
        self.streams
            .get_mut(name)
            .ok_or_else(|| format!("unknown stream {name}"))
    }

    /// Waits until a lease has expired. Requests for its remaining time do not extend it.
    async fn expire(&mut self, lease: &str) -> Result<(), String> {
        let method = Method::of_name("LeaseTimeToLive").ok_or("no LeaseTimeToLive")?;
        let request = message::parse(&method.input(), &format!("ID: {lease}"), &self.names)?;
        for _ in 0..EXPIRY_POLLS_MAX {
            let response = self.unary(&method, &request).await;
            let response = response.map_err(|status| status_text(&status))?;
            let remaining = response.get_field_by_name("TTL");
            if remaining.and_then(|remaining| remaining.as_i64()) == Some(-1) {
                return Ok(());
            }
            self.target.advance(poll::INTERVAL).await;
        }
        Err(format!(
            "lease {lease} has not expired after {} s",
            (poll::INTERVAL * EXPIRY_POLLS_MAX).as_secs()
        ))
    }

    async fn drain(
        &mut self,
        touched: Option<&(String, StepKind)>,
    ) -> Result<Vec<Response>, String> {
        let mut responses = Vec::new();
        let moved = self.revision > self.drained;
        for (name, stream) in &mut self.streams {
            let step = match touched {
                Some((touched, step)) if touched == name => *step,
                _ if moved => StepKind::OtherStep,
                _ => continue,
            };
            let mut items = stream
                .drain(step, self.revision)
                .await
                .map_err(|error| format!("stream {name}: {error}"))?;
            // WA-37: the order between watches is not compared.
            items.sort_by_key(|item| match item {
                StreamItem::Message(message) => (false, normalize::watch_of(message)),
                StreamItem::End(_) => (true, 0),
            });
            responses.extend(items.into_iter().map(|item| (name.clone(), item)));
        }
        Ok(responses
            .into_iter()
            .map(|(name, item)| self.response(&name, item))
            .collect())
    }

    fn response(&mut self, stream: &str, item: StreamItem) -> Response {
        let lines = match item {
            StreamItem::Message(mut message) => {
                self.revision = self.revision.max(revision_of(&message));
                normalize::normalize(&mut message);
                lines(&message, &self.names)
            }
            StreamItem::End(None) => vec!["end OK".to_owned()],
            StreamItem::End(Some(status)) => vec![format!("end {}", status_text(&status))],
        };
        Response {
            stream: Some(stream.to_owned()),
            lines,
        }
    }
}

/// Returns the revision in the header of a message, or 0 without a header.
pub fn revision_of(message: &DynamicMessage) -> i64 {
    let header = message.get_field_by_name("header");
    let header = header.as_ref().and_then(|header| header.as_message());
    let revision = header.and_then(|header| header.get_field_by_name("revision")?.as_i64());
    revision.unwrap_or(0)
}

/// Formats a message. An empty message is `{}`, since a response without lines is not visible.
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
