//! A model of a user's program: two workers elect a leader over the engine.
//!
//! It shows how users write models, and is the source of the example in the documentation of this
//! crate. A worker becomes the leader if there is none, under a lease that it revokes when it
//! resigns. The revision in which it became the leader is its leadership revision. In every
//! interleaving, also if a lease expires:
//!
//! - at most one worker is the leader, and
//! - a resignation or an expiry ends only the leadership of the worker with that lease.

use std::time::Duration;

use loom_tests::race;
use revstore_engine::{Compare, Engine, LeaseId, ManualClock, Op, Put, Revision, Txn};

const LEADER: &str = "leader";

/// A participant of the election.
#[derive(Clone, Copy)]
struct Worker {
    name: &'static str,
    lease: LeaseId,
}

/// A function by which a worker becomes the leader. Returns the leadership revision, or `None` if
/// there is another leader.
type Campaign = fn(&Engine, Worker) -> Option<Revision>;

impl Worker {
    fn new(engine: &Engine, name: &'static str, lease: i64) -> Self {
        let granted = engine.grant(LeaseId::new(lease), 5);
        let lease = granted.expect("a free id").id;
        Self { name, lease }
    }

    fn claim(self) -> Put {
        Put::new(LEADER, self.name).attached_to(self.lease)
    }

    /// Ends the leadership of this worker, if it is the leader.
    fn resign(self, engine: &Engine) {
        engine.revoke(self.lease).expect("revoked only once");
    }
}

/// The correct campaign: compares and writes in one transaction.
fn campaign(engine: &Engine, worker: Worker) -> Option<Revision> {
    let done = engine.txn(
        &Txn::new()
            .when([Compare::absent(LEADER)])
            .and_then([Op::Put(worker.claim())]),
    );
    let done = done.expect("the lease exists");
    done.succeeded.then_some(done.revision)
}

/// The broken campaign: another worker may write between the read and the put.
fn read_then_put(engine: &Engine, worker: Worker) -> Option<Revision> {
    if engine.get(LEADER).is_some() {
        return None;
    }
    let done = engine.put_with(&worker.claim()).expect("the lease exists");
    Some(done.revision)
}

/// Runs `program` over all interleavings, each time with a new engine and a manual clock.
fn explore(program: impl Fn(&Engine, &ManualClock) + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    // One call of the engine takes a few dozen branches.
    builder.max_branches = 100_000;
    builder.check(move || {
        let clock = ManualClock::new();
        let engine = Engine::builder().clock(clock.clone()).build();
        program(&engine, &clock);
    });
}

/// Checks that exactly one of two workers that campaign at the same time becomes the leader.
fn campaign_of_two(campaign: Campaign) {
    explore(move |engine, _| {
        let [a, b] = [Worker::new(engine, "a", 1), Worker::new(engine, "b", 2)];
        let (of_a, of_b) = race(
            engine,
            move |engine| campaign(engine, a),
            move |engine| campaign(engine, b),
        );
        assert!(of_a.is_some() || of_b.is_some(), "no worker leads");
        assert!(of_a.is_none() || of_b.is_none(), "two workers lead");
        let leader = if of_a.is_some() { a } else { b };
        let found = engine.get(LEADER).expect("the lease of the leader exists");
        assert_eq!(found.value(), leader.name.as_bytes());
        assert_eq!(found.lease(), Some(leader.lease));
    });
}

#[test]
fn one_of_two_workers_leads() {
    campaign_of_two(campaign);
}

#[test]
#[should_panic(expected = "two workers lead")]
fn a_campaign_that_reads_and_then_puts_is_detected() {
    campaign_of_two(read_then_put);
}

#[test]
fn a_leader_that_resigns_ends_only_its_own_leadership() {
    explore(|engine, _| {
        let [a, b] = [Worker::new(engine, "a", 1), Worker::new(engine, "b", 2)];
        let first = campaign(engine, a).expect("no other worker campaigns");
        let resign = move |engine: &Engine| a.resign(engine);
        let ((), leadership) = race(engine, resign, move |engine| campaign(engine, b));
        let leader = engine.get(LEADER);
        assert_eq!(
            leader.is_some(),
            leadership.is_some(),
            "the leadership of another worker was ended"
        );
        if let (Some(leader), Some(leadership)) = (leader, leadership) {
            assert_eq!(leader.create_revision(), leadership);
            assert!(leadership > first, "leadership revisions increase");
        }
    });
}

#[test]
fn a_leader_whose_lease_expires_ends_only_its_own_leadership() {
    explore(|engine, clock| {
        let a = Worker::new(engine, "a", 1);
        campaign(engine, a).expect("no other worker campaigns");
        clock.advance(Duration::from_secs(4));
        let b = Worker::new(engine, "b", 2);
        let clock = clock.clone();
        let expire = move |_: &Engine| clock.advance(Duration::from_secs(1));
        let ((), leadership) = race(engine, expire, move |engine| campaign(engine, b));
        let leader = engine.get(LEADER);
        assert_eq!(
            leader.is_some(),
            leadership.is_some(),
            "the leadership of another worker was ended"
        );
        assert!(leader.is_none_or(|leader| leader.lease() == Some(b.lease)));
    });
}
