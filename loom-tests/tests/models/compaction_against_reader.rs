//! I7: a read at an old revision gives what was there, or says that it is compacted.

use loom_tests::{race, revision, run_broken, run_model};
use revstore_engine::{Engine, Fault, KeyRange, Range, ReadError};

fn model(engine: &Engine) {
    engine.put("k", "1").expect("a legal put");
    engine.put("k", "2").expect("a legal put");
    let compact = |engine: &Engine| {
        engine
            .compact(revision(3))
            .expect("the current revision")
            .run();
    };
    let read = |engine: &Engine| match engine.range(&Range::of(KeyRange::one("k")).at(revision(2)))
    {
        Ok(found) => assert_eq!(found.kvs.len(), 1, "a read found a hole"),
        Err(error) => assert!(matches!(error, ReadError::Compacted { .. })),
    };
    race(engine, compact, read);
}

#[test]
fn a_read_is_right_or_compacted() {
    run_model(model);
}

#[test]
#[should_panic(expected = "a read found a hole")]
fn looking_at_the_mark_only_once_is_found() {
    run_broken(Fault::ReadLooksOnce, model);
}
