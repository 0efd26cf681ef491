//! The names that the included sources take from `engine/src/sync`, as in a release build of the
//! engine.

#[expect(dead_code, unused_imports, reason = "the maps use a part of the file")]
#[path = "../../../engine/src/sync/epoch.rs"]
pub(crate) mod epoch;

pub(crate) use parking_lot::MutexGuard;
/// The type of reference counts.
pub(crate) use std::sync::atomic::AtomicU32 as ReferenceCount;
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// The rank of a lock, which only builds of the engine with debug assertions check.
#[derive(Clone, Copy)]
pub(crate) enum Rank {
    Index,
    PoolClass,
    PoolChunks,
}

/// A mutex.
pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(_: Rank, value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    pub(crate) const fn new_static(_: Rank, value: T) -> Self {
        Self(parking_lot::const_mutex(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock()
    }
}

/// A mark that only models use.
pub(crate) struct Published;

impl Published {
    pub(crate) fn new() -> Self {
        Self
    }

    #[inline]
    #[expect(clippy::unused_self, reason = "the call in the included sources")]
    pub(crate) fn read(&self) {}

    #[inline]
    #[expect(clippy::unused_self, reason = "the call in the included sources")]
    pub(crate) fn free(&self) {}
}
