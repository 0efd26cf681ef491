//! Loom models of the engine's protocols, one file a race under `tests/`.
//!
//! Each model runs the engine itself, compiled under `--cfg loom`, through every interleaving of a few
//! threads (with at most `LOOM_MAX_PREEMPTIONS` forced switches each), and beside it stands its broken
//! twin: the same model over an engine with one `Fault` in it, which must fail. Run them with
//!
//! ```text
//! RUSTFLAGS="--cfg loom -C debug-assertions" LOOM_MAX_PREEMPTIONS=3 \
//!     cargo test -p loom-tests --profile loom
//! ```
//!
//! Without `--cfg loom` this crate is empty.
//!
//! # What they do not show
//! The tree inside the index and the heap are seen through the locks around them. Reference counts are
//! not explored, only whether what is read was freed before; the pool of records is left out.
//! `SeqCst` is treated as `AcqRel`. The engine's tests under real threads stand in for all three.
//!
//! # Models of your own program
//! The engine is its real self under `--cfg loom`: a program that is built on it can be explored in the
//! same way. Give the program's crate loom where that is set, and keep away what does not build there
//! (tokio drops its network, so the crate under test should depend on the engine and not on the server):
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
//! A model is a test that starts a few `loom::thread`s, builds its engine inside of the model and with
//! a `ManualClock`, and states what must hold when they are done. Two workers that elect a leader:
//!
//! ```ignore
//! #[test]
//! fn one_of_two_workers_leads() {
//!     let mut builder = loom::model::Builder::new();
//!     builder.max_branches = 100_000; // One call of the engine is a few dozen of them.
//!     builder.check(|| {
//!         let engine = Engine::builder().clock(ManualClock::new()).build();
//!         let workers = [1, 2].map(|lease| {
//!             let lease = engine.grant(LeaseId::new(lease), 5).unwrap().id;
//!             let engine = engine.clone();
//!             loom::thread::spawn(move || campaign(&engine, lease))
//!         });
//!         let won = workers.map(|worker| worker.join().unwrap());
//!         assert!(won[0] != won[1], "nobody leads, or two do");
//!     });
//! }
//!
//! /// Becomes leader if nobody is; as long as the lease lives.
//! fn campaign(engine: &Engine, lease: LeaseId) -> bool {
//!     let claim = Put::new("leader", "me").attached_to(lease);
//!     let txn = Txn::new()
//!         .when([Compare::absent("leader")])
//!         .and_then([Op::Put(claim)]);
//!     engine.txn(&txn).unwrap().succeeded
//! }
//! ```
//!
//! The same command runs it, with the name of your crate. `tests/models/leader_election.rs` has this
//! model in full: with resignation, with a lease that runs out half-way, and with the worker that
//! looks first and then puts, which loom must and does catch. Write that twin first; a model that
//! cannot fail proves nothing.
//!
//! Waiting for a watch is modelled with [`WatchStream::poll_response`](revstore_engine::WatchStream) or
//! `try_next` rather than `next_blocking` where the event may never come, for loom takes a thread that
//! sleeps for ever as a failure. Keep to two or three threads of one or two calls each.
#![cfg(loom)]

use loom::thread;
use revstore_engine::{Engine, Fault, ManualClock, Revision, WatchBatch, WatchEnd, Watcher};

/// Runs `model` over every interleaving of its threads, each time with a fresh engine.
pub fn run_model(model: impl Fn(&Engine) + Sync + Send + 'static) {
    run(None, model);
}

/// Runs `model` over an engine that makes a mistake; some interleaving must fail.
pub fn run_broken(fault: Fault, model: impl Fn(&Engine) + Sync + Send + 'static) {
    run(Some(fault), model);
}

fn run(fault: Option<Fault>, model: impl Fn(&Engine) + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 100_000;
    builder.check(move || {
        let engine = Engine::builder().clock(ManualClock::new());
        let engine = match fault {
            Some(fault) => engine.fault(fault),
            None => engine,
        };
        model(&engine.build());
    });
}

/// Runs two things at the same time and waits for both.
///
/// Both get a thread of their own: loom does not explore all places where the thread that starts
/// another could be interrupted right after it.
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

/// The revisions of all events that a watch has now, and its end if it came.
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

/// The revisions of the events of a batch.
pub fn revisions(batch: &WatchBatch) -> impl Iterator<Item = i64> {
    batch.events.iter().map(|event| event.kv.mod_revision().0)
}

/// A main revision.
pub fn revision(main: i64) -> Revision {
    Revision(main)
}
