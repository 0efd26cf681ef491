//! Threads of the [backend](crate::Backend).
//!
//! [`race`](crate::race) suffices for most models.

pub use crate::backend::thread::{JoinHandle, yield_now};
/// Threads that borrow from the one that starts them. Loom does not have them.
#[cfg(not(loom))]
pub use crate::backend::thread::{Scope, ScopedJoinHandle, scope};

/// Runs a future to its end on this thread, for programs that read watches in tasks. Its thread
/// sleeps between the wake-ups of the future, which the [backend](crate::Backend) knows.
pub fn block_on<F: Future>(future: F) -> F::Output {
    crate::backend::block_on(future)
}

/// Starts a thread.
///
/// A thread that waits for another one in a loop calls [`yield_now`] in it: a model checker
/// continues a thread until it waits.
///
/// # Panics
/// Under loom, if the execution has started more than four threads in total: loom does not explore
/// more.
pub fn spawn<F, T>(closure: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    crate::backend::spawn(closure)
}
