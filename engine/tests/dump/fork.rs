//! Forks: a fork answers as its origin does, and neither sees what is done to the other.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use revstore_engine::{
    AutoCompaction, Engine, KeyRange, KeyValue, LeaseId, ManualClock, Put, Range, Revision,
    WatchOptions,
};

use super::{apply, copy, name, see, step};

fn engine(clock: &ManualClock) -> Engine {
    Engine::builder().clock(clock.clone()).build()
}

proptest! {
    #[test]
    fn a_fork_equals_its_origin_and_both_continue_apart(
        before in prop::collection::vec((step(), 0..3_u64), 0..60),
        announced in prop::option::of(0..6_i64),
        after in prop::collection::vec(step(), 0..30),
        other in prop::collection::vec(step(), 1..30),
        start in prop_oneof![Just(1_i64), Just(100)],
    ) {
        let clock = ManualClock::new();
        let builder = Engine::builder().clock(clock.clone());
        let engine = builder.start_revision(Revision(start)).unwrap().build();
        for (step, seconds) in &before {
            apply(&engine, step);
            clock.advance(Duration::from_secs(*seconds));
        }
        // What the compaction has yet to remove is no part of a fork.
        let at = announced.map(|back| Revision(engine.current_revision().0 - back));
        let compaction = at.and_then(|at| engine.compact(at).ok());
        let (fork, second) = (engine.fork(), engine.fork());
        if let Some(compaction) = compaction {
            let snapshot = see(&second);
            compaction.run();
            prop_assert_eq!(&see(&second), &snapshot);
        }
        let at_fork = see(&engine);
        prop_assert_eq!(&see(&fork), &at_fork);
        // Both continue in the same way.
        for step in &after {
            apply(&engine, step);
            apply(&fork, step);
        }
        prop_assert_eq!(see(&fork), see(&engine));
        // What is done to one does not show in the others.
        let at_end = see(&fork);
        for step in other.iter().chain(&after) {
            apply(&engine, step);
        }
        prop_assert_eq!(&see(&fork), &at_end);
        prop_assert_eq!(&see(&second), &at_fork);
        let changed = see(&engine);
        for step in &other {
            apply(&second, step);
        }
        drop(fork);
        prop_assert_eq!(see(&engine), changed);
        // The dump of a fork is complete, and so is a fork that is alone.
        let expected = see(&second);
        prop_assert_eq!(&see(&copy(&second, &clock)), &expected);
        drop(engine);
        prop_assert_eq!(&see(&second), &expected);
        prop_assert_eq!(&see(&second.fork()), &expected);
    }
}

#[test]
fn a_fork_of_a_fork_a_thousand_times() {
    let clock = ManualClock::new();
    let mut engine = engine(&clock);
    for key in 0..6 {
        engine.put(name(key), "first").unwrap();
    }
    let kept = engine.fork();
    let before = see(&kept);
    for round in 0..1_000_u64 {
        let key = name((round % 7) as u8);
        engine.put(key.clone(), round.to_string()).unwrap();
        if round % 5 == 0 {
            engine.delete(&KeyRange::one(key)).unwrap();
        }
        if round % 50 == 49 {
            let at = Revision(engine.current_revision().0 - 10);
            engine.compact(at).unwrap().run();
        }
        // The origin is dropped here.
        engine = engine.fork();
    }
    assert_eq!(see(&kept), before);
    let stats = engine.stats();
    assert_eq!((stats.keys, stats.current_revision), (7, Revision(1_207)));
    // Versions that are compacted in the fork are freed, whoever has created their entries.
    engine.compact(stats.current_revision).unwrap().run();
    assert_eq!(engine.stats().versions, engine.stats().live_keys as u64);
    let expected = see(&engine);
    drop(kept);
    assert_eq!(see(&engine), expected);
}

