//! Forks that continue at a later revision, and engines that are restored with such a gap.

use revstore_engine::{
    Engine, Jump, JumpError, KeyRange, ManualClock, Range, ReadError, Revision, WatchOptions,
};

use super::{Restore, RestoreError, Version, add_history, name, see};

fn engine() -> Engine {
    let engine = Engine::builder().clock(ManualClock::new()).build();
    for key in 0..6 {
        engine.put(name(key), "first").unwrap();
    }
    engine.delete(&KeyRange::one(name(3))).unwrap();
    engine.put(name(0), "second").unwrap();
    engine
}

fn jump(engine: &Engine, current: i64, mark_compacted: bool) -> Result<Engine, JumpError> {
    let current = Revision(current);
    engine.to_builder().fork_at(
        engine,
        Jump {
            current,
            mark_compacted,
        },
    )
}

#[test]
fn a_jump_raises_the_current_revision_and_keeps_the_history() {
    let engine = engine();
    let last = engine.current_revision();
    let fork = jump(&engine, 1_000, false).unwrap();
    assert_eq!(fork.current_revision(), Revision(1_000));
    assert_eq!(fork.compacted_revision(), None);
    // Reads between the two find the last state, and those before it the earlier ones.
    let all = |engine: &Engine, at| {
        let range = Range::of(KeyRange::all()).at(Revision(at));
        let found = engine.range(&range).unwrap();
        (found.kvs, found.count)
    };
    for at in [last.0, last.0 + 1, 999, 1_000] {
        assert_eq!(all(&fork, at), all(&engine, last.0));
    }
    for at in 1..last.0 {
        assert_eq!(all(&fork, at), all(&engine, at));
    }
    let watch = |from: i64| {
        let watch = WatchOptions::of(KeyRange::all()).from(Revision(from));
        fork.watch(watch).unwrap()
    };
    let (mut early, mut between) = (watch(last.0), watch(last.0 + 1));
    assert!(between.try_next().is_none());
    let put = fork.put("new", "1").unwrap();
    assert_eq!(put.revision, Revision(1_001));
    let seen = |watcher: &mut revstore_engine::Watcher| {
        let mut seen = Vec::new();
        while let Some(batch) = watcher.try_next() {
            seen.extend(
                batch
                    .unwrap()
                    .events
                    .iter()
                    .map(|it| it.kv.mod_revision().0),
            );
        }
        seen
    };
    assert_eq!(seen(&mut early), [last.0, 1_001]);
    assert_eq!(seen(&mut between), [1_001]);
    assert_eq!(engine.current_revision(), last);
    // A compaction between the two keeps what is visible there.
    fork.compact(Revision(500)).unwrap().run();
    assert_eq!(all(&fork, 500), all(&engine, last.0));
    assert_eq!(fork.stats().versions, 6);
}

#[test]
fn a_jump_that_counts_as_compacted_keeps_no_history() {
    let engine = engine();
    for current in [engine.current_revision().0, 1_000] {
        let fork = jump(&engine, current, true).unwrap();
        let expected = engine.range(&Range::of(KeyRange::all())).unwrap().kvs;
        let found = fork.range(&Range::of(KeyRange::all())).unwrap();
        assert_eq!((&found.kvs, found.count), (&expected, 5));
        assert_eq!(fork.compacted_revision(), Some(Revision(current)));
        let old = fork.range(&Range::of(KeyRange::all()).at(Revision(current - 1)));
        assert!(matches!(old, Err(ReadError::Compacted { .. })));
        assert_eq!(fork.stats().versions, 5);
        // etcd's marked stores are compacted again, too.
        fork.put(name(0), "third").unwrap();
        fork.compact(Revision(current + 1)).unwrap().run();
        assert_eq!(fork.stats().versions, 5);
        assert_eq!(fork.get(name(0)).unwrap().version(), 3);
    }
}

#[test]
fn a_jump_back_or_to_the_end_is_refused() {
    let engine = engine();
    let current = engine.current_revision();
    for requested in [
        current.0 - 1,
        0,
        -1,
        i64::MIN,
        Revision::START_MAX.0 + 1,
        i64::MAX,
    ] {
        let refused = jump(&engine, requested, false).unwrap_err();
        let requested = Revision(requested);
        assert_eq!(refused, JumpError { requested, current });
    }
    let highest = jump(&engine, Revision::START_MAX.0, false).unwrap();
    assert!(highest.put("k", "").is_ok());
}

#[test]
fn a_store_with_a_gap_is_restored() {
    for (is_compacted, mark_compacted) in [(false, false), (true, false), (false, true)] {
        let fork = jump(&engine(), 60, mark_compacted).unwrap();
        if is_compacted {
            fork.compact(Revision(30)).unwrap().run();
        }
        fork.put("new", "1").unwrap();
        let fork = jump(&fork, 90, false).unwrap();
        let dump = fork.dump();
        let mut restore = Engine::builder()
            .clock(ManualClock::new())
            .restore(dump.compacted())
            .unwrap();
        for version in dump.base() {
            restore.base(&Version::from(&version)).unwrap();
        }
        let history: Vec<_> = dump.history().collect();
        let refused = |restore: &mut Restore, to| {
            let refused = restore.skip_to(Revision(to)).unwrap_err();
            assert!(matches!(refused, RestoreError::RevisionOrder { .. }));
        };
        for records in history.chunk_by(|a, b| a.mod_revision().next() >= b.mod_revision()) {
            let first = records[0].mod_revision();
            let before = restore.current_revision();
            if first > before.next() {
                assert!(add_history(&mut restore, records).is_err());
                restore.skip_to(first.previous()).unwrap();
                refused(&mut restore, first.0 - 1);
            }
            add_history(&mut restore, records).unwrap();
        }
        restore.skip_to(Revision(90)).unwrap();
        refused(&mut restore, i64::MAX);
        assert_eq!(see(&restore.finish().unwrap()), see(&fork));
    }
}
