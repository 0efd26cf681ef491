//! Deadlines of waiting readers.

use std::collections::BTreeMap;
use std::collections::btree_map::OccupiedEntry;
use std::task::Waker;
use std::time::Duration;

use crate::store::Store;
use crate::sync::{self, Arc, Mutex, Rank};

/// The readers that wait until some time at most.
///
/// A reader adds its deadline and reads the clock afterwards. So if the clock has passed the
/// deadline without waking the reader, the reader sees the later time and does not sleep.
#[derive(Debug)]
pub(crate) struct Deadlines {
    /// Rank `Deadlines`. Held for one look or change; wakers are called, and dropped, after it is
    /// released.
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// The wakers, in the order of their deadlines.
    by_time: BTreeMap<(Duration, DeadlineId), Waker>,
    next: DeadlineId,
}

/// The number of a deadline, which is never used twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct DeadlineId(u64);

impl Deadlines {
    pub(crate) fn new() -> Self {
        Self {
            waiting: Mutex::new(Rank::Deadlines, Waiting::default()),
        }
    }

    /// Returns the earliest deadline.
    pub(crate) fn next(&self) -> Option<Duration> {
        let waiting = self.waiting.lock();
        waiting.by_time.keys().next().map(|(time, _)| *time)
    }

    /// Wakes the readers whose deadline has come.
    pub(crate) fn wake(&self, now: Duration) {
        loop {
            let due = {
                let mut waiting = self.waiting.lock();
                let first = waiting.by_time.first_entry();
                let due = first.filter(|first| first.key().0 <= now);
                due.map(OccupiedEntry::remove)
            };
            let Some(waker) = due else { return };
            sync::call_user(|| waker.wake());
        }
    }
}

/// The deadline of one reader, until it is dropped.
#[derive(Debug)]
pub(super) struct Deadline {
    store: Arc<Store>,
    time: Duration,
    id: DeadlineId,
    waker: Waker,
}

impl Deadline {
    /// Adds a deadline. The caller must read the clock again before it sleeps.
    pub(super) fn add(store: &Arc<Store>, time: Duration, waker: &Waker) -> Self {
        let (kept, waker) = (waker.clone(), waker.clone());
        let id = {
            let mut waiting = store.deadlines.waiting.lock();
            let id = waiting.next;
            waiting.next = DeadlineId(id.0 + 1);
            waiting.by_time.insert((time, id), kept);
            id
        };
        store.clock.recheck_at(time);
        Self {
            store: store.clone(),
            time,
            id,
            waker,
        }
    }

    /// Returns whether the deadline wakes the task of `waker`.
    pub(super) fn wakes(&self, waker: &Waker) -> bool {
        self.waker.will_wake(waker)
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        let waker = {
            let mut waiting = self.store.deadlines.waiting.lock();
            waiting.by_time.remove(&(self.time, self.id))
        };
        drop(waker);
    }
}
