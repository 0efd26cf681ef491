//! A leader election over the engine, correct and with a bug, under a model checker.
//!
//! A worker becomes the leader if there is none, under a lease that it revokes when it resigns. The
//! revision in which it became the leader is its leadership revision. In every interleaving, also
//! if a lease expires:
//!
//! - at most one worker is the leader, and
//! - a resignation or an expiry ends only the leadership of the worker with that lease.
//!
//! ```text
//! cargo run -p revstore-verify --example leader_election
//! RUSTFLAGS="--cfg loom" cargo run -p revstore-verify --example leader_election --target-dir target/loom
//! RUSTFLAGS="--cfg shuttle" cargo run -p revstore-verify --example leader_election --target-dir target/shuttle
//! ```
//!
//! With `test` instead of `run` the same models run as tests.

use std::error::Error;
use std::io::{Write as _, stdout};
#[cfg(test)]
use std::time::Duration;

use revstore_engine::{Compare, Engine, LeaseId, ManualClock, Op, Put, Revision, Txn};
use revstore_verify::{Options, race, try_explore};

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
    #[cfg(test)]
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

/// The campaign with the bug: another worker may write between the read and the put.
fn read_then_put(engine: &Engine, worker: Worker) -> Option<Revision> {
    if engine.get(LEADER).is_some() {
        return None;
    }
    let done = engine.put_with(&worker.claim()).expect("the lease exists");
    Some(done.revision)
}

/// Creates the engine of an execution, and the clock that moves its time.
fn engine() -> (Engine, ManualClock) {
    let clock = ManualClock::new();
    (Engine::builder().clock(clock.clone()).build(), clock)
}

/// One execution: two workers campaign at the same time, and exactly one becomes the leader.
fn two_workers_campaign(campaign: Campaign) {
    let (engine, _) = engine();
    let workers = [Worker::new(&engine, "a", 1), Worker::new(&engine, "b", 2)];
    let leaderships = race(workers.map(|worker| {
        let engine = engine.clone();
        move || campaign(&engine, worker)
    }));
    assert!(leaderships != [None, None], "no worker leads");
    assert!(leaderships.contains(&None), "two workers lead");
    let leader = workers[usize::from(leaderships[0].is_none())];
    let found = engine.get(LEADER).expect("the lease of the leader exists");
    assert_eq!(found.value(), leader.name.as_bytes());
    assert_eq!(found.lease(), Some(leader.lease));
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = stdout();
    let campaigns: [(&str, Campaign); 2] = [
        ("one transaction", campaign),
        ("a read, then a put", read_then_put),
    ];
    for (name, campaign) in campaigns {
        match try_explore(&Options::new(), move || two_workers_campaign(campaign)) {
            Ok(report) => writeln!(out, "{name}: no failure in {report}")?,
            Err(failure) => writeln!(out, "{name}: {failure}")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use revstore_verify::explore;

    #[test]
    fn one_of_two_workers_leads() {
        explore(&Options::new(), || two_workers_campaign(campaign));
    }

    /// Threads of the system show the bug only by chance.
    #[cfg(any(loom, shuttle))]
    #[test]
    fn a_campaign_that_reads_and_then_puts_is_detected() {
        let explored = try_explore(&Options::new(), || two_workers_campaign(read_then_put));
        let failure = explored.expect_err("the model detects the bug");
        assert_eq!(failure.message, "two workers lead");
    }

    #[test]
    fn a_leader_that_resigns_ends_only_its_own_leadership() {
        explore(&Options::new(), || {
            let (engine, _) = engine();
            let [a, b] = [Worker::new(&engine, "a", 1), Worker::new(&engine, "b", 2)];
            let first = campaign(&engine, a).expect("no other worker campaigns");
            let (for_a, for_b) = (engine.clone(), engine.clone());
            let ((), leadership) = race((move || a.resign(&for_a), move || campaign(&for_b, b)));
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
        explore(&Options::new(), || {
            let (engine, clock) = engine();
            let a = Worker::new(&engine, "a", 1);
            campaign(&engine, a).expect("no other worker campaigns");
            clock.advance(Duration::from_secs(4));
            let b = Worker::new(&engine, "b", 2);
            let for_b = engine.clone();
            let expire = move || clock.advance(Duration::from_secs(1));
            let ((), leadership) = race((expire, move || campaign(&for_b, b)));
            let leader = engine.get(LEADER);
            assert_eq!(
                leader.is_some(),
                leadership.is_some(),
                "the leadership of another worker was ended"
            );
            assert!(leader.is_none_or(|leader| leader.lease() == Some(b.lease)));
        });
    }
}
