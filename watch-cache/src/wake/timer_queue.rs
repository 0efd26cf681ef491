//! Timers: wake-ups at times of an injected clock (I10).

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use revstore_engine::{Clock, DueWork, PendingWork, Timed};

use crate::wake::Waiter;

/// The timers of a cache, driven by its clock. `set` and `clear` cost O(log timers).
#[derive(Debug)]
pub(crate) struct TimerQueue {
    clock: Arc<dyn Clock>,
    /// The lock is held for one lookup or change, or for a list of pending work; no task is woken under it.
    waiting: Mutex<Waiting>,
    /// The number of tasks that a timer has woken and that have not gone on since: each sets or clears a timer, or ends.
    woken: AtomicUsize,
}

#[derive(Debug, Default)]
struct Waiting {
    /// By due time and the id of the waiter.
    timers: BTreeMap<(Duration, u64), Timer>,
    /// The number of entries that a list of all pending work has.
    entries: usize,
}

#[derive(Debug)]
struct Timer {
    waiter: Arc<Waiter>,
    work: TimedWork,
}

/// What is due at a timer, for lists of pending work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimedWork {
    /// Work of this kind.
    Kind(&'static str),
    /// What a watch waits for.
    Watch(WatchTimes),
}

/// The times for which a watch waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WatchTimes {
    pub(crate) bookmark: Option<Duration>,
    /// The end of the watch.
    pub(crate) end: Option<Duration>,
    /// The time at which a watch of a future revision fails.
    pub(crate) failure: Option<Duration>,
}

impl WatchTimes {
    /// Returns the earliest time.
    pub(crate) fn first(&self) -> Option<Duration> {
        let times = [self.bookmark, self.end, self.failure];
        times.into_iter().flatten().min()
    }
}

impl TimedWork {
    /// Returns the kinds and times of the work at a timer that is due at `due`.
    fn entries(self, due: Duration) -> impl Iterator<Item = (&'static str, Duration)> {
        let entries = match self {
            Self::Kind(kind) => [Some((kind, due)), None, None],
            Self::Watch(times) => [
                times.bookmark.map(|due| ("bookmark", due)),
                times.end.map(|due| ("watch", due)),
                times.failure.map(|due| ("wait", due)),
            ],
        };
        entries.into_iter().flatten()
    }
}

impl Waiting {
    fn insert(&mut self, key: (Duration, u64), timer: Timer) {
        self.entries += timer.work.entries(key.0).count();
        let previous = self.timers.insert(key, timer);
        self.forget(key.0, previous.as_ref());
    }

    fn remove(&mut self, key: (Duration, u64)) -> Option<Timer> {
        let removed = self.timers.remove(&key);
        self.forget(key.0, removed.as_ref());
        removed
    }

    /// Does not count the entries of a timer any longer.
    fn forget(&mut self, due: Duration, removed: Option<&Timer>) {
        self.entries -= removed.map_or(0, |timer| timer.work.entries(due).count());
    }
}

impl TimerQueue {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        let timers = Arc::new(Self {
            clock,
            waiting: Mutex::default(),
            woken: AtomicUsize::new(0),
        });
        let timed: Arc<dyn Timed> = timers.clone();
        timers.clock.follow(Arc::downgrade(&timed));
        timers
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Wakes `waiter` at `due`. Its other timers stay set.
    pub(crate) fn set(&self, due: Duration, waiter: &Arc<Waiter>, work: TimedWork) {
        let earliest = {
            let mut waiting = self.waiting.lock();
            let waiter = waiter.clone();
            waiting.insert((due, waiter.id), Timer { waiter, work });
            waiting.timers.first_key_value().map(|(first, _)| *first)
        };
        self.settle(waiter);
        if earliest == Some((due, waiter.id)) {
            self.clock.recheck_at(due);
        }
    }

    /// Removes the timer of `waiter` at `due`, if it is set.
    pub(crate) fn clear(&self, due: Duration, waiter: &Waiter) {
        drop(self.waiting.lock().remove((due, waiter.id)));
        self.settle(waiter);
    }

