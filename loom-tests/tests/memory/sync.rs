//! The types that `thin.rs` takes from `engine/src/sync`: atomics of loom, of which a model may
//! weaken one access.

use std::cell::Cell;
pub(crate) use std::sync::atomic::Ordering;

use loom::sync::atomic;
pub(crate) use loom::sync::atomic::AtomicBool;

/// An access that is weaker than in the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weakened {
    /// The count is decreased with Relaxed instead of Release.
    ReleaseOfDrop,
    /// The count is read with Relaxed instead of Acquire, before the record is freed or written.
    AcquireOfCount,
    /// The count is increased by a load and a store.
    AtomicityOfClone,
    /// A handle is stored in a cell with Relaxed instead of Release.
    ReleaseOfCell,
    /// A cell is read with Relaxed instead of Acquire.
    AcquireOfCell,
    /// A handle that was taken out of a cell is dropped while reads may use it.
    FreeWithoutWaiting,
}

std::thread_local! {
    /// Loom runs all threads of a model on one thread of the system.
    pub(crate) static WEAKENED: Cell<Option<Weakened>> = const { Cell::new(None) };
}

pub(crate) fn is_weakened(access: Weakened) -> bool {
    WEAKENED.get() == Some(access)
}

/// Returns the ordering of an access, or Relaxed if it is weakened.
fn ordering(access: Weakened, ordering: Ordering) -> Ordering {
    if is_weakened(access) {
        Ordering::Relaxed
    } else {
        ordering
    }
}

pub(crate) struct ReferenceCount(atomic::AtomicU32);

impl ReferenceCount {
    pub(crate) fn new(count: u32) -> Self {
        Self(atomic::AtomicU32::new(count))
    }

    pub(crate) fn load(&self, order: Ordering) -> u32 {
        self.0.load(ordering(Weakened::AcquireOfCount, order))
    }

    pub(crate) fn fetch_add(&self, count: u32, order: Ordering) -> u32 {
        if is_weakened(Weakened::AtomicityOfClone) {
            let before = self.0.load(order);
            self.0.store(before + count, order);
            return before;
        }
        self.0.fetch_add(count, order)
    }

    pub(crate) fn fetch_sub(&self, count: u32, order: Ordering) -> u32 {
        self.0
            .fetch_sub(count, ordering(Weakened::ReleaseOfDrop, order))
    }
}

pub(crate) struct AtomicPtr<T>(atomic::AtomicPtr<T>);

impl<T> AtomicPtr<T> {
    pub(crate) fn new(pointer: *mut T) -> Self {
        Self(atomic::AtomicPtr::new(pointer))
    }

    pub(crate) fn load(&self, order: Ordering) -> *mut T {
        self.0.load(ordering(Weakened::AcquireOfCell, order))
    }

    pub(crate) fn swap(&self, pointer: *mut T, order: Ordering) -> *mut T {
        self.0
            .swap(pointer, ordering(Weakened::ReleaseOfCell, order))
    }

    pub(crate) fn compare_exchange(
        &self,
        current: *mut T,
        new: *mut T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<*mut T, *mut T> {
        self.0.compare_exchange(current, new, success, failure)
    }
}

pub(crate) mod epoch {
    /// In place of a pin. The models have a lock for what a pin guarantees.
    pub(crate) struct Guard;
}
