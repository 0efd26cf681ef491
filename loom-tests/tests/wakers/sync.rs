//! The types that the wakers take from `sync.rs` of their crates: those of loom, of which a model may weaken one.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
pub(crate) use std::sync::atomic::Ordering;

use loom::sync::{self, atomic};

/// What is weaker than in the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weakened {
    /// Flags are set with Relaxed instead of Release.
    Release,
    /// Flags are read with Relaxed instead of Acquire.
    Acquire,
    /// A lock excludes other threads, but orders nothing for them.
    Lock,
    /// A flag that was set while its task ran is forgotten when the task sleeps.
    Sleep,
    /// A worker of a work queue ends and does not pass on that it was woken.
    Leave,
}

std::thread_local! {
    /// Loom runs all threads of a model on one thread of the system.
    pub(crate) static WEAKENED: Cell<Option<Weakened>> = const { Cell::new(None) };
}

pub(crate) fn is_weakened(weakened: Weakened) -> bool {
    WEAKENED.get() == Some(weakened)
}

/// Returns the ordering that is left of `order`.
fn left(order: Ordering) -> Ordering {
    match order {
        Ordering::Release if is_weakened(Weakened::Release) => Ordering::Relaxed,
        Ordering::Acquire if is_weakened(Weakened::Acquire) => Ordering::Relaxed,
        Ordering::AcqRel if is_weakened(Weakened::Release) => Ordering::Acquire,
        Ordering::AcqRel if is_weakened(Weakened::Acquire) => Ordering::Release,
        order => order,
    }
}

#[derive(Debug)]
pub(crate) struct AtomicBool(atomic::AtomicBool);

impl AtomicBool {
    pub(crate) fn new(value: bool) -> Self {
        Self(atomic::AtomicBool::new(value))
    }

    pub(crate) fn load(&self, order: Ordering) -> bool {
        self.0.load(left(order))
    }

    pub(crate) fn store(&self, value: bool, order: Ordering) {
        self.0.store(value, left(order));
    }

    pub(crate) fn swap(&self, value: bool, order: Ordering) -> bool {
        self.0.swap(value, left(order))
    }
}

#[derive(Debug, Default)]
pub(crate) struct AtomicU8(atomic::AtomicU8);

impl AtomicU8 {
    pub(crate) fn swap(&self, value: u8, order: Ordering) -> u8 {
        self.0.swap(value, left(order))
    }

    pub(crate) fn compare_exchange(
        &self,
        current: u8,
        new: u8,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u8, u8> {
        if is_weakened(Weakened::Sleep) {
            return Ok(self.0.swap(new, success));
        }
        self.0
            .compare_exchange(current, new, left(success), failure)
    }
}

/// A lock with the interface of `parking_lot`.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T> {
    /// Of loom.
    ordering: sync::Mutex<()>,
    /// Unknown to loom, and free whenever it is locked: the holder does nothing that loom may interrupt.
    value: std::sync::Mutex<T>,
}

/// The right to use the value.
pub(crate) struct MutexGuard<'a, T> {
    value: std::sync::MutexGuard<'a, T>,
    /// Released after the value.
    _ordering: Option<sync::MutexGuard<'a, ()>>,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            ordering: sync::Mutex::new(()),
            value: std::sync::Mutex::new(value),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let is_weakened = is_weakened(Weakened::Lock);
        let ordering = (!is_weakened).then(|| self.ordering.lock().expect("not poisoned"));
        MutexGuard {
            value: self.value.try_lock().expect("free"),
            _ordering: ordering,
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}
