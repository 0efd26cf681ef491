//! I2: a read that looks at the newest version without a lock does not see it freed.

use loom_tests::{race, revision, run_broken, run_model};
use revstore_engine::{Engine, Fault, KeyRange};

fn model(engine: &Engine) {
    engine.put("k", "1").expect("a legal put");
    let supersede_and_remove = |engine: &Engine| {
        engine.put("k", "2").expect("a legal put");
        engine.compact(revision(3)).expect("a kept revision").run();
    };
    let read = |engine: &Engine| {
        let found = engine.get("k").expect("a living key");
        assert_eq!(found.value(), [b'0' + found.version().to_le_bytes()[0]]);
    };
    race(engine, supersede_and_remove, read);
}

fn model_of_a_scan(engine: &Engine) {
    engine.put("k", "1").expect("a legal put");
    let delete_and_remove = |engine: &Engine| {
        engine.delete(&KeyRange::one("k"));
        engine.put("other", "1").expect("a legal put");
        engine.compact(revision(4)).expect("a kept revision").run();
    };
    let count = |engine: &Engine| engine.delete(&KeyRange::prefix("k")).deleted.len();
    let (_, deleted) = race(engine, delete_and_remove, count);
    assert!(deleted <= 1);
}

#[test]
fn a_read_holds_up_what_it_looks_at() {
    run_model(model);
}

#[test]
fn a_scan_holds_up_what_it_looks_at() {
    run_model(model_of_a_scan);
}

#[test]
#[should_panic(expected = "what was freed is read")]
fn freeing_at_once_is_found() {
    run_broken(Fault::FreeAtOnce, model);
}
