//! I3: a scan of several steps, each under a pin of its own, reads one revision.
//!
//! Bound: 3 preemptions. The transaction and the scan each take dozens of atomic accesses, and not
//! all interleavings end within minutes.

use loom_tests::{race, run, run_broken};
use revstore_engine::{Engine, Fault, KeyRange, Op, Put, Range, Txn};
use revstore_verify::Options;

/// A transaction that deletes one key and creates two, beside a scan of more than one step.
fn model(engine: &Engine) {
    for key in ["a", "b", "c"] {
        engine.put(key, "1").expect("a valid put");
    }
    let change = |engine: &Engine| {
        let ops = [
            Op::Delete(KeyRange::one("b")),
            Op::Put(Put::new("bb", "2")),
            Op::Put(Put::new("d", "2")),
        ];
        let done = engine.txn(&Txn::new().and_then(ops));
        assert_eq!(done.expect("a valid transaction").revision.0, 5);
    };
    let scan = |engine: &Engine| {
        let found = engine.range(&Range::of(KeyRange::all()));
        let found = found.expect("the current revision is kept");
        let keys: Vec<_> = found.kvs.iter().map(|kv| kv.key().to_vec()).collect();
        let expected: &[&[u8]] = match found.revision.0 {
            4 => &[b"a", b"b", b"c"],
            _ => &[b"a", b"bb", b"c", b"d"],
        };
        assert_eq!(keys, expected, "the scan mixed two revisions");
        assert_eq!(
            found.count,
            expected.len(),
            "the count is of another revision"
        );
    };
    race(engine, change, scan);
}

#[test]
fn a_scan_reads_one_revision_across_its_steps() {
    let bound = Options::new().preemptions(3);
    run(&bound, None, |engine, _| model(engine));
}

#[test]
#[should_panic(expected = "the scan mixed two revisions")]
fn reading_at_the_current_revision_in_each_step_is_detected() {
    run_broken(Fault::ReadAtEachStep, model);
}
