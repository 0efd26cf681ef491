//! How workers wait for the keys of a work queue, and how they are woken.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::keys::{Added, Keys};
use super::sync::Mutex;

/// The keys of a work queue, with the workers that wait for one.
///
/// Each key that can be taken wakes one worker. A worker that was woken and does not take a key wakes
/// another one, so that no key waits while a worker does.
#[derive(Debug)]
pub(crate) struct Claims<K> {
    /// The lock is held for one operation on the sets; no task is woken under it.
    state: Mutex<State<K>>,
}

#[derive(Debug)]
struct State<K> {
    keys: Keys<K>,
    /// The workers that wait and were not woken, by the order in which they began to.
    waiting: BTreeMap<u64, Waker>,
    next_worker: u64,
    /// The tasks that wait until the queue is idle.
    draining: Vec<Waker>,
}

/// A worker that waits, or none: its number in the queue.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Option<u64>);

/// What a change of the queue makes it the caller's duty to do, after it has released its locks.
#[derive(Debug, Default)]
#[must_use = "the tasks must be woken"]
pub(crate) struct Wakes(Vec<Waker>);

impl Wakes {
    pub(crate) fn wake(self) {
        for waker in self.0 {
            waker.wake();
        }
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    /// Returns the waker of the worker that has waited for longest.
    fn next_waiting(&mut self) -> Option<Waker> {
        self.waiting.pop_first().map(|(_, waker)| waker)
    }

    /// Returns the tasks to wake after a key became ready, or after the last one was processed.
    fn wakes(&mut self, is_ready: bool) -> Wakes {
        let mut wakes = Vec::new();
        if is_ready {
            wakes.extend(self.next_waiting());
        }
        if self.keys.is_closed() && self.keys.is_idle() {
            wakes.extend(std::mem::take(&mut self.waiting).into_values());
            wakes.append(&mut self.draining);
        }
        Wakes(wakes)
    }
}

impl<K: Clone + Eq + Hash> Claims<K> {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                keys: Keys::new(),
                waiting: BTreeMap::new(),
                next_worker: 0,
                draining: Vec::new(),
            }),
        }
    }

    pub(crate) fn add(&self, key: K, now: Duration) -> (Added, Wakes) {
        let mut state = self.state.lock();
        let added = state.keys.add(key, now);
        (added, state.wakes(added == Added::Queued))
    }

    /// Takes a key, with the time for which it was in the queue. `None` if the queue is closed and all
    /// its keys were taken; the worker then has nothing more to do, unless a key is processed that
    /// will be queued again.
    pub(crate) fn poll_take(
        &self,
        waiting: &mut Waiting,
        now: impl FnOnce() -> Duration,
        context: &Context<'_>,
    ) -> Poll<Option<(K, Duration)>> {
        let mut state = self.state.lock();
        if let Some(number) = waiting.0.take() {
            state.waiting.remove(&number);
        }
        if let Some(taken) = state.keys.take(now()) {
            return Poll::Ready(Some(taken));
        }
        if state.keys.is_closed() && state.keys.is_idle() {
            return Poll::Ready(None);
        }
        let number = state.next_worker;
        state.next_worker += 1;
        state.waiting.insert(number, context.waker().clone());
        waiting.0 = Some(number);
        Poll::Pending
    }

    /// Ends the wait of a worker that did not take a key.
    pub(crate) fn leave(&self, waiting: &mut Waiting) -> Wakes {
        let Some(number) = waiting.0.take() else {
            return Wakes::default();
        };
        let mut state = self.state.lock();
        let was_woken = state.waiting.remove(&number).is_none();
        let is_ready = state.keys.len() > 0;
        state.wakes(was_woken && is_ready)
    }

    /// Ends the processing of a key. Returns for how long it was processed.
    pub(crate) fn done(&self, key: &K, now: Duration) -> (Duration, Wakes) {
        let mut state = self.state.lock();
        let (processed, is_ready) = state.keys.done(key, now);
        (processed, state.wakes(is_ready))
    }

    /// Refuses further keys.
    pub(crate) fn close(&self) -> Wakes {
        let mut state = self.state.lock();
        state.keys.close();
        state.wakes(false)
    }

    /// Returns `Ready` if the queue is closed, and no key is queued or processed.
    pub(crate) fn poll_drained(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if state.keys.is_closed() && state.keys.is_idle() {
            return Poll::Ready(());
        }
        let waker = context.waker();
        if !state.draining.iter().any(|known| known.will_wake(waker)) {
            state.draining.push(waker.clone());
        }
        Poll::Pending
    }

    /// Reads the sets.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Keys<K>) -> T) -> T {
        read(&self.state.lock().keys)
    }
}
