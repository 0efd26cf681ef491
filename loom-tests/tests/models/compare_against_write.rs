//! TXN-20: a compare over a range, which is evaluated before the sequencer is taken, has the result
//! of the revision before its transaction.
//!
//! Bound of the model with a compaction: 3 preemptions. It needs two puts before the compaction, so
//! that a record is removed, and does not end within minutes without a bound.

use loom_tests::{race, run, run_broken, run_model};
use revstore_engine::{
    Compare, CompareTarget, Engine, Fault, KeyRange, Op, Put, Relation, Revision, Txn, TxnResult,
};
use revstore_verify::Options;

/// Puts `done` if there is no key with the prefix `k`, and `skipped` otherwise.
fn put_if_none(engine: &Engine) -> TxnResult {
    let none = Compare::new(
        KeyRange::prefix("k"),
        CompareTarget::Version(0),
        Relation::Equal,
    );
    let txn = Txn::new()
        .when([none])
        .and_then([Op::Put(Put::new("done", ""))])
        .or_else([Op::Put(Put::new("skipped", ""))]);
    engine.txn(&txn).expect("a valid transaction")
}

/// A put makes the compare fail.
fn model_of_a_put(engine: &Engine) {
    let write = |engine: &Engine| engine.put("k1", "v").expect("a valid put").revision;
    let (put, done) = race(engine, write, put_if_none);
    assert_eq!(
        done.succeeded,
        done.revision < put,
        "the compare missed a change"
    );
}

/// A deletion of the key that failed the compare makes it succeed, which needs another examination
/// of the range.
fn model_of_a_deletion(engine: &Engine) {
    engine.put("k1", "v").expect("a valid put");
    let write = |engine: &Engine| {
        let done = engine.delete(&KeyRange::one("k1"));
        done.expect("a store that accepts writes").revision
    };
    let (deleted, done) = race(engine, write, put_if_none);
    assert_eq!(
        done.succeeded,
        deleted < done.revision,
        "the compare missed a change"
    );
}

/// A compaction removes the records that would bring the result up to date.
fn model_of_a_compaction(engine: &Engine) {
    let write = |engine: &Engine| {
        let put = engine.put("k1", "v").expect("a valid put").revision;
        engine.put("k1", "w").expect("a valid put");
        let current = Revision(put.0 + 1);
        engine.compact(current).expect("a kept revision").run();
        put
    };
    let (put, done) = race(engine, write, put_if_none);
    assert_eq!(
        done.succeeded,
        done.revision < put,
        "the compare missed a change"
    );
}

#[test]
fn a_compare_sees_a_put_before_its_transaction() {
    run_model(model_of_a_put);
}

#[test]
fn a_compare_sees_a_deletion_before_its_transaction() {
    run_model(model_of_a_deletion);
}

#[test]
fn a_compare_sees_changes_that_a_compaction_has_removed() {
    let bound = Options::new().preemptions(3);
    run(&bound, None, |engine, _| model_of_a_compaction(engine));
}

#[test]
#[should_panic(expected = "the compare missed a change")]
fn using_the_result_from_before_a_put_is_detected() {
    run_broken(Fault::CompareOutsideSequencer, model_of_a_put);
}

#[test]
#[should_panic(expected = "the compare missed a change")]
fn using_the_result_from_before_a_deletion_is_detected() {
    run_broken(Fault::CompareOutsideSequencer, model_of_a_deletion);
}
