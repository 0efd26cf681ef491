//! T-30, T-31, T-33, T-45, T-53, T-55: what watches deliver, and in which order.

use std::time::Duration;

use pollster::block_on;
use revstore_watch_cache::cache::WindowLimits;
use revstore_watch_cache::{EventType, Revision, Scope, WatchEvent};

use super::select;
use crate::support::{Fixture, PODS, config, from, on_both, pod};

// Shows WC-352.
#[test]
fn t_55_an_object_that_is_replaced_in_one_revision_is_deleted_and_added() {
    use revstore_engine::{KeyRange, Op, Put, Txn};
    on_both(|fixture, store, _| {
        let Some(engine) = &fixture.engine else {
            return;
        };
        let start = fixture.put("ns/a", pod("ns/a", "web", ""));
        fixture.wait_until_fresh();
        let mut events = fixture.watch(store, &Scope::All, &from(start));
        let key = format!("{PODS}/ns/a");
        let ops = [
            Op::Delete(KeyRange::one(key.clone())),
            Op::Put(Put::new(key, pod("ns/a", "db", ""))),
        ];
        let made = engine.txn(&Txn::new().and_then(ops)).unwrap().revision.0;
        assert_eq!(
            events.words(2),
            [format!("DELETED ns/a@{made}"), format!("ADDED ns/a@{made}")]
        );
    });
}

#[test]
fn t_30_deletions_show_the_last_content_at_the_revision_of_the_deletion() {
    on_both(|fixture, store, _| {
        let start = fixture.put("ns/a", pod("ns/a", "web", ""));
        fixture.wait_until_fresh();
        let mut events = fixture.watch(store, &Scope::All, &from(start));
        let terminating =
            pod("ns/a", "web", "").replace("\"labels\"", "\"deletionTimestamp\":\"t\",\"labels\"");
        let modified = fixture.put("ns/a", terminating.clone());
        let deleted = fixture.delete("ns/a");
        assert_eq!(events.word(), format!("MODIFIED ns/a@{modified}"));
        let Some(WatchEvent::Object { event, object, .. }) = events.next() else {
            panic!("expected an event of an object")
        };
        assert_eq!((event, object.revision().0), (EventType::Deleted, deleted));
        assert_eq!(object.value(), terminating.as_bytes());
    });
}

// Shows WC-125.
#[test]
fn t_31_and_t_33_delayed_readers_get_a_gapless_prefix_and_can_stop_at_any_event() {
    on_both(|fixture, store, _| {
        let start = fixture.put_elsewhere();
        fixture.wait_until_fresh();
        drop(fixture.watch(store, &Scope::All, &from(start)));
        drop(fixture.watch(store, &Scope::All, &from("0")));
        let mut events = fixture.watch(store, &Scope::All, &from(start));
        let made: Vec<_> = (0..25)
            .map(|n| fixture.put_pod(&format!("ns/p{n:02}")))
            .collect();
        let expected: Vec<_> = made
            .iter()
            .take(12)
            .enumerate()
            .map(|(n, revision)| format!("ADDED ns/p{n:02}@{revision}"))
            .collect();
        assert_eq!(events.words(12), expected);
        drop(events);
        fixture.put_pod("ns/after");
        fixture.wait_until_fresh();
        assert_eq!(
            fixture.pods.metrics().watchers,
            0,
            "the watch is unregistered"
        );
    });
}

// Shows WC-113 and WC-340.
#[test]
fn t_45_watchers_that_start_during_writes_get_each_event_once() {
    let fixture = Fixture::new();
    let engine = fixture.engine().clone();
    let writer = std::thread::spawn(move || {
        for number in 0..3000 {
            let key = format!("{}/ns/p{}", crate::support::PODS, number % 7);
            engine.put(key, "{\"metadata\":{}}").unwrap();
        }
    });
    let mut watches = Vec::new();
    for round in 0..1000_i64 {
        let newest = fixture.cache.revision().0;
        let start = (newest - round % 50).max(1);
        let options = if round % 3 == 0 {
            from("0")
        } else {
            from(start)
        };
        let watch = block_on(fixture.pods.watch(&Scope::All, &options)).unwrap();
        watches.push((watch, (round % 3 != 0).then_some(start)));
    }
    writer.join().unwrap();
    fixture.wait_until_fresh();
    let end = fixture.current();
    for (mut watch, start) in watches {
        let mut seen: Vec<i64> = Vec::new();
        // Initial objects are in key order. The changes continue after the newest of them.
        let mut state = 0;
        while let Some(event) = watch.try_next() {
            let revision = event.revision().unwrap().0;
            if start.is_none() && event.type_name() == "ADDED" && seen.is_empty() {
                state = state.max(revision);
            } else {
                seen.push(revision);
            }
        }
        // Each write created one revision, so the revisions are consecutive.
        if let Some(first) = start.map(|start| start + 1).or(seen.first().copied()) {
            assert!(
                first > state,
                "no event is older than the initial state (WC-341)"
            );
            assert_eq!(
                seen,
                (first..=end).collect::<Vec<_>>(),
                "started after {start:?}"
            );
            assert!(
                start.is_some() || first == state + 1 || state == 0,
                "{state} {first}"
            );
        }
    }
}

