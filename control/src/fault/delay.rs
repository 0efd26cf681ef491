//! Calls that wait on a clock.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use revstore_engine::{Clock, DueWork, PendingWork, Timed};

use super::RuleId;

/// The calls that wait on a clock. Clones share them.
#[derive(Clone, Debug)]
pub struct Delays {
    clock: Arc<dyn Clock>,
    queue: Arc<Queue>,
}

/// A future that completes when the clock has reached a time.
///
/// It is awaited for a call, which the clock waits for: see [`Delayed`].
#[derive(Debug)]
pub struct Delay {
    delays: Delays,
    due: Duration,
    rule: RuleId,
    /// The number of its entry in the queue, if it has one.
    key: Option<u64>,
}

#[derive(Debug, Default)]
struct Queue {
    /// A leaf lock: held for a look or a change. No waker is called under it.
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    next_key: u64,
    /// One for each delay that waits, so there are no more than calls.
    calls: BTreeMap<(Duration, u64), Waiter>,
    /// The number of calls whose delay has ended on the clock, and that are not done yet.
    going_on: usize,
}

#[derive(Debug)]
struct Waiter {
    waker: Waker,
    rule: RuleId,
}

/// A call whose delay has ended on the clock. Until this is dropped, the clock waits before it goes on to the next due
/// time, so that the call is executed at its own time.
#[derive(Debug)]
pub struct Delayed {
    queue: Arc<Queue>,
}

impl Drop for Delayed {
    fn drop(&mut self) {
        self.queue.waiting.lock().going_on -= 1;
    }
}

impl Delays {
    /// Creates the delays of a clock, which calls them as it calls engines.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let queue = Arc::new(Queue::default());
        let timed: Arc<dyn Timed> = queue.clone();
        clock.follow(Arc::downgrade(&timed) as Weak<dyn Timed>);
        Self { clock, queue }
    }

    /// Returns the time of the clock.
    pub fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Returns a future that completes after `time` from now on, as a rule wants it.
    pub fn wait(&self, time: Duration, rule: RuleId) -> Delay {
        Delay {
            due: self.clock.now().saturating_add(time),
            delays: self.clone(),
            rule,
            key: None,
        }
    }
}

impl Future for Delay {
    type Output = Option<Delayed>;

    /// Completes with the right to go on at this time; with none if the clock did not have to be waited for.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Delayed>> {
        let delay = &mut *self;
        let queue = &delay.delays.queue;
        let (previous, is_new) = {
            let mut waiting = queue.waiting.lock();
            let is_new = delay.key.is_none();
            let key = *delay.key.get_or_insert_with(|| {
                waiting.next_key += 1;
                waiting.next_key
            });
            let entry = (delay.due, key);
            if !is_new && !waiting.calls.contains_key(&entry) {
                // `run_due` has removed it, and counted it as going on.
                delay.key = None;
                let queue = queue.clone();
                return Poll::Ready(Some(Delayed { queue }));
            }
            let waiter = Waiter {
                waker: context.waker().clone(),
                rule: delay.rule,
            };
            (waiting.calls.insert(entry, waiter), is_new)
        };
        drop(previous);
        // After the entry was added: a clock first changes its time and then looks for what is due.
        if delay.delays.clock.now() >= delay.due {
            return Poll::Ready(delay.unregister());
        }
        if is_new {
            delay.delays.clock.recheck();
        }
        Poll::Pending
    }
}

impl Delay {
    /// Removes the entry. Returns the right to go on of one that the clock has woken.
    fn unregister(&mut self) -> Option<Delayed> {
        let key = self.key.take()?;
        let queue = &self.delays.queue;
        let waiter = queue.waiting.lock().calls.remove(&(self.due, key));
        let is_woken = waiter.is_none();
        drop(waiter);
        is_woken.then(|| Delayed {
            queue: queue.clone(),
        })
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        drop(self.unregister());
    }
}

impl Timed for Queue {
    fn next_due(&self) -> Option<Duration> {
        let waiting = self.waiting.lock();
        waiting.calls.first_key_value().map(|((due, _), _)| *due)
    }

    fn run_due(self: Arc<Self>) {
        // The clock calls this when the first is due, so its time is the time of the clock or before it. Later ones
        // are called in their turn.
        let due: Vec<Waker> = {
            let mut waiting = self.waiting.lock();
            let Some(first) = waiting.calls.first_key_value().map(|((due, _), _)| *due) else {
                return;
            };
            let later = waiting
                .calls
                .split_off(&(first.saturating_add(Duration::from_nanos(1)), 0));
            let due = std::mem::replace(&mut waiting.calls, later);
            waiting.going_on += due.len();
            due.into_values().map(|waiter| waiter.waker).collect()
        };
        due.into_iter().for_each(Waker::wake);
    }

    fn pending(&self, max: usize) -> PendingWork {
        let waiting = self.waiting.lock();
        let work = waiting.calls.iter().take(max);
        let work = work.map(|((due, _), waiter)| DueWork {
            due: *due,
            kind: "delay",
            id: waiter.rule.to_string(),
        });
        PendingWork {
            work: work.collect(),
            more: waiting.calls.len().saturating_sub(max) as u64,
        }
    }

    fn is_settled(&self) -> bool {
        self.waiting.lock().going_on == 0
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use revstore_engine::ManualClock;

    use super::*;

    #[test]
    fn a_delay_ends_when_the_clock_has_reached_its_time() {
        let clock = ManualClock::new();
        let delays = Delays::new(Arc::new(clock.clone()));
        let mut context = Context::from_waker(Waker::noop());
        let mut short = pin!(delays.wait(Duration::from_secs(1), RuleId(7)));
        let mut long = pin!(delays.wait(Duration::from_secs(2), RuleId(8)));
        assert!(short.as_mut().poll(&mut context).is_pending());
        assert!(long.as_mut().poll(&mut context).is_pending());
        assert_eq!(delays.queue.next_due(), Some(Duration::from_secs(1)));
        let pending = delays.queue.pending(1);
        let listed: Vec<_> = pending.work.iter().map(|it| (it.kind, &*it.id)).collect();
        assert_eq!((listed, pending.more), (vec![("delay", "7")], 1));
        clock.advance(Duration::from_secs(1));
        assert!(!delays.queue.is_settled());
        let Poll::Ready(going_on) = short.as_mut().poll(&mut context) else {
            panic!("the delay has ended");
        };
        assert!(going_on.is_some() && !delays.queue.is_settled());
        drop(going_on);
        assert!(delays.queue.is_settled());
        assert!(long.as_mut().poll(&mut context).is_pending());
        assert_eq!(delays.queue.next_due(), Some(Duration::from_secs(2)));
        {
            let mut dropped = Box::pin(delays.wait(Duration::ZERO, RuleId(9)));
            assert!(dropped.as_mut().poll(&mut context).is_ready());
        }
        clock.advance(Duration::from_secs(1));
        assert_eq!(delays.queue.next_due(), None);
        assert!(!delays.queue.is_settled());
        // A call that ends before it goes on is not waited for.
        long.set(delays.wait(Duration::from_secs(9), RuleId(8)));
        assert!(delays.queue.is_settled());
    }
}
