//! I7: a snapshot reads the same versions during a compaction, whether it was opened before the
//! compaction or at the same time.

use loom_tests::{race, run_broken, run_model};
use revstore_engine::{Engine, Fault, KeyRange, Snapshot};

fn read(snapshot: &Snapshot) -> Vec<Vec<u8>> {
    let kvs = snapshot.iter(KeyRange::all());
    let value = |kv: Result<revstore_engine::KeyValue, _>| kv.expect("no bound is passed");
    kvs.map(|kv| value(kv).value().to_vec()).collect()
}

fn compact(engine: &Engine) {
    let current = engine.current_revision();
    engine.compact(current).expect("the current revision").run();
}

fn opened_before(engine: &Engine) {
    engine.put("k", "1").expect("a valid put");
    let snapshot = engine.snapshot().expect("no other snapshot");
    engine.put("k", "2").expect("a valid put");
    let read_twice = move |_: &Engine| {
        let found = snapshot.get("k").expect("no bound is passed");
        let found = found.expect("the snapshot missed a key");
        assert_eq!(found.value(), b"1");
        assert_eq!(read(&snapshot), [b"1"]);
    };
    race(engine, compact, read_twice);
    assert_eq!(engine.stats().snapshot_bytes, 0);
}

#[test]
fn a_snapshot_reads_the_same_during_a_compaction() {
    run_model(opened_before);
}

#[test]
#[should_panic(expected = "the snapshot missed a key")]
fn keeping_a_version_after_its_removal_is_detected() {
    run_broken(Fault::KeepAfterCut, opened_before);
}

fn opened_meanwhile(engine: &Engine) {
    engine.put("k", "1").expect("a valid put");
    let replace = |engine: &Engine| {
        engine.put("k", "2").expect("a valid put");
        compact(engine);
    };
    let open = |engine: &Engine| {
        let snapshot = engine.snapshot().expect("no other snapshot");
        let found = snapshot.get("k").expect("no bound is passed");
        assert!(found.is_some(), "the snapshot missed a key");
    };
    race(engine, replace, open);
}

#[test]
fn a_snapshot_opened_during_a_compaction_is_complete() {
    run_model(opened_meanwhile);
}

#[test]
#[should_panic(expected = "the snapshot missed a key")]
fn opening_outside_the_sequencer_is_detected() {
    run_broken(Fault::OpenOutsideSequencer, opened_meanwhile);
}
