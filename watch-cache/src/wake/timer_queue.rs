//! Timers: wake-ups at times of an injected clock (I10).

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use revstore_engine::{Clock, Timed};

use crate::wake::Waiter;

/// The timers of a cache, driven by its clock. `set` and `clear` cost O(log timers).
#[derive(Debug)]
pub(crate) struct TimerQueue {
    clock: Arc<dyn Clock>,
    /// The waiters by due time and id. The lock is held for one lookup or change; no task is woken
    /// under it.
    waiting: Mutex<BTreeMap<(Duration, u64), Arc<Waiter>>>,
}

impl TimerQueue {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        let timers = Arc::new(Self {
            clock,
            waiting: Mutex::new(BTreeMap::new()),
        });
        let timed: Arc<dyn Timed> = timers.clone();
        timers.clock.follow(Arc::downgrade(&timed));
        timers
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Wakes `waiter` at `due`. Its other timers stay set.
    pub(crate) fn set(&self, due: Duration, waiter: &Arc<Waiter>) {
        let earliest = {
            let mut waiting = self.waiting.lock();
            waiting.insert((due, waiter.id), waiter.clone());
            waiting.first_key_value().map(|(first, _)| *first)
        };
        if earliest == Some((due, waiter.id)) {
            self.clock.recheck();
        }
    }

    /// Removes the timer of `waiter` at `due`, if it is set.
    pub(crate) fn clear(&self, due: Duration, waiter: &Waiter) {
        self.waiting.lock().remove(&(due, waiter.id));
    }

    /// Completes when the clock has reached `due`.
    pub(crate) async fn sleep_until(&self, due: Duration) {
        let timer = ArmedTimer {
            queue: self,
            due,
            waiter: Arc::new(Waiter::new()),
        };
        let mut armed = false;
        poll_fn(|context| {
            timer.waiter.waker.register(context.waker());
            if !armed {
                armed = true;
                timer.queue.set(due, &timer.waiter);
            }
            if timer.queue.now() >= due {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

/// A set timer. It is cleared when the future that waits for it is dropped.
struct ArmedTimer<'a> {
    queue: &'a TimerQueue,
    due: Duration,
    waiter: Arc<Waiter>,
}

impl Drop for ArmedTimer<'_> {
    fn drop(&mut self) {
        self.queue.clear(self.due, &self.waiter);
    }
}

impl Timed for TimerQueue {
    fn next_due(&self) -> Option<Duration> {
        let waiting = self.waiting.lock();
        waiting.first_key_value().map(|((due, _), _)| *due)
    }

    fn run_due(self: Arc<Self>) {
        let now = self.clock.now();
        let due = {
            let mut waiting = self.waiting.lock();
            let later = waiting.split_off(&(now, u64::MAX));
            std::mem::replace(&mut *waiting, later)
        };
        for waiter in due.into_values() {
            waiter.waker.wake();
        }
    }
}
