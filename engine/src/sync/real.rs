//! The locks, atomics and wakers of a normal build.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

pub(crate) use futures_util::task::AtomicWaker;
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
pub(crate) use pollster::block_on;
pub(crate) use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU16, AtomicU32, AtomicU64};
#[cfg(debug_assertions)]
pub(super) use std::thread_local;

pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

pub(super) fn wait<'a, T>(condvar: &Condvar, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(&mut guard);
    guard
}

pub(super) fn register(cell: &AtomicWaker, waker: &Waker) {
    cell.register(waker);
}

/// Calls a closure whose panic ends only the call. The panic hook has reported it.
#[inline]
pub(super) fn contain_panic(call: impl FnOnce()) {
    drop(catch_unwind(AssertUnwindSafe(call)));
}

/// Returns a hasher with a random key.
pub(crate) fn random_hasher() -> impl Hasher {
    RandomState::new().build_hasher()
}
