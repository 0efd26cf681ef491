//! The policy that keeps the history of a period; etcd's `compactor.Periodic`.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Check, Policy};
use crate::revision::Revision;

/// The longest time between two compactions (AC-4).
const COMPACTION_INTERVAL_MAX: Duration = Duration::from_secs(3600);
/// The number of samples of the current revision between two compactions (AC-4).
const SAMPLES_PER_COMPACTION: u32 = 10;

/// Compacts at the revision that was current one period ago.
#[derive(Debug)]
pub(super) struct Periodic {
    period: Duration,
    started: Duration,
    last_compaction: Option<Duration>,
    /// The current revision at earlier checks, oldest first. At most one is older than the period.
    samples: VecDeque<Sample>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    taken: Duration,
    revision: Revision,
}

impl Periodic {
    pub(super) fn new(period: Duration, now: Duration) -> Self {
        Self {
            period,
            started: now,
            last_compaction: None,
            samples: VecDeque::new(),
        }
    }

    fn compaction_interval(&self) -> Duration {
        self.period.min(COMPACTION_INTERVAL_MAX)
    }

    fn is_a_period_old(&self, sample: Sample, now: Duration) -> bool {
        let aged = sample.taken.checked_add(self.period);
        aged.is_some_and(|aged| aged <= now)
    }
}

impl Policy for Periodic {
    fn interval(&self) -> Duration {
        self.compaction_interval() / SAMPLES_PER_COMPACTION
    }

    /// The first sample is taken at the start.
    fn first_check(&self) -> Duration {
        Duration::ZERO
    }

    fn observe(&mut self, check: &Check<'_>) {
        self.samples.push_back(Sample {
            taken: check.now,
            revision: check.current,
        });
        // Keep the newest of the samples that are a period old: it is the one to compact at.
        while let Some(second) = self.samples.get(1).copied()
            && self.is_a_period_old(second, check.now)
        {
            self.samples.pop_front();
        }
    }

    fn decide(&self, check: &Check<'_>) -> Option<Revision> {
        let wait_until = match self.last_compaction {
            Some(last) => last.saturating_add(self.compaction_interval()),
            None => self.started.saturating_add(self.period),
        };
        let oldest = *self.samples.front()?;
        let is_due = self.is_a_period_old(oldest, check.now) && wait_until <= check.now;
        is_due.then_some(oldest.revision)
    }

    fn record_compaction(&mut self, now: Duration) {
        self.last_compaction = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::run;
    use crate::AutoCompaction;

    #[test]
    fn ac_4_periodic_mode_keeps_one_period_and_compacts_once_a_period() {
        let policy = AutoCompaction::Periodic {
            period: Duration::from_secs(100),
        };
        assert_eq!(run(policy, 310), [(100, 0), (200, 100), (300, 200)]);
    }

    #[test]
    fn ac_4_periodic_mode_with_a_long_period_compacts_every_hour() {
        let hour = 3600;
        let policy = AutoCompaction::Periodic {
            period: Duration::from_secs(2 * hour),
        };
        let compactions = run(policy, 4 * hour);
        assert_eq!(compactions, [(7200, 0), (10800, 3600), (14400, 7200)]);
    }
}
