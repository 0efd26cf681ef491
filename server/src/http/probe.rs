//! A probe of the engine for health checks, which does not wait for a stuck engine.

use std::{fmt, mem, sync::Arc, thread, time::Duration};

use parking_lot::Mutex;
use revstore_engine::{Engine, KeyRange, Range, WriteError};
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

/// The time in which the engine must complete a read and an empty write. Changes that take longer than a
/// second are rare, even in large stores; etcd's checks wait for 7 s.
pub(super) const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// The time between two looks at the progress of the writes that a check waits for.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(10);

/// The failure of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeError {
    /// The engine refuses all writes.
    Refuses(WriteError),
    /// The engine has not responded within [`PROBE_TIMEOUT`], and no write makes progress.
    Stuck,
    /// The probe itself failed: it panicked, or there was no thread for it.
    NotRun,
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refuses(error) => error.fmt(f),
            Self::Stuck => write!(f, "no response within {} s", PROBE_TIMEOUT.as_secs()),
            Self::NotRun => f.write_str("the check did not run"),
        }
    }
}

/// What a probe does with the engine.
struct Checks {
    /// A read.
    read: Box<dyn Fn() + Send + Sync>,
    /// An empty write. It waits for running writes and deliveries.
    write: Box<dyn Fn() -> Result<(), WriteError> + Send + Sync>,
    /// A number that changes while these make progress.
    progress: Box<dyn Fn() -> u64 + Send + Sync>,
}

/// Runs a check of the engine on a thread of its own. At most one check runs at a time, and further ones have
/// its result, so a stuck engine holds one thread.
pub(crate) struct Probe {
    checks: Arc<Checks>,
    /// The running check. A leaf lock, held to start a check or to join it.
    running: Arc<Mutex<Option<Running>>>,
}

#[derive(Clone, Debug)]
struct Running {
    deadline: Instant,
    /// Its sender is dropped before the end if the check panics.
    state: watch::Receiver<State>,
}

/// The state of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Reading,
    /// The read is done.
    Writing,
    Ended(Result<(), WriteError>),
}

impl Probe {
    /// Creates a probe of an engine.
    pub(crate) fn new(engine: Engine) -> Self {
        let (reader, writer) = (engine.clone(), engine.clone());
        let first = Range::of(KeyRange::all()).limit(1);
        Self::of(Checks {
            // A read of the current revision cannot fail.
            read: Box::new(move || drop(reader.range(&first))),
            write: Box::new(move || writer.check()),
            progress: Box::new(move || engine.progress()),
        })
    }

    /// Creates a probe of an engine that refuses all writes, which no engine does on request.
    #[cfg(test)]
    pub(super) fn of_refusing(error: WriteError) -> Self {
        Self::of(Checks {
            read: Box::new(|| ()),
            write: Box::new(move || Err(error)),
            progress: Box::new(|| 0),
        })
    }

    fn of(checks: Checks) -> Self {
        Self {
            checks: Arc::new(checks),
            running: Arc::default(),
        }
    }

    /// Checks the engine, and waits until no write is running. A check that was started earlier fails at its own
    /// deadline.
    pub(super) async fn run(&self) -> Result<(), ProbeError> {
        let mut check = self.start_or_join()?;
        match check.ended(check.deadline).await {
            Some(result) => result,
            None => Err(ProbeError::Stuck),
        }
    }

    /// Checks whether the engine responds: it reads, and either writes or makes progress with the write that is
    /// running. So the check does not wait for a large deletion.
    pub(super) async fn is_alive(&self) -> Result<(), ProbeError> {
        let mut check = self.start_or_join()?;
        // A look at the progress also of a check whose deadline has passed.
        let deadline = check.deadline.max(Instant::now() + PROGRESS_INTERVAL);
        let mut progress = (self.checks.progress)();
        loop {
            let next = deadline.min(Instant::now() + PROGRESS_INTERVAL);
            if let Some(result) = check.ended(next).await {
                return result;
            }
            let last = mem::replace(&mut progress, (self.checks.progress)());
            if progress != last && *check.state.borrow() == State::Writing {
                return Ok(());
            }
            if next == deadline {
                return Err(ProbeError::Stuck);
            }
        }
    }

    fn start_or_join(&self) -> Result<Running, ProbeError> {
        let mut running = self.running.lock();
        if let Some(running) = &*running {
            return Ok(running.clone());
        }
        let (sender, state) = watch::channel(State::Reading);
        let (checks, ended) = (self.checks.clone(), Ended(self.running.clone()));
        let thread = thread::Builder::new().name("revstore-probe".to_owned());
        let started = thread.spawn(move || {
            (checks.read)();
            sender.send_replace(State::Writing);
            let result = (checks.write)();
            // The next probe starts a new check.
            drop(ended);
            sender.send_replace(State::Ended(result));
        });
        started.map_err(|_| ProbeError::NotRun)?;
        let started = Running {
            deadline: Instant::now() + PROBE_TIMEOUT,
            state,
        };
        *running = Some(started.clone());
        Ok(started)
    }
}

impl Running {
    /// Waits for the end of the check, at most until a time; returns `None` then.
    async fn ended(&mut self, until: Instant) -> Option<Result<(), ProbeError>> {
        let is_ended = |state: &State| matches!(state, State::Ended(_));
        match timeout_at(until, self.state.wait_for(is_ended)).await {
            Ok(Ok(state)) => match *state {
                State::Ended(Err(error)) => Some(Err(ProbeError::Refuses(error))),
                _ => Some(Ok(())),
            },
            Ok(Err(_)) => Some(Err(ProbeError::NotRun)),
            Err(_) => None,
        }
    }
}