// Shows WC-142 and WC-351.
#[test]
fn t_53_an_event_is_encoded_once_and_a_deletion_changes_no_shared_bytes() {
    let fixture = Fixture::new();
    let start = fixture.put("ns/a", pod("ns/a", "web", ""));
    let watch = |labels: &str| {
        let options = select(from(start), labels, "");
        block_on(fixture.pods.watch(&Scope::All, &options)).unwrap()
    };
    let mut web: Vec<_> = (0..5).map(|_| watch("app=web")).collect();
    let mut all: Vec<_> = (0..5).map(|_| watch("")).collect();
    let moved = fixture.put("ns/a", pod("ns/a", "db", ""));
    let mut frames = Vec::new();
    for watch in web.iter_mut().chain(&mut all) {
        let event = watch.next_blocking().unwrap();
        frames.push(watch.encode(&event));
    }
    assert!(
        frames[..5]
            .iter()
            .all(|frame| frame.as_ptr() == frames[0].as_ptr())
    );
    assert!(
        frames[5..]
            .iter()
            .all(|frame| frame.as_ptr() == frames[5].as_ptr())
    );
    let text = |frame: &[u8]| String::from_utf8(frame.to_vec()).unwrap();
    let version = format!("\"resourceVersion\":\"{moved}\"");
    assert!(text(&frames[0]).starts_with("{\"type\":\"DELETED\""));
    assert!(text(&frames[0]).contains("web") && text(&frames[0]).contains(&version));
    assert!(text(&frames[5]).starts_with("{\"type\":\"MODIFIED\""));
    assert!(text(&frames[5]).contains("db") && text(&frames[5]).contains(&version));
    assert_eq!(fixture.pods.metrics().events_encoded, 2);
}

#[test]
fn t_55_changes_of_one_revision_are_delivered_together() {
    use revstore_engine::{Op, Put, Txn};
    on_both(|fixture, store, _| {
        // A `Storage` writes neither transactions nor shared leases, so this needs the engine.
        if fixture.engine.is_none() {
            return;
        }
        let engine = fixture.engine();
        fixture.wait_until_fresh();
        let options = from(1).allow_bookmarks(true);
        let mut events = fixture.watch(store, &Scope::All, &options);
        let put = |name: &str| {
            let key = format!("{}/ns/{name}", crate::support::PODS);
            Op::Put(Put::new(key, pod(&format!("ns/{name}"), "", "")))
        };
        let txn = Txn::new().and_then(vec![put("b"), put("a"), put("c")]);
        let made = engine.txn(&txn).unwrap().revision.0;
        let expected = ["b", "a", "c"].map(|name| format!("ADDED ns/{name}@{made}"));
        assert_eq!(events.words(3), expected, "in the order of the transaction");
        // A resume after the revision skips all of its events.
        fixture.wait_until_fresh();
        let mut later = fixture.watch(store, &Scope::All, &from(made));
        // The expiry of a lease deletes many objects in one revision.
        let lease = engine.grant(None, 5).unwrap().id;
        for name in ["x", "y"] {
            let key = format!("{}/ns/{name}", crate::support::PODS);
            let put = Put::new(key, pod(&format!("ns/{name}"), "", "")).attached_to(lease);
            engine.put_with(&put).unwrap();
        }
        let (x, y) = (made + 1, made + 2);
        assert_eq!(
            later.words(2),
            [format!("ADDED ns/x@{x}"), format!("ADDED ns/y@{y}")]
        );
        fixture.clock.advance(Duration::from_secs(6));
        let ended = y + 1;
        assert_eq!(
            later.words(2),
            [
                format!("DELETED ns/x@{ended}"),
                format!("DELETED ns/y@{ended}")
            ]
        );
    });
}

// Shows WC-111.
#[test]
fn wc_110_the_byte_limit_evicts_events() {
    let limits = WindowLimits::default().bytes_max(10_000);
    let fixture = Fixture::with(config().window(limits), |builder| builder);
    for _ in 0..100 {
        fixture.put_pod("ns/a");
    }
    fixture.wait_until_fresh();
    let metrics = fixture.pods.metrics();
    assert!(metrics.window_bytes <= 10_000, "{metrics:?}");
    assert!(metrics.window_events > 3, "{metrics:?}");
    assert_eq!(metrics.objects, 1);
}

#[test]
fn wc_144_a_new_cache_has_the_history_that_the_engine_has() {
    let fixture = Fixture::new();
    let first = fixture.put_pod("ns/a");
    fixture.put_pod("ns/b");
    fixture.delete("ns/a");
    let clock = std::sync::Arc::new(fixture.clock.clone());
    let builder = revstore_watch_cache::WatchCache::builder(fixture.source.clone()).clock(clock);
    let (cache, feeder) = builder.build();
    let pods = cache.add(config()).unwrap();
    let _running = feeder.spawn();
    block_on(pods.wait_until_ready()).unwrap();
    let mut events = fixture.watch(&pods, &Scope::All, &from(first));
    assert_eq!(
        events.words(2),
        [
            format!("ADDED ns/b@{}", first + 1),
            format!("DELETED ns/a@{}", first + 2)
        ]
    );
    assert_eq!(
        pods.metrics().resource_version,
        Revision(first + 2).0.unsigned_abs()
    );
}
