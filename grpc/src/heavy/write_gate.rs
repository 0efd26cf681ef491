//! Small writes beside large ones.

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Lets small writes wait for a large one without a thread.
///
/// The engine runs one write at a time, and a write that waits for its turn blocks its thread. Beside a large
/// deletion all threads of the runtime would soon be blocked, and no request would be answered. So a large
/// write, which runs on a worker, closes the gate, and further writes wait here until it is open. Writes pass in
/// the order of arrival: those that wait for a large write run before the next one.
#[derive(Debug, Default)]
pub(crate) struct WriteGate {
    /// Held shared by each small write while it runs, and exclusively by a large one. No small write awaits
    /// anything else while it holds it.
    lock: RwLock<()>,
}

impl WriteGate {
    /// Begins a small write if no large one runs or waits. The write has ended when the guard is dropped.
    pub(crate) fn try_pass(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.lock.try_read().ok()
    }

    /// Waits for the large writes that arrived before, and begins a small write.
    pub(crate) async fn pass(&self) -> RwLockReadGuard<'_, ()> {
        self.lock.read().await
    }

    /// Waits for the small writes that run, and keeps others out until the guard is dropped. Blocks the thread,
    /// which must be a worker.
    pub(crate) fn close(&self) -> RwLockWriteGuard<'_, ()> {
        self.lock.blocking_write()
    }
}
