//! The clock of a server under control: its time runs, or moves only when a test says so, or jumps.
//!
//! | file | contents |
//! |---|---|
//! | `time.rs` | the modes, and the time in each of them |
//! | `source.rs` | the time that running time follows: that of the system, or of a runtime |
//! | `thread.rs` | the thread, or the task of a runtime, that does due work while the time runs or jumps |

mod source;
mod thread;
mod time;

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use revstore_engine::{Clock, PendingWork, Timed};
use revstore_host::config::GoDuration;
use tokio::runtime::Handle as Runtime;
use tokio::sync::Notify;

use self::source::Source;
use self::time::Time;
pub use self::time::{ClockMode, TIME_MAX};

/// The maximum number of due instants that one advance passes.
pub const ADVANCE_INSTANTS_MAX: u64 = 4_000_000;

/// The time of the system for which an advance waits for tasks that were woken at a due time. If they need longer, because
/// they write to a client that does not read, for example, it goes on without them, and waits for none after them.
pub const SETTLE_MAX: Duration = Duration::from_secs(1);

/// The default of [`ControlClock::set_idle`].
pub const IDLE_DEFAULT: Duration = Duration::from_millis(5);

/// The work of a server in the mode [`ClockMode::Auto`], of which the clock must wait for the end.
pub trait Activity: fmt::Debug + Send + Sync {
    /// Returns `None` if no request is under way, no output waits, and nothing has arrived for `idle`, all by the
    /// time of the system. Otherwise returns the time after which to ask again.
    fn busy_for(&self, idle: Duration) -> Option<Duration>;
}

/// The error of an advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdvanceError {
    /// The call comes from work that the clock is doing, such as the end of a watch in an advance. The clock
    /// would wait for itself.
    #[error("the clock cannot advance from work that it does at a due time")]
    Reentrant,
    /// There is no work that is due at a time.
    #[error("there is no next due time: nothing is pending")]
    NothingPending,
    /// More than [`ADVANCE_INSTANTS_MAX`] instants were due. The clock stands at the last one whose work was done.
    #[error("stopped at {} after {ADVANCE_INSTANTS_MAX} due times", GoDuration::from(*reached))]
    TooManyInstants {
        /// The time that was reached.
        reached: Duration,
    },
}

/// A clock whose time tests control. Clones share the time.
///
/// In each [mode](ClockMode), time never decreases, also when the mode changes. [`advance`](Self::advance) works in all
/// modes: it passes each due instant in order, and all work that is due then sees that time. No other thread sees a
/// time between two instants. Of a server, also the tasks that it wakes at an instant have run before the next one, those
/// excepted that come after some which needed longer than [`SETTLE_MAX`].
///
/// # Costs
/// A look at the time takes a lock for a moment. One thread for each clock does the due work of the modes
/// [`System`](ClockMode::System) and [`Auto`](ClockMode::Auto); it sleeps otherwise, and ends with the last clone. For a clock
/// [in a runtime](Self::in_runtime), a task does.
///
/// ```
/// use std::time::Duration;
/// use revstore_control::clock::{ClockMode, ControlClock};
/// use revstore_engine::{Engine, Put};
///
/// let clock = ControlClock::new(ClockMode::Manual);
/// let engine = Engine::builder().clock(clock.clone()).build();
/// let lease = engine.grant(None, 60)?.id;
/// engine.put_with(&Put::new("key", "value").attached_to(lease))?;
/// clock.advance(Duration::from_secs(59))?;
/// assert!(engine.get("key").is_some());
/// assert_eq!(clock.advance_to_next()?, Duration::from_secs(60));
/// assert!(engine.get("key").is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ControlClock {
    handle: Arc<Handle>,
}

/// Ends the thread when the last clone is dropped.
#[derive(Debug)]
struct Handle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Held for a look or a change, never while work runs.
    state: Mutex<State>,
    /// Signalled after each change of `state` that concerns the thread.
    changed: Condvar,
    /// The same for the task of a clock in a runtime.
    changed_task: Notify,
    source: Source,
    /// The right to do due work and to move the time. Held while work runs, before `state` and all locks of that work, and
    /// never waited for by the thread that holds it: `driver` of the state names that thread.
    driving: Mutex<()>,
    /// The time of the source at which the clock was created.
    created: Instant,
    /// When the clock was last read or notified: nanoseconds since `created`.
    used: AtomicU64,
}

