//! The Watch service: section E.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures_util::FutureExt;
use revstore_engine::{KeyRange, Op, Put, Revision, Txn};
use revstore_grpc::Limits;
use revstore_proto::etcdserverpb::watch_create_request::FilterType;
use revstore_proto::etcdserverpb::{WatchCreateRequest, WatchResponse};
use revstore_proto::mvccpb::event::EventType;
use tokio_stream::StreamExt;

use crate::support::{
    PROGRESS_INTERVAL, STOPPED, TestNode, WatchCall, assert_error, delete, header, op_delete,
    op_put, put, txn_of, watch_of,
};

const DUPLICATE_ID: &str = "mvcc: duplicate watch ID provided on the WatchStream";

/// Returns the type, key and mod revision of each event.
fn events(response: &WatchResponse) -> Vec<(EventType, &str, i64)> {
    let events = response.events.iter().map(|event| {
        let kv = event.kv.as_ref().unwrap();
        let key = std::str::from_utf8(&kv.key).unwrap();
        (event.r#type(), key, kv.mod_revision)
    });
    events.collect()
}

fn from_revision(start_revision: i64) -> WatchCreateRequest {
    WatchCreateRequest {
        start_revision,
        ..watch_of("\0", "\0")
    }
}

async fn assert_create_rejected(watch: &mut WatchCall, request: WatchCreateRequest, reason: &str) {
    let revision = 1;
    let response = watch.create(request).await;
    let rejection = WatchResponse {
        header: header(revision),
        watch_id: -1,
        created: true,
        canceled: true,
        cancel_reason: reason.to_owned(),
        ..WatchResponse::default()
    };
    assert_eq!(response, rejection);
}

#[tokio::test]
async fn wa_1_wa_2_watches_are_created_in_order_with_ids_from_0() {
    let node = TestNode::new();
    let mut watch = node.watch().await;
    for _ in 0..3 {
        watch.send_create(watch_of("k", ""));
    }
    watch.send_create(WatchCreateRequest {
        watch_id: -7,
        ..watch_of("k", "")
    });
    watch.send_create(watch_of("k", ""));
    for expected in [0, 1, 2, -7, 3] {
        let response = watch.next().await;
        let created = WatchResponse {
            header: header(1),
            watch_id: expected,
            created: true,
            ..WatchResponse::default()
        };
        assert_eq!(response, created);
    }
}

#[tokio::test]
async fn wa_2_wa_21_generated_ids_skip_ids_in_use_and_cancelled_ids_are_free() {
    let node = TestNode::new();
    let mut watch = node.watch().await;
    let with_id = |watch_id| WatchCreateRequest {
        watch_id,
        ..watch_of("k", "")
    };
    assert_eq!(watch.create(with_id(1)).await.watch_id, 1);
    assert_eq!(watch.create(with_id(0)).await.watch_id, 0);
    assert_eq!(watch.create(with_id(0)).await.watch_id, 2);
    watch.send_cancel(1);
    assert!(watch.next().await.canceled);
    assert_eq!(watch.create(with_id(1)).await.watch_id, 1);
    assert_eq!(watch.create(with_id(0)).await.watch_id, 3);
}

#[tokio::test]
async fn wa_4_5_7_14_a_rejected_create_has_no_watch_id_and_does_not_end_the_stream() {
    let node = TestNode::new();
    let mut watch = node.watch().await;
    let with_id = |watch_id| WatchCreateRequest {
        watch_id,
        ..watch_of("k", "")
    };
    assert_eq!(watch.create(with_id(5)).await.watch_id, 5);
    assert_create_rejected(&mut watch, with_id(5), DUPLICATE_ID).await;
    assert_create_rejected(&mut watch, with_id(-1), DUPLICATE_ID).await;
    let compacted = "etcdserver: mvcc: required revision has been compacted";
    assert_create_rejected(&mut watch, from_revision(-1), compacted).await;
    // As in etcd 3.5.30, a negative start is checked before the range and the id.
    let several = WatchCreateRequest {
        range_end: "k".into(),
        watch_id: -1,
        ..from_revision(-1)
    };
    assert_create_rejected(&mut watch, several, compacted).await;
    assert_create_rejected(&mut watch, from_revision(i64::MIN), compacted).await;
    let empty = "mvcc: watcher range is empty";
    assert_create_rejected(&mut watch, watch_of("b", "a"), empty).await;
    assert_create_rejected(&mut watch, watch_of("b", "b"), empty).await;
    node.fill(["k"]);
    assert_eq!(watch.next().await.watch_id, 5);
}

#[tokio::test]
async fn wa_6_a_watch_starts_at_its_start_revision() {
    let node = TestNode::new();
    node.fill(["a", "b"]);
    let mut current = node.watch().await;
    assert_eq!(current.create(from_revision(0)).await.header, header(3));
    let mut past = node.watch().await;
    past.create(from_revision(3)).await;
    let mut future = node.watch().await;
    future.create(from_revision(5)).await;
    let mut never = node.watch().await;
    never.create(from_revision(i64::MAX)).await;
    current.assert_no_response();
    assert_eq!(events(&past.next().await), [(EventType::Put, "b", 3)]);
    node.fill(["c"]);
    assert_eq!(events(&current.next().await), [(EventType::Put, "c", 4)]);
    assert_eq!(events(&past.next().await), [(EventType::Put, "c", 4)]);
    future.assert_no_response();
    node.fill(["d"]);
    assert_eq!(events(&future.next().await), [(EventType::Put, "d", 5)]);
    never.assert_no_response();
}

/// A client that resumes from the revision of the created response must receive every event exactly
/// once.
#[tokio::test]
async fn wa_8_the_first_event_follows_the_revision_of_the_created_response() {
    const WATCHES: usize = 200;
    let node = TestNode::new();
    let running = Arc::new(());
    let writer = thread::spawn({
        let (engine, running) = (node.engine.clone(), Arc::downgrade(&running));
        move || {
            while running.strong_count() > 0 {
                engine.put("k", "v").unwrap();
            }
        }
    });
    for _ in 0..WATCHES {
        let mut watch = node.watch().await;
        let created = watch.create(watch_of("k", "")).await.header.unwrap();
        let received = watch.next().await;
        assert_eq!(
            events(&received)[0],
            (EventType::Put, "k", created.revision + 1)
        );
    }
    drop(running);
    writer.join().unwrap();
}

#[tokio::test]
async fn wa_9_the_empty_key_is_the_smallest_key() {
    let node = TestNode::new();
    let mut watch = node.watch().await;
    watch.create(watch_of("", "")).await;
    watch.create(watch_of("", "\0")).await;
    watch.create(watch_of("", "b")).await;
    let mut ids_for = |key: &'static [u8]| {
        node.engine.put(key, "v").unwrap();
        let mut ids = Vec::new();
        while let Some(Some(response)) = watch.responses.next().now_or_never() {
            ids.push(response.unwrap().watch_id);
        }
        ids.sort_unstable();
        ids
    };
    assert_eq!(ids_for(b"\0"), [0, 1, 2]);
    assert_eq!(ids_for(b"a"), [1, 2]);
    assert_eq!(ids_for(b"b"), [1]);
}

