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
pub struct CoarseInstant(Duration);

impl CoarseInstant {
    /// Returns the current time.
    #[inline]
    pub fn now() -> Self {
        Self(coarse_clock())
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
        self.0.saturating_sub(earlier.0)
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
#[inline]
fn exceeds(took: Duration, limit: Duration) -> bool {
    took > limit || limit <= LIMIT_MIN
}

#[cfg(target_os = "linux")]
#[inline]
fn coarse_clock() -> Duration {
    use nix::time::{ClockId, clock_gettime};
    // The clock exists on every Linux.
    clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE).map_or(Duration::ZERO, Duration::from)
}

#[cfg(not(target_os = "linux"))]
fn coarse_clock() -> Duration {
    use std::sync::LazyLock;
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
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
        Self {
            apply,
            unary,
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
    pub(crate) fn stats(self, stats: impl FnOnce() -> RequestStats) -> Option<RequestStats> {
        self.has_stats.then(stats)
    }
}
