//! The hub, which delivers published events to the queues of matching watches, and these queues.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::time::Duration;

use super::events::Events;
use super::interest::{InterestIndex, WatchIndex};
use super::options::EventFilter;
use crate::fault::{Fault, on_fault};
use crate::history::KeyValue;
use crate::key::KeyRange;
use crate::revision::Revision;
use crate::store::{Progress, Store};
use crate::sync::{self, Arc, AtomicWaker, Mutex, Rank, Weak};

/// The number of records that one dispatch step copies from the log, rounded up to whole revisions.
const DISPATCH_STEP_RECORDS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 256 };
/// The maximum number of watches that are unregistered at a time.
const REMOVE_STEP_WATCHES: usize = if cfg!(any(loom, shuttle)) { 2 } else { 64 };
/// The maximum capacity of [`RegisteredWatch::matches`] between two revisions.
const MATCHES_CAPACITY_MAX: usize = 8;
/// The maximum number of events in a queue. Further events are read from the log later.
const QUEUE_EVENTS_MAX: usize = if cfg!(loom) {
    2
} else if cfg!(shuttle) {
    8
} else {
    16 * 1024
};
/// The maximum number of bytes of keys and values in a queue.
const QUEUE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// All watches of a store; etcd's mvcc `watchableStore`.
///
/// - `dispatched` never decreases. All events up to it were delivered to the synced watches that
///   they match.
/// - A commit dispatches everything that is published and not yet dispatched, in order, including
///   its own revision: when a commit returns, all synced watches have its events (I4).
#[derive(Debug)]
pub(crate) struct Hub {
    progress_interval: Duration,
    /// Rank `Hub`. Held to dispatch, to register and to mark a watch as synced; wakers are called
    /// after it is released.
    registry: Mutex<Registry>,
}

#[derive(Debug)]
struct Registry {
    dispatched: Revision,
    watches: Vec<Option<RegisteredWatch>>,
    /// The unused indexes of `watches`.
    free: Vec<WatchIndex>,
    interest: InterestIndex,
    /// The number of watches that are not `synced`.
    unsynced: usize,
    /// The number of watches with `progress_notify`.
    progress_watches: usize,
    /// The time of the next progress notifications, if such a watch exists.
    progress_due: Option<Duration>,
    /// The streams that got the last progress notifications that were due.
    notified: Vec<Weak<Channel>>,
    // Buffers of `dispatch_to`, so that a dispatch does not allocate them.
    /// The watches that match a record of the revision that is being delivered.
    matched: Vec<WatchIndex>,
    /// The matches of the last of these watches for which a list of events was created.
    previous_matches: Vec<usize>,
    /// The records of the current dispatch step.
    step: Vec<KeyValue>,
}

#[derive(Debug)]
struct RegisteredWatch {
    serial: WatchSerial,
    channel: Arc<Channel>,
    range: KeyRange,
    filter: EventFilter,
    /// The first revision whose events the hub delivers to the watch.
    from: Revision,
    synced: bool,
    progress_notify: bool,
    /// Whether the watch got no event since progress notifications were last due.
    idle: bool,
    /// The indexes of the matching records in the revision that is being delivered.
    matches: Vec<usize>,
}

/// A watch to register.
#[derive(Debug)]
pub(super) struct NewWatch<'a> {
    pub(super) serial: WatchSerial,
    pub(super) channel: &'a Arc<Channel>,
    pub(super) range: &'a KeyRange,
    pub(super) filter: EventFilter,
    pub(super) progress_notify: bool,
}

/// The result of a registration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Registered {
    pub(super) index: WatchIndex,
    /// The current revision at the time of the registration.
    pub(super) revision: Revision,
    /// Whether the watch is unsynced, so that its first events are read from the log.
    pub(super) unsynced: bool,
}

impl Hub {
    pub(crate) fn new(start: Revision, progress_interval: Duration) -> Self {
        let registry = Registry {
            dispatched: start,
            watches: Vec::new(),
            free: Vec::new(),
            interest: InterestIndex::default(),
            unsynced: 0,
            progress_watches: 0,
            progress_due: None,
            notified: Vec::new(),
            matched: Vec::new(),
            previous_matches: Vec::new(),
            step: Vec::new(),
        };
        Self {
            progress_interval,
            registry: Mutex::new(Rank::Hub, registry),
        }
    }

