//! Watches: section E.

use std::sync::Arc;
use std::thread;

use futures_util::FutureExt;
use revstore_engine::{KeyRange, Op, Put, Revision, Txn};
use revstore_grpc::Limits;
use revstore_proto::etcdserverpb::watch_create_request::FilterType;
use revstore_proto::etcdserverpb::{WatchCreateRequest, WatchResponse};
use revstore_proto::mvccpb::event::EventType;
use tokio_stream::StreamExt;

use crate::support::{
    Node, PROGRESS_INTERVAL, STOPPED, Watch, check_refused, delete, header, op_delete, op_put, put,
    txn_of, watch_of,
};

const DUPLICATE_ID: &str = "mvcc: duplicate watch ID provided on the WatchStream";

/// Kind, key and mod revision of each event.
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

async fn assert_refused(watch: &mut Watch, request: WatchCreateRequest, reason: &str) {
    let revision = 1;
    let reply = watch.create(request).await;
    let refusal = WatchResponse {
        header: header(revision),
        watch_id: -1,
        created: true,
        canceled: true,
        cancel_reason: reason.to_owned(),
        ..WatchResponse::default()
    };
    assert_eq!(reply, refusal);
}

#[tokio::test]
async fn wa_1_wa_2_replies_come_in_order_and_ids_count_from_0() {
    let node = Node::new();
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
        let reply = watch.next().await;
        let created = WatchResponse {
            header: header(1),
            watch_id: expected,
            created: true,
            ..WatchResponse::default()
        };
        assert_eq!(reply, created);
    }
}

#[tokio::test]
async fn wa_2_wa_21_ids_are_picked_around_those_in_use_and_can_be_chosen_again() {
    let node = Node::new();
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
async fn wa_4_5_7_14_refusals_name_no_watch_and_leave_the_stream_alone() {
    let node = Node::new();
    let mut watch = node.watch().await;
    let with_id = |watch_id| WatchCreateRequest {
        watch_id,
        ..watch_of("k", "")
    };
    assert_eq!(watch.create(with_id(5)).await.watch_id, 5);
    assert_refused(&mut watch, with_id(5), DUPLICATE_ID).await;
    assert_refused(&mut watch, with_id(-1), DUPLICATE_ID).await;
    let compacted = "etcdserver: mvcc: required revision has been compacted";
    assert_refused(&mut watch, from_revision(-1), compacted).await;
    assert_refused(&mut watch, from_revision(i64::MIN), compacted).await;
    let empty = "mvcc: watcher range is empty";
    assert_refused(&mut watch, watch_of("b", "a"), empty).await;
    assert_refused(&mut watch, watch_of("b", "b"), empty).await;
    node.fill(["k"]);
    assert_eq!(watch.next().await.watch_id, 5);
}

#[tokio::test]
async fn wa_6_a_watch_begins_at_its_revision() {
    let node = Node::new();
    node.fill(["a", "b"]);
    let mut now = node.watch().await;
    assert_eq!(now.create(from_revision(0)).await.header, header(3));
    let mut past = node.watch().await;
    past.create(from_revision(3)).await;
    let mut future = node.watch().await;
    future.create(from_revision(5)).await;
    let mut never = node.watch().await;
    never.create(from_revision(i64::MAX)).await;
    now.assert_silent();
    assert_eq!(events(&past.next().await), [(EventType::Put, "b", 3)]);
    node.fill(["c"]);
    assert_eq!(events(&now.next().await), [(EventType::Put, "c", 4)]);
    assert_eq!(events(&past.next().await), [(EventType::Put, "c", 4)]);
    future.assert_silent();
    node.fill(["d"]);
    assert_eq!(events(&future.next().await), [(EventType::Put, "d", 5)]);
    never.assert_silent();
}

/// A client that resumes from the revision of the reply must miss nothing and see nothing twice.
#[tokio::test]
async fn wa_8_the_first_event_is_of_the_revision_after_that_of_the_reply() {
    const WATCHES: usize = 200;
    let node = Node::new();
    let going_on = Arc::new(());
    let writer = thread::spawn({
        let (engine, going_on) = (node.engine.clone(), Arc::downgrade(&going_on));
        move || {
            while going_on.strong_count() > 0 {
                engine.put("k", "v").unwrap();
            }
        }
    });
    for _ in 0..WATCHES {
        let mut watch = node.watch().await;
        let created = watch.create(watch_of("k", "")).await.header.unwrap();
        let told = watch.next().await;
        assert_eq!(
            events(&told)[0],
            (EventType::Put, "k", created.revision + 1)
        );
    }
    drop(going_on);
    writer.join().unwrap();
}

#[tokio::test]
async fn wa_9_the_empty_key_is_the_smallest_one() {
    let node = Node::new();
    let mut watch = node.watch().await;
    watch.create(watch_of("", "")).await;
    watch.create(watch_of("", "\0")).await;
    watch.create(watch_of("", "b")).await;
    let mut told = |key: &'static [u8]| {
        node.engine.put(key, "v").unwrap();
        let mut ids = Vec::new();
        while let Some(Some(response)) = watch.responses.next().now_or_never() {
            ids.push(response.unwrap().watch_id);
        }
        ids.sort_unstable();
        ids
    };
    assert_eq!(told(b"\0"), [0, 1, 2]);
    assert_eq!(told(b"a"), [1, 2]);
    assert_eq!(told(b"b"), [1]);
}

