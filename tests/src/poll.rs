//! Polling, for conditions of other processes that cannot wake a waiter.

use std::time::{Duration, Instant};

/// The time between two probes.
pub const INTERVAL: Duration = Duration::from_millis(10);

/// The time limit of every wait of the test suite, after which the test fails. It is long enough for slow and
/// busy machines.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Calls `probe` every [`INTERVAL`] until it returns a value, and returns `None` after `limit`.
///
/// `probe` runs at least once, and once more after the limit. So if the machine was suspended and the
/// condition became true in the meantime, the wait succeeds.
pub fn until<T>(limit: Duration, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        let is_last = Instant::now() >= deadline;
        let found = probe();
        if found.is_some() || is_last {
            return found;
        }
        std::thread::sleep(INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_ends_the_wait() {
        let mut calls = 0;
        let found = until(LIMIT, || {
            calls += 1;
            (calls == 3).then_some(calls)
        });
        assert_eq!(found, Some(3));
    }

    #[test]
    fn the_probe_runs_at_least_once_before_the_limit_ends_the_wait() {
        let mut calls = 0;
        let found: Option<()> = until(Duration::ZERO, || {
            calls += 1;
            None
        });
        assert_eq!(found, None);
        assert_eq!(calls, 1);
    }
}
