//! What programs hold of an informer: its handle, its thread, and the state that they share with it.

use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use revstore_watch_cache::Revision;
use revstore_watch_cache::clock::Clock;
use thiserror::Error;

use super::store::ObjectStore;
use super::subscription::{Delivery, Notification, NotificationQueue, Subscription};
use crate::metrics::{ReflectorCounters, ReflectorMetrics};
use crate::timer::Timer;

/// The part of an informer that its handles share.
pub(super) struct SharedInformer {
    pub(super) store: ObjectStore,
    /// The subscriptions. The lock is held while one change is stored and queued for all of them, so
    /// that a new subscription receives each change exactly once: with the existing objects or as a
    /// notification. No user code runs under it, and no task is woken.
    pub(super) subscriptions: Mutex<Subscriptions>,
    pub(super) synced: AtomicBool,
    pub(super) stopped: AtomicBool,
    /// Wakes the task that runs the informer.
    pub(super) runner: AtomicWaker,
    pub(super) counters: Arc<ReflectorCounters>,
    pub(super) clock: Arc<dyn Clock>,
}

#[derive(Default)]
pub(super) struct Subscriptions {
    /// Whether the informer has ended. A new subscription then ends after the objects of the store.
    pub(super) ended: bool,
    pub(super) queues: Vec<Weak<NotificationQueue>>,
    /// The tasks that wait in [`InformerHandle::synced`] and [`InformerHandle::reached`].
    pub(super) waiters: Vec<Waiter>,
}

impl Subscriptions {
    /// Removes the queues of dropped subscriptions, and returns the others.
    pub(super) fn open_queues(&mut self) -> Vec<Arc<NotificationQueue>> {
        self.queues.retain(|queue| queue.strong_count() > 0);
        self.queues.iter().filter_map(Weak::upgrade).collect()
    }

    /// Removes the tasks that wait for a revision up to `revision`, and returns them.
    pub(super) fn waiters_until(&mut self, revision: Option<Revision>) -> Vec<Waiter> {
        let is_reached = |waiter: &mut Waiter| waiter.revision.is_some_and(|r| Some(r) <= revision);
        self.waiters.extract_if(.., is_reached).collect()
    }

    /// Adds a waiting task, unless it is known. Removes those whose future was dropped.
    fn wait(&mut self, waker: &Arc<AtomicWaker>, revision: Option<Revision>) {
        self.waiters
            .retain(|waiter| Arc::strong_count(&waiter.waker) > 1);
        let is_known = |waiter: &Waiter| Arc::ptr_eq(&waiter.waker, waker);
        if !self.waiters.iter().any(is_known) {
            let waker = waker.clone();
            self.waiters.push(Waiter { waker, revision });
        }
    }
}

/// A task that waits for a state of the informer.
pub(super) struct Waiter {
    pub(super) waker: Arc<AtomicWaker>,
    /// The revision that it waits for; `None` if it waits for the first state.
    pub(super) revision: Option<Revision>,
}

/// A handle to an informer: reads its store, creates subscriptions and stops it. Clones are handles
/// to the same informer.
#[derive(Clone)]
pub struct InformerHandle {
    pub(super) shared: Arc<SharedInformer>,
}

impl fmt::Debug for InformerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerHandle")
            .field("store", &self.shared.store)
            .finish_non_exhaustive()
    }
}

impl InformerHandle {
    /// Returns the store.
    pub fn store(&self) -> &ObjectStore {
        &self.shared.store
    }

    /// Returns a snapshot of the reflector's metrics.
    pub fn metrics(&self) -> ReflectorMetrics {
        self.shared.counters.read()
    }

    /// Returns whether the first state is complete in the store and queued for all subscriptions.
    // WC-514.
    pub fn has_synced(&self) -> bool {
        // Acquire: pairs with the Release in `replace_state`.
        self.shared.synced.load(Ordering::Acquire)
    }

