//! The shutdown signal of the server.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use super::signal::{Signal, Waiter};

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
#[derive(Clone, Debug)]
pub struct Shutdown {
    signal: Arc<Signal>,
    /// Set before the signal is raised.
    begun_at: Arc<OnceLock<Instant>>,
}

impl Shutdown {
    /// Creates a signal for a shutdown that has not begun.
    pub fn new() -> Self {
        Self {
            signal: Arc::new(Signal::new()),
            begun_at: Arc::default(),
        }
    }

    /// Begins the shutdown and wakes all tasks that wait for it.
    pub fn begin(&self) {
        self.begun_at.get_or_init(Instant::now);
        self.signal.raise();
    }

    /// Returns whether the shutdown has begun. Costs one atomic load.
    pub fn has_begun(&self) -> bool {
        self.signal.is_raised()
    }

    /// Returns the time since which the shutdown has been in progress; zero before it begins.
    pub(crate) fn elapsed(&self) -> Duration {
        let begun_at = self.begun_at.get();
        begun_at.map_or(Duration::ZERO, Instant::elapsed)
    }

    /// Returns a future that completes when the shutdown begins.
    pub fn begun(&self) -> ShutdownBegun {
        ShutdownBegun(Waiter::new(self.signal.clone()))
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

/// A future that completes when a [`Shutdown`] begins, created by [`Shutdown::begun`]. A poll costs one
/// atomic load.
#[derive(Debug)]
pub struct ShutdownBegun(Waiter);

impl Future for ShutdownBegun {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.poll(context)
    }
}
