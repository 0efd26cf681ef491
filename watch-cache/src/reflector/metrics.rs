//! What a reflector counts (WC-703).

use std::sync::atomic::{AtomicI64, Ordering};

use revstore_engine::Revision;

use crate::histogram::{Buckets, Histogram, ITEMS, SPANS_US};
use crate::metrics::Counter;

/// The numbers of a reflector, read one after the other. The documentation of each names the metric
/// that it is served as (WC-703); times are in microseconds where the metric has seconds. The length
/// of a handler's queue is [`Subscription::len`](crate::Subscription::len), the size of the store
/// [`Store::len`](crate::Store::len).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReflectorMetrics {
    /// `reflector_lists_total`: first states begun, by list or by watch.
    pub lists: u64,
    /// `reflector_list_duration_seconds`: until a first state was complete.
    pub list_us: Histogram,
    /// `reflector_items_per_list`.
    pub items_per_list: Histogram,
    /// `reflector_watches_total`.
    pub watches: u64,
    /// `reflector_short_watches_total`: watches that ended at once, and empty (WC-505).
    pub short_watches: u64,
    /// `reflector_watch_duration_seconds`, of watches that are over.
    pub watch_us: Histogram,
    /// `reflector_last_resource_version`: everything up to here was told; 0 at first.
    pub last_revision: u64,
    /// Requests and watches that failed.
    pub failures: u64,
    /// Times that the initial events of a watch-list were late (WC-502).
    pub late_initial_events: u64,
}

#[derive(Debug)]
pub(super) struct Counters {
    pub(super) lists: Counter,
    pub(super) list_us: Buckets,
    pub(super) items_per_list: Buckets,
    pub(super) watches: Counter,
    pub(super) short_watches: Counter,
    pub(super) watch_us: Buckets,
    pub(super) failures: Counter,
    pub(super) late_initial_events: Counter,
    last_revision: AtomicI64,
}

impl Counters {
    pub(super) fn new() -> Self {
        Self {
            lists: Counter::default(),
            list_us: Buckets::new(SPANS_US),
            items_per_list: Buckets::new(ITEMS),
            watches: Counter::default(),
            short_watches: Counter::default(),
            watch_us: Buckets::new(SPANS_US),
            failures: Counter::default(),
            late_initial_events: Counter::default(),
            last_revision: AtomicI64::new(0),
        }
    }

    pub(super) fn set_last_revision(&self, revision: Revision) {
        // Relaxed: a number that nothing else depends on.
        self.last_revision.store(revision.0, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> ReflectorMetrics {
        let last_revision = self.last_revision.load(Ordering::Relaxed);
        ReflectorMetrics {
            lists: self.lists.get(),
            list_us: self.list_us.read(),
            items_per_list: self.items_per_list.read(),
            watches: self.watches.get(),
            short_watches: self.short_watches.get(),
            watch_us: self.watch_us.read(),
            last_revision: u64::try_from(last_revision).unwrap_or_default(),
            failures: self.failures.get(),
            late_initial_events: self.late_initial_events.get(),
        }
    }
}
