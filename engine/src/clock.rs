//! Time, which comes only from a [`Clock`] (I10).

use std::fmt;
use std::time::Duration;

use crate::sync::{Arc, Mutex, Rank, Weak};

/// Something that has duties at certain times: an engine.
pub trait Timed: fmt::Debug + Send + Sync {
    /// When the next duty is due, if there is one.
    fn next_due(&self) -> Option<Duration>;
    /// Does all that is due by the clock's present time.
    fn run_due(self: Arc<Self>);
}

/// A source of time, and what calls those who have duties.
///
/// Time is counted from an origin of the clock's own and never goes back.
pub trait Clock: fmt::Debug + Send + Sync {
    /// The time since the clock's origin.
    fn now(&self) -> Duration;
    /// Calls [`Timed::run_due`] whenever a duty is due, for as long as `timed` is alive.
    fn follow(&self, timed: Weak<dyn Timed>);
    /// Tells the clock that a duty may now be due earlier than it knew.
    fn recheck(&self);
}

/// A clock that moves only when told to: tests see leases expire without waiting.
///
/// Clones share the time. Everything that falls due is done before [`ManualClock::advance`] returns,
/// each thing at its own time.
///
/// ```
/// use std::time::Duration;
/// use revstore_engine::{Engine, ManualClock, Put};
/// let clock = ManualClock::new();
/// let engine = Engine::builder().clock(clock.clone()).build();
/// let lease = engine.grant(None, 5)?.id;
/// engine.put_with(&Put::new("key", "value").attached_to(lease))?;
/// clock.advance(Duration::from_secs(4));
/// assert!(engine.get("key").is_some());
/// clock.advance(Duration::from_secs(1));
/// assert!(engine.get("key").is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock {
    /// Rank `Clock`. Held to read or set the time, never while somebody's duties run.
    shared: Arc<Mutex<Manual>>,
}

#[derive(Debug)]
struct Manual {
    now: Duration,
    followers: Vec<Weak<dyn Timed>>,
}

impl ManualClock {
    /// A clock that stands at its origin.
    pub fn new() -> Self {
        let manual = Manual {
            now: Duration::ZERO,
            followers: Vec::new(),
        };
        Self {
            shared: Arc::new(Mutex::new(Rank::Clock, manual)),
        }
    }

    /// Moves the time on and does what falls due on the way, in the order of time.
    pub fn advance(&self, by: Duration) {
        let target = self.now().saturating_add(by);
        loop {
            let followers = self.living_followers();
            let next = followers
                .iter()
                .filter_map(|timed| timed.next_due().map(|due| (due, timed)))
                .min_by_key(|(due, _)| *due)
                .filter(|(due, _)| *due <= target);
            let Some((due, timed)) = next else { break };
            self.set(due);
            timed.clone().run_due();
        }
        self.set(target);
    }

    fn set(&self, time: Duration) {
        let mut manual = self.shared.lock();
        manual.now = manual.now.max(time);
    }

    fn living_followers(&self) -> Vec<Arc<dyn Timed>> {
        let mut manual = self.shared.lock();
        manual.followers.retain(|timed| timed.strong_count() > 0);
        manual.followers.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        self.shared.lock().now
    }

    fn follow(&self, timed: Weak<dyn Timed>) {
        self.shared.lock().followers.push(timed);
    }

    fn recheck(&self) {}
}

#[cfg(not(loom))]
pub use system::SystemClock;

#[cfg(not(loom))]
mod system {
    use super::{Clock, Timed};
    use crate::sync::{Arc, Condvar, Mutex, Rank, Weak};
    use std::thread;
    use std::time::{Duration, Instant};

    /// The time of the machine, which only goes forward. One thread of its own calls those who have
    /// duties; it ends with the clock.
    #[derive(Debug)]
    pub struct SystemClock {
        shared: Arc<Shared>,
    }

    #[derive(Debug)]
    struct Shared {
        origin: Instant,
        /// Rank `Clock`. Held to read or change who follows, never while duties run.
        state: Mutex<State>,
        changed: Condvar,
    }

    #[derive(Debug, Default)]
    struct State {
        followers: Vec<Weak<dyn Timed>>,
        /// Counts calls of `recheck`, so that none is missed between a look and a sleep.
        rechecks: u64,
        /// Whether the thread was started; it is with the first follower.
        started: bool,
        closed: bool,
    }

    impl SystemClock {
        /// A clock whose origin is now.
        pub fn new() -> Self {
            let shared = Arc::new(Shared {
                origin: Instant::now(),
                state: Mutex::new(Rank::Clock, State::default()),
                changed: Condvar::new(),
            });
            Self { shared }
        }
    }

    impl Default for SystemClock {
        fn default() -> Self {
            Self::new()
        }
    }

    impl Clock for SystemClock {
        fn now(&self) -> Duration {
            self.shared.origin.elapsed()
        }

        fn follow(&self, timed: Weak<dyn Timed>) {
            let started = {
                let mut state = self.shared.state.lock();
                state.followers.push(timed);
                std::mem::replace(&mut state.started, true)
            };
            if !started {
                let shared = self.shared.clone();
                thread::Builder::new()
                    .name("revstore-clock".into())
                    .spawn(move || shared.run())
                    .expect("a thread for the clock can be started");
            }
            self.recheck();
        }

        fn recheck(&self) {
            self.shared.state.lock().rechecks += 1;
            self.shared.changed.notify_all();
        }
    }

    impl Drop for SystemClock {
        fn drop(&mut self) {
            self.shared.state.lock().closed = true;
            self.shared.changed.notify_all();
        }
    }

    impl Shared {
        fn run(&self) {
            loop {
                let (followers, rechecks) = {
                    let mut state = self.state.lock();
                    if state.closed {
                        return;
                    }
                    state.followers.retain(|timed| timed.strong_count() > 0);
                    let followers: Vec<_> =
                        state.followers.iter().filter_map(Weak::upgrade).collect();
                    (followers, state.rechecks)
                };
                let mut next: Option<Duration> = None;
                for timed in &followers {
                    if timed
                        .next_due()
                        .is_some_and(|due| due <= self.origin.elapsed())
                    {
                        timed.clone().run_due();
                    }
                    next = [next, timed.next_due()].into_iter().flatten().min();
                }
                drop(followers);
                let mut state = self.state.lock();
                if state.rechecks != rechecks || state.closed {
                    continue;
                }
                match next {
                    Some(due) => {
                        let sleep = due.saturating_sub(self.origin.elapsed());
                        if !sleep.is_zero() {
                            self.changed.wait_for(&mut state, sleep);
                        }
                    }
                    None => drop(self.changed.wait(state)),
                }
            }
        }
    }
}
