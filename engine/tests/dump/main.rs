//! Dumps, followers and restored engines: a restored engine answers as the original does.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod fork;
mod jump;
mod large;

use std::time::Duration;

use proptest::prelude::*;
use revstore_engine::{
    Engine, FollowError, KeyRange, KeyValue, LeaseChange, LeaseGrant, LeaseId, LeaseLeft,
    ManualClock, Op, Position, Put, Range, Restore, RestoreError, Revision, Txn, Version,
    WatchOptions,
};

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8),
    PutWithLease(u8, i64),
    Delete(u8, u8),
    DeleteAndPut(u8),
    Compact(u8),
    Grant(i64),
    Revoke(i64),
}

fn step() -> impl Strategy<Value = Step> {
    let (key, lease) = (0..6_u8, 1..4_i64);
    prop_oneof![
        4 => (key.clone(), any::<u8>()).prop_map(|(key, value)| Step::Put(key, value)),
        2 => (key.clone(), lease.clone()).prop_map(|(key, lease)| Step::PutWithLease(key, lease)),
        2 => (key.clone(), key.clone()).prop_map(|(from, to)| Step::Delete(from, to)),
        1 => key.prop_map(Step::DeleteAndPut),
        1 => (0..4_u8).prop_map(Step::Compact),
        1 => lease.clone().prop_map(Step::Grant),
        1 => lease.prop_map(Step::Revoke),
    ]
}

fn name(key: u8) -> Vec<u8> {
    vec![b'k', key]
}

fn apply(engine: &Engine, step: &Step) {
    match *step {
        Step::Put(key, value) => drop(engine.put(name(key), vec![value]).unwrap()),
        Step::PutWithLease(key, lease) => {
            let put = Put::new(name(key), "leased").attached_to(LeaseId::new(lease).unwrap());
            let _ = engine.put_with(&put);
        }
        Step::Delete(from, to) => {
            let _ = engine.delete(&KeyRange::within(name(from), name(to)));
        }
        Step::DeleteAndPut(key) => {
            let delete = Op::Delete(KeyRange::one(name(key)));
            let txn = Txn::new().and_then([delete, Op::Put(Put::new(name(key), "again"))]);
            engine.txn(&txn).unwrap();
        }
        Step::Compact(back) => {
            let at = Revision(engine.current_revision().0 - i64::from(back));
            if let Ok(compaction) = engine.compact(at) {
                compaction.run();
            }
        }
        Step::Grant(lease) => drop(engine.grant(LeaseId::new(lease), 10 * lease)),
        Step::Revoke(lease) => drop(engine.revoke(LeaseId::new(lease).unwrap())),
    }
}

/// Adds some records to a restored engine as whole revisions.
fn add_history(restore: &mut Restore, records: &[KeyValue]) -> Result<(), RestoreError> {
    for revision in records.chunk_by(|a, b| a.mod_revision() == b.mod_revision()) {
        let changes: Vec<_> = revision.iter().map(Version::from).collect();
        restore.revision(&changes)?;
    }
    Ok(())
}

fn begin_copy(engine: &Engine, clock: &ManualClock) -> Restore {
    let dump = engine.dump();
    let builder = Engine::builder().clock(clock.clone());
    let mut restore = builder.restore(dump.compacted()).unwrap();
    for version in dump.base() {
        restore.base(&Version::from(&version)).unwrap();
    }
    add_history(&mut restore, &dump.history().collect::<Vec<_>>()).unwrap();
    for lease in dump.leases() {
        restore.grant_left(*lease).unwrap();
    }
    assert_eq!(restore.current_revision(), dump.revision());
    restore
}

fn copy(engine: &Engine, clock: &ManualClock) -> Engine {
    begin_copy(engine, clock).finish().unwrap()
}

/// Everything that clients can see of an engine.
#[derive(Debug, PartialEq)]
struct Seen {
    current: Revision,
    compacted: Option<Revision>,
    reads: Vec<(Revision, Vec<KeyValue>, usize, Vec<usize>)>,
    events: Vec<(Revision, Vec<KeyValue>)>,
    leases: Vec<(LeaseId, Duration, Duration, Vec<bytes::Bytes>)>,
    lease_order: Vec<LeaseId>,
    versions: Vec<KeyValue>,
    sizes: (usize, usize, u64, u64),
}

