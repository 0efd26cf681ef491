//! Pins: readers without locks announce themselves by a pin, and memory that they may access is
//! freed after the pins of that time have ended.
//!
//! The pins are those of `crossbeam-epoch`, so they belong to the process and not to one engine. A
//! pin writes only memory of its own thread. Under loom and shuttle a simple model takes their place,
//! which frees at the earliest time that the guarantee permits. So models check the protocols that
//! use pins, not the pins themselves.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of bytes that wait to be freed. A counter of the process, as the pins are. It is on a
/// cache line that only threads that free or defer write.
static HELD_BACK_BYTES: CachePadded<AtomicU64> = CachePadded::new(AtomicU64::new(0));

pub(crate) use imp::{CachePadded, Guard, collect, pin};

/// Returns the number of bytes that were removed from the engines of this process, but are not freed
/// yet because of pins.
pub(crate) fn held_back_bytes() -> u64 {
    // Relaxed: a statistic.
    HELD_BACK_BYTES.load(Ordering::Relaxed)
}

/// Accounts `free` for `bytes` bytes until it has run.
fn counted(bytes: u64, free: impl FnOnce()) -> impl FnOnce() {
    // Relaxed: as in `held_back_bytes`.
    HELD_BACK_BYTES.fetch_add(bytes, Ordering::Relaxed);
    move || {
        free();
        HELD_BACK_BYTES.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(not(any(loom, shuttle)))]
mod imp {
    use std::fmt;

    pub(crate) use crossbeam_utils::CachePadded;

    /// The number of attempts of [`collect`]: an object is freed when the epoch has advanced twice
    /// since it was deferred, and one attempt frees a bounded number of objects.
    const COLLECT_ATTEMPTS: usize = 4;

    /// A pin. What is reachable when the pin begins, or later, is not freed before it ends.
    pub(crate) struct Guard(crossbeam_epoch::Guard);

    /// Pins this thread. Pins may be nested; the inner ones cost almost nothing.
    #[inline]
    pub(crate) fn pin() -> Guard {
        Guard(crossbeam_epoch::pin())
    }

    /// Frees what no pin holds back any more, as far as a few attempts find it.
    pub(crate) fn collect() {
        for _ in 0..COLLECT_ATTEMPTS {
            pin().0.flush();
        }
    }

    impl Guard {
        /// Calls `free` after all pins that exist now have ended, on any thread that pins then.
        /// `bytes` is counted in [`held_back_bytes`](super::held_back_bytes) until then. Allocates
        /// nothing if `free` takes at most two words.
        ///
        /// # Safety
        /// What `free` frees must not be reachable for pins that begin after this call, and `free`
        /// must be valid on any thread and at any later time.
        pub(crate) unsafe fn defer(&self, bytes: u64, free: impl FnOnce()) {
            // SAFETY: guaranteed by the caller.
            unsafe { self.0.defer_unchecked(super::counted(bytes, free)) }
        }
    }

    impl fmt::Debug for Guard {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Guard").finish_non_exhaustive()
        }
    }
}

/// The model. Loom and shuttle run all threads of a model on one thread of the system, which has its
/// own pins, and see only what `order` does.
#[cfg(any(loom, shuttle))]
mod imp {
    use std::cell::RefCell;
    use std::mem::{self, ManuallyDrop};
    use std::ops::Deref;

    type Free = Box<dyn FnOnce()>;

    #[derive(Default)]
    struct Pins {
        active: usize,
        /// What waits for the end of all pins. An execution that fails leaves something here, which
        /// is leaked: outside of an execution it must neither run nor be dropped.
        deferred: Vec<ManuallyDrop<Free>>,
        /// The number of times that something was freed.
        frees: u64,
    }

    std::thread_local! {
        static PINS: RefCell<Pins> = RefCell::default();
    }

    /// A pin.
    #[derive(Debug)]
    pub(crate) struct Guard(());

    pub(crate) fn pin() -> Guard {
        let frees = PINS.with_borrow_mut(|pins| {
            pins.active += 1;
            pins.frees
        });
        order::after_frees(frees);
        Guard(())
    }

    pub(crate) fn collect() {}

    impl Guard {
        /// As in a normal build.
        ///
        /// # Safety
        /// As in a normal build.
        pub(crate) unsafe fn defer(&self, bytes: u64, free: impl FnOnce()) {
            order::defer();
            let free: Box<dyn FnOnce() + '_> = Box::new(super::counted(bytes, free));
            // SAFETY: the caller guarantees that `free` is valid at any later time.
            let free = unsafe { mem::transmute::<Box<dyn FnOnce() + '_>, Free>(free) };
            PINS.with_borrow_mut(|pins| pins.deferred.push(ManuallyDrop::new(free)));
        }
    }

    impl Drop for Guard {
        fn drop(&mut self) {
            let last = PINS.with_borrow(|pins| (pins.active == 1).then_some(pins.deferred.len()));
            let count = last.unwrap_or(0);
            if count > 0 {
                order::before_free();
            }
            let free: Vec<_> = PINS.with_borrow_mut(|pins| {
                pins.active -= 1;
                // Also a pin that began after an object was unlinked may have found it, unless the
                // pin is ordered after that.
                if count == 0 || pins.active > 0 {
                    return Vec::new();
                }
                pins.frees += 1;
                pins.deferred.drain(..count).collect()
            });
            for free in free {
                ManuallyDrop::into_inner(free)();
            }
        }
    }

    /// The order that pins guarantee: what was unlinked before it was deferred is not found by pins
    /// that begin after it was freed. Nothing else is ordered, so that loom detects an access that
    /// relies on more.
    #[cfg(loom)]
    mod order {
        use std::cell::Cell;

        use loom::sync::atomic::{AtomicU64, Ordering};

        loom::lazy_static! {
            static ref DEFERRED: AtomicU64 = AtomicU64::new(0);
            static ref FREED: AtomicU64 = AtomicU64::new(0);
        }

        loom::thread_local! {
            /// The number of frees before the last pin of this thread that looked for them.
            static SEEN: Cell<u64> = Cell::new(u64::MAX);
        }

        pub(super) fn defer() {
            DEFERRED.fetch_add(1, Ordering::Release);
        }

        pub(super) fn before_free() {
            DEFERRED.fetch_add(1, Ordering::Acquire);
            FREED.fetch_add(1, Ordering::Release);
        }

        pub(super) fn after_frees(frees: u64) {
            if SEEN.with(|seen| seen.replace(frees)) != frees {
                FREED.fetch_add(1, Ordering::Acquire);
            }
        }
    }

    /// Shuttle has one order of all accesses.
    #[cfg(not(loom))]
    mod order {
        pub(super) fn defer() {}
        pub(super) fn before_free() {}
        pub(super) fn after_frees(_: u64) {}
    }

    /// Without a use in a model, which has no cache.
    #[derive(Debug)]
    pub(crate) struct CachePadded<T>(T);

    impl<T> CachePadded<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(value)
        }
    }

    impl<T> Deref for CachePadded<T> {
        type Target = T;
        fn deref(&self) -> &T {
            &self.0
        }
    }
}
