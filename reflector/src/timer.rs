//! A timer on an injected clock.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use revstore_watch_cache::clock::{Clock, Timed};

/// A timer for one waiting task, driven by a [`Clock`] (I10).
///
/// It has at most one due time: each call of [`Timer::poll_until`] replaces the previous one. If the
/// waiting future is dropped, its due time stays set and causes one spurious wake-up.
#[derive(Debug)]
pub(crate) struct Timer {
    clock: Arc<dyn Clock>,
    /// The due time. The lock is held for one read or write; no task is woken under it.
    due: Mutex<Option<Duration>>,
    waker: AtomicWaker,
}

impl Timer {
    /// Creates a timer that follows `clock`.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        let timer = Arc::new(Self {
            clock,
            due: Mutex::new(None),
            waker: AtomicWaker::new(),
        });
        let follower: Arc<dyn Timed> = timer.clone();
        timer.clock.follow(Arc::downgrade(&follower));
        timer
    }

    /// Returns the clock that drives the timer.
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Returns the current time of the clock.
    pub(crate) fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Returns `Ready` if the clock has reached `due`. Otherwise the task is woken when the clock
    /// reaches `due`.
    pub(crate) fn poll_until(&self, due: Duration, context: &Context<'_>) -> Poll<()> {
        // Registered before the clock is read, so that `run_due` wakes the task if the clock reaches
        // `due` in between.
        self.waker.register(context.waker());
        let previous = self.due.lock().replace(due);
        if previous != Some(due) {
            self.clock.recheck_at(due);
        }
        if self.clock.now() < due {
            return Poll::Pending;
        }
        *self.due.lock() = None;
        Poll::Ready(())
    }
}

impl Timed for Timer {
    fn next_due(&self) -> Option<Duration> {
        *self.due.lock()
    }

    fn run_due(self: Arc<Self>) {
        let now = self.clock.now();
        let is_due = self.due.lock().take_if(|due| *due <= now).is_some();
        if is_due {
            self.waker.wake();
        }
    }
}
