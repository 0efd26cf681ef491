//! Leases that writes with the same time to live share.

use std::time::Duration;

use revstore_engine::LEASE_TTL_MAX_SECONDS;

/// The most seconds by which a lease outlives the time to live for which it was granted.
const RESERVE_SECONDS_MAX: i64 = 60;
/// The part of the time to live by which its lease outlives it, as a divisor.
const RESERVE_DIVISOR: i64 = 20;
/// The maximum number of writes that share a lease. Its end deletes all their keys in one revision.
const WRITES_MAX: u32 = 1000;

/// The newest lease of a source, which later writes use, too: as in kube-apiserver's lease manager, so that a storm of
/// events costs one lease for 1,000 of them. Keys live for their time to live at least, and for a twentieth of it, at
/// most a minute, longer.
#[derive(Debug)]
pub(super) struct SharedLease<Id> {
    newest: Option<Newest<Id>>,
}

#[derive(Clone, Copy, Debug)]
struct Newest<Id> {
    id: Id,
    /// The time by the clock of the leases at which it ends.
    end: Duration,
    writes: u32,
}

impl<Id> Default for SharedLease<Id> {
    fn default() -> Self {
        Self { newest: None }
    }
}

impl<Id: Copy + PartialEq> SharedLease<Id> {
    /// Returns the lease for a write at the time `now`, or `None` if a new one must be granted, with the time to live
    /// that [`lifetime`] returns.
    pub(super) fn reuse(&mut self, now: Duration, seconds: i64) -> Option<Id> {
        let newest = self.newest.as_mut()?;
        let lives_long_enough = now.saturating_add(duration(seconds)) < newest.end;
        let lives_too_long = now.saturating_add(duration(lifetime(seconds))) < newest.end;
        if !lives_long_enough || lives_too_long || newest.writes >= WRITES_MAX {
            return None;
        }
        newest.writes += 1;
        Some(newest.id)
    }

    /// Keeps a lease that was granted at the time `now` for later writes.
    pub(super) fn keep(&mut self, id: Id, now: Duration, seconds: i64) {
        let end = now.saturating_add(duration(lifetime(seconds)));
        self.newest = Some(Newest { id, end, writes: 1 });
    }

    /// Forgets a lease that does not exist: somebody has revoked it.
    pub(super) fn forget(&mut self, id: Id) {
        self.newest = self.newest.filter(|newest| newest.id != id);
    }
}

/// Returns the time to live of a lease, in seconds, for keys with a time to live.
pub(super) fn lifetime(seconds: i64) -> i64 {
    let reserve = (seconds / RESERVE_DIVISOR).min(RESERVE_SECONDS_MAX);
    (seconds.saturating_add(reserve)).min(LEASE_TTL_MAX_SECONDS.max(seconds))
}

/// Returns whether the leases for a time to live are shared. Those for less than 20 seconds are not.
pub(super) fn is_shared(seconds: i64) -> bool {
    lifetime(seconds) > seconds
}

fn duration(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600;

    /// Returns how many leases writes at these times need.
    fn granted(times: impl IntoIterator<Item = u64>, seconds: i64) -> i64 {
        let (mut lease, mut count) = (SharedLease::default(), 0);
        for time in times {
            let now = Duration::from_secs(time);
            if lease.reuse(now, seconds).is_none() {
                count += 1;
                lease.keep(count, now, seconds);
            }
        }
        count
    }

    #[test]
    fn writes_of_one_time_share_leases() {
        assert_eq!(granted(vec![0; 1000], HOUR), 1);
        assert_eq!(granted(vec![0; 1001], HOUR), 2);
        assert_eq!(granted(vec![0; 100_000], HOUR), 100);
        assert_eq!(granted(vec![0; 3], 19), 3);
    }

    #[test]
    fn a_lease_is_reused_while_it_lives_long_enough() {
        assert_eq!(granted([0, 59], HOUR), 1);
        assert_eq!(granted([0, 60], HOUR), 2);
        assert_eq!(granted([0, 4], 100), 1);
        assert_eq!(granted([0, 5], 100), 2);
    }

    #[test]
    fn a_lease_that_lives_too_long_is_not_used() {
        let mut lease = SharedLease::default();
        lease.keep(7, Duration::ZERO, HOUR);
        assert_eq!(lease.reuse(Duration::ZERO, 100), None);
        assert_eq!(lease.reuse(Duration::ZERO, HOUR), Some(7));
        lease.forget(8);
        assert_eq!(lease.reuse(Duration::ZERO, HOUR), Some(7));
        lease.forget(7);
        assert_eq!(lease.reuse(Duration::ZERO, HOUR), None);
    }
}
