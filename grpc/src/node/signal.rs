//! A signal: an event that occurs once, and the tasks that wait for it. `loom-tests/tests/wakers` compiles this file,
//! too.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::sync::{AtomicBool, Mutex, Ordering};

/// An event that occurs once.
#[derive(Debug)]
pub(crate) struct Signal {
    is_raised: AtomicBool,
    /// A leaf lock: held to insert, remove or take wakers, never while a waker is called.
    waiters: Mutex<Waiters>,
}

#[derive(Debug, Default)]
struct Waiters {
    next: u64,
    wakers: HashMap<u64, Waker>,
}

impl Signal {
    pub(crate) fn new() -> Self {
        Self {
            is_raised: AtomicBool::new(false),
            waiters: Mutex::new(Waiters::default()),
        }
    }

    /// Wakes all tasks that wait.
    pub(crate) fn raise(&self) {
        // Release: pairs with the Acquire in `is_raised`. Before the lock, so that a task that comes too late for its
        // waker to be called sees the flag.
        self.is_raised.store(true, Ordering::Release);
        let wakers = std::mem::take(&mut self.waiters.lock().wakers);
        for waker in wakers.into_values() {
            waker.wake();
        }
    }

    /// Returns whether the event has occurred. Costs one atomic load.
    pub(crate) fn is_raised(&self) -> bool {
        // Acquire: pairs with the Release in `raise`, so that everything before it is visible.
        self.is_raised.load(Ordering::Acquire)
    }
}

/// A task that waits for a signal. A poll costs one atomic load; the first one, and each by another task, locks.
#[derive(Debug)]
pub(crate) struct Waiter {
    signal: Arc<Signal>,
    registered: Option<(u64, Waker)>,
}

impl Waiter {
    pub(crate) fn new(signal: Arc<Signal>) -> Self {
        Self {
            signal,
            registered: None,
        }
    }

    pub(crate) fn poll(&mut self, context: &Context<'_>) -> Poll<()> {
        if self.signal.is_raised() {
            return Poll::Ready(());
        }
        let waker = context.waker();
        let known = self.registered.as_ref();
        if known.is_some_and(|(_, known)| known.will_wake(waker)) {
            return Poll::Pending;
        }
        let known = known.map(|&(id, _)| id);
        let id = {
            let mut waiters = self.signal.waiters.lock();
            let id = known.unwrap_or(waiters.next);
            waiters.next += u64::from(known.is_none());
            waiters.wakers.insert(id, waker.clone());
            id
        };
        self.registered = Some((id, waker.clone()));
        // The signal may have been raised between the first look and the lock.
        if self.signal.is_raised() {
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if let Some((id, _)) = self.registered {
            // The waker is dropped after the lock is released: it may drop a task.
            let waker = self.signal.waiters.lock().wakers.remove(&id);
            drop(waker);
        }
    }
}
