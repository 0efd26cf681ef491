//! Automatic compaction: the policies, and the compactor that runs one.
//!
//! A policy decides when to compact, and at which revision. Each policy is in a separate file. To
//! add a policy, write such a file, and add a variant to [`AutoCompaction`] and an arm to its
//! `policy`.

mod periodic;
mod reports;
mod revisions;
mod size;

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use periodic::Periodic;
pub use reports::{AutoCompactionStep, AutoCompactions};
use revisions::Revisions;
use size::Size;

use crate::revision::Revision;
use crate::store::Store;
use crate::sync::{AtomicWaker, Mutex, Rank};

/// A policy of automatic compaction, at times given by the engine's clock.
///
/// The engine checks the store once per *interval*, and compacts if the policy requires it.
/// [`Engine::auto_compact`](crate::Engine::auto_compact) checks at once.
///
/// ```
/// use std::time::Duration;
/// use revstore_engine::{AutoCompaction, Engine, Revision, ManualClock};
/// let clock = ManualClock::new();
/// let keep_two = AutoCompaction::Revisions { keep: 2, every: AutoCompaction::DEFAULT_INTERVAL };
/// let engine = Engine::builder().clock(clock.clone()).auto_compaction(keep_two).build();
/// for value in ["1", "2", "3", "4"] {
///     engine.put("key", value)?;
/// }
/// clock.advance(Duration::from_secs(300));
/// assert_eq!(engine.compacted_revision(), Some(Revision(3)));
/// # Ok::<(), revstore_engine::PutError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AutoCompaction {
    /// Keeps the history of the last `period`: etcd's `periodic` mode.
    ///
    /// The interval is a tenth of the period, or 6 minutes if the period is longer than an hour.
    /// The first compaction takes place after one period, each further one a period or an hour
    /// after the previous one, whichever is shorter.
    Periodic {
        /// The age up to which history is kept.
        period: Duration,
    },
    /// Keeps the last `keep` revisions: etcd's `revision` mode.
    Revisions {
        /// The number of revisions to keep below the current one.
        keep: u64,
        /// The interval; [`DEFAULT_INTERVAL`](Self::DEFAULT_INTERVAL) in etcd.
        every: Duration,
    },
    /// Keeps the history within `bytes_max`, measured as [`Stats::history_bytes`](crate::Stats).
    /// etcd has no such mode.
    ///
    /// The newest versions of live keys are never dropped. If they take more than `bytes_max`, only
    /// they are kept.
    Size {
        /// The number of bytes to keep at most.
        bytes_max: u64,
        /// The interval.
        every: Duration,
    },
}

impl AutoCompaction {
    /// The interval of etcd's `revision` mode, 5 minutes: a good value for `every`.
    pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(300);

    fn policy(self, now: Duration) -> Box<dyn Policy> {
        match self {
            Self::Periodic { period } => Box::new(Periodic::new(period, now)),
            Self::Revisions { keep, every } => Box::new(Revisions { keep, every }),
            Self::Size { bytes_max, every } => Box::new(Size { bytes_max, every }),
        }
    }
}

/// A policy: decides from its observations when to compact, and at which revision.
pub(super) trait Policy: fmt::Debug + Send {
    /// Returns the time between two checks.
    fn interval(&self) -> Duration;

    /// Returns the time from the start of the engine to the first check.
    fn first_check(&self) -> Duration {
        self.interval()
    }

    /// Records the state of the store at one check, for policies that need earlier states.
    fn observe(&mut self, _check: &Check<'_>) {}

    /// Returns the revision to compact at, or `None` for no compaction. Changes nothing.
    fn decide(&self, check: &Check<'_>) -> Option<Revision>;

    /// Records that the decision of this check was to compact.
    fn record_compaction(&mut self, _now: Duration) {}
}

/// The state of the store at one check of a policy.
#[derive(Debug)]
pub(super) struct Check<'a> {
    pub(super) now: Duration,
    pub(super) current: Revision,
    pub(super) store: &'a Store,
}

/// The shortest interval between two checks. With an interval of zero the thread of the clock would
/// not sleep.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

/// Checks the policy of an engine when its interval has passed. etcd's `compactor.Compactor`.
#[derive(Debug)]
pub(crate) struct Compactor {
    /// Rank `Compactor`. Held for one check or one step of its reader, not for the compaction that
    /// follows from a check.
    scheduled: Option<Mutex<Scheduled>>,
    /// The reader of the steps.
    reader: AtomicWaker,
}

#[derive(Debug)]
struct Scheduled {
    kind: AutoCompaction,
    policy: Box<dyn Policy>,
    next_check: Duration,
    /// The steps that are not read yet; `None` without a reader.
    steps: Option<VecDeque<AutoCompactionStep>>,
}

impl Compactor {
    /// Creates the compactor of an engine that starts at the time `now`; without a policy it does
    /// nothing.
    pub(crate) fn new(policy: Option<AutoCompaction>, now: Duration) -> Self {
        let scheduled = policy.map(|kind| {
            let policy = kind.policy(now);
            let next_check = now.saturating_add(policy.first_check());
            let scheduled = Scheduled {
                kind,
                policy,
                next_check,
                steps: None,
            };
            Mutex::new(Rank::Compactor, scheduled)
        });
        Self {
            scheduled,
            reader: AtomicWaker::new(),
        }
    }

    /// Returns the time of the next check.
    pub(crate) fn next_check(&self) -> Option<Duration> {
        Some(self.scheduled.as_ref()?.lock().next_check)
    }

    /// Checks the policy if its interval has passed; returns the revision to compact at.
    pub(crate) fn check_if_due(&self, store: &Store, now: Duration) -> Option<Revision> {
        let mut scheduled = self.scheduled.as_ref()?.lock();
        if scheduled.next_check > now {
            return None;
        }
        scheduled.check(store, now)
    }

    /// Checks the policy now (AC-7); returns the revision to compact at.
    pub(crate) fn check(&self, store: &Store, now: Duration) -> Option<Revision> {
        self.scheduled.as_ref()?.lock().check(store, now)
    }
}

impl Scheduled {
    fn check(&mut self, store: &Store, now: Duration) -> Option<Revision> {
        let check = Check {
            now,
            current: store.current.load(),
            store,
        };
        self.next_check = now.saturating_add(self.policy.interval().max(INTERVAL_MIN));
        self.policy.observe(&check);
        let revision = self.policy.decide(&check)?;
        self.policy.record_compaction(now);
        Some(revision)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{AutoCompaction, Compactor};
    use crate::options::Options;
    use crate::revision::Revision;
    use crate::store::Store;
    use crate::sync::Arc;
    use crate::{Clock, ManualClock};

    /// Runs a policy over `seconds` with one revision per second; returns the second and the
    /// revision of each compaction that it decides on.
    pub(super) fn run(policy: AutoCompaction, seconds: u64) -> Vec<(u64, i64)> {
        let clock = ManualClock::new();
        let store = Store::new(Options::default(), Arc::new(clock.clone()));
        let compactor = Compactor::new(Some(policy), clock.now());
        let mut compactions = Vec::new();
        while let Some(now) = compactor.next_check()
            && now <= Duration::from_secs(seconds)
        {
            store.current.publish(Revision(now.as_secs().cast_signed()));
            if let Some(revision) = compactor.check_if_due(&store, now) {
                compactions.push((now.as_secs(), revision.0));
            }
        }
        compactions
    }

    #[test]
    fn a_compactor_without_a_policy_is_never_due() {
        assert_eq!(Compactor::new(None, Duration::ZERO).next_check(), None);
    }
}
