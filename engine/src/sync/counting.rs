//! The locks, atomics and wakers of a normal build, which count the writes to memory that threads
//! share, under `--cfg revstore_count`. They show what a read costs other threads
//! (`engine/tests/shared_writes.rs`).

use std::cell::Cell;
use std::hash::Hasher;
use std::sync::atomic::Ordering;
use std::task::Waker;

#[allow(unused_imports, reason = "this file has some items of its own")]
#[path = "real.rs"]
mod real;

pub(crate) use real::{AtomicWaker, Condvar, Mutex, MutexGuard, block_on};
#[cfg(debug_assertions)]
pub(super) use std::thread_local;

std::thread_local! {
    static WRITES: Cell<SharedWrites> = const { Cell::new(SharedWrites { locks: 0, atomics: 0, references: 0 }) };
}

/// The numbers of writes of one thread to memory that other threads may access.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedWrites {
    /// Locks taken.
    pub locks: u64,
    /// Writes to atomics, without locks and reference counts.
    pub atomics: u64,
    /// Changes of the reference counts of versions and keys.
    pub references: u64,
}

impl SharedWrites {
    /// Returns the writes of this thread so far.
    pub fn of_this_thread() -> Self {
        WRITES.get()
    }

    fn count(change: impl FnOnce(&mut Self)) {
        let mut writes = WRITES.get();
        change(&mut writes);
        WRITES.set(writes);
    }
}

/// An atomic that counts its writes with the function `$count`.
macro_rules! counted {
    ($name:ident $(<$param:ident>)?, $inner:ty, $value:ty, $count:expr) => {
        #[derive(Debug)]
        pub(crate) struct $name$(<$param>)?($inner);

        #[allow(dead_code, reason = "no atomic is used with all of these")]
        impl$(<$param>)? $name$(<$param>)? {
            pub(crate) const fn new(value: $value) -> Self {
                Self(<$inner>::new(value))
            }
            pub(crate) fn load(&self, order: Ordering) -> $value {
                self.0.load(order)
            }
            pub(crate) fn store(&self, value: $value, order: Ordering) {
                SharedWrites::count($count);
                self.0.store(value, order);
            }
            pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                SharedWrites::count($count);
                self.0.swap(value, order)
            }
            pub(crate) fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                SharedWrites::count($count);
                self.0.compare_exchange(current, new, success, failure)
            }
        }
    };
}

/// The sums of an integer.
macro_rules! counted_sums {
    ($name:ident, $value:ty, $count:expr) => {
        #[allow(dead_code, reason = "no atomic is used with all of these")]
        impl $name {
            pub(crate) fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                SharedWrites::count($count);
                self.0.fetch_add(value, order)
            }
            pub(crate) fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                SharedWrites::count($count);
                self.0.fetch_sub(value, order)
            }
            pub(crate) fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                SharedWrites::count($count);
                self.0.fetch_max(value, order)
            }
        }
    };
}

counted!(AtomicI64, real::AtomicI64, i64, |writes| writes.atomics +=
    1);
counted_sums!(AtomicI64, i64, |writes| writes.atomics += 1);
counted!(AtomicU16, real::AtomicU16, u16, |writes| writes.atomics +=
    1);
counted!(AtomicU32, real::AtomicU32, u32, |writes| writes.atomics +=
    1);
counted!(AtomicU64, real::AtomicU64, u64, |writes| writes.atomics +=
    1);
counted_sums!(AtomicU64, u64, |writes| writes.atomics += 1);
counted!(AtomicPtr<T>, real::AtomicPtr<T>, *mut T, |writes| writes
    .atomics +=
    1);
counted!(ReferenceCount, real::AtomicU32, u32, |writes| writes
    .references +=
    1);
counted_sums!(ReferenceCount, u32, |writes| writes.references += 1);

pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    SharedWrites::count(|writes| writes.locks += 1);
    real::lock(mutex)
}

pub(super) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    real::wait(condvar, guard)
}

pub(super) fn register(cell: &AtomicWaker, waker: &Waker) {
    real::register(cell, waker);
}

pub(super) fn contain_panic(call: impl FnOnce()) {
    real::contain_panic(call);
}

pub(crate) fn random_hasher() -> impl Hasher {
    real::random_hasher()
}
