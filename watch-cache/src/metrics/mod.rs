//! Metrics of a resource, named after those of kube-apiserver where it has them, and the collector that
//! gives those of all resources to a registry of Prometheus.

mod collector;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use self::collector::MetricsCollector;

/// The maximum number of buckets of a histogram.
const BUCKETS_MAX: usize = 12;

/// The bucket bounds in microseconds for waits until a revision is cached: 5 ms to 3 s, which is the
/// default of [`freshness_wait`](crate::cache::WatchCacheBuilder::freshness_wait).
const WAIT_US: Bounds = Bounds::microseconds(&[
    5_000, 25_000, 50_000, 100_000, 200_000, 400_000, 600_000, 800_000, 1_000_000, 1_500_000,
    2_000_000, 3_000_000,
]);
/// The bucket bounds in microseconds for the stages of the delivery of an event: 0.1 ms to 5 s.
const STAGE_US: Bounds = Bounds::microseconds(&[
    100, 250, 500, 1_000, 5_000, 10_000, 50_000, 100_000, 500_000, 1_000_000, 2_500_000, 5_000_000,
]);
/// The bucket bounds in microseconds for loads and lists: 5 ms to 10 minutes.
const LOAD_US: Bounds = Bounds::microseconds(&[
    5_000,
    25_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    600_000_000,
]);
/// The bucket bounds in bytes for the sizes of encoded events: 1 KiB to 8 MiB.
const EVENT_BYTES: Bounds = Bounds {
    values: &[
        1 << 10,
        1 << 11,
        1 << 12,
        1 << 13,
        1 << 14,
        1 << 15,
        1 << 16,
        1 << 17,
        1 << 18,
        1 << 20,
        1 << 22,
        1 << 23,
    ],
    per_unit: 1.0,
};

/// A snapshot of a histogram: the number of observed values, their sum and their distribution.
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

/// The upper bounds of the buckets of a histogram.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    values: &'static [u64],
    /// The number that corresponds to 1 in the snapshot: 1,000,000 for microseconds, because
    /// snapshots are in seconds.
    per_unit: f64,
}

impl Bounds {
    const fn microseconds(values: &'static [u64]) -> Self {
        Self {
            values,
            per_unit: 1_000_000.0,
        }
    }
}

/// A histogram that is updated without a lock.
///
/// `prometheus::Histogram` is not used, because each delivery of an event to a watcher observes three
/// values, and takes 200 ns in total: an observation takes 21 ns here, and 44 ns in
/// `prometheus::Histogram`, which adds up floating-point numbers in a compare-and-swap loop.
#[derive(Debug)]
pub(crate) struct Histogram {
    bounds: Bounds,
    counts: [AtomicU64; BUCKETS_MAX + 1],
    sum: AtomicU64,
}

impl Histogram {
    fn new(bounds: Bounds) -> Self {
        debug_assert!(
            bounds.values.len() <= BUCKETS_MAX,
            "a histogram has at most BUCKETS_MAX bounds"
        );
        Self {
            bounds,
            counts: Default::default(),
            sum: AtomicU64::new(0),
        }
    }

    // Relaxed, in all functions: no other data depends on these numbers.

