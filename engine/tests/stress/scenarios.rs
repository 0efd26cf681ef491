//! Bugs that etcd once had, provoked here by name.
//!
//! Where a bug needs a race, two threads run into it many times and the judges look at what came out;
//! where it needs only an order of calls, the test makes them.
//!
//! | what etcd once did | tests, by what their names begin with |
//! |---|---|
//! | progress overtook events | `progress_does_not_overtake` (2) |
//! | events were lost while a watch starved | `a_starving_watch` |
//! | an event was dropped when compacting on a delete | `compacting_on_a_delete`, `compacting_on_deletes` |
//! | a watch opened at the compaction revision missed its delete | `a_watch_that_opens_at`, `watches_that_open_at` |
//! | events came twice after a transaction | `nothing_comes_twice` |
//! | a watch of the future was told old events | `a_watch_of_the_future` (2) |
//! | a transaction that read a compacted revision was half applied | `a_transaction_that_reads`, `transactions_that_read` |

use std::{fmt, thread};

use revstore_engine::{
    Engine, KeyRange, ManualClock, Op, Put, Range, ReadError, Revision, Txn, TxnError,
    WatchOptions, WatchResponse,
};

use crate::history::{Recorder, Request, Response};
use crate::mix::judge;
use crate::watched::{Reader, Told, Watched};

fn recorder() -> Recorder {
    Recorder::new(Engine::builder().clock(ManualClock::new()).build())
}

fn put(recorder: &Recorder, key: &str, value: impl fmt::Display) -> i64 {
    let put = Put::new(key.to_owned(), value.to_string());
    let response = recorder.run(Request::Put(put));
    response.revision().expect("a legal put")
}

fn delete(recorder: &Recorder, key: &str) -> i64 {
    let response = recorder.run(Request::Delete(KeyRange::one(key.to_owned())));
    response.revision().expect("deletions have revisions")
}

fn compact(recorder: &Recorder, mark: i64) {
    let response = recorder.run(Request::Compact(mark));
    assert_eq!(response, Response::Compacted);
}

fn all_from(revision: i64) -> WatchOptions {
    WatchOptions::of(KeyRange::all()).from(Revision(revision))
}

fn puts(keys: impl IntoIterator<Item = usize>, value: usize) -> Txn {
    let put = |key| Op::Put(Put::new(format!("k{key}"), value.to_string()));
    Txn::new().and_then(keys.into_iter().map(put))
}

/// Writes while somebody watches, then ends the history and judges it.
fn race(
    write: impl FnOnce(&Recorder) + Send,
    watch: impl FnOnce(&Recorder) -> Vec<Watched> + Send,
) -> Vec<Watched> {
    let recorder = recorder();
    let watched = thread::scope(|scope| {
        let recorder = &recorder;
        let watcher = scope.spawn(move || watch(recorder));
        let writer = scope.spawn(move || write(recorder)).join();
        // Also if the writer failed: the watcher waits for this.
        recorder.end();
        writer.expect("the writer failed");
        watcher.join().expect("the watcher failed")
    });
    judge(&recorder, &watched);
    watched
}

/// On a busy machine, all may be written before the watcher runs at all; it waited forever once.
#[test]
fn a_reader_that_comes_behind_the_end_does_not_wait_for_it() {
    let recorder = recorder();
    put(&recorder, "k", 1);
    recorder.end();
    let mut reader = Reader::new(&recorder);
    reader.watch(all_from(2));
    assert!(!reader.wait());
    let watched = reader.finish();
    judge(&recorder, &watched);
    assert!(watched.iter().any(|one| revisions(one) == [2, 3]));
}

/// The revisions that a watch told of.
fn revisions(watched: &Watched) -> Vec<i64> {
    watched.events().map(|event| event.change.main).collect()
}