#[tokio::test]
async fn wa_15_an_empty_request_is_ignored() {
    let node = TestNode::new();
    let mut watch = node.watch().await;
    watch.send_empty();
    assert_eq!(watch.create(watch_of("k", "")).await.watch_id, 0);
    watch.assert_no_response();
}

#[tokio::test]
async fn wa_16_events_are_delivered_after_a_half_close() {
    let node = TestNode::new();
    let mut watch = node.watch().await;
    watch.create(watch_of("k", "")).await;
    watch.half_close();
    watch.assert_no_response();
    node.fill(["k"]);
    assert_eq!(events(&watch.next().await), [(EventType::Put, "k", 2)]);
    watch.assert_no_response();
}

#[tokio::test]
async fn wa_17_a_shutdown_ends_streams_after_the_events_of_earlier_revisions() {
    let node = TestNode::new();
    let mut watch = node.watch().await;
    watch.create(watch_of("k", "")).await;
    // More revisions than one response has, for a watch that reads the history.
    node.fill((0..2_000).map(|_| "k"));
    let mut of_history = node.watch().await;
    of_history.create(from_revision(2)).await;
    node.shutdown.begin();
    for mut watch in [watch, of_history] {
        let mut revisions = Vec::new();
        let end = loop {
            match watch.responses.next().await.unwrap() {
                Ok(response) => revisions.extend(events(&response).iter().map(|event| event.2)),
                Err(status) => break status,
            }
        };
        assert_error::<()>(Err(end), STOPPED);
        assert!(watch.responses.next().await.is_none());
        assert_eq!(revisions, (2..2_002).collect::<Vec<_>>());
    }
    let mut second = node.watch().await;
    assert_error(second.responses.next().await.unwrap(), STOPPED);
}

