//! I5: compaction does not remove events that are published and not yet dispatched.
//!
//! Bound: 3 preemptions. The bug needs two writers beside the compaction, and the interleavings of
//! three threads with one commit or compaction each do not end within minutes.

use loom_tests::{drain, run};
use revstore_engine::{Engine, Fault, KeyRange, WatchOptions};
use revstore_verify::{Options, race};

fn bound() -> Options {
    Options::new().preemptions(3)
}

fn model(engine: &Engine) {
    let mut watcher = engine
        .watch(WatchOptions::of(KeyRange::all()))
        .expect("a valid watch");
    let write = || {
        let engine = engine.clone();
        move || drop(engine.put("k", "1").expect("a valid put"))
    };
    let compacted = engine.clone();
    let compact = move || {
        let current = compacted.current_revision();
        let compaction = compacted.compact(current);
        compaction.expect("the current revision").run();
    };
    // The bug occurs only if both writers have published but not dispatched when the compaction
    // removes the first revision.
    race((write(), write(), compact));
    let (seen, end) = drain(&mut watcher);
    assert_eq!(
        (seen, end),
        (vec![2, 3], None),
        "a synced watch lost an event"
    );
}

#[test]
fn synced_watches_lose_no_events() {
    run(&bound(), None, |engine, _| model(engine));
}

#[test]
#[should_panic(expected = "a synced watch lost an event")]
fn removing_before_dispatching_is_detected() {
    run(&bound(), Some(Fault::RemoveUndispatched), |engine, _| {
        model(engine);
    });
}