/// Clears the running check when it ends, also by a panic.
struct Ended(Arc<Mutex<Option<Running>>>);

impl Drop for Ended {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
        mpsc,
    };

    use super::*;

    /// A probe whose write waits until the sender sends or is dropped, the number of checks, and the progress.
    struct Waiting {
        probe: Probe,
        release: mpsc::SyncSender<()>,
        count: Arc<AtomicUsize>,
        progress: Arc<AtomicU64>,
    }

    fn waiting(read: impl Fn() + Send + Sync + 'static) -> Waiting {
        let (release, held) = mpsc::sync_channel(0);
        let (held, count) = (Mutex::new(held), Arc::new(AtomicUsize::new(0)));
        let (counted, progress) = (count.clone(), Arc::new(AtomicU64::new(0)));
        let steps = progress.clone();
        let probe = Probe::of(Checks {
            read: Box::new(read),
            write: Box::new(move || {
                counted.fetch_add(1, Relaxed);
                let _ = held.lock().recv();
                Ok(())
            }),
            progress: Box::new(move || steps.load(Relaxed)),
        });
        Waiting {
            probe,
            release,
            count,
            progress,
        }
    }

    fn probe_of(write: impl Fn() -> Result<(), WriteError> + Send + Sync + 'static) -> Probe {
        Probe::of(Checks {
            read: Box::new(|| ()),
            write: Box::new(write),
            progress: Box::new(|| 0),
        })
    }

    impl Waiting {
        /// Starts a check and waits until it has read.
        async fn begin_write(&self) {
            let mut check = self.probe.start_or_join().expect("a thread");
            let is_writing = |state: &State| *state == State::Writing;
            check.state.wait_for(is_writing).await.expect("a check");
        }

        /// Lets the running check end.
        async fn end(self) {
            let running = self.probe.running.lock().clone();
            drop(self.release);
            let mut check = running.expect("a running check");
            let ended = check.ended(Instant::now() + PROBE_TIMEOUT).await;
            assert_eq!(ended, Some(Ok(())));
        }
    }

    /// The paused clock advances at once when the runtime has nothing else to do.
    #[tokio::test(start_paused = true)]
    async fn a_stuck_engine_is_reported_and_holds_one_thread() {
        let engine = waiting(|| ());
        let start = Instant::now();
        for _ in 0..3 {
            assert_eq!(engine.probe.run().await, Err(ProbeError::Stuck));
            assert_eq!(engine.probe.is_alive().await, Err(ProbeError::Stuck));
            assert_eq!(start.elapsed().as_secs(), PROBE_TIMEOUT.as_secs());
        }
        // The engine responds again.
        tokio::time::resume();
        let count = engine.count.clone();
        engine.end().await;
        assert_eq!(count.load(Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_engine_is_alive_while_a_long_write_makes_progress() {
        let engine = waiting(|| ());
        engine.begin_write().await;
        let start = Instant::now();
        for round in 1..=3 {
            let step = async { engine.progress.store(round, Relaxed) };
            let (alive, ()) = tokio::join!(engine.probe.is_alive(), step);
            assert_eq!(alive, Ok(()));
            assert!(start.elapsed() < PROBE_TIMEOUT);
        }
        // Also after the deadline of the check, but not without further progress.
        tokio::time::advance(2 * PROBE_TIMEOUT).await;
        let step = async { engine.progress.store(9, Relaxed) };
        let (alive, ()) = tokio::join!(engine.probe.is_alive(), step);
        assert_eq!(alive, Ok(()));
        assert_eq!(engine.probe.is_alive().await, Err(ProbeError::Stuck));
        tokio::time::resume();
        let count = engine.count.clone();
        engine.end().await;
        assert_eq!(count.load(Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn progress_of_writes_does_not_hide_a_stuck_read() {
        let (release, held) = mpsc::sync_channel::<()>(0);
        let held = Mutex::new(held);
        let engine = waiting(move || {
            let _ = held.lock().recv();
        });
        let steps = async {
            for step in 1.. {
                engine.progress.store(step, Relaxed);
                tokio::time::sleep(PROGRESS_INTERVAL / 2).await;
            }
        };
        let alive = tokio::select! {
            alive = engine.probe.is_alive() => alive,
            () = steps => Ok(()),
        };
        assert_eq!(alive, Err(ProbeError::Stuck));
        drop(release);
        tokio::time::resume();
        engine.end().await;
    }

    #[tokio::test]
    async fn checks_at_the_same_time_share_a_result() {
        let engine = waiting(|| ());
        let both = async { tokio::join!(engine.probe.run(), engine.probe.is_alive()) };
        let both = tokio::join!(both, async { drop(engine.release) }).0;
        assert_eq!(both, (Ok(()), Ok(())));
        assert_eq!(engine.probe.run().await, Ok(()));
        assert_eq!(engine.count.load(Relaxed), 2);
    }

    #[tokio::test]
    async fn a_damaged_engine_and_a_check_that_panics_are_reported() {
        let probe = Probe::of_refusing(WriteError::Damaged);
        let damaged = Err(ProbeError::Refuses(WriteError::Damaged));
        assert_eq!(
            (probe.run().await, probe.is_alive().await),
            (damaged, damaged)
        );
        let probe = probe_of(|| panic!("on purpose"));
        assert_eq!(probe.run().await, Err(ProbeError::NotRun));
        assert_eq!(probe.is_alive().await, Err(ProbeError::NotRun));
        let probe = Probe::new(Engine::builder().build());
        assert_eq!(
            (probe.run().await, probe.is_alive().await),
            (Ok(()), Ok(()))
        );
    }
}