#[test]
fn leases_keep_the_time_that_they_have_left() {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1_000));
    let engine = engine(&clock);
    let [short, long, empty] = [5, 60, 30].map(|ttl| engine.grant(None, ttl).unwrap().id);
    for (key, lease) in [("a", short), ("b", long), ("c", long)] {
        engine
            .put_with(&Put::new(key, "").attached_to(lease))
            .unwrap();
    }
    clock.advance(Duration::from_secs(4));
    let own = ManualClock::new();
    let builder = engine.to_builder().clock(own.clone());
    let fork = builder.lease_ttl_min(Duration::from_secs(40)).fork(&engine);
    assert_eq!(fork.leases(), [short, empty, long]);
    let left = fork.lease(long, true).unwrap();
    assert_eq!(left.granted_ttl, Duration::from_secs(60));
    assert_eq!(left.remaining, Duration::from_secs(56));
    assert_eq!(left.keys, ["b", "c"]);
    // Each follows its own clock.
    own.advance(Duration::from_secs(1));
    assert!(fork.get("a").is_none() && fork.get("b").is_some());
    assert!(engine.get("a").is_some());
    clock.advance(Duration::from_secs(100));
    assert!(engine.leases().is_empty() && engine.get("b").is_none());
    assert_eq!(fork.keep_alive(long).unwrap(), Duration::from_secs(60));
    own.advance(Duration::from_secs(59));
    assert_eq!(fork.leases(), [long]);
    // The new minimum is that of new leases.
    assert_eq!(fork.grant(None, 1).unwrap().ttl, Duration::from_secs(40));
    own.advance(Duration::from_secs(1));
    assert!(fork.get("b").is_none() && fork.get("c").is_none());
}

#[test]
fn a_lease_that_has_expired_expires_in_the_fork() {
    let clock = ManualClock::new();
    let engine = engine(&clock);
    let lease = engine.grant(None, 5).unwrap().id;
    engine
        .put_with(&Put::new("a", "").attached_to(lease))
        .unwrap();
    // A clock that has not run the work that is due.
    let later = ManualClock::new();
    later.advance(Duration::from_secs(50));
    clock.advance(Duration::from_secs(5) - Duration::from_nanos(1));
    let fork = engine.to_builder().clock(later.clone()).fork(&engine);
    assert!(fork.get("a").is_some());
    later.advance(Duration::from_nanos(1));
    assert!(fork.get("a").is_none() && fork.leases().is_empty());
}

#[test]
fn options_are_those_of_the_origin() {
    let clock = ManualClock::new();
    let policy = AutoCompaction::Revisions {
        keep: 2,
        every: Duration::from_secs(10),
    };
    let builder = Engine::builder().clock(clock.clone());
    let engine = builder
        .auto_compaction(policy)
        .lease_ttl_min(Duration::from_secs(7))
        .snapshots_max(1)
        .build();
    let fork = engine.fork();
    drop(engine);
    assert_eq!(fork.grant(None, 1).unwrap().ttl, Duration::from_secs(7));
    for value in 0..9 {
        fork.put("k", value.to_string()).unwrap();
    }
    clock.advance(Duration::from_secs(10));
    assert_eq!(fork.compacted_revision(), Some(Revision(8)));
    let _open = fork.snapshot().unwrap();
    assert!(fork.snapshot().is_err());
    // A new engine like the fork begins empty.
    let reset = fork.to_builder().build();
    assert_eq!(
        (reset.current_revision(), reset.stats().keys),
        (Revision(1), 0)
    );
}

/// The policy by size looks at the version before each record, which another store may have written.
#[test]
fn automatic_compaction_by_size_counts_shared_versions() {
    let clock = ManualClock::new();
    let policy = AutoCompaction::Size {
        bytes_max: 4_000,
        every: Duration::from_secs(1),
    };
    let builder = Engine::builder().clock(clock.clone());
    let engine = builder.auto_compaction(policy).build();
    for value in 0..100 {
        engine.put("k", value.to_string()).unwrap();
    }
    let fork = engine.fork();
    clock.advance(Duration::from_secs(1));
    assert_eq!(fork.compacted_revision(), engine.compacted_revision());
    assert_eq!(see(&fork), see(&engine));
    assert!(fork.stats().history_bytes <= 4_000);
}

#[test]
fn snapshots_and_watches_of_the_origin_do_not_see_the_fork() {
    let clock = ManualClock::new();
    let engine = engine(&clock);
    engine.put("a", "1").unwrap();
    let snapshot = engine.snapshot().unwrap();
    engine.put("a", "2").unwrap();
    let mut watcher = engine.watch(WatchOptions::of(KeyRange::all())).unwrap();
    let fork = engine.fork();
    fork.put("a", "3").unwrap();
    fork.compact(Revision(4)).unwrap().run();
    assert!(watcher.try_next().is_none());
    assert_eq!(snapshot.get("a").unwrap().unwrap().value(), b"1");
    assert_eq!(
        engine.get_at("a", Revision(2)).unwrap().unwrap().value(),
        b"1"
    );
    let forked = fork.snapshot().unwrap();
    engine.compact(Revision(3)).unwrap().run();
    drop(engine);
    fork.put("a", "4").unwrap();
    fork.compact(Revision(5)).unwrap().run();
    assert_eq!(forked.get("a").unwrap().unwrap().value(), b"3");
    drop(fork);
    assert_eq!(forked.get("a").unwrap().unwrap().value(), b"3");
    assert_eq!(snapshot.get("a").unwrap().unwrap().value(), b"1");
}

