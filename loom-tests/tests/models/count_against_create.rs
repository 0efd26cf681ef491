//! A count that meets a creation is exact: it counts the keys of one revision.
//!
//! Bound: 3 preemptions. Two creations take dozens of atomic accesses, and not all interleavings
//! end within minutes.

use loom_tests::{race, run, run_broken};
use revstore_engine::{Engine, Fault, KeyRange, Range};
use revstore_verify::Options;

/// The third key replaces the root of the index, the fourth changes its numbers of live keys.
fn model(engine: &Engine) {
    for key in ["b", "d"] {
        engine.put(key, "1").expect("a valid put");
    }
    let create = |engine: &Engine| {
        for key in ["c", "a"] {
            engine.put(key, "1").expect("a valid put");
        }
    };
    let count = |engine: &Engine| {
        let range = Range::of(KeyRange::within("a", "e")).count_only();
        let found = engine.range(&range).expect("the current revision is kept");
        // Each revision since the first one has created a key.
        let keys = usize::try_from(found.revision.0 - 1).expect("a positive revision");
        assert_eq!(found.count, keys, "the count is of another revision");
    };
    race(engine, create, count);
}

#[test]
fn a_count_beside_creations_is_exact() {
    let bound = Options::new().preemptions(3);
    run(&bound, None, |engine, _| model(engine));
}

#[test]
#[should_panic(expected = "the count is of another revision")]
fn counting_without_a_second_look_is_detected() {
    run_broken(Fault::CountUnchecked, model);
}
