//! The time of a clock in each of its modes.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// The last time that a clock reaches, 292 years: what Go's durations, in which the time is written, can represent.
pub const TIME_MAX: Duration = Duration::from_nanos(i64::MAX as u64);

/// The way in which the time of a [`ControlClock`](super::ControlClock) passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClockMode {
    /// Time passes as that of the system.
    #[default]
    System,
    /// Time passes only by [`advance`](super::ControlClock::advance).
    Manual,
    /// Time jumps to the next due time whenever nothing happens, and stands still otherwise.
    Auto,
}

impl ClockMode {
    /// Returns the name in the vocabulary of control.
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Manual => "manual",
            Self::Auto => "auto",
        }
    }
}

impl fmt::Display for ClockMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text that is no name of a [`ClockMode`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown mode {0:?} of the clock: must be system, manual or auto")]
pub struct UnknownClockMode(String);

impl FromStr for ClockMode {
    type Err = UnknownClockMode;

    fn from_str(text: &str) -> Result<Self, UnknownClockMode> {
        let modes = [Self::System, Self::Manual, Self::Auto];
        let mode = modes.into_iter().find(|mode| mode.name() == text);
        mode.ok_or_else(|| UnknownClockMode(text.to_owned()))
    }
}

/// The mode, and the time as a function of the time of the system. Never decreases.
#[derive(Debug)]
pub(super) struct Time {
    mode: ClockMode,
    /// The time at `running_since`, or, if that is `None`, the time that stands still.
    base: Duration,
    running_since: Option<Instant>,
    /// Whether the time stands still in all modes.
    frozen: bool,
}

impl Time {
    pub(super) fn new(mode: ClockMode, start: Duration, at: Instant) -> Self {
        let mut time = Self {
            mode,
            base: start.min(TIME_MAX),
            running_since: None,
            frozen: false,
        };
        time.unfreeze(at);
        time
    }

    pub(super) fn mode(&self) -> ClockMode {
        self.mode
    }

    pub(super) fn now(&self, at: Instant) -> Duration {
        let elapsed = self
            .running_since
            .map_or(Duration::ZERO, |since| at.saturating_duration_since(since));
        self.base.saturating_add(elapsed).min(TIME_MAX)
    }

    /// Stops the time.
    pub(super) fn freeze(&mut self, at: Instant) {
        self.base = self.now(at);
        self.running_since = None;
        self.frozen = true;
    }

    /// Lets the time run again, if it runs in this mode.
    pub(super) fn unfreeze(&mut self, at: Instant) {
        self.base = self.now(at);
        self.frozen = false;
        self.running_since = (self.mode == ClockMode::System).then_some(at);
    }

    /// Changes the mode, and returns the time of the change. A frozen time starts to run when it is unfrozen.
    pub(super) fn set_mode(&mut self, mode: ClockMode, at: Instant) -> Duration {
        self.mode = mode;
        if !self.frozen {
            self.unfreeze(at);
        }
        self.now(at)
    }

    /// Moves the time to `time` if it is earlier; returns the time afterwards.
    pub(super) fn set_at_least(&mut self, time: Duration, at: Instant) -> Duration {
        let now = self.now(at);
        let behind = time.min(TIME_MAX).saturating_sub(now);
        self.base = self.base.saturating_add(behind);
        now + behind
    }
}
