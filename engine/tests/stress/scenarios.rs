//! Scenarios of bugs that earlier versions of etcd had.
//!
//! For a bug that needs a race, two threads repeat the calls many times and the recorded history is
//! checked. For the others, the test makes the calls in the order that caused the bug.
//!
//! | bug in etcd | start of the names of the tests |
//! |---|---|
//! | progress was delivered before events that it covers | `progress_does_not_overtake` (2) |
//! | a watch that was not read lost events | `a_watch_that_is_not_read` |
//! | an event was lost in a compaction at the revision of a delete | `compacting_on_a_delete`, `compacting_on_deletes` |
//! | a watch that started at the compacted revision missed its delete | `a_watch_that_starts_at`, `watches_that_start_at` |
//! | events were delivered twice after a transaction | `no_event_is_delivered_twice` |
//! | a watch with a future start revision delivered old events | `a_watch_with_a_future_start` (2) |
//! | a transaction that failed to read a compacted revision was partly applied | `a_transaction_that_reads`, `transactions_that_read` |

use std::fmt;

use revstore_engine::{KeyRange, Op, Put, Range, Revision, Txn, WatchOptions};
#[cfg(not(shuttle))]
use revstore_engine::{ReadError, WatchResponse};
use revstore_verify::thread;

#[cfg(not(shuttle))]
use crate::history::Failure;
use crate::history::{Recorder, Request, Response};
use crate::mix::{builder, repeat, validate};
use crate::watched::{Delivery, Reader, Watched};

fn recorder() -> Recorder {
    Recorder::new(builder().build())
}

fn put(recorder: &Recorder, key: &str, value: impl fmt::Display) -> i64 {
    let put = Put::new(key.to_owned(), value.to_string());
    let response = recorder.run(Request::Put(put));
    response.revision().expect("a valid put")
}

fn delete(recorder: &Recorder, key: &str) -> i64 {
    let response = recorder.run(Request::Delete(KeyRange::one(key.to_owned())));
    response.revision().expect("deletions have revisions")
}

fn compact(recorder: &Recorder, revision: i64) {
    let response = recorder.run(Request::Compact(revision));
    assert_eq!(response, Response::Compacted);
}

fn all_from(revision: i64) -> WatchOptions {
    WatchOptions::of(KeyRange::all()).from(Revision(revision))
}

fn puts(keys: impl IntoIterator<Item = usize>, value: usize) -> Txn {
    let put = |key| Op::Put(Put::new(format!("k{key}"), value.to_string()));
    Txn::new().and_then(keys.into_iter().map(put))
}

/// Returns the number of repetitions of a race: under shuttle a few suffice, as there are many
/// schedules.
fn rounds(rounds: usize) -> usize {
    if cfg!(shuttle) { rounds / 20 } else { rounds }
}

/// Runs `write` and `watch` on two threads, ends the history and validates it.
fn race(
    write: impl FnOnce(&Recorder) + Send,
    watch: impl FnOnce(&Recorder) -> Vec<Watched> + Send,
) -> Vec<Watched> {
    let recorder = recorder();
    let watched = thread::scope(|scope| {
        let recorder = &recorder;
        let watcher = scope.spawn(move || watch(recorder));
        let writer = scope.spawn(move || write(recorder)).join();
        // Also if the writer panicked, because the watcher waits for the end.
        recorder.end();
        writer.expect("the writer does not panic");
        watcher.join().expect("the watcher does not panic")
    });
    validate(&recorder, &watched);
    watched
}

/// On a busy machine, everything may be written before the watcher runs.
#[cfg(not(shuttle))]
#[test]
fn a_reader_created_after_the_end_does_not_wait_for_it() {
    let recorder = recorder();
    put(&recorder, "k", 1);
    recorder.end();
    let mut reader = Reader::new(&recorder);
    reader.watch(all_from(2));
    assert!(!reader.wait());
    let watched = reader.finish();
    validate(&recorder, &watched);
    assert!(watched.iter().any(|watch| revisions(watch) == [2, 3]));
}

/// Puts and deletes a key again and again, and compacts at each deletion.
fn compact_on_deletes(recorder: &Recorder) {
    for number in 0..rounds(300) {
        put(recorder, "k", number);
        let deleted = delete(recorder, "k");
        compact(recorder, deleted);
    }
}

/// Returns the revisions of the events of a watch.
fn revisions(watched: &Watched) -> Vec<i64> {
    watched
        .events()
        .map(|event| event.change.revision)
        .collect()
}

