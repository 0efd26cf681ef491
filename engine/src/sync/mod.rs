//! Locks, atomics and wakers: the only folder that uses `std::sync`, `parking_lot`, `loom` or
//! `shuttle`.
//!
//! All state that threads share is behind the types of this folder, so that a model checker runs
//! the engine's own code, not a copy of it. Each backend is a file with the same items:
//!
//! | file | cfg | the threads are |
//! |---|---|---|
//! | `real.rs` | none | those of the system |
//! | `counting.rs` | `revstore_count` | those of the system, whose writes to shared memory are counted |
//! | `loom.rs` | `loom` | simulated: loom explores all their interleavings |
//! | `shuttle.rs` | `shuttle` | simulated: shuttle chooses interleavings at random, from a seed |
//!
//! Locks have a [`Rank`]; builds with debug assertions panic if a thread takes a lock whose rank is
//! not above those of all locks that it holds. The table of ranks is in `ARCHITECTURE.md`.

pub(crate) mod epoch;

#[cfg(all(loom, shuttle))]
compile_error!("`--cfg loom` and `--cfg shuttle` exclude each other");

#[cfg(loom)]
#[path = "loom.rs"]
mod imp;
#[cfg(not(any(loom, shuttle, revstore_count)))]
#[path = "real.rs"]
mod imp;
#[cfg(all(revstore_count, not(any(loom, shuttle))))]
#[path = "counting.rs"]
mod imp;
#[cfg(all(shuttle, not(loom)))]
#[path = "shuttle.rs"]
mod imp;

#[cfg(any(loom, shuttle))]
pub(crate) use imp::AtomicBool;
#[cfg(loom)]
pub(crate) use imp::Published;
#[cfg(revstore_count)]
pub(crate) use imp::ReferenceCount;
#[cfg(revstore_count)]
pub use imp::SharedWrites;
pub(crate) use imp::{AtomicI64, AtomicPtr, AtomicU16, AtomicU32, AtomicU64};
pub(crate) use imp::{block_on, random_hasher};
/// A cell that is written once. No model checker explores accesses to it: no protocol depends on
/// them.
pub(crate) use std::sync::OnceLock;
/// A reference count. No model checker explores accesses to it: there are too many of them.
#[cfg(not(revstore_count))]
pub(crate) use std::sync::atomic::AtomicU32 as ReferenceCount;
pub(crate) use std::sync::atomic::Ordering;
pub(crate) use std::sync::{Arc, Weak};

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::task::Waker;

/// The rank of a lock. A thread takes locks in ascending order of their ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Rank {
    /// The check of a policy of automatic compaction.
    Compactor,
    /// The right to remove history.
    Compaction,
    /// The right to change the store.
    Sequencer,
    /// Positions that transactions still read.
    Pins,
    /// Revisions from which on dumps and followers read.
    Holds,
    /// The open snapshots and the versions kept for them.
    Snapshots,
    /// Leases and the keys attached to them.
    Lessor,
    /// The registered watches and the dispatched revision.
    Hub,
    /// The ordered map of keys.
    Index,
    /// The versions of one key.
    Entry,
    /// The revision-ordered log.
    Log,
    /// The queue of one watch stream.
    Queue,
    /// The deadlines of waiting readers.
    Deadlines,
    /// The time of a clock and the objects registered with it.
    Clock,
    /// The parts of a copy of a store.
    #[cfg(not(any(loom, shuttle)))]
    Copy,
    /// The slots of one size in the pool.
    #[cfg(not(any(loom, shuttle, revstore_heap)))]
    PoolClass,
    /// The mapped memory of the pool.
    #[cfg(not(any(loom, shuttle, revstore_heap)))]
    PoolChunks,
}

#[cfg(debug_assertions)]
mod held {
    use super::Rank;
    use std::cell::RefCell;

    /// The maximum number of locks that a thread holds: each rank once.
    const HELD_MAX: usize = 17;

    /// The ranks that a thread holds. Needs no drop: memory is also freed, under locks, by destructors
    /// of other data of a thread that ends, and these run in any order.
    #[derive(Default)]
    struct Ranks {
        ranks: [Option<Rank>; HELD_MAX],
    }

    const _: () = assert!(!std::mem::needs_drop::<Ranks>());

    super::imp::thread_local! {
        static HELD: RefCell<Ranks> = RefCell::default();
    }

    impl Ranks {
        fn top(&self) -> Option<Rank> {
            self.ranks.iter().flatten().max().copied()
        }

        fn replace(&mut self, old: Option<Rank>, new: Option<Rank>) {
            if let Some(slot) = self.ranks.iter_mut().find(|slot| **slot == old) {
                *slot = new;
            }
        }
    }

    /// A rank that this thread holds, until dropped.
    pub(crate) struct Held(Rank);

