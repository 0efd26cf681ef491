//! Leases: grants, expiry, keep-alives, attached keys.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use revstore_engine::{
    Engine, KeyRange, LEASE_TTL_MAX_SECONDS, LeaseError, LeaseId, ManualClock, Put, PutError,
    Revision, WatchOptions,
};

fn engine() -> (Engine, ManualClock) {
    let clock = ManualClock::new();
    (Engine::builder().clock(clock.clone()).build(), clock)
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn attach(engine: &Engine, key: &'static str, lease: LeaseId) {
    engine
        .put_with(&Put::new(key, "v").attached_to(lease))
        .unwrap();
}

fn keys_of(engine: &Engine, lease: LeaseId) -> Vec<Vec<u8>> {
    engine
        .lease(lease, true)
        .unwrap()
        .keys
        .iter()
        .map(|key| key.to_vec())
        .collect()
}

#[test]
fn le_1_to_3_grants_have_a_minimum_a_maximum_and_unique_ids() {
    let (engine, _) = engine();
    assert_eq!(engine.grant(None, -5).unwrap().ttl, seconds(2));
    assert_eq!(engine.grant(None, 7).unwrap().ttl, seconds(7));
    assert_eq!(
        engine.grant(None, LEASE_TTL_MAX_SECONDS).unwrap().ttl,
        seconds(9_000_000_000)
    );
    assert_eq!(
        engine.grant(None, LEASE_TTL_MAX_SECONDS + 1),
        Err(LeaseError::TtlTooLarge)
    );
    assert!(engine.grant(None, 7).unwrap().id.get() > 0);
    let id = LeaseId::new(-9);
    assert_eq!(engine.grant(id, 7).unwrap().id.get(), -9);
    assert_eq!(engine.grant(id, 7), Err(LeaseError::AlreadyExists));
    assert_eq!(
        engine.current_revision(),
        Revision(1),
        "LE-4: grants make no revision"
    );
}

#[test]
fn le_6_and_12_expiry_is_on_time_and_deletes_all_keys_in_one_revision() {
    let (engine, clock) = engine();
    let lease = engine.grant(None, 5).unwrap().id;
    for key in ["c", "a", "b"] {
        attach(&engine, key, lease);
    }
    let mut watcher = engine.watch(WatchOptions::of(KeyRange::all())).unwrap();
    clock.advance(Duration::from_nanos(4_999_999_999));
    assert!(
        watcher.try_next().is_none(),
        "the keys are deleted before the expiry"
    );
    clock.advance(Duration::from_nanos(1));
    let events = watcher.try_next().unwrap().unwrap().events;
    let keys: Vec<&[u8]> = events.iter().map(|event| event.kv.key()).collect();
    assert_eq!(keys, [b"a", b"b", b"c"], "LE-5: in key order");
    assert!(events.iter().all(|event| event.kv.is_tombstone()));
    assert!(
        events
            .iter()
            .all(|event| event.kv.mod_revision() == Revision(5))
    );
    assert_eq!(engine.lease(lease, false), Err(LeaseError::NotFound));
}

#[test]
fn le_8_a_keep_alive_restarts_the_time_and_changes_no_revision() {
    let (engine, clock) = engine();
    let lease = engine.grant(None, 5).unwrap().id;
    for _ in 0..4 {
        clock.advance(seconds(4));
        assert_eq!(engine.keep_alive(lease), Ok(seconds(5)));
    }
    clock.advance(seconds(2));
    assert_eq!(engine.lease(lease, false).unwrap().remaining, seconds(3));
    clock.advance(seconds(3));
    assert_eq!(engine.keep_alive(lease), Err(LeaseError::NotFound));
    assert_eq!(engine.current_revision(), Revision(1));
}

#[test]
fn le_7_a_key_is_attached_to_the_lease_of_its_last_put() {
    let (engine, _) = engine();
    let one = engine.grant(None, 60).unwrap().id;
    let two = engine.grant(None, 60).unwrap().id;
    attach(&engine, "a", one);
    attach(&engine, "b", one);
    attach(&engine, "a", two);
    assert_eq!(
        (keys_of(&engine, one), keys_of(&engine, two)),
        (vec![b"b".to_vec()], vec![b"a".to_vec()])
    );
    let unchanged = Put::keeping_value("a").keeping_lease();
    engine.put_with(&unchanged).unwrap();
    assert_eq!(
        engine.get("a").unwrap().lease(),
        Some(two),
        "PUT-5: the put keeps the lease"
    );
    engine.put("a", "detached").unwrap();
    engine.delete(&KeyRange::one("b")).unwrap();
    assert!(keys_of(&engine, one).is_empty() && keys_of(&engine, two).is_empty());
    engine.revoke(two).unwrap();
    assert_eq!(engine.get("a").unwrap().value(), b"detached");
}

#[test]
fn le_5_revoking_fails_for_an_unknown_lease_and_makes_no_revision_without_keys() {
    let (engine, _) = engine();
    assert_eq!(
        engine.revoke(LeaseId::new(4).unwrap()),
        Err(LeaseError::NotFound)
    );
    let lease = engine.grant(None, 60).unwrap().id;
    assert_eq!(engine.revoke(lease), Ok(Revision(1)));
    assert_eq!(engine.revoke(lease), Err(LeaseError::NotFound));
}

#[test]
fn put_6_a_put_with_an_unknown_lease_changes_nothing() {
    let (engine, _) = engine();
    let lease = LeaseId::new(-4).unwrap();
    let put = Put::keeping_value("a").attached_to(lease);
    assert_eq!(
        engine.put_with(&put),
        Err(PutError::LeaseNotFound { lease })
    );
    assert_eq!(engine.current_revision(), Revision(1));
}

#[test]
fn le_11_leases_are_listed_by_remaining_time() {
    let (engine, clock) = engine();
    let ids: Vec<LeaseId> = [30, 10, 20]
        .into_iter()
        .map(|ttl| engine.grant(LeaseId::new(ttl), ttl).unwrap().id)
        .collect();
    let listed = |engine: &Engine| {
        engine
            .leases()
            .iter()
            .map(|id| id.get())
            .collect::<Vec<_>>()
    };
    assert_eq!(listed(&engine), [10, 20, 30]);
    clock.advance(seconds(5));
    engine.keep_alive(ids[1]).unwrap();
    engine.keep_alive(ids[2]).unwrap();
    assert_eq!(listed(&engine), [10, 20, 30]);
    clock.advance(seconds(9));
    engine.keep_alive(ids[2]).unwrap();
    assert_eq!(listed(&engine), [10, 30, 20]);
}

#[test]
fn le_6_le_13_many_leases_expire_at_the_same_time() {
    let (engine, clock) = engine();
    for number in 1..=2000 {
        let lease = engine.grant(LeaseId::new(number), 5).unwrap().id;
        engine
            .put_with(&Put::new(format!("k{number}"), "v").attached_to(lease))
            .unwrap();
    }
    clock.advance(seconds(5));
    assert!(engine.leases().is_empty());
    let stats = engine.stats();
    assert_eq!((stats.leases, stats.lease_counts.expired), (0, 2000));
    assert!(engine.get("k1").is_none());
    // One revision for each lease.
    assert_eq!(engine.current_revision(), Revision(1 + 2 * 2000));
}

/// A waker that runs between the revocations of two leases that expire at the same time.
struct BetweenRevokes {
    engine: Engine,
    second: LeaseId,
    ran: AtomicBool,
}

impl Wake for BetweenRevokes {
    fn wake(self: Arc<Self>) {
        if self.ran.swap(true, Ordering::Relaxed) {
            return;
        }
        let (engine, second) = (&self.engine, self.second);
        attach(engine, "late", second);
        let status = engine.lease(second, true).unwrap();
        assert_eq!(status.remaining, Duration::ZERO, "LE-10: nothing remains");
        assert_eq!(status.keys, ["late", "second"]);
        assert_eq!(
            engine.leases(),
            [second],
            "LE-11: an expired lease is listed"
        );
        assert_eq!(
            engine.keep_alive(second),
            Err(LeaseError::NotFound),
            "LE-9: no keep-alive"
        );
    }
}

#[test]
fn le_15_le_9_an_expired_lease_accepts_keys_and_no_keep_alive_until_it_is_revoked() {
    let (engine, clock) = engine();
    let first = engine.grant(LeaseId::new(1), 5).unwrap().id;
    let second = engine.grant(LeaseId::new(2), 5).unwrap().id;
    attach(&engine, "first", first);
    attach(&engine, "second", second);
    let between = Arc::new(BetweenRevokes {
        engine: engine.clone(),
        second,
        ran: AtomicBool::new(false),
    });
    let mut watches = engine.watch_stream();
    watches
        .watch(WatchOptions::of(KeyRange::one("first")))
        .unwrap();
    let waker = Waker::from(between.clone());
    let poll = watches.poll_response(&mut Context::from_waker(&waker));
    assert!(poll.is_pending());
    clock.advance(seconds(5));
    assert!(between.ran.load(Ordering::Relaxed));
    assert!(engine.leases().is_empty());
    for key in ["first", "second", "late"] {
        assert!(engine.get(key).is_none(), "{key} is deleted with its lease");
    }
    // Two puts, the first revoke, the late put, the second revoke.
    assert_eq!(engine.current_revision(), Revision(6));
}

#[test]
fn a_guard_ends_its_lease_also_by_a_panic() {
    let (engine, _) = engine();
    let lease = engine.grant_guarded(LeaseId::new(7), 60).unwrap();
    assert_eq!((lease.id().get(), lease.ttl()), (7, seconds(60)));
    attach(&engine, "a", lease.id());
    attach(&engine, "b", lease.id());
    let before = engine.current_revision();
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _lease = lease;
        panic!("a panic of the test");
    }));
    assert!(unwound.is_err() && engine.leases().is_empty());
    assert_eq!(engine.current_revision(), before.next());
    assert!(engine.get("a").is_none() && engine.get("b").is_none());
}

