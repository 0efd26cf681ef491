//! Responses with key-values, as they go on the wire.
//!
//! The generated messages own the bytes of every key and value, which costs an allocation each. The
//! messages here hold the engine's own records and write them straight into the buffer that goes to
//! the connection: every byte is copied once. They say what the generated messages of the same names
//! say, byte for byte; what carries no key-value is a generated message inside them.

use std::mem;
use std::ops::{Deref, Range};

use bytes::{BufMut, Bytes};
use prost::Message;
use revstore_engine::{Event, Events, KeyValue, LeaseId};
use revstore_proto::etcdserverpb as pb;
use revstore_proto::mvccpb::event::EventType;

use crate::encode::fields::{
    Small, bool_len, bytes_len, delimited_len, int_len, put_bool, put_int,
};
use crate::encode::header::{EventsHeader, header_len, put_header};

/// Room for what a message says besides its records.
const HEAD_BYTES: usize = 128;

/// About what the numbers of an event take.
const NUMBERS_BYTES: usize = 32;

/// The most bytes of events that are written once for all watches: to write large ones costs little
/// beside copying them.
const SHARED_BYTES_MAX: u64 = 32 * 1024;

/// How much larger than the first record a record may be before a hint falls short.
const HINT_SLACK_BYTES: usize = 8;

/// A message that can be written, but not read.
pub(crate) trait Encode {
    /// The size of what [`Encode::encode`] writes.
    fn encoded_len(&self) -> usize;

    /// About that size, without a look at every record: what makes a page dear is to fetch its
    /// records from memory, so they are looked at once, when they are written.
    fn size_hint(&self) -> usize {
        self.encoded_len()
    }

    /// Writes the message into a buffer that has room for it or grows, and lets go of its records
    /// on the way, while the processor has them at hand.
    fn encode(self, buf: &mut impl BufMut);
}

/// A message inside another, whose size is asked for again at each level above it, but computed
/// once.
#[derive(Debug)]
pub(crate) struct Measured<M> {
    message: M,
    len: usize,
}

/// `mvccpb.KeyValue`: what a record says, read once to be measured and written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair<'a> {
    key: &'a [u8],
    value: &'a [u8],
    create_revision: i64,
    mod_revision: i64,
    version: i64,
    lease: i64,
}

/// `etcdserverpb.RangeResponse`.
#[derive(Clone, Debug)]
pub(crate) struct RangeResponse {
    pub(crate) header: Option<pb::ResponseHeader>,
    pub(crate) kvs: Vec<KeyValue>,
    /// Leaves the values out (RG-24).
    pub(crate) keys_only: bool,
    pub(crate) more: bool,
    pub(crate) count: i64,
}

/// `etcdserverpb.RangeStreamResponse`.
#[derive(Debug)]
pub(crate) struct RangeStreamResponse {
    pub(crate) range_response: Measured<RangeResponse>,
}

/// `etcdserverpb.PutResponse`.
#[derive(Debug)]
pub(crate) struct PutResponse {
    pub(crate) header: pb::ResponseHeader,
    pub(crate) prev_kv: Option<KeyValue>,
}

/// `etcdserverpb.DeleteRangeResponse`.
#[derive(Debug)]
pub(crate) struct DeleteRangeResponse {
    pub(crate) header: pb::ResponseHeader,
    pub(crate) deleted: i64,
    pub(crate) prev_kvs: Vec<KeyValue>,
}

/// `etcdserverpb.TxnResponse`.
#[derive(Debug)]
pub(crate) struct TxnResponse {
    pub(crate) header: pb::ResponseHeader,
    pub(crate) succeeded: bool,
    pub(crate) responses: Vec<Measured<ResponseOp>>,
}

/// `etcdserverpb.ResponseOp`.
#[derive(Debug)]
pub(crate) enum ResponseOp {
    Range(Measured<RangeResponse>),
    Put(Measured<PutResponse>),
    DeleteRange(Measured<DeleteRangeResponse>),
    Txn(Measured<TxnResponse>),
}