#[tokio::test(start_paused = true)]
async fn wa_17_a_shutdown_waits_half_a_second_for_the_reader_of_a_watch() {
    let node = TestNode::new();
    let mut watch = node.watch().await;
    watch.create(watch_of("k", "")).await;
    node.fill(["k", "k"]);
    node.shutdown.begin();
    tokio::time::advance(Duration::from_millis(500)).await;
    assert_error(watch.responses.next().await.unwrap(), STOPPED);
}

#[tokio::test]
async fn wa_17_a_shutdown_wakes_waiting_streams() {
    let node = TestNode::new();
    let mut watch = node.watch().await;
    watch.create(watch_of("k", "")).await;
    let waiting = tokio::spawn(async move { watch.responses.next().await });
    tokio::task::yield_now().await;
    node.shutdown.begin();
    assert_error(waiting.await.unwrap().unwrap(), STOPPED);
}

#[tokio::test]
async fn dropping_a_stream_unregisters_its_watches() {
    let node = TestNode::new();
    let mut watch = node.watch().await;
    watch.create(watch_of("k", "")).await;
    watch.create(from_revision(1)).await;
    assert_eq!(node.engine.stats().watches, 2);
    drop(watch);
    assert_eq!(node.engine.stats().watches, 0);
}

#[tokio::test]
async fn wa_20_a_cancelled_watch_gets_one_response_and_no_more_events() {
    let node = TestNode::new();
    let mut watch = node.watch().await;
    watch.create(watch_of("k", "")).await;
    node.fill(["k"]);
    watch.send_cancel(0);
    watch.send_cancel(0);
    watch.send_cancel(99);
    watch.send_cancel(-1);
    // An event that was queued before the request may be sent before the response, and none after
    // it.
    let mut response = watch.next().await;
    if !response.events.is_empty() {
        response = watch.next().await;
    }
    let canceled = WatchResponse {
        header: header(2),
        watch_id: 0,
        canceled: true,
        ..WatchResponse::default()
    };
    assert_eq!(response, canceled);
    node.fill(["k"]);
    watch.assert_no_response();
}

#[tokio::test]
async fn wa_30_to_32_a_synced_watch_gets_one_response_per_revision() {
    let node = TestNode::new();
    let mut watch = node.watch().await;
    watch.create(watch_of("a", "z")).await;
    let request = txn_of(vec![
        op_put(put("c", "1")),
        op_put(put("zz", "1")),
        op_put(put("b", "1")),
        op_delete(delete("none", "")),
    ]);
    node.txn(request).await.unwrap();
    node.fill(["zz"]);
    node.engine.delete(&KeyRange::prefix("")).unwrap();
    let first = watch.next().await;
    assert_eq!(first.header, header(2));
    assert_eq!(
        events(&first),
        [(EventType::Put, "c", 2), (EventType::Put, "b", 2)]
    );
    let second = watch.next().await;
    assert_eq!(second.header, header(4));
    assert_eq!(
        events(&second),
        [(EventType::Delete, "b", 4), (EventType::Delete, "c", 4)]
    );
    let tombstone = second.events[0].kv.as_ref().unwrap();
    assert_eq!(
        (tombstone.create_revision, tombstone.version),
        (0, 0),
        "DM-5"
    );
}

#[tokio::test]
async fn wa_31_wa_34_a_response_has_whole_revisions_and_at_most_1000_of_them() {
    let node = TestNode::new();
    for number in 0..1500 {
        let (a, b) = (format!("a{number}"), format!("b{number}"));
        let both = Txn::new().and_then(vec![Op::Put(Put::new(a, "v")), Op::Put(Put::new(b, "v"))]);
        node.engine.txn(&both).unwrap();
    }
    let mut watch = node.watch().await;
    watch.create(from_revision(2)).await;
    let mut next = 2;
    while next < 1502 {
        let response = watch.next().await;
        assert_eq!(response.header, header(1501), "WA-32");
        let received = events(&response);
        assert_eq!(
            received.len() % 2,
            0,
            "a response contains a part of a revision"
        );
        assert!(received.len() <= 2000);
        for pair in received.chunks(2) {
            assert_eq!((pair[0].2, pair[1].2), (next, next));
            next += 1;
        }
    }
    watch.assert_no_response();
}

