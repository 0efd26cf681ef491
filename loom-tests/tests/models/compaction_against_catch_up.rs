//! I5, I7: a watch that reads history while it is compacted gets every event or a typed end.

use loom_tests::{drain, race, revision, run_broken, run_model};
use revstore_engine::{Engine, Fault, KeyRange, WatchOptions};

fn model(engine: &Engine) {
    for value in ["1", "2", "3"] {
        engine.put("k", value).expect("a legal put");
    }
    let compact = |engine: &Engine| {
        engine
            .compact(revision(4))
            .expect("the current revision")
            .run();
    };
    let catch_up = |engine: &Engine| {
        let past = WatchOptions::of(KeyRange::all()).from(revision(2));
        let mut watcher = engine.watch(past).expect("a legal watch");
        let (seen, end) = drain(&mut watcher);
        assert!([2, 3, 4].starts_with(&seen), "a gap: {seen:?}");
        assert!(seen.len() == 3 || end.is_some(), "a silent end: {seen:?}");
    };
    race(engine, compact, catch_up);
}

#[test]
fn history_is_whole_or_ends_in_compacted() {
    run_model(model);
}

#[test]
#[should_panic(expected = "a gap")]
fn looking_at_the_mark_only_once_is_found() {
    run_broken(Fault::CatchUpLooksOnce, model);
}
