//! Calls that wait on a clock.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use revstore_engine::{Clock, Timed};

/// The calls that wait on a clock. Clones share them.
#[derive(Clone, Debug)]
pub struct Delays {
    clock: Arc<dyn Clock>,
    queue: Arc<Queue>,
}

/// A future that completes when the clock has reached a time.
#[derive(Debug)]
pub struct Delay {
    delays: Delays,
    due: Duration,
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
    wakers: BTreeMap<(Duration, u64), Waker>,
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

    /// Returns a future that completes after `time` from now on.
    pub fn wait(&self, time: Duration) -> Delay {
        Delay {
            due: self.clock.now().saturating_add(time),
            delays: self.clone(),
            key: None,
        }
    }
}

impl Future for Delay {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let delay = &mut *self;
        let previous = {
            let mut waiting = delay.delays.queue.waiting.lock();
            let key = *delay.key.get_or_insert_with(|| {
                waiting.next_key += 1;
                waiting.next_key
            });
            waiting
                .wakers
                .insert((delay.due, key), context.waker().clone())
        };
        let is_new = previous.is_none();
        drop(previous);
        // After the entry was added: a clock first changes its time and then looks for what is due.
        if delay.delays.clock.now() >= delay.due {
            delay.unregister();
            return Poll::Ready(());
        }
        if is_new {
            delay.delays.clock.recheck();
        }
        Poll::Pending
    }
}

impl Delay {
    fn unregister(&mut self) {
        if let Some(key) = self.key.take() {
            let mut waiting = self.delays.queue.waiting.lock();
            let waker = waiting.wakers.remove(&(self.due, key));
            drop(waiting);
            drop(waker);
        }
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        self.unregister();
    }
}

impl Timed for Queue {
    fn next_due(&self) -> Option<Duration> {
        let waiting = self.waiting.lock();
        waiting.wakers.first_key_value().map(|((due, _), _)| *due)
    }

    fn run_due(self: Arc<Self>) {
        // The clock calls this when the first is due, so its time is the time of the clock or before it. Later ones
        // are called in their turn.
        let due: Vec<Waker> = {
            let mut waiting = self.waiting.lock();
            let Some(first) = waiting.wakers.first_key_value().map(|((due, _), _)| *due) else {
                return;
            };
            let later = waiting
                .wakers
                .split_off(&(first.saturating_add(Duration::from_nanos(1)), 0));
            std::mem::replace(&mut waiting.wakers, later)
                .into_values()
                .collect()
        };
        due.into_iter().for_each(Waker::wake);
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
        let mut short = pin!(delays.wait(Duration::from_secs(1)));
        let mut long = pin!(delays.wait(Duration::from_secs(2)));
        assert!(short.as_mut().poll(&mut context).is_pending());
        assert!(long.as_mut().poll(&mut context).is_pending());
        assert_eq!(delays.queue.next_due(), Some(Duration::from_secs(1)));
        clock.advance(Duration::from_secs(1));
        assert!(short.as_mut().poll(&mut context).is_ready());
        assert!(long.as_mut().poll(&mut context).is_pending());
        assert_eq!(delays.queue.next_due(), Some(Duration::from_secs(2)));
        {
            let mut dropped = Box::pin(delays.wait(Duration::ZERO));
            assert!(dropped.as_mut().poll(&mut context).is_ready());
        }
        clock.advance(Duration::from_secs(1));
        assert!(long.as_mut().poll(&mut context).is_ready());
        assert_eq!(delays.queue.next_due(), None);
    }
}
