//! Metrics of a resource, named after those of kube-apiserver where it has them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus::core::Metric as _;
use prometheus::{Histogram, HistogramOpts};

/// Bucket bounds for waits until a revision is cached: 5 ms to 3 s, the default maximum.
const WAIT_SECONDS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0,
];
/// Bucket bounds for the stages of the delivery of an event: 0.1 ms to 5 s.
const STAGE_SECONDS: &[f64] = &[
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0,
];
/// Bucket bounds for loads and lists: 5 ms to 10 minutes.
const LOAD_SECONDS: &[f64] = &[
    0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 600.0,
];
/// Bucket bounds for the sizes of encoded events: 1 KiB to 8 MiB.
const EVENT_BYTES: &[f64] = &[
    1_024.0,
    2_048.0,
    4_096.0,
    8_192.0,
    16_384.0,
    32_768.0,
    65_536.0,
    131_072.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    8_388_608.0,
];

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

impl HistogramSnapshot {
    /// Reads the current values of `histogram`.
    fn of(histogram: &Histogram) -> Self {
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

/// Observes the time between `began` and `now` in seconds.
pub(crate) fn observe_since(histogram: &Histogram, began: Duration, now: Duration) {
    histogram.observe(now.saturating_sub(began).as_secs_f64());
}

/// Creates a histogram that belongs to no registry.
fn histogram(name: &str, bounds: &[f64]) -> Histogram {
    let options = HistogramOpts::new(name, name).buckets(bounds.to_vec());
    Histogram::with_opts(options).expect("the names and bounds in this file are valid")
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
                    $($name: histogram(stringify!($name), $bounds),)*
                }
            }
        }

        /// A snapshot of the metrics of one resource. The fields are read one after the other, not
        /// atomically.
        ///
        /// The documentation of a field names the metric of kube-apiserver that it corresponds to;
        /// fields that name none have no counterpart.
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
                    $($name: HistogramSnapshot::of(&self.$name),)*
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
        /// Wake-ups of watchers, summed over events.
        watchers_woken,
        /// Events that a woken watcher examined and that did not match its filter.
        events_filtered_out,
        /// `apiserver_watch_events_total`: events delivered to watchers, without bookmarks.
        events_sent,
        /// Bookmarks delivered to watchers.
        bookmarks_sent,
        /// `apiserver_init_events_total`: current objects delivered as `ADDED` at the start of a watch.
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
        /// The same with `fallback="true"`: consistent lists answered by the source, because the cache
        /// did not reach the revision in time.
        consistent_read_fallbacks,
        /// `apiserver_cache_list_total`: lists received while the cache was ready.
        lists,
        /// `apiserver_cache_list_total{index}`: lists answered from an index.
        lists_by_index,
        /// Lists answered by the source, because the cache was not ready or its window did not contain
        /// the revision.
        lists_from_source,
        /// `apiserver_cache_list_fetched_objects_total`: objects examined for lists.
        list_objects_fetched,
        /// `apiserver_cache_list_returned_objects_total`: objects returned by lists.
        list_objects_returned,
        /// Errors 410 of watches whose events had been evicted from the window.
        expired_window,
        /// Errors 410 of lists below the compacted revision.
        expired_compaction,
        /// Errors 410 of watches at a future revision that was not reached in time.
        expired_future,
        /// Errors 410 of watches whose store was replaced.
        expired_replaced,
        /// Detected replacements of the store.
        replacements,
        /// `apiserver_storage_consistency_checks_total{status="success"}`: checks without a difference.
        consistency_checks_passed,
        /// `apiserver_storage_consistency_checks_total{status="failure"}`: checks that found a
        /// difference.
        consistency_checks_failed,
        /// `apiserver_storage_consistency_checks_total{status="error"}`: checks that could not read the
        /// source.
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
        read_wait_seconds: WAIT_SECONDS,
        /// `apiserver_watch_cache_initialization_duration_seconds`: duration of loads.
        initialization_seconds: LOAD_SECONDS,
        /// `apiserver_watch_events_dispatch_duration_seconds{stage="storage_to_cache"}`: time from the
        /// arrival of a batch from the source until it is applied.
        storage_to_cache_seconds: STAGE_SECONDS,
        /// The same with `stage="cache_to_watcher"`: time from then until a watcher copies the event.
        /// Observed once per copied chunk, for its oldest event.
        cache_to_watcher_seconds: STAGE_SECONDS,
        /// The same with `stage="total"`: time from the arrival until a watcher copies the event.
        arrival_to_watcher_seconds: STAGE_SECONDS,
        /// `apiserver_watch_events_sizes`: sizes of encoded events in bytes.
        event_bytes: EVENT_BYTES,
        /// `apiserver_watch_list_duration_seconds`: time until all initial objects of a watch are
        /// delivered.
        watch_list_seconds: LOAD_SECONDS,
    }
    gauges {
        /// `apiserver_watch_cache_resource_version`: the revision up to which the resource is complete.
        resource_version,
        /// `watch_cache_capacity`: number of events that fit into the window without a reallocation.
        window_capacity,
        /// Number of events in the window.
        window_events,
        /// Size of the window in bytes, with encoded events.
        window_bytes,
        /// The oldest revision whose events a new watch can still get.
        oldest_watchable,
        /// Age of the oldest event in the window, in milliseconds.
        oldest_event_age_ms,
        /// `apiserver_longrunning_requests{verb="WATCH"}`: number of open watches.
        watchers,
        /// Number of events that the slowest watcher lags behind.
        cursor_lag_max,
        /// 99th percentile of the number of events that watchers lag behind.
        cursor_lag_p99,
        /// `apiserver_resource_objects`: number of objects.
        objects,
        /// `apiserver_resource_size_estimate_bytes`: size of the keys and values of the objects.
        object_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_at_its_bound_and_above() {
        let histogram = histogram("test", &[10.0, 20.0]);
        for value in [0, 10, 11, 20, 21, 1000] {
            histogram.observe(value.into());
        }
        let read = HistogramSnapshot::of(&histogram);
        assert_eq!(read.buckets[..2], [(10.0, 2), (20.0, 4)]);
        assert_eq!((read.count, read.sum), (6, 1062.0));
    }
}
