//! The queue of one watch stream: what the hub delivers and the reader takes.

use std::collections::VecDeque;

use super::events::Events;
use crate::revision::Revision;
use crate::sync::{AtomicWaker, Mutex, Rank};

/// Events that wait in a queue. Further ones are read from the log later.
const EVENTS_MAX: usize = if cfg!(loom) { 2 } else { 16 * 1024 };
/// Bytes of keys and values that wait in a queue.
const BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Identifies a watch between the hub and its stream. Never used twice on a stream, unlike
/// [`WatchId`](super::WatchId).
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
}

/// Pending items of the synced watches of a stream, and its unsynced watches.
#[derive(Debug, Default)]
pub(super) struct Queue {
    items: VecDeque<QueueItem>,
    /// Unsynced watches, in the order in which their reader is to read the log for them.
    unsynced: VecDeque<UnsyncedWatch>,
    /// Events in `items`.
    events: usize,
    /// Bytes in `items`.
    bytes: u64,
    /// The number of items popped since the queue was created.
    popped: u64,
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
        /// The lowest serial that the stream had not assigned yet.
        before: WatchSerial,
    },
    /// Everything up to the revision was delivered to one watch.
    WatchProgress {
        watch: WatchSerial,
        revision: Revision,
    },
}

/// A watch whose next events are to be read from the log, from `position` on.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnsyncedWatch {
    pub(super) watch: WatchSerial,
    pub(super) position: Revision,
    /// The value of `popped` at which no earlier event of the watch is left in the queue.
    ready_at: u64,
}

impl Queue {
    /// Adds events, unless the queue is full; returns whether it did. An empty queue accepts a
    /// revision of any size.
    #[must_use]
    pub(super) fn push_events(&mut self, item: QueueItem) -> bool {
        let (events, bytes) = item.weight();
        let full = self.events + events > EVENTS_MAX || self.bytes + bytes > BYTES_MAX;
        if full && self.events > 0 {
            return false;
        }
        self.events += events;
        self.bytes += bytes;
        self.items.push_back(item);
        true
    }

    /// Adds a progress notification. It replaces one of the same kind at the end of the queue, so
    /// that a client that requests progress and does not read takes no memory. A full queue drops
    /// it: a reader with that much to read is not idle (WA-52).
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
        if self.items.len() < EVENTS_MAX {
            self.items.push_back(item);
        }
    }

    /// Returns whether the reader has nothing to do.
    pub(super) fn is_idle(&self) -> bool {
        self.items.is_empty() && self.unsynced.is_empty()
    }

    /// Adds a watch whose events from `position` on did not fit into the queue. Its reader turns to
    /// the log after the items that are queued now.
    pub(super) fn push_overflowed(&mut self, watch: WatchSerial, position: Revision) {
        let ready_at = self.popped + self.items.len() as u64;
        self.unsynced.push_back(UnsyncedWatch {
            watch,
            position,
            ready_at,
        });
    }

    /// Adds a new watch that starts in the past.
    pub(super) fn push_from_past(&mut self, watch: WatchSerial, position: Revision) {
        self.unsynced.push_back(UnsyncedWatch {
            watch,
            position,
            ready_at: 0,
        });
    }

    /// Adds a watch that has read a part of the log and is still unsynced.
    pub(super) fn push_unsynced(&mut self, unsynced: UnsyncedWatch) {
        self.unsynced.push_back(unsynced);
    }

    pub(super) fn pop(&mut self) -> Option<QueueItem> {
        let item = self.items.pop_front()?;
        let (events, bytes) = item.weight();
        self.events -= events;
        self.bytes -= bytes;
        self.popped += 1;
        Some(item)
    }

    /// Takes out the first unsynced watch that has no event left in the queue.
    pub(super) fn pop_unsynced(&mut self) -> Option<UnsyncedWatch> {
        let ready = self
            .unsynced
            .iter()
            .position(|unsynced| unsynced.ready_at <= self.popped)?;
        self.unsynced.remove(ready)
    }
}

impl QueueItem {
    /// Returns the number of events and of bytes.
    fn weight(&self) -> (usize, u64) {
        match self {
            Self::Events { events, .. } => (events.len(), events.size_bytes()),
            Self::StreamProgress { .. } | Self::WatchProgress { .. } => (0, 0),
        }
    }
}
