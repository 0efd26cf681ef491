//! Subscriptions of an informer: a queue of notifications per handler, merged per object.
//!
//! [`EventHandler`] corresponds to `ResourceEventHandler` of client-go, and the queue of a
//! [`Subscription`] to its `processorListener`.

use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_util::StreamExt as _;
use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use revstore_watch_cache::Object;

use crate::delta_queue::FinalState;

/// A change that an informer delivers to a subscription.
#[derive(Clone, Debug)]
pub enum Notification {
    /// The object is new to the subscription.
    Added {
        /// The object.
        object: Object,
        /// Whether the object already existed when the subscription was created, or is part of the
        /// informer's first state.
        initial: bool,
    },
    /// The object was changed, or is delivered again by a resync.
    Updated {
        /// The object in the last delivered notification.
        old: Object,
        /// The current object.
        new: Object,
    },
    /// The object was deleted, or no longer matches the selector.
    Deleted(FinalState),
}

impl Notification {
    fn key(&self) -> String {
        match self {
            Self::Added { object, .. } => object.store_key(),
            Self::Updated { new, .. } => new.store_key(),
            Self::Deleted(state) => state.object().store_key(),
        }
    }

    fn is_initial(&self) -> bool {
        matches!(self, Self::Added { initial: true, .. })
    }

    /// Merges two successive notifications of one object that are both not delivered yet.
    /// `delivered` is the object in the last delivered notification. Returns `None` if the object
    /// was created and deleted since.
    fn merge(self, next: Self, delivered: Option<&Object>) -> Option<Self> {
        Some(match (self, next) {
            (Self::Added { initial, .. }, Self::Updated { new, .. }) => Self::Added {
                object: new,
                initial,
            },
            (Self::Updated { old, .. }, Self::Updated { new, .. }) => Self::Updated { old, new },
            (Self::Added { .. }, Self::Deleted(_)) => return None,
            // WC-515: a deletion and a creation may appear as one update, in which the uid differs.
            (Self::Deleted(state), Self::Added { object, .. }) => Self::Updated {
                old: delivered.unwrap_or(state.object()).clone(),
                new: object,
            },
            (_, next) => next,
        })
    }
}

/// A handler of the notifications of a [`Subscription`]. The default methods do nothing.
///
/// ```
/// use std::sync::mpsc::{Sender, channel};
/// use revstore_reflector::{EventHandler, FinalState, InformerHandle};
/// use revstore_watch_cache::Object;
///
/// /// Sends the keys of changed objects to a reconcile loop.
/// struct ChangedKeys(Sender<String>);
///
/// impl EventHandler for ChangedKeys {
///     fn on_add(&mut self, object: &Object, _initial: bool) {
///         let _ = self.0.send(object.store_key());
///     }
///     fn on_update(&mut self, _old: &Object, new: &Object) {
///         let _ = self.0.send(new.store_key());
///     }
///     fn on_delete(&mut self, state: &FinalState) {
///         let _ = self.0.send(state.object().store_key());
///     }
/// }
///
/// fn reconcile(informer: &InformerHandle) {
///     let (sender, keys) = channel();
///     let subscription = informer.subscribe();
///     std::thread::spawn(move || pollster::block_on(subscription.run(ChangedKeys(sender))));
///     // The loop ends when the informer ends.
///     for key in keys {
///         let _ = informer.store().get(&key);
///     }
/// }
/// ```
pub trait EventHandler: Send {
    /// Called for a new object; `initial` as in [`Notification::Added`].
    fn on_add(&mut self, object: &Object, initial: bool) {
        let _ = (object, initial);
    }
    /// Called for a changed object.
    fn on_update(&mut self, old: &Object, new: &Object) {
        let _ = (old, new);
    }
    /// Called for a deleted object.
    fn on_delete(&mut self, state: &FinalState) {
        let _ = state;
    }
}

/// The queue between the informer and one subscription.
#[derive(Debug, Default)]
pub(crate) struct NotificationQueue {
    /// The pending notifications. The lock is held to add or to remove one; no task is woken under
    /// it.
    pending: Mutex<PendingNotifications>,
    waker: AtomicWaker,
}

/// Pending notifications, at most one per key, in the order in which their keys were queued.
#[derive(Debug, Default)]
struct PendingNotifications {
    /// The number of the next key that is queued.
    next_number: u64,
    by_number: BTreeMap<u64, PendingNotification>,
    /// The number of each key in the queue.
    numbers: HashMap<String, u64>,
    /// The number of initial objects that were not delivered yet; `None` before all of them are
    /// queued.
    initial_remaining: Option<usize>,
    /// The number of initial objects in the queue.
    initial_queued: usize,
    /// Whether the informer has ended.
    closed: bool,
}

#[derive(Debug)]
struct PendingNotification {
    notification: Notification,
    /// The object in the last delivered notification.
    delivered: Option<Object>,
}

