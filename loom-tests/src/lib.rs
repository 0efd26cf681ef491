//! Loom models of the engine's protocols, one file a race under `tests/`.
//!
//! Each model runs the engine itself, compiled under `--cfg loom`, through every interleaving of a few
//! threads (with at most `LOOM_MAX_PREEMPTIONS` forced switches each), and beside it stands its broken
//! twin: the same model over an engine with one [`Fault`] in it, which must fail. Run them with
//!
//! ```text
//! RUSTFLAGS="--cfg loom -C debug-assertions" LOOM_MAX_PREEMPTIONS=3 \
//!     cargo test -p loom-tests --profile loom
//! ```
//!
//! Without `--cfg loom` this crate is empty.
//!
//! # What they do not show
//! The tree inside the index and the heap are seen through the locks around them; loom has no view
//! into `triomphe`'s reference counts. `SeqCst` is treated as `AcqRel`. The engine's tests under real
//! threads stand in for both.
#![cfg(loom)]

use loom::thread;
use revstore_engine::{Engine, Fault, MainRevision, ManualClock, WatchBatch, WatchEnd, Watcher};

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
pub fn revision(main: i64) -> MainRevision {
    MainRevision(main)
}
