//! The backend without a cfg: threads of the system.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::explore::{Backend, Failure, Limits, Payload, Program, Report, SEED, catch};
use crate::options::Options;

pub(crate) use pollster::block_on;
pub(crate) use std::thread::spawn;
pub(crate) use std::{sync, thread};

pub(crate) const BACKEND: Backend = Backend::Threads;

/// How often a thread of a race yields until the others have started. It then continues alone, also
/// if the system refused to start one of them.
const START_YIELDS_MAX: usize = 100_000;
/// The default number of executions.
const EXECUTIONS: u64 = 100;

pub(crate) fn run(options: &Options, program: &Program) -> Result<Report, (Failure, Payload)> {
    let executions = options.executions_max().unwrap_or(EXECUTIONS);
    let limits = Limits::new(Some(executions), options.duration);
    let mut done = 0;
    while limits.admit(done) {
        SEED.set(Some(done));
        catch(|| program(), || (done + 1, None))?;
        done += 1;
    }
    Ok(Report {
        backend: BACKEND,
        executions: done,
        complete: false,
        seed: None,
    })
}

/// A point from which the threads of a race continue together. Starting a thread takes longer than
/// a few calls of the engine, which would otherwise not overlap.
#[derive(Clone)]
pub(crate) struct Start(Arc<AtomicUsize>);

impl Start {
    pub(crate) fn new(threads: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(threads)))
    }

    pub(crate) fn wait(&self) {
        // Relaxed: only the time of the start matters.
        self.0.fetch_sub(1, Ordering::Relaxed);
        for _ in 0..START_YIELDS_MAX {
            if self.0.load(Ordering::Relaxed) == 0 {
                return;
            }
            thread::yield_now();
        }
    }
}
