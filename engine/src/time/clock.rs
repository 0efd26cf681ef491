//! Clocks: the only source of time of the engine (I10).

use std::fmt;
use std::time::Duration;

use super::PendingWork;
use crate::sync::{Arc, Mutex, Rank, Weak};

/// An object that does work at certain times, such as an engine.
pub trait Timed: fmt::Debug + Send + Sync {
    /// Returns the time at which work is due next, or `None` if none is. Changes nothing.
    fn next_due(&self) -> Option<Duration>;
    /// Does all work that is due.
    fn run_due(self: Arc<Self>);
    /// Lists the work that is due later, at most `max` entries. Changes nothing. Takes no longer than a list of `max` entries
    /// takes to build. By default, nothing is listed.
    fn pending(&self, max: usize) -> PendingWork {
        let _ = max;
        PendingWork::default()
    }
    /// Returns whether the tasks that [`run_due`](Self::run_due) has woken have done what was due. A clock under the control
    /// of tests waits for that, for a limited time, before it goes on to the next due time. Changes nothing. By default,
    /// `run_due` does all work itself.
    fn is_settled(&self) -> bool {
        true
    }
}

/// A source of time, which also calls objects when their work is due.
///
/// The time is the duration since an origin that the clock chooses. It never decreases.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Returns the time since the origin.
    fn now(&self) -> Duration;
    /// Registers an object: the clock calls [`Timed::run_due`] whenever work is due, until the
    /// object is dropped.
    fn follow(&self, timed: Weak<dyn Timed>);
    /// Notifies the clock that work may be due earlier than [`Timed::next_due`] returned last.
    fn recheck(&self);
    /// As [`recheck`](Self::recheck), for work that is due at `due`: a clock that looks at its objects by then anyway has
    /// nothing to do. By default, this is `recheck`.
    fn recheck_at(&self, due: Duration) {
        let _ = due;
        self.recheck();
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Duration {
        (**self).now()
    }

    fn follow(&self, timed: Weak<dyn Timed>) {
        (**self).follow(timed);
    }

    fn recheck(&self) {
        (**self).recheck();
    }

    fn recheck_at(&self, due: Duration) {
        (**self).recheck_at(due);
    }
}

/// A clock whose time changes only in [`advance`](Self::advance), for tests that do not wait.
///
/// Clones share the time. When `advance` returns, all work up to the new time is done, each part at
/// its due time.
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
    /// Rank `Clock`. Held to read or set the time, not while work runs.
    shared: Arc<Mutex<ManualTime>>,
}

#[derive(Debug)]
struct ManualTime {
    now: Duration,
    followers: Vec<Weak<dyn Timed>>,
}

impl ManualClock {
    /// Creates a clock whose time is its origin.
    pub fn new() -> Self {
        let time = ManualTime {
            now: Duration::ZERO,
            followers: Vec::new(),
        };
        Self {
            shared: Arc::new(Mutex::new(Rank::Clock, time)),
        }
    }

    /// Increases the time, and does the work that becomes due, in the order of its due times.
    pub fn advance(&self, by: Duration) {
        let target = self.now().saturating_add(by);
        loop {
            while self.run_next(target) {}
            if self.now() >= target {
                return;
            }
            // Checked again afterwards: another thread may have added work that is due by now, and
            // have read the time before it was set.
            self.set(target);
        }
    }

    /// Does the work that is due first, if it is due at `target` or earlier. Returns whether it is.
    fn run_next(&self, target: Duration) -> bool {
        let followers = self.registered();
        let next = followers
            .iter()
            .filter_map(|timed| timed.next_due().map(|due| (due, timed)))
            .min_by_key(|(due, _)| *due)
            .filter(|(due, _)| *due <= target);
        let Some((due, timed)) = next else {
            return false;
        };
        self.set(due);
        timed.clone().run_due();
        true
    }

    fn set(&self, time: Duration) {
        let mut manual = self.shared.lock();
        manual.now = manual.now.max(time);
    }

    fn registered(&self) -> Vec<Arc<dyn Timed>> {
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
        let mut manual = self.shared.lock();
        // A dropped object would keep its allocation.
        manual.followers.retain(|timed| timed.strong_count() > 0);
        manual.followers.push(timed);
    }

    fn recheck(&self) {}
}

#[cfg(not(any(loom, shuttle)))]
pub use system::SystemClock;

#[cfg(not(any(loom, shuttle)))]
mod system {
    use super::{Clock, Timed};
    use crate::sync::{Arc, Condvar, Mutex, Rank, Weak};
    use std::thread;
    use std::time::{Duration, Instant};

    /// The monotonic time of the system. A thread of the clock calls the registered objects; it
    /// ends when the clock is dropped.
    #[derive(Debug)]
    pub struct SystemClock {
        shared: Arc<ClockThread>,
    }

    #[derive(Debug)]
    struct ClockThread {
        origin: Instant,
        /// Rank `Clock`. Held to read or change the registrations, not while work runs.
        registrations: Mutex<Registrations>,
        changed: Condvar,
    }

    #[derive(Debug, Default)]
    struct Registrations {
        followers: Vec<Weak<dyn Timed>>,
        /// The number of calls of `recheck`, so that the thread detects a call between its check
        /// and its sleep.
        rechecks: u64,
        /// The time until which the thread sleeps, unless it is notified; `None` while it does not sleep.
        sleeps_until: Option<Duration>,
        /// Whether the thread was started, which the first registration does.
        started: bool,
        closed: bool,
    }