    /// Delivers all published events since the last dispatch to the synced watches that they match;
    /// etcd's `notify`.
    pub(crate) fn dispatch(&self, store: &Store) {
        let mut wake = Vec::new();
        {
            let mut registry = self.registry.lock();
            registry.dispatch_to(store, store.current.load(), &mut wake);
        }
        wake_all(&wake);
    }

    /// Registers a watch. It is unsynced if it starts at or below the current revision.
    pub(super) fn register(
        &self,
        store: &Store,
        new: &NewWatch<'_>,
        start: Option<Revision>,
    ) -> Registered {
        // I8: a clock may be the user's code, so it is read with no lock held.
        let first_progress = new
            .progress_notify
            .then(|| store.clock.now().saturating_add(self.progress_interval));
        let mut registry = self.registry.lock();
        // Read under the lock of the hub: events published after this revision are dispatched after
        // the registration. The reader gets earlier events from the log.
        let revision = store.current.load();
        on_fault!(store.faults, RegisterOutsideHub, {
            drop(registry);
            registry = self.registry.lock();
        });
        let from = start.unwrap_or(revision.next());
        let unsynced = from <= revision;
        let index = registry.add(RegisteredWatch {
            serial: new.serial,
            channel: new.channel.clone(),
            range: new.range.clone(),
            filter: new.filter,
            from,
            synced: !unsynced,
            progress_notify: new.progress_notify,
            idle: true,
            matches: Vec::new(),
        });
        if new.progress_notify && registry.progress_watches == 1 {
            registry.progress_due = first_progress;
        }
        Registered {
            index,
            revision,
            unsynced,
        }
    }

    /// Makes a watch synced after its reader has read all log records before `position`. Returns
    /// `false` if the hub has already dispatched `position` or a later revision; the reader must
    /// then read these revisions from the log too.
    pub(super) fn mark_synced(&self, store: &Store, index: WatchIndex, position: Revision) -> bool {
        let mut registry = self.registry.lock();
        if registry.dispatched >= position && !store.faults.has(Fault::MarkSyncedUnchecked) {
            return false;
        }
        if let Some(watch) = registry.watches[index].as_mut() {
            watch.from = position;
            let was_synced = std::mem::replace(&mut watch.synced, true);
            registry.unsynced -= usize::from(!was_synced);
        }
        true
    }

    /// Unregisters watches. Releases the lock between steps, so that the end of a stream with many
    /// watches does not delay writers.
    pub(super) fn remove(&self, indexes: impl IntoIterator<Item = WatchIndex>) {
        let mut indexes = indexes.into_iter().peekable();
        while indexes.peek().is_some() {
            let mut registry = self.registry.lock();
            for index in indexes.by_ref().take(REMOVE_STEP_WATCHES) {
                registry.remove(index);
            }
        }
    }

    /// Queues a progress notification for a stream if all its watches are synced and none of them
    /// starts at a later revision (WA-53). It is queued after all events that it covers (I6,
    /// WA-55).
    pub(super) fn request_progress(
        &self,
        store: &Store,
        channel: &Arc<Channel>,
        indexes: impl IntoIterator<Item = WatchIndex>,
        before: WatchSerial,
    ) {
        let mut wake = Vec::new();
        {
            let mut registry = self.registry.lock();
            let current = store.current.load();
            registry.dispatch_to(store, current, &mut wake);
            let mut indexes = indexes.into_iter().peekable();
            let any = indexes.peek().is_some();
            let all_delivered = indexes.all(|index| {
                let watch = registry.watches[index].as_ref();
                watch.is_some_and(|watch| watch.is_delivered_through(current))
            });
            if any && all_delivered {
                let item = QueueItem::StreamProgress {
                    revision: current,
                    before,
                };
                channel.queue.lock().push_progress(item);
                wake.push(channel.clone());
            }
        }
        wake_all(&wake);
    }

    /// Returns the time at which progress notifications are due, or `None` if no watch has
    /// requested them.
    pub(crate) fn progress_due(&self) -> Option<Duration> {
        self.registry.lock().progress_due
    }

