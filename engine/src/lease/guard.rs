//! Leases that end with a scope.

use std::time::Duration;

use crate::error::LeaseError;
use crate::history::LeaseId;
use crate::lease::{self, Granted};
use crate::revision::Revision;
use crate::store::Store;
use crate::sync::Arc;

/// A lease that is revoked when the guard is dropped, also by a panic; created by
/// [`Engine::grant_guarded`](crate::Engine::grant_guarded).
///
/// The lease also ends when its time to live passes without a [`keep_alive`](Self::keep_alive), or
/// when somebody else revokes it. Dropping the guard then does nothing, also if the id was granted
/// again in the meantime: the guard ends only the lease that it was created with. If the engine
/// refuses writes, dropping the guard does nothing either, and the keys stay.
///
/// ```
/// # use revstore_engine::{Engine, Put};
/// let engine = Engine::builder().build();
/// let lease = engine.grant_guarded(None, 60)?;
/// engine.put_with(&Put::new("worker/7", "").attached_to(lease.id()))?;
/// lease.keep_alive()?;
/// assert!(engine.get("worker/7").is_some());
/// drop(lease);
/// assert!(engine.get("worker/7").is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "the lease is revoked when the guard is dropped"]
pub struct LeaseGuard {
    store: Arc<Store>,
    granted: Granted,
    /// Whether dropping the guard revokes the lease.
    is_armed: bool,
}

impl LeaseGuard {
    pub(crate) fn new(store: Arc<Store>, granted: Granted) -> Self {
        Self {
            store,
            granted,
            is_armed: true,
        }
    }

    /// Returns the id, to attach keys to the lease.
    pub fn id(&self) -> LeaseId {
        self.granted.lease.id
    }

    /// Returns the granted time to live.
    pub fn ttl(&self) -> Duration {
        self.granted.lease.ttl
    }

    /// Restarts the time to live of the lease, and returns it.
    ///
    /// # Errors
    /// [`LeaseError::NotFound`] if the lease has ended.
    pub fn keep_alive(&self) -> Result<Duration, LeaseError> {
        let (store, now) = (&self.store, self.store.clock.now());
        let of = Some(self.granted.number);
        store.lessor.keep_alive(store.faults, self.id(), of, now)
    }

    /// Revokes the lease and deletes its keys, at one revision. Returns the current revision
    /// afterwards. Dropping the guard does the same and ignores errors.
    ///
    /// # Errors
    /// [`LeaseError::NotFound`] if the lease has ended, [`LeaseError::Refused`] if the engine
    /// refuses writes.
    pub fn revoke(mut self) -> Result<Revision, LeaseError> {
        self.end()
    }

    /// Returns the id of the lease, which is no longer revoked with the guard.
    ///
    /// ```
    /// # use revstore_engine::Engine;
    /// let engine = Engine::builder().build();
    /// let id = engine.grant_guarded(None, 60)?.leak();
    /// assert_eq!(engine.leases(), [id]);
    /// # Ok::<(), revstore_engine::LeaseError>(())
    /// ```
    pub fn leak(mut self) -> LeaseId {
        self.is_armed = false;
        self.id()
    }

    fn end(&mut self) -> Result<Revision, LeaseError> {
        self.is_armed = false;
        lease::revoke(&self.store, self.id(), Some(self.granted.number))
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        if self.is_armed {
            // An error means that the lease has ended, or that the engine refuses writes.
            let _ = self.end();
        }
    }
}