#[tokio::test]
async fn wa_15_a_request_with_nothing_set_is_ignored() {
    let node = Node::new();
    let mut watch = node.watch().await;
    watch.send_nothing();
    assert_eq!(watch.create(watch_of("k", "")).await.watch_id, 0);
    watch.assert_silent();
}

#[tokio::test]
async fn wa_16_events_keep_coming_after_a_half_close() {
    let node = Node::new();
    let mut watch = node.watch().await;
    watch.create(watch_of("k", "")).await;
    watch.half_close();
    watch.assert_silent();
    node.fill(["k"]);
    assert_eq!(events(&watch.next().await), [(EventType::Put, "k", 2)]);
    watch.assert_silent();
}

#[tokio::test]
async fn wa_17_a_shutdown_ends_streams_at_once_and_before_anything_else() {
    let node = Node::new();
    let mut watch = node.watch().await;
    watch.create(watch_of("k", "")).await;
    node.fill(["k"]);
    node.shutdown.begin();
    check_refused(watch.responses.next().await.unwrap(), STOPPED);
    assert!(watch.responses.next().await.is_none());
    let mut late = node.watch().await;
    check_refused(late.responses.next().await.unwrap(), STOPPED);
}

#[tokio::test]
async fn wa_17_a_shutdown_wakes_who_waits() {
    let node = Node::new();
    let mut watch = node.watch().await;
    watch.create(watch_of("k", "")).await;
    let waiting = tokio::spawn(async move { watch.responses.next().await });
    tokio::task::yield_now().await;
    node.shutdown.begin();
    check_refused(waiting.await.unwrap().unwrap(), STOPPED);
}

#[tokio::test]
async fn a_stream_that_is_dropped_takes_its_watches_along() {
    let node = Node::new();
    let mut watch = node.watch().await;
    watch.create(watch_of("k", "")).await;
    watch.create(from_revision(1)).await;
    assert_eq!(node.engine.stats().watches, 2);
    drop(watch);
    assert_eq!(node.engine.stats().watches, 0);
}

#[tokio::test]
async fn wa_20_a_cancel_is_answered_once() {
    let node = Node::new();
    let mut watch = node.watch().await;
    watch.create(watch_of("k", "")).await;
    node.fill(["k"]);
    watch.send_cancel(0);
    watch.send_cancel(0);
    watch.send_cancel(99);
    watch.send_cancel(-1);
    // What was queued when the request came in may be told before the reply, and nothing behind it.
    let mut reply = watch.next().await;
    if !reply.events.is_empty() {
        reply = watch.next().await;
    }
    let canceled = WatchResponse {
        header: header(2),
        watch_id: 0,
        canceled: true,
        ..WatchResponse::default()
    };
    assert_eq!(reply, canceled);
    node.fill(["k"]);
    watch.assert_silent();
}