#[test]
fn a_guard_renews_and_revokes_its_lease() {
    let (engine, clock) = engine();
    let lease = engine.grant_guarded(None, 60).unwrap();
    attach(&engine, "a", lease.id());
    clock.advance(seconds(40));
    assert_eq!(lease.keep_alive(), Ok(seconds(60)));
    clock.advance(seconds(40));
    let revoked = lease.revoke().unwrap();
    assert_eq!(revoked, engine.current_revision());
    assert!(engine.leases().is_empty() && engine.get("a").is_none());
    let leaked = engine.grant_guarded(None, 60).unwrap().leak();
    assert_eq!(engine.leases(), [leaked]);
}

/// The guard of an expired lease does not end a later one with the same id.
#[test]
fn a_guard_ends_no_other_lease() {
    let (engine, clock) = engine();
    let id = LeaseId::new(7);
    let guards: [_; 3] = std::array::from_fn(|_| {
        let guard = engine.grant_guarded(id, 5).unwrap();
        clock.advance(seconds(5));
        guard
    });
    let before = engine.current_revision();
    let [first, second, third] = guards;
    drop(first);
    let other = engine.grant(id, 60).unwrap().id;
    attach(&engine, "a", other);
    assert_eq!(second.keep_alive(), Err(LeaseError::NotFound));
    drop(second);
    assert_eq!(third.revoke(), Err(LeaseError::NotFound));
    assert_eq!(engine.leases(), [other]);
    assert!(engine.get("a").is_some());
    assert_eq!(engine.current_revision(), before.next());
}
