//! The watermark: the revision up to which all resources of a cache have all changes (WC-107).

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use revstore_engine::Revision;

use crate::wake::Waiter;
use crate::wake::timer_queue::{TimedWork, TimerQueue};

/// The watermark: the revision up to which every resource of the cache has all changes, and the
/// requests that wait for a later one.
///
/// It corresponds to the field `resourceVersion` of Kubernetes' `watchCache`, which has one per
/// resource, and waiting for it to `waitUntilFreshAndBlock`.
#[derive(Debug)]
pub(crate) struct Watermark {
    revision: AtomicI64,
    /// The waiting requests, by revision and id of the waiter. The lock is held for one lookup or
    /// change; no task is woken under it.
    waiting: Mutex<BTreeMap<(Revision, u64), Arc<Waiter>>>,
}

impl Watermark {
    pub(crate) fn new() -> Self {
        Self {
            revision: AtomicI64::new(0),
            waiting: Mutex::new(BTreeMap::new()),
        }
    }

    pub(crate) fn load(&self) -> Revision {
        // Acquire: pairs with the Release in `publish`. With Relaxed a reader could learn a
        // revision and then read objects of its resource that are older than that revision (INV-1).
        Revision(self.revision.load(Ordering::Acquire))
    }

    /// Sets the watermark to 0, because the store was replaced and its revisions are unrelated to
    /// those of the previous store. Waiting requests continue to wait.
    pub(crate) fn reset(&self) {
        // Release: pairs with the Acquire in `load`, as in `publish`.
        self.revision.store(0, Ordering::Release);
    }

    /// Raises the watermark to `revision` and wakes the requests that wait for it. The caller has
    /// applied all changes up to it. A lower revision has no effect.
    pub(crate) fn publish(&self, revision: Revision) {
        // Release: pairs with the Acquire in `load`.
        self.revision.fetch_max(revision.0, Ordering::Release);
        let reached = {
            let mut waiting = self.waiting.lock();
            if waiting.is_empty() {
                return;
            }
            let later = waiting.split_off(&(revision, u64::MAX));
            std::mem::replace(&mut *waiting, later)
        };
        for waiter in reached.into_values() {
            waiter.waker.wake();
        }
    }

    /// Waits until the watermark has reached `revision`. Returns `false` if that takes longer than
    /// `limit` (WC-131). A wait calls `request_progress` at its start, and then once per
    /// [`PROGRESS_REQUEST_INTERVAL`].
    pub(crate) async fn wait_until_reached(
        &self,
        revision: Revision,
        limit: Duration,
        timers: &TimerQueue,
        request_progress: impl Fn(),
    ) -> bool {
        if self.load() >= revision {
            return true;
        }
        let deadline = timers.now().saturating_add(limit);
        let mut wait = WatermarkWait {
            watermark: self,
            revision,
            waiter: Arc::new(Waiter::new()),
            timers,
            armed: None,
        };
        poll_fn(|context| {
            // Registered before the watermark is read, so that a later `publish` wakes this task.
            wait.waiter.waker.register(context.waker());
            self.waiting
                .lock()
                .insert((revision, wait.waiter.id), wait.waiter.clone());
            if self.load() >= revision {
                return Poll::Ready(true);
            }
            let now = timers.now();
            if now >= deadline {
                return Poll::Ready(false);
            }
            if wait.armed.is_none_or(|due| now >= due) {
                request_progress();
                let due = deadline.min(now + PROGRESS_REQUEST_INTERVAL);
                timers.set(due, &wait.waiter, TimedWork::Kind("wait"));
                wait.armed = Some(due);
            }
            Poll::Pending
        })
        .await
    }
}

/// The interval at which a waiting request requests progress from the source. kube-apiserver's
/// progress requester has the same interval.
const PROGRESS_REQUEST_INTERVAL: Duration = Duration::from_millis(100);

/// A waiting request. It is removed from the watermark when its future is dropped.
struct WatermarkWait<'a> {
    watermark: &'a Watermark,
    revision: Revision,
    waiter: Arc<Waiter>,
    timers: &'a TimerQueue,
    armed: Option<Duration>,
}

impl Drop for WatermarkWait<'_> {
    fn drop(&mut self) {
        let entry = (self.revision, self.waiter.id);
        self.watermark.waiting.lock().remove(&entry);
        if let Some(due) = self.armed {
            self.timers.clear(due, &self.waiter);
        }
    }
}
