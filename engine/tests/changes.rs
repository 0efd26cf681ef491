//! The events of several revisions and the versions of a key, beside compactions.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use revstore_engine::{Engine, KeyRange, Op, Put, ReadError, Revision, Txn};

#[test]
fn changes_end_with_an_error_when_a_compaction_overtakes_them() {
    let engine = Engine::builder().build();
    // One revision with more records than a step of the iterator.
    let put = |number: i32| Op::Put(Put::new(format!("k{number}"), "v"));
    engine.txn(&Txn::new().and_then((0..100).map(put))).unwrap();
    for number in 0..100 {
        engine.put("k", number.to_string()).unwrap();
    }
    let mut changes = engine.changes(..).unwrap();
    let mut positions = Vec::new();
    for event in changes.by_ref().take(90) {
        positions.push(event.unwrap().kv.position());
    }
    assert!(positions.is_sorted() && positions[0].revision == Revision(2));
    assert_eq!(positions[89].sub, 89);
    engine.compact(Revision(50)).unwrap().run();
    let rest: Vec<_> = changes.by_ref().collect();
    let (error, events) = rest.split_last().unwrap();
    let position =
        |event: &Result<revstore_engine::Event, _>| event.as_ref().unwrap().kv.position();
    positions.extend(events.iter().map(position));
    assert!(positions.is_sorted_by(|a, b| a < b));
    // Complete up to the error.
    let in_first = positions
        .iter()
        .filter(|position| position.revision == Revision(2));
    assert_eq!(in_first.count(), 100);
    let compacted = Revision(50);
    let next = positions.last().unwrap().revision;
    assert!(matches!(
        error,
        Err(ReadError::Compacted { requested, compacted: oldest })
            if *requested == next && *oldest == compacted
    ));
    assert!(changes.next().is_none());
    let kept = engine
        .changes(..)
        .unwrap()
        .map(|event| event.unwrap().kv.mod_revision());
    assert!(kept.eq((50..=102).map(Revision)));
}

#[test]
fn changes_accept_every_kind_of_bound() {
    use std::ops::Bound;
    let engine = Engine::builder().build();
    for _ in 0..5 {
        engine.put("k", "").unwrap();
    }
    let count =
        |bounds: (Bound<Revision>, Bound<Revision>)| engine.changes(bounds).unwrap().count();
    let (included, excluded) = (Bound::Included, Bound::Excluded);
    assert_eq!(count((Bound::Unbounded, Bound::Unbounded)), 5);
    assert_eq!(count((excluded(Revision(2)), excluded(Revision(5)))), 2);
    assert_eq!(count((included(Revision(6)), Bound::Unbounded)), 1);
    assert_eq!(count((excluded(Revision(6)), Bound::Unbounded)), 0);
    assert_eq!(count((included(Revision(i64::MAX)), Bound::Unbounded)), 0);
    assert_eq!(
        count((included(Revision(5)), included(Revision(i64::MIN)))),
        0
    );
    let future = engine.changes(..=Revision(7)).unwrap_err();
    let expected = ReadError::Future {
        requested: Revision(7),
        current: Revision(6),
    };
    assert_eq!(future, expected);
    assert!(engine.changes(Revision(-9)..).is_err());
    let empty = Engine::builder().build();
    assert_eq!(empty.changes(..).unwrap().count(), 0);
}

/// A key is written, deleted, compacted away and created again all the time. Each history must be a
/// part of the true one without a gap: the versions count down to 1, and between two lives there is
/// a tombstone.
#[test]
fn a_history_has_no_gap_beside_compactions() {
    const ROUNDS: usize = 3_000;
    let engine = Engine::builder().build();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                if round % 7 == 6 {
                    engine.delete(&KeyRange::one("k")).unwrap();
                } else {
                    engine.put("k", "").unwrap();
                }
                if round % 30 == 0 {
                    engine.compact(engine.current_revision()).unwrap().run();
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            let versions: Vec<_> = engine.history("k").collect();
            for pair in versions.windows(2) {
                let (newer, older) = (&pair[0], &pair[1]);
                assert!(older.position() < newer.position());
                assert_eq!(older.mod_revision().next(), newer.mod_revision());
                match newer.version() {
                    0 => assert!(!older.is_tombstone()),
                    1 => assert!(older.is_tombstone()),
                    version => assert_eq!(older.version(), version - 1),
                }
            }
        }
    });
}

#[test]
fn the_history_of_an_unknown_key_is_empty() {
    let engine = Engine::builder().build();
    engine.put("k", "").unwrap();
    assert!(engine.history("").next().is_none());
    assert!(engine.history("j").next().is_none());
    engine.delete(&KeyRange::one("k")).unwrap();
    let compacted = engine.put("other", "").unwrap().revision;
    assert_eq!(engine.history("k").count(), 2);
    engine.compact(compacted).unwrap().run();
    assert!(engine.history("k").next().is_none());
}
