//! The locks, atomics and wakers of a model under `--cfg loom`.

use std::hash::{DefaultHasher, Hasher};
use std::task::Waker;

pub(crate) use loom::future::{AtomicWaker, block_on};
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU64};
pub(crate) use loom::sync::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
#[cfg(debug_assertions)]
pub(super) use loom::thread_local;

// Loom ends the model when a thread panics, so no lock is poisoned.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .expect("loom ends the model at the first panic")
}

pub(super) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().expect("loom ends the model at the first panic")
}

pub(super) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write()
        .expect("loom ends the model at the first panic")
}

pub(super) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar
        .wait(guard)
        .expect("loom ends the model at the first panic")
}

pub(super) fn register(cell: &AtomicWaker, waker: &Waker) {
    cell.register_by_ref(waker);
}

/// Calls a closure. Loom ends a model by a panic, which must reach it.
pub(super) fn contain_panic(call: impl FnOnce()) {
    call();
}

/// Returns the same hasher in each execution of a model, which loom requires.
pub(crate) fn random_hasher() -> impl Hasher {
    DefaultHasher::new()
}
