//! How far the cache is: one revision for all its resources (WC-107).

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use revstore_engine::Revision;

use crate::wake::subscriber::Signal;
use crate::wake::timer_queue::Timers;

/// The revision up to which every resource of the cache has all changes.
#[derive(Debug)]
pub(crate) struct Watermark {
    revision: AtomicI64,
    /// Who waits for which revision. Held for one look or change; nobody is woken under it.
    waiting: Mutex<BTreeMap<(Revision, u64), Arc<Signal>>>,
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
        // revision and then find a state of its resource from before it (INV-1).
        Revision(self.revision.load(Ordering::Acquire))
    }

    /// Moves back to the start, because the store was replaced by one whose revisions mean something
    /// else. Who waits for a revision waits on.
    pub(crate) fn reset(&self) {
        // Release: as in `publish`.
        self.revision.store(0, Ordering::Release);
    }

    /// Moves on to `revision`, after all resources have it, and wakes who waited for it. Never
    /// moves back.
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
        for signal in reached.into_values() {
            signal.waker.wake();
        }
    }

    /// Completes with `true` once the watermark is at `revision`, with `false` after `limit`
    /// (WC-131). While it waits, `nudge` is called at once and then every `NUDGE_INTERVAL`.
    pub(crate) async fn reached(
        &self,
        revision: Revision,
        limit: Duration,
        timers: &Timers,
        nudge: impl Fn(),
    ) -> bool {
        if self.load() >= revision {
            return true;
        }
        let deadline = timers.now().saturating_add(limit);
        let mut wait = Wait {
            watermark: self,
            revision,
            signal: Arc::new(Signal::new()),
            timers,
            armed: None,
        };
        poll_fn(|context| {
            // Registered before the look: what is published after the look wakes us.
            wait.signal.waker.register(context.waker());
            self.waiting
                .lock()
                .insert((revision, wait.signal.id), wait.signal.clone());
            if self.load() >= revision {
                return Poll::Ready(true);
            }
            let now = timers.now();
            if now >= deadline {
                return Poll::Ready(false);
            }
            if wait.armed.is_none_or(|due| now >= due) {
                nudge();
                let due = deadline.min(now + NUDGE_INTERVAL);
                timers.set(due, &wait.signal);
                wait.armed = Some(due);
            }
            Poll::Pending
        })
        .await
    }
}

/// How often a source is asked for progress while somebody waits, as kube-apiserver does.
const NUDGE_INTERVAL: Duration = Duration::from_millis(100);

/// An entry among those who wait, taken out when nobody waits any more.
struct Wait<'a> {
    watermark: &'a Watermark,
    revision: Revision,
    signal: Arc<Signal>,
    timers: &'a Timers,
    armed: Option<Duration>,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let entry = (self.revision, self.signal.id);
        self.watermark.waiting.lock().remove(&entry);
        if let Some(due) = self.armed {
            self.timers.clear(due, &self.signal);
        }
    }
}
