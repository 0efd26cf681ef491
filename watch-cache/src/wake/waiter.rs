//! A waiting task: its waker, and the first event of the window that it has not examined.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::task::AtomicWaker;

/// The value of `pending` that means "no event".
const NO_EVENT: u64 = u64::MAX;

/// A waiting task: a watcher, a request that waits for a revision or for readiness, or the feeder.
///
/// The code that wakes the task holds a reference to its waiter, and none to the state of the task.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// Unique within the process.
    pub(crate) id: u64,
    /// The number in the window of the first event that may match the watcher and that it has not
    /// examined, or `NO_EVENT`.
    pending: AtomicU64,
    /// The series of a watcher: see [`ResourceCache::next_series`](crate::ResourceCache::next_series).
    pub(crate) series: u64,
    /// The number in the window of the first event that is not for the watcher, or `NO_EVENT`.
    end: AtomicU64,
    /// The number under which its work is listed; 0 for none. Relaxed: only for lists.
    number: AtomicU64,
    /// Whether a timer has woken the task, which has not gone on since. Only the timer queue changes it.
    pub(super) is_woken: AtomicBool,
    pub(crate) waker: AtomicWaker,
}

impl Waiter {
    pub(crate) fn new() -> Self {
        Self::of_series(0)
    }

    /// Returns the waiter of a watcher.
    pub(crate) fn of_series(series: u64) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            // Relaxed: only uniqueness matters.
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            pending: AtomicU64::new(NO_EVENT),
            series,
            end: AtomicU64::new(NO_EVENT),
            number: AtomicU64::new(0),
            is_woken: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        }
    }

    /// Sets the number under which the work of the task is listed.
    pub(crate) fn set_number(&self, number: u64) {
        self.number.store(number, Ordering::Relaxed);
    }

    /// Returns the number under which the work of the task is listed; 0 for none.
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    // Relaxed, in these functions: the feeder changes `pending` only under the write lock of the
    // resource's state, and the watcher only under its read lock. That lock orders the accesses.
    // The field is atomic because watchers share the read lock, and because it is also read without
    // the lock, as an estimate. `end` is changed only under the write lock, and read under either.

    /// Returns the number of the first pending event, or `None` if no event is pending.
    pub(crate) fn pending(&self) -> Option<u64> {
        Some(self.pending.load(Ordering::Relaxed)).filter(|event| *event != NO_EVENT)
    }

    pub(crate) fn set_pending(&self, event: Option<u64>) {
        self.pending
            .store(event.unwrap_or(NO_EVENT), Ordering::Relaxed);
    }

    /// Returns the number of the first event that is not for the watcher, or `None` if it has no end.
    pub(crate) fn end(&self) -> Option<u64> {
        Some(self.end.load(Ordering::Relaxed)).filter(|event| *event != NO_EVENT)
    }

    /// Ends the watcher before the event with number `event`, unless it ends earlier.
    pub(crate) fn end_before(&self, event: u64) {
        self.end.fetch_min(event, Ordering::Relaxed);
    }

    /// Records that the event with number `event` may match. Returns `true` if no event was pending,
    /// so that the watcher must be woken.
    pub(crate) fn mark_pending(&self, event: u64) -> bool {
        let is_first = self.pending.load(Ordering::Relaxed) == NO_EVENT;
        if is_first {
            self.pending.store(event, Ordering::Relaxed);
        }
        is_first
    }
}
