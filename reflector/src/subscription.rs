//! One handler's queue of what happened (WC-513 to WC-516).

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

/// What a handler is told.
#[derive(Clone, Debug)]
pub enum Notification {
    /// There is an object.
    Added {
        /// It.
        object: Object,
        /// Whether it was there when the handler came, or the informer began.
        initial: bool,
    },
    /// An object changed, or is told again.
    Updated {
        /// As the handler knew it.
        old: Object,
        /// As it is.
        new: Object,
    },
    /// An object is gone.
    Deleted(FinalState),
}

impl Notification {
    fn key(&self) -> String {
        match self {
            Self::Added { object, .. } => object.store_key(),
            Self::Updated { new, .. } => new.store_key(),
            Self::Deleted(last) => last.object().store_key(),
        }
    }

    /// What `self` and then `later` come to, for a handler that heard neither and knows the object as
    /// `known`; nothing at all if it came and went.
    fn and_then(self, later: Self, known: Option<&Object>) -> Option<Self> {
        Some(match (self, later) {
            (Self::Added { initial, .. }, Self::Updated { new, .. }) => Self::Added {
                object: new,
                initial,
            },
            (Self::Updated { old, .. }, Self::Updated { new, .. }) => Self::Updated { old, new },
            (Self::Added { .. }, Self::Deleted(_)) => return None,
            // WC-515: deleted and created again may look like a change; the uid tells.
            (Self::Deleted(last), Self::Added { object, .. }) => Self::Updated {
                old: known.unwrap_or(last.object()).clone(),
                new: object,
            },
            (_, later) => later,
        })
    }
}

/// Takes what an informer tells. All methods do nothing unless written.
///
/// ```
/// use std::sync::mpsc::{Sender, channel};
/// use revstore_reflector::{EventHandler, FinalState, InformerHandle, Object};
///
/// /// Hands keys on to whoever reconciles.
/// struct Keys(Sender<String>);
///
/// impl EventHandler for Keys {
///     fn on_add(&mut self, object: &Object, _initial: bool) {
///         let _ = self.0.send(object.store_key());
///     }
///     fn on_update(&mut self, _old: &Object, new: &Object) {
///         let _ = self.0.send(new.store_key());
///     }
///     fn on_delete(&mut self, last: &FinalState) {
///         let _ = self.0.send(last.object().store_key());
///     }
/// }
///
/// fn reconcile(informer: &InformerHandle) {
///     let (sender, keys) = channel();
///     let subscription = informer.subscribe();
///     std::thread::spawn(move || pollster::block_on(subscription.run(Keys(sender))));
///     // Ends with the informer.
///     for key in keys {
///         let _ = informer.store().get(&key);
///     }
/// }
/// ```
pub trait EventHandler: Send {
    /// There is an object; `initial` if it was there at first.
    fn on_add(&mut self, object: &Object, initial: bool) {
        let _ = (object, initial);
    }
    /// An object changed.
    fn on_update(&mut self, old: &Object, new: &Object) {
        let _ = (old, new);
    }
    /// An object is gone.
    fn on_delete(&mut self, last: &FinalState) {
        let _ = last;
    }
}

#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Held to add or to take one notification.
    queue: Mutex<Queue>,
    waker: AtomicWaker,
}

/// Notifications in the order in which their keys came; one for each key.
#[derive(Debug, Default)]
struct Queue {
    next: u64,
    order: BTreeMap<u64, Held>,
    places: HashMap<String, u64>,
    /// Initial objects that the handler was not told yet; nothing before all of them are queued.
    initial_left: Option<usize>,
    initial_queued: usize,
    closed: bool,
}

/// A notification that waits, and the object as the handler knows it.
#[derive(Debug)]
struct Held {
    notification: Notification,
    known: Option<Object>,
}

