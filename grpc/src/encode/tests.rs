//! The responses encode to the same bytes as the generated messages of the same names.

use proptest::prelude::*;
use prost::Message;
use revstore_engine::{
    Engine, Event, Events, KeyRange, KeyValue, LeaseId, Put, Revision, WatchOptions,
    WatchResponse as EngineResponse,
};
use revstore_proto::etcdserverpb as pb;
use revstore_proto::etcdserverpb::response_op::Response;
use revstore_proto::mvccpb;
use revstore_proto::mvccpb::event::EventType;

use super::codec::{Encode, Measured};
use super::response::{
    CompactionResponse, DeleteRangeResponse, Headers, PutResponse, RangeResponse,
    RangeStreamResponse, ResponseOp, TxnResponse,
};
use super::watch_response::{SHARED_BYTES_MAX, WatchEvents, WatchResponse};

/// Generates numbers of every encoded length, and zero.
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

/// Generates byte strings whose encoded length takes one or two bytes.
fn bytes(len_min: usize) -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), len_min..300)
}

/// Generates the events of one key: puts with values and leases, then a deletion.
fn events() -> impl Strategy<Value = Vec<Event>> {
    let puts = proptest::collection::vec((bytes(0), number()), 1..4);
    (bytes(1), puts, 0..=Revision::START_MAX.0).prop_map(|(key, puts, start)| {
        let engine = Engine::builder()
            .start_revision(Revision(start))
            .unwrap()
            .build();
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
        engine.delete(&KeyRange::all()).unwrap();
        let mut events = Vec::new();
        while let Some(EngineResponse::Events { events: batch, .. }) = watch.try_next() {
            events.extend(batch.iter().cloned());
        }
        assert!(events.len() > 1 && events.iter().skip(1).all(|event| event.prev_kv.is_some()));
        events
    })
}

/// Copies a record into the generated message.
fn generated(kv: &KeyValue) -> mvccpb::KeyValue {
    mvccpb::KeyValue {
        key: kv.key_bytes(),
        create_revision: kv.create_revision().0,
        mod_revision: kv.mod_revision().0,
        version: kv.version(),
        value: kv.value_bytes(),
        lease: kv.lease().map_or(0, LeaseId::get),
    }
}

fn check(ours: impl Encode, generated: &impl Message) {
    let mut written = Vec::new();
    let len = ours.encoded_len();
    ours.encode(&mut written);
    assert_eq!(written, generated.encode_to_vec());
    assert_eq!(len, written.len());
}

