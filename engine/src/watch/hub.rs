//! The hub: who watches what, and who has been told of which revision.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use super::events::Events;
use super::interest::{InterestIndex, WatchIndex};
use super::stream::{Filters, Serial};
use crate::fault::Fault;
use crate::history::KeyValue;
use crate::key::KeyRange;
use crate::revision::Revision;
use crate::store::Store;
use crate::sync::{Arc, AtomicWaker, Mutex, Rank};

/// Records that one dispatch step takes out of the log, rounded up to whole revisions.
const DISPATCH_STEP_RECORDS: usize = if cfg!(loom) { 2 } else { 256 };
/// Events that wait in the queue of one stream. What does not fit is read from the log later.
pub(super) const QUEUE_EVENTS_MAX: usize = if cfg!(loom) { 2 } else { 16 * 1024 };
/// Bytes of keys and values that wait in the queue of one stream.
pub(super) const QUEUE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Places for records of a revision that a watch keeps allocated.
const PENDING_KEPT_MAX: usize = 8;

/// All watches of an engine.
///
/// - `dispatched` never goes back; every synced watch has been handed all matching events up to it.
/// - Whoever commits dispatches all that is published and not dispatched yet, in order, its own
///   revision included: when a commit returns, synced watches have its events (I4).
#[derive(Debug)]
pub(crate) struct Hub {
    /// Rank `Hub`. Held to dispatch, to register and to join; wakers are called after it.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    dispatched: Revision,
    watches: Vec<Option<Watch>>,
    free: Vec<WatchIndex>,
    ranges: InterestIndex,
    /// Watches that want to hear of progress.
    progress_watches: usize,
    /// Watches that were handed something in the revision under way.
    touched: Vec<WatchIndex>,
    /// Which of its records the last of them was handed.
    same: Vec<usize>,
    /// The records of the dispatch step under way.
    step: Vec<KeyValue>,
}

#[derive(Debug)]
struct Watch {
    serial: Serial,
    stream: Arc<Shared>,
    range: KeyRange,
    filters: Filters,
    /// Events below this revision are not for this watch.
    from: Revision,
    synced: bool,
    progress_notify: bool,
    /// Nothing was handed over since the last progress tick.
    quiet: bool,
    /// Which records of the revision under way are for this watch.
    pending: Vec<usize>,
}

/// What a stream shares with the hub.
#[derive(Debug)]
pub(super) struct Shared {
    /// Rank `Queue`. Held to push or pop one item.
    pub(super) queue: Mutex<Queue>,
    pub(super) waker: AtomicWaker,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    items: VecDeque<Item>,
    /// Watches that fell behind, to be caught up by the reader, in the order they fell.
    lagging: VecDeque<Lagging>,
    /// Events in `items`.
    events: usize,
    /// Bytes in `items`.
    bytes: u64,
    /// Items ever taken out.
    popped: u64,
}

/// One thing that a stream has to tell.
#[derive(Debug)]
pub(super) enum Item {
    /// The events of one revision for one watch.
    Events {
        watch: Serial,
        revision: Revision,
        events: Events,
    },
    /// All watches that the stream had when it asked have been told of everything up to the revision.
    StreamProgress {
        revision: Revision,
        /// The first watch that the stream did not have yet.
        before: Serial,
    },
    /// One watch has been told of everything up to the revision.
    WatchProgress { watch: Serial, revision: Revision },
}

/// A watch that must read the log from `position` on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lagging {
    pub(super) watch: Serial,
    pub(super) position: Revision,
    /// How many items were taken out when the last one before the gap was.
    after: u64,
}

/// What a new watch is told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Registered {
    pub(super) slot: WatchIndex,
    /// The current revision at the moment of registration.
    pub(super) revision: Revision,
    /// Whether its reader must catch up first.
    pub(super) unsynced: bool,
}

impl Hub {
    pub(crate) fn new(start: Revision) -> Self {
        let state = State {
            dispatched: start,
            watches: Vec::new(),
            free: Vec::new(),
            ranges: InterestIndex::default(),
            progress_watches: 0,
            touched: Vec::new(),
            same: Vec::new(),
            step: Vec::new(),
        };
        Self {
            state: Mutex::new(Rank::Hub, state),
        }
    }

    /// Hands all published events that were not yet handed over to the synced watches they concern.
    pub(crate) fn dispatch(&self, store: &Store) {
        let mut wake = Vec::new();
        {
            let mut state = self.state.lock();
            state.dispatch_to(store, store.current.load(), &mut wake);
        }
        wake_all(&wake);
    }