#[tokio::test]
async fn wa_33_prev_kv_is_the_pair_before_the_transaction() {
    let node = TestNode::new();
    let mut watch = node.watch().await;
    let with_prev = WatchCreateRequest {
        prev_kv: true,
        ..watch_of("k", "")
    };
    watch.create(with_prev).await;
    node.put(put("k", "1")).await.unwrap();
    node.put(put("k", "2")).await.unwrap();
    let gap = txn_of(vec![op_delete(delete("k", "\0")), op_put(put("k", "3"))]);
    node.txn(gap).await.unwrap();
    let mut previous = Vec::new();
    for _ in 0..3 {
        let response = watch.next().await;
        let of_event = response.events.into_iter().map(|event| event.prev_kv);
        previous.extend(of_event.map(|kv| kv.map(|kv| kv.value)));
    }
    let value = |text: &'static str| Some(text.into());
    // The last put creates the key, which the delete before it removed (TXN-7).
    assert_eq!(previous, [None, value("1"), value("2"), None]);
}

#[tokio::test]
async fn wa_35_filters_suppress_puts_or_deletes() {
    let node = TestNode::new();
    let mut watch = node.watch().await;
    let without = |filters: &[i32]| WatchCreateRequest {
        filters: filters.to_vec(),
        ..watch_of("k", "")
    };
    let (no_put, no_delete) = (FilterType::Noput.into(), FilterType::Nodelete.into());
    watch.create(without(&[no_put])).await;
    watch.create(without(&[no_delete, 99])).await;
    watch.create(without(&[no_put, no_delete])).await;
    node.fill(["k"]);
    node.engine.delete(&KeyRange::one("k")).unwrap();
    let first = watch.next().await;
    assert_eq!(
        (first.watch_id, events(&first)),
        (1, vec![(EventType::Put, "k", 2)])
    );
    let second = watch.next().await;
    assert_eq!(
        (second.watch_id, events(&second)),
        (0, vec![(EventType::Delete, "k", 3)])
    );
    watch.assert_no_response();
}

#[tokio::test]
async fn wa_36_large_responses_are_fragmented_on_request() {
    let node = TestNode::with_limits(Limits::default().request_bytes_max(1_000_000));
    let mut watch = node.watch().await;
    let request = |fragment| WatchCreateRequest {
        fragment,
        prev_kv: true,
        start_revision: 2,
        ..watch_of("a", "z")
    };
    // One revision: the engine delivers it as a whole.
    let puts = ["a", "b", "c", "d"].map(|key| Op::Put(Put::new(key, vec![b'v'; 700_000])));
    let txn = Txn::new().and_then(puts);
    node.engine.txn(&txn).unwrap();
    watch.create(request(true)).await;
    let mut received = Vec::new();
    loop {
        let fragment_response = watch.next().await;
        assert_eq!(
            (fragment_response.watch_id, &fragment_response.header),
            (0, &header(2))
        );
        received.extend(
            events(&fragment_response)
                .iter()
                .map(|(_, key, _)| (*key).to_owned()),
        );
        if !fragment_response.fragment {
            break;
        }
    }
    assert_eq!(received, ["a", "b", "c", "d"]);
    watch.assert_no_response();
    watch.create(request(false)).await;
    let unfragmented = watch.next().await;
    assert_eq!(
        (
            unfragmented.watch_id,
            unfragmented.fragment,
            unfragmented.events.len()
        ),
        (1, false, 4)
    );
}

