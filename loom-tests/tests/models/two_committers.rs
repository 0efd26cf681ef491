//! I1: two writers of one key get two revisions, and the second version follows the first.

use loom_tests::{race, run_broken, run_model};
use revstore_engine::{Engine, Fault};

fn model(engine: &Engine) {
    let put = |engine: &Engine| engine.put("k", "v").expect("a valid put").revision.0;
    let (one, other) = race(engine, put, put);
    assert_eq!(
        [one.min(other), one.max(other)],
        [2, 3],
        "a revision was assigned twice"
    );
    let last = engine.get("k").expect("the key is live");
    assert_eq!((last.version(), last.mod_revision().0), (2, 3));
}

#[test]
fn every_writer_gets_a_separate_revision() {
    run_model(model);
}

#[test]
#[should_panic(expected = "a revision was assigned twice")]
fn numbering_outside_the_sequencer_is_detected() {
    run_broken(Fault::NumberOutsideSequencer, model);
}
