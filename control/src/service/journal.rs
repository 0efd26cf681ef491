//! The journal: from records to messages.

use std::io::{self, Write};
use std::mem;
use std::sync::Arc;

use futures_util::stream::{self, BoxStream, StreamExt};
use prost::Message;
use revstore_engine::KeyRange;
use tonic::Status;

use super::answers::text;
use super::json;
use crate::control::Control;
use crate::fault::Failure;
use crate::journal::{Event, Filter, Record};
use crate::proto;

/// The records of a response, which are made while the client reads them.
pub(super) type Records = BoxStream<'static, Result<proto::JournalRecord, Status>>;

/// Reads the journal.
pub(super) fn read(control: &Control, request: proto::JournalReadRequest) -> Records {
    let filter = Filter {
        methods: request.methods,
        client: request.client,
        user: request.user,
        connection: request.connection,
    };
    // Before the kept records are read, so that none is missed between the two.
    let follower = request
        .follow
        .then(|| control.follow_journal(filter.clone()));
    let page = control.journal(&filter, request.after);
    let last = page.next;
    let mut dropped = page.dropped;
    let kept = page.records.into_iter().map(move |record| {
        let dropped = mem::take(&mut dropped);
        Ok(message(&record, dropped))
    });
    let kept = stream::iter(kept);
    let Some(follower) = follower else {
        return kept.boxed();
    };
    let new = stream::unfold(follower, async |mut follower| {
        let next = follower.next().await;
        Some(((next.record, next.dropped), follower))
    });
    let new = new.filter(move |(record, _)| std::future::ready(record.number > last));
    let new = new.map(|(record, dropped)| Ok(message(&record, dropped)));
    kept.chain(new).boxed()
}

/// Writes the kept records of the journal as `POST /control/v1/JournalRead` returns them: a JSON object in each line.
///
/// # Errors
/// Those of `to`.
pub fn write_journal(control: &Control, to: &mut dyn Write) -> io::Result<()> {
    let page = control.journal(&Filter::default(), 0);
    let mut dropped = page.dropped;
    for record in &page.records {
        let message = message(record, mem::take(&mut dropped)).encode_to_vec();
        let line = json::response_line("JournalRead", message.into());
        to.write_all(&line.map_err(io::Error::other)?)?;
    }
    to.flush()
}

fn message(record: &Arc<Record>, dropped: u64) -> proto::JournalRecord {
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
    let (code, error) = match &record.outcome {
        None => (String::new(), String::new()),
        Some(outcome) => {
            let name = Failure::new(outcome.code, "");
            let name = name.to_string().trim_end_matches(':').to_owned();
            (name, outcome.text.clone())
        }
    };
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
    }
}