#[tokio::test]
async fn wa_36_no_response_comes_between_the_fragments_of_another() {
    let node = TestNode::with_limits(Limits::default().request_bytes_max(100_000));
    for key in ["a", "b", "c"] {
        node.engine.put(key, vec![b'v'; 500_000]).unwrap();
    }
    let mut watch = node.watch().await;
    let request = WatchCreateRequest {
        fragment: true,
        ..from_revision(2)
    };
    watch.create(request).await;
    assert!(watch.next().await.fragment);
    watch.send_cancel(0);
    watch.send_create(watch_of("k", ""));
    assert!(watch.next().await.fragment);
    assert_eq!(events(&watch.next().await), [(EventType::Put, "c", 4)]);
    assert!(watch.next().await.canceled);
    assert!(watch.next().await.created);
}

#[tokio::test]
async fn wa_40_wa_41_a_watch_below_the_compacted_revision_is_created_and_cancelled() {
    let node = TestNode::new();
    node.fill(["k"; 5]);
    node.engine.compact(Revision(4)).unwrap().run();
    let mut watch = node.watch().await;
    assert_eq!(watch.create(from_revision(3)).await.header, header(6));
    let compacted = WatchResponse {
        header: header(0),
        watch_id: 0,
        canceled: true,
        compact_revision: 4,
        ..WatchResponse::default()
    };
    assert_eq!(watch.next().await, compacted);
    watch.create(from_revision(4)).await;
    let received = watch.next().await;
    assert_eq!(events(&received)[0], (EventType::Put, "k", 4));
}

#[tokio::test]
async fn wa_42_the_id_of_a_compacted_watch_is_in_use_until_its_cancel_request() {
    let node = TestNode::new();
    node.fill(["k"; 5]);
    node.engine.compact(Revision(4)).unwrap().run();
    let mut watch = node.watch().await;
    let create = |start_revision| WatchCreateRequest {
        watch_id: 9,
        ..from_revision(start_revision)
    };
    watch.create(create(1)).await;
    assert_eq!(watch.next().await.compact_revision, 4);
    assert_eq!(watch.create(create(4)).await.cancel_reason, DUPLICATE_ID);
    watch.send_cancel(9);
    let response = watch.next().await;
    assert_eq!(
        (
            response.watch_id,
            response.canceled,
            response.compact_revision
        ),
        (9, true, 0)
    );
    assert_eq!(watch.create(create(4)).await.watch_id, 9);
}

#[tokio::test]
async fn wa_43_a_slow_client_gets_events_without_a_gap_or_the_compact_revision() {
    const WRITES: i64 = 40_000;
    let node = TestNode::new();
    let mut watch = node.watch().await;
    watch.create(watch_of("k", "")).await;
    for _ in 0..WRITES {
        node.engine.put("k", "").unwrap();
    }
    assert_eq!(
        node.engine.stats().unsynced_watches,
        1,
        "the queue is bounded"
    );
    let last = Revision(WRITES + 1);
    let mut next = 2;
    while next < 1000 {
        for (_, _, revision) in events(&watch.next().await) {
            assert_eq!(revision, next);
            next += 1;
        }
    }
    node.engine.compact(last).unwrap().run();
    loop {
        let response = watch.next().await;
        if response.canceled {
            assert_eq!(response.compact_revision, last.0);
            break;
        }
        for (_, _, revision) in events(&response) {
            assert_eq!(revision, next);
            next += 1;
        }
    }
    watch.assert_no_response();
}

#[tokio::test]
async fn wa_50_to_52_idle_watches_get_progress_notifications_at_intervals() {
    let node = TestNode::new();
    let mut watch = node.watch().await;
    watch.create(watch_of("other", "")).await;
    let with_progress = WatchCreateRequest {
        progress_notify: true,
        ..watch_of("k", "")
    };
    watch.create(with_progress).await;
    node.fill(["a"]);
    node.clock.advance(PROGRESS_INTERVAL * 2);
    let progress = WatchResponse {
        header: header(2),
        watch_id: 1,
        ..WatchResponse::default()
    };
    assert_eq!(watch.next().await, progress);
}

#[tokio::test]
async fn wa_53_requested_progress_is_sent_when_all_watches_are_synced() {
    let node = TestNode::new();
    let mut watch = node.watch().await;
    watch.send_progress();
    watch.assert_no_response();
    watch.create(watch_of("k", "")).await;
    node.fill(["a"]);
    watch.send_progress();
    let progress = WatchResponse {
        header: header(2),
        watch_id: -1,
        ..WatchResponse::default()
    };
    assert_eq!(watch.next().await, progress);
    // WA-19: a watch with a future start revision is not synced, so no progress is sent.
    watch.create(from_revision(99)).await;
    watch.send_progress();
    watch.assert_no_response();
}