/// `etcdserverpb.CompactionResponse`.
#[derive(Debug)]
pub(crate) struct CompactionResponse {
    pub(crate) header: pb::ResponseHeader,
}

/// `etcdserverpb.WatchResponse`.
#[derive(Debug)]
pub(crate) enum WatchResponse {
    /// Says what happened.
    Events(WatchEvents),
    /// Says something of the watch. These are few and large.
    Other(Box<pb::WatchResponse>),
}

/// An `etcdserverpb.WatchResponse` with events, which is all that most of them have.
#[derive(Debug)]
pub(crate) struct WatchEvents {
    pub(crate) header: EventsHeader,
    pub(crate) watch_id: i64,
    /// Whether more of the same follows (WA-36).
    pub(crate) fragment: bool,
    events: Events,
    /// Which of the events.
    piece: Range<usize>,
}

impl<M: Encode> Measured<M> {
    pub(crate) fn new(message: M) -> Self {
        let len = message.encoded_len();
        Self { message, len }
    }
}

impl<M> Deref for Measured<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.message
    }
}

impl<M: Encode> Encode for Measured<M> {
    fn encoded_len(&self) -> usize {
        self.len
    }

    fn encode(self, buf: &mut impl BufMut) {
        self.message.encode(buf);
    }
}

impl<'a> Pair<'a> {
    /// All of a record, or all but the value (RG-24).
    #[inline]
    fn of(kv: &'a KeyValue, keys_only: bool) -> Self {
        Self {
            key: kv.key(),
            value: if keys_only { &[] } else { kv.value() },
            create_revision: kv.create_revision().0,
            mod_revision: kv.mod_revision().0,
            version: kv.version(),
            lease: kv.lease().map_or(0, LeaseId::get),
        }
    }
}

impl<'a> From<&'a KeyValue> for Pair<'a> {
    /// All of it.
    #[inline]
    fn from(kv: &'a KeyValue) -> Self {
        Self::of(kv, false)
    }
}

impl Encode for Pair<'_> {
    #[inline]
    fn encoded_len(&self) -> usize {
        bytes_len(self.key)
            + int_len(self.create_revision)
            + int_len(self.mod_revision)
            + int_len(self.version)
            + bytes_len(self.value)
            + int_len(self.lease)
    }

    fn encode(self, buf: &mut impl BufMut) {
        self.put_behind(Small::new(), buf);
    }
}

impl Pair<'_> {
    /// Writes the pair behind small fields.
    #[inline]
    fn put_behind(self, mut small: Small, buf: &mut impl BufMut) {
        small.delimiter(1, self.key.len());
        small.put(buf);
        buf.put_slice(self.key);
        let mut small = Small::new();
        small.int(2, self.create_revision);
        small.int(3, self.mod_revision);
        small.int(4, self.version);
        small.delimiter(5, self.value.len());
        small.put(buf);
        buf.put_slice(self.value);
        put_int(6, self.lease, buf);
    }
}

impl From<pb::WatchResponse> for WatchResponse {
    /// A response without events.
    fn from(response: pb::WatchResponse) -> Self {
        Self::Other(response.into())
    }
}

impl From<WatchEvents> for WatchResponse {
    fn from(response: WatchEvents) -> Self {
        Self::Events(response)
    }
}

impl WatchEvents {
    /// A response with all the events.
    pub(crate) fn new(header: EventsHeader, watch_id: i64, events: Events) -> Self {
        let piece = 0..events.len();
        Self {
            header,
            watch_id,
            fragment: false,
            events,
            piece,
        }
    }

    /// The same with some of the events.
    pub(crate) fn piece(&self, piece: Range<usize>, fragment: bool) -> Self {
        Self {
            fragment,
            events: self.events.clone(),
            piece,
            ..*self
        }
    }

    /// What all but the events take.
    pub(crate) fn len_around_events(&self) -> usize {
        self.header.encoded_len() + int_len(self.watch_id) + bool_len(self.fragment)
    }

    /// All events.
    pub(crate) fn events(&self) -> &[Event] {
        &self.events[self.piece.clone()]
    }

