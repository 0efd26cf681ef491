//! Duties: what the engine does because time passes.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Timed;
use crate::compaction::Compaction;
use crate::options::Options;
use crate::revision::Revision;
use crate::store::Store;
use crate::sync::{Arc, Mutex, Rank};

/// Compaction that nobody has to ask for.
///
/// ```
/// use std::time::Duration;
/// use revstore_engine::{AutoCompaction, Engine, Revision, ManualClock};
/// let clock = ManualClock::new();
/// let keep_two = AutoCompaction::Revisions { keep: 2, every: Duration::from_secs(300) };
/// let engine = Engine::builder().clock(clock.clone()).auto_compaction(keep_two).build();
/// for value in ["1", "2", "3", "4"] {
///     engine.put("key", value)?;
/// }
/// clock.advance(Duration::from_secs(300));
/// assert_eq!(engine.compacted_revision(), Some(Revision(3)));
/// # Ok::<(), revstore_engine::PutError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoCompaction {
    /// Keeps the history of a period (AC-4): looks at the revision ten times a period, or ten times an
    /// hour if the period is longer, and compacts as often as a period, or an hour, has passed.
    Periodic {
        /// How much history to keep.
        period: Duration,
    },
    /// Keeps a number of revisions (AC-6).
    Revisions {
        /// How many revisions below the current one to keep.
        keep: u64,
        /// How often to look; etcd's is 5 minutes.
        every: Duration,
    },
    /// Keeps the history within a number of bytes, as [`Stats::history_bytes`](crate::Stats) counts
    /// them. What is alive is never dropped, so a store with more living data than that keeps only
    /// the newest versions.
    Size {
        /// The most bytes to keep.
        bytes_max: u64,
        /// How often to look.
        every: Duration,
    },
}

/// The longest time between two periodic compactions (AC-4).
const PERIODIC_INTERVAL_MAX: Duration = Duration::from_secs(3600);
/// Looks at the revision in one interval (AC-4).
const SAMPLES_PER_INTERVAL: u32 = 10;
/// No duty of a policy comes more often than this, whatever the policy says.
const STEP_MIN: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct Duties {
    progress_interval: Duration,
    /// Rank `Hub`, which it is never held with. Held to look or step, not while duties are done.
    schedule: Mutex<Schedule>,
}

#[derive(Debug)]
struct Schedule {
    /// Set while some watch wants to hear of progress.
    progress_due: Option<Duration>,
    compactor: Option<Compactor>,
}

/// The state of a policy.
#[derive(Debug)]
struct Compactor {
    policy: AutoCompaction,
    due: Duration,
    /// Periodic: the revision at past looks, oldest first.
    samples: VecDeque<(Duration, Revision)>,
    last_compaction: Option<Duration>,
    started: Duration,
}

/// What a policy wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Nothing,
    CompactAt(Revision),
    ShrinkTo(u64),
}

impl Duties {
    pub(crate) fn new(options: &Options, now: Duration) -> Self {
        let compactor = options
            .auto_compaction
            .map(|policy| Compactor::new(policy, now));
        let schedule = Schedule {
            progress_due: None,
            compactor,
        };
        let progress_interval = options.progress_interval;
        Self {
            progress_interval,
            schedule: Mutex::new(Rank::Hub, schedule),
        }
    }
}

impl Compactor {
    fn new(policy: AutoCompaction, now: Duration) -> Self {
        let mut new = Self {
            policy,
            due: now,
            samples: VecDeque::new(),
            last_compaction: None,
            started: now,
        };
        // A periodic policy looks at the revision at once, the others have nothing to see yet.
        if !matches!(policy, AutoCompaction::Periodic { .. }) {
            new.due = now.saturating_add(new.interval());
        }
        new
    }

    /// The time between two looks.
    fn interval(&self) -> Duration {
        let interval = match self.policy {
            AutoCompaction::Periodic { period } => {
                period.min(PERIODIC_INTERVAL_MAX) / SAMPLES_PER_INTERVAL
            }
            AutoCompaction::Revisions { every, .. } | AutoCompaction::Size { every, .. } => every,
        };
        interval.max(STEP_MIN)
    }

    /// Takes one look: what to do now, and `due` for the next.
    fn step(&mut self, now: Duration, current: Revision) -> Wish {
        self.due = now.saturating_add(self.interval());
        match self.policy {
            AutoCompaction::Periodic { period } => self.step_periodic(period, now, current),
            AutoCompaction::Revisions { keep, .. } => {
                let keep = i64::try_from(keep).unwrap_or(i64::MAX);
                match current.0.saturating_sub(keep) {
                    mark @ 1.. => Wish::CompactAt(Revision(mark)),
                    _ => Wish::Nothing,
                }
            }
            AutoCompaction::Size { bytes_max, .. } => Wish::ShrinkTo(bytes_max),
        }
    }

