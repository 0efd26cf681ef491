//! Which requests of a journal are sent, and in which order.

use std::io::BufRead;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method};
use revstore_host::config::GoDuration;

use super::{Answer, Replay, ReplayError, lines};
use crate::journal::Page;
use crate::proto::{JournalRecord, JournalRequest};
use crate::service;

/// Which requests of a journal are sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only those after the record with this number; 0 for all.
    pub after: u64,
    /// Only those that took effect up to the one with this number, it included.
    pub stop_at: Option<u64>,
    /// Whether records may be missing.
    pub partial: bool,
}

/// A request to send.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) number: u64,
    /// The method in the record.
    pub(super) method: String,
    /// The time of the clock in the record.
    pub(super) time: Duration,
    /// The reason why it is not sent.
    pub(super) skipped: Option<String>,
    pub(super) recorded: Answer,
    pub(super) path: PathAndQuery,
    pub(super) body: Bytes,
    pub(super) form: Form,
    /// Whether responses follow the first one.
    pub(super) is_stream: bool,
}

/// The form of a request.
#[derive(Clone, Debug)]
pub(super) enum Form {
    /// A call of gRPC.
    Call,
    /// A request to a Kubernetes API.
    Http {
        method: Method,
        content_type: Option<HeaderValue>,
        accept: Option<HeaderValue>,
    },
}

/// A request of a record, as long as its place is not known.
#[derive(Debug)]
struct Found {
    planned: Planned,
    is_executed: bool,
    at: i64,
    has_written: bool,
    store: u64,
}

impl Replay {
    /// Reads a journal as `journal --requests -w json` and [`write_journal`](crate::service::write_journal) write it.
    ///
    /// # Errors
    /// [`ReplayError::Read`], and [`ReplayError::Damaged`] with the number of the line, also for fields that are not known.
    /// Further, as [`of_page`](Self::of_page).
    pub fn read(from: impl BufRead, selection: &Selection) -> Result<Self, ReplayError> {
        Self::of_records(lines::read(from)?, selection)
    }

    /// Returns the requests of the records of a page, which was read without a filter.
    ///
    /// # Errors
    /// [`ReplayError::Missing`] if records are missing, [`ReplayError::Replaced`] if the store was replaced between the
    /// requests, and [`ReplayError::StopAt`].
    pub fn of_page(page: &Page, selection: &Selection) -> Result<Self, ReplayError> {
        let records = page.records.iter().zip(1..);
        let records = records.map(|(record, line)| (line, service::message(record, 0, true)));
        Self::of_records(records.collect(), selection)
    }

    fn of_records(
        records: Vec<(u64, JournalRecord)>,
        selection: &Selection,
    ) -> Result<Self, ReplayError> {
        let mut found = Vec::new();
        let mut last = 0;
        let mut missing = None;
        for (line, record) in records {
            let damaged = |problem| ReplayError::Damaged { line, problem };
            let number = record.number;
            if number <= last {
                return Err(damaged(format!("record {number} follows record {last}")));
            }
            let previous = last.max(selection.after);
            if number > previous + 1 && missing.is_none() {
                missing = Some((previous + 1, number - 1));
            }
            last = number;
            let request = Found::of(record).map_err(damaged)?;
            found.extend(request.filter(|_| number > selection.after));
        }
        if let Some((first, last)) = missing.filter(|_| !selection.partial) {
            return Err(ReplayError::Missing { first, last });
        }
        let store = found.iter().map(|it| it.store).max();
        let earlier = found.iter().filter(|it| Some(it.store) < store);
        if let Some(last) = earlier.map(|it| it.planned.number).max() {
            return Err(ReplayError::Replaced { last });
        }
        // What has made a revision precedes what has only seen it. The answers of the server are in the order of the
        // numbers, which decides among the others.
        found.sort_by_key(|it| (it.at, !it.has_written, it.planned.number));
        if let Some(number) = selection.stop_at {
            let position = found.iter().position(|it| it.planned.number == number);
            found.truncate(position.ok_or(ReplayError::StopAt(number))? + 1);
        }
        let not_executed = found.iter().filter(|it| !it.is_executed).count() as u64;
        found.retain(|it| it.is_executed);
        Ok(Self {
            requests: found.into_iter().map(|it| it.planned).collect(),
            not_executed,
        })
    }
}

impl Found {
    /// Returns the request of a record, `None` for an event of a stream, or what is wrong with the record.
    fn of(record: JournalRecord) -> Result<Option<Self>, String> {
        let is_request = record.event == "request";
        let Some(request) = record.request else {
            if is_request {
                let problem = "the record has no request: read the journal with --requests";
                return Err(problem.to_owned());
            }
            return Ok(None);
        };
        let time = duration(&record.time)?;
        let (path, form) = form(&record.method, &request)?;
        let unanswered = request.code.is_empty().then(|| "unanswered".to_owned());
        let left_out = Some(request.left_out).filter(|reason| !reason.is_empty());
        Ok(Some(Self {
            planned: Planned {
                number: record.number,
                method: record.method,
                time,
                skipped: left_out.or(unanswered),
                recorded: Answer {
                    code: request.code,
                    error: request.error,
                    // Of a Kubernetes API, the controllers of the server write, too.
                    revision: match form {
                        Form::Call => request.revision,
                        Form::Http { .. } => 0,
                    },
                    status: request.status,
                },
                path,
                body: request.body,
                form,
                is_stream: request.stream,
            },
            is_executed: request.executed,
            at: request.at,
            has_written: request.written,
            store: request.store,
        }))
    }
}

/// Returns the path and the rest of a request, or what is wrong with them.
fn form(method: &str, request: &JournalRequest) -> Result<(PathAndQuery, Form), String> {
    if request.verb.is_empty() {
        let path = PathAndQuery::try_from(format!("/{method}"));
        let path = path.map_err(|_| format!("invalid method {method:?}"))?;
        return Ok((path, Form::Call));
    }
    let path = PathAndQuery::from_str(&request.path);
    let path = path.map_err(|_| format!("invalid path {:?}", request.path))?;
    let verb = Method::from_str(&request.verb);
    let verb = verb.map_err(|_| format!("invalid verb {:?}", request.verb))?;
    let header = |value: &str| {
        let parsed = HeaderValue::from_str(value).map_err(|_| format!("invalid header {value:?}"));
        parsed.map(|parsed| Some(parsed).filter(|_| !value.is_empty()))
    };
    let form = Form::Http {
        method: verb,
        content_type: header(&request.content_type)?,
        accept: header(&request.accept)?,
    };
    Ok((path, form))
}

fn duration(text: &str) -> Result<Duration, String> {
    let nanos = GoDuration::parse(text).ok().map(|it| u64::try_from(it.0));
    match nanos {
        Some(Ok(nanos)) => Ok(Duration::from_nanos(nanos)),
        _ => Err(format!("invalid time {text:?}")),
    }
}
