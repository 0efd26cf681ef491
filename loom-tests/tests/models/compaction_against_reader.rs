//! I7: a read at an old revision during a compaction returns all keys, or an error.

use loom_tests::{race, run_broken, run_model};
use revstore_engine::{Engine, Fault, KeyRange, Range, ReadError, Revision};

fn model(engine: &Engine) {
    engine.put("k", "1").expect("a valid put");
    engine.put("k", "2").expect("a valid put");
    let compact = |engine: &Engine| {
        engine
            .compact(Revision(3))
            .expect("the current revision")
            .run();
    };
    let read = |engine: &Engine| match engine.range(&Range::of(KeyRange::one("k")).at(Revision(2)))
    {
        Ok(found) => assert_eq!(found.kvs.len(), 1, "a read missed a key"),
        Err(error) => assert!(matches!(error, ReadError::Compacted { .. })),
    };
    race(engine, compact, read);
}

#[test]
fn a_read_is_complete_or_fails() {
    run_model(model);
}

#[test]
#[should_panic(expected = "a read missed a key")]
fn checking_the_compacted_revision_once_is_detected() {
    run_broken(Fault::ReadChecksOnce, model);
}
