//! I7: a compaction leaves the history that a follower or a dump has yet to read.

use loom_tests::{race, run_broken, run_model};
use revstore_engine::{Engine, Fault, Revision};

fn replace_and_compact(engine: &Engine) {
    let current = engine.put("k", "2").expect("a valid put").revision;
    engine.compact(current).expect("the current revision").run();
}

fn follow(engine: &Engine) {
    let mut follower = engine.follow(Revision(1)).expect("no other follower");
    engine.put("k", "1").expect("a valid put");
    let read = move |engine: &Engine| {
        let current = engine.current_revision();
        let expected: Vec<i64> = (2..=current.0).collect();
        let changes = follower.changes(current);
        let found: Vec<i64> = changes.map(|kv| kv.mod_revision().0).collect();
        assert_eq!(found, expected, "the follower missed a revision");
        follower.advance(current);
    };
    race(engine, replace_and_compact, read);
    // What the compaction has left was removed with the follower.
    assert_eq!(engine.stats().versions, 1);
}

#[test]
fn a_follower_reads_each_revision() {
    run_model(follow);
}

#[test]
#[should_panic(expected = "the follower missed a revision")]
fn ignoring_holds_is_detected() {
    run_broken(Fault::IgnoreHolds, follow);
}