    /// Records that a task that a timer may have woken has gone on: the clock does not wait for it any longer.
    pub(crate) fn settle(&self, waiter: &Waiter) {
        // AcqRel, as the increment: the clock that sees the decrement sees what the task has done.
        if waiter.is_woken.load(Ordering::Relaxed) && waiter.is_woken.swap(false, Ordering::AcqRel)
        {
            self.woken.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Completes when the clock has reached `due`. The clock waits for the task until the result is dropped.
    pub(crate) async fn sleep_until(&self, due: Duration, kind: &'static str) -> ArmedTimer<'_> {
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
                timer.queue.set(due, &timer.waiter, TimedWork::Kind(kind));
            }
            if timer.queue.now() >= due {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        timer
    }
}

/// A set timer. It is cleared when it is dropped.
pub(crate) struct ArmedTimer<'a> {
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
        waiting.timers.first_key_value().map(|((due, _), _)| *due)
    }

    fn run_due(self: Arc<Self>) {
        let now = self.clock.now();
        let due = {
            let mut waiting = self.waiting.lock();
            let later = waiting.timers.split_off(&(now, u64::MAX));
            let due = std::mem::replace(&mut waiting.timers, later);
            for ((time, _), timer) in &due {
                waiting.forget(*time, Some(timer));
            }
            due
        };
        for timer in due.into_values() {
            if !timer.waiter.is_woken.swap(true, Ordering::AcqRel) {
                self.woken.fetch_add(1, Ordering::AcqRel);
            }
            timer.waiter.waker.wake();
        }
    }

    fn pending(&self, max: usize) -> PendingWork {
        let waiting = self.waiting.lock();
        // No work of a timer is due before the timer, so that of the first ones contains the first work of all.
        let first = waiting.timers.iter().take(max);
        let entries = first.flat_map(|((due, _), timer)| {
            let id = match (timer.work, timer.waiter.number()) {
                (TimedWork::Watch(_), number @ 1..) => number.to_string(),
                _ => String::new(),
            };
            let entries = timer.work.entries(*due);
            entries.map(move |(kind, due)| DueWork {
                due,
                kind,
                id: id.clone(),
            })
        });
        let mut work: Vec<_> = entries.collect();
        work.sort();
        work.truncate(max);
        let more = (waiting.entries - work.len()) as u64;
        PendingWork { work, more }
    }

    fn is_settled(&self) -> bool {
        self.woken.load(Ordering::Acquire) == 0
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use revstore_engine::ManualClock;

    use super::*;

    #[test]
    fn pending_work_is_listed_and_woken_tasks_are_waited_for() {
        let clock = ManualClock::new();
        let timers = TimerQueue::new(Arc::new(clock.clone()));
        let second = Duration::from_secs(1);
        let watch = Arc::new(Waiter::new());
        watch.set_number(7);
        let awaited = WatchTimes {
            bookmark: Some(2 * second),
            end: Some(9 * second),
            failure: None,
        };
        timers.set(2 * second, &watch, TimedWork::Watch(awaited));
        let mut sleep = pin!(timers.sleep_until(3 * second, "compaction"));
        let mut context = Context::from_waker(Waker::noop());
        assert!(sleep.as_mut().poll(&mut context).is_pending());
        let listed = |max| {
            let pending = timers.pending(max);
            let work = pending.work.into_iter();
            let work = work.map(|it| (it.due.as_secs(), it.kind, it.id));
            (work.collect::<Vec<_>>(), pending.more)
        };
        let all = vec![
            (2, "bookmark", "7".to_owned()),
            (3, "compaction", String::new()),
            (9, "watch", "7".to_owned()),
        ];
        assert_eq!(listed(3), (all.clone(), 0));
        assert_eq!(listed(1), (all[..1].to_vec(), 2));
        assert_eq!(listed(0), (Vec::new(), 3));
        assert!(timers.is_settled());
        clock.advance(2 * second);
        assert!(!timers.is_settled());
        timers.set(9 * second, &watch, TimedWork::Watch(awaited));
        assert!(timers.is_settled());
        clock.advance(second);
        let Poll::Ready(armed) = sleep.as_mut().poll(&mut context) else {
            panic!("the time has come");
        };
        // The task does its work.
        assert!(!timers.is_settled());
        drop(armed);
        assert!(timers.is_settled());
        timers.clear(9 * second, &watch);
        assert_eq!(listed(3), (Vec::new(), 0));
    }
}