impl Queue {
    fn push(&mut self, notification: Notification, before: Option<Object>) {
        let key = notification.key();
        let earlier = self
            .places
            .get(&key)
            .and_then(|place| self.order.remove(place));
        let merged = match earlier {
            None => {
                self.initial_queued += usize::from(is_initial(&notification));
                Some(Held {
                    notification,
                    known: before,
                })
            }
            Some(Held {
                notification: earlier,
                known,
            }) => {
                let was_initial = is_initial(&earlier);
                let merged = earlier.and_then(notification, known.as_ref());
                if was_initial && !merged.as_ref().is_some_and(is_initial) {
                    self.told_initial();
                }
                merged.map(|notification| Held {
                    notification,
                    known,
                })
            }
        };
        match merged {
            Some(merged) => {
                // It keeps its place if it has one: per object the order is what counts.
                let place = *self.places.entry(key).or_insert(self.next);
                self.next += u64::from(place == self.next);
                self.order.insert(place, merged);
            }
            None => {
                self.places.remove(&key);
            }
        }
    }

    fn pop(&mut self) -> Option<Notification> {
        let (_, Held { notification, .. }) = self.order.pop_first()?;
        self.places.remove(&notification.key());
        if is_initial(&notification) {
            self.told_initial();
        }
        Some(notification)
    }

    fn told_initial(&mut self) {
        self.initial_queued = self.initial_queued.saturating_sub(1);
        if let Some(left) = &mut self.initial_left {
            *left = left.saturating_sub(1);
        }
    }
}

fn is_initial(notification: &Notification) -> bool {
    matches!(notification, Notification::Added { initial: true, .. })
}

impl Shared {
    /// Queues a notification about an object that was `before` until then. Who reads is woken by
    /// [`Shared::wake`], once no lock is held (I8).
    pub(crate) fn push(&self, notification: Notification, before: Option<Object>) {
        self.queue.lock().push(notification, before);
    }

    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    /// All initial objects are queued.
    pub(crate) fn end_initial(&self) {
        let mut queue = self.queue.lock();
        if queue.initial_left.is_none() {
            queue.initial_left = Some(queue.initial_queued);
        }
    }

    pub(crate) fn close(&self) {
        self.queue.lock().closed = true;
        self.waker.wake();
    }
}

/// One handler's view of an informer: a stream of what happened.
///
/// - Notifications of one object are in order. What a slow handler has not taken yet is merged per
///   object: added and changed become added, changed twice becomes changed once, and so on
///   (WC-515). So the queue never holds more than one notification for each object that the handler
///   knows or that exists; [`Subscription::len`] tells how many there are.
/// - It begins with the present objects, as initial additions (WC-516).
/// - A panic of one handler ends its own task, and nothing else.
///
/// Dropping it unsubscribes. It ends when the informer does.
#[derive(Debug)]
pub struct Subscription {
    pub(crate) shared: Arc<Shared>,
}

impl Subscription {
    /// Notifications that wait to be taken.
    pub fn len(&self) -> usize {
        self.shared.queue.lock().order.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether all initial objects were taken (WC-514).
    pub fn has_synced(&self) -> bool {
        self.shared.queue.lock().initial_left == Some(0)
    }

    /// The next notification, if there is one now.
    pub fn try_next(&mut self) -> Option<Notification> {
        self.shared.queue.lock().pop()
    }

    /// Calls `handler` for each notification, until the informer ends. No lock is held meanwhile.
    pub async fn run(mut self, mut handler: impl EventHandler) {
        while let Some(notification) = self.next().await {
            match &notification {
                Notification::Added { object, initial } => handler.on_add(object, *initial),
                Notification::Updated { old, new } => handler.on_update(old, new),
                Notification::Deleted(last) => handler.on_delete(last),
            }
        }
    }
}

impl Stream for Subscription {
    type Item = Notification;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Notification>> {
        // Registered before the look: what comes after the look wakes us.
        self.shared.waker.register(context.waker());
        let mut queue = self.shared.queue.lock();
        match queue.pop() {
            Some(notification) => Poll::Ready(Some(notification)),
            None if queue.closed => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}
