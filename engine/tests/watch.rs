//! Watches: delivery, catch-up, progress, ids, ends.

use std::thread;
use std::time::Duration;

use revstore_engine::{
    Engine, KeyRange, ManualClock, Op, Put, Revision, Txn, WatchEnd, WatchError, WatchId,
    WatchOptions, WatchResponse, WatchStream,
};

fn engine() -> (Engine, ManualClock) {
    let clock = ManualClock::new();
    (Engine::builder().clock(clock.clone()).build(), clock)
}

/// Returns the watch and the revision of each event that is available now.
fn drain(stream: &mut WatchStream) -> Vec<(i64, i64)> {
    let mut seen = Vec::new();
    while let Some(response) = stream.try_next() {
        match response {
            WatchResponse::Events { id, events, .. } => {
                seen.extend(events.iter().map(|event| (id.0, event.kv.mod_revision().0)));
            }
            other => panic!("expected events, got {other:?}"),
        }
    }
    seen
}

fn progress(stream: &mut WatchStream) -> Vec<(Option<i64>, i64)> {
    let mut seen = Vec::new();
    while let Some(response) = stream.try_next() {
        if let WatchResponse::Progress { id, revision } = response {
            seen.push((id.map(|id| id.0), revision.0));
        }
    }
    seen
}

#[test]
fn i4_when_a_put_returns_every_synced_watch_has_the_event() {
    let (engine, _) = engine();
    let mut stream = engine.watch_stream();
    let created = stream.watch(WatchOptions::of(KeyRange::one("a"))).unwrap();
    assert_eq!((created.id, created.revision), (WatchId(0), Revision(1)));
    stream
        .watch(WatchOptions::of(KeyRange::prefix("a")))
        .unwrap();
    engine.put("a", "1").unwrap();
    engine.put("ab", "2").unwrap();
    assert_eq!(drain(&mut stream), [(0, 2), (1, 2), (1, 3)]);
}

#[test]
fn i9_a_watch_loses_no_event_when_its_queue_overflows() {
    let (engine, _) = engine();
    let mut slow = engine.watch(WatchOptions::of(KeyRange::all())).unwrap();
    let mut fast = engine.watch(WatchOptions::of(KeyRange::all())).unwrap();
    let mut seen = Vec::new();
    let writes = 40_000;
    for number in 0..writes {
        engine.put(format!("k{}", number % 7), "v").unwrap();
        let batch = fast.try_next().unwrap().unwrap();
        assert_eq!(batch.revision, engine.current_revision());
    }
    assert_eq!(engine.stats().unsynced_watches, 1);
    while let Some(batch) = slow.try_next() {
        seen.extend(
            batch
                .unwrap()
                .events
                .into_iter()
                .map(|event| event.kv.mod_revision().0),
        );
    }
    assert_eq!(seen, (2..writes + 2).collect::<Vec<i64>>());
    assert_eq!(engine.stats().unsynced_watches, 0);
    engine.put("k", "v").unwrap();
    assert_eq!(slow.try_next().unwrap().unwrap().events.len(), 1);
}

#[test]
fn wa_31_a_revision_is_never_split() {
    let (engine, _) = engine();
    let puts = (0..3000).map(|number| Op::Put(Put::new(format!("k{number:04}"), "v")));
    let txn = Txn::new().and_then(puts);
    let mut live = engine.watch(WatchOptions::of(KeyRange::all())).unwrap();
    engine.txn(&txn).unwrap();
    engine.delete(&KeyRange::all()).unwrap();
    let past = WatchOptions::of(KeyRange::all()).from(Revision(2));
    let mut caught_up = engine.watch(past).unwrap();
    for watcher in [&mut live, &mut caught_up] {
        for revision in [2, 3] {
            let events = watcher.try_next().unwrap().unwrap().events;
            assert_eq!(events.len(), 3000);
            assert!(
                events
                    .iter()
                    .all(|event| event.kv.mod_revision().0 == revision)
            );
            assert!(events.is_sorted_by(|a, b| a.kv.position() < b.kv.position()));
        }
        assert!(watcher.try_next().is_none());
    }
}

