//! What a read writes in memory that other threads access: nothing but the reference counts of the
//! versions that it returns. Runs in a build that counts these writes (`.ci/run counting`).
#![cfg(revstore_count)]

use std::ops::ControlFlow;

use revstore_engine::{Engine, KeyRange, ManualClock, Range, Revision, SharedWrites};

const KEYS: u64 = 2_000;

/// An engine with keys of one, two and many versions, deleted keys, and a compacted history.
fn engine() -> Engine {
    let engine = Engine::builder().clock(ManualClock::new()).build();
    for round in 0..4 {
        for number in (0..KEYS).filter(|number| number % (round + 1) == 0) {
            engine.put(key(number), "value").expect("a valid put");
        }
    }
    for _ in 0..1_000 {
        engine.put(key(1), "value").expect("a valid put");
    }
    let deleted = engine
        .delete(&KeyRange::prefix("key/00"))
        .expect("a store that accepts writes");
    assert_eq!(deleted.deleted.len(), 100);
    let compacted = Revision(engine.current_revision().0 - 600);
    engine.compact(compacted).expect("a kept revision").run();
    engine
}

fn key(number: u64) -> String {
    format!("key/{number:04}")
}

/// Returns the writes of a read, and of dropping its result.
fn writes<R>(read: impl FnOnce() -> R) -> (SharedWrites, R) {
    let before = SharedWrites::of_this_thread();
    let result = read();
    let after = SharedWrites::of_this_thread();
    let writes = SharedWrites {
        locks: after.locks - before.locks,
        atomics: after.atomics - before.atomics,
        references: after.references - before.references,
    };
    (writes, result)
}

/// One change of the reference count of each returned version, and nothing else.
fn only_returned(versions: usize) -> SharedWrites {
    SharedWrites {
        references: versions as u64,
        ..SharedWrites::default()
    }
}

#[test]
fn a_get_writes_only_the_reference_count_of_its_result() {
    let engine = engine();
    let (written, found) = writes(|| engine.get(key(500)));
    assert_eq!((written, found.is_some()), (only_returned(1), true));
    for absent in [key(50), String::from("none")] {
        let (written, found) = writes(|| engine.get(absent));
        assert_eq!((written, found), (only_returned(0), None));
    }
}

#[test]
fn a_get_with_a_closure_writes_nothing() {
    let engine = engine();
    let (written, found) = writes(|| engine.get_with(key(500), |kv| kv.value().len()));
    assert_eq!((written, found), (SharedWrites::default(), Some(5)));
}

#[test]
fn a_read_at_an_older_revision_writes_only_the_reference_counts_of_its_result() {
    let engine = engine();
    let older = Revision(engine.current_revision().0 - 300);
    for keys in [
        KeyRange::one(key(500)),
        KeyRange::prefix("key/"),
        KeyRange::all(),
    ] {
        let (written, found) = writes(|| engine.range(&Range::of(keys).at(older)));
        let found = found.expect("a kept revision");
        assert!(!found.kvs.is_empty());
        assert_eq!(written, only_returned(found.kvs.len()));
    }
}

#[test]
fn a_scan_writes_only_the_reference_counts_of_its_result() {
    let engine = engine();
    let (written, found) = writes(|| engine.range(&Range::of(KeyRange::all())));
    let found = found.expect("the current revision");
    assert_eq!(found.kvs.len(), 1_900);
    assert_eq!(written, only_returned(1_900));
    let page = Range::of(KeyRange::all()).limit(500);
    let (written, found) = writes(|| engine.range(&page));
    // One version more than the limit shows that there are more; it is dropped again.
    assert_eq!(found.expect("the current revision").kvs.len(), 500);
    assert_eq!(written, only_returned(502));
}

#[test]
fn a_visit_writes_nothing() {
    let engine = engine();
    for at in [0, 300].map(|back| Revision(engine.current_revision().0 - back)) {
        let mut visited = 0;
        let (written, end) = writes(|| {
            engine.visit(&KeyRange::all(), at, |_| {
                visited += 1;
                ControlFlow::<()>::Continue(())
            })
        });
        assert_eq!(
            (written, end),
            (SharedWrites::default(), Ok(ControlFlow::Continue(())))
        );
        let expected = engine.range(&Range::of(KeyRange::all()).at(at));
        assert_eq!(visited, expected.expect("a kept revision").kvs.len());
    }
}

#[test]
fn a_count_writes_nothing() {
    let engine = engine();
    let older = Revision(engine.current_revision().0 - 300);
    for keys in [
        KeyRange::one(key(500)),
        KeyRange::prefix("key/1"),
        KeyRange::all(),
    ] {
        let now = Range::of(keys.clone()).count_only();
        let (written, found) = writes(|| engine.range(&now));
        assert!(found.expect("the current revision").count > 0);
        assert!(written.locks == 0 && written.atomics == 0, "{written:?}");
        let (written, found) = writes(|| engine.range(&now.at(older)));
        assert!(found.expect("a kept revision").count > 0);
        assert!(written.locks == 0 && written.atomics == 0, "{written:?}");
    }
}

/// The pins of a thread that reads for long end from time to time, so that what other threads remove
/// can be freed.
#[test]
fn what_reads_hold_back_is_freed() {
    let engine = engine();
    let current = engine.current_revision();
    engine.compact(current).expect("the current revision").run();
    // Other tests of the program hold memory back, too, as long as their threads wait for a processor.
    let is_freed = (0..1_000).any(|_| {
        for _ in 0..10_000 {
            engine.get(key(500));
        }
        std::thread::yield_now();
        engine.stats().held_back_bytes < 1 << 20
    });
    assert!(is_freed, "{:?}", engine.stats());
}