    /// The events as they were written for another watch, or as it can take them over.
    fn written(&self) -> Option<&Bytes> {
        let is_worth_it =
            self.piece.len() == self.events.len() && self.events.size_bytes() <= SHARED_BYTES_MAX;
        is_worth_it
            .then(|| self.events.rendered(write_events))
            .flatten()
    }
}

impl RangeResponse {
    /// What a key-value takes.
    pub(crate) fn kv_len(kv: &KeyValue, keys_only: bool) -> usize {
        message_len(&Pair::of(kv, keys_only))
    }

    /// What all but the key-values take.
    pub(crate) fn len_around_kvs(&self) -> usize {
        self.header.as_ref().map_or(0, header_len) + bool_len(self.more) + int_len(self.count)
    }

    /// What stands before the key-values.
    pub(crate) fn put_head(&self, buf: &mut impl BufMut) {
        if let Some(header) = &self.header {
            put_header(header, buf);
        }
    }

    pub(crate) fn put_kv(&self, kv: &KeyValue, buf: &mut impl BufMut) {
        put_pair(2, Pair::of(kv, self.keys_only), buf);
    }

    /// What stands behind the key-values.
    pub(crate) fn put_tail(&self, buf: &mut impl BufMut) {
        put_bool(3, self.more, buf);
        put_int(4, self.count, buf);
    }
}

impl Encode for RangeResponse {
    fn encoded_len(&self) -> usize {
        let keys_only = self.keys_only;
        let kv_len = |kv| Self::kv_len(kv, keys_only);
        self.len_around_kvs() + self.kvs.iter().map(kv_len).sum::<usize>()
    }

    fn size_hint(&self) -> usize {
        let first = self.kvs.first();
        let first = first.map_or(0, |kv| Self::kv_len(kv, self.keys_only));
        HEAD_BYTES + self.kvs.len() * (HINT_SLACK_BYTES + first)
    }

    fn encode(mut self, buf: &mut impl BufMut) {
        self.put_head(buf);
        for kv in mem::take(&mut self.kvs) {
            self.put_kv(&kv, buf);
        }
        self.put_tail(buf);
    }
}

impl Encode for RangeStreamResponse {
    fn encoded_len(&self) -> usize {
        message_len(&self.range_response)
    }

    fn encode(self, buf: &mut impl BufMut) {
        put_message(1, self.range_response, buf);
    }
}

impl Encode for PutResponse {
    fn encoded_len(&self) -> usize {
        header_len(&self.header) + self.prev_kv.as_ref().map_or(0, pair_len)
    }

    fn encode(self, buf: &mut impl BufMut) {
        put_header(&self.header, buf);
        if let Some(previous) = &self.prev_kv {
            put_pair(2, previous.into(), buf);
        }
    }
}

impl Encode for DeleteRangeResponse {
    fn encoded_len(&self) -> usize {
        header_len(&self.header)
            + int_len(self.deleted)
            + self.prev_kvs.iter().map(pair_len).sum::<usize>()
    }

    fn encode(self, buf: &mut impl BufMut) {
        put_header(&self.header, buf);
        put_int(2, self.deleted, buf);
        for previous in self.prev_kvs {
            put_pair(3, (&previous).into(), buf);
        }
    }
}

impl Encode for TxnResponse {
    fn encoded_len(&self) -> usize {
        header_len(&self.header)
            + bool_len(self.succeeded)
            + self.responses.iter().map(message_len).sum::<usize>()
    }

    fn encode(self, buf: &mut impl BufMut) {
        put_header(&self.header, buf);
        put_bool(2, self.succeeded, buf);
        for response in self.responses {
            put_message(3, response, buf);
        }
    }
}

impl Encode for ResponseOp {
    fn encoded_len(&self) -> usize {
        match self {
            Self::Range(response) => message_len(response),
            Self::Put(response) => message_len(response),
            Self::DeleteRange(response) => message_len(response),
            Self::Txn(response) => message_len(response),
        }
    }

    fn encode(self, buf: &mut impl BufMut) {
        match self {
            Self::Range(response) => put_message(1, response, buf),
            Self::Put(response) => put_message(2, response, buf),
            Self::DeleteRange(response) => put_message(3, response, buf),
            Self::Txn(response) => put_message(4, response, buf),
        }
    }
}

