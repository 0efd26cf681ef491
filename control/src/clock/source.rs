//! The time that running time follows.

use std::time::{Duration, Instant};

use tokio::runtime::Handle as Runtime;

/// The time that running time follows.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// That of the system.
    System,
    /// That of a tokio runtime, which may be paused.
    Runtime(Runtime),
}

impl Source {
    pub(super) fn now(&self) -> Instant {
        match self {
            Self::System => Instant::now(),
            Self::Runtime(runtime) => {
                // A thread outside of the runtime would read the time of the system.
                let _context = runtime.enter();
                tokio::time::Instant::now().into_std()
            }
        }
    }

    pub(super) fn since(&self, then: Instant) -> Duration {
        self.now().saturating_duration_since(then)
    }
}