/// Writers, compactions, watches and forks at the same time: each fork is the state of one revision.
#[test]
fn forks_beside_writers_compactions_and_watches_are_whole() {
    const KEYS: u64 = if cfg!(miri) { 8 } else { 400 };
    let clock = ManualClock::new();
    let engine = engine(&clock);
    let lease = engine.grant(LeaseId::new(1), 1_000).unwrap().id;
    let key = |number: u64| format!("k{number:05}");
    // All keys of a transaction have its number as value, so that a part of one shows.
    let write = |engine: &Engine, round: u64| {
        let put = |number| Put::new(key(number), round.to_string());
        let puts = (0..KEYS).step_by(37).map(|number| {
            let number = (number + round) % KEYS;
            let put = put(number);
            revstore_engine::Op::Put(if number.is_multiple_of(2) {
                put.attached_to(lease)
            } else {
                put
            })
        });
        engine
            .txn(&revstore_engine::Txn::new().and_then(puts))
            .unwrap();
        let gone = KeyRange::one(key(round * 7 % KEYS));
        engine.delete(&gone).unwrap();
    };
    for round in 0..100 {
        write(&engine, round);
    }
    let start = Barrier::new(4);
    thread::scope(|scope| {
        let (engine, start, write) = (&engine, &start, &write);
        let writer = scope.spawn(move || {
            start.wait();
            for round in 100..600 {
                write(engine, round);
            }
        });
        scope.spawn(move || {
            start.wait();
            while engine.current_revision() < Revision(900) {
                let at = Revision(engine.current_revision().0 - 20);
                if let Ok(compaction) = engine.compact(at) {
                    compaction.run();
                }
                thread::yield_now();
            }
        });
        scope.spawn(move || {
            start.wait();
            let watch = WatchOptions::of(KeyRange::all());
            let mut watcher = engine.watch(watch).unwrap();
            while engine.current_revision() < Revision(900) {
                while watcher.try_next().is_some() {}
                thread::yield_now();
            }
        });
        scope.spawn(move || {
            start.wait();
            let mut forks = Vec::new();
            while forks.len() < 40 {
                forks.push(engine.fork());
            }
            for fork in forks {
                check_whole(&fork, engine);
                // Compactions and writes of the fork, beside the others of the origin.
                write(&fork, 9);
                fork.compact(fork.current_revision()).unwrap().run();
                check_whole(&fork, &fork);
            }
        });
        writer.join().unwrap();
    });
}

/// Compares a fork with what is kept of the same revision in its origin, and with its own watches.
fn check_whole(fork: &Engine, origin: &Engine) {
    let current = fork.current_revision();
    let oldest = fork.compacted_revision().unwrap_or(Revision(1));
    let state = fork.range(&Range::of(KeyRange::all())).unwrap();
    assert_eq!(state.count, state.kvs.len());
    assert_eq!(fork.stats().live_keys, state.kvs.len());
    if let Ok(expected) = origin.range(&Range::of(KeyRange::all()).at(current)) {
        assert_eq!(state.kvs, expected.kvs);
    }
    let leased = fork.lease(LeaseId::new(1).unwrap(), true).unwrap().keys;
    let attached = state.kvs.iter().filter(|kv| kv.lease().is_some());
    assert!(leased.iter().eq(attached.map(KeyValue::key)));
    // The oldest state and all events are the newest state.
    let start = fork
        .range(&Range::of(KeyRange::all()).at(oldest.max(Revision(1))))
        .unwrap();
    let mut replayed: std::collections::BTreeMap<_, _> = start
        .kvs
        .into_iter()
        .map(|kv| (kv.key().to_vec(), kv))
        .collect();
    let mut last = oldest;
    for event in fork.changes(oldest.next()..).unwrap() {
        let kv = event.unwrap().kv;
        assert!(kv.mod_revision() >= last && kv.mod_revision() <= current);
        last = kv.mod_revision();
        if kv.is_tombstone() {
            replayed.remove(kv.key());
        } else {
            replayed.insert(kv.key().to_vec(), kv);
        }
    }
    assert!(replayed.values().eq(&state.kvs));
}