    /// Adds a watch. If it starts at or below the current revision it is unsynced: its reader begins
    /// in the log.
    pub(super) fn register(
        &self,
        store: &Store,
        new: &NewWatch<'_>,
        start: Option<Revision>,
    ) -> Registered {
        let early = store
            .faults
            .has(Fault::RegisterEarly)
            .then(|| store.current.load());
        let mut state = self.state.lock();
        // The revision is read with the hub locked: what is published later is dispatched later,
        // and finds the watch registered; what was published before is not for it.
        let revision = early.unwrap_or_else(|| store.current.load());
        let from = start.unwrap_or(revision.next());
        let unsynced = from <= revision;
        let watch = Watch {
            serial: new.serial,
            stream: new.stream.clone(),
            range: new.range.clone(),
            filters: new.filters,
            from,
            synced: !unsynced,
            progress_notify: new.progress_notify,
            quiet: true,
            pending: Vec::new(),
        };
        state.progress_watches += usize::from(new.progress_notify);
        let slot = if let Some(slot) = state.free.pop() {
            state.watches[slot] = Some(watch);
            slot
        } else {
            state.watches.push(Some(watch));
            state.watches.len() - 1
        };
        state.ranges.insert(new.range, slot);
        Registered {
            slot,
            revision,
            unsynced,
        }
    }

    /// Makes a watch synced that has read the log up to but without `position`; refuses if events at
    /// or behind it were dispatched already, and are to be read from the log too.
    pub(super) fn join(&self, store: &Store, slot: WatchIndex, position: Revision) -> bool {
        let mut state = self.state.lock();
        if state.dispatched >= position && !store.faults.has(Fault::JoinBlindly) {
            return false;
        }
        if let Some(watch) = state.watches[slot].as_mut() {
            watch.from = position;
            watch.synced = true;
        }
        true
    }

    pub(super) fn remove(&self, slots: impl IntoIterator<Item = WatchIndex>) {
        let mut state = self.state.lock();
        for slot in slots {
            if let Some(watch) = state.watches[slot].take() {
                state.ranges.remove(&watch.range, slot);
                state.progress_watches -= usize::from(watch.progress_notify);
                state.free.push(slot);
            }
        }
    }

    /// Tells a stream how far it is, if all its watches are synced and none waits for the future
    /// (WA-53). Queued behind all events that it covers (I6, WA-55).
    pub(super) fn request_progress(
        &self,
        store: &Store,
        stream: &Arc<Shared>,
        slots: impl IntoIterator<Item = WatchIndex>,
        before: Serial,
    ) {
        let mut wake = Vec::new();
        {
            let mut state = self.state.lock();
            let current = store.current.load();
            state.dispatch_to(store, current, &mut wake);
            let mut slots = slots.into_iter().peekable();
            let any = slots.peek().is_some();
            let told_all = slots.all(|slot| {
                let watch = state.watches[slot].as_ref();
                watch.is_some_and(|watch| watch.is_told_through(current))
            });
            if any && told_all {
                let item = Item::StreamProgress {
                    revision: current,
                    before,
                };
                stream.queue.lock().push_progress(item);
                wake.push(stream.clone());
            }
        }
        wake_all(&wake);
    }

    /// Tells every quiet synced watch that wants it how far it is (WA-50, WA-52).
    pub(crate) fn tick_progress(&self, store: &Store) {
        let mut wake = Vec::new();
        {
            let mut state = self.state.lock();
            let current = store.current.load();
            state.dispatch_to(store, current, &mut wake);
            for watch in state
                .watches
                .iter_mut()
                .flatten()
                .filter(|one| one.progress_notify)
            {
                let quiet = std::mem::replace(&mut watch.quiet, true);
                if quiet && watch.is_told_through(current) {
                    let item = Item::WatchProgress {
                        watch: watch.serial,
                        revision: current,
                    };
                    watch.stream.queue.lock().push_progress(item);
                    wake.push(watch.stream.clone());
                }
            }
        }
        wake_all(&wake);
    }

    pub(crate) fn wants_progress(&self) -> bool {
        self.state.lock().progress_watches > 0
    }

    /// Living watches, and how many of them are unsynced.
    pub(crate) fn count(&self) -> (usize, usize) {
        let state = self.state.lock();
        let living = || state.watches.iter().flatten();
        (
            living().count(),
            living().filter(|watch| !watch.synced).count(),
        )
    }
}

/// What [`Hub::register`] needs to know of a watch.
#[derive(Debug)]
pub(super) struct NewWatch<'a> {
    pub(super) serial: Serial,
    pub(super) stream: &'a Arc<Shared>,
    pub(super) range: &'a KeyRange,
    pub(super) filters: Filters,
    pub(super) progress_notify: bool,
}

impl State {
    fn dispatch_to(&mut self, store: &Store, to: Revision, wake: &mut Vec<Arc<Shared>>) {
        if self.free.len() == self.watches.len() {
            self.dispatched = self.dispatched.max(to);
        }
        while self.dispatched < to {
            let mut step = std::mem::take(&mut self.step);
            let from = self.dispatched.next().start();
            store.log.visit(from, to.end(), |record| {
                let main = record.mod_revision();
                let full = step.len() >= DISPATCH_STEP_RECORDS;
                if full
                    && step
                        .last()
                        .is_some_and(|last: &KeyValue| last.mod_revision() < main)
                {
                    return ControlFlow::Break(());
                }
                step.push(record.clone());
                ControlFlow::Continue(())
            });
            for revision in step.chunk_by(|a, b| a.mod_revision() == b.mod_revision()) {
                self.hand_over(revision, wake);
            }
            self.dispatched = match step.last() {
                Some(last) => last.mod_revision(),
                None => to,
            };
            step.clear();
            self.step = step;
        }
    }

