//! Reports of automatic compactions, for programs that log them.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use super::{AutoCompaction, Compactor, Scheduled};
use crate::fault::on_fault;
use crate::revision::Revision;
use crate::store::Store;
use crate::sync::{self, Arc};

/// The number of steps that wait for their reader. Further ones replace the oldest.
const STEPS_MAX: usize = 64;

/// A step of an automatic compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutoCompactionStep {
    /// The policy that required the compaction.
    pub policy: AutoCompaction,
    /// The compacted revision.
    pub revision: Revision,
    /// The time that the compaction has taken, by the engine's clock. `None` for its start: reads below the
    /// revision fail already, and the history is there.
    pub took: Option<Duration>,
}

/// A reader of the steps of automatic compactions, for a log; created by
/// [`Engine::auto_compactions`](crate::Engine::auto_compactions).
///
/// No compaction waits for the reader. If it does not read, the last 64 steps are kept.
///
/// ```
/// use std::time::Duration;
/// use revstore_engine::{AutoCompaction, Engine, ManualClock, Revision};
/// let clock = ManualClock::new();
/// let policy = AutoCompaction::Revisions { keep: 1, every: AutoCompaction::DEFAULT_INTERVAL };
/// let engine = Engine::builder().clock(clock.clone()).auto_compaction(policy).build();
/// let mut compactions = engine.auto_compactions().expect("a policy without a reader");
/// engine.put("key", "1")?;
/// engine.put("key", "2")?;
/// clock.advance(Duration::from_secs(300));
/// let (start, end) = (compactions.next_blocking(), compactions.next_blocking());
/// assert_eq!((start.revision, start.took), (Revision(2), None));
/// assert_eq!((end.revision, end.took), (Revision(2), Some(Duration::ZERO)));
/// # Ok::<(), revstore_engine::PutError>(())
/// ```
#[derive(Debug)]
#[must_use = "the steps are dropped with their reader"]
pub struct AutoCompactions {
    store: Arc<Store>,
}

impl AutoCompactions {
    /// Returns the reader; `None` if the store has no policy, or a reader.
    pub(crate) fn of(store: &Arc<Store>) -> Option<Self> {
        let mut scheduled = store.compactor.scheduled.as_ref()?.lock();
        if scheduled.steps.is_some() {
            return None;
        }
        scheduled.steps = Some(VecDeque::new());
        drop(scheduled);
        Some(Self {
            store: store.clone(),
        })
    }

    /// Waits for the next step.
    pub async fn next(&mut self) -> AutoCompactionStep {
        poll_fn(|context| self.poll_step(context)).await
    }

    /// As [`next`](Self::next), and blocks the thread.
    pub fn next_blocking(&mut self) -> AutoCompactionStep {
        sync::block_on(poll_fn(|context| self.poll_step(context)))
    }

    /// Polls for the next step.
    pub fn poll_step(&mut self, context: &mut Context<'_>) -> Poll<AutoCompactionStep> {
        let compactor = &self.store.compactor;
        if let Some(step) = compactor.take_step() {
            return Poll::Ready(step);
        }
        // Registered before the last look: a step that is reported after that look wakes the reader.
        compactor.reader.register(context.waker());
        on_fault!(self.store.faults, RegisterWakerLast, return Poll::Pending);
        match compactor.take_step() {
            Some(step) => Poll::Ready(step),
            None => Poll::Pending,
        }
    }
}

impl Drop for AutoCompactions {
    fn drop(&mut self) {
        if let Some(scheduled) = &self.store.compactor.scheduled {
            scheduled.lock().steps = None;
        }
    }
}

impl Compactor {
    /// Reports the start of a compaction, or with a time its end.
    pub(crate) fn report(&self, revision: Revision, took: Option<Duration>) {
        let Some(scheduled) = &self.scheduled else {
            return;
        };
        if scheduled.lock().report(revision, took) {
            // I8: with no lock held.
            sync::call_user(|| self.reader.wake());
        }
    }

    fn take_step(&self) -> Option<AutoCompactionStep> {
        self.scheduled.as_ref()?.lock().steps.as_mut()?.pop_front()
    }
}

impl Scheduled {
    /// Returns whether there is a reader.
    fn report(&mut self, revision: Revision, took: Option<Duration>) -> bool {
        let Some(steps) = &mut self.steps else {
            return false;
        };
        if steps.len() == STEPS_MAX {
            steps.pop_front();
        }
        steps.push_back(AutoCompactionStep {
            policy: self.kind,
            revision,
            took,
        });
        true
    }
}
