//! The locks, atomics and wakers of a model under `--cfg shuttle`.
//!
//! All operations on atomics are sequentially consistent here; loom explores the orderings.

use std::hash::{DefaultHasher, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
use std::task::Waker;

pub(crate) use shuttle::future::block_on;
pub(crate) use shuttle::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU16, AtomicU32, AtomicU64,
};
pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
#[cfg(debug_assertions)]
pub(super) use shuttle::thread_local;

// Locks are not poisoned in a normal build.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// A cell for a waker. The lock makes its accesses visible to shuttle.
pub(crate) struct AtomicWaker(Mutex<Option<Waker>>);

impl AtomicWaker {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(None))
    }

    pub(crate) fn wake(&self) {
        let waker = lock(&self.0).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

pub(super) fn register(cell: &AtomicWaker, waker: &Waker) {
    let previous = lock(&cell.0).replace(waker.clone());
    drop(previous);
}

/// Calls a closure whose panic ends only the call, as in a normal build.
pub(super) fn contain_panic(call: impl FnOnce()) {
    drop(catch_unwind(AssertUnwindSafe(call)));
}

/// Returns the same hasher in each execution of a model, so that a seed determines it.
pub(crate) fn random_hasher() -> impl Hasher {
    DefaultHasher::new()
}