#[derive(Debug)]
struct State {
    time: Time,
    followers: Vec<Weak<dyn Timed>>,
    /// The thread that does due work now.
    driver: Option<ThreadId>,
    activity: Option<Weak<dyn Activity>>,
    idle: Duration,
    /// The number of changes that concern the thread of the clock, so that it detects one before it sleeps.
    changes: u64,
    closed: bool,
}

/// The right to do due work, until it is dropped.
#[derive(Debug)]
struct Drive<'a> {
    shared: &'a Shared,
    /// Whether woken tasks are waited for.
    settles: Cell<bool>,
    _driving: MutexGuard<'a, ()>,
}

impl ControlClock {
    /// Creates a clock whose time begins at zero.
    pub fn new(mode: ClockMode) -> Self {
        Self::starting_at(mode, Duration::ZERO)
    }

    /// Creates a clock whose time begins at `start`, at most [`TIME_MAX`].
    pub fn starting_at(mode: ClockMode, start: Duration) -> Self {
        let source = Source::System;
        Self::with(Time::new(mode, start, source.now()), IDLE_DEFAULT, source)
    }

    /// Creates a clock whose time begins at zero, and whose running time is that of the tokio runtime of the caller, which tests
    /// can pause and a network simulator controls: [`ClockMode::System`] follows it, and the idle time of
    /// [`ClockMode::Auto`] is measured by it. A task of the runtime does the due work of these modes, so none is done while
    /// nothing drives the runtime.
    ///
    /// ```
    /// use std::time::Duration;
    /// use revstore_control::clock::{ClockMode, ControlClock};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
    /// let hour = Duration::from_secs(3_600);
    /// let clock = ControlClock::in_runtime(ClockMode::System);
    /// tokio::time::sleep(hour).await; // takes no time
    /// assert_eq!(clock.time(), hour);
    /// clock.set_mode(ClockMode::Manual);
    /// tokio::time::sleep(hour).await;
    /// clock.advance(hour)?;
    /// assert_eq!(clock.time(), 2 * hour);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// The thread is not in a tokio runtime, or the runtime has no time.
    pub fn in_runtime(mode: ClockMode) -> Self {
        let source = Source::Runtime(Runtime::current());
        Self::with(
            Time::new(mode, Duration::ZERO, source.now()),
            IDLE_DEFAULT,
            source,
        )
    }

    /// Creates an independent clock with the mode, the time and the idle time that this one has now. Nothing follows it.
    #[must_use]
    pub fn copy(&self) -> Self {
        let (time, idle) = {
            let state = self.shared().state.lock();
            let at = self.shared().source.now();
            let time = Time::new(state.time.mode(), state.time.now(at), at);
            (time, state.idle)
        };
        Self::with(time, idle, self.shared().source.clone())
    }