    /// Hands the records of one revision to the watches that they concern, all at once (WA-31).
    fn hand_over(&mut self, records: &[KeyValue], wake: &mut Vec<Arc<Shared>>) {
        let Some(revision) = records.first().map(KeyValue::mod_revision) else {
            return;
        };
        let Self {
            watches,
            ranges,
            touched,
            same,
            ..
        } = self;
        for (at, record) in records.iter().enumerate() {
            ranges.visit(record.key(), |slot| {
                let Some(watch) = watches[slot].as_mut() else {
                    return;
                };
                if watch.synced && watch.from <= revision && watch.filters.pass(record) {
                    if watch.pending.is_empty() {
                        touched.push(slot);
                    }
                    watch.pending.push(at);
                }
            });
        }
        // Most watches are told of the same records as the one before them.
        let mut told: Option<Events> = None;
        for slot in touched.drain(..) {
            let Some(watch) = watches[slot].as_mut() else {
                continue;
            };
            let events = match &told {
                Some(events) if *same == watch.pending => events.clone(),
                _ => {
                    same.clone_from(&watch.pending);
                    let events = Events::of(same.iter().map(|at| records[*at].clone()));
                    told.insert(events).clone()
                }
            };
            watch.pending.clear();
            watch.pending.shrink_to(PENDING_KEPT_MAX);
            let item = Item::Events {
                watch: watch.serial,
                revision,
                events,
            };
            let mut queue = watch.stream.queue.lock();
            let was_idle = queue.is_idle();
            if !queue.push_events(item) {
                // I9: what does not fit is not kept; the reader finds it in the log.
                watch.synced = false;
                queue.fall_behind(watch.serial, revision);
            }
            drop(queue);
            watch.quiet = false;
            // A reader sleeps only while its queue is idle, and whoever ends that wakes it.
            if was_idle {
                wake.push(watch.stream.clone());
            }
        }
    }
}

impl Watch {
    fn is_told_through(&self, revision: Revision) -> bool {
        self.synced && self.from <= revision.next()
    }
}

impl Shared {
    pub(super) fn new() -> Self {
        Self {
            queue: Mutex::new(Rank::Queue, Queue::default()),
            waker: AtomicWaker::new(),
        }
    }
}

impl Queue {
    /// Takes events in, unless the queue is full. An empty queue takes a revision of any size.
    fn push_events(&mut self, item: Item) -> bool {
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

    /// Takes progress in; it replaces progress of the same kind at the end of the queue, so that a
    /// reader who asks and does not listen costs nothing. A full queue takes none: its reader is
    /// busy anyway (WA-52).
    fn push_progress(&mut self, item: Item) {
        let replaces = match (self.items.back(), &item) {
            (Some(Item::StreamProgress { .. }), Item::StreamProgress { .. }) => true,
            (
                Some(Item::WatchProgress { watch: last, .. }),
                Item::WatchProgress { watch: next, .. },
            ) => last == next,
            _ => false,
        };
        if replaces {
            self.items.pop_back();
        }
        if self.items.len() < QUEUE_EVENTS_MAX {
            self.items.push_back(item);
        }
    }

    /// Whether the reader has nothing to do.
    fn is_idle(&self) -> bool {
        self.items.is_empty() && self.lagging.is_empty()
    }

    fn fall_behind(&mut self, watch: Serial, position: Revision) {
        let after = self.popped + self.items.len() as u64;
        self.lagging.push_back(Lagging {
            watch,
            position,
            after,
        });
    }

    /// Adds a watch that starts in the past: it may begin at once.
    pub(super) fn start_behind(&mut self, watch: Serial, position: Revision) {
        self.lagging.push_back(Lagging {
            watch,
            position,
            after: 0,
        });
    }

    /// Puts a watch that is not yet synced back, behind the others.
    pub(super) fn stay_behind(&mut self, lagging: Lagging) {
        self.lagging.push_back(lagging);
    }

    pub(super) fn pop(&mut self) -> Option<Item> {
        let item = self.items.pop_front()?;
        let (events, bytes) = item.weight();
        self.events -= events;
        self.bytes -= bytes;
        self.popped += 1;
        Some(item)
    }

    /// A watch behind, all queued events of which were taken out.
    pub(super) fn pop_lagging(&mut self) -> Option<Lagging> {
        let ready = self
            .lagging
            .iter()
            .position(|lagging| lagging.after <= self.popped)?;
        self.lagging.remove(ready)
    }
}

impl Item {
    /// Events and bytes.
    fn weight(&self) -> (usize, u64) {
        match self {
            Self::Events { events, .. } => (events.len(), events.size_bytes()),
            Self::StreamProgress { .. } | Self::WatchProgress { .. } => (0, 0),
        }
    }
}

/// Wakes readers, with no lock held (I8).
fn wake_all(streams: &[Arc<Shared>]) {
    for stream in streams {
        stream.waker.wake();
    }
}