fn see(engine: &Engine) -> Seen {
    // So that compacted versions which are not removed yet do not count.
    let current = engine.current_revision();
    let compacted = engine.compacted_revision();
    let oldest = compacted.map_or(1, |at| at.0.max(1));
    let kept = (oldest..=current.0).map(Revision);
    let reads = kept.clone().map(|at| {
        let all = engine.range(&Range::of(KeyRange::all()).at(at)).unwrap();
        let counts = (0..6).map(|key| {
            let range = Range::of(KeyRange::From(name(key).into()))
                .at(at)
                .count_only();
            engine.range(&range).unwrap().count
        });
        (at, all.kvs, all.count, counts.collect())
    });
    let events = kept.map(|from| {
        let watch = WatchOptions::of(KeyRange::all()).from(from);
        let mut watcher = engine.watch(watch).unwrap();
        let mut events = Vec::new();
        while let Some(batch) = watcher.try_next() {
            events.extend(batch.unwrap().events.iter().map(|event| event.kv.clone()));
        }
        (from, events)
    });
    let stats = engine.stats();
    let lease_order = engine.leases();
    let mut ids = lease_order.clone();
    ids.sort();
    let leases = ids.into_iter().map(|id| {
        let lease = engine.lease(id, true).unwrap();
        (id, lease.granted_ttl, lease.remaining, lease.keys)
    });
    Seen {
        current,
        compacted,
        reads: reads.collect(),
        events: events.collect(),
        leases: leases.collect(),
        lease_order,
        versions: engine.full_history(None).unwrap().versions,
        sizes: (
            stats.keys,
            stats.live_keys,
            stats.versions,
            stats.history_bytes,
        ),
    }
}

proptest! {
    #[test]
    fn a_restored_engine_equals_the_original(
        before in prop::collection::vec(step(), 0..60),
        after in prop::collection::vec(step(), 0..30),
        start in prop_oneof![Just(1_i64), Just(100)],
    ) {
        let clock = ManualClock::new();
        let builder = Engine::builder().clock(clock.clone());
        let engine = builder.start_revision(Revision(start)).unwrap().build();
        for step in &before {
            apply(&engine, step);
        }
        let restored = copy(&engine, &clock);
        prop_assert_eq!(see(&restored), see(&engine));
        // Both continue in the same way.
        for step in &after {
            apply(&engine, step);
            apply(&restored, step);
        }
        prop_assert_eq!(see(&restored), see(&engine));
    }

    /// A dump of the middle, and everything that a follower reads afterwards in random portions.
    #[test]
    fn a_followed_engine_is_restored_up_to_each_revision(
        before in prop::collection::vec(step(), 0..30),
        after in prop::collection::vec((step(), any::<bool>()), 0..60),
    ) {
        let clock = ManualClock::new();
        let engine = Engine::builder().clock(clock.clone()).build();
        for step in &before {
            apply(&engine, step);
        }
        let mut follower = engine.follow(engine.current_revision()).unwrap();
        let mut restore = begin_copy(&engine, &clock);
        let mut compacted = engine.compacted_revision();
        for (step, is_read) in &after {
            apply(&engine, step);
            if *is_read {
                read_followed(&engine, &mut follower, &mut restore, &mut compacted);
            }
        }
        read_followed(&engine, &mut follower, &mut restore, &mut compacted);
        let restored = restore.finish().unwrap();
        prop_assert_eq!(see(&restored), see(&engine));
    }
}

fn read_followed(
    engine: &Engine,
    follower: &mut revstore_engine::Follower,
    restore: &mut Restore,
    compacted: &mut Option<Revision>,
) {
    let current = engine.current_revision();
    let changes = follower.take_lease_changes(current);
    for change in &changes {
        if let LeaseChange::Granted(lease) = change {
            restore.grant(*lease).unwrap();
        }
    }
    add_history(restore, &follower.changes(current).collect::<Vec<_>>()).unwrap();
    for change in &changes {
        match *change {
            LeaseChange::Ended { id, .. } => restore.end_lease(id),
            LeaseChange::Granted(lease) => restore.grant(lease).unwrap(),
        }
    }
    if engine.compacted_revision() != *compacted {
        *compacted = engine.compacted_revision();
        restore.compact(compacted.unwrap()).unwrap();
    }
    follower.advance(current);
}

