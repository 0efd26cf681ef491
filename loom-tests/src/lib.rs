//! Loom models of the engine's protocols: one file per race under `tests/models`.
//!
//! Each model runs the engine itself, compiled under `--cfg loom`, through the interleavings of a
//! few threads. Each file also contains the broken twin of its model: the same model over an engine
//! with one mutation (`Fault`), under `should_panic`. It shows that the model detects the bug. Run
//! them with
//!
//! ```text
//! RUSTFLAGS="--cfg loom -C debug-assertions" cargo test -p loom-tests --profile loom
//! ```
//!
//! # Bounds
//! A model explores all interleavings, unless that takes more than a minute. Then its file states
//! the bound of preemptions and the reason, and calls `run` with the bound. A broken twin is
//! explored with `TWIN_PREEMPTIONS` first, which finds most bugs at once. The variable
//! `LOOM_MAX_PREEMPTIONS` bounds the models that have no bound.
//!
//! Without `--cfg loom` this crate is empty.
//!
//! # Limits
//! Loom explores the accesses to pointers, counts and locks, but not those to other data on the heap:
//! it detects reads of nodes and records before they are written or after they are freed, but no torn
//! reads. Pins (`crossbeam-epoch`) are a model of their own, which frees as early as pins allow.
//! Reference counts of the engine are not explored; `tests/memory` explores those of a few records
//! without the engine. The pool of records is replaced. `SeqCst` is treated as `AcqRel`. The engine's
//! stress tests cover all of these with real threads.
//!
//! # Models of your own program
//! Use `revstore-verify`, whose documentation is the guide. These models use it, too.
#![cfg(loom)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

use revstore_engine::{Engine, Fault, ManualClock, WatchBatch, WatchEnd, Watcher};
use revstore_verify::{Options, explore};

/// The number of preemptions with which a broken twin is explored first.
pub const TWIN_PREEMPTIONS: u8 = 3;

/// Runs `model` over all interleavings of its threads, each time with a new engine.
pub fn run_model(model: impl Fn(&Engine) + Sync + Send + 'static) {
    run(&Options::new(), None, move |engine, _| model(engine));
}

/// Runs `model` over an engine with a fault. At least one interleaving must fail.
pub fn run_broken(fault: Fault, model: impl Fn(&Engine) + Sync + Send + 'static) {
    run(&Options::new(), Some(fault), move |engine, _| model(engine));
}

/// As [`run_model`] or, with a fault, [`run_broken`], for a model that advances the time or has a
/// bound.
pub fn run(
    options: &Options,
    fault: Option<Fault>,
    model: impl Fn(&Engine, &ManualClock) + Sync + Send + 'static,
) {
    let model = Arc::new(move || {
        let clock = ManualClock::new();
        let engine = Engine::builder().clock(clock.clone());
        let engine = match fault {
            Some(fault) => engine.fault(fault),
            None => engine,
        };
        model(&engine.build(), &clock);
    });
    if fault.is_some() {
        let model = model.clone();
        explore(&options.clone().preemptions(TWIN_PREEMPTIONS), move || {
            model()
        });
    }
    explore(options, move || model());
}

/// Runs two closures with the engine at the same time and waits for both.
///
/// # Panics
/// If one of the threads panics.
pub fn race<A: Send + 'static, B: Send + 'static>(
    engine: &Engine,
    one: impl FnOnce(&Engine) -> A + Send + 'static,
    other: impl FnOnce(&Engine) -> B + Send + 'static,
) -> (A, B) {
    let (for_one, for_other) = (engine.clone(), engine.clone());
    revstore_verify::race((move || one(&for_one), move || other(&for_other)))
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

/// A waker that records its wake-up. Loom does not explore the flag, which is read after the
/// thread that may wake has ended.
#[derive(Debug, Default)]
pub struct WakeRecorder(AtomicBool);

impl WakeRecorder {
    /// Returns whether the waker was called.
    pub fn was_woken(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for WakeRecorder {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}
