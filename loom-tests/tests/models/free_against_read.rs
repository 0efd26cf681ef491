//! I2: a version that is read without a lock is not freed during the read.

use loom_tests::{race, run_broken, run_model};
use revstore_engine::{Engine, Fault, KeyRange, Revision};

fn model(engine: &Engine) {
    engine.put("k", "1").expect("a valid put");
    let supersede_and_remove = |engine: &Engine| {
        engine.put("k", "2").expect("a valid put");
        engine.compact(Revision(3)).expect("a kept revision").run();
    };
    let read = |engine: &Engine| {
        let found = engine.get("k").expect("a live key");
        assert_eq!(found.value(), [b'0' + found.version().to_le_bytes()[0]]);
    };
    race(engine, supersede_and_remove, read);
}

fn model_of_a_scan(engine: &Engine) {
    engine.put("k", "1").expect("a valid put");
    let delete_and_remove = |engine: &Engine| {
        engine
            .delete(&KeyRange::one("k"))
            .expect("a store that accepts writes");
        engine.put("other", "1").expect("a valid put");
        engine.compact(Revision(4)).expect("a kept revision").run();
    };
    // A delete of a range scans it, and reads the newest version of each key without the lock of
    // its entry.
    let delete_prefix = |engine: &Engine| {
        let done = engine.delete(&KeyRange::prefix("k"));
        done.expect("a store that accepts writes").deleted.len()
    };
    let ((), deleted) = race(engine, delete_and_remove, delete_prefix);
    assert!(deleted <= 1, "{deleted} versions of one key were deleted");
}

#[test]
fn a_version_is_not_freed_during_a_read() {
    run_model(model);
}

#[test]
fn a_version_is_not_freed_during_a_scan() {
    run_model(model_of_a_scan);
}

#[test]
#[should_panic(expected = "a freed allocation is used")]
fn freeing_without_waiting_is_detected() {
    run_broken(Fault::FreeWithoutWaiting, model);
}
