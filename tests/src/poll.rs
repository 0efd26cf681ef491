//! Waiting for something outside this process that cannot wake us.

use std::time::{Duration, Instant};

/// How long to wait between two looks at an external process.
pub const INTERVAL: Duration = Duration::from_millis(10);

/// The longest that any wait of the test suite takes before it fails. Reached only when something
/// is broken, so it is generous towards slow and busy machines.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Calls `probe` every [`INTERVAL`] until it returns a value; `None` once `limit` has passed.
///
/// `probe` runs at least once, and once more after the limit, so that a machine which stood still
/// in between does not fail a condition that has come true.
pub fn until<T>(limit: Duration, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        let late = Instant::now() >= deadline;
        let found = probe();
        if found.is_some() || late {
            return found;
        }
        std::thread::sleep(INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_the_first_value() {
        let mut calls = 0;
        let found = until(LIMIT, || {
            calls += 1;
            (calls == 3).then_some(calls)
        });
        assert_eq!(found, Some(3));
    }

    #[test]
    fn gives_up_at_the_limit_but_looks_at_least_once() {
        let mut calls = 0;
        let found: Option<()> = until(Duration::ZERO, || {
            calls += 1;
            None
        });
        assert_eq!(found, None);
        assert_eq!(calls, 1);
    }
}
