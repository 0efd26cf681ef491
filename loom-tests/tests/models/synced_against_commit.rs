//! I5, I9: a watch that catches up after its queue has overflowed delivers every event once.

use loom_tests::{drain, race, run_broken, run_model};
use revstore_engine::{Engine, Fault, KeyRange, WatchOptions};

fn model(engine: &Engine) {
    // The queue holds two events: the third makes the watch unsynced.
    let mut watcher = engine
        .watch(WatchOptions::of(KeyRange::all()))
        .expect("a valid watch");
    for value in ["1", "2", "3"] {
        engine.put("k", value).expect("a valid put");
    }
    let write = |engine: &Engine| {
        engine.put("k", "4").expect("a valid put");
    };
    let read = |_: &Engine| {
        let (seen, _) = drain(&mut watcher);
        (watcher, seen)
    };
    let ((), (mut watcher, mut seen)) = race(engine, write, read);
    seen.extend(drain(&mut watcher).0);
    assert_eq!(seen, [2, 3, 4, 5], "an event is missing or repeated");
}

#[test]
fn a_watch_that_catches_up_delivers_every_event_once() {
    run_model(model);
}

#[test]
#[should_panic(expected = "an event is missing or repeated")]
fn marking_a_watch_synced_without_a_check_is_detected() {
    run_broken(Fault::MarkSyncedUnchecked, model);
}