impl Encode for CompactionResponse {
    fn encoded_len(&self) -> usize {
        header_len(&self.header)
    }

    fn encode(self, buf: &mut impl BufMut) {
        put_header(&self.header, buf);
    }
}

/// `mvccpb.Event`.
impl Encode for &Event {
    fn encoded_len(&self) -> usize {
        int_len(event_type(self)) + pair_len(&self.kv) + self.prev_kv.as_ref().map_or(0, pair_len)
    }

    fn encode(self, buf: &mut impl BufMut) {
        put_int(1, event_type(self), buf);
        put_pair(2, (&self.kv).into(), buf);
        if let Some(previous) = &self.prev_kv {
            put_pair(3, previous.into(), buf);
        }
    }
}

impl Encode for WatchResponse {
    fn encoded_len(&self) -> usize {
        match self {
            Self::Events(response) => response.encoded_len(),
            Self::Other(response) => response.encoded_len(),
        }
    }

    fn size_hint(&self) -> usize {
        match self {
            Self::Events(response) => response.size_hint(),
            Self::Other(response) => response.encoded_len(),
        }
    }

    fn encode(self, buf: &mut impl BufMut) {
        match self {
            Self::Events(response) => response.encode(buf),
            Self::Other(response) => response.encode_raw(buf),
        }
    }
}

impl Encode for WatchEvents {
    fn encoded_len(&self) -> usize {
        let events = self.events().iter();
        self.len_around_events() + events.map(|event| message_len(&event)).sum::<usize>()
    }

    fn size_hint(&self) -> usize {
        let bytes = usize::try_from(self.events.size_bytes()).unwrap_or_default();
        HEAD_BYTES + bytes + self.piece.len() * NUMBERS_BYTES
    }

    fn encode(self, buf: &mut impl BufMut) {
        let mut small = Small::new();
        self.header.put(&mut small);
        small.int(2, self.watch_id);
        small.put(buf);
        put_bool(7, self.fragment, buf);
        if let Some(written) = self.written() {
            return buf.put_slice(written);
        }
        for event in self.events() {
            put_message(EVENTS, event, buf);
        }
    }
}

/// The number of a watch response's events.
const EVENTS: u8 = 11;