    /// If progress notifications are due, queues one for every synced watch that has requested them
    /// and has received no event since the last time (WA-50, WA-52).
    pub(crate) fn notify_progress(&self, store: &Store, now: Duration) {
        let mut wake = Vec::new();
        {
            let mut registry = self.registry.lock();
            if registry.progress_due.is_none_or(|due| due > now) {
                return;
            }
            registry.progress_due = Some(now.saturating_add(self.progress_interval));
            let current = store.current.load();
            registry.dispatch_to(store, current, &mut wake);
            let mut notified = Vec::new();
            let watches = registry.watches.iter_mut().flatten();
            for watch in watches.filter(|watch| watch.progress_notify) {
                let idle = std::mem::replace(&mut watch.idle, true);
                if idle && watch.is_delivered_through(current) {
                    let item = QueueItem::WatchProgress {
                        watch: watch.serial,
                        revision: current,
                    };
                    watch.channel.queue.lock().push_progress(item);
                    wake.push(watch.channel.clone());
                    notified.push(Arc::downgrade(&watch.channel));
                }
            }
            registry.notified = notified;
        }
        wake_all(&wake);
    }

    /// Returns whether the readers of the streams that got the last progress notifications have read what was queued.
    pub(crate) fn is_progress_read(&self) -> bool {
        let mut registry = self.registry.lock();
        registry.notified.retain(|channel| {
            let channel = channel.upgrade();
            channel.is_some_and(|channel| !channel.queue.lock().items.is_empty())
        });
        registry.notified.is_empty()
    }

    /// Returns the number of watches and the number of unsynced watches.
    pub(crate) fn count(&self) -> (usize, usize) {
        let registry = self.registry.lock();
        let watches = registry.watches.len() - registry.free.len();
        (watches, registry.unsynced)
    }
}

impl Registry {
    fn add(&mut self, watch: RegisteredWatch) -> WatchIndex {
        self.unsynced += usize::from(!watch.synced);
        self.progress_watches += usize::from(watch.progress_notify);
        let index = self.free.pop().unwrap_or_else(|| {
            self.watches.push(None);
            self.watches.len() - 1
        });
        self.interest.insert(&watch.range, index);
        self.watches[index] = Some(watch);
        index
    }

    fn remove(&mut self, index: WatchIndex) {
        let Some(watch) = self.watches[index].take() else {
            return;
        };
        self.interest.remove(index);
        self.free.push(index);
        self.unsynced -= usize::from(!watch.synced);
        self.progress_watches -= usize::from(watch.progress_notify);
        if self.progress_watches == 0 {
            self.progress_due = None;
        }
    }

    /// Delivers all events up to `to`. Adds to `wake` the streams that may have a sleeping reader.
    fn dispatch_to(&mut self, store: &Store, to: Revision, wake: &mut Vec<Arc<Channel>>) {
        if self.free.len() == self.watches.len() {
            self.dispatched = self.dispatched.max(to);
        }
        while self.dispatched < to {
            let mut step = std::mem::take(&mut self.step);
            let from = self.dispatched.next().start();
            store.log.visit(from, to.end(), |record| {
                let is_new_revision = |last: &KeyValue| last.mod_revision() < record.mod_revision();
                if step.len() >= DISPATCH_STEP_RECORDS && step.last().is_some_and(is_new_revision) {
                    return ControlFlow::Break(());
                }
                step.push(record.clone());
                store.progress.record(step.len());
                ControlFlow::Continue(())
            });
            for revision in step.chunk_by(|a, b| a.mod_revision() == b.mod_revision()) {
                self.deliver(&store.progress, revision, wake);
            }
            self.dispatched = match step.last() {
                Some(last) => last.mod_revision(),
                None => to,
            };
            step.clear();
            self.step = step;
        }
    }

