//! The times of requests: slow ones are logged, as in etcd.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tracing::{Level, enabled, warn};

use crate::status::EtcdError;

/// A time with a resolution of a few milliseconds. To read it costs a few nanoseconds, a fifth of
/// [`Instant`](std::time::Instant).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CoarseInstant {
    nanos: u64,
}

impl CoarseInstant {
    /// Returns the current time.
    #[inline]
    pub fn now() -> Self {
        Self {
            nanos: coarse_clock(),
        }
    }

    /// Returns the time since then.
    #[inline]
    pub fn elapsed(self) -> Duration {
        Self::now().since(self)
    }

    /// Returns the time since then if it exceeds `limit`. A limit of at most a microsecond is always exceeded.
    #[inline]
    pub fn elapsed_above(self, limit: Duration) -> Option<Duration> {
        let elapsed = self.elapsed();
        exceeds(elapsed, limit).then_some(elapsed)
    }

    fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos.saturating_sub(earlier.nanos))
    }
}

/// The beginnings of a call and of its execution, which may wait for a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    call: CoarseInstant,
    start: CoarseInstant,
    /// The exact time of `start`, if executions are observed.
    exact_start: Option<Instant>,
}

impl Times {
    /// The execution of a call that has waited begins.
    pub(crate) fn start(self) -> Self {
        Self {
            start: CoarseInstant::now(),
            exact_start: self.exact_start.map(|_| Instant::now()),
            ..self
        }
    }
}

/// A kind of executions whose times are observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ApplyOp {
    /// A put.
    Put,
    /// A deletion.
    DeleteRange,
    /// A transaction that may write.
    Txn,
    /// A compaction, without the removal of history.
    Compaction,
    /// A lease is granted.
    LeaseGrant,
    /// A lease is revoked.
    LeaseRevoke,
}

impl ApplyOp {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::Put,
        Self::DeleteRange,
        Self::Txn,
        Self::Compaction,
        Self::LeaseGrant,
        Self::LeaseRevoke,
    ];

    /// Returns the name of the kind in etcd's metric.
    // HT-10
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Put => "Put",
            Self::DeleteRange => "DeleteRange",
            Self::Txn => "Txn",
            Self::Compaction => "Compaction",
            Self::LeaseGrant => "LeaseGrant",
            Self::LeaseRevoke => "LeaseRevoke",
        }
    }
}

/// Receives the times of executions.
pub trait ApplyObserver: fmt::Debug + Send + Sync {
    /// An execution has taken `took`, and has succeeded or failed. Called by the thread that executes.
    fn observe(&self, op: ApplyOp, succeeded: bool, took: Duration);
}

/// Every request takes longer than this limit.
const LIMIT_MIN: Duration = Duration::from_micros(1);

/// Returns whether a coarse time exceeds a limit.
fn exceeds(took: Duration, limit: Duration) -> bool {
    took > limit || limit <= LIMIT_MIN
}

/// Returns a time in nanoseconds.
#[cfg(target_os = "linux")]
#[inline]
fn coarse_clock() -> u64 {
    use nix::time::{ClockId, clock_gettime};
    // The clock exists on every Linux. It is never negative.
    clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE).map_or(0, |time| {
        (time.tv_sec() * 1_000_000_000 + time.tv_nsec()).cast_unsigned()
    })
}

#[cfg(not(target_os = "linux"))]
fn coarse_clock() -> u64 {
    use std::sync::LazyLock;
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(START.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// What the log says about a request that took long, an extension of its response. Counts and sizes are those of
/// etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestStats {
    /// The number of operations of a put or a transaction.
    pub request_count: i64,
    /// The size of the request.
    pub request_bytes: usize,
    /// The number of keys that a range has found or a deletion has deleted.
    pub response_count: i64,
    /// The size of the response.
    pub response_bytes: usize,
    /// The request, with the sizes of values instead of the values.
    pub content: String,
}

/// The default of [`SlowRequests::apply`].
pub(crate) const APPLY: Duration = Duration::from_millis(100);

/// The default of [`SlowRequests::unary`].
pub(crate) const UNARY: Duration = Duration::from_millis(300);

/// The times from which on requests are logged.
#[derive(Debug)]
pub(crate) struct SlowRequests {
    /// The time of an execution from which on it is logged.
    pub(crate) apply: Duration,
    /// The time of a call from which on it has [`RequestStats`].
    pub(crate) unary: Duration,
    /// A call that has ended within this time exceeds neither limit; 0 if each call exceeds one.
    quick_nanos: u64,
    count: AtomicU64,
    observer: Option<Arc<dyn ApplyObserver>>,
}

/// An execution of a request that is logged.
pub(crate) struct Applied<'a> {
    /// The kind of read, empty for a write.
    pub(crate) prefix: &'static str,
    pub(crate) request: &'a str,
    pub(crate) response: &'a str,
    pub(crate) error: Option<EtcdError>,
}