#[test]
fn compaction_leaves_what_a_follower_has_not_read() {
    let engine = Engine::builder().clock(ManualClock::new()).build();
    let mut follower = engine.follow(Revision(1)).unwrap();
    for value in ["1", "2", "3", "4"] {
        engine.put("k", value).unwrap();
    }
    engine.compact(Revision(5)).unwrap().run();
    let values = |follower: &revstore_engine::Follower| {
        let changes = follower.changes(Revision(5));
        changes.map(|kv| kv.value().to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(values(&follower), [b"1", b"2", b"3", b"4"]);
    follower.advance(Revision(3));
    assert_eq!(values(&follower), [b"3", b"4"]);
    assert!(engine.stats().versions > 1);
    follower.advance(Revision(5));
    // The compaction is finished without another one.
    assert_eq!(engine.stats().versions, 1);
}

#[test]
fn a_dump_is_of_one_revision_while_the_store_is_written_and_compacted() {
    let (engine, clock) = (
        Engine::builder().clock(ManualClock::new()).build(),
        ManualClock::new(),
    );
    for key in 0..6 {
        apply(&engine, &Step::Put(key, key));
    }
    engine.compact(Revision(4)).unwrap().run();
    let expected = see(&engine);
    let dump = engine.dump();
    for key in (0..6).rev() {
        apply(&engine, &Step::Put(key, 9));
    }
    engine.delete(&KeyRange::all()).unwrap();
    engine.put("new", "").unwrap();
    engine.compact(engine.current_revision()).unwrap().run();
    let mut restore = Engine::builder()
        .clock(clock)
        .restore(dump.compacted())
        .unwrap();
    for version in dump.base() {
        restore.base(&Version::from(&version)).unwrap();
    }
    add_history(&mut restore, &dump.history().collect::<Vec<_>>()).unwrap();
    assert_eq!(see(&restore.finish().unwrap()), expected);
    drop(dump);
    assert_eq!(engine.stats().versions, 1);
}

#[test]
fn leases_of_a_follower_come_before_their_keys_and_end_after_them() {
    let clock = ManualClock::new();
    let engine = Engine::builder().clock(clock.clone()).build();
    let old = engine.grant(None, 60).unwrap();
    let mut follower = engine.follow(Revision(1)).unwrap();
    assert_eq!(follower.leases(), [old]);
    assert_eq!(
        engine.follow(Revision(1)).unwrap_err(),
        FollowError::Followed
    );
    let new = engine.grant(LeaseId::new(7), 60).unwrap();
    engine
        .put_with(&Put::new("k", "").attached_to(new.id))
        .unwrap();
    let current = engine.current_revision();
    engine.revoke(new.id).unwrap();
    engine.grant(LeaseId::new(7), 30).unwrap();
    // The end belongs to a later revision, and so does everything behind it.
    assert_eq!(
        follower.take_lease_changes(current),
        [LeaseChange::Granted(new)]
    );
    let ended = LeaseChange::Ended {
        id: new.id,
        revision: Revision(3),
    };
    let again = LeaseGrant {
        ttl: Duration::from_secs(30),
        ..new
    };
    let rest = [ended, LeaseChange::Granted(again)];
    assert_eq!(follower.take_lease_changes(Revision(3)), rest);
    clock.advance(Duration::from_secs(100));
    assert_eq!(follower.take_lease_changes(Revision(3)).len(), 2);
    drop(follower);
    let missing = engine.follow(Revision(9)).unwrap_err();
    assert_eq!(missing, FollowError::Missing { after: Revision(9) });
    assert!(engine.follow(Revision(1)).is_ok());
}

fn put(key: &str, revision: i64, sub: u32, create: i64, version: i64) -> Version<'_> {
    Version {
        key: key.as_bytes(),
        value: Some(b"v"),
        position: Position {
            revision: Revision(revision),
            sub,
        },
        create_revision: Revision(create),
        version,
        lease: None,
    }
}

#[test]
fn restored_leases_have_their_full_time_to_live_and_their_keys() {
    let clock = ManualClock::new();
    let engine = Engine::builder().clock(clock.clone()).build();
    let lease = engine.grant(LeaseId::new(7), 60).unwrap().id;
    engine
        .put_with(&Put::new("k", "").attached_to(lease))
        .unwrap();
    clock.advance(Duration::from_secs(50));
    // Without the time that they have left.
    let mut restore = begin_copy(&engine, &clock);
    for left in engine.dump().leases() {
        restore.grant(left.lease).unwrap();
    }
    let restored = restore.finish().unwrap();
    let status = restored.lease(lease, true).unwrap();
    assert_eq!(status.remaining, Duration::from_secs(60));
    assert_eq!(status.keys, [&b"k"[..]]);
    assert_eq!(restored.stats().lease_counts.granted, 0);
    clock.advance(Duration::from_secs(61));
    assert!(restored.get("k").is_none() && restored.leases().is_empty());
}

#[test]
fn what_no_store_contains_is_refused() {
    let restore = |compacted| {
        Engine::builder()
            .clock(ManualClock::new())
            .restore(compacted)
    };
    let at = |revision, sub| Position {
        revision: Revision(revision),
        sub,
    };
    for revision in [Revision(-1), Revision::LAST] {
        let refused = restore(Some(revision)).unwrap_err();
        assert_eq!(refused, RestoreError::CompactedRevision { revision });
    }
    let base = |versions: &[Version<'_>]| {
        let mut restore = restore(Some(Revision(9))).unwrap();
        versions
            .iter()
            .try_for_each(|version| restore.base(version))
    };
    let a = put("a", 5, 0, 4, 2);
    assert_eq!(base(&[a, put("b", 9, 1, 9, 1)]), Ok(()));
    let position = at(5, 0);
    assert_eq!(base(&[a, a]), Err(RestoreError::BaseOrder { position }));
    assert_eq!(
        base(&[put("", 5, 0, 5, 1)]),
        Err(RestoreError::Size { position })
    );
    let deleted = Version { value: None, ..a };
    assert_eq!(
        base(&[deleted]),
        Err(RestoreError::BaseVersion { position })
    );
    for (create, version) in [(6, 1), (4, 1), (5, 0), (0, 2)] {
        let found = base(&[put("a", 5, 0, create, version)]);
        assert_eq!(found, Err(RestoreError::Numbers { position }));
    }
    let position = at(10, 0);
    let found = base(&[put("a", 10, 0, 10, 1)]);
    assert_eq!(found, Err(RestoreError::BaseVersion { position }));

    let history = |revisions: &[&[Version<'_>]]| {
        let mut restore = restore(None).unwrap();
        let mut revisions = revisions.iter();
        revisions.try_for_each(|revision| restore.revision(revision))?;
        restore.finish().map(|engine| engine.current_revision())
    };
    let first = put("a", 2, 0, 2, 1);
    assert_eq!(
        history(&[&[first], &[put("a", 3, 0, 2, 2)]]),
        Ok(Revision(3))
    );
    let order = |found, current| {
        let (found, current) = (Revision(found), Revision(current));
        Err(RestoreError::RevisionOrder { found, current })
    };
    assert_eq!(history(&[&[first], &[put("a", 4, 0, 2, 2)]]), order(4, 2));
    assert_eq!(history(&[&[first], &[first]]), order(2, 2));
    assert_eq!(history(&[&[first], &[]]), order(2, 2));
    assert_eq!(history(&[&[put("a", 1, 0, 1, 1)]]), order(1, 1));
    let half = history(&[&[put("a", 2, 1, 2, 1)]]);
    assert_eq!(
        half,
        Err(RestoreError::ChangeOrder {
            found: at(2, 1),
            expected: 0
        })
    );
    let mixed = history(&[&[first, put("b", 3, 0, 3, 1)]]);
    assert_eq!(
        mixed,
        Err(RestoreError::ChangeOrder {
            found: at(3, 0),
            expected: 1
        })
    );
    let position = at(3, 0);
    let numbers = Err(RestoreError::Numbers { position });
    assert_eq!(history(&[&[first], &[put("a", 3, 0, 3, 1)]]), numbers);
    let deleted = Version {
        value: None,
        ..put("b", 3, 0, 3, 1)
    };
    assert_eq!(history(&[&[first], &[deleted]]), numbers);
    let lease = LeaseId::new(7).unwrap();
    let leased = Version {
        lease: Some(lease),
        ..first
    };
    let key = "a".into();
    let unknown = RestoreError::UnknownLease { lease, key };
    assert_eq!(
        unknown.to_string(),
        "key \"a\" is attached to lease 7, which does not exist"
    );
    assert_eq!(history(&[&[leased]]), Err(unknown));
}

#[test]
fn a_change_is_checked_when_it_is_added() {
    let compacted = || {
        let builder = Engine::builder().clock(ManualClock::new());
        builder.restore(Some(Revision(5))).unwrap()
    };
    let order = |revision, sub, expected| {
        let revision = Revision(revision);
        let found = Position { revision, sub };
        Err(RestoreError::ChangeOrder { found, expected })
    };
    // A compaction may have removed changes of its revision, but no position occurs twice.
    let mut restore = compacted();
    restore.change(&put("a", 5, 2, 3, 9)).unwrap();
    assert_eq!(restore.change(&put("b", 5, 2, 3, 9)), order(5, 2, 3));
    let last = put("b", 5, u32::MAX, 3, 9);
    assert_eq!(restore.change(&last), order(5, u32::MAX, 3));
    assert_eq!(compacted().revision(&[last]), order(5, u32::MAX, 0));

    // A base version is of a key that the compacted revision did not change.
    let mut restore = compacted();
    restore.base(&put("a", 2, 0, 2, 1)).unwrap();
    restore.change(&put("b", 5, 0, 5, 1)).unwrap();
    let position = Position {
        revision: Revision(5),
        sub: 1,
    };
    let changed = restore.change(&put("a", 5, 1, 2, 2));
    assert_eq!(changed, Err(RestoreError::BaseChanged { position }));

    // Revisions end with the first change of the next one, and with skipped ones.
    let mut restore = compacted();
    restore.change(&put("a", 5, 0, 5, 1)).unwrap();
    restore.change(&put("a", 6, 0, 5, 2)).unwrap();
    restore.change(&put("b", 6, 1, 6, 1)).unwrap();
    assert_eq!(restore.change(&put("c", 7, 1, 7, 1)), order(7, 1, 0));
    let mut restore = compacted();
    restore.change(&put("a", 6, 0, 6, 1)).unwrap();
    restore.skip_to(Revision(8)).unwrap();
    let (found, current) = (Revision(8), Revision(8));
    assert_eq!(
        restore.change(&put("b", 8, 0, 8, 1)),
        Err(RestoreError::RevisionOrder { found, current })
    );
    let mut restore = compacted();
    restore.change(&put("a", 6, 0, 6, 1)).unwrap();
    restore.change(&put("a", 7, 0, 6, 2)).unwrap();
    let lease = LeaseGrant {
        id: LeaseId::new(7).unwrap(),
        ttl: Duration::from_secs(5),
    };
    restore.grant(lease).unwrap();
    assert!(restore.has_lease(lease.id));
    restore.end_lease(lease.id);
    assert!(!restore.has_lease(lease.id));
    assert_eq!(restore.finish().unwrap().get("a").unwrap().version(), 2);
}

#[test]
fn a_base_state_leases_and_compactions_are_checked() {
    let builder = Engine::builder().clock(ManualClock::new());
    let mut both = builder.restore(Some(Revision(9))).unwrap();
    let lease = LeaseId::new(7).unwrap();
    both.base(&put("a", 9, 0, 9, 1)).unwrap();
    let position = Position {
        revision: Revision(9),
        sub: 0,
    };
    let twice = both.revision(&[put("a", 9, 0, 9, 1)]);
    assert_eq!(twice, Err(RestoreError::BaseVersion { position }));
    let ttl = Duration::from_secs(9_000_000_001);
    let grant = LeaseGrant { id: lease, ttl };
    assert_eq!(both.grant(grant), Err(RestoreError::LeaseTtl { lease }));
    let lease = LeaseGrant {
        id: lease,
        ttl: Duration::from_secs(5),
    };
    let more = both.grant_left(LeaseLeft {
        lease,
        remaining: Duration::from_secs(6),
    });
    assert_eq!(more, Err(RestoreError::LeaseTtl { lease: lease.id }));
    for revision in [Revision(9), Revision(10)] {
        let refused = both.compact(revision);
        assert_eq!(refused, Err(RestoreError::CompactedRevision { revision }));
    }
}
