//! The locks, atomics and wakers of a model under `--cfg loom`.

use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::Ordering;
use std::task::Waker;

pub(crate) use loom::future::{AtomicWaker, block_on};
pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU16, AtomicU32, AtomicU64,
};
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(debug_assertions)]
pub(super) use loom::thread_local;

// Loom ends the model when a thread panics, so no lock is poisoned.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
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

/// A mark in memory that is written before it is published, then read without a lock, and freed after
/// the last pin that may read it.
///
/// The flag is invisible for loom, which would otherwise explore an access more for each node. So a
/// reader looks at the mark after it has read something else from the same memory.
pub(crate) struct Published {
    written: loom::cell::UnsafeCell<()>,
    freed: std::sync::atomic::AtomicBool,
}

impl Published {
    pub(crate) fn new() -> Self {
        let written = loom::cell::UnsafeCell::new(());
        written.with_mut(|_| ());
        let freed = std::sync::atomic::AtomicBool::new(false);
        Self { written, freed }
    }

    pub(crate) fn read(&self) {
        self.written.with(|_| ());
        // Relaxed: all threads of a model are on one thread of the system.
        let freed = self.freed.load(Ordering::Relaxed);
        assert!(!freed, "I2: a freed allocation is used");
    }

    pub(crate) fn free(&self) {
        self.freed.store(true, Ordering::Relaxed);
    }
}