#[test]
fn wa_6_a_watch_with_a_future_start_delivers_no_earlier_events() {
    let (engine, _) = engine();
    let mut watcher = engine
        .watch(WatchOptions::of(KeyRange::all()).from(Revision(4)))
        .unwrap();
    engine.put("a", "2").unwrap();
    engine.put("a", "3").unwrap();
    assert!(watcher.try_next().is_none());
    engine.put("a", "4").unwrap();
    let events = watcher.try_next().unwrap().unwrap().events;
    assert_eq!(
        (events.len(), events[0].kv.mod_revision()),
        (1, Revision(4))
    );
}

#[test]
fn wa_2_to_5_ids_are_chosen_or_assigned_and_unique() {
    let (engine, _) = engine();
    let mut stream = engine.watch_stream();
    let mut watch = |id: Option<i64>| {
        let mut options = WatchOptions::of(KeyRange::one("a"));
        options.id = id.map(WatchId);
        stream.watch(options).map(|created| created.id.0)
    };
    assert_eq!(watch(Some(1)), Ok(1));
    assert_eq!(watch(Some(-7)), Ok(-7));
    assert_eq!(watch(None), Ok(0));
    assert_eq!(watch(None), Ok(2));
    assert_eq!(watch(Some(2)), Err(WatchError::DuplicateId));
    assert_eq!(watch(Some(-1)), Err(WatchError::DuplicateId));
    assert!(stream.cancel(WatchId(2)) && !stream.cancel(WatchId(2)));
    let options = WatchOptions::of(KeyRange::one("a")).with_id(WatchId(2));
    assert_eq!(stream.watch(options).unwrap().id, WatchId(2));
    assert_eq!(
        stream
            .watch(WatchOptions::of(KeyRange::one("a")))
            .unwrap()
            .id,
        WatchId(3)
    );
}

#[test]
fn wa_7_and_14_invalid_watches_are_rejected() {
    let (engine, _) = engine();
    let mut stream = engine.watch_stream();
    let empty = WatchOptions::of(KeyRange::within("b", "a"));
    assert_eq!(stream.watch(empty), Err(WatchError::EmptyRange));
    let negative = WatchOptions::of(KeyRange::all()).from(Revision(-3));
    assert_eq!(stream.watch(negative), Err(WatchError::Compacted));
    assert!(stream.is_empty());
}

#[test]
fn wa_20_a_cancelled_watch_delivers_nothing_more() {
    let (engine, _) = engine();
    let mut stream = engine.watch_stream();
    let first = stream.watch(WatchOptions::of(KeyRange::all())).unwrap().id;
    stream.watch(WatchOptions::of(KeyRange::all())).unwrap();
    engine.put("a", "1").unwrap();
    assert!(stream.cancel(first));
    engine.put("a", "2").unwrap();
    assert_eq!(drain(&mut stream), [(1, 2), (1, 3)]);
    assert_eq!(engine.stats().watches, 1);
    drop(stream);
    assert_eq!(engine.stats().watches, 0);
}

#[test]
fn wa_33_the_previous_version_is_the_one_before_the_transaction_unless_compacted() {
    let (engine, _) = engine();
    engine.put("a", "old").unwrap();
    let options = || WatchOptions::of(KeyRange::all()).with_prev_kv();
    let mut watcher = engine.watch(options()).unwrap();
    engine.put("a", "new").unwrap();
    engine.put("b", "first").unwrap();
    let twice = Txn::new().and_then([
        Op::Delete(KeyRange::one("a")),
        Op::Put(Put::new("a", "again")),
    ]);
    engine.txn(&twice).unwrap();
    let mut previous = Vec::new();
    while let Some(batch) = watcher.try_next() {
        for event in &batch.unwrap().events {
            previous.push(event.prev_kv.as_ref().map(|kv| kv.value().to_vec()));
        }
    }
    let (old, new) = (Some(b"old".to_vec()), Some(b"new".to_vec()));
    // The last put is a creation, because the key was deleted before it (TXN-7).
    assert_eq!(previous, [old, None, new, None]);
    engine.compact(Revision(3)).unwrap().run();
    let mut watcher = engine.watch(options().from(Revision(3))).unwrap();
    let events = watcher.try_next().unwrap().unwrap().events;
    assert_eq!(events[0].kv.value(), b"new");
    assert!(events[0].prev_kv.is_none());
}

