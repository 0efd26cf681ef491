//! Encoding of watch responses.
//!
//! Most watch responses contain events, and the same events are often sent to many watchers. The
//! events are encoded once. The encoding is stored with the events and copied into each response.

use std::ops::Range;

use bytes::{BufMut, Bytes};
use prost::Message;
use revstore_engine::{Event, Events, Revision};
use revstore_proto::etcdserverpb as pb;
use revstore_proto::mvccpb::event::EventType;

use crate::encode::codec::{
    Encode, FieldBuffer, bool_len, delimited_len, int_len, message_len, write_bool, write_int,
    write_message,
};
use crate::encode::response::{ENVELOPE_BYTES, EncodedIds, Headers, kv_len, write_kv};

/// The field number of a watch response's events.
const EVENTS: u8 = 11;

/// The approximate encoded length of the integer fields of an event: type, create revision, mod
/// revision, version and lease.
const INTEGER_FIELDS_BYTES: usize = 32;

/// The maximum size of events whose encoding is shared by all watchers. For larger events, encoding
/// costs little in comparison with copying.
pub(super) const SHARED_BYTES_MAX: u64 = 32 * 1024;

/// `etcdserverpb.WatchResponse`.
#[derive(Debug)]
pub(crate) enum WatchResponse {
    /// A response that contains events.
    Events(WatchEvents),
    /// The creation, progress or cancellation of a watcher. Boxed, because these responses are rare
    /// and their type is large.
    Control(Box<pb::WatchResponse>),
}

/// An `etcdserverpb.WatchResponse` that contains events. It has the fields `header`, `watch_id`,
/// `fragment` and `events`.
#[derive(Debug)]
pub(crate) struct WatchEvents {
    pub(crate) header: EventsHeader,
    pub(crate) watch_id: i64,
    /// Whether more fragments of the same response follow (WA-36).
    pub(crate) fragment: bool,
    pub(super) events: Events,
    /// The part of `events` in this response.
    range: Range<usize>,
}

/// The header of a response with events. Its ids are encoded in advance, because most watch
/// responses contain events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventsHeader {
    ids: EncodedIds,
    revision: Revision,
    raft_term: u64,
}

impl Headers {
    /// Returns the header of events up to and including `revision` (WA-32).
    pub(crate) fn of_events(&self, revision: Revision) -> EventsHeader {
        EventsHeader {
            ids: self.ids,
            revision,
            raft_term: self.raft_term(),
        }
    }
}

impl EventsHeader {
    /// Returns the size of the header as a field.
    fn encoded_len(&self) -> usize {
        delimited_len(self.len())
    }

    /// Writes the header as the first field of a message.
    fn write(&self, fields: &mut FieldBuffer) {
        fields.message_prefix(1, self.len());
        fields.encoded(self.ids.as_slice());
        fields.int(3, self.revision.0);
        fields.int(4, self.raft_term.cast_signed());
    }

    fn len(&self) -> usize {
        let ids = self.ids.as_slice();
        ids.len() + int_len(self.revision.0) + int_len(self.raft_term.cast_signed())
    }
}

impl From<pb::WatchResponse> for WatchResponse {
    /// Wraps a response without events.
    fn from(response: pb::WatchResponse) -> Self {
        Self::Control(response.into())
    }
}

impl From<WatchEvents> for WatchResponse {
    fn from(response: WatchEvents) -> Self {
        Self::Events(response)
    }
}

impl WatchEvents {
    /// Creates a response with all of `events`.
    pub(crate) fn new(header: EventsHeader, watch_id: i64, events: Events) -> Self {
        let range = 0..events.len();
        Self {
            header,
            watch_id,
            fragment: false,
            events,
            range,
        }
    }

    /// Returns a fragment of the response with the events in `range`. `more` is true if further
    /// fragments follow.
    pub(crate) fn fragment(&self, range: Range<usize>, more: bool) -> Self {
        Self {
            fragment: more,
            events: self.events.clone(),
            range,
            ..*self
        }
    }

    /// Returns the size of all fields except the events.
    pub(crate) fn envelope_len(&self) -> usize {
        self.header.encoded_len() + int_len(self.watch_id) + bool_len(self.fragment)
    }

    /// Returns the events of this response.
    pub(crate) fn events(&self) -> &[Event] {
        &self.events[self.range.clone()]
    }

    /// Returns the shared encoding of the events if the response contains all of them, their size
    /// is at most [`SHARED_BYTES_MAX`], and several watchers share them.
    pub(super) fn shared(&self) -> Option<&Bytes> {
        let is_sharable =
            self.range.len() == self.events.len() && self.events.size_bytes() <= SHARED_BYTES_MAX;
        is_sharable
            .then(|| self.events.encoded::<WatchEvents>(encode_events))
            .flatten()
    }
}

impl Encode for WatchResponse {
    fn encoded_len(&self) -> usize {
        match self {
            Self::Events(response) => response.encoded_len(),
            Self::Control(response) => response.encoded_len(),
        }
    }

    fn size_hint(&self) -> usize {
        match self {
            Self::Events(response) => response.size_hint(),
            Self::Control(response) => response.encoded_len(),
        }
    }

    fn encode(self, buf: &mut impl BufMut) {
        match self {
            Self::Events(response) => response.encode(buf),
            Self::Control(response) => response.encode_raw(buf),
        }
    }
}

impl Encode for WatchEvents {
    fn encoded_len(&self) -> usize {
        let events = self.events().iter();
        self.envelope_len() + events.map(|event| message_len(&event)).sum::<usize>()
    }

    fn size_hint(&self) -> usize {
        let bytes = usize::try_from(self.events.size_bytes()).unwrap_or_default();
        ENVELOPE_BYTES + bytes + self.range.len() * INTEGER_FIELDS_BYTES
    }

    fn encode(self, buf: &mut impl BufMut) {
        let mut fields = FieldBuffer::new();
        self.header.write(&mut fields);
        fields.int(2, self.watch_id);
        fields.write_to(buf);
        write_bool(7, self.fragment, buf);
        if let Some(encoded) = self.shared() {
            return buf.put_slice(encoded);
        }
        for event in self.events() {
            write_message(EVENTS, event, buf);
        }
    }
}

/// `mvccpb.Event`.
impl Encode for &Event {
    fn encoded_len(&self) -> usize {
        int_len(event_type(self)) + kv_len(&self.kv) + self.prev_kv.as_ref().map_or(0, kv_len)
    }

    fn encode(self, buf: &mut impl BufMut) {
        write_int(1, event_type(self), buf);
        write_kv(2, (&self.kv).into(), buf);
        if let Some(previous) = &self.prev_kv {
            write_kv(3, previous.into(), buf);
        }
    }
}

/// Encodes events as fields of a watch response.
fn encode_events(events: &[Event]) -> Bytes {
    let mut buf = Vec::with_capacity(events.iter().map(|event| message_len(&event)).sum());
    for event in events {
        write_message(EVENTS, event, &mut buf);
    }
    buf.into()
}

fn event_type(event: &Event) -> i64 {
    let kind = if event.kv.is_tombstone() {
        EventType::Delete
    } else {
        EventType::Put
    };
    i64::from(i32::from(kind))
}
