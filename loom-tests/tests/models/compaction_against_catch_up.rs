//! I5, I7: a watch that reads the log during a compaction delivers every event, or ends with
//! `WatchEnd::Compacted`.

use loom_tests::{drain, race, run_broken, run_model};
use revstore_engine::{Engine, Fault, KeyRange, Revision, WatchOptions};

fn model(engine: &Engine) {
    for value in ["1", "2", "3"] {
        engine.put("k", value).expect("a valid put");
    }
    let compact = |engine: &Engine| {
        engine
            .compact(Revision(4))
            .expect("the current revision")
            .run();
    };
    let catch_up = |engine: &Engine| {
        let past = WatchOptions::of(KeyRange::all()).from(Revision(2));
        let mut watcher = engine.watch(past).expect("a valid watch");
        let (seen, end) = drain(&mut watcher);
        assert!([2, 3, 4].starts_with(&seen), "a gap: {seen:?}");
        assert!(
            seen.len() == 3 || end.is_some(),
            "events are missing without an end: {seen:?}"
        );
    };
    race(engine, compact, catch_up);
}

#[test]
fn a_watch_delivers_all_events_or_ends() {
    run_model(model);
}

#[test]
#[should_panic(expected = "a gap")]
fn checking_the_compacted_revision_once_is_detected() {
    run_broken(Fault::CatchUpChecksOnce, model);
}
