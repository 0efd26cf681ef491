//! What must happen at a time: wakes whoever asked, through the clock (I10).

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use revstore_engine::{Clock, Timed};

use crate::wake::subscriber::Signal;

/// All timers of a cache, driven by its clock. Setting and clearing one costs
/// O(log timers).
#[derive(Debug)]
pub(crate) struct Timers {
    clock: Arc<dyn Clock>,
    /// Guards who waits until when. Held for one look or change; nobody is woken under it.
    waiting: Mutex<BTreeMap<(Duration, u64), Arc<Signal>>>,
}

impl Timers {
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

    /// Wakes `signal` at `due`. Earlier wishes of it stay.
    pub(crate) fn set(&self, due: Duration, signal: &Arc<Signal>) {
        let earliest = {
            let mut waiting = self.waiting.lock();
            waiting.insert((due, signal.id), signal.clone());
            waiting.first_key_value().map(|(first, _)| *first)
        };
        if earliest == Some((due, signal.id)) {
            self.clock.recheck();
        }
    }

    pub(crate) fn clear(&self, due: Duration, signal: &Signal) {
        self.waiting.lock().remove(&(due, signal.id));
    }

    /// Completes when the clock stands at `due` or behind it.
    pub(crate) async fn until(&self, due: Duration) {
        let sleep = Sleep {
            timers: self,
            due,
            signal: Arc::new(Signal::new()),
        };
        let mut armed = false;
        poll_fn(|context| {
            sleep.signal.waker.register(context.waker());
            if !armed {
                armed = true;
                sleep.timers.set(due, &sleep.signal);
            }
            if sleep.timers.now() >= due {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

/// A timer that is cleared when nobody waits for it any more.
struct Sleep<'a> {
    timers: &'a Timers,
    due: Duration,
    signal: Arc<Signal>,
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        self.timers.clear(self.due, &self.signal);
    }
}

impl Timed for Timers {
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
        for signal in due.into_values() {
            signal.waker.wake();
        }
    }
}