    /// Waits until [`has_synced`](Self::has_synced) is true. Returns `false` if the informer ends
    /// before that.
    pub async fn synced(&self) -> bool {
        let waker = Arc::new(AtomicWaker::new());
        poll_fn(|context| {
            waker.register(context.waker());
            let mut subscriptions = self.shared.subscriptions.lock();
            if self.has_synced() || subscriptions.ended {
                return Poll::Ready(self.has_synced());
            }
            subscriptions.wait(&waker, None);
            Poll::Pending
        })
        .await
    }

    /// Waits until the store contains the changes up to `revision`, for example the revision of an own
    /// write, so that reads of the store see it. Fails after `timeout`, if there is one. Dropping the
    /// future ends the wait.
    ///
    /// As [`ObjectStore::revision`] says, only one of several changes of that revision may be applied
    /// yet. With a selector, a revision that changed no matching object is reached with the next
    /// matching change or bookmark, for which a server may take a minute.
    ///
    /// # Errors
    /// [`NotReached`] if the time is over, or if the informer ends before.
    pub async fn reached(
        &self,
        revision: Revision,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<(), NotReached> {
        let clock = &self.shared.clock;
        let timer = timeout.into().map(|timeout| {
            let due = clock.now().saturating_add(timeout);
            (Timer::new(clock.clone()), due)
        });
        let waker = Arc::new(AtomicWaker::new());
        poll_fn(|context| {
            waker.register(context.waker());
            let is_ended = {
                let mut subscriptions = self.shared.subscriptions.lock();
                if self.store().revision() >= Some(revision) {
                    return Poll::Ready(Ok(()));
                }
                subscriptions.wait(&waker, Some(revision));
                subscriptions.ended
            };
            let found = self.store().revision();
            if is_ended {
                return Poll::Ready(Err(NotReached::Ended { found }));
            }
            match &timer {
                Some((timer, due)) => timer
                    .poll_until(*due, context)
                    .map(|()| Err(NotReached::Timeout { found })),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Creates a subscription to all changes, in order. It begins with the existing objects of the
    /// store. If the informer has ended, the subscription ends after them.
    // WC-516.
    pub fn subscribe(&self) -> Subscription {
        self.subscribe_with(Delivery::InOrder)
    }

    /// Creates a subscription as [`subscribe`](Self::subscribe) does, with another [`Delivery`].
    pub fn subscribe_with(&self, delivery: Delivery) -> Subscription {
        let queue = Arc::new(NotificationQueue::new(delivery));
        let mut subscriptions = self.shared.subscriptions.lock();
        let existing = self.shared.store.list().into_iter();
        queue.extend(existing.map(|object| {
            let initial = true;
            (Notification::Added { object, initial }, None)
        }));
        if self.has_synced() {
            queue.end_initial();
        }
        let ended = subscriptions.ended;
        if !ended {
            subscriptions.queues.push(Arc::downgrade(&queue));
        }
        drop(subscriptions);
        if ended {
            queue.close();
        }
        Subscription { queue }
    }

    /// Stops the informer. The store keeps its contents.
    pub fn stop(&self) {
        // Release: pairs with the Acquire in `Informer::next`.
        self.shared.stopped.store(true, Ordering::Release);
        self.shared.runner.wake();
    }
}

/// The error of [`InformerHandle::reached`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NotReached {
    /// The time is over.
    #[error("the revision was not reached in time: the store is at {}", shown(*.found))]
    Timeout {
        /// The revision of the store, or `None` before the first state.
        found: Option<Revision>,
    },
    /// The informer has ended.
    #[error("the informer has ended: the store is at {}", shown(*.found))]
    Ended {
        /// As in `Timeout`.
        found: Option<Revision>,
    },
}

fn shown(revision: Option<Revision>) -> String {
    revision.map_or_else(|| "no revision".into(), |revision| revision.to_string())
}

/// A handle on the thread of an informer, created by
/// [`Informer::spawn`](super::informer::Informer::spawn). Dropping it stops the informer and joins the
/// thread.
#[derive(Debug)]
#[must_use = "dropping it stops the informer"]
pub struct InformerThread {
    pub(super) handle: InformerHandle,
    pub(super) thread: Option<JoinHandle<()>>,
}

impl Drop for InformerThread {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            // If the informer has panicked, the panic hook has already reported it.
            let _ = thread.join();
        }
    }
}
