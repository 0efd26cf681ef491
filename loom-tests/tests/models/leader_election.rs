//! A model of somebody else's program: two workers elect a leader over our engine.
//!
//! This is what a user's own models look like, and the source of the example in the documentation of
//! this crate. A worker that finds no leader makes itself one, under a lease that ends when it resigns;
//! the revision in which it became leader is its term. What has to hold however the workers interleave,
//! the lease of the one running out included:
//!
//! - at most one worker wins a term, and
//! - a worker that resigns, or whose lease ends, takes its own leadership away and nobody else's.

use std::time::Duration;

use loom_tests::race;
use revstore_engine::{Compare, Engine, LeaseId, ManualClock, Op, Put, Revision, Txn};

const LEADER: &str = "leader";

/// One who would be leader.
#[derive(Clone, Copy)]
struct Worker {
    name: &'static str,
    lease: LeaseId,
}

/// How a worker makes itself leader; returns its term if it became one.
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

    /// Gives leadership back, if it still has it.
    fn resign(self, engine: &Engine) {
        engine.revoke(self.lease).expect("revoked only once");
    }
}

/// The right way: to look and to write is one transaction.
fn campaign(engine: &Engine, worker: Worker) -> Option<Revision> {
    let done = engine.txn(
        &Txn::new()
            .when([Compare::absent(LEADER)])
            .and_then([Op::Put(worker.claim())]),
    );
    let done = done.expect("the lease lives");
    done.succeeded.then_some(done.revision)
}

/// The wrong way: another worker may come between the look and the write.
fn check_then_put(engine: &Engine, worker: Worker) -> Option<Revision> {
    if engine.get(LEADER).is_some() {
        return None;
    }
    let done = engine.put_with(&worker.claim()).expect("the lease lives");
    Some(done.revision)
}

/// Runs `program` over every interleaving, each time with a fresh engine and a clock that stands still
/// until it is told to move.
fn explore(program: impl Fn(&Engine, &ManualClock) + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    // One call of the engine is a few dozen steps of loom's.
    builder.max_branches = 100_000;
    builder.check(move || {
        let clock = ManualClock::new();
        let engine = Engine::builder().clock(clock.clone()).build();
        program(&engine, &clock);
    });
}

/// Both want to lead at the same time.
fn one_term(campaign: Campaign) {
    explore(move |engine, _| {
        let [a, b] = [Worker::new(engine, "a", 1), Worker::new(engine, "b", 2)];
        let (of_a, of_b) = race(
            engine,
            move |engine| campaign(engine, a),
            move |engine| campaign(engine, b),
        );
        assert!(of_a.is_some() || of_b.is_some(), "nobody leads");
        assert!(of_a.is_none() || of_b.is_none(), "two workers lead");
        let leader = if of_a.is_some() { a } else { b };
        let found = engine.get(LEADER).expect("the leader's lease lives");
        assert_eq!(found.value(), leader.name.as_bytes());
        assert_eq!(found.lease(), Some(leader.lease));
    });
}

#[test]
fn one_of_two_workers_leads() {
    one_term(campaign);
}

#[test]
#[should_panic(expected = "two workers lead")]
fn a_worker_that_checks_and_then_puts_is_found() {
    one_term(check_then_put);
}

#[test]
fn a_leader_who_resigns_takes_only_its_own_leadership_away() {
    explore(|engine, _| {
        let [a, b] = [Worker::new(engine, "a", 1), Worker::new(engine, "b", 2)];
        let first = campaign(engine, a).expect("nobody else is there");
        let resign = move |engine: &Engine| a.resign(engine);
        let ((), term) = race(engine, resign, move |engine| campaign(engine, b));
        let leader = engine.get(LEADER);
        assert_eq!(leader.is_some(), term.is_some(), "the wrong one went");
        if let (Some(leader), Some(term)) = (leader, term) {
            assert_eq!(leader.create_revision(), term);
            assert!(term > first, "terms only grow");
        }
    });
}

#[test]
fn a_leader_whose_lease_runs_out_takes_only_its_own_leadership_away() {
    explore(|engine, clock| {
        let a = Worker::new(engine, "a", 1);
        campaign(engine, a).expect("nobody else is there");
        clock.advance(Duration::from_secs(4));
        let b = Worker::new(engine, "b", 2);
        let clock = clock.clone();
        let expire = move |_: &Engine| clock.advance(Duration::from_secs(1));
        let ((), term) = race(engine, expire, move |engine| campaign(engine, b));
        let leader = engine.get(LEADER);
        assert_eq!(leader.is_some(), term.is_some(), "the wrong one went");
        assert!(leader.is_none_or(|leader| leader.lease() == Some(b.lease)));
    });
}
