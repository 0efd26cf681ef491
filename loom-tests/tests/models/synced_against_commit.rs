//! I5, I9: a watch that falls behind its queue and catches up again sees every event once.

use loom_tests::{drain, race, run_broken, run_model};
use revstore_engine::{Engine, Fault, KeyRange, WatchOptions};

fn model(engine: &Engine) {
    // The queue holds two events: the third makes the watch unsynced.
    let mut watcher = engine
        .watch(WatchOptions::of(KeyRange::all()))
        .expect("a legal watch");
    for value in ["1", "2", "3"] {
        engine.put("k", value).expect("a legal put");
    }
    let write = |engine: &Engine| {
        engine.put("k", "4").expect("a legal put");
    };
    let read = |_: &Engine| {
        let (seen, _) = drain(&mut watcher);
        (watcher, seen)
    };
    let ((), (mut watcher, mut seen)) = race(engine, write, read);
    seen.extend(drain(&mut watcher).0);
    assert_eq!(seen, [2, 3, 4, 5], "a gap or a double");
}

#[test]
fn falling_behind_and_catching_up_loses_nothing() {
    run_model(model);
}

#[test]
#[should_panic(expected = "a gap or a double")]
fn joining_blindly_is_found() {
    run_broken(Fault::JoinBlindly, model);
}
