//! I7: a version that a put replaces is found during the put.

use loom_tests::{race, run_broken, run_model};
use revstore_engine::{Engine, Fault, KeyRange, Range};

fn model(engine: &Engine) {
    let kept = engine.put("k", "1").expect("a valid put").revision;
    let replace = |engine: &Engine| {
        engine.put("k", "2").expect("a valid put");
    };
    let read = move |engine: &Engine| {
        let range = Range::of(KeyRange::one("k")).at(kept);
        let found = engine.range(&range).expect("a kept revision");
        assert_eq!(found.count, 1, "the replaced version was not found");
    };
    race(engine, replace, read);
}

#[test]
fn a_replaced_version_is_found_during_the_put() {
    run_model(model);
}

#[test]
#[should_panic(expected = "the replaced version was not found")]
fn replacing_a_version_before_keeping_it_is_detected() {
    run_broken(Fault::ReplaceBeforeKeeping, model);
}