    fn step_periodic(&mut self, period: Duration, now: Duration, current: Revision) -> Wish {
        self.samples.push_back((now, current));
        // The newest sample that is a whole period old is the one to compact at.
        let old_enough = |(taken, _): &(Duration, Revision)| {
            taken.checked_add(period).is_some_and(|aged| aged <= now)
        };
        while self.samples.get(1).is_some_and(old_enough) {
            self.samples.pop_front();
        }
        let since = self.last_compaction.unwrap_or(self.started);
        let wait = match self.last_compaction {
            Some(_) => period.min(PERIODIC_INTERVAL_MAX),
            None => period,
        };
        match self.samples.front() {
            Some(oldest) if old_enough(oldest) && now.saturating_sub(since) >= wait => {
                self.last_compaction = Some(now);
                Wish::CompactAt(oldest.1)
            }
            _ => Wish::Nothing,
        }
    }
}

impl Store {
    /// Does what a policy wants; nothing new to compact is as good (AC-5).
    fn fulfil(self: &Arc<Self>, wish: Wish) {
        let mark = match wish {
            Wish::Nothing => None,
            Wish::CompactAt(mark) => Some(mark),
            Wish::ShrinkTo(bytes_max) => self.mark_for_size(bytes_max),
        };
        if let Some(mark) = mark
            && self.announce_compaction(mark).is_ok()
        {
            Compaction::new(self.clone(), mark).run();
        }
    }

    /// Lets the policy take a look now, whenever its next one is due (AC-7).
    pub(crate) fn auto_compact(self: &Arc<Self>) {
        let now = self.clock.now();
        let wish = {
            let mut schedule = self.duties.schedule.lock();
            let current = self.current.load();
            schedule
                .compactor
                .as_mut()
                .map_or(Wish::Nothing, |policy| policy.step(now, current))
        };
        self.fulfil(wish);
    }
}

/// The duties of a store belong to the handle that the clock keeps.
impl Timed for Store {
    fn next_due(&self) -> Option<Duration> {
        let lease = self.lessor.next_expiry();
        let wants_progress = self.hub.wants_progress();
        let first_progress = self
            .clock
            .now()
            .saturating_add(self.duties.progress_interval);
        let mut schedule = self.duties.schedule.lock();
        let progress = wants_progress.then(|| *schedule.progress_due.get_or_insert(first_progress));
        schedule.progress_due = progress;
        let compaction = schedule.compactor.as_ref().map(|compactor| compactor.due);
        [lease, progress, compaction].into_iter().flatten().min()
    }

    fn run_due(self: Arc<Self>) {
        let now = self.clock.now();
        while let Some(lease) = self.lessor.expired(now) {
            // Somebody may have revoked it meanwhile, which is as good.
            let _ = self.revoke(lease);
        }
        let mut progress = false;
        let mut wish = Wish::Nothing;
        {
            let mut schedule = self.duties.schedule.lock();
            if schedule.progress_due.is_some_and(|due| due <= now) {
                schedule.progress_due = Some(now.saturating_add(self.duties.progress_interval));
                progress = true;
            }
            let current = self.current.load();
            if let Some(compactor) = schedule.compactor.as_mut().filter(|one| one.due <= now) {
                wish = compactor.step(now, current);
            }
        }
        if progress {
            self.hub.tick_progress(&self);
        }
        self.fulfil(wish);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{AutoCompaction, Compactor, Wish};
    use crate::revision::Revision;

    /// Runs a policy over `seconds` with one revision a second; returns (second, mark) pairs.
    fn run(policy: AutoCompaction, seconds: u64) -> Vec<(u64, i64)> {
        let mut compactor = Compactor::new(policy, Duration::ZERO);
        let mut marks = Vec::new();
        while compactor.due <= Duration::from_secs(seconds) {
            let now = compactor.due;
            if let Wish::CompactAt(mark) =
                compactor.step(now, Revision(now.as_secs().cast_signed()))
            {
                marks.push((now.as_secs(), mark.0));
            }
        }
        marks
    }

    #[test]
    fn ac_4_a_period_is_kept_and_compacted_once_a_period() {
        let policy = AutoCompaction::Periodic {
            period: Duration::from_secs(100),
        };
        assert_eq!(run(policy, 310), [(100, 0), (200, 100), (300, 200)]);
    }

    #[test]
    fn ac_4_long_periods_are_compacted_every_hour() {
        let hour = 3600;
        let policy = AutoCompaction::Periodic {
            period: Duration::from_secs(2 * hour),
        };
        let marks = run(policy, 4 * hour);
        assert_eq!(marks, [(7200, 0), (10800, 3600), (14400, 7200)]);
    }

    #[test]
    fn ac_6_a_number_of_revisions_is_kept() {
        let policy = AutoCompaction::Revisions {
            keep: 100,
            every: Duration::from_secs(300),
        };
        assert_eq!(run(policy, 700), [(300, 200), (600, 500)]);
        let policy = AutoCompaction::Revisions {
            keep: 1000,
            every: Duration::from_secs(300),
        };
        assert_eq!(run(policy, 700), []);
    }
}