#[test]
fn wa_40_to_42_a_watch_below_the_compacted_revision_ends_and_keeps_its_id() {
    let (engine, _) = engine();
    for value in ["1", "2", "3"] {
        engine.put("a", value).unwrap();
    }
    engine.compact(Revision(3)).unwrap().run();
    let mut stream = engine.watch_stream();
    let past = |start| {
        WatchOptions::of(KeyRange::all())
            .from(Revision(start))
            .with_id(WatchId(5))
    };
    stream.watch(past(2)).unwrap();
    let end = WatchResponse::Compacted {
        id: WatchId(5),
        compacted: Revision(3),
    };
    assert_eq!(stream.try_next(), Some(end));
    assert_eq!(stream.try_next(), None);
    assert_eq!(stream.watch(past(3)), Err(WatchError::DuplicateId));
    assert!(stream.cancel(WatchId(5)));
    // WA-41: the compacted revision itself can be watched.
    stream.watch(past(3)).unwrap();
    assert_eq!(drain(&mut stream), [(5, 3), (5, 4)]);
}

#[test]
fn fl_17_a_watch_from_below_the_start_revision_ends() {
    let engine = Engine::builder()
        .start_revision(Revision(1000))
        .unwrap()
        .build();
    assert_eq!(engine.compacted_revision(), Some(Revision(1000)));
    let past = |start| WatchOptions::of(KeyRange::all()).from(Revision(start));
    let mut before = engine.watch(past(999)).unwrap();
    assert_eq!(
        before.next_blocking(),
        Some(Err(WatchEnd::Compacted {
            compacted: Revision(1000)
        }))
    );
    let mut from_start = engine.watch(past(1000)).unwrap();
    let written = engine.put("a", "1").unwrap().revision;
    let first = from_start.next_blocking().unwrap().unwrap();
    assert_eq!(first.events[0].kv.mod_revision(), written);
    assert_eq!(written, Revision(1001));
}

#[test]
fn wa_43_an_unsynced_watch_delivers_its_queued_events_and_ends_after_a_compaction() {
    let (engine, _) = engine();
    let mut watcher = engine.watch(WatchOptions::of(KeyRange::all())).unwrap();
    let writes = 40_000;
    for _ in 0..writes {
        engine.put("a", "v").unwrap();
    }
    engine.compact(engine.current_revision()).unwrap().run();
    let mut last = 1;
    let end = loop {
        match watcher.try_next().unwrap() {
            Ok(batch) => {
                for event in &batch.events {
                    last += 1;
                    assert_eq!(event.kv.mod_revision().0, last, "I5: a gap");
                }
            }
            Err(end) => break end,
        }
    };
    assert!(last < writes);
    assert_eq!(
        end,
        WatchEnd::Compacted {
            compacted: engine.current_revision()
        }
    );
}

#[test]
fn wa_18_a_watch_without_events_in_its_past_is_synced_at_once() {
    let (engine, _) = engine();
    for _ in 0..2000 {
        engine.put("other", "v").unwrap();
    }
    let past = WatchOptions::of(KeyRange::one("mine")).from(Revision(2));
    let mut watcher = engine.watch(past).unwrap();
    engine.compact(engine.current_revision()).unwrap().run();
    engine.put("mine", "v").unwrap();
    assert_eq!(watcher.try_next().unwrap().unwrap().events.len(), 1);
}

#[test]
fn an_iterator_of_a_watcher_ends_after_the_end_of_the_watch() {
    let (engine, _) = engine();
    engine.put("a", "1").unwrap();
    engine.put("a", "2").unwrap();
    let mut watcher = engine.watch(WatchOptions::of(KeyRange::all())).unwrap();
    engine.put("a", "3").unwrap();
    let first = watcher.iter().next().unwrap().unwrap();
    assert_eq!(first.revision, Revision(4));
    engine.compact(Revision(4)).unwrap().run();
    let past = WatchOptions::of(KeyRange::all()).from(Revision(2));
    let mut ended = engine.watch(past).unwrap();
    let batches: Vec<_> = (&mut ended).into_iter().collect();
    let compacted = Revision(4);
    assert_eq!(batches, [Err(WatchEnd::Compacted { compacted })]);
    assert_eq!(ended.iter().next(), None);
}

#[test]
fn large_values_are_read_from_the_log_in_several_batches() {
    let (engine, _) = engine();
    for _ in 0..40 {
        engine.put("large", vec![0; 100_000]).unwrap();
    }
    let past = WatchOptions::of(KeyRange::all()).from(Revision(2));
    let mut watcher = engine.watch(past).unwrap();
    let mut batch_sizes = Vec::new();
    while let Some(batch) = watcher.try_next() {
        batch_sizes.push(batch.unwrap().events.len());
    }
    assert_eq!(batch_sizes, [11, 11, 11, 7]);
}