#[test]
fn progress_does_not_overtake_events() {
    repeat(|| {
        let watched = race(
            |recorder| {
                for number in 0..rounds(600) {
                    put(recorder, &format!("k{}", number % 3), number);
                }
            },
            |recorder| {
                let mut reader = Reader::new(recorder);
                for key in ["k0", "k1", "k2"] {
                    reader.watch(WatchOptions::of(KeyRange::one(key)));
                }
                reader.request_progress();
                while reader.wait() {
                    reader.request_progress();
                }
                reader.finish()
            },
        );
        let is_progress = |delivery: &Delivery| matches!(delivery, Delivery::Progress(_));
        let mut deliveries = watched.iter().flat_map(|watch| &watch.deliveries);
        assert!(deliveries.any(is_progress));
    });
}

/// A variant of the bug that this engine had: progress that was requested before a watch with a
/// past start revision was added does not hold for that watch.
#[cfg(not(shuttle))]
#[test]
fn progress_does_not_overtake_events_of_a_watch_added_later() {
    let recorder = recorder();
    let mut reader = Reader::new(&recorder);
    reader.watch(WatchOptions::of(KeyRange::one("other")));
    // More records than one catch-up step visits.
    for number in 0..1500 {
        put(&recorder, "k", number);
    }
    reader.request_progress();
    reader.watch(all_from(2));
    let watched = reader.drain();
    validate(&recorder, &watched);
}

#[cfg(not(shuttle))]
#[test]
fn a_watch_that_is_not_read_loses_no_events() {
    // Each transaction fills more than a third of the queue, so the queue overflows in every third
    // round, and the watch catches up after that.
    const KEYS: usize = 6000;
    let recorder = recorder();
    let mut reader = Reader::new(&recorder);
    reader.watch(WatchOptions::of(KeyRange::prefix("k")));
    let mut overflows = 0;
    for round in 0..6 {
        recorder.run(Request::Txn(puts(0..KEYS, round)));
        if round % 3 == 2 {
            overflows += recorder.engine.stats().unsynced_watches;
            while reader.poll() {}
            assert_eq!(recorder.engine.stats().unsynced_watches, 0);
        }
    }
    assert_eq!(overflows, 2, "the queue did not overflow");
    put(&recorder, "k0", "synced again");
    validate(&recorder, &reader.drain());
}

#[cfg(not(shuttle))]
#[test]
fn compacting_on_a_delete_drops_no_event_of_an_unsynced_watch() {
    // At the time of the compaction, the unsynced watch is just before the tombstone, or at it.
    for (start, expected) in [(3, vec![3, 4]), (4, vec![4])] {
        let recorder = recorder();
        put(&recorder, "a", 1);
        let deleted = delete(&recorder, "a");
        put(&recorder, "b", 1);
        let mut stream = recorder.engine.watch_stream();
        stream.watch(all_from(start)).expect("a valid watch");
        compact(&recorder, deleted);
        let mut delivered = Vec::new();
        while let Some(response) = stream.try_next() {
            match response {
                WatchResponse::Events { events, .. } => {
                    delivered.extend(events.iter().map(|event| event.kv.mod_revision().0));
                }
                other => panic!("expected events, got {other:?}"),
            }
        }
        assert_eq!(delivered, expected, "from {start}");
    }
}

#[test]
fn compacting_on_deletes_drops_no_event_of_a_concurrent_watch() {
    repeat(|| {
        race(compact_on_deletes, |recorder| {
            let mut reader = Reader::new(recorder);
            let id = reader.watch(WatchOptions::of(KeyRange::all()));
            while reader.wait() {
                reader.resume(id);
            }
            reader.finish()
        });
    });
}

#[cfg(not(shuttle))]
#[test]
fn a_watch_that_starts_at_the_compacted_revision_delivers_its_delete() {
    let recorder = recorder();
    recorder.run(Request::Txn(puts(0..3, 0)));
    let deleted = recorder.run(Request::Delete(KeyRange::prefix("k")));
    let deleted = deleted.revision().expect("deletions have revisions");
    put(&recorder, "k1", 1);
    compact(&recorder, deleted);
    let mut reader = Reader::new(&recorder);
    reader.watch(all_from(deleted));
    reader.watch(all_from(deleted).with_prev_kv());
    let watched = reader.drain();
    validate(&recorder, &watched);
    for watched in &watched[..2] {
        let delivered = revisions(watched);
        assert_eq!(delivered, [deleted, deleted, deleted, deleted + 1]);
    }
}