/// What is to be logged about a request that has been executed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notes {
    took: Duration,
    is_slow: bool,
    has_stats: bool,
}

impl SlowRequests {
    pub(crate) fn new(
        apply: Duration,
        unary: Duration,
        observer: Option<Arc<dyn ApplyObserver>>,
    ) -> Self {
        let shorter = apply.min(unary);
        let is_exceeded = exceeds(Duration::ZERO, shorter);
        let nanos = u64::try_from(shorter.as_nanos()).unwrap_or(u64::MAX);
        Self {
            apply,
            unary,
            quick_nanos: if is_exceeded { 0 } else { nanos },
            count: AtomicU64::new(0),
            observer,
        }
    }

    /// A call begins, and is executed at once.
    #[inline]
    pub(crate) fn times(&self) -> Times {
        let call = CoarseInstant::now();
        Times {
            call,
            start: call,
            exact_start: self.observer.as_ref().map(|_| Instant::now()),
        }
    }

    /// Reports an execution to the observer, if there is one.
    #[inline]
    pub(crate) fn observe(&self, op: ApplyOp, times: Times, succeeded: bool) {
        if let (Some(observer), Some(start)) = (&self.observer, times.exact_start) {
            observer.observe(op, succeeded, start.elapsed());
        }
    }

    /// Returns what is to be logged about a request that was executed; `None` for most requests.
    #[inline]
    pub(crate) fn notes(&self, times: Times, has_failed: bool) -> Option<Notes> {
        let now = CoarseInstant::now();
        let nanos = now.nanos.saturating_sub(times.call.nanos);
        // An execution is a part of its call.
        if nanos < self.quick_nanos && !has_failed && !enabled!(Level::DEBUG) {
            return None;
        }
        self.notes_at(now, times, has_failed)
    }

    #[cold]
    fn notes_at(&self, now: CoarseInstant, times: Times, has_failed: bool) -> Option<Notes> {
        let took = now.since(times.start);
        let notes = Notes {
            took,
            is_slow: exceeds(took, self.apply),
            has_stats: exceeds(now.since(times.call), self.unary) || enabled!(Level::DEBUG),
        };
        (notes.is_slow || notes.has_stats || has_failed).then_some(notes)
    }

    /// Returns the number of slow executions.
    pub(crate) fn count(&self) -> u64 {
        // Relaxed: the count orders nothing.
        self.count.load(Relaxed)
    }

    /// Logs an execution if it was slow or has failed.
    #[cold]
    pub(crate) fn log(&self, notes: Notes, applied: &Applied<'_>) {
        let Notes { took, is_slow, .. } = notes;
        let Applied {
            prefix,
            request,
            response,
            error,
        } = *applied;
        let error = error.map(EtcdError::text);
        if is_slow {
            // Relaxed: as above.
            self.count.fetch_add(1, Relaxed);
            warn!(
                ?took,
                "expected-duration" = ?self.apply,
                prefix,
                request,
                response,
                error,
                "apply request took too long"
            );
        }
        // As in etcd, only the failure of a write is logged.
        if error.is_some() && prefix.is_empty() {
            warn!(?took, request, response, error, "failed to apply request");
        }
    }
}

impl Notes {
    /// Returns `stats` if the call has any.
    pub(crate) fn stats(self, stats: impl FnOnce() -> RequestStats) -> Option<Box<RequestStats>> {
        self.has_stats.then(|| Box::new(stats()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_that_exceed_a_limit_or_fail_have_notes() {
        const HOUR: Duration = Duration::from_secs(3_600);
        let check = |apply, unary, expected: Option<(bool, bool)>| {
            let slow = SlowRequests::new(apply, unary, None);
            let notes = slow.notes(slow.times(), false);
            let notes = notes.map(|notes| (notes.is_slow, notes.has_stats));
            assert_eq!(notes, expected, "limits {apply:?} and {unary:?}");
            assert!(slow.notes(slow.times(), true).is_some());
        };
        check(HOUR, HOUR, None);
        check(Duration::MAX, Duration::MAX, None);
        check(LIMIT_MIN, HOUR, Some((true, false)));
        check(HOUR, Duration::ZERO, Some((false, true)));
        check(LIMIT_MIN, LIMIT_MIN, Some((true, true)));
    }

    #[test]
    fn the_execution_of_a_call_begins_when_a_worker_starts_it() {
        let slow = SlowRequests::new(Duration::from_secs(1), Duration::from_secs(1), None);
        let now = CoarseInstant::now();
        let times = Times {
            call: CoarseInstant {
                nanos: now.nanos - 2_000_000_000,
            },
            ..slow.times()
        };
        let notes = slow.notes(times, false).unwrap();
        assert_eq!((notes.is_slow, notes.has_stats), (false, true));
    }
}