#[tokio::test]
async fn wa_30_to_32_live_events_come_a_revision_at_a_time() {
    let node = Node::new();
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
    node.engine.delete(&KeyRange::prefix(""));
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
async fn wa_31_wa_34_history_comes_in_whole_revisions_a_thousand_at_most() {
    let node = Node::new();
    for number in 0..1500 {
        let (a, b) = (format!("a{number}"), format!("b{number}"));
        let both = Txn {
            success: vec![Op::Put(Put::new(a, "v")), Op::Put(Put::new(b, "v"))],
            ..Txn::default()
        };
        node.engine.txn(&both).unwrap();
    }
    let mut watch = node.watch().await;
    watch.create(from_revision(2)).await;
    let mut next = 2;
    while next < 1502 {
        let response = watch.next().await;
        assert_eq!(response.header, header(1501), "WA-32");
        let told = events(&response);
        assert_eq!(told.len() % 2, 0, "a revision was torn apart");
        assert!(told.len() <= 2000);
        for pair in told.chunks(2) {
            assert_eq!((pair[0].2, pair[1].2), (next, next));
            next += 1;
        }
    }
    watch.assert_silent();
}

#[tokio::test]
async fn wa_33_previous_pairs_are_those_before_the_transaction() {
    let node = Node::new();
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
    // The last is a creation: the key was deleted before it (TXN-7).
    assert_eq!(previous, [None, value("1"), value("2"), None]);
}

#[tokio::test]
async fn wa_35_filters_leave_out_what_nobody_wants() {
    let node = Node::new();
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
    node.engine.delete(&KeyRange::one("k"));
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
    watch.assert_silent();
}

#[tokio::test]
async fn wa_36_large_responses_are_split_if_that_was_asked() {
    let node = Node::with_limits(Limits {
        request_bytes_max: 1_000_000,
        ..Limits::default()
    });
    let mut watch = node.watch().await;
    let request = |fragment| WatchCreateRequest {
        fragment,
        prev_kv: true,
        start_revision: 2,
        ..watch_of("a", "z")
    };
    // One revision, which the engine never splits.
    let puts = ["a", "b", "c", "d"].map(|key| Op::Put(Put::new(key, vec![b'v'; 700_000])));
    let txn = Txn {
        success: puts.into(),
        ..Txn::default()
    };
    node.engine.txn(&txn).unwrap();
    watch.create(request(true)).await;
    let mut told = Vec::new();
    loop {
        let piece = watch.next().await;
        assert_eq!((piece.watch_id, &piece.header), (0, &header(2)));
        told.extend(events(&piece).iter().map(|(_, key, _)| (*key).to_owned()));
        if !piece.fragment {
            break;
        }
    }
    assert_eq!(told, ["a", "b", "c", "d"]);
    watch.assert_silent();
    watch.create(request(false)).await;
    let whole = watch.next().await;
    assert_eq!(
        (whole.watch_id, whole.fragment, whole.events.len()),
        (1, false, 4)
    );
}

#[tokio::test]
async fn wa_36_nothing_comes_between_the_pieces_of_a_response() {
    let node = Node::with_limits(Limits {
        request_bytes_max: 100_000,
        ..Limits::default()
    });
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
async fn wa_40_wa_41_a_watch_behind_the_mark_is_created_and_then_ended() {
    let node = Node::new();
    node.fill(["k"; 5]);
    node.engine.compact(Revision(4)).unwrap().run();
    let mut watch = node.watch().await;
    assert_eq!(watch.create(from_revision(3)).await.header, header(6));
    let ended = WatchResponse {
        header: header(0),
        watch_id: 0,
        canceled: true,
        compact_revision: 4,
        ..WatchResponse::default()
    };
    assert_eq!(watch.next().await, ended);
    watch.create(from_revision(4)).await;
    let told = watch.next().await;
    assert_eq!(events(&told)[0], (EventType::Put, "k", 4));
}

#[tokio::test]
async fn wa_42_the_id_stays_taken_until_it_is_cancelled_too() {
    let node = Node::new();
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
    let reply = watch.next().await;
    assert_eq!(
        (reply.watch_id, reply.canceled, reply.compact_revision),
        (9, true, 0)
    );
    assert_eq!(watch.create(create(4)).await.watch_id, 9);
}

#[tokio::test]
async fn wa_43_a_slow_client_gets_all_without_a_gap_or_learns_where_it_was_lost() {
    const WRITES: i64 = 40_000;
    let node = Node::new();
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
    watch.assert_silent();
}

#[tokio::test]
async fn wa_50_to_52_quiet_watches_hear_of_progress_at_intervals() {
    let node = Node::new();
    let mut watch = node.watch().await;
    watch.create(watch_of("other", "")).await;
    let asked = WatchCreateRequest {
        progress_notify: true,
        ..watch_of("k", "")
    };
    watch.create(asked).await;
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
async fn wa_53_progress_of_the_stream_comes_when_all_of_it_is_caught_up() {
    let node = Node::new();
    let mut watch = node.watch().await;
    watch.send_progress();
    watch.assert_silent();
    watch.create(watch_of("k", "")).await;
    node.fill(["a"]);
    watch.send_progress();
    let progress = WatchResponse {
        header: header(2),
        watch_id: -1,
        ..WatchResponse::default()
    };
    assert_eq!(watch.next().await, progress);
    // WA-19: one that waits for the future silences the stream.
    watch.create(from_revision(99)).await;
    watch.send_progress();
    watch.assert_silent();
}

#[tokio::test]
async fn wa_55_progress_comes_behind_what_it_covers() {
    let node = Node::new();
    let mut watch = node.watch().await;
    watch.create(watch_of("k", "")).await;
    node.fill(["k"; 3]);
    watch.send_progress();
    let mut told = Vec::new();
    loop {
        let response = watch.next().await;
        if response.watch_id == -1 {
            assert_eq!(response.header, header(4));
            break;
        }
        told.extend(events(&response).iter().map(|(_, _, revision)| *revision));
    }
    assert_eq!(told, [2, 3, 4]);
}

#[tokio::test]
async fn wa_54_progress_that_cannot_be_told_is_dropped() {
    let node = Node::new();
    node.fill(vec!["k"; 3000]);
    let mut watch = node.watch().await;
    watch.send_create(from_revision(1));
    watch.send_progress();
    let mut told = 0;
    while told < 3000 {
        let response = watch.next().await;
        assert_ne!(response.watch_id, -1, "told too early");
        told += response.events.len();
    }
    watch.assert_silent();
    watch.send_progress();
    assert_eq!(watch.next().await.watch_id, -1);
}

#[tokio::test]
async fn requests_are_served_between_events_without_end() {
    let node = Node::new();
    node.fill(vec!["k"; 5000]);
    let mut watch = node.watch().await;
    watch.create(from_revision(1)).await;
    for _ in 0..5 {
        watch.send_create(watch_of("other", ""));
    }
    let mut created = 0;
    let mut told = 0;
    while created < 5 {
        let response = watch.next().await;
        created += usize::from(response.created);
        told += response.events.len();
    }
    assert!(told < 5000, "the replies waited for all of the history");
}

#[tokio::test]
async fn many_requests_without_a_reply_do_not_hold_anything_up() {
    let node = Node::new();
    let mut watch = node.watch().await;
    watch.create(watch_of("k", "")).await;
    for _ in 0..1000 {
        watch.send_cancel(77);
        watch.send_nothing();
    }
    node.fill(["k"]);
    assert_eq!(events(&watch.next().await), [(EventType::Put, "k", 2)]);
}
