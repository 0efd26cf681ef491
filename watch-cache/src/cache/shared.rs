//! The state and the settings that all resources of one cache share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use revstore_engine::{Clock, Revision};

use crate::api::status::RequestError;
use crate::cache::contents::ContentsRemains;
use crate::cache::watermark::Watermark;
use crate::encode::sharing::KeptEncodings;
use crate::source::{Source, SourceError};
use crate::wake::Waiter;
use crate::wake::timer_queue::TimerQueue;

/// The source, clock, watermark and flags of one cache, shared by the feeder and all resources.
#[derive(Debug)]
pub(crate) struct CacheShared {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) timers: Arc<TimerQueue>,
    pub(crate) watermark: Watermark,
    pub(crate) settings: CacheSettings,
    pub(crate) kept: KeptEncodings,
    stopped: AtomicBool,
    /// The feeder's task. Only the waker is used.
    pub(crate) feeder: Waiter,
    /// What is left of the contents of removed resources, which the feeder frees in steps. The lock is
    /// held for one look or change.
    removed: Mutex<Vec<ContentsRemains>>,
    /// Set when a resource must be loaded. The feeder clears it before it loads.
    load_requested: AtomicBool,
    /// A revision that was not compacted at a time of the clock. The lock is held for one look or
    /// change.
    readable: Mutex<Option<(Revision, Duration)>>,
    /// Set when a request has detected that the revision of the source is below the watermark.
    regressed: AtomicBool,
}

/// The settings of a cache; [`WatchCacheBuilder`](crate::cache::WatchCacheBuilder) documents them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheSettings {
    pub(crate) freshness_wait: Duration,
    pub(crate) bookmark_period: Duration,
    pub(crate) future_rv_grace: Option<Duration>,
    pub(crate) honor_limit_at_rv0: bool,
    pub(crate) consistency_interval: Option<Duration>,
    pub(crate) compaction_interval: Duration,
}

impl Default for CacheSettings {
    fn default() -> Self {
        Self {
            freshness_wait: Duration::from_secs(3),
            bookmark_period: Duration::from_secs(60),
            future_rv_grace: None,
            honor_limit_at_rv0: false,
            consistency_interval: Some(Duration::from_secs(300)),
            compaction_interval: Duration::from_secs(15),
        }
    }
}

impl CacheShared {
    pub(crate) fn new(
        source: Arc<dyn Source>,
        clock: Arc<dyn Clock>,
        settings: CacheSettings,
    ) -> Self {
        Self {
            source,
            timers: TimerQueue::new(clock),
            watermark: Watermark::new(),
            settings,
            kept: KeptEncodings::default(),
            stopped: AtomicBool::new(false),
            feeder: Waiter::new(),
            load_requested: AtomicBool::new(false),
            regressed: AtomicBool::new(false),
            readable: Mutex::new(None),
            removed: Mutex::default(),
        }
    }

    /// Returns whether the source can be read at `revision`, as far as the cache knows: the revision
    /// is not in the future, and the source has reported that it is not compacted, or was asked about
    /// this or an earlier revision within the configured interval (WC-110, WC-133).
    pub(crate) fn is_readable(&self, revision: Revision) -> bool {
        if revision > self.watermark.load() {
            return false;
        }
        if let Some(oldest) = self.source.oldest_revision() {
            return revision >= oldest;
        }
        let interval = self.settings.compaction_interval;
        let readable = *self.readable.lock();
        readable.is_some_and(|(known, asked)| {
            revision >= known && self.timers.now() < asked.saturating_add(interval)
        })
    }

    /// Records that the source could be read at `revision` at the time `asked`, before the request.
    pub(crate) fn set_readable(&self, revision: Revision, asked: Duration) {
        *self.readable.lock() = Some((revision, asked));
    }

    /// Forgets which revision could be read, because the store was replaced.
    pub(crate) fn reset_readable(&self) {
        *self.readable.lock() = None;
    }

    /// Requests that the feeder load every resource that is not ready.
    pub(crate) fn request_load(&self) {
        // Release: pairs with the Acquire in `take_load_request`. With Relaxed the feeder could read
        // the request and miss the new resource.
        self.load_requested.store(true, Ordering::Release);
        self.feeder.waker.wake();
    }

    /// Lets the feeder free the contents of a removed resource, and end its load.
    pub(crate) fn free(&self, remains: ContentsRemains) {
        self.kept.clear();
        if self.is_stopped() {
            // There is no feeder any more.
            drop(remains);
            return;
        }
        self.removed.lock().push(remains);
        self.request_load();
    }

    /// Takes what is left of the contents of removed resources.
    pub(crate) fn take_removed(&self) -> Vec<ContentsRemains> {
        std::mem::take(&mut *self.removed.lock())
    }

    /// Clears the request, and returns whether there was one.
    pub(crate) fn take_load_request(&self) -> bool {
        // Acquire: pairs with the Release in `request_load`.
        self.load_requested.swap(false, Ordering::Acquire)
    }

    /// Clears the flag, and returns whether it was set.
    pub(crate) fn take_regressed(&self) -> bool {
        // Relaxed: the flag carries no data; the feeder reads the revision of the source itself.
        self.regressed.swap(false, Ordering::Relaxed)
    }

    /// Returns the newest revision of the source, for which a consistent read waits (WC-132).
    ///
    /// If that revision is below the watermark, the store was replaced, and the cached objects are
    /// not its state. The feeder is notified, and the request fails with [`RequestError::NotReady`].
    pub(crate) async fn current_revision(&self) -> Result<Revision, RequestError> {
        // Loaded before the source is read: if a replacement is detected during the read, the
        // watermark moves back, and the comparison would not see it.
        let known = self.watermark.load();
        let found = self.source.current_revision().await;
        let found = found.map_err(|error| RequestError::Internal(error.to_string()))?;
        if found >= known {
            return Ok(found);
        }
        self.regressed.store(true, Ordering::Relaxed);
        self.feeder.waker.wake();
        Err(RequestError::NotReady {
            cause: Some(SourceError::Replaced { known, found }.to_string()),
            retry_after_seconds: 1,
        })
    }

    pub(crate) fn is_stopped(&self) -> bool {
        // Acquire: pairs with the Release in `stop`. With Relaxed a watcher could end before it
        // delivers events that were applied before the stop.
        self.stopped.load(Ordering::Acquire)
    }

    pub(crate) fn stop(&self) {
        // Release: pairs with the Acquire in `is_stopped`.
        self.stopped.store(true, Ordering::Release);
        self.feeder.waker.wake();
    }
}
