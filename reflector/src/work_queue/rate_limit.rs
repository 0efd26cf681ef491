//! When a key may be added again: exponential pauses of each key, and a bucket of tokens for all keys.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

/// The limits of the additions with [`WorkQueue::add_rate_limited`](super::WorkQueue::add_rate_limited).
/// The defaults are those of client-go.
///
/// The pause of a key is the longer one of two: `first_pause` doubled with each addition since the key
/// was last forgotten, up to `pause_max`; and the time until the bucket, which all keys share, has a
/// token.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct RateLimits {
    /// The pause of the first addition of a key. The default is 5 ms.
    pub first_pause: Duration,
    /// The longest pause of a key, without the bucket. The default is 1,000 s.
    pub pause_max: Duration,
    /// The number of additions of all keys in a second. The default is 10. 0 means no limit.
    pub per_second: f64,
    /// The number of additions of all keys at a time, after a pause. The default is 100.
    pub burst: u32,
}

impl Default for RateLimits {
    fn default() -> Self {
        Self {
            first_pause: Duration::from_millis(5),
            pause_max: Duration::from_secs(1_000),
            per_second: 10.0,
            burst: 100,
        }
    }
}

impl RateLimits {
    /// Sets the pause of the first addition of a key, and the longest pause.
    #[must_use]
    pub fn pauses(self, first: Duration, max: Duration) -> Self {
        Self {
            first_pause: first,
            pause_max: max,
            ..self
        }
    }

    /// Sets the number of additions of all keys in a second, and at a time.
    #[must_use]
    pub fn bucket(self, per_second: f64, burst: u32) -> Self {
        Self {
            per_second,
            burst,
            ..self
        }
    }
}

/// The state of the limits of one queue.
#[derive(Debug)]
pub(crate) struct RateLimiter<K> {
    limits: RateLimits,
    /// The number of additions of each key since it was last forgotten.
    additions: HashMap<K, u32>,
    /// The number of tokens at `updated`. It is negative if additions wait for tokens.
    tokens: f64,
    updated: Duration,
}

impl<K: Clone + Eq + Hash> RateLimiter<K> {
    pub(crate) fn new(limits: RateLimits) -> Self {
        Self {
            limits,
            additions: HashMap::new(),
            tokens: f64::from(limits.burst),
            updated: Duration::ZERO,
        }
    }

    /// Returns the pause of an addition of a key at `now`, and counts the addition.
    pub(crate) fn pause(&mut self, key: &K, now: Duration) -> Duration {
        let additions = self.additions.entry(key.clone()).or_default();
        let factor = 1_u32.checked_shl(*additions).unwrap_or(u32::MAX);
        *additions = additions.saturating_add(1);
        let pause = self.limits.first_pause.saturating_mul(factor);
        pause.min(self.limits.pause_max).max(self.take_token(now))
    }

    /// Takes a token, and returns the time until the bucket has it.
    fn take_token(&mut self, now: Duration) -> Duration {
        let RateLimits {
            per_second, burst, ..
        } = self.limits;
        if per_second.is_nan() || per_second <= 0.0 {
            return Duration::ZERO;
        }
        let elapsed = now.saturating_sub(self.updated).as_secs_f64();
        self.updated = self.updated.max(now);
        self.tokens = (self.tokens + elapsed * per_second).min(f64::from(burst)) - 1.0;
        // A tiny rate leads to a pause that no clock reaches.
        let seconds = (-self.tokens).max(0.0) / per_second;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// Resets the pauses of a key.
    pub(crate) fn forget(&mut self, key: &K) {
        self.additions.remove(key);
    }

    /// Returns the number of additions of a key since it was last forgotten.
    pub(crate) fn additions(&self, key: &K) -> u32 {
        self.additions.get(key).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_the_maximum_and_start_again_after_forget() {
        let mut limiter = RateLimiter::new(RateLimits::default().bucket(0.0, 0));
        let pauses: Vec<u128> = (0..40)
            .map(|_| limiter.pause(&"a", Duration::ZERO).as_millis())
            .collect();
        assert_eq!(pauses[..5], [5, 10, 20, 40, 80]);
        assert_eq!(pauses[17..20], [655_360, 1_000_000, 1_000_000]);
        assert_eq!((pauses[39], limiter.additions(&"a")), (1_000_000, 40));
        assert_eq!(limiter.pause(&"b", Duration::ZERO).as_millis(), 5);
        limiter.forget(&"a");
        assert_eq!(limiter.additions(&"a"), 0);
        assert_eq!(limiter.pause(&"a", Duration::ZERO).as_millis(), 5);
    }

    #[test]
    fn all_keys_share_a_bucket() {
        let mut limiter = RateLimiter::new(RateLimits::default());
        let now = Duration::from_secs(50);
        for key in 0..100 {
            assert_eq!(limiter.pause(&key, now).as_millis(), 5);
        }
        assert_eq!(limiter.pause(&100, now).as_millis(), 100);
        assert_eq!(limiter.pause(&101, now).as_millis(), 200);
        let later = now + Duration::from_secs(1);
        assert_eq!(
            limiter.pause(&102, later).as_millis(),
            5,
            "10 tokens a second"
        );
        let tiny = RateLimits::default().bucket(f64::MIN_POSITIVE, 0);
        assert_eq!(RateLimiter::new(tiny).pause(&1, now), Duration::MAX);
    }
}