impl PendingNotifications {
    /// Queues a notification of an object, or merges it with the pending notification of the same
    /// key. `previous` is the object before the change.
    fn push(&mut self, notification: Notification, previous: Option<Object>) {
        let key = notification.key();
        let pending = self.numbers.get(&key);
        let pending = pending.and_then(|number| self.by_number.remove(number));
        let merged = match pending {
            None => {
                self.initial_queued += usize::from(notification.is_initial());
                Some(PendingNotification {
                    notification,
                    delivered: previous,
                })
            }
            Some(PendingNotification {
                notification: pending,
                delivered,
            }) => {
                let was_initial = pending.is_initial();
                let merged = pending.merge(notification, delivered.as_ref());
                if was_initial && !merged.as_ref().is_some_and(Notification::is_initial) {
                    self.record_initial_removed();
                }
                merged.map(|notification| PendingNotification {
                    notification,
                    delivered,
                })
            }
        };
        match merged {
            Some(merged) => {
                // A key keeps its position, because the order of different objects is unspecified.
                let number = *self.numbers.entry(key).or_insert(self.next_number);
                self.next_number += u64::from(number == self.next_number);
                self.by_number.insert(number, merged);
            }
            None => {
                self.numbers.remove(&key);
            }
        }
    }

    /// Removes the notification of the key that was queued first.
    fn pop(&mut self) -> Option<Notification> {
        let (_, PendingNotification { notification, .. }) = self.by_number.pop_first()?;
        self.numbers.remove(&notification.key());
        if notification.is_initial() {
            self.record_initial_removed();
        }
        Some(notification)
    }

    /// Records that the notification of an initial object was removed from the queue.
    fn record_initial_removed(&mut self) {
        self.initial_queued = self.initial_queued.saturating_sub(1);
        if let Some(remaining) = &mut self.initial_remaining {
            *remaining = remaining.saturating_sub(1);
        }
    }
}

impl NotificationQueue {
    /// Queues a notification of an object. `previous` is the object before the change. The caller
    /// then calls [`NotificationQueue::wake`] after it has released its locks (I8).
    pub(crate) fn push(&self, notification: Notification, previous: Option<Object>) {
        self.pending.lock().push(notification, previous);
    }

    /// Wakes the task that reads the subscription.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    /// Records that all initial objects are queued.
    pub(crate) fn end_initial(&self) {
        let mut pending = self.pending.lock();
        if pending.initial_remaining.is_none() {
            pending.initial_remaining = Some(pending.initial_queued);
        }
    }

    /// Ends the subscription after the pending notifications.
    pub(crate) fn close(&self) {
        self.pending.lock().closed = true;
        self.waker.wake();
    }
}

/// A stream of the changes of an informer's store, created by
/// [`InformerHandle::subscribe`](crate::InformerHandle::subscribe).
///
/// - It begins with the existing objects, as initial additions.
/// - Notifications of one object are in order. The order of different objects is unspecified.
/// - Notifications that were not delivered yet are merged per object: an addition and an update
///   become an addition, two updates become one, an addition and a deletion cancel out, a deletion
///   and an addition become an update. The queue therefore contains at most one notification per
///   object.
/// - A panic of one handler ends the task of its subscription and affects no other subscription.
///
/// The subscription ends with the informer. Dropping it unsubscribes.
// WC-513 to WC-516.
#[derive(Debug)]
pub struct Subscription {
    pub(crate) queue: Arc<NotificationQueue>,
}

impl Subscription {
    /// Returns the number of notifications in the queue.
    pub fn len(&self) -> usize {
        self.queue.pending.lock().by_number.len()
    }

    /// Returns whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether all initial objects were delivered.
    // WC-514.
    pub fn has_synced(&self) -> bool {
        self.queue.pending.lock().initial_remaining == Some(0)
    }

    /// Returns the next notification, or `None` if the queue is empty.
    pub fn try_next(&mut self) -> Option<Notification> {
        self.queue.pending.lock().pop()
    }

    /// Returns the next notification. Blocks the thread until there is one; returns `None` if the
    /// informer has ended and the queue is empty.
    pub fn next_blocking(&mut self) -> Option<Notification> {
        pollster::block_on(self.next())
    }

    /// Calls `handler` for each notification until the informer ends. No lock is held during a call.
    pub async fn run(mut self, mut handler: impl EventHandler) {
        while let Some(notification) = self.next().await {
            match &notification {
                Notification::Added { object, initial } => handler.on_add(object, *initial),
                Notification::Updated { old, new } => handler.on_update(old, new),
                Notification::Deleted(state) => handler.on_delete(state),
            }
        }
    }
}

impl Stream for Subscription {
    type Item = Notification;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Notification>> {
        // Registered before the queue is read, so that a notification that is queued later wakes the
        // task.
        self.queue.waker.register(context.waker());
        let mut pending = self.queue.pending.lock();
        match pending.pop() {
            Some(notification) => Poll::Ready(Some(notification)),
            None if pending.closed => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}
