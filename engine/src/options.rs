//! How an engine is set up.

use std::time::Duration;

use crate::clock::Clock;
use crate::compaction::AutoCompaction;
use crate::engine::Engine;
use crate::fault::Faults;
use crate::revision::Revision;
use crate::store::Store;
use crate::sync::Arc;

/// etcd's smallest time to live with its default timers (LE-1).
const LEASE_TTL_MIN: Duration = Duration::from_secs(2);
/// etcd's default (WA-50).
const PROGRESS_INTERVAL: Duration = Duration::from_secs(600);
/// The shortest progress interval (WA-50).
const PROGRESS_INTERVAL_MIN: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) start_revision: Revision,
    pub(crate) lease_ttl_min: Duration,
    pub(crate) progress_interval: Duration,
    pub(crate) auto_compaction: Option<AutoCompaction>,
    pub(crate) faults: Faults,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            start_revision: Revision::FIRST,
            lease_ttl_min: LEASE_TTL_MIN,
            progress_interval: PROGRESS_INTERVAL,
            auto_compaction: None,
            faults: Faults::default(),
        }
    }
}

/// Sets an engine up; made by [`Engine::builder`].
///
/// | option | default |
/// |---|---|
/// | [`clock`](Self::clock) | the machine's time |
/// | [`start_revision`](Self::start_revision) | 1 (DM-1) |
/// | [`lease_ttl_min`](Self::lease_ttl_min) | 2 s (LE-1) |
/// | [`progress_interval`](Self::progress_interval) | 10 min (WA-50) |
/// | [`auto_compaction`](Self::auto_compaction) | off (AC-1) |
#[derive(Debug, Clone)]
#[must_use = "an engine is made by `build`"]
pub struct EngineBuilder {
    options: Options,
    clock: Option<Arc<dyn Clock>>,
}

impl EngineBuilder {
    pub(crate) fn new() -> Self {
        Self {
            options: Options::default(),
            clock: None,
        }
    }

    /// The source of time. Several engines may share one.
    pub fn clock(self, clock: impl Clock + 'static) -> Self {
        Self {
            clock: Some(Arc::new(clock)),
            ..self
        }
    }

    /// Where the fresh store stands; what lies below a number above 1 counts as compacted. Numbers
    /// below 1 count as 1.
    ///
    /// A store that takes the place of an earlier one should start at least two above what that one
    /// reached (FL-17). Who watches from where it left off is then told that history is gone;
    /// otherwise it waits for a revision long past, or goes on without a word.
    pub fn start_revision(mut self, revision: Revision) -> Self {
        self.options.start_revision = revision.max(Revision::FIRST);
        self
    }

    /// The smallest time to live; what is asked for below it is raised to it (LE-1).
    pub fn lease_ttl_min(mut self, ttl: Duration) -> Self {
        self.options.lease_ttl_min = ttl;
        self
    }

    /// How often a quiet watch that asked for it hears how far it is (WA-50). Raised to 100 ms.
    pub fn progress_interval(mut self, interval: Duration) -> Self {
        self.options.progress_interval = interval.max(PROGRESS_INTERVAL_MIN);
        self
    }

    /// Compacts by itself.
    pub fn auto_compaction(mut self, policy: AutoCompaction) -> Self {
        self.options.auto_compaction = Some(policy);
        self
    }

    /// Makes a mistake on purpose, to show that a model would find it.
    #[cfg(loom)]
    pub fn fault(mut self, fault: crate::fault::Fault) -> Self {
        self.options.faults = Faults::only(fault);
        self
    }

    /// Makes the engine. Costs a few allocations, and one thread for the machine's time if no clock
    /// was given.
    pub fn build(self) -> Engine {
        #[cfg(not(loom))]
        let default = || Arc::new(crate::clock::SystemClock::new()) as Arc<dyn Clock>;
        #[cfg(loom)]
        let default = || Arc::new(crate::clock::ManualClock::new()) as Arc<dyn Clock>;
        let clock = self.clock.unwrap_or_else(default);
        let store = Arc::new(Store::new(self.options, clock.clone()));
        let timed: Arc<dyn crate::clock::Timed> = store.clone();
        clock.follow(Arc::downgrade(&timed));
        Engine::new(store)
    }
}