    impl SystemClock {
        /// Creates a clock whose origin is the current time.
        pub fn new() -> Self {
            let shared = Arc::new(ClockThread {
                origin: Instant::now(),
                registrations: Mutex::new(Rank::Clock, Registrations::default()),
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
                let mut registrations = self.shared.registrations.lock();
                registrations
                    .followers
                    .retain(|timed| timed.strong_count() > 0);
                registrations.followers.push(timed);
                std::mem::replace(&mut registrations.started, true)
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
            // The thread never sleeps until then.
            self.recheck_at(Duration::ZERO);
        }

        fn recheck_at(&self, due: Duration) {
            {
                let mut registrations = self.shared.registrations.lock();
                // Timers that are set and cleared for each request do not wake the thread each time.
                if registrations.looks_by(due) {
                    return;
                }
                registrations.rechecks += 1;
            }
            self.shared.changed.notify_all();
        }
    }

    impl Registrations {
        /// Returns whether the thread sleeps, and looks at its objects at that time or before.
        fn looks_by(&self, due: Duration) -> bool {
            self.sleeps_until.is_some_and(|until| until <= due)
        }
    }

    impl Drop for SystemClock {
        fn drop(&mut self) {
            self.shared.registrations.lock().closed = true;
            self.shared.changed.notify_all();
        }
    }

    impl ClockThread {
        fn run(&self) {
            loop {
                let (followers, rechecks) = {
                    let mut registrations = self.registrations.lock();
                    if registrations.closed {
                        return;
                    }
                    registrations
                        .followers
                        .retain(|timed| timed.strong_count() > 0);
                    let followers: Vec<_> = registrations
                        .followers
                        .iter()
                        .filter_map(Weak::upgrade)
                        .collect();
                    (followers, registrations.rechecks)
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
                let mut registrations = self.registrations.lock();
                if registrations.rechecks != rechecks || registrations.closed {
                    continue;
                }
                registrations.sleeps_until = Some(next.unwrap_or(Duration::MAX));
                let mut registrations = match next {
                    Some(due) => {
                        let sleep = due.saturating_sub(self.origin.elapsed());
                        if !sleep.is_zero() {
                            self.changed.wait_for(&mut registrations, sleep);
                        }
                        registrations
                    }
                    None => self.changed.wait(registrations),
                };
                registrations.sleeps_until = None;
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use std::sync::mpsc::{Receiver, Sender, channel};

        use super::{Clock, Duration, Mutex, Rank, SystemClock, Timed};
        use crate::sync::Arc;

        /// Reports when it is looked at, and when it does its work.
        #[derive(Debug)]
        struct Reporter {
            due: Mutex<Option<Duration>>,
            looked: Sender<()>,
            ran: Sender<()>,
        }

        impl Reporter {
            fn new() -> (Arc<Self>, Receiver<()>, Receiver<()>) {
                let ((looked, looks), (ran, runs)) = (channel(), channel());
                let due = Mutex::new(Rank::Clock, None);
                (Arc::new(Self { due, looked, ran }), looks, runs)
            }
        }

        impl Timed for Reporter {
            fn next_due(&self) -> Option<Duration> {
                let due = *self.due.lock();
                let _ = self.looked.send(());
                due
            }

            fn run_due(self: Arc<Self>) {
                *self.due.lock() = None;
                let _ = self.ran.send(());
            }
        }

        /// A failure instead of a test that does not end.
        const LIMIT: Duration = Duration::from_secs(60);

        fn followed() -> (SystemClock, Arc<Reporter>, Receiver<()>, Receiver<()>) {
            let (clock, (reporter, looks, runs)) = (SystemClock::new(), Reporter::new());
            let timed: Arc<dyn Timed> = reporter.clone();
            clock.follow(Arc::downgrade(&timed));
            (clock, reporter, looks, runs)
        }

        #[test]
        fn work_that_is_due_before_the_end_of_a_sleep_is_done() {
            let (clock, reporter, _looks, runs) = followed();
            for _ in 0..100 {
                *reporter.due.lock() = Some(Duration::from_secs(3_600));
                clock.recheck_at(Duration::from_secs(3_600));
                let now = clock.now();
                *reporter.due.lock() = Some(now);
                clock.recheck_at(now);
                runs.recv_timeout(LIMIT).expect("the work is done");
            }
        }

        #[test]
        fn a_thread_that_sleeps_is_woken_only_for_earlier_work() {
            let (clock, reporter, looks, _runs) = followed();
            let at = Duration::from_secs;
            *reporter.due.lock() = Some(at(3_600));
            clock.recheck();
            // It sleeps after one of its looks at the latest.
            let sleeps_until = || clock.shared.registrations.lock().sleeps_until;
            let mut waits = 0..60_000;
            while sleeps_until() != Some(at(3_600)) {
                waits.next().expect("the thread sleeps");
                let _ = looks.recv_timeout(Duration::from_millis(1));
            }
            let rechecks = || clock.shared.registrations.lock().rechecks;
            let before = rechecks();
            for due in [3_600, 3_601, 9_000] {
                clock.recheck_at(at(due));
            }
            assert_eq!(rechecks(), before);
            while looks.try_recv().is_ok() {}
            *reporter.due.lock() = Some(at(3_599));
            clock.recheck_at(at(3_599));
            assert_eq!(rechecks(), before + 1);
            looks.recv_timeout(LIMIT).expect("the thread looks again");
        }
    }
}