proptest! {
    #[test]
    fn responses_encode_like_the_generated_messages(
        header in header(),
        count in number(),
        flag in any::<bool>(),
        events in events(),
    ) {
        let kvs: Vec<KeyValue> = events.iter().filter_map(|event| event.prev_kv.clone()).collect();
        let generated_kvs: Vec<_> = kvs.iter().map(generated).collect();

        let range = |keys_only| RangeResponse {
            header: (!flag).then_some(header),
            kvs: kvs.clone(),
            keys_only,
            more: flag,
            count,
        };
        let generated_range = pb::RangeResponse {
            header: (!flag).then_some(header),
            kvs: generated_kvs.clone(),
            more: flag,
            count,
        };
        check(range(false), &generated_range);
        let mut without_values = generated_range.clone();
        for kv in &mut without_values.kvs {
            kv.value.clear();
        }
        check(range(true), &without_values);
        let stream = RangeStreamResponse {
            range_response: Measured::new(range(false)),
        };
        let generated_stream = pb::RangeStreamResponse {
            range_response: Some(generated_range.clone()),
        };
        check(stream, &generated_stream);

        let prev_kv = kvs.first().cloned().filter(|_| flag);
        let generated_put = pb::PutResponse {
            header: Some(header),
            prev_kv: prev_kv.as_ref().map(generated),
        };
        let put = || PutResponse {
            header,
            prev_kv: prev_kv.clone(),
        };
        check(put(), &generated_put);

        let delete = || DeleteRangeResponse {
            header,
            deleted: count,
            prev_kvs: kvs.clone(),
        };
        let generated_delete = pb::DeleteRangeResponse {
            header: Some(header),
            deleted: count,
            prev_kvs: generated_kvs,
        };
        check(delete(), &generated_delete);

        let inner = TxnResponse {
            header: pb::ResponseHeader::default(),
            succeeded: !flag,
            responses: vec![Measured::new(ResponseOp::Range(Measured::new(range(false))))],
        };
        let generated_inner = pb::TxnResponse {
            header: Some(pb::ResponseHeader::default()),
            succeeded: !flag,
            responses: vec![generated_op(Response::ResponseRange(generated_range))],
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
        let generated_txn = pb::TxnResponse {
            header: Some(header),
            succeeded: flag,
            responses: vec![
                generated_op(Response::ResponsePut(generated_put)),
                generated_op(Response::ResponseDeleteRange(generated_delete)),
                generated_op(Response::ResponseTxn(generated_inner)),
            ],
        };
        check(txn, &generated_txn);
        let generated_compaction = pb::CompactionResponse { header: Some(header) };
        check(CompactionResponse { header }, &generated_compaction);
    }

    #[test]
    fn watch_responses_encode_like_the_generated_messages(
        cluster_id in any::<u64>(),
        member_id in number(),
        raft_term in number(),
        revision in number(),
        watch_id in number(),
        fragment in any::<bool>(),
        cancel_reason in ".{0,20}",
        events in events(),
    ) {
        let revision = Revision(revision);
        let headers = Headers::new(cluster_id, member_id.cast_unsigned())
            .with_raft_term(raft_term.cast_unsigned());
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
        let generated_event = |event: &Event| {
            let kind = if event.kv.is_tombstone() { EventType::Delete } else { EventType::Put };
            mvccpb::Event {
                r#type: kind.into(),
                kv: Some(generated(&event.kv)),
                prev_kv: event.prev_kv.as_ref().map(generated),
            }
        };
        let generated_response = pb::WatchResponse {
            events: events.iter().map(generated_event).collect(),
            ..head.clone()
        };
        let of = |events: Events| {
            let all = 0..events.len();
            WatchEvents::new(headers.of_events(revision), watch_id, events).fragment(all, fragment)
        };
        let events = Events::from(events);
        let shared = of(events.clone());
        prop_assert!(shared.shared().is_some());
        check(WatchResponse::from(shared), &generated_response);
        let unshared = of(events.to_vec().into());
        prop_assert!(unshared.shared().is_none());
        check(WatchResponse::from(unshared), &generated_response);
        for index in 0..events.len() {
            let single = of(events.clone()).fragment(index..index + 1, fragment);
            let generated_single = pb::WatchResponse {
                events: vec![generated_response.events[index].clone()],
                ..head.clone()
            };
            check(single, &generated_single);
        }
    }
}

#[test]
fn events_of_several_watchers_are_encoded_once() {
    let engine = Engine::builder().build();
    engine.put("k", "v").unwrap();
    let event = Event {
        kv: engine.get("k").unwrap(),
        prev_kv: None,
    };
    let header = Headers::new(0, 0).of_events(Revision(0));
    let of = |events| WatchEvents::new(header, 0, events);
    let first = of(vec![event.clone()].into());
    assert!(first.shared().is_none());
    let (second, first) = (of(first.events.clone()), first);
    let encoded = second.shared().unwrap();
    assert_eq!(first.shared().unwrap().as_ptr(), encoded.as_ptr());
    let fragment = first.fragment(0..0, false);
    assert!(fragment.shared().is_none());
    let bytes = usize::try_from(SHARED_BYTES_MAX).unwrap();
    engine.put("k", vec![b'v'; bytes]).unwrap();
    let large = Events::from(vec![Event {
        kv: engine.get("k").unwrap(),
        prev_kv: None,
    }]);
    assert!(of(large.clone()).shared().is_none());
}

fn generated_op(response: Response) -> pb::ResponseOp {
    pb::ResponseOp {
        response: Some(response),
    }
}

#[test]
fn there_is_no_term_after_the_highest_one() {
    let headers = Headers::new(1, 2).with_raft_term(u64::MAX - 1);
    assert_eq!(headers.next_raft_term(), Some(u64::MAX));
    assert_eq!(headers.next_raft_term(), None);
    assert_eq!(headers.raft_term(), u64::MAX);
    assert_eq!(headers.raft_terms_begun(), 1);
}
