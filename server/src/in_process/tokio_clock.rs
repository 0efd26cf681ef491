//! The time of a tokio runtime as a clock of an engine.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use revstore_engine::{Clock, Timed};
use tokio::{
    runtime::Handle,
    sync::Notify,
    time::{Instant, sleep_until},
};

/// A clock that shows the time of a tokio runtime, which tests can pause and a network simulator controls.
///
/// A task of the runtime does the work that becomes due, so no work is done while nothing drives the runtime. With
/// paused time, tokio advances the time to the next due work when all tasks wait.
///
/// ```
/// use std::time::Duration;
/// use revstore::{TokioClock, engine::{Engine, Put}};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// let engine = Engine::builder().clock(TokioClock::new()).build();
/// let lease = engine.grant(None, 3_600)?.id;
/// engine.put_with(&Put::new("session", "mine").attached_to(lease))?;
/// // Takes no time outside of the runtime.
/// tokio::time::sleep(Duration::from_secs(3_601)).await;
/// assert!(engine.get("session").is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct TokioClock {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    runtime: Handle,
    origin: Instant,
    /// Held to read or change the list, not while work runs.
    followers: Mutex<Vec<Weak<dyn Timed>>>,
    /// Notified when work may be due earlier, and when the clock is dropped.
    changed: Arc<Notify>,
}

impl TokioClock {
    /// Creates a clock whose origin is the current time of the runtime.
    ///
    /// # Panics
    /// The thread is not in a tokio runtime, or the runtime has no time.
    pub fn new() -> Self {
        let shared = Arc::new(Shared {
            runtime: Handle::current(),
            origin: Instant::now(),
            followers: Mutex::default(),
            changed: Arc::default(),
        });
        let changed = shared.changed.clone();
        tokio::spawn(run(Arc::downgrade(&shared), changed));
        Self { shared }
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Duration {
        self.shared.now()
    }

    fn follow(&self, timed: Weak<dyn Timed>) {
        self.shared.followers.lock().push(timed);
        self.recheck();
    }

    fn recheck(&self) {
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn now(&self) -> Duration {
        // A thread outside of the runtime would read the time of the system.
        let _context = self.runtime.enter();
        self.origin.elapsed()
    }

    /// Does all work that is due, and returns the time of the next one.
    fn run_due(&self) -> Option<Duration> {
        let followers: Vec<_> = {
            let mut followers = self.followers.lock();
            followers.retain(|timed| timed.strong_count() > 0);
            followers.iter().filter_map(Weak::upgrade).collect()
        };
        let mut next: Option<Duration> = None;
        for timed in followers {
            if timed.next_due().is_some_and(|due| due <= self.now()) {
                timed.clone().run_due();
            }
            next = [next, timed.next_due()].into_iter().flatten().min();
        }
        next
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.changed.notify_one();
    }
}

/// Does work when it is due, until the clock is dropped.
async fn run(clock: Weak<Shared>, changed: Arc<Notify>) {
    loop {
        let due = {
            let Some(clock) = clock.upgrade() else {
                return;
            };
            let due = clock.run_due();
            // A time beyond the range of the runtime never comes.
            due.and_then(|due| clock.origin.checked_add(due))
        };
        match due {
            Some(due) => {
                tokio::select! {
                    () = sleep_until(due) => {}
                    () = changed.notified() => {}
                }
            }
            None => changed.notified().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use revstore_engine::{Engine, Put};

    use super::*;

    fn second() -> Duration {
        Duration::from_secs(1)
    }

    #[tokio::test(start_paused = true)]
    async fn leases_expire_by_the_time_of_the_runtime() {
        let engine = Engine::builder().clock(TokioClock::new()).build();
        for (key, ttl) in [("a", 10), ("b", 20), ("c", 20)] {
            let lease = engine.grant(None, ttl).unwrap().id;
            engine
                .put_with(&Put::new(key, "").attached_to(lease))
                .unwrap();
        }
        let live = || ["a", "b", "c"].map(|key| engine.get(key).is_some());
        tokio::time::sleep(9 * second()).await;
        assert_eq!(live(), [true; 3]);
        tokio::time::sleep(2 * second()).await;
        assert_eq!(live(), [false, true, true]);
        // An earlier due time than the one that the task waits for.
        let lease = engine.grant(None, 5).unwrap().id;
        engine
            .put_with(&Put::new("a", "").attached_to(lease))
            .unwrap();
        tokio::time::sleep(6 * second()).await;
        assert_eq!(live(), [false, true, true]);
        tokio::time::sleep(10 * second()).await;
        assert_eq!(live(), [false; 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn other_threads_read_the_paused_time() {
        let clock = TokioClock::new();
        tokio::time::sleep(100 * second()).await;
        let other = clock.clone();
        let read = thread::spawn(move || other.now()).join().unwrap();
        assert_eq!(read, clock.now());
        assert_eq!(read.as_secs(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn the_task_of_a_dropped_clock_ends() {
        let tasks = || Handle::current().metrics().num_alive_tasks();
        let before = tasks();
        let engine = Engine::builder().clock(TokioClock::new()).build();
        engine.grant(None, 1_000).unwrap();
        tokio::time::sleep(second()).await;
        assert_eq!(tasks(), before + 1);
        drop(engine);
        tokio::time::sleep(second()).await;
        assert_eq!(tasks(), before);
    }
}
