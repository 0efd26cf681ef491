//! How a watcher learns that there is something for it.

use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::task::AtomicWaker;

/// Stands for "nothing".
const NONE: u64 = u64::MAX;

/// One watcher's place to be woken at: all that the feed knows of it.
#[derive(Debug)]
pub(crate) struct Signal {
    /// Never used twice in a process.
    pub(crate) id: u64,
    /// The first event in the log that the watcher has not looked at and may want.
    pending: AtomicU64,
    pub(crate) waker: AtomicWaker,
}

impl Signal {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            // Relaxed: only uniqueness counts.
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            pending: AtomicU64::new(NONE),
            waker: AtomicWaker::new(),
        }
    }

    // Relaxed, all three: the feed changes `pending` only under the write lock of the resource's
    // state, the watcher only under its read lock. That lock orders them; the atomic is there
    // because watchers share the read lock, and for looks without it, which are guesses.

    pub(crate) fn pending(&self) -> Option<u64> {
        Some(self.pending.load(Ordering::Relaxed)).filter(|at| *at != NONE)
    }

    pub(crate) fn set_pending(&self, at: Option<u64>) {
        self.pending.store(at.unwrap_or(NONE), Ordering::Relaxed);
    }

    /// Notes an event; says whether it is the first since the watcher looked, so that it must be
    /// woken.
    pub(crate) fn note(&self, at: u64) -> bool {
        let first = self.pending.load(Ordering::Relaxed) == NONE;
        if first {
            self.pending.store(at, Ordering::Relaxed);
        }
        first
    }
}
