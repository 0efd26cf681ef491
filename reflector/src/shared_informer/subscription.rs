//! Subscriptions of an informer: a queue of notifications for each, in order or merged per object.
//!
//! The queue of a [`Subscription`] corresponds to `processorListener` of client-go.

use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_util::StreamExt as _;
use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use revstore_watch_cache::Object;

use super::delta_queue::FinalState;
use super::handler::{self, EventHandler};

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

    pub(crate) fn is_initial(&self) -> bool {
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

/// The number of pending notifications of a [`Subscription`] in order above which they are merged.
pub const PENDING_MAX: usize = 64 * 1024;

/// The notifications that a [`Subscription`] delivers, and their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delivery {
    /// Each change, in the order of the informer, so that the changes of all objects appear in the
    /// order of their revisions. Notifications of a new state after a relist are in the order of keys,
    /// with deletions last.
    ///
    /// A subscription that is read too slowly may miss intermediate states: when more than
    /// [`PENDING_MAX`] notifications are pending, those of each object are merged into its last one.
    /// What remains is still in order, but an object that changes all the time is delivered late.
    /// Later merges happen when the number of pending notifications has doubled, so the queue
    /// contains at most [`PENDING_MAX`] notifications, or two for each object that has one.
    #[default]
    InOrder,
    /// The newest state of each object. Pending notifications of one object are merged into the first
    /// one of them, so that the queue contains at most one notification for each object, and each is
    /// delivered after those that were pending before it. The order of different objects is
    /// unspecified: `a` at revision 4 may be delivered before `b` at revision 3. This suits a reader
    /// that reconciles objects one by one.
    Merged,
}

/// The queue between the informer and one subscription.
#[derive(Debug)]
pub(crate) struct NotificationQueue {
    /// The pending notifications. The lock is held to add a batch or to remove one notification; no
    /// task is woken under it.
    pending: Mutex<PendingNotifications>,
    waker: AtomicWaker,
}

/// Pending notifications, in the order of their numbers.
#[derive(Debug)]
struct PendingNotifications {
    delivery: Delivery,
    /// The number of the next notification.
    next_number: u64,
    by_number: BTreeMap<u64, PendingNotification>,
    /// The number of each key in the queue, if the delivery is [`Delivery::Merged`].
    numbers: HashMap<String, u64>,
    /// The number of pending notifications above which those of a subscription in order are merged.
    merge_above: usize,
    /// The number of notifications that were merged into another one because of `merge_above`.
    merged: u64,
    /// The number of initial objects that were not delivered yet; `None` before all of them are
    /// queued.
    initial_remaining: Option<usize>,
    /// The number of initial objects in the queue.
    initial_queued: usize,
    /// Whether an initial object counts as delivered only when that is confirmed.
    confirms_initial: bool,
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
    fn new(delivery: Delivery, merge_above: usize) -> Self {
        Self {
            delivery,
            next_number: 0,
            by_number: BTreeMap::new(),
            numbers: HashMap::new(),
            merge_above,
            merged: 0,
            initial_remaining: None,
            initial_queued: 0,
            confirms_initial: false,
            closed: false,
        }
    }

    /// Queues a notification of an object. `previous` is the object before the change.
    fn push(&mut self, notification: Notification, previous: Option<Object>) {
        let is_merged = self.delivery == Delivery::Merged;
        let key = is_merged.then(|| notification.key());
        let number = self.next_number;
        self.initial_queued += usize::from(notification.is_initial());
        let next = PendingNotification {
            notification,
            delivered: previous,
        };
        let known = key.as_ref().and_then(|key| self.numbers.get(key).copied());
        let pending = known.and_then(|number| Some((number, self.by_number.remove(&number)?)));
        let Some((number, pending)) = pending else {
            self.next_number += 1;
            self.by_number.insert(number, next);
            if let Some(key) = key {
                self.numbers.insert(key, number);
            }
            return;
        };
        // A key keeps its position, so that it is delivered even if it changes all the time.
        if let Some(merged) = self.merge(pending, next) {
            self.by_number.insert(number, merged);
        } else if let Some(key) = key {
            self.numbers.remove(&key);
        }
    }