#[test]
fn progress_does_not_overtake_events() {
    let watched = race(
        |recorder| {
            for number in 0..600 {
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
    let progress = |told: &Told| matches!(told, Told::Progress(_));
    assert!(watched.iter().any(|one| one.told.iter().any(progress)));
}

/// The same bug by another way, which was once in our own engine: progress that was asked for before a
/// watch of the past was added is not true of that watch.
#[test]
fn progress_does_not_overtake_events_of_a_watch_that_came_later() {
    let recorder = recorder();
    let mut reader = Reader::new(&recorder);
    reader.watch(WatchOptions::of(KeyRange::one("other")));
    // More than one step of catching up looks at.
    for number in 0..1500 {
        put(&recorder, "k", number);
    }
    reader.request_progress();
    reader.watch(all_from(2));
    let watched = reader.drain();
    judge(&recorder, &watched);
}

#[test]
fn a_starving_watch_loses_no_events() {
    // Each transaction fills a good third of the queue, so the watch falls behind again and again, and is
    // read just enough to come back in between.
    const KEYS: usize = 6000;
    let recorder = recorder();
    let mut reader = Reader::new(&recorder);
    reader.watch(WatchOptions::of(KeyRange::prefix("k")));
    let mut starved = 0;
    for round in 0..6 {
        recorder.run(Request::Txn(puts(0..KEYS, round)));
        if round % 3 == 2 {
            starved += recorder.engine.stats().unsynced_watches;
            while reader.poll() {}
            assert_eq!(recorder.engine.stats().unsynced_watches, 0);
        }
    }
    assert_eq!(starved, 2, "the queue held everything");
    put(&recorder, "k0", "live again");
    judge(&recorder, &reader.drain());
}

#[test]
fn compacting_on_a_delete_drops_no_event_of_a_watch_that_is_behind() {
    // Unsynced at the tombstone, or behind it, or just in front of it, when the compaction comes.
    for (start, expected) in [(3, vec![3, 4]), (4, vec![4])] {
        let recorder = recorder();
        put(&recorder, "a", 1);
        let deleted = delete(&recorder, "a");
        put(&recorder, "b", 1);
        let mut stream = recorder.engine.watch_stream();
        stream.watch(all_from(start)).expect("a legal watch");
        compact(&recorder, deleted);
        let mut told = Vec::new();
        while let Some(response) = stream.try_next() {
            match response {
                WatchResponse::Events { events, .. } => {
                    told.extend(events.iter().map(|event| event.kv.mod_revision().0));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(told, expected, "from {start}");
    }
}

#[test]
fn compacting_on_deletes_while_somebody_watches_drops_no_event() {
    race(
        |recorder| {
            for number in 0..300 {
                put(recorder, "k", number);
                let deleted = delete(recorder, "k");
                compact(recorder, deleted);
            }
        },
        |recorder| {
            let mut reader = Reader::new(recorder);
            let id = reader.watch(WatchOptions::of(KeyRange::all()));
            while reader.wait() {
                reader.resume(id);
            }
            reader.finish()
        },
    );
}

#[test]
fn a_watch_that_opens_at_the_compaction_revision_sees_its_delete() {
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
    judge(&recorder, &watched);
    for watched in &watched[..2] {
        let told = revisions(watched);
        assert_eq!(told, [deleted, deleted, deleted, deleted + 1]);
    }
}

#[test]
fn watches_that_open_at_the_mark_while_it_moves_see_its_delete_or_are_refused() {
    let watched = race(
        |recorder| {
            for number in 0..300 {
                put(recorder, "k", number);
                let deleted = delete(recorder, "k");
                compact(recorder, deleted);
            }
        },
        |recorder| {
            let mut reader = Reader::new(recorder);
            for _ in 0..60 {
                let mark = recorder.engine.compacted_revision();
                reader.watch(all_from(mark.map_or(1, |mark| mark.0)));
                for _ in 0..20 {
                    reader.wait();
                }
            }
            reader.finish()
        },
    );
    let at_a_mark = watched.iter().filter(|watched| watched.from > 1);
    for watched in at_a_mark.filter(|watched| watched.range == KeyRange::all()) {
        assert!(
            revisions(watched).first() == Some(&watched.from) || watched.compacted().is_some(),
            "{watched:?}"
        );
    }
}

#[test]
fn nothing_comes_twice_after_a_transaction() {
    // Watches begin at every revision while transactions of several keys, some twice, go on.
    race(
        |recorder| {
            for number in 0..300 {
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
}

#[test]
fn a_watch_of_the_future_is_not_told_of_what_came_before() {
    race(
        |recorder| {
            for number in 0..600 {
                put(recorder, "k", number);
            }
        },
        |recorder| {
            let mut reader = Reader::new(recorder);
            for _ in 0..40 {
                let current = recorder.engine.current_revision().0;
                // Some are overtaken while they are being created.
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
}

#[test]
fn a_watch_of_the_future_that_falls_behind_is_not_told_of_what_came_before() {
    let recorder = recorder();
    let mut reader = Reader::new(&recorder);
    reader.watch(all_from(3));
    for round in 0..4 {
        recorder.run(Request::Txn(puts(0..6000, round)));
    }
    assert_eq!(recorder.engine.stats().unsynced_watches, 1);
    let watched = reader.drain();
    judge(&recorder, &watched);
    assert_eq!(revisions(&watched[0]).first(), Some(&3));
}

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
    let refused = Response::Refused(TxnError::Read(ReadError::Compacted {
        requested: Revision(3),
        compacted: Revision(4),
    }));
    assert_eq!(recorder.run(Request::Txn(txn)), refused);
    assert_eq!(recorder.engine.current_revision(), Revision(4));
    judge(&recorder, &[]);
}

#[test]
fn transactions_that_read_what_is_being_compacted_read_it_or_are_refused() {
    let recorder = recorder();
    thread::scope(|scope| {
        let recorder = &recorder;
        scope.spawn(move || {
            for number in 0..300 {
                let current = put(recorder, "a", number);
                compact(recorder, current);
            }
        });
        scope.spawn(move || {
            for number in 0..300 {
                let current = recorder.engine.current_revision();
                recorder.run(Request::Txn(Txn::new().and_then([
                    Op::Range(Range::of(KeyRange::all())),
                    Op::Put(Put::new("b", number.to_string())),
                    Op::Range(Range::of(KeyRange::all()).at(current)),
                ])));
            }
        });
    });
    judge(&recorder, &[]);
}