    fn with(time: Time, idle: Duration, source: Source) -> Self {
        let state = State {
            time,
            followers: Vec::new(),
            driver: None,
            activity: None,
            idle,
            changes: 0,
            closed: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            changed_task: Notify::new(),
            driving: Mutex::new(()),
            created: source.now(),
            source,
            used: AtomicU64::new(0),
        });
        match &shared.source {
            Source::System => thread::spawn(shared.clone()),
            Source::Runtime(runtime) => drop(runtime.spawn(thread::run_task(shared.clone()))),
        }
        Self {
            handle: Arc::new(Handle(shared)),
        }
    }

    fn shared(&self) -> &Shared {
        &self.handle.0
    }

    /// Returns the mode.
    pub fn mode(&self) -> ClockMode {
        self.shared().state.lock().time.mode()
    }

    /// Returns the time since the origin. Unlike [`Clock::now`], the call is no use of the clock by a server, for which
    /// the mode [`Auto`](ClockMode::Auto) waits.
    pub fn time(&self) -> Duration {
        self.shared()
            .state
            .lock()
            .time
            .now(self.shared().source.now())
    }

    /// Changes the mode. The time continues from where it is. When the call returns, work that was due before it is
    /// done; a call from due work itself does not wait for the rest of that work.
    ///
    /// Returns the time at which the mode changed.
    pub fn set_mode(&self, mode: ClockMode) -> Duration {
        let shared = self.shared();
        let drive = shared.drive().ok();
        let now = {
            let mut state = shared.state.lock();
            let now = state.time.set_mode(mode, shared.source.now());
            state.changes += 1;
            now
        };
        if let Some(drive) = drive {
            // An error means that the work is due again and again. It is left to the thread or to the next advance.
            let _ = drive.run_until(now, ADVANCE_INSTANTS_MAX);
        }
        shared.notify();
        now
    }

    /// Moves the time forward, and does the work that becomes due, in the order of its due times. Returns the new time,
    /// which is at most [`TIME_MAX`].
    ///
    /// Several threads may advance at the same time: one advances after the other. In the modes with running time, time
    /// stands still while the work is done, and continues at the new time. In the mode [`Auto`](ClockMode::Auto), the end of an
    /// advance is a use of the clock: time jumps again when nothing has happened since.
    ///
    /// # Errors
    /// - [`AdvanceError::Reentrant`] if the call comes from due work, on the same thread.
    /// - [`AdvanceError::TooManyInstants`] if more than [`ADVANCE_INSTANTS_MAX`] instants are due.
    pub fn advance(&self, by: Duration) -> Result<Duration, AdvanceError> {
        let drive = self.shared().drive()?.settling();
        let _frozen = drive.freeze();
        let target = self.time().saturating_add(by).min(TIME_MAX);
        let reached = drive.run_until(target, ADVANCE_INSTANTS_MAX);
        self.shared().record_use();
        reached
    }

    /// Moves the time to the next due time and does the work that is due then. Returns that time.
    ///
    /// # Errors
    /// As [`advance`](Self::advance), and [`AdvanceError::NothingPending`] if nothing is due at any time, or not before
    /// [`TIME_MAX`].
    pub fn advance_to_next(&self) -> Result<Duration, AdvanceError> {
        let drive = self.shared().drive()?.settling();
        let _frozen = drive.freeze();
        let now = self.time();
        // What is due already, because it was added since the last advance, comes first.
        drive.run_until(now, ADVANCE_INSTANTS_MAX)?;
        let next = self.shared().next_due().map(|(due, _)| due);
        let next = next.filter(|due| *due <= TIME_MAX);
        let next = next.ok_or(AdvanceError::NothingPending)?;
        let reached = drive.run_until(next, ADVANCE_INSTANTS_MAX);
        self.shared().record_use();
        reached
    }

    /// Lists the work that is due later: what is due first, at most `max` entries.
    pub fn pending(&self, max: usize) -> PendingWork {
        let mut pending = PendingWork::default();
        for timed in self.shared().followers() {
            pending.merge(timed.pending(max), max);
        }
        pending
    }

    /// Sets the object that knows whether a server has work, for the mode [`Auto`](ClockMode::Auto). Without it the
    /// clock only waits until nobody has used it for the time of [`set_idle`](Self::set_idle). The clock does not keep
    /// the object alive.
    pub fn set_activity(&self, activity: Weak<dyn Activity>) {
        self.shared()
            .change(|state| state.activity = Some(activity));
    }

    /// Sets the time of the system for which nothing may happen before time jumps in the mode
    /// [`Auto`](ClockMode::Auto). The default is [`IDLE_DEFAULT`], 5 ms.
    pub fn set_idle(&self, idle: Duration) {
        self.shared().change(|state| state.idle = idle);
    }
}

impl Clock for ControlClock {
    fn now(&self) -> Duration {
        self.shared().record_use();
        self.time()
    }

    fn follow(&self, timed: Weak<dyn Timed>) {
        self.shared().change(|state| {
            state.followers.retain(|timed| timed.strong_count() > 0);
            state.followers.push(timed);
        });
    }

    fn recheck(&self) {
        self.shared().record_use();
        self.shared().change(|_| ());
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.change(|state| state.closed = true);
    }
}

impl Shared {
    fn record_use(&self) {
        let nanos = self.source.since(self.created).as_nanos();
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        // Relaxed: no other access depends on it. The thread that reads an earlier value jumps a moment too early.
        self.used.store(nanos, Ordering::Relaxed);
    }