    /// Merges the notifications of each object if there are too many.
    fn limit(&mut self) {
        if self.delivery == Delivery::Merged || self.by_number.len() <= self.merge_above {
            return;
        }
        let before = self.by_number.len();
        let mut last: HashMap<String, (u64, PendingNotification)> = HashMap::new();
        for (number, next) in std::mem::take(&mut self.by_number) {
            let key = next.notification.key();
            let merged = match last.remove(&key) {
                Some((_, pending)) => self.merge(pending, next),
                None => Some(next),
            };
            if let Some(merged) = merged {
                last.insert(key, (number, merged));
            }
        }
        self.by_number = last.into_values().collect();
        self.merged += (before - self.by_number.len()) as u64;
        self.merge_above = self.merge_above.max(2 * self.by_number.len());
    }

    /// Merges two pending notifications of an object. Returns `None` if the object was created and
    /// deleted since the last delivered one.
    fn merge(
        &mut self,
        pending: PendingNotification,
        next: PendingNotification,
    ) -> Option<PendingNotification> {
        let initials = [&pending, &next].map(|pending| pending.notification.is_initial());
        let PendingNotification {
            notification,
            delivered,
        } = pending;
        let merged = notification.merge(next.notification, delivered.as_ref());
        let remaining = usize::from(merged.as_ref().is_some_and(Notification::is_initial));
        for _ in remaining..initials.into_iter().map(usize::from).sum() {
            self.record_initial_removed();
        }
        merged.map(|notification| PendingNotification {
            notification,
            delivered,
        })
    }

