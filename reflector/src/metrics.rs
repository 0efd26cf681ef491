//! Metrics of a reflector and of work queues, under the names of client-go's metrics.

use std::time::Duration;

use prometheus::core::Metric as _;
use prometheus::{Histogram, HistogramOpts, IntCounter, IntGauge};

// WC-703 lists the metrics.

/// The upper bounds of the duration buckets, in seconds: 5 ms to 10 minutes.
const DURATION_BOUNDS: [f64; 12] = [
    0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 600.0,
];
/// The upper bounds of the buckets for the number of items of a list.
const ITEM_BOUNDS: [f64; 10] = [
    1.0, 10.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 5_000.0, 10_000.0, 100_000.0,
];

/// A snapshot of the metrics of a reflector. The fields are read one after the other, not atomically.
///
/// The documentation of a field names the metric of client-go to which it corresponds. The length of
/// a subscription's queue is [`Subscription::len`](crate::Subscription::len), and the size of the
/// store is [`ObjectStore::len`](crate::ObjectStore::len).
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ReflectorMetrics {
    /// `reflector_lists_total`: number of started initial states, by a list or by a watch-list.
    pub lists: u64,
    /// `reflector_list_duration_seconds`: time from the start of an initial state to its end.
    pub list_seconds: HistogramSnapshot,
    /// `reflector_items_per_list`: number of objects per initial state.
    pub items_per_list: HistogramSnapshot,
    /// `reflector_watches_total`: number of started watches.
    pub watches: u64,
    /// `reflector_short_watches_total`: number of watches that ended within 1 s without an event.
    pub short_watches: u64,
    /// `reflector_watch_duration_seconds`: duration of the watches that have ended.
    pub watch_seconds: HistogramSnapshot,
    /// `reflector_last_resource_version`: all changes up to this revision were delivered; 0 before
    /// the first initial state.
    pub last_revision: u64,
    /// The number of failed requests and watches.
    pub failures: u64,
    /// The number of reports that the initial events of a watch-list have not ended yet
    /// ([`ReflectorEvent::BookmarkOverdue`](crate::ReflectorEvent::BookmarkOverdue)).
    pub bookmarks_overdue: u64,
}

/// A snapshot of a histogram: the number of observed values, their sum, and their distribution.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct HistogramSnapshot {
    /// The number of observed values.
    pub count: u64,
    /// The sum of the observed values.
    pub sum: f64,
    /// The upper bound of each bucket, ascending, with the number of values at or below it.
    pub buckets: Vec<(f64, u64)>,
}

impl HistogramSnapshot {
    pub(crate) fn of(histogram: &Histogram) -> Self {
        let metric = histogram.metric();
        let data = metric.get_histogram();
        let bucket =
            |bucket: &prometheus::proto::Bucket| (bucket.upper_bound(), bucket.cumulative_count());
        Self {
            count: data.get_sample_count(),
            sum: data.get_sample_sum(),
            buckets: data.get_bucket().iter().map(bucket).collect(),
        }
    }
}

/// The metrics that a reflector updates.
///
/// prometheus updates them with Relaxed atomics. That is sufficient, because no other data depends
/// on them.
#[derive(Debug)]
pub(crate) struct ReflectorCounters {
    pub(crate) lists: IntCounter,
    pub(crate) list_seconds: Histogram,
    pub(crate) items_per_list: Histogram,
    pub(crate) watches: IntCounter,
    pub(crate) short_watches: IntCounter,
    pub(crate) watch_seconds: Histogram,
    pub(crate) last_revision: IntGauge,
    pub(crate) failures: IntCounter,
    pub(crate) bookmarks_overdue: IntCounter,
}

impl ReflectorCounters {
    /// Creates the metrics, all zero.
    pub(crate) fn new() -> Self {
        Self {
            lists: counter("reflector_lists_total"),
            list_seconds: histogram("reflector_list_duration_seconds", &DURATION_BOUNDS),
            items_per_list: histogram("reflector_items_per_list", &ITEM_BOUNDS),
            watches: counter("reflector_watches_total"),
            short_watches: counter("reflector_short_watches_total"),
            watch_seconds: histogram("reflector_watch_duration_seconds", &DURATION_BOUNDS),
            last_revision: gauge("reflector_last_resource_version"),
            failures: counter("reflector_failures_total"),
            bookmarks_overdue: counter("reflector_bookmarks_overdue_total"),
        }
    }

    /// Reads all metrics.
    pub(crate) fn read(&self) -> ReflectorMetrics {
        ReflectorMetrics {
            lists: self.lists.get(),
            list_seconds: HistogramSnapshot::of(&self.list_seconds),
            items_per_list: HistogramSnapshot::of(&self.items_per_list),
            watches: self.watches.get(),
            short_watches: self.short_watches.get(),
            watch_seconds: HistogramSnapshot::of(&self.watch_seconds),
            last_revision: u64::try_from(self.last_revision.get()).unwrap_or_default(),
            failures: self.failures.get(),
            bookmarks_overdue: self.bookmarks_overdue.get(),
        }
    }
}

// The metrics are not registered, so the name is also used as the help text.

pub(crate) fn counter(name: &str) -> IntCounter {
    IntCounter::new(name, name).expect("the name is valid")
}

fn gauge(name: &str) -> IntGauge {
    IntGauge::new(name, name).expect("the name is valid")
}

pub(crate) fn histogram(name: &str, bounds: &[f64]) -> Histogram {
    let options = HistogramOpts::new(name, name).buckets(bounds.to_vec());
    Histogram::with_opts(options).expect("the name is valid and the bounds ascend")
}

/// Records the time between `started` and `now`.
pub(crate) fn observe_since(histogram: &Histogram, started: Duration, now: Duration) {
    histogram.observe(now.saturating_sub(started).as_secs_f64());
}
