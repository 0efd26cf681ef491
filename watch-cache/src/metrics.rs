//! What a resource's cache counts (section H).

use std::sync::atomic::{AtomicU64, Ordering};

use crate::histogram::{Buckets, Histogram, SIZES, SPANS_US, STAGES_US, WAITS_US};

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    // Relaxed throughout: sums that nothing else depends on.

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
        #[derive(Debug)]
        pub(crate) struct Counters {
            $(pub(crate) $sum: Counter,)*
            $(pub(crate) $name: Buckets,)*
        }

        impl Default for Counters {
            fn default() -> Self {
                Self {
                    $($sum: Counter::default(),)*
                    $($name: Buckets::new($bounds),)*
                }
            }
        }

        /// The numbers of one resource, read one after the other. The documentation of each names
        /// the metric that it is served as (WC-701); what names none is ours (WC-702). Times are in
        /// microseconds where the metric has seconds.
        ///
        /// Snapshots of the objects are made when they are read and are not kept, so there is no
        /// number of them.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Metrics {
            $($(#[$sum_doc])* pub $sum: u64,)*
            $($(#[$doc])* pub $name: Histogram,)*
            $($(#[$gauge_doc])* pub $gauge: u64,)*
        }

        impl Counters {
            pub(crate) fn read(&self) -> Metrics {
                Metrics {
                    $($sum: self.$sum.get(),)*
                    $($name: self.$name.read(),)*
                    ..Metrics::default()
                }
            }
        }
    };
}

counters! {
    sums {
        /// `apiserver_watch_cache_events_received_total`.
        events_received,
        /// `apiserver_watch_cache_events_dispatched_total`: events that somebody was interested in.
        events_dispatched,
        /// Watchers woken, summed over events.
        watchers_woken,
        /// Events that a woken watcher looked at and did not want.
        events_filtered_out,
        /// `apiserver_watch_events_total`: events handed to watchers, bookmarks not counted.
        events_sent,
        /// Bookmarks handed to watchers.
        bookmarks_sent,
        /// `apiserver_init_events_total`: present objects sent as ADDED.
        init_events,
        /// Events encoded; what was shared is not counted again (WC-142).
        events_encoded,
        /// `apiserver_terminated_watchers_total`: watchers that fell out of the window.
        terminated_watchers,
        /// `apiserver_watch_cache_initializations_total`.
        initializations,
        /// `apiserver_watch_cache_initialization_errors_total`.
        initialization_errors,
        /// `apiserver_watch_cache_consistent_read_total{success="true",fallback="false"}` (WC-704).
        consistent_reads,
        /// The same with `fallback="true"`: the cache was stuck, the source answered (WC-233).
        consistent_read_fallbacks,
        /// `apiserver_cache_list_total`: lists that came while the cache was ready.
        lists,
        /// Those of them that an index answered: `{index}` of the same.
        lists_by_index,
        /// Lists that it left to its source: while it loads, and where its window does not reach.
        lists_from_source,
        /// `apiserver_cache_list_fetched_objects_total`.
        list_objects_fetched,
        /// `apiserver_cache_list_returned_objects_total`.
        list_objects_returned,
        /// Requests for a history that is gone: watches from before the window.
        expired_window,
        /// The same: lists below the compacted revision.
        expired_compaction,
        /// The same: watches from a future that did not come.
        expired_future,
        /// The same: watches of a store that was replaced.
        expired_replaced,
        /// How often the store turned out to be another one.
        replacements,
        /// `apiserver_storage_consistency_checks_total{status="success"}`.
        consistency_checks_passed,
        /// `apiserver_storage_consistency_checks_total{status="failure"}`.
        consistency_checks_failed,
        /// `apiserver_storage_consistency_checks_total{status="error"}`: the source could not be read.
        consistency_checks_aborted,
        /// Bytes of objects and events that were written for clients.
        bytes_written,
        /// `watch_cache_capacity_increase_total`.
        capacity_increases,
        /// `watch_cache_capacity_decrease_total`.
        capacity_decreases,
    }
    histograms {
        /// `apiserver_watch_cache_read_wait_seconds`: waits for a revision, one for each request.
        read_wait_us: WAITS_US,
        /// `apiserver_watch_cache_initialization_duration_seconds`.
        initialization_us: SPANS_US,
        /// `apiserver_watch_events_dispatch_duration_seconds{stage="storage_to_cache"}`: from the
        /// arrival of a batch of the source to its being applied.
        storage_to_cache_us: STAGES_US,
        /// The same with `stage="cache_to_watcher"`: until a watcher takes it; once for each time
        /// that a watcher takes events, for the oldest of them.
        cache_to_watcher_us: STAGES_US,
        /// The same with `stage="total"`: from the arrival until a watcher takes it.
        arrival_to_watcher_us: STAGES_US,
        /// `apiserver_watch_events_sizes`: bytes of events as clients get them.
        event_bytes: SIZES,
        /// `apiserver_watch_list_duration_seconds`: until the bookmark that ends the initial events.
        watch_list_us: SPANS_US,
    }
    gauges {
        /// `apiserver_watch_cache_resource_version`.
        resource_version,
        /// `watch_cache_capacity`: events that the window has room for without growing.
        window_capacity,
        /// Events in the window.
        window_events,
        /// Bytes in the window, encoded events included.
        window_bytes,
        /// The oldest revision that a watch may start at.
        oldest_watchable,
        /// The age of the oldest event in milliseconds.
        oldest_event_age_ms,
        /// `apiserver_longrunning_requests{verb="WATCH"}`: open watches.
        watchers,
        /// How many events the slowest watcher is behind.
        cursor_lag_max,
        /// How many events all watchers but one in a hundred are at most behind.
        cursor_lag_p99,
        /// `apiserver_resource_objects`.
        objects,
        /// `apiserver_resource_size_estimate_bytes`: keys and values of the objects.
        object_bytes,
    }
}
