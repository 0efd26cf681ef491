//! The journal: from records to messages.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::mem;
use std::sync::Arc;

use futures_util::stream::{self, BoxStream, StreamExt};
use prost::Message;
use revstore_engine::KeyRange;
use tonic::{Code, Status};

use super::answers::text;
use super::json;
use crate::control::Control;
use crate::error::ControlError;
use crate::fault::Failure;
use crate::journal::{Event, Filter, Follower, Journal, KeptBody, KeptRequest, Outcome, Record};
use crate::proto;

/// The records of a response, which are made while the client reads them.
pub(super) type Records = BoxStream<'static, Result<proto::JournalRecord, Status>>;

/// The number of records that are looked at before the client has read them.
const RECORDS_READY: usize = 64;

/// Reads the journal.
pub(super) fn read(
    control: &Control,
    request: proto::JournalReadRequest,
) -> Result<Records, ControlError> {
    control.hooks().rules.check_names(&request.methods)?;
    let filter = Filter {
        methods: request.methods,
        client: request.client,
        user: request.user,
        connection: request.connection,
    };
    let journal = control.hooks().journal.clone();
    // Before the number of the last record is read, so that none is missed between the two.
    let follower = request.follow.then(|| journal.follow(filter.clone()));
    let reader = Reader {
        last: journal.last(),
        after: request.after,
        ready: VecDeque::new(),
        dropped: 0,
        journal,
        filter,
        follower,
        requests: request.requests,
    };
    let records = stream::unfold(reader, async |mut reader| {
        let record = reader.next().await?;
        Some((Ok(record), reader))
    });
    Ok(records.boxed())
}

/// A reader of the kept records, and then of new ones. It keeps only its position, and misses records that are dropped
/// before it reads them.
struct Reader {
    journal: Journal,
    filter: Filter,
    /// The number of the last record that it has looked at, and of the last one that was kept at its start.
    after: u64,
    last: u64,
    ready: VecDeque<Arc<Record>>,
    /// The number of missed records that the client does not know of.
    dropped: u64,
    follower: Option<Follower>,
    /// Whether the client wants the requests.
    requests: bool,
}

impl Reader {
    async fn next(&mut self) -> Option<proto::JournalRecord> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                return Some(message(
                    &record,
                    mem::take(&mut self.dropped),
                    self.requests,
                ));
            }
            if self.after < self.last {
                let page = (self.journal).page(&self.filter, self.after, self.last, RECORDS_READY);
                self.after = page.next;
                self.dropped += page.dropped;
                self.ready = page.records.into();
                continue;
            }
            let next = self.follower.as_mut()?.next().await;
            self.dropped += next.dropped;
            if next.record.number > self.last {
                self.ready.push_back(next.record);
            }
        }
    }
}

/// Writes the kept records of the journal with their requests, as `POST /control/v1/JournalRead` returns them: a JSON
/// object in each line.
///
/// # Errors
/// Those of `to`.
pub fn write_journal(control: &Control, to: &mut dyn Write) -> io::Result<()> {
    let page = control.journal(&Filter::default(), 0);
    let mut dropped = page.dropped;
    for record in &page.records {
        let message = message(record, mem::take(&mut dropped), true).encode_to_vec();
        let line = json::response_line("JournalRead", message.into());
        to.write_all(&line.map_err(io::Error::other)?)?;
    }
    to.flush()
}

/// Returns the message of a record, with its request if that is wanted.
pub(crate) fn message(record: &Record, dropped: u64, requests: bool) -> proto::JournalRecord {
    let shared = |text: &Option<Arc<str>>| text.as_deref().unwrap_or_default().to_owned();
    let keys = record.keys.iter().map(|range| {
        let (key, range_end) = match range {
            KeyRange::One(key) => (key.clone(), bytes::Bytes::new()),
            KeyRange::Within { start, end } => (start.clone(), end.clone()),
            // As in requests of etcd.
            KeyRange::From(start) => (start.clone(), bytes::Bytes::from_static(b"\0")),
        };
        proto::KeyRange { key, range_end }
    });
    let (code, error) = texts(record.outcome.as_ref());
    let request = record.request.as_ref().filter(|_| requests);
    let front = record.front.as_deref().cloned().unwrap_or_default();
    proto::JournalRecord {
        revision: record.revision.unwrap_or_default(),
        time: text(record.time),
        number: record.number,
        event: match record.event {
            Event::Request => "request",
            Event::Opened => "opened",
            Event::Progress => "progress",
            Event::Ended => "ended",
        }
        .to_owned(),
        method: record.method.to_owned(),
        client: shared(&record.client),
        user: shared(&record.user),
        connection: record.connection.unwrap_or_default(),
        keys: keys.collect(),
        more_keys: record.more_keys as u64,
        code,
        error,
        duration: text(record.duration),
        rule: record.rule.map_or(0, |rule| rule.0),
        watch: record.watch.unwrap_or_default(),
        lag: record.lag.unwrap_or_default(),
        dropped,
        resource: front.resource,
        namespace: front.namespace,
        name: front.name,
        status: record.status.unwrap_or_default().into(),
        reason: record
            .reason
            .map_or_else(String::new, |it| it.name().to_owned()),
        request: request.map(|it| request_message(it)),
    }
}

fn request_message(request: &KeptRequest) -> proto::JournalRequest {
    let (body, left_out) = match &request.body {
        KeptBody::Kept(body) => (body.clone(), ""),
        KeptBody::LeftOut(reason) => (bytes::Bytes::new(), reason.as_str()),
    };
    let answer = request.answer.as_ref();
    let (code, error) = texts(answer.map(|it| &it.outcome));
    let http = request.http.clone().unwrap_or_default();
    proto::JournalRequest {
        body,
        left_out: left_out.to_owned(),
        stream: request.is_on_stream,
        executed: request.is_executed,
        code,
        error,
        revision: answer.and_then(|it| it.revision).unwrap_or_default(),
        status: answer.and_then(|it| it.status).unwrap_or_default().into(),
        at: request.at,
        written: request.has_written,
        store: request.store,
        verb: http.method,
        path: http.path,
        content_type: http.content_type.unwrap_or_default(),
        accept: http.accept.unwrap_or_default(),
    }
}

/// Returns the code and the text of an outcome, empty without one.
fn texts(outcome: Option<&Outcome>) -> (String, String) {
    outcome.map_or_else(Default::default, |outcome| {
        (code_name(outcome.code), outcome.text.clone())
    })
}

/// Returns the name of a code, such as `NOT_FOUND`.
pub(crate) fn code_name(code: Code) -> String {
    let failure = Failure::new(code, "").to_string();
    failure.trim_end_matches(':').to_owned()
}
