//! I5: what is published and not yet handed over is not removed from under a synced watch.

use loom_tests::{drain, race, run_broken, run_model};
use revstore_engine::{Engine, Fault, KeyRange, WatchOptions};

fn model(engine: &Engine) {
    let mut watcher = engine
        .watch(WatchOptions::of(KeyRange::all()))
        .expect("a legal watch");
    let write = |engine: &Engine| {
        engine.put("k", "1").expect("a legal put");
    };
    let compact = |engine: &Engine| {
        let current = engine.current_revision();
        engine.compact(current).expect("the current revision").run();
    };
    // Both writers must be between publishing and dispatching when the mark passes the first.
    race(engine, write, move |engine| race(engine, write, compact));
    let (seen, end) = drain(&mut watcher);
    assert_eq!(
        (seen, end),
        (vec![2, 3], None),
        "a synced watch lost an event"
    );
}

#[test]
fn synced_watches_lose_nothing() {
    run_model(model);
}

#[test]
#[should_panic(expected = "a synced watch lost an event")]
fn removing_before_dispatching_is_found() {
    run_broken(Fault::RemoveUndispatched, model);
}
