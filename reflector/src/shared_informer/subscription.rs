//! Subscriptions of an informer: a queue of notifications for each, in order or merged per object.
//!
//! The queue of a [`Subscription`] corresponds to `processorListener` of client-go.

use std::collections::{BTreeMap, HashMap, VecDeque};
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
use super::object_key::ObjectKey;

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
    /// Returns the object after the change, or the last one before a deletion.
    fn object(&self) -> &Object {
        match self {
            Self::Added { object, .. } => object,
            Self::Updated { new, .. } => new,
            Self::Deleted(state) => state.object(),
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

/// The maximum number of notifications for which an empty queue keeps its memory.
const KEPT_CAPACITY_MAX: usize = 4 * 1024;

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

/// Pending notifications, in the order in which they are delivered.
#[derive(Debug)]
struct PendingNotifications {
    queued: Queued,
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

/// The notifications of a queue, by its [`Delivery`].
#[derive(Debug)]
enum Queued {
    InOrder(VecDeque<PendingNotification>),
    Merged {
        /// The number of the next notification.
        next_number: u64,
        by_number: BTreeMap<u64, PendingNotification>,
        /// The number of each key in the queue.
        numbers: HashMap<String, u64>,
    },
}

#[derive(Debug)]
struct PendingNotification {
    notification: Notification,
    /// The object in the last delivered notification.
    delivered: Option<Object>,
}

impl PendingNotification {
    /// Merges the next notification of the same object into this one. Returns `None` if the object was
    /// created and deleted since the last delivered one.
    fn merge(self, next: Self) -> Option<Self> {
        let delivered = self.delivered;
        let merged = self
            .notification
            .merge(next.notification, delivered.as_ref());
        merged.map(|notification| Self {
            notification,
            delivered,
        })
    }

    fn is_initial(&self) -> bool {
        self.notification.is_initial()
    }
}

impl Queued {
    fn new(delivery: Delivery) -> Self {
        match delivery {
            Delivery::InOrder => Self::InOrder(VecDeque::new()),
            Delivery::Merged => Self::Merged {
                next_number: 0,
                by_number: BTreeMap::new(),
                numbers: HashMap::new(),
            },
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::InOrder(queue) => queue.len(),
            Self::Merged { by_number, .. } => by_number.len(),
        }
    }

    /// Queues a notification. Returns the number of initial objects that were merged into another one.
    fn push(&mut self, next: PendingNotification) -> usize {
        let (next_number, by_number, numbers) = match self {
            Self::InOrder(queue) => {
                queue.push_back(next);
                return 0;
            }
            Self::Merged {
                next_number,
                by_number,
                numbers,
            } => (next_number, by_number, numbers),
        };
        let key = next.notification.object().store_key();
        let known = numbers.get(&key).copied();
        let pending = known.and_then(|number| Some((number, by_number.remove(&number)?)));
        let Some((number, pending)) = pending else {
            numbers.insert(key, *next_number);
            by_number.insert(*next_number, next);
            *next_number += 1;
            return 0;
        };
        let initial = count_initial([&pending, &next]);
        // A key keeps its position, so that it is delivered even if it changes all the time.
        let merged = pending.merge(next);
        let removed = initial - count_initial(&merged);
        match merged {
            Some(merged) => drop(by_number.insert(number, merged)),
            None => drop(numbers.remove(&key)),
        }
        removed
    }

    /// Removes the notification that was queued first.
    fn pop(&mut self) -> Option<Notification> {
        match self {
            Self::InOrder(queue) => {
                let PendingNotification { notification, .. } = queue.pop_front()?;
                if queue.is_empty() && queue.capacity() > KEPT_CAPACITY_MAX {
                    *queue = VecDeque::new();
                }
                Some(notification)
            }
            Self::Merged {
                by_number, numbers, ..
            } => {
                let (_, PendingNotification { notification, .. }) = by_number.pop_first()?;
                numbers.remove(notification.object().store_key_str());
                Some(notification)
            }
        }
    }
}

fn count_initial<'a>(pending: impl IntoIterator<Item = &'a PendingNotification>) -> usize {
    let pending = pending.into_iter();
    pending.filter(|pending| pending.is_initial()).count()
}

/// Merges the notifications of each object into its last one. Returns the number of initial objects that
/// were merged into another one.
fn merge_all(queue: &mut VecDeque<PendingNotification>) -> usize {
    let initial = count_initial(&*queue);
    let mut merged: Vec<Option<PendingNotification>> = Vec::with_capacity(queue.len());
    let mut last = HashMap::with_capacity(queue.len());
    for next in queue.drain(..) {
        let key = ObjectKey::of(next.notification.object());
        let known = last.insert(key, merged.len());
        let pending = known.and_then(|position: usize| merged[position].take());
        merged.push(match pending {
            Some(pending) => pending.merge(next),
            None => Some(next),
        });
    }
    queue.extend(merged.into_iter().flatten());
    initial - count_initial(&*queue)
}

impl PendingNotifications {
    fn new(delivery: Delivery, merge_above: usize) -> Self {
        Self {
            queued: Queued::new(delivery),
            merge_above,
            merged: 0,
            initial_remaining: None,
            initial_queued: 0,
            confirms_initial: false,
            closed: false,
        }
    }

    /// Queues notifications of different objects, each with the object before the change.
    fn extend(&mut self, changes: impl IntoIterator<Item = (Notification, Option<Object>)>) {
        let was_empty = self.queued.len() == 0;
        for (notification, delivered) in changes {
            self.initial_queued += usize::from(notification.is_initial());
            let removed = self.queued.push(PendingNotification {
                notification,
                delivered,
            });
            self.record_initial_removed(removed);
        }
        let Queued::InOrder(queue) = &mut self.queued else {
            return;
        };
        if queue.len() <= self.merge_above {
            return;
        }
        // Changes of different objects cannot be merged with each other.
        if !was_empty {
            let before = queue.len();
            let removed = merge_all(queue);
            self.merged += (before - queue.len()) as u64;
            self.merge_above = self.merge_above.max(2 * queue.len());
            self.record_initial_removed(removed);
            return;
        }
        self.merge_above = self.merge_above.max(2 * queue.len());
    }

    /// Removes the notification that was queued first.
    fn pop(&mut self) -> Option<Notification> {
        let notification = self.queued.pop()?;
        if notification.is_initial() && !self.confirms_initial {
            self.record_initial_removed(1);
        }
        if self.queued.len() == 0 {
            self.merge_above = self.merge_above.min(PENDING_MAX);
        }
        Some(notification)
    }

    /// Records that the notifications of initial objects were removed from the queue.
    fn record_initial_removed(&mut self, count: usize) {
        self.initial_queued = self.initial_queued.saturating_sub(count);
        if let Some(remaining) = &mut self.initial_remaining {
            *remaining = remaining.saturating_sub(count);
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

    /// Queues notifications of different objects, each with the object before the change. The caller
    /// then calls
    /// [`NotificationQueue::wake`] after it has released its locks (I8).
    pub(crate) fn extend(&self, changes: impl IntoIterator<Item = (Notification, Option<Object>)>) {
        let mut pending = self.pending.lock();
        if pending.closed {
            return;
        }
        pending.extend(changes);
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
        self.pending.lock().record_initial_removed(1);
    }

    /// Returns whether all initial objects were delivered.
    pub(crate) fn has_synced(&self) -> bool {
        self.pending.lock().initial_remaining == Some(0)
    }

    pub(crate) fn len(&self) -> usize {
        self.pending.lock().queued.len()
    }

    pub(crate) fn merged(&self) -> u64 {
        self.pending.lock().merged
    }

    /// Removes the pending notifications, and ends the subscription.
    pub(crate) fn discard(&self) {
        let discarded = {
            let mut pending = self.pending.lock();
            pending.closed = true;
            std::mem::replace(&mut pending.queued, Queued::new(Delivery::InOrder))
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
        // In two batches: the changes of one batch are of different objects.
        let mut changes = changes.into_iter();
        queue.extend(changes.next());
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
