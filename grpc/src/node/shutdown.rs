//! The signal that the server is going down.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// Tells open streams that the server is going down: they end at once instead of holding it up
/// (FL-15, WA-17). Clones are the same signal, which is given once and stays given.
///
/// ```
/// use revstore_grpc::Shutdown;
/// let shutdown = Shutdown::new();
/// let seen_elsewhere = shutdown.clone();
/// shutdown.begin();
/// assert!(seen_elsewhere.has_begun());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    signal: Arc<Signal>,
}

#[derive(Debug, Default)]
struct Signal {
    begun: AtomicBool,
    next_waiter: AtomicU64,
    /// Who sleeps until the signal. A leaf lock: held to add, take out or empty, never while
    /// anybody is woken, and no await happens under it. Taken once in the life of a waiter that
    /// stays with its task, not each time it looks.
    waiters: Mutex<HashMap<u64, Waker>>,
}

impl Shutdown {
    /// A signal that is not given yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives the signal.
    pub fn begin(&self) {
        // Release: pairs with the Acquire in `has_begun`.
        self.signal.begun.store(true, Ordering::Release);
        let waiters = std::mem::take(&mut *self.signal.waiters.lock());
        for waker in waiters.into_values() {
            waker.wake();
        }
    }

    /// Whether the signal was given.
    pub fn has_begun(&self) -> bool {
        // Acquire: pairs with the Release in `begin`, so that what was done before it is seen.
        self.signal.begun.load(Ordering::Acquire)
    }

    /// Completes when the signal is given.
    pub fn begun(&self) -> Begun {
        Begun {
            shutdown: self.clone(),
            id: self.signal.next_waiter.fetch_add(1, Ordering::Relaxed),
            waker: None,
        }
    }
}

/// Completes when the signal is given; made by [`Shutdown::begun`]. Looking again costs one load.
#[derive(Debug)]
pub struct Begun {
    shutdown: Shutdown,
    id: u64,
    /// The waker that stands among the waiters.
    waker: Option<Waker>,
}

impl Future for Begun {
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
            // The signal may have been given between the look above and the lock.
            if self.shutdown.has_begun() {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if self.waker.is_some() {
            self.shutdown.signal.waiters.lock().remove(&self.id);
        }
    }
}
