//! How long to wait after a failure.

use std::time::Duration;

use fastrand::Rng;

/// WC-507: 0.8 s, doubled up to 30 s, times 1 to 2; from the start again after 2 quiet minutes.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    random: Rng,
    next: Duration,
    last: Option<Duration>,
}

const FIRST: Duration = Duration::from_millis(800);
const LONGEST: Duration = Duration::from_secs(30);
const QUIET: Duration = Duration::from_secs(120);

impl Backoff {
    /// A backoff that has seen no failure.
    pub(crate) fn new(random: Rng) -> Self {
        Self {
            random,
            next: FIRST,
            last: None,
        }
    }

    /// How long to wait after a failure at `now`.
    pub(crate) fn next(&mut self, now: Duration) -> Duration {
        if self
            .last
            .is_some_and(|last| now.saturating_sub(last) > QUIET)
        {
            self.next = FIRST;
        }
        self.last = Some(now);
        let wait = self.next.mul_f64(1.0 + self.random.f64());
        self.next = (self.next * 2).min(LONGEST);
        wait
    }

    pub(crate) fn random(&mut self) -> &mut Rng {
        &mut self.random
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t_59_backoff_doubles_to_30_seconds_and_starts_again_after_two_quiet_minutes() {
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