    /// Removes the notification that was queued first.
    fn pop(&mut self) -> Option<Notification> {
        let (_, PendingNotification { notification, .. }) = self.by_number.pop_first()?;
        if self.delivery == Delivery::Merged {
            self.numbers.remove(&notification.key());
        }
        if notification.is_initial() && !self.confirms_initial {
            self.record_initial_removed();
        }
        if self.by_number.is_empty() {
            self.merge_above = self.merge_above.min(PENDING_MAX);
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
    pub(crate) fn new(delivery: Delivery) -> Self {
        Self {
            pending: Mutex::new(PendingNotifications::new(delivery, PENDING_MAX)),
            waker: AtomicWaker::new(),
        }
    }

    /// Queues notifications, each with the object before the change. The caller then calls
    /// [`NotificationQueue::wake`] after it has released its locks (I8).
    pub(crate) fn extend(&self, changes: impl IntoIterator<Item = (Notification, Option<Object>)>) {
        let mut pending = self.pending.lock();
        if pending.closed {
            return;
        }
        for (notification, previous) in changes {
            pending.push(notification, previous);
        }
        pending.limit();
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

    /// Makes an initial object count as delivered after
    /// [`confirm_initial`](Self::confirm_initial) only.
    pub(crate) fn expect_confirmations(&self) {
        self.pending.lock().confirms_initial = true;
    }

    /// Confirms the delivery of an initial object.
    pub(crate) fn confirm_initial(&self) {
        self.pending.lock().record_initial_removed();
    }

    /// Returns whether all initial objects were delivered.
    pub(crate) fn has_synced(&self) -> bool {
        self.pending.lock().initial_remaining == Some(0)
    }

    pub(crate) fn len(&self) -> usize {
        self.pending.lock().by_number.len()
    }

    pub(crate) fn merged(&self) -> u64 {
        self.pending.lock().merged
    }

    /// Removes the pending notifications, and ends the subscription.
    pub(crate) fn discard(&self) {
        let discarded = {
            let mut pending = self.pending.lock();
            pending.numbers.clear();
            pending.closed = true;
            std::mem::take(&mut pending.by_number)
        };
        // Freed after the lock is released.
        drop(discarded);
        self.waker.wake();
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
/// - Notifications are in order, or merged per object: see [`Delivery`], which also says what a slow
///   reader receives. A slow reader delays neither the informer nor another subscription.
/// - Notifications of one object are in order. Where several of them are merged, an addition and an
///   update become an addition, two updates become one, an addition and a deletion cancel out, a
///   deletion and an addition become an update.
/// - A panic of a handler in [`run`](Self::run) ends the task of its subscription and affects no other
///   one. A handler of [`InformerHandle::add_handler`](crate::InformerHandle::add_handler) survives it.
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
        self.queue.len()
    }

    /// Returns whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of notifications that were merged into another one because the subscription
    /// in order is read too slowly ([`PENDING_MAX`]). With [`Delivery::Merged`] it is 0.
    pub fn merged(&self) -> u64 {
        self.queue.merged()
    }

    /// Returns whether all initial objects were delivered.
    // WC-514.
    pub fn has_synced(&self) -> bool {
        self.queue.has_synced()
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
            handler::call(&mut handler, &notification);
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

#[cfg(test)]
mod tests {
    use revstore_watch_cache::{JsonKind, ObjectRef, Revision};

    use super::*;

    fn object(name: &str, revision: i64) -> Object {
        let kind = JsonKind::new("v1", "Pod");
        let name = ObjectRef::namespaced("ns", name);
        Object::from_parts(&name, Revision(revision), "{\"metadata\":{}}", &kind)
    }

    fn added(name: &str, revision: i64) -> (Notification, Option<Object>) {
        let object = object(name, revision);
        let initial = false;
        (Notification::Added { object, initial }, None)
    }

    fn updated(name: &str, from: i64, to: i64) -> (Notification, Option<Object>) {
        let (old, new) = (object(name, from), object(name, to));
        (
            Notification::Updated {
                old: old.clone(),
                new,
            },
            Some(old),
        )
    }

    fn deleted(name: &str, from: i64, at: i64) -> (Notification, Option<Object>) {
        let state = FinalState::Known(object(name, at));
        (Notification::Deleted(state), Some(object(name, from)))
    }

    fn queue(
        delivery: Delivery,
        limit: usize,
        changes: impl IntoIterator<Item = (Notification, Option<Object>)>,
    ) -> Subscription {
        let queue = NotificationQueue::new(delivery);
        queue.pending.lock().merge_above = limit;
        queue.extend(changes);
        Subscription {
            queue: Arc::new(queue),
        }
    }

    fn drain(mut subscription: Subscription) -> Vec<String> {
        let describe = |notification| match notification {
            Notification::Added { object, .. } => {
                format!("{}@{}", object.name(), object.revision())
            }
            Notification::Updated { old, new } => {
                format!("{}@{} from {}", new.name(), new.revision(), old.revision())
            }
            Notification::Deleted(state) => {
                format!(
                    "{} deleted@{}",
                    state.object().name(),
                    state.object().revision()
                )
            }
        };
        std::iter::from_fn(|| subscription.try_next())
            .map(describe)
            .collect()
    }

    // Shows WC-511.
    #[test]
    fn wc_511_changes_of_different_objects_are_in_order_unless_they_are_merged() {
        let changes = || {
            [
                added("a", 2),
                added("b", 3),
                updated("a", 2, 4),
                updated("b", 3, 5),
            ]
        };
        assert_eq!(
            drain(queue(Delivery::InOrder, 9, changes())),
            ["a@2", "b@3", "a@4 from 2", "b@5 from 3"]
        );
        assert_eq!(drain(queue(Delivery::Merged, 9, changes())), ["a@4", "b@5"]);
    }

    // Shows WC-515.
    #[test]
    fn wc_515_a_slow_reader_misses_intermediate_states_and_keeps_the_order() {
        let subscription = queue(
            Delivery::InOrder,
            4,
            [
                updated("a", 1, 5),
                updated("b", 2, 6),
                added("short", 7),
                updated("a", 5, 8),
                deleted("short", 7, 9),
                deleted("c", 3, 10),
            ],
        );
        assert_eq!((subscription.len(), subscription.merged()), (3, 3));
        assert_eq!(
            drain(subscription),
            ["b@6 from 2", "a@8 from 1", "c deleted@10"]
        );
    }

    #[test]
    fn notifications_of_many_objects_are_merged_again_only_when_they_have_doubled() {
        let subscription = queue(
            Delivery::InOrder,
            4,
            (0..100).map(|n| added(&n.to_string(), n)),
        );
        let limit = || subscription.queue.pending.lock().merge_above;
        assert_eq!((subscription.len(), limit()), (100, 200));
        let update = |round: i64| (0..100).map(move |n| updated(&n.to_string(), n, n + round));
        for round in 1..50 {
            subscription.queue.extend(update(round));
            assert!(subscription.len() <= 200);
        }
        assert!(subscription.merged() > 4_000);
        assert!(limit() <= 200);
    }
}
