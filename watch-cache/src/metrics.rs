//! What a resource's cache counts (section H).

use std::sync::atomic::{AtomicU64, Ordering};

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
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
        }

        /// The numbers of one resource, read one after the other. The documentation of each names
        /// the metric that it is served as.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Metrics {
            $($(#[$doc])* pub $name: u64,)*
            /// `apiserver_watch_cache_resource_version`.
            pub resource_version: u64,
            /// `watch_cache_capacity`: events in the window.
            pub window_events: u64,
            /// Bytes in the window, encoded events included.
            pub window_bytes: u64,
            /// The oldest revision that a watch may start after.
            pub oldest_watchable: u64,
            /// The age of the oldest event in milliseconds.
            pub oldest_event_age_ms: u64,
            /// `apiserver_longrunning_requests{verb="WATCH"}`: open watches.
            pub watchers: u64,
            /// `apiserver_resource_objects`.
            pub objects: u64,
        }

        impl Counters {
            pub(crate) fn read(&self) -> Metrics {
                Metrics { $($name: self.$name.get(),)* ..Metrics::default() }
            }
        }
    };
}

counters! {
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
    /// `apiserver_cache_list_total`.
    lists,
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
    /// `apiserver_storage_consistency_checks_total{status="success"}`.
    consistency_checks_passed,
    /// `apiserver_storage_consistency_checks_total{status="failure"}`.
    consistency_checks_failed,
}
