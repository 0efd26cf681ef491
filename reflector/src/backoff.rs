//! The pause after a failed request. Corresponds to client-go's `wait.Backoff`, with the parameters
//! of its `Reflector`.

use std::time::Duration;

use fastrand::Rng;

/// The pause after the first failure, before jitter.
const INITIAL: Duration = Duration::from_millis(800);
/// The maximum pause, before jitter.
const MAX: Duration = Duration::from_secs(30);
/// The time without a failure after which the next pause is [`INITIAL`] again.
const RESET_AFTER: Duration = Duration::from_secs(120);

/// An exponential backoff with jitter (WC-507).
///
/// The pause starts at 0.8 s and doubles up to 30 s. Each pause is multiplied by a random factor
/// between 1 and 2. After 2 minutes without a failure it starts at 0.8 s again.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    random: Rng,
    next: Duration,
    last_failure: Option<Duration>,
}

impl Backoff {
    /// Creates a backoff without failures.
    pub(crate) fn new(random: Rng) -> Self {
        Self {
            random,
            next: INITIAL,
            last_failure: None,
        }
    }

    /// Returns the pause after a failure at `now`.
    pub(crate) fn next(&mut self, now: Duration) -> Duration {
        let is_reset = |last| now.saturating_sub(last) > RESET_AFTER;
        if self.last_failure.is_some_and(is_reset) {
            self.next = INITIAL;
        }
        self.last_failure = Some(now);
        let wait = self.jitter(self.next);
        self.next = (self.next * 2).min(MAX);
        wait
    }

    /// Multiplies a duration by a random factor between 1 and 2.
    pub(crate) fn jitter(&mut self, duration: Duration) -> Duration {
        duration.mul_f64(1.0 + self.random.f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Shows WC-507.
    #[test]
    fn t_59_backoff_doubles_to_30_seconds_and_restarts_after_2_minutes_without_failure() {
        let mut backoff = Backoff::new(Rng::with_seed(3));
        let mut now = Duration::ZERO;
        for base in [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0] {
            let wait = backoff.next(now).as_secs_f64();
            assert!(wait >= base && wait < 2.0 * base, "{wait} of {base}");
            now += Duration::from_secs(60);
        }
        now += Duration::from_secs(61);
        assert!(backoff.next(now) < Duration::from_millis(1600));
    }
}
