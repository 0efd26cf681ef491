//! Loom models of the engine's protocols: one file per race under `tests/models`.
//!
//! Each model runs the engine itself, compiled under `--cfg loom`, through all interleavings of a
//! few threads (with at most `LOOM_MAX_PREEMPTIONS` preemptions each). Each file also contains the
//! broken twin of its model: the same model over an engine with one mutation (`Fault`), under
//! `should_panic`. It shows that the model detects the bug. Run them with
//!
//! ```text
//! RUSTFLAGS="--cfg loom -C debug-assertions" LOOM_MAX_PREEMPTIONS=3 \
//!     cargo test -p loom-tests --profile loom
//! ```
//!
//! Without `--cfg loom` this crate is empty.
//!
//! # Limits
//! Loom explores the locks around the tree of the index and around other data on the heap, but not
//! the accesses to the data. It does not explore reference counts, but the models detect reads of
//! freed records. The pool of records is replaced. `SeqCst` is treated as `AcqRel`. The engine's
//! stress tests cover all of these with real threads.
//!
//! # Models of your own program
//! Under `--cfg loom` the engine works as in other builds, so programs that use it can be modelled
//! in the same way. Add loom to the program's crate under that cfg, and leave out dependencies that
//! do not build under it. (tokio has no network there, so depend on the engine and not on the
//! server.)
//!
//! ```toml
//! [dependencies]
//! revstore-engine = { path = "..." }
//!
//! [target.'cfg(loom)'.dev-dependencies]
//! loom = "0.7"
//!
//! [lints.rust]
//! unexpected_cfgs = { level = "warn", check-cfg = ['cfg(loom)'] }
//! ```
//!
//! A model is a test that creates an engine with a `ManualClock` inside the model, starts a few
//! `loom::thread`s, and checks assertions after they have ended. In this example two workers elect
//! a leader:
//!
//! ```ignore
//! #[test]
//! fn one_of_two_workers_leads() {
//!     let mut builder = loom::model::Builder::new();
//!     builder.max_branches = 100_000; // One call of the engine takes a few dozen branches.
//!     builder.check(|| {
//!         let engine = Engine::builder().clock(ManualClock::new()).build();
//!         let workers = [1, 2].map(|lease| {
//!             let lease = engine.grant(LeaseId::new(lease), 5).unwrap().id;
//!             let engine = engine.clone();
//!             loom::thread::spawn(move || campaign(&engine, lease))
//!         });
//!         let won = workers.map(|worker| worker.join().unwrap());
//!         assert!(won[0] != won[1], "no leader, or two");
//!     });
//! }
//!
//! /// Becomes the leader, until the lease ends, if there is none.
//! fn campaign(engine: &Engine, lease: LeaseId) -> bool {
//!     let claim = Put::new("leader", "me").attached_to(lease);
//!     let txn = Txn::new()
//!         .when([Compare::absent("leader")])
//!         .and_then([Op::Put(claim)]);
//!     engine.txn(&txn).unwrap().succeeded
//! }
//! ```
//!
//! The command above runs it, with the name of your crate. `tests/models/leader_election.rs`
//! contains the whole model: also with resignation, with a lease that expires, and with a broken
//! worker, which reads first and then puts. Loom detects the broken worker. Write the broken twin
//! first, to see that the model can fail.
//!
//! A model of a watch calls [`WatchStream::poll_response`](revstore_engine::WatchStream) or
//! `try_next` rather than `next_blocking` if the event may not come, because loom reports a thread
//! that sleeps for ever as a failure. Use two or three threads with one or two calls each.
#![cfg(loom)]

use loom::thread;
use revstore_engine::{Engine, Fault, ManualClock, WatchBatch, WatchEnd, Watcher};

/// Runs `model` over all interleavings of its threads, each time with a new engine.
pub fn run_model(model: impl Fn(&Engine) + Sync + Send + 'static) {
    run(None, model);
}

/// Runs `model` over an engine with a fault. At least one interleaving must fail.
pub fn run_broken(fault: Fault, model: impl Fn(&Engine) + Sync + Send + 'static) {
    run(Some(fault), model);
}

fn run(fault: Option<Fault>, model: impl Fn(&Engine) + Sync + Send + 'static) {
    run_with_clock(fault, move |engine, _| model(engine));
}

/// As [`run_model`] or, with a fault, [`run_broken`], for a model that advances the time.
pub fn run_with_clock(
    fault: Option<Fault>,
    model: impl Fn(&Engine, &ManualClock) + Sync + Send + 'static,
) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 100_000;
    builder.check(move || {
        let clock = ManualClock::new();
        let engine = Engine::builder().clock(clock.clone());
        let engine = match fault {
            Some(fault) => engine.fault(fault),
            None => engine,
        };
        model(&engine.build(), &clock);
    });
}

/// Runs two closures at the same time and waits for both.
///
/// Each runs on a separate thread, because loom does not explore all preemptions of a thread right
/// after it has started another one.
///
/// # Panics
/// If one of the threads panics.
pub fn race<A: 'static, B: 'static>(
    engine: &Engine,
    one: impl FnOnce(&Engine) -> A + 'static,
    other: impl FnOnce(&Engine) -> B + 'static,
) -> (A, B) {
    let (for_one, for_other) = (engine.clone(), engine.clone());
    let one = thread::spawn(move || one(&for_one));
    let other = thread::spawn(move || other(&for_other));
    let ended = "loom ends the model at the first panic";
    (one.join().expect(ended), other.join().expect(ended))
}

/// Returns the revisions of all events that are available now, and the end of the watch if it has
/// ended.
pub fn drain(watcher: &mut Watcher) -> (Vec<i64>, Option<WatchEnd>) {
    let mut seen = Vec::new();
    while let Some(batch) = watcher.try_next() {
        match batch {
            Ok(batch) => seen.extend(revisions(&batch)),
            Err(end) => return (seen, Some(end)),
        }
    }
    (seen, None)
}

/// Returns the revisions of the events of a batch.
pub fn revisions(batch: &WatchBatch) -> impl Iterator<Item = i64> {
    batch.events.iter().map(|event| event.kv.mod_revision().0)
}