    /// Queues the records of one revision for the watches that they match. The records for one
    /// watch are one item (WA-31).
    fn deliver(&mut self, progress: &Progress, records: &[KeyValue], wake: &mut Vec<Arc<Channel>>) {
        let Some(revision) = records.first().map(KeyValue::mod_revision) else {
            return;
        };
        let Self {
            watches,
            interest,
            matched,
            previous_matches,
            unsynced,
            ..
        } = self;
        for (record_index, record) in records.iter().enumerate() {
            progress.record(record_index);
            interest.visit(record.key(), |index| {
                let Some(watch) = watches[index].as_mut() else {
                    return;
                };
                if watch.synced && watch.from <= revision && watch.filter.passes(record) {
                    if watch.matches.is_empty() {
                        matched.push(index);
                    }
                    watch.matches.push(record_index);
                }
            });
        }
        // Most watches match the same records as the previous watch, and share its list of events.
        let mut shared: Option<Events> = None;
        for index in matched.drain(..) {
            let Some(watch) = watches[index].as_mut() else {
                continue;
            };
            let events = match &shared {
                Some(events) if *previous_matches == watch.matches => events.clone(),
                _ => {
                    previous_matches.clone_from(&watch.matches);
                    let matching = previous_matches.iter().map(|index| {
                        progress.record(*index);
                        records[*index].clone()
                    });
                    shared.insert(Events::of(matching)).clone()
                }
            };
            watch.matches.clear();
            watch.matches.shrink_to(MATCHES_CAPACITY_MAX);
            watch.idle = false;
            // A reader sleeps only while its queue is empty, so only a push to an empty queue wakes
            // it.
            if watch.push(revision, events) {
                wake.push(watch.channel.clone());
            }
            *unsynced += usize::from(!watch.synced);
        }
    }
}

impl RegisteredWatch {
    /// Queues the events of one revision; returns whether the queue was empty before.
    fn push(&mut self, revision: Revision, events: Events) -> bool {
        let item = QueueItem::Events {
            watch: self.serial,
            revision,
            events,
        };
        let mut queue = self.channel.queue.lock();
        let was_empty = queue.is_empty();
        if !queue.push_events(item) {
            // I9: the events are dropped here. The reader of the stream reads them from the log. A
            // closed stream drops them too, and its reader unregisters the watch.
            self.synced = false;
            queue.push_overflowed(self.serial, revision);
        }
        was_empty
    }

    fn is_delivered_through(&self, revision: Revision) -> bool {
        self.synced && self.from <= revision.next()
    }
}

/// Wakes readers. Called with no lock held (I8).
fn wake_all(channels: &[Arc<Channel>]) {
    for channel in channels {
        sync::call_user(|| channel.waker.wake());
    }
}

/// The number of a watch on its stream. Unlike a [`WatchId`](super::WatchId), it is never used
/// twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct WatchSerial(pub(super) u64);

/// The part of a stream that the hub writes to.
#[derive(Debug)]
pub(super) struct Channel {
    /// Rank `Queue`. Held to push or pop one item.
    pub(super) queue: Mutex<Queue>,
    pub(super) waker: AtomicWaker,
}

impl Channel {
    pub(super) fn new() -> Self {
        Self {
            queue: Mutex::new(Rank::Queue, Queue::default()),
            waker: AtomicWaker::new(),
        }
    }

    /// Drops everything that is queued, and what would be queued later, and wakes the reader.
    pub(super) fn close(&self) {
        let closed = Queue {
            is_closed: true,
            ..Queue::default()
        };
        let queue = std::mem::replace(&mut *self.queue.lock(), closed);
        // With no lock held (I8): an encoded list of events may contain code of a user.
        drop(queue);
        sync::call_user(|| self.waker.wake());
    }

    pub(super) fn is_closed(&self) -> bool {
        self.queue.lock().is_closed
    }
}

/// The queue of a stream: pending items of its synced watches, and its unsynced watches.
#[derive(Debug, Default)]
pub(super) struct Queue {
    items: VecDeque<QueueItem>,
    /// The unsynced watches, in the order in which the reader reads the log for them.
    unsynced: VecDeque<UnsyncedWatch>,
    /// The number of events in `items`.
    events: usize,
    /// The number of bytes of keys and values in `items`.
    bytes: u64,
    /// The number of items popped since the queue was created.
    popped: u64,
    /// Whether the queue stays empty.
    is_closed: bool,
}