#[tokio::test]
async fn wa_55_progress_is_sent_after_the_events_that_it_covers() {
    let node = TestNode::new();
    let mut watch = node.watch().await;
    watch.create(watch_of("k", "")).await;
    node.fill(["k"; 3]);
    watch.send_progress();
    let mut received = Vec::new();
    loop {
        let response = watch.next().await;
        if response.watch_id == -1 {
            assert_eq!(response.header, header(4));
            break;
        }
        received.extend(events(&response).iter().map(|(_, _, revision)| *revision));
    }
    assert_eq!(received, [2, 3, 4]);
}

#[tokio::test]
async fn wa_54_a_progress_request_is_dropped_while_a_watch_is_unsynced() {
    let node = TestNode::new();
    node.fill(vec!["k"; 3000]);
    let mut watch = node.watch().await;
    watch.send_create(from_revision(1));
    watch.send_progress();
    let mut received = 0;
    while received < 3000 {
        let response = watch.next().await;
        assert_ne!(response.watch_id, -1, "progress before the watch is synced");
        received += response.events.len();
    }
    watch.assert_no_response();
    watch.send_progress();
    assert_eq!(watch.next().await.watch_id, -1);
}

#[tokio::test]
async fn requests_are_served_while_past_events_are_sent() {
    let node = TestNode::new();
    node.fill(vec!["k"; 5000]);
    let mut watch = node.watch().await;
    watch.create(from_revision(1)).await;
    for _ in 0..5 {
        watch.send_create(watch_of("other", ""));
    }
    let mut created = 0;
    let mut received = 0;
    while created < 5 {
        let response = watch.next().await;
        created += usize::from(response.created);
        received += response.events.len();
    }
    assert!(
        received < 5000,
        "the responses to the requests waited for all past events"
    );
}

#[tokio::test]
async fn many_requests_without_a_response_do_not_delay_events() {
    let node = TestNode::new();
    let mut watch = node.watch().await;
    watch.create(watch_of("k", "")).await;
    for _ in 0..1000 {
        watch.send_cancel(77);
        watch.send_empty();
    }
    node.fill(["k"]);
    assert_eq!(events(&watch.next().await), [(EventType::Put, "k", 2)]);
}

/// The time of tokio advances only when the test advances it.
#[tokio::test(start_paused = true)]
async fn wa_18_history_can_be_delayed() {
    const DELAY: Duration = Duration::from_millis(100);
    let node = TestNode::with(|builder| builder.watch_catch_up_delay(DELAY));
    node.fill(["a"]);
    // So large that each response is sent before the next one is made.
    let large = vec![b'v'; 64 * 1024];
    let mut watch = node.watch().await;
    // The present is not delayed.
    let created = watch.create(watch_of("\0", "\0")).await;
    assert_eq!((created.created, created.watch_id), (true, 0));
    node.engine.put("b", large.clone()).unwrap();
    assert_eq!(watch.next().await.watch_id, 0);

    // The past is, but not the response to its creation.
    assert!(watch.create(from_revision(2)).await.created);
    watch.assert_no_response();
    tokio::time::advance(Duration::from_millis(99)).await;
    watch.assert_no_response();
    tokio::time::advance(Duration::from_millis(2)).await;
    let history = watch.next().await;
    let expected = vec![(EventType::Put, "a", 2), (EventType::Put, "b", 3)];
    assert_eq!((history.watch_id, events(&history)), (1, expected));

    // Watches of the stream wait for one delay, however many are created.
    for _ in 0..3 {
        assert!(watch.create(from_revision(3)).await.created);
    }
    node.engine.put("c", large).unwrap();
    watch.assert_no_response();
    tokio::time::advance(DELAY + Duration::from_millis(1)).await;
    let time = tokio::time::Instant::now();
    let mut delivered = BTreeSet::new();
    while delivered.len() < 5 {
        watch.send_create(from_revision(3));
        let response = watch.next().await;
        assert!(response.watch_id < 1_000, "only {delivered:?} were served");
        if !response.created && response.watch_id < 5 {
            delivered.insert(response.watch_id);
        }
    }
    assert_eq!(time, tokio::time::Instant::now());
}
