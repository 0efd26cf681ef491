//! The bounds of an exploration.

use std::str::FromStr;
use std::time::Duration;

/// The largest value of [`Options::steps`]. Loom reserves about 700 bytes of address space for each
/// step.
pub const STEPS_MAX: u32 = 10_000_000;

/// The bounds of an exploration. Those that are not set have the default of the backend.
///
/// | option | loom | shuttle | threads |
/// |---|---|---|---|
/// | [`executions`](Self::executions) | unlimited | 1,000 | 100 |
/// | [`duration`](Self::duration) | unlimited | unlimited | unlimited |
/// | [`preemptions`](Self::preemptions) | unlimited | varies from 0 to 8, or at every step | the system preempts as it likes |
/// | [`steps`](Self::steps) | 100,000 | 1,000,000 | the system counts none |
/// | [`seed`](Self::seed) | explores without chance | random | the system has none |
///
/// In the last column the last three options have no effect, so that a test can set them for the
/// other backends. The same holds for `seed` under loom.
///
/// # Environment
/// A variable sets an option that the program has not set. A value that cannot be parsed is
/// refused with a panic.
///
/// | variable | option |
/// |---|---|
/// | `REVSTORE_VERIFY_EXECUTIONS` | `executions` |
/// | `REVSTORE_VERIFY_SEED` | `seed` |
/// | `REVSTORE_VERIFY_REPLAY` | runs only the execution that the report of a failure names |
/// | `LOOM_MAX_PERMUTATIONS`, `LOOM_MAX_DURATION`, `LOOM_MAX_PREEMPTIONS`, `LOOM_MAX_BRANCHES` | `executions`, `duration` in seconds, `preemptions` and `steps`, under loom only |
///
/// ```
/// use revstore_verify::Options;
/// use std::time::Duration;
/// // All interleavings with up to three preemptions, for a minute at most.
/// let options = Options::new().preemptions(3).duration(Duration::from_secs(60));
/// # let _ = options;
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "`explore` uses the options"]
pub struct Options {
    pub(crate) executions: Option<u64>,
    pub(crate) duration: Option<Duration>,
    pub(crate) preemptions: Option<u8>,
    pub(crate) steps: Option<u32>,
    pub(crate) seed: Option<u64>,
}

impl Options {
    /// Creates options with the defaults of the backend.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum number of executions. At least one execution runs.
    pub fn executions(mut self, executions: u64) -> Self {
        self.executions = Some(executions);
        self
    }

    /// Sets the time after which no further execution starts. At least one execution runs, and an
    /// execution that has started runs to its end.
    pub fn duration(mut self, duration: Duration) -> Self {
        self.duration = Some(duration);
        self
    }

    /// Sets the maximum number of preemptions of an execution: switches away from a thread that
    /// could continue.
    ///
    /// A thread that waits for another one in a loop must call
    /// [`yield_now`](crate::thread::yield_now) in it, because it is not preempted more often.
    ///
    /// Most bugs need one or two. Three make the exploration of a larger model possible; without a
    /// bound, a model of two threads with one or two calls each takes up to a minute.
    pub fn preemptions(mut self, preemptions: u8) -> Self {
        self.preemptions = Some(preemptions);
        self
    }

    /// Sets the maximum number of points of an execution at which another thread could continue.
    /// An execution with more fails, because it may never end.
    ///
    /// # Panics
    /// If the number is above [`STEPS_MAX`].
    pub fn steps(mut self, steps: u32) -> Self {
        assert!(
            steps <= STEPS_MAX,
            "steps: {steps} is above the maximum of {STEPS_MAX}"
        );
        self.steps = Some(steps);
        self
    }

    /// Sets the seed of the first execution. The others have the following numbers.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Returns the bound of the executions, if the program or the environment sets one.
    pub(crate) fn executions_max(&self) -> Option<u64> {
        self.executions
            .or_else(|| variable("REVSTORE_VERIFY_EXECUTIONS", "a number"))
    }
}

/// Returns the value of an environment variable, or `None` if it is not set.
///
/// # Panics
/// If the value is not `expected`.
pub(crate) fn variable<T: FromStr>(name: &str, expected: &str) -> Option<T> {
    let value = std::env::var_os(name)?;
    match value.to_str().and_then(|value| value.parse().ok()) {
        Some(parsed) => Some(parsed),
        None => panic!(
            "invalid {name} \"{}\": expected {expected}",
            value.display()
        ),
    }
}