    impl Held {
        pub(super) fn take(rank: Rank) -> Self {
            HELD.with(|held| {
                let mut held = held.borrow_mut();
                if let Some(top) = held.top() {
                    assert!(
                        top < rank,
                        "lock rank: {rank:?} taken while {top:?} is held (ARCHITECTURE.md)"
                    );
                }
                held.replace(None, Some(rank));
            });
            Self(rank)
        }
    }

    /// Panics if this thread holds a lock.
    pub(super) fn assert_none() {
        HELD.with(|held| {
            let top = held.borrow().top();
            assert!(
                top.is_none(),
                "I8: code of a user is called while {top:?} is held (ARCHITECTURE.md)"
            );
        });
    }

    impl Drop for Held {
        fn drop(&mut self) {
            HELD.with(|held| held.borrow_mut().replace(Some(self.0), None));
        }
    }
}

/// Calls code of a user, such as a waker, that must not affect the caller: a panic ends only the
/// call. Builds with debug assertions check that this thread holds no lock (I8).
#[inline]
pub(crate) fn call_user(call: impl FnOnce()) {
    assert_unlocked();
    imp::contain_panic(call);
}

/// Checks in builds with debug assertions that this thread holds no lock (I8). For calls of code of
/// a user whose panic reaches the caller; [`call_user`] does it for all others.
#[inline]
pub(crate) fn assert_unlocked() {
    #[cfg(debug_assertions)]
    held::assert_none();
}

/// A mutex with a rank.
pub(crate) struct Mutex<T> {
    #[cfg(debug_assertions)]
    rank: Rank,
    inner: imp::Mutex<T>,
}

/// A guard of a [`Mutex`].
pub(crate) struct MutexGuard<'a, T> {
    inner: imp::MutexGuard<'a, T>,
    #[cfg(debug_assertions)]
    held: held::Held,
}

impl<T> Mutex<T> {
    #[cfg_attr(
        not(debug_assertions),
        expect(unused_variables, reason = "checked in debug")
    )]
    pub(crate) fn new(rank: Rank, value: T) -> Self {
        Self {
            #[cfg(debug_assertions)]
            rank,
            inner: imp::Mutex::new(value),
        }
    }

    /// Creates a mutex for a static.
    #[cfg(not(any(loom, shuttle, revstore_heap)))]
    #[cfg_attr(
        not(debug_assertions),
        expect(unused_variables, reason = "checked in debug")
    )]
    pub(crate) const fn new_static(rank: Rank, value: T) -> Self {
        Self {
            #[cfg(debug_assertions)]
            rank,
            inner: imp::Mutex::new(value),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        #[cfg(debug_assertions)]
        let held = held::Held::take(self.rank);
        MutexGuard {
            inner: imp::lock(&self.inner),
            #[cfg(debug_assertions)]
            held,
        }
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").finish_non_exhaustive()
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// A cell for the waker that was registered last.
pub(crate) struct AtomicWaker(imp::AtomicWaker);

impl AtomicWaker {
    pub(crate) fn new() -> Self {
        Self(imp::AtomicWaker::new())
    }

    pub(crate) fn register(&self, waker: &Waker) {
        imp::register(&self.0, waker);
    }

    pub(crate) fn wake(&self) {
        self.0.wake();
    }
}

impl fmt::Debug for AtomicWaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtomicWaker").finish_non_exhaustive()
    }
}

/// A mark in memory that is written before it is published, then read without a lock, and freed after
/// the last pin that may read it. Loom detects a read before or after that.
#[cfg(not(loom))]
pub(crate) struct Published;

#[cfg(not(loom))]
impl Published {
    pub(crate) fn new() -> Self {
        Self
    }

    #[inline]
    #[expect(clippy::unused_self, reason = "the same call in both builds")]
    pub(crate) fn read(&self) {}

    #[inline]
    #[expect(clippy::unused_self, reason = "the same call in both builds")]
    pub(crate) fn free(&self) {}
}

/// A condition variable for [`Mutex`].
pub(crate) struct Condvar(imp::Condvar);

impl Condvar {
    pub(crate) fn new() -> Self {
        Self(imp::Condvar::new())
    }

    /// Releases the lock, sleeps until notified, and takes the lock again. Spurious wake-ups are
    /// possible.
    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard {
            inner: imp::wait(&self.0, guard.inner),
            #[cfg(debug_assertions)]
            held: guard.held,
        }
    }

    /// As [`Condvar::wait`], but for at most `limit`.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, limit: std::time::Duration) {
        self.0.wait_for(&mut guard.inner, limit);
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(loom, shuttle)), debug_assertions))]
mod tests {
    use super::{Mutex, Rank};

    #[test]
    #[should_panic(expected = "lock rank: Sequencer taken while Log is held")]
    fn taking_a_lock_of_a_lower_rank_panics() {
        let sequencer = Mutex::new(Rank::Sequencer, ());
        let log = Mutex::new(Rank::Log, ());
        let _log = log.lock();
        let _sequencer = sequencer.lock();
    }
}
