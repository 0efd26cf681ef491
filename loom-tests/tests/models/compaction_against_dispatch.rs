//! I5: compaction does not remove events that are published and not yet dispatched.

use loom_tests::{drain, race, run_broken, run_model};
use revstore_engine::{Engine, Fault, KeyRange, WatchOptions};

fn model(engine: &Engine) {
    let mut watcher = engine
        .watch(WatchOptions::of(KeyRange::all()))
        .expect("a valid watch");
    let write = |engine: &Engine| {
        engine.put("k", "1").expect("a valid put");
    };
    let compact = |engine: &Engine| {
        let current = engine.current_revision();
        engine.compact(current).expect("the current revision").run();
    };
    // The bug occurs only if both writers have published but not dispatched when the compaction
    // removes the first revision.
    race(engine, write, move |engine| race(engine, write, compact));
    let (seen, end) = drain(&mut watcher);
    assert_eq!(
        (seen, end),
        (vec![2, 3], None),
        "a synced watch lost an event"
    );
}

#[test]
fn synced_watches_lose_no_events() {
    run_model(model);
}

#[test]
#[should_panic(expected = "a synced watch lost an event")]
fn removing_before_dispatching_is_detected() {
    run_broken(Fault::RemoveUndispatched, model);
}
