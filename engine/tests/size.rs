//! Compaction by size: the lowest revision that brings the history within the limit.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use proptest::prelude::*;
use revstore_engine::{
    AutoCompaction, Engine, KeyRange, KeyValue, ManualClock, Op, Put, Revision, Txn,
};

#[derive(Clone, Debug)]
enum Change {
    Put(u8, usize),
    Delete(u8, u8),
    /// Deletes a key, and creates it again in the same revision.
    Replace(u8, usize),
}

fn change() -> impl Strategy<Value = Change> {
    let key = 0..6_u8;
    prop_oneof![
        4 => (key.clone(), 0..40_usize).prop_map(|(key, len)| Change::Put(key, len)),
        2 => (key.clone(), key.clone()).prop_map(|(from, to)| Change::Delete(from, to)),
        1 => (key, 0..40_usize).prop_map(|(key, len)| Change::Replace(key, len)),
    ]
}

fn apply(engine: &Engine, change: &Change) {
    match change {
        Change::Put(key, len) => drop(engine.put(vec![b'a' + key], vec![0; *len]).unwrap()),
        Change::Delete(from, to) => {
            engine
                .delete(&KeyRange::within(vec![b'a' + from], vec![b'a' + to]))
                .unwrap();
        }
        Change::Replace(key, len) => {
            let key = vec![b'a' + key];
            let delete = Op::Delete(KeyRange::one(key.clone()));
            let txn = Txn::new().and_then([delete, Op::Put(Put::new(key, vec![0; *len]))]);
            engine.txn(&txn).unwrap();
        }
    }
}

fn bytes(engine: &Engine) -> u64 {
    let counted = engine.history_bytes();
    let kept = engine.full_history(None).unwrap().versions;
    assert_eq!(counted, kept.iter().map(KeyValue::size_bytes).sum::<u64>());
    counted
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn the_size_policy_compacts_at_the_lowest_revision_that_suffices(
        changes in proptest::collection::vec(change(), 1..60),
        per_mille in 0..1000_u64,
    ) {
        let all = Engine::builder().clock(ManualClock::new()).build();
        for change in &changes {
            apply(&all, change);
        }
        let bytes_max = bytes(&all) * per_mille / 1000;
        let every = Duration::from_secs(1);
        let policy = AutoCompaction::Size { bytes_max, every };
        let bounded = Engine::builder()
            .clock(ManualClock::new())
            .auto_compaction(policy)
            .build();
        for change in &changes {
            apply(&bounded, change);
        }
        bounded.auto_compact();
        let Some(compacted) = bounded.compacted_revision() else {
            prop_assert!(bytes(&bounded) <= bytes_max);
            return Ok(());
        };
        prop_assert!(bytes(&bounded) <= bytes_max || compacted == all.current_revision());
        // A compaction one revision below is not enough.
        if let Ok(compaction) = all.compact(Revision(compacted.0 - 1)) {
            compaction.run();
        }
        prop_assert!(bytes(&all) > bytes_max);
    }
}
