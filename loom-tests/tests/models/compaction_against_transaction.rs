//! I7, TXN-21: compaction waits for the ranges of a transaction, which are read after its commit.

use loom_tests::{race, run_broken, run_model};
use revstore_engine::{Engine, Fault, KeyRange, Op, OpResult, Put, Range, Txn};

fn model(engine: &Engine) {
    engine.put("k", "old").expect("a valid put");
    let compact = |engine: &Engine| {
        let current = engine.current_revision();
        engine.compact(current).expect("the current revision").run();
    };
    let read_and_write = |engine: &Engine| {
        let ops = vec![
            Op::Range(Range::of(KeyRange::all())),
            Op::Put(Put::new("k", "new")),
        ];
        let done = engine
            .txn(&Txn::new().and_then(ops))
            .expect("a valid transaction");
        let OpResult::Range(before) = &done.results[0] else {
            panic!(
                "TXN-26: expected the result of a range, got {:?}",
                done.results[0]
            )
        };
        assert_eq!(before.kvs.len(), 1, "the transaction missed a key");
        assert_eq!(before.kvs[0].value(), b"old");
    };
    race(engine, compact, read_and_write);
}

#[test]
fn a_transaction_reads_at_its_position() {
    run_model(model);
}

#[test]
#[should_panic(expected = "the transaction missed a key")]
fn not_waiting_for_pins_is_detected() {
    run_broken(Fault::IgnorePins, model);
}