    /// Returns the time of the system since the clock was last read or notified.
    fn unused_for(&self) -> Duration {
        let used = Duration::from_nanos(self.used.load(Ordering::Relaxed));
        self.source.since(self.created).saturating_sub(used)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        {
            let mut state = self.state.lock();
            change(&mut state);
            state.changes += 1;
        }
        self.notify();
    }

    /// Wakes the thread or the task of the clock.
    fn notify(&self) {
        match self.source {
            Source::System => drop(self.changed.notify_all()),
            Source::Runtime(_) => self.changed_task.notify_one(),
        }
    }

    fn followers(&self) -> Vec<Arc<dyn Timed>> {
        let state = self.state.lock();
        state.followers.iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns what is due first, with its time.
    fn next_due(&self) -> Option<(Duration, Arc<dyn Timed>)> {
        let due_times = self.followers().into_iter();
        let due_times = due_times.filter_map(|timed| Some((timed.next_due()?, timed)));
        due_times.min_by_key(|(due, _)| *due)
    }

    /// Waits for the right to do due work.
    fn drive(&self) -> Result<Drive<'_>, AdvanceError> {
        let own = std::thread::current().id();
        if self.state.lock().driver == Some(own) {
            return Err(AdvanceError::Reentrant);
        }
        let driving = self.driving.lock();
        self.state.lock().driver = Some(own);
        Ok(Drive {
            shared: self,
            settles: Cell::new(false),
            _driving: driving,
        })
    }
}

impl Drive<'_> {
    /// Waits for the tasks of a server that due work wakes. Only a server has threads that run them.
    fn settling(self) -> Self {
        let is_server = self.shared.state.lock().activity.is_some();
        self.settles.set(is_server);
        self
    }

    /// Waits until the tasks have run that the due work of an object has woken, unless some were not waited for already.
    fn wait_until_settled(&self, timed: &dyn Timed) {
        /// The number of looks before the thread sleeps between two of them. Most tasks run at once.
        const LOOKS_BUSY: u32 = 64;
        const PAUSE: Duration = Duration::from_micros(50);
        if !self.settles.get() {
            return;
        }
        let began = Instant::now();
        let mut looks = 0;
        while !timed.is_settled() {
            if began.elapsed() >= SETTLE_MAX {
                return self.settles.set(false);
            }
            looks += 1;
            if looks < LOOKS_BUSY {
                std::thread::yield_now();
            } else {
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Stops running time, until the result is dropped.
    fn freeze(&self) -> Frozen<'_> {
        self.shared
            .state
            .lock()
            .time
            .freeze(self.shared.source.now());
        Frozen(self.shared)
    }

    /// Does the work that is due at `target` or before it, in the order of its due times, and moves the time along.
    /// Returns the time afterwards.
    fn run_until(&self, target: Duration, instants_max: u64) -> Result<Duration, AdvanceError> {
        let mut instants = 0;
        loop {
            while let Some((due, timed)) = self.shared.next_due().filter(|(due, _)| *due <= target)
            {
                {
                    let mut state = self.shared.state.lock();
                    if instants == instants_max {
                        // The time stays at the last instant whose work was done.
                        let reached = state.time.now(self.shared.source.now());
                        return Err(AdvanceError::TooManyInstants { reached });
                    }
                    state.time.set_at_least(due, self.shared.source.now());
                }
                instants += 1;
                timed.clone().run_due();
                self.wait_until_settled(&*timed);
            }
            let mut state = self.shared.state.lock();
            let now = state.time.now(self.shared.source.now());
            if now >= target {
                return Ok(now);
            }
            // Checked again afterwards: another thread may have added work that is due by now, and have read the time
            // before it was set.
            state.time.set_at_least(target, self.shared.source.now());
        }
    }
}

impl Drop for Drive<'_> {
    fn drop(&mut self) {
        self.shared.state.lock().driver = None;
    }
}

/// Time that stands still in all modes, until this is dropped.
#[derive(Debug)]
struct Frozen<'a>(&'a Shared);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.0
            .change(|state| state.time.unfreeze(self.0.source.now()));
    }
}

#[cfg(test)]
mod tests;
