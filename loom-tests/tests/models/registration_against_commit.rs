//! I5, WA-8: a new watch delivers exactly the events above the revision of its creation.

use loom_tests::{race, run_broken, run_model};
use revstore_engine::{Engine, Fault, KeyRange, WatchOptions, WatchResponse};

fn model(engine: &Engine) {
    let write = |engine: &Engine| {
        engine.put("k", "1").expect("a valid put");
    };
    let watch = |engine: &Engine| {
        let mut stream = engine.watch_stream();
        let created = stream
            .watch(WatchOptions::of(KeyRange::all()))
            .expect("a valid watch");
        (stream, created)
    };
    let ((), (mut stream, created)) = race(engine, write, watch);
    let mut seen = Vec::new();
    while let Some(response) = stream.try_next() {
        let WatchResponse::Events { events, .. } = response else {
            panic!("expected events, got {response:?}")
        };
        seen.extend(events.iter().map(|event| event.kv.mod_revision().0));
    }
    let expected: Vec<i64> = (created.revision.0 + 1..=2).collect();
    assert_eq!(seen, expected, "registered at {}", created.revision);
}

#[test]
fn a_new_watch_misses_and_repeats_no_event() {
    run_model(model);
}

#[test]
#[should_panic(expected = "registered at")]
fn releasing_the_hub_during_a_registration_is_detected() {
    run_broken(Fault::RegisterOutsideHub, model);
}
