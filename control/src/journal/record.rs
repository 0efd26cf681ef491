//! One record, and the filter for records.

use std::sync::Arc;
use std::time::Duration;

use revstore_engine::KeyRange;
use tonic::Code;

use super::KeptRequest;
use crate::call::{FrontObject, holds, is_named};
use crate::fault::RuleId;

/// What happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Event {
    /// A request, at its end. On streams, each creation of a watch and each keep-alive is one.
    #[default]
    Request,
    /// A stream was opened.
    Opened,
    /// Events or a progress notification were sent on a stream.
    Progress,
    /// A stream or a watch ended: one record for each of them, that of a watch with its number.
    Ended,
}

/// What a request or a stream ended with, as the client got it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The code.
    pub code: Code,
    /// The text, empty for success.
    pub text: String,
}

impl Outcome {
    /// Returns the outcome of a success.
    pub fn success() -> Self {
        Self {
            code: Code::Ok,
            text: String::new(),
        }
    }
}

/// Why a watch or a stream has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// Its next event is compacted, or a command or a rule has made it so.
    Compacted,
    /// A command or a rule has cut it.
    Cut,
    /// The time for which the client wanted it is over.
    Timeout,
    /// The client has canceled the watch, and the stream goes on.
    Canceled,
    /// The client has closed the stream or the connection, or has ended.
    ClientGone,
    /// Control has replaced the store.
    StoreReplaced,
    /// The server stops.
    ServerStopped,
    /// The resource of the watch was removed, or is loaded anew.
    ResourceGone,
    /// It has ended with the error of the record.
    Failed,
}

impl EndReason {
    /// Returns its name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Compacted => "compacted",
            Self::Cut => "cut",
            Self::Timeout => "timeout",
            Self::Canceled => "canceled",
            Self::ClientGone => "client gone",
            Self::StoreReplaced => "store replaced",
            Self::ServerStopped => "server stopped",
            Self::ResourceGone => "resource gone",
            Self::Failed => "failed",
        }
    }
}

/// A record of the journal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// The number of the record, from 1 on. The journal sets it.
    pub number: u64,
    /// The time of the clock when the request arrived or the stream changed.
    pub time: Duration,
    /// What happened.
    pub event: Event,
    /// The full name of the method, or the path of a request that is not a call.
    pub method: &'static str,
    /// The name of the client.
    pub client: Option<Arc<str>>,
    /// The user.
    pub user: Option<Arc<str>>,
    /// The number of the connection.
    pub connection: Option<u64>,
    /// The keys, the first of many.
    pub keys: Vec<KeyRange>,
    /// The number of keys that `keys` lacks.
    pub more_keys: usize,
    /// How it ended. `None` if the client has gone before the end, and for streams that go on.
    pub outcome: Option<Outcome>,
    /// Why a watch or a stream has ended.
    pub reason: Option<EndReason>,
    /// The revision in the header of the response, or up to which events were sent.
    pub revision: Option<i64>,
    /// The time of the wall for which a request took, or a stream was open.
    pub duration: Duration,
    /// The rule that decided what happened.
    pub rule: Option<RuleId>,
    /// The number of the watch.
    pub watch: Option<u64>,
    /// The number of revisions behind which a watch is.
    pub lag: Option<i64>,
    /// What a request to a Kubernetes API is about.
    pub front: Option<Arc<FrontObject>>,
    /// The HTTP status of its answer.
    pub status: Option<u16>,
    /// The request itself; `None` for events of streams.
    pub request: Option<Box<KeptRequest>>,
}

impl Record {
    /// The maximum number of ranges in a record, and of bytes of all their keys.
    pub const KEYS_MAX: usize = 16;
    /// The maximum number of bytes of all keys in a record.
    pub const KEY_BYTES_MAX: usize = 1_024;

    /// Sets the keys: copies of the first ones, so that the record does not keep the request in memory.
    pub fn set_keys(&mut self, keys: &[KeyRange]) {
        let mut bytes = 0;
        for range in keys.iter().take(Self::KEYS_MAX) {
            bytes += key_bytes(range);
            if bytes > Self::KEY_BYTES_MAX {
                break;
            }
            let copy = |key: &[u8]| bytes::Bytes::copy_from_slice(key);
            self.keys.push(match range {
                KeyRange::One(key) => KeyRange::One(copy(key)),
                KeyRange::Within { start, end } => KeyRange::within(copy(start), copy(end)),
                KeyRange::From(start) => KeyRange::From(copy(start)),
            });
        }
        self.more_keys = keys.len() - self.keys.len();
    }

    /// Estimates the memory of the record.
    pub(super) fn bytes(&self) -> usize {
        let text = |text: &Option<Arc<str>>| text.as_ref().map_or(0, |it| it.len());
        let keys: usize = self.keys.iter().map(|it| key_bytes(it) + 96).sum();
        let outcome = self.outcome.as_ref().map_or(0, |it| it.text.len());
        let front = self.front.as_ref().map_or(0, |it| it.bytes());
        let request = self.request.as_ref().map_or(0, |it| it.bytes());
        let texts = text(&self.client) + text(&self.user);
        size_of::<Self>() + front + texts + keys + outcome + request
    }
}

fn key_bytes(range: &KeyRange) -> usize {
    match range {
        KeyRange::One(key) | KeyRange::From(key) => key.len(),
        KeyRange::Within { start, end } => start.len() + end.len(),
    }
}

/// Which records a reader gets. All conditions that are set must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The methods, as in the selectors of rules; empty for all.
    pub methods: Vec<String>,
    /// The name of the client.
    pub client: Option<String>,
    /// The user.
    pub user: Option<String>,
    /// The number of the connection.
    pub connection: Option<u64>,
}

impl Filter {
    /// Returns whether a record passes.
    pub fn passes(&self, record: &Record) -> bool {
        let mut methods = self.methods.iter();
        (self.methods.is_empty() || methods.any(|name| is_named(record.method, name)))
            && holds(self.client.as_ref(), record.client.as_deref())
            && holds(self.user.as_ref(), record.user.as_deref())
            && self
                .connection
                .is_none_or(|connection| record.connection == Some(connection))
    }
}