/// Events as they stand in a watch response.
fn write_events(events: &[Event]) -> Bytes {
    let mut buf = Vec::with_capacity(events.iter().map(|event| message_len(&event)).sum());
    for event in events {
        put_message(EVENTS, event, &mut buf);
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

fn pair_len(kv: &KeyValue) -> usize {
    message_len(&Pair::from(kv))
}

fn put_pair(number: u8, pair: Pair<'_>, buf: &mut impl BufMut) {
    let mut small = Small::new();
    small.prefix(number, pair.encoded_len());
    pair.put_behind(small, buf);
}

/// The size of a field that is a message.
pub(crate) fn message_len(message: &impl Encode) -> usize {
    delimited_len(message.encoded_len())
}

fn put_message(number: u8, message: impl Encode, buf: &mut impl BufMut) {
    let mut small = Small::new();
    small.prefix(number, message.encoded_len());
    small.put(buf);
    message.encode(buf);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use revstore_engine::{Engine, KeyRange, Put, Revision, WatchOptions, WatchResponse as Told};
    use revstore_proto::etcdserverpb::response_op::Response;
    use revstore_proto::mvccpb;

    use super::*;
    use crate::encode::header::Headers;

    /// Numbers of every encoded size, and none.
    fn number() -> impl Strategy<Value = i64> {
        (0..=64_u32, any::<i64>()).prop_map(|(bits, number)| number.unbounded_shr(bits))
    }

    fn header() -> impl Strategy<Value = pb::ResponseHeader> {
        let id = || number().prop_map(i64::cast_unsigned);
        (id(), id(), number(), id()).prop_map(|(cluster_id, member_id, revision, raft_term)| {
            pb::ResponseHeader {
                cluster_id,
                member_id,
                revision,
                raft_term,
            }
        })
    }

    /// Bytes whose length takes one byte or two.
    fn bytes(least: usize) -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(any::<u8>(), least..300)
    }

    /// What happened to one key: writes with their values and leases, then a deletion.
    fn events() -> impl Strategy<Value = Vec<Event>> {
        let puts = proptest::collection::vec((bytes(0), number()), 1..4);
        (bytes(1), puts, 0..i64::MAX - 9).prop_map(|(key, puts, start)| {
            let engine = Engine::builder().start_revision(Revision(start)).build();
            let all = WatchOptions::of(KeyRange::all()).with_prev_kv();
            let mut watch = engine.watch_stream();
            watch.watch(all).unwrap();
            for (value, lease) in puts {
                let mut put = Put::new(key.clone(), value);
                if let Some(lease) = LeaseId::new(lease) {
                    let _ = engine.grant(Some(lease), 100);
                    put = put.attached_to(lease);
                }
                engine.put_with(&put).unwrap();
            }
            engine.delete(&KeyRange::all());
            let mut events = Vec::new();
            while let Some(Told::Events { events: told, .. }) = watch.try_next() {
                events.extend(told.iter().cloned());
            }
            assert!(events.len() > 1 && events.iter().skip(1).all(|event| event.prev_kv.is_some()));
            events
        })
    }

    /// The generated message of a record.
    fn plain(kv: &KeyValue) -> mvccpb::KeyValue {
        mvccpb::KeyValue {
            key: kv.key_bytes(),
            create_revision: kv.create_revision().0,
            mod_revision: kv.mod_revision().0,
            version: kv.version(),
            value: kv.value_bytes(),
            lease: kv.lease().map_or(0, LeaseId::get),
        }
    }

    fn check(ours: impl Encode, plain: &impl Message) {
        let mut written = Vec::new();
        let len = ours.encoded_len();
        ours.encode(&mut written);
        assert_eq!(written, plain.encode_to_vec());
        assert_eq!(len, written.len());
    }

    proptest! {
        #[test]
        fn bytes_are_those_of_the_generated_messages(
            header in header(),
            count in number(),
            flag in any::<bool>(),
            events in events(),
        ) {
            let kvs: Vec<KeyValue> = events.iter().filter_map(|event| event.prev_kv.clone()).collect();
            let plain_kvs: Vec<_> = kvs.iter().map(plain).collect();

            let range = |keys_only| RangeResponse {
                header: (!flag).then_some(header),
                kvs: kvs.clone(),
                keys_only,
                more: flag,
                count,
            };
            let plain_range = pb::RangeResponse {
                header: (!flag).then_some(header),
                kvs: plain_kvs.clone(),
                more: flag,
                count,
            };
            check(range(false), &plain_range);
            let mut without_values = plain_range.clone();
            for kv in &mut without_values.kvs {
                kv.value.clear();
            }
            check(range(true), &without_values);
            let stream = RangeStreamResponse {
                range_response: Measured::new(range(false)),
            };
            let plain_stream = pb::RangeStreamResponse {
                range_response: Some(plain_range.clone()),
            };
            check(stream, &plain_stream);

            let prev_kv = kvs.first().cloned().filter(|_| flag);
            let plain_put = pb::PutResponse {
                header: Some(header),
                prev_kv: prev_kv.as_ref().map(plain),
            };
            let put = || PutResponse {
                header,
                prev_kv: prev_kv.clone(),
            };
            check(put(), &plain_put);

            let delete = || DeleteRangeResponse {
                header,
                deleted: count,
                prev_kvs: kvs.clone(),
            };
            let plain_delete = pb::DeleteRangeResponse {
                header: Some(header),
                deleted: count,
                prev_kvs: plain_kvs,
            };
            check(delete(), &plain_delete);

            let inner = TxnResponse {
                header: pb::ResponseHeader::default(),
                succeeded: !flag,
                responses: vec![Measured::new(ResponseOp::Range(Measured::new(range(false))))],
            };
            let plain_inner = pb::TxnResponse {
                header: Some(pb::ResponseHeader::default()),
                succeeded: !flag,
                responses: vec![plain_op(Response::ResponseRange(plain_range))],
            };
            let ops = [
                ResponseOp::Put(Measured::new(put())),
                ResponseOp::DeleteRange(Measured::new(delete())),
                ResponseOp::Txn(Measured::new(inner)),
            ];
            let txn = TxnResponse {
                header,
                succeeded: flag,
                responses: ops.into_iter().map(Measured::new).collect(),
            };
            let plain_txn = pb::TxnResponse {
                header: Some(header),
                succeeded: flag,
                responses: vec![
                    plain_op(Response::ResponsePut(plain_put)),
                    plain_op(Response::ResponseDeleteRange(plain_delete)),
                    plain_op(Response::ResponseTxn(plain_inner)),
                ],
            };
            check(txn, &plain_txn);
            let plain_compaction = pb::CompactionResponse { header: Some(header) };
            check(CompactionResponse { header }, &plain_compaction);
        }

        #[test]
        fn events_are_those_of_the_generated_messages(
            cluster_id in any::<u64>(),
            member_id in number(),
            revision in number(),
            watch_id in number(),
            fragment in any::<bool>(),
            cancel_reason in ".{0,20}",
            events in events(),
        ) {
            let revision = Revision(revision);
            let headers = Headers::new(cluster_id, member_id.cast_unsigned());
            let head = pb::WatchResponse {
                header: Some(headers.at(revision)),
                watch_id,
                fragment,
                ..pb::WatchResponse::default()
            };
            let other = pb::WatchResponse {
                created: fragment,
                canceled: !fragment,
                compact_revision: watch_id,
                cancel_reason,
                ..head.clone()
            };
            check(WatchResponse::from(other.clone()), &other);
            let plain_event = |event: &Event| {
                let kind = if event.kv.is_tombstone() { EventType::Delete } else { EventType::Put };
                mvccpb::Event {
                    r#type: kind.into(),
                    kv: Some(plain(&event.kv)),
                    prev_kv: event.prev_kv.as_ref().map(plain),
                }
            };
            let plain_response = pb::WatchResponse {
                events: events.iter().map(plain_event).collect(),
                ..head.clone()
            };
            let of = |events: Events| {
                let all = 0..events.len();
                WatchEvents::new(headers.of_events(revision), watch_id, events).piece(all, fragment)
            };
            let events = Events::from(events);
            let shared = of(events.clone());
            prop_assert!(shared.written().is_some());
            check(WatchResponse::from(shared), &plain_response);
            let alone = of(events.to_vec().into());
            prop_assert!(alone.written().is_none());
            check(WatchResponse::from(alone), &plain_response);
            for at in 0..events.len() {
                let one = of(events.clone()).piece(at..at + 1, fragment);
                let plain_one = pb::WatchResponse {
                    events: vec![plain_response.events[at].clone()],
                    ..head.clone()
                };
                check(one, &plain_one);
            }
        }
    }

    #[test]
    fn what_several_watches_are_told_is_written_once() {
        let engine = Engine::builder().build();
        engine.put("k", "v").unwrap();
        let event = Event {
            kv: engine.get("k").unwrap(),
            prev_kv: None,
        };
        let header = Headers::new(0, 0).of_events(Revision(0));
        let of = |events| WatchEvents::new(header, 0, events);
        let alone = of(vec![event.clone()].into());
        assert!(alone.written().is_none());
        let (one, other) = (of(alone.events.clone()), alone);
        let written = one.written().unwrap();
        assert_eq!(other.written().unwrap().as_ptr(), written.as_ptr());
        let piece = other.piece(0..0, false);
        assert!(piece.written().is_none());
        let bytes = usize::try_from(SHARED_BYTES_MAX).unwrap();
        engine.put("k", vec![b'v'; bytes]).unwrap();
        let large = Events::from(vec![Event {
            kv: engine.get("k").unwrap(),
            prev_kv: None,
        }]);
        assert!(of(large.clone()).written().is_none());
    }

    fn plain_op(response: Response) -> pb::ResponseOp {
        pb::ResponseOp {
            response: Some(response),
        }
    }
}
