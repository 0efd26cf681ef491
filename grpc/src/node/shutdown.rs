//! The shutdown signal of the server.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// A signal that ends all open streams, so that they do not delay the stop of the server. They end immediately,
/// except that watches first deliver the events of all revisions up to then, for at most 500 ms.
///
/// Clones share the signal. A shutdown begins once and never ends.
///
/// ```
/// use revstore_grpc::Shutdown;
/// let shutdown = Shutdown::new();
/// let clone = shutdown.clone();
/// shutdown.begin();
/// assert!(clone.has_begun());
/// ```
// FL-15, WA-17
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    signal: Arc<Signal>,
}

#[derive(Debug, Default)]
struct Signal {
    begun: AtomicBool,
    /// Set before `begun`.
    begun_at: OnceLock<Instant>,
    next_waiter: AtomicU64,
    /// The tasks that wait for the signal. A leaf lock: held to insert, remove or take wakers, never while a
    /// waker is called or across an await. A future that is polled by the same task locks it once, not at
    /// each poll.
    waiters: Mutex<HashMap<u64, Waker>>,
}

impl Shutdown {
    /// Creates a signal for a shutdown that has not begun.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins the shutdown and wakes all tasks that wait for it.
    pub fn begin(&self) {
        self.signal.begun_at.get_or_init(Instant::now);
        // Release: pairs with the Acquire in `has_begun`.
        self.signal.begun.store(true, Ordering::Release);
        let waiters = std::mem::take(&mut *self.signal.waiters.lock());
        for waker in waiters.into_values() {
            waker.wake();
        }
    }

    /// Returns whether the shutdown has begun. Costs one atomic load.
    pub fn has_begun(&self) -> bool {
        // Acquire: pairs with the Release in `begin`, so that everything before `begin` is visible.
        self.signal.begun.load(Ordering::Acquire)
    }

    /// Returns the time since which the shutdown has been in progress; zero before it begins.
    pub(crate) fn elapsed(&self) -> Duration {
        let begun_at = self.signal.begun_at.get();
        begun_at.map_or(Duration::ZERO, Instant::elapsed)
    }

    /// Returns a future that completes when the shutdown begins.
    pub fn begun(&self) -> ShutdownBegun {
        ShutdownBegun {
            shutdown: self.clone(),
            id: self.signal.next_waiter.fetch_add(1, Ordering::Relaxed),
            waker: None,
        }
    }
}

/// A future that completes when a [`Shutdown`] begins, created by [`Shutdown::begun`]. A poll costs one
/// atomic load.
#[derive(Debug)]
pub struct ShutdownBegun {
    shutdown: Shutdown,
    id: u64,
    /// The registered waker.
    waker: Option<Waker>,
}

impl Future for ShutdownBegun {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.shutdown.has_begun() {
            return Poll::Ready(());
        }
        let waker = context.waker();
        if !self
            .waker
            .as_ref()
            .is_some_and(|known| known.will_wake(waker))
        {
            let id = self.id;
            self.shutdown
                .signal
                .waiters
                .lock()
                .insert(id, waker.clone());
            self.waker = Some(waker.clone());
            // The shutdown may have begun between the first check and the lock.
            if self.shutdown.has_begun() {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }
}

impl Drop for ShutdownBegun {
    fn drop(&mut self) {
        if self.waker.is_some() {
            self.shutdown.signal.waiters.lock().remove(&self.id);
        }
    }
}
