//! What a server does, for automatic time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// Counts what a server does, so that automatic time does not pass meanwhile. Clones share the counts.
///
/// Under way is each request from its arrival to the end of its response, except while it waits for something that
/// happens in the store or on the clock: a watch without events, a waiter for a lock, a request that a rule delays.
/// A response counts until the connection has taken all of it. So a client that does not read a response stops
/// automatic time.
#[derive(Clone, Debug)]
pub struct Activity {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// By the time of the runtime, which may be paused.
    origin: Instant,
    /// The number of requests under way. All accesses are relaxed: a decision about time that runs beside the arrival
    /// of a request may or may not see it.
    busy: AtomicUsize,
    /// The time of the last arrival or end, in nanoseconds since the origin.
    last: AtomicU64,
}

impl Default for Activity {
    fn default() -> Self {
        Self {
            shared: Arc::new(Shared {
                origin: Instant::now(),
                busy: AtomicUsize::new(0),
                last: AtomicU64::new(0),
            }),
        }
    }
}

impl Activity {
    /// Counts a request that has arrived.
    pub fn start(&self) -> Work {
        let mut work = Work {
            activity: self.clone(),
            is_busy: false,
        };
        work.resume();
        work
    }

    /// Records that something arrived.
    pub fn touch(&self) {
        let now = self.shared.origin.elapsed().as_nanos();
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        self.shared.last.fetch_max(now, Ordering::Relaxed);
    }

    /// Returns the number of requests under way.
    pub fn busy(&self) -> usize {
        self.shared.busy.load(Ordering::Relaxed)
    }
}

impl crate::clock::Activity for Activity {
    fn busy_for(&self, idle: Duration) -> Option<Duration> {
        /// The minimum time between two questions while requests are under way.
        const POLL_INTERVAL: Duration = Duration::from_millis(1);
        if self.busy() > 0 {
            return Some(idle.max(POLL_INTERVAL));
        }
        let last = Duration::from_nanos(self.shared.last.load(Ordering::Relaxed));
        let since = self.shared.origin.elapsed().saturating_sub(last);
        idle.checked_sub(since).filter(|rest| !rest.is_zero())
    }
}

/// A request of a server, which counts as under way until it waits or is dropped.
#[derive(Debug)]
pub struct Work {
    activity: Activity,
    is_busy: bool,
}

impl Work {
    /// Counts the request again.
    pub fn resume(&mut self) {
        if !self.is_busy {
            self.is_busy = true;
            self.activity.shared.busy.fetch_add(1, Ordering::Relaxed);
            self.activity.touch();
        }
    }

    /// Does not count the request while it waits for the store or the clock.
    pub fn park(&mut self) {
        if self.is_busy {
            self.is_busy = false;
            self.activity.touch();
            self.activity.shared.busy.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Activity as _;

    #[test]
    fn work_counts_unless_it_waits() {
        let activity = Activity::default();
        let long = Duration::from_secs(3_600);
        assert!(activity.busy_for(long).unwrap() <= long);
        assert_eq!(activity.busy_for(Duration::ZERO), None);
        let mut work = activity.start();
        let other = activity.start();
        assert_eq!(activity.busy(), 2);
        assert!(activity.busy_for(Duration::ZERO).is_some());
        work.park();
        work.park();
        drop(other);
        assert_eq!(activity.busy_for(Duration::ZERO), None);
        work.resume();
        assert_eq!(activity.busy(), 1);
        drop(work);
        assert_eq!(activity.busy(), 0);
    }
}