#[test]
fn watches_that_start_at_the_compacted_revision_deliver_its_delete_or_end() {
    repeat(|| {
        let watched = race(compact_on_deletes, |recorder| {
            let mut reader = Reader::new(recorder);
            for _ in 0..60 {
                let compacted = recorder.engine.compacted_revision();
                reader.watch(all_from(compacted.map_or(1, |revision| revision.0)));
                for _ in 0..20 {
                    reader.wait();
                }
            }
            reader.finish()
        });
        let at_compacted = watched.iter().filter(|watched| watched.from > 1);
        for watched in at_compacted.filter(|watched| watched.range == KeyRange::all()) {
            assert!(
                revisions(watched).first() == Some(&watched.from) || watched.compacted().is_some(),
                "{watched:?}"
            );
        }
    });
}

#[test]
fn no_event_is_delivered_twice_after_a_transaction() {
    repeat(|| {
        // Watches start at many revisions while transactions write several keys, some of them twice.
        race(
            |recorder| {
                for number in 0..rounds(300) {
                    recorder.run(Request::Txn(puts([0, 1, 2, 0], number)));
                }
            },
            |recorder| {
                let mut reader = Reader::new(recorder);
                let live = WatchOptions::of(KeyRange::all());
                let mut ids = vec![reader.watch(live), reader.watch(all_from(2))];
                while reader.wait() {
                    if ids.len() < 12 {
                        let current = recorder.engine.current_revision().0;
                        ids.push(reader.watch(all_from(current)));
                    }
                    reader.resume(ids[1]);
                }
                reader.finish()
            },
        );
    });
}

#[test]
fn a_watch_with_a_future_start_delivers_no_earlier_events() {
    repeat(|| {
        race(
            |recorder| {
                for number in 0..rounds(600) {
                    put(recorder, "k", number);
                }
            },
            |recorder| {
                let mut reader = Reader::new(recorder);
                for _ in 0..40 {
                    let current = recorder.engine.current_revision().0;
                    // The current revision may pass some of these while they are created.
                    for ahead in [1, 2, 30] {
                        reader.watch(all_from(current + ahead));
                    }
                    for _ in 0..60 {
                        reader.wait();
                    }
                }
                reader.finish()
            },
        );
    });
}

#[cfg(not(shuttle))]
#[test]
fn a_watch_with_a_future_start_whose_queue_overflows_delivers_no_earlier_events() {
    let recorder = recorder();
    let mut reader = Reader::new(&recorder);
    reader.watch(all_from(3));
    for round in 0..4 {
        recorder.run(Request::Txn(puts(0..6000, round)));
    }
    assert_eq!(recorder.engine.stats().unsynced_watches, 1);
    let watched = reader.drain();
    validate(&recorder, &watched);
    assert_eq!(revisions(&watched[0]).first(), Some(&3));
}

#[cfg(not(shuttle))]
#[test]
fn a_transaction_that_reads_a_compacted_revision_changes_nothing() {
    let recorder = recorder();
    for number in 0..3 {
        put(&recorder, "k", number);
    }
    compact(&recorder, 4);
    let txn = Txn::new().and_then([
        Op::Put(Put::new("k", "new")),
        Op::Range(Range::of(KeyRange::all()).at(Revision(3))),
    ]);
    let failed = Response::Failed(Failure::Read(ReadError::Compacted {
        requested: Revision(3),
        compacted: Revision(4),
    }));
    assert_eq!(recorder.run(Request::Txn(txn)), failed);
    assert_eq!(recorder.engine.current_revision(), Revision(4));
    validate(&recorder, &[]);
}

#[test]
fn transactions_that_read_history_during_its_compaction_succeed_or_change_nothing() {
    repeat(|| {
        let recorder = recorder();
        thread::scope(|scope| {
            let recorder = &recorder;
            scope.spawn(move || {
                for number in 0..rounds(300) {
                    let current = put(recorder, "a", number);
                    compact(recorder, current);
                }
            });
            scope.spawn(move || {
                for number in 0..rounds(300) {
                    let current = recorder.engine.current_revision();
                    recorder.run(Request::Txn(Txn::new().and_then([
                        Op::Range(Range::of(KeyRange::all())),
                        Op::Put(Put::new("b", number.to_string())),
                        Op::Range(Range::of(KeyRange::all()).at(current)),
                    ])));
                }
            });
        });
        validate(&recorder, &[]);
    });
}
