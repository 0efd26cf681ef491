//! I1, I3: a read sees all changes of a revision, or none.

use loom_tests::{race, run_broken, run_model};
use revstore_engine::{Engine, Fault, KeyRange, Op, Put, Range, Txn};

fn model(engine: &Engine) {
    let write = |engine: &Engine| {
        let puts = ["a", "b"].map(|key| Op::Put(Put::new(key, "v")));
        engine
            .txn(&Txn::new().and_then(puts))
            .expect("a valid transaction");
    };
    let read = |engine: &Engine| {
        let found = engine
            .range(&Range::of(KeyRange::all()))
            .expect("the current revision");
        let expected = if found.revision.0 == 1 { 0 } else { 2 };
        assert_eq!(found.kvs.len(), expected, "a part of a revision was read");
        assert_eq!(found.count, expected, "a count at another revision");
    };
    race(engine, write, read);
}

#[test]
fn a_read_sees_whole_revisions() {
    run_model(model);
}

#[test]
#[should_panic(expected = "a part of a revision was read")]
fn publishing_before_storing_is_detected() {
    run_broken(Fault::PublishFirst, model);
}
