//! Leases with a manual clock: keys that are deleted when their owner stops renewing its lease,
//! without waiting for the time to pass.
//!
//! `cargo run -p revstore-engine --example leases`

use std::error::Error;
use std::io::{Write as _, stdout};
use std::time::Duration;

use revstore_engine::{Compare, Engine, KeyRange, ManualClock, Op, Put, Range, Txn, WatchOptions};

fn main() -> Result<(), Box<dyn Error>> {
    // Without `.clock(..)` an engine uses the time of the system.
    let clock = ManualClock::new();
    let engine = Engine::builder().clock(clock.clone()).build();
    let mut out = stdout();

    // Two workers register under a lease of 10 seconds each, and compete for the leadership.
    let mut watcher = engine.watch(WatchOptions::of(KeyRange::prefix("worker/")))?;
    let mut leases = Vec::new();
    for name in ["a", "b"] {
        let lease = engine.grant(None, 10)?.id;
        engine.put_with(&Put::new(format!("worker/{name}"), "ready").attached_to(lease))?;
        let campaign = Txn::new()
            .when([Compare::absent("leader")])
            .and_then([Op::Put(Put::new("leader", name).attached_to(lease))]);
        let won = engine.txn(&campaign)?.succeeded;
        writeln!(
            out,
            "worker {name}: {}",
            if won { "leads" } else { "follows" }
        )?;
        leases.push(lease);
    }

    // Only the second worker renews its lease.
    clock.advance(Duration::from_secs(6));
    engine.keep_alive(leases[1])?;
    let first = engine.lease(leases[0], true)?;
    writeln!(
        out,
        "worker a has {} keys and {} s left",
        first.keys.len(),
        first.remaining.as_secs()
    )?;

    // When the first lease expires, both of its keys are deleted, at one revision.
    clock.advance(Duration::from_secs(4));
    let workers = engine.range(&Range::of(KeyRange::prefix("worker/")))?;
    writeln!(out, "{} worker is left", workers.count)?;
    assert!(engine.get("leader").is_none());
    while let Some(batch) = watcher.try_next() {
        for event in &batch?.events {
            let change = if event.kv.is_tombstone() {
                "deleted"
            } else {
                "written"
            };
            writeln!(out, "{} {change}", event.kv.key().escape_ascii())?;
        }
    }
    Ok(())
}