#[test]
fn wa_53_progress_requires_synced_watches_and_follows_the_events_that_it_covers() {
    let (engine, _) = engine();
    let mut stream = engine.watch_stream();
    stream.request_progress();
    assert_eq!(stream.try_next(), None, "a response without watches");
    stream.watch(WatchOptions::of(KeyRange::one("a"))).unwrap();
    engine.put("a", "1").unwrap();
    engine.put("b", "1").unwrap();
    stream.request_progress();
    stream.request_progress();
    assert!(matches!(
        stream.try_next(),
        Some(WatchResponse::Events { .. })
    ));
    assert_eq!(
        progress(&mut stream),
        [(None, 3)],
        "I6, WA-55: one response, after the events"
    );
    stream
        .watch(WatchOptions::of(KeyRange::one("c")).from(Revision(9)))
        .unwrap();
    stream.request_progress();
    assert_eq!(
        stream.try_next(),
        None,
        "a response while a watch starts at a later revision"
    );
}

#[test]
fn wa_50_to_52_idle_watches_get_progress_at_intervals() {
    let clock = ManualClock::new();
    let interval = Duration::from_secs(10);
    let engine = Engine::builder()
        .clock(clock.clone())
        .progress_interval(interval)
        .build();
    let mut stream = engine.watch_stream();
    let options = WatchOptions::of(KeyRange::one("a"));
    stream.watch(options.clone().with_progress()).unwrap();
    stream.watch(options).unwrap();
    engine.put("b", "1").unwrap();
    clock.advance(interval);
    assert_eq!(progress(&mut stream), [(Some(0), 2)]);
    engine.put("a", "1").unwrap();
    clock.advance(interval);
    assert_eq!(
        progress(&mut stream),
        [],
        "WA-52: no progress for a watch with events"
    );
    clock.advance(interval);
    assert_eq!(progress(&mut stream), [(Some(0), 3)]);
}

#[test]
fn progress_responses_for_a_stalled_reader_are_bounded() {
    let clock = ManualClock::new();
    let interval = Duration::from_millis(100);
    let engine = Engine::builder()
        .clock(clock.clone())
        .progress_interval(interval)
        .build();
    let mut stream = engine.watch_stream();
    for _ in 0..100 {
        let options = WatchOptions::of(KeyRange::one("a"));
        stream.watch(options.with_progress()).unwrap();
    }
    clock.advance(interval * 1000);
    assert!(progress(&mut stream).len() <= 16 * 1024);
}

#[test]
fn blocked_threads_are_woken_and_get_every_event_once() {
    let (engine, _) = engine();
    let per_writer = 500;
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let mut watcher = engine.watch(WatchOptions::of(KeyRange::all())).unwrap();
            thread::spawn(move || {
                let mut next = 2;
                while next < 2 + 2 * per_writer {
                    for event in &watcher.next_blocking().unwrap().unwrap().events {
                        assert_eq!(event.kv.mod_revision().0, next);
                        next += 1;
                    }
                }
            })
        })
        .collect();
    let writers: Vec<_> = (0..2)
        .map(|writer| {
            let engine = engine.clone();
            thread::spawn(move || {
                for number in 0..per_writer {
                    engine.put(format!("{writer}/{}", number % 3), "v").unwrap();
                }
            })
        })
        .collect();
    for thread in writers.into_iter().chain(readers) {
        thread.join().unwrap();
    }
}

/// Two consumers with encodings of their own once got each other's bytes.
#[test]
fn an_encoding_is_returned_only_to_callers_that_name_it() {
    struct Json;
    struct Binary;
    let engine = Engine::builder().build();
    let mut one = engine.watch(WatchOptions::of(KeyRange::all())).unwrap();
    let mut other = engine.watch(WatchOptions::of(KeyRange::all())).unwrap();
    engine.put("k", "v").unwrap();
    let one = one.try_next().unwrap().unwrap().events;
    let other = other.try_next().unwrap().unwrap().events;
    assert_eq!(one.encoded::<Json>(|_| "{}".into()).unwrap(), "{}");
    assert_eq!(other.encoded::<Binary>(|_| "\0".into()), None);
    assert_eq!(other.encoded::<Json>(|_| unreachable!()).unwrap(), "{}");
}