    pub(crate) fn observe(&self, value: u64) {
        let bounds = self.bounds.values;
        let bucket = bounds.partition_point(|bound| *bound < value);
        let bucket = if bucket == bounds.len() {
            BUCKETS_MAX
        } else {
            bucket
        };
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Observes the microseconds between `began` and `now`.
    pub(crate) fn observe_since(&self, began: Duration, now: Duration) {
        let micros = now.saturating_sub(began).as_micros();
        self.observe(u64::try_from(micros).unwrap_or(u64::MAX));
    }

    #[expect(clippy::cast_precision_loss, reason = "f64 is exact below 2^53")]
    fn read(&self) -> HistogramSnapshot {
        let Bounds { values, per_unit } = self.bounds;
        let mut count = 0;
        let buckets = values.iter().zip(&self.counts).map(|(bound, values)| {
            count += values.load(Ordering::Relaxed);
            (*bound as f64 / per_unit, count)
        });
        let buckets = buckets.collect();
        HistogramSnapshot {
            count: count + self.counts[BUCKETS_MAX].load(Ordering::Relaxed),
            sum: self.sum.load(Ordering::Relaxed) as f64 / per_unit,
            buckets,
        }
    }
}

/// A monotonic counter.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    // Relaxed, in both functions: no other data depends on the sum.

    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    (
        sums { $($(#[$sum_doc:meta])* $sum:ident,)* }
        histograms { $($(#[$doc:meta])* $name:ident: $bounds:expr,)* }
        gauges { $($(#[$gauge_doc:meta])* $gauge:ident,)* }
    ) => {
        /// The counters and histograms of a resource that the cache updates.
        #[derive(Debug)]
        pub(crate) struct ResourceCounters {
            $(pub(crate) $sum: Counter,)*
            $(pub(crate) $name: Histogram,)*
        }

        impl Default for ResourceCounters {
            fn default() -> Self {
                Self {
                    $($sum: Counter::default(),)*
                    $($name: Histogram::new($bounds),)*
                }
            }
        }

        /// A snapshot of the metrics of one resource. The fields are read one after the other, not
        /// atomically.
        ///
        /// The documentation of a field names the metric of kube-apiserver that it corresponds to;
        /// the other fields have no counterpart.
        // WC-701, WC-702.
        #[derive(Clone, Debug, Default, PartialEq)]
        #[non_exhaustive]
        pub struct ResourceMetrics {
            $($(#[$sum_doc])* pub $sum: u64,)*
            $($(#[$doc])* pub $name: HistogramSnapshot,)*
            $($(#[$gauge_doc])* pub $gauge: u64,)*
        }

        impl ResourceCounters {
            /// Reads the counters and histograms. The gauges are left at 0.
            pub(crate) fn read(&self) -> ResourceMetrics {
                ResourceMetrics {
                    $($sum: self.$sum.get(),)*
                    $($name: self.$name.read(),)*
                    ..ResourceMetrics::default()
                }
            }
        }
    };
}

counters! {
    sums {
        /// `apiserver_watch_cache_events_received_total`: changes received from the source.
        events_received,
        /// `apiserver_watch_cache_events_dispatched_total`: events for which a watcher was woken.
        events_dispatched,
        /// The sum over all events of the watchers that were looked at to find those to wake.
        watchers_examined,
        /// The sum over all events of the watchers that the event has woken.
        watchers_woken,
        /// Events that a woken watcher examined and that did not match its filter.
        events_filtered_out,
        /// `apiserver_watch_events_total`: events delivered to watchers, without bookmarks.
        events_sent,
        /// Bookmarks delivered to watchers.
        bookmarks_sent,
        /// `apiserver_init_events_total`: current objects delivered as `ADDED` at the start of a
        /// watch.
        init_events,
        /// Events encoded. A shared encoding counts once.
        events_encoded,
        /// `apiserver_terminated_watchers_total`: watchers that ended because the window no longer
        /// contained their next event.
        terminated_watchers,
        /// `apiserver_watch_cache_initializations_total`: completed loads.
        initializations,
        /// `apiserver_watch_cache_initialization_errors_total`: failed loads.
        initialization_errors,
        /// `apiserver_watch_cache_consistent_read_total{success="true",fallback="false"}`: consistent
        /// lists answered from the cache.
        consistent_reads,
        /// The same with `fallback="true"`: consistent lists answered by the source, because the
        /// cache did not reach the revision in time.
        consistent_read_fallbacks,
        /// `apiserver_cache_list_total`: lists received while the cache was ready.
        lists,
        /// `apiserver_cache_list_total{index}`: lists answered from an index.
        lists_by_index,
        /// Lists answered by the source, because the cache was not ready or its window did not
        /// contain the revision.
        lists_from_source,
        /// `apiserver_cache_list_fetched_objects_total`: objects examined for lists.
        list_objects_fetched,
        /// `apiserver_cache_list_returned_objects_total`: objects returned by lists.
        list_objects_returned,
        /// Errors 410 of watches because the window does not contain their next events.
        expired_window,
        /// Errors 410 of lists because their revision is below the compacted revision.
        expired_compaction,
        /// Errors 410 of watches because their start revision was not reached in time.
        expired_future,
        /// Errors 410 of watches because the store was replaced.
        expired_replaced,
        /// Detected replacements of the store.
        replacements,
        /// `apiserver_storage_consistency_checks_total{status="success"}`: checks without a
        /// difference.
        consistency_checks_passed,
        /// `apiserver_storage_consistency_checks_total{status="failure"}`: checks that found a
        /// difference.
        consistency_checks_failed,
        /// `apiserver_storage_consistency_checks_total{status="error"}`: checks that could not read
        /// the source.
        consistency_checks_aborted,
        /// Bytes of objects and events encoded for clients.
        bytes_written,
        /// `watch_cache_capacity_increase_total`.
        capacity_increases,
        /// `watch_cache_capacity_decrease_total`.
        capacity_decreases,
    }
    histograms {
        /// `apiserver_watch_cache_read_wait_seconds`: time that requests waited for a revision.
        read_wait_seconds: WAIT_US,
        /// `apiserver_watch_cache_initialization_duration_seconds`: duration of loads.
        initialization_seconds: LOAD_US,
        /// `apiserver_watch_events_dispatch_duration_seconds{stage="storage_to_cache"}`: time from
        /// the arrival of a batch from the source until it is applied.
        storage_to_cache_seconds: STAGE_US,
        /// The same with `stage="cache_to_watcher"`: time from the application of an event until a
        /// watcher copies it. Observed once per copied chunk, for its oldest event.
        cache_to_watcher_seconds: STAGE_US,
        /// The same with `stage="total"`: time from the arrival until a watcher copies the event.
        arrival_to_watcher_seconds: STAGE_US,
        /// `apiserver_watch_events_sizes`: sizes of encoded events in bytes.
        event_bytes: EVENT_BYTES,
        /// `apiserver_watch_list_duration_seconds`: time until all initial objects of a watch are
        /// delivered.
        watch_list_seconds: LOAD_US,
    }
    gauges {
        /// `apiserver_watch_cache_resource_version`: the revision up to which the resource is
        /// complete.
        resource_version,
        /// `watch_cache_capacity`: number of events that the window can contain without a
        /// reallocation.
        window_capacity,
        /// Number of events in the window.
        window_events,
        /// Size of the window in bytes, with encoded events.
        window_bytes,
        /// The oldest revision of which a new watcher can still receive the events.
        oldest_watchable,
        /// Age of the oldest event in the window, in milliseconds.
        oldest_event_age_ms,
        /// Number of watchers. `apiserver_longrunning_requests{verb="WATCH"}` counts requests.
        watchers,
        /// Maximum over all watchers of the number of events by which the watcher lags.
        watcher_lag_max,
        /// 99th percentile over all watchers of the number of events by which the watcher lags.
        watcher_lag_p99,
        /// `apiserver_resource_objects`: number of objects.
        objects,
        /// Number of checkpoints, from which lists at older revisions are built.
        checkpoints,
        /// `apiserver_resource_size_estimate_bytes`: size of the keys and values of the objects.
        object_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_in_the_bucket_of_its_bound_and_in_all_above() {
        let bounds = Bounds {
            values: &[10, 20],
            per_unit: 1.0,
        };
        let histogram = Histogram::new(bounds);
        for value in [0, 10, 11, 20, 21, 1000] {
            histogram.observe(value);
        }
        let read = histogram.read();
        assert_eq!(read.buckets, [(10.0, 2), (20.0, 4)]);
        assert_eq!((read.count, read.sum), (6, 1062.0));
    }
}
