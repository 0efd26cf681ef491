//! Locks and atomics of the [backend](crate::Backend), for the shared state of a program.
//!
//! They are those of `std::sync`, `loom::sync` or `shuttle::sync`, with the same names. A program
//! that imports them from here, or from a module of its own that does the same in its tests, is
//! explored together with the engine. State that only `std` knows is not: a model checker does not
//! see accesses to it, and a lock of `std` that one thread of a model holds blocks all of them.
//!
//! `Arc` of loom has no `Weak`, and counts as one step. Use the one of `std` where no access to the
//! count matters.

pub use crate::backend::sync::{
    Arc, Condvar, LockResult, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

/// Channels. Loom does not have them.
#[cfg(not(loom))]
pub mod mpsc {
    pub use crate::backend::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
}

/// Atomics.
pub mod atomic {
    pub use crate::backend::sync::atomic::{
        AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
}