/// One item to deliver.
#[derive(Debug)]
pub(super) enum QueueItem {
    /// The events of one revision for one watch.
    Events {
        watch: WatchSerial,
        revision: Revision,
        events: Events,
    },
    /// Everything up to the revision was delivered to all watches that the stream had at the
    /// request.
    StreamProgress {
        revision: Revision,
        /// The lowest serial that the stream had not assigned at the request.
        before: WatchSerial,
    },
    /// Everything up to the revision was delivered to one watch.
    WatchProgress {
        watch: WatchSerial,
        revision: Revision,
    },
}

/// An unsynced watch. Its next events are read from the log, from `position` on.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnsyncedWatch {
    pub(super) watch: WatchSerial,
    pub(super) position: Revision,
    /// The value of [`Queue::popped`] from which on the queue contains no earlier event of the
    /// watch.
    ready_at: u64,
}

impl Queue {
    /// Adds events and returns `true`, or returns `false` if the queue is full or closed. A queue
    /// without events accepts a revision of any size.
    #[must_use]
    pub(super) fn push_events(&mut self, item: QueueItem) -> bool {
        if self.is_closed {
            return false;
        }
        let (events, bytes) = item.weight();
        let full = self.events + events > QUEUE_EVENTS_MAX || self.bytes + bytes > QUEUE_BYTES_MAX;
        if full && self.events > 0 {
            return false;
        }
        self.events += events;
        self.bytes += bytes;
        self.items.push_back(item);
        true
    }

    /// Adds a progress notification, or replaces one of the same kind at the end of the queue, so
    /// that a client that requests progress repeatedly and does not read takes no memory. A full
    /// queue drops the notification: its watches are not idle (WA-52).
    pub(super) fn push_progress(&mut self, item: QueueItem) {
        let replaces = match (self.items.back(), &item) {
            (Some(QueueItem::StreamProgress { .. }), QueueItem::StreamProgress { .. }) => true,
            (
                Some(QueueItem::WatchProgress { watch: last, .. }),
                QueueItem::WatchProgress { watch: next, .. },
            ) => last == next,
            _ => false,
        };
        if replaces {
            self.items.pop_back();
        }
        if self.items.len() < QUEUE_EVENTS_MAX && !self.is_closed {
            self.items.push_back(item);
        }
    }

    /// Returns whether there are neither items nor unsynced watches.
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty() && self.unsynced.is_empty()
    }

    /// Adds a watch after its events at `position` did not fit into the queue. Its reader continues
    /// in the log, after the items that are queued now.
    pub(super) fn push_overflowed(&mut self, watch: WatchSerial, position: Revision) {
        let ready_at = self.popped + self.items.len() as u64;
        self.push_unsynced(UnsyncedWatch {
            watch,
            position,
            ready_at,
        });
    }

    /// Adds a new watch that starts in the past.
    pub(super) fn push_from_past(&mut self, watch: WatchSerial, position: Revision) {
        self.push_unsynced(UnsyncedWatch {
            watch,
            position,
            ready_at: 0,
        });
    }

    /// Adds an unsynced watch again after a part of the log was read for it.
    pub(super) fn push_unsynced(&mut self, unsynced: UnsyncedWatch) {
        if !self.is_closed {
            self.unsynced.push_back(unsynced);
        }
    }

    pub(super) fn pop(&mut self) -> Option<QueueItem> {
        let item = self.items.pop_front()?;
        let (events, bytes) = item.weight();
        self.events -= events;
        self.bytes -= bytes;
        self.popped += 1;
        Some(item)
    }

    /// Removes and returns the first unsynced watch without events in the queue.
    pub(super) fn pop_unsynced(&mut self) -> Option<UnsyncedWatch> {
        let ready = self
            .unsynced
            .iter()
            .position(|unsynced| unsynced.ready_at <= self.popped)?;
        self.unsynced.remove(ready)
    }
}

impl QueueItem {
    /// Returns the number of events and the number of bytes.
    fn weight(&self) -> (usize, u64) {
        match self {
            Self::Events { events, .. } => (events.len(), events.size_bytes()),
            Self::StreamProgress { .. } | Self::WatchProgress { .. } => (0, 0),
        }
    }
}
