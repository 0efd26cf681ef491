//! The waker of a connection's task. `loom-tests/tests/wakers` compiles this file, too.

use std::sync::Arc;
use std::task::{Wake, Waker};

use crate::sync::{AtomicU8, Mutex, Ordering};

/// Wakes the task of a connection unless it is running. Most wake-ups come from requests that the task itself
/// runs. These only start another round.
#[derive(Debug, Default)]
pub(crate) struct TaskWaker {
    state: AtomicU8,
    /// The waker of the task. A leaf lock: held to copy a waker, never while one is called.
    task: Mutex<Option<Waker>>,
}

/// The task sleeps, or the runtime will poll it next.
const SLEEPING: u8 = 0;
/// The task runs and was not woken in this round.
const RUNNING: u8 = 1;
/// The task was woken while it ran and must run another round.
const WOKEN: u8 = 2;

impl TaskWaker {
    pub(crate) fn register(&self, waker: &Waker) {
        let mut task = self.task.lock();
        if !task.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *task = Some(waker.clone());
        }
    }

    /// Starts a round. Discards earlier wake-ups, because the round processes everything that happened before
    /// them.
    pub(crate) fn start_round(&self) {
        // Acquire: pairs with the Release in `wake_by_ref`, so that everything before a discarded wake-up is
        // visible in the round.
        self.state.swap(RUNNING, Ordering::Acquire);
    }

    /// Lets the task sleep and returns true, unless it was woken during this round.
    pub(crate) fn sleep(&self) -> bool {
        // Release: pairs with the Acquire in `wake_by_ref`, so that the waker is visible there. After a
        // failure, `start_round` follows, which acquires.
        self.state
            .compare_exchange(RUNNING, SLEEPING, Ordering::Release, Ordering::Relaxed)
            .is_ok()
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(WOKEN, Ordering::AcqRel) == SLEEPING {
            let task = self.task.lock().clone();
            if let Some(task) = task {
                task.wake();
            }
        }
    }
}
