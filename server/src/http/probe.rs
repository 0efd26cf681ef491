//! A probe of the engine for health checks, which does not wait for a stuck engine.

use std::{fmt, sync::Arc, thread, time::Duration};

use parking_lot::Mutex;
use revstore_engine::{Engine, WriteError};
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

/// The time in which the engine must complete a read and an empty write. Changes that take longer than a
/// second are rare, even in large stores; etcd's checks wait for 7 s.
pub(super) const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// The failure of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeError {
    /// The engine refuses all writes.
    Refuses(WriteError),
    /// The engine has not responded within [`PROBE_TIMEOUT`].
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

type Check = dyn Fn() -> Result<(), WriteError> + Send + Sync;

/// Runs a check of the engine on a thread of its own. At most one check runs at a time, and further ones have
/// its result, so a stuck engine holds one thread.
pub(crate) struct Probe {
    check: Arc<Check>,
    /// The running check. A leaf lock, held to start a check or to join it.
    running: Arc<Mutex<Option<Running>>>,
}

#[derive(Clone, Debug)]
struct Running {
    deadline: Instant,
    /// Receives the result once. Its sender is dropped without one if the check panics.
    result: watch::Receiver<Option<Result<(), WriteError>>>,
}

impl Probe {
    /// Creates a probe of an engine.
    pub(crate) fn new(engine: Engine) -> Self {
        Self::of(move || engine.check())
    }

    fn of(check: impl Fn() -> Result<(), WriteError> + Send + Sync + 'static) -> Self {
        Self {
            check: Arc::new(check),
            running: Arc::default(),
        }
    }

    /// Checks the engine. A check that was started earlier fails at its own deadline.
    pub(super) async fn run(&self) -> Result<(), ProbeError> {
        let Running {
            deadline,
            mut result,
        } = self.start_or_join()?;
        match timeout_at(deadline, result.wait_for(Option::is_some)).await {
            Ok(Ok(result)) => match *result {
                Some(Err(error)) => Err(ProbeError::Refuses(error)),
                _ => Ok(()),
            },
            Ok(Err(_)) => Err(ProbeError::NotRun),
            Err(_) => Err(ProbeError::Stuck),
        }
    }

    fn start_or_join(&self) -> Result<Running, ProbeError> {
        let mut running = self.running.lock();
        if let Some(running) = &*running {
            return Ok(running.clone());
        }
        let (sender, result) = watch::channel(None);
        let (check, ended) = (self.check.clone(), Ended(self.running.clone()));
        let thread = thread::Builder::new().name("revstore-probe".to_owned());
        let started = thread.spawn(move || {
            let result = check();
            // The next probe starts a new check.
            drop(ended);
            sender.send_replace(Some(result));
        });
        started.map_err(|_| ProbeError::NotRun)?;
        let started = Running {
            deadline: Instant::now() + PROBE_TIMEOUT,
            result,
        };
        *running = Some(started.clone());
        Ok(started)
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
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc,
    };

    use super::*;

    /// A probe whose check waits until the sender sends or is dropped, and the number of checks.
    fn waiting() -> (Probe, mpsc::SyncSender<()>, Arc<AtomicUsize>) {
        let (release, held) = mpsc::sync_channel(0);
        let (held, count) = (Mutex::new(held), Arc::new(AtomicUsize::new(0)));
        let counted = count.clone();
        let probe = Probe::of(move || {
            counted.fetch_add(1, Relaxed);
            let _ = held.lock().recv();
            Ok(())
        });
        (probe, release, count)
    }

    /// The paused clock advances at once when the runtime has nothing else to do.
    #[tokio::test(start_paused = true)]
    async fn a_stuck_engine_is_reported_and_holds_one_thread() {
        let (probe, release, count) = waiting();
        let start = Instant::now();
        for _ in 0..3 {
            assert_eq!(probe.run().await, Err(ProbeError::Stuck));
            assert_eq!(start.elapsed().as_secs(), PROBE_TIMEOUT.as_secs());
        }
        let running = probe.running.lock().clone();
        // The engine responds again.
        drop(release);
        let mut result = running.expect("a running check").result;
        result.wait_for(Option::is_some).await.expect("a result");
        assert_eq!(count.load(Relaxed), 1);
    }

    #[tokio::test]
    async fn checks_at_the_same_time_share_a_result() {
        let (probe, release, count) = waiting();
        let both = async { tokio::join!(probe.run(), probe.run()) };
        let both = tokio::join!(both, async { drop(release) }).0;
        assert_eq!(both, (Ok(()), Ok(())));
        assert_eq!(probe.run().await, Ok(()));
        assert_eq!(count.load(Relaxed), 2);
    }

    #[tokio::test]
    async fn a_damaged_engine_and_a_check_that_panics_are_reported() {
        let probe = Probe::of(|| Err(WriteError::Damaged));
        let damaged = Err(ProbeError::Refuses(WriteError::Damaged));
        assert_eq!((probe.run().await, probe.run().await), (damaged, damaged));
        let probe = Probe::of(|| panic!("on purpose"));
        assert_eq!(probe.run().await, Err(ProbeError::NotRun));
        let probe = Probe::new(Engine::builder().build());
        assert_eq!(probe.run().await, Ok(()));
    }
}
