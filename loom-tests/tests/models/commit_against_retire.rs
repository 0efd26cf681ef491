//! I7: a key that compaction is about to retire does not swallow the write that finds it.

use loom_tests::{race, revision, run_broken, run_model};
use revstore_engine::{Engine, Fault, KeyRange};

fn model(engine: &Engine) {
    engine.put("k", "1").expect("a legal put");
    engine.delete(&KeyRange::one("k"));
    engine.put("other", "1").expect("a legal put");
    let compact = |engine: &Engine| {
        engine.compact(revision(4)).expect("a kept revision").run();
    };
    let write = |engine: &Engine| {
        engine.put("k", "2").expect("a legal put");
    };
    race(engine, compact, write);
    let found = engine.get("k").expect("the write was swallowed");
    assert_eq!((found.version(), found.create_revision().0), (1, 5));
}

#[test]
fn a_write_is_never_lost() {
    run_model(model);
}

#[test]
#[should_panic(expected = "a retired entry is used")]
fn trusting_an_entry_found_before_is_found() {
    run_broken(Fault::TrustFoundEntry, model);
}
