//! Triggers: for which of the selected calls a rule fires.

use fastrand::Rng;

/// For which of the calls that a rule selects it fires.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Trigger {
    /// For all, until the rule is removed.
    #[default]
    Always,
    /// For the next calls, this many.
    Next(u64),
    /// For every call with this number: with 3, for the third, the sixth and so on.
    Every(u64),
    /// For each with a probability, from a generator of the rule: the same order of calls has the same decisions.
    Probability {
        /// Above 0, at most 1.
        probability: f64,
        /// The seed of the generator.
        seed: u64,
    },
    /// While the current revision of the store is in a window.
    Revisions {
        /// The first revision, if the window has one.
        from: Option<i64>,
        /// The last revision, if the window has one.
        to: Option<i64>,
    },
}

/// The counters of a trigger.
#[derive(Debug)]
pub(crate) struct TriggerState {
    trigger: Trigger,
    /// The number of calls that were selected.
    selected: u64,
    /// The number of calls for which it fired.
    pub(crate) fired: u64,
    random: Rng,
}

impl TriggerState {
    pub(crate) fn new(trigger: Trigger) -> Self {
        let seed = match trigger {
            Trigger::Probability { seed, .. } => seed,
            _ => 0,
        };
        Self {
            trigger,
            selected: 0,
            fired: 0,
            random: Rng::with_seed(seed),
        }
    }

    /// Counts a selected call. Returns whether the rule fires for it.
    pub(crate) fn fires(&mut self, revision: i64) -> bool {
        self.selected = self.selected.saturating_add(1);
        let fires = match self.trigger {
            Trigger::Always => true,
            Trigger::Next(count) => self.fired < count,
            Trigger::Every(number) => self.selected.is_multiple_of(number),
            Trigger::Probability { probability, .. } => self.random.f64() < probability,
            Trigger::Revisions { from, to } => {
                from.is_none_or(|from| from <= revision) && to.is_none_or(|to| revision <= to)
            }
        };
        self.fired += u64::from(fires);
        fires
    }
}
