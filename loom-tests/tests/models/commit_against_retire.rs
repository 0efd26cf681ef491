//! I7: a write is not lost if a compaction retires the entry of its key at the same time.
//!
//! Bound: 4 preemptions. The compaction and the put each replace parts of the log, the entry and
//! the index, and not all interleavings end within minutes.

use loom_tests::{race, run, run_broken};
use revstore_engine::{Engine, Fault, KeyRange, Revision};
use revstore_verify::Options;

fn model(engine: &Engine) {
    engine.put("k", "1").expect("a valid put");
    engine
        .delete(&KeyRange::one("k"))
        .expect("a store that accepts writes");
    engine.put("other", "1").expect("a valid put");
    let compact = |engine: &Engine| {
        engine.compact(Revision(4)).expect("a kept revision").run();
    };
    let write = |engine: &Engine| {
        engine.put("k", "2").expect("a valid put");
    };
    race(engine, compact, write);
    let found = engine.get("k").expect("the write was lost");
    assert_eq!((found.version(), found.create_revision().0), (1, 5));
}

#[test]
fn a_write_to_a_retired_entry_is_not_lost() {
    let bound = Options::new().preemptions(4);
    run(&bound, None, |engine, _| model(engine));
}

#[test]
#[should_panic(expected = "a retired entry is used")]
fn using_a_retired_entry_is_detected() {
    run_broken(Fault::UseRetiredEntry, model);
}
