//! Watch streams: any number of watches with one reader, and the reading of the log for unsynced
//! watches.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::ControlFlow;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use super::events::Events;
use super::hub::{Channel, NewWatch, QueueItem, UnsyncedWatch, WatchSerial};
use super::interest::WatchIndex;
use super::options::{
    EventFilter, EventPredicate, RESERVED_ID, WatchCreated, WatchId, WatchOptions, WatchResponse,
};
use crate::error::WatchError;
use crate::fault::{on_fault, unless_fault};
use crate::history::KeyValue;
use crate::key::KeyRange;
use crate::revision::Revision;
use crate::store::Store;
use crate::sync::{self, Arc};

/// The number of records that one catch-up step visits, rounded up to whole revisions. It also
/// limits the number of revisions in one response: etcd's clients expect at most 1000 (WA-34).
const CATCH_UP_STEP_RECORDS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 512 };
/// The number of bytes of events that one catch-up step returns, rounded up to whole revisions, so
/// that a slow reader gets large values in several responses (LI-3).
const CATCH_UP_STEP_BYTES: u64 = 1024 * 1024;
/// The maximum number of steps without a response in one poll. Then the poll yields to other tasks.
const POLL_STEPS_MAX: usize = 64;

/// Any number of watches with one reader.
///
/// # Guarantees
/// - Each watch delivers whole revisions in order, from its start revision on, and each event once.
///   No event is missing, unless the watch ends with [`WatchResponse::Compacted`], which reports
///   the revision up to which events are lost.
/// - Events of different watches are in no particular order. A progress response of the whole
///   stream comes after all events that it covers.
/// - When a write has returned, its events can be taken from every synced watch.
/// - The queue of a stream holds at most 16 Ki events and 16 MiB. When it is full, its watches read
///   from the store's log instead; writers and other streams do not wait.
///
/// Dropping the stream ends its watches.
///
/// # Costs
/// Creating and cancelling a watch takes time logarithmic in the number of watches of the engine,
/// and so does finding the watches that an event matches.
///
/// ```
/// # use revstore_engine::{Engine, KeyRange, WatchOptions, WatchResponse};
/// let engine = Engine::builder().build();
/// let mut stream = engine.watch_stream();
/// let watch = stream.watch(WatchOptions::of(KeyRange::prefix("pods/")))?;
/// engine.put("pods/a", "1")?;
/// match stream.next_blocking() {
///     WatchResponse::Events { id, events, .. } => {
///         assert_eq!((id, events[0].kv.key()), (watch.id, &b"pods/a"[..]));
///     }
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct WatchStream {
    store: Arc<Store>,
    channel: Arc<Channel>,
    /// Every id in use, and the state of its watch.
    ids: HashMap<WatchId, WatchState>,
    watches: HashMap<WatchSerial, StreamWatch, BuildHasherDefault<SerialHasher>>,
    /// Responses that were found while a watch was created, and at the front one that a predicate
    /// examines or panicked for.
    ready: VecDeque<WatchResponse>,
    /// Whether a watch with a predicate was added.
    has_predicates: bool,
    next_id: i64,
    next_serial: u64,
    /// The newest watch that started in the past.
    newest_from_past: Option<WatchSerial>,
    /// Whether the next step serves an unsynced watch before a queued item.
    unsynced_first: bool,
}

#[derive(Clone, Copy, Debug)]
enum WatchState {
    /// Delivers events.
    Active(WatchSerial),
    /// Was ended by a compaction and is not cancelled yet (WA-42).
    Ended,
}

#[derive(Debug)]
struct StreamWatch {
    id: WatchId,
    index: WatchIndex,
    range: KeyRange,
    filter: EventFilter,
    prev_kv: bool,
    predicate: Option<EventPredicate>,
}

/// The result of one step of reading.
enum ReadStep {
    /// A response to return.
    Response(WatchResponse),
    /// No response, but the next step may have one.
    NoResponse,
    /// No response, because the queue is empty.
    QueueEmpty,
}

impl WatchStream {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        Self {
            store,
            channel: Arc::new(Channel::new()),
            ids: HashMap::new(),
            watches: HashMap::default(),
            ready: VecDeque::new(),
            has_predicates: false,
            next_id: 0,
            next_serial: 0,
            newest_from_past: None,
            unsynced_first: false,
        }
    }

    /// Adds a watch.
    ///
    /// # Errors
    /// [`WatchError::EmptyRange`] if the range is empty, [`WatchError::DuplicateId`] if the id is
    /// in use or reserved, [`WatchError::Compacted`] if the start revision is negative. A compacted
    /// start revision is not an error here: the watch then ends with [`WatchResponse::Compacted`].
    pub fn watch(&mut self, options: WatchOptions) -> Result<WatchCreated, WatchError> {
        if options.range.is_empty() {
            return Err(WatchError::EmptyRange);
        }
        if options.start.is_some_and(|start| start < Revision(0)) {
            return Err(WatchError::Compacted);
        }
        let id = match options.id {
            Some(id) if id == RESERVED_ID || self.ids.contains_key(&id) => {
                return Err(WatchError::DuplicateId);
            }
            Some(id) => id,
            None => self.assign_id(),
        };
        let serial = WatchSerial(self.next_serial);
        self.next_serial += 1;
        let filter = options.filter();
        let new = NewWatch {
            serial,
            channel: &self.channel,
            range: &options.range,
            filter,
            progress_notify: options.progress_notify,
        };
        let registered = self.store.hub.register(&self.store, &new, options.start);
        let watch = StreamWatch {
            id,
            index: registered.index,
            range: options.range,
            filter,
            prev_kv: options.prev_kv,
            predicate: options.predicate,
        };
        self.has_predicates |= watch.predicate.is_some();
        self.watches.insert(serial, watch);
        self.ids.insert(id, WatchState::Active(serial));
        if options.progress_notify {
            self.store.clock.recheck();
        }
        let revision = registered.revision;
        if registered.unsynced {
            let position = options.start.unwrap_or(revision);
            self.channel.queue.lock().push_from_past(serial, position);
            self.newest_from_past = Some(serial);
            self.catch_up_early();
        }
        Ok(WatchCreated { id, revision })
    }

    /// Cancels a watch; its queued events are not delivered any more. Returns whether the id was in
    /// use.
    pub fn cancel(&mut self, id: WatchId) -> bool {
        let Some(state) = self.ids.remove(&id) else {
            return false;
        };
        // WA-20.
        if let WatchState::Active(serial) = state {
            unless_fault!(self.store.faults, DeliverCancelled, self.remove(serial));
        }
        let is_of_watch = |response: &WatchResponse| match response {
            WatchResponse::Events { id: of, .. } | WatchResponse::Compacted { id: of, .. } => {
                *of == id
            }
            WatchResponse::Progress { id: of, .. } => *of == Some(id),
        };
        self.ready.retain(|response| !is_of_watch(response));
        true
    }

    /// Requests a progress response of the whole stream: [`WatchResponse::Progress`] without an id,
    /// after all events that it covers.
    ///
    /// There is no response if a watch is unsynced or starts at a later revision, or if the stream
    /// has no watches. A response that was not read yet is dropped if a watch that starts in the
    /// past is added.
    pub fn request_progress(&mut self) {
        self.catch_up_early();
        // WA-53.
        if self.ready.is_empty() {
            let indexes = self.watches.values().map(|watch| watch.index);
            let before = WatchSerial(self.next_serial);
            self.store
                .hub
                .request_progress(&self.store, &self.channel, indexes, before);
        }
    }

    /// Returns the number of active watches.
    pub fn len(&self) -> usize {
        self.watches.len()
    }

    /// Returns whether the stream has no active watch.
    pub fn is_empty(&self) -> bool {
        self.watches.is_empty()
    }

    /// Returns the next response if it is available now. After a write has returned, its events are
    /// available.
    pub fn try_next(&mut self) -> Option<WatchResponse> {
        loop {
            match self.step() {
                ReadStep::Response(response) => return Some(response),
                ReadStep::NoResponse => {}
                ReadStep::QueueEmpty => return None,
            }
        }
    }

    /// Returns the next response; blocks the thread until there is one.
    pub fn next_blocking(&mut self) -> WatchResponse {
        sync::block_on(poll_fn(|context| self.poll_response(context)))
    }

    /// Polls for the next response.
    pub fn poll_response(&mut self, context: &mut Context<'_>) -> Poll<WatchResponse> {
        let mut registered = false;
        for _ in 0..POLL_STEPS_MAX {
            match self.step() {
                ReadStep::Response(response) => return Poll::Ready(response),
                ReadStep::NoResponse => {}
                ReadStep::QueueEmpty if registered => return Poll::Pending,
                ReadStep::QueueEmpty => {
                    // Registered before the last check of the queue: an item that is pushed after
                    // that check wakes the reader.
                    self.channel.waker.register(context.waker());
                    on_fault!(self.store.faults, RegisterWakerLast, return Poll::Pending);
                    registered = true;
                }
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Returns whether the stream has returned everything that writes before this call have caused: no response
    /// is queued, and no watch reads the log.
    ///
    /// ```
    /// # use revstore_engine::{Engine, KeyRange, WatchOptions};
    /// let engine = Engine::builder().build();
    /// let mut stream = engine.watch_stream();
    /// stream.watch(WatchOptions::of(KeyRange::all()))?;
    /// assert!(stream.is_caught_up());
    /// engine.put("key", "value")?;
    /// assert!(!stream.is_caught_up());
    /// stream.next_blocking();
    /// assert!(stream.is_caught_up());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_caught_up(&self) -> bool {
        self.ready.is_empty() && self.channel.queue.lock().is_empty()
    }

    pub(super) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    pub(super) fn channel(&self) -> &Arc<Channel> {
        &self.channel
    }

    /// Ends all watches, and drops what is queued for them.
    pub(super) fn close(&mut self) {
        self.channel.close();
        self.remove_all();
        self.ids.clear();
        self.ready.clear();
    }

    fn remove_all(&mut self) {
        let indexes = self.watches.drain().map(|(_, watch)| watch.index);
        self.store.hub.remove(indexes);
    }

    fn assign_id(&mut self) -> WatchId {
        loop {
            let id = WatchId(self.next_id);
            self.next_id = self.next_id.wrapping_add(1);
            if !self.ids.contains_key(&id) && id != RESERVED_ID {
                return id;
            }
        }
    }

    fn remove(&mut self, serial: WatchSerial) {
        if let Some(watch) = self.watches.remove(&serial) {
            self.store.hub.remove([watch.index]);
        }
    }

    /// Reads the log for unsynced watches until one has a response, so that a watch without events
    /// in its past is synced at once (WA-18).
    fn catch_up_early(&mut self) {
        for _ in 0..POLL_STEPS_MAX {
            if !self.ready.is_empty() {
                return;
            }
            let unsynced = self.channel.queue.lock().pop_unsynced();
            let Some(unsynced) = unsynced else { return };
            if let ReadStep::Response(response) = self.catch_up(unsynced) {
                self.ready.push_back(response);
            }
        }
    }

    fn step(&mut self) -> ReadStep {
        match self.read_step() {
            ReadStep::Response(response) if self.has_predicates => self.examine(response),
            step => step,
        }
    }

    /// Leaves out the events that the predicate of their watch rejects.
    fn examine(&mut self, response: WatchResponse) -> ReadStep {
        let Some((events, predicate)) = self.to_examine(&response) else {
            return ReadStep::Response(response);
        };
        // If the predicate panics, the next read examines the response again.
        self.ready.push_front(response);
        sync::assert_unlocked();
        let accepted = events.accepted(|event| predicate.accepts(event));
        match self.ready.pop_front() {
            Some(WatchResponse::Events { id, revision, .. }) if !accepted.is_empty() => {
                ReadStep::Response(WatchResponse::Events {
                    id,
                    revision,
                    events: accepted,
                })
            }
            _ => ReadStep::NoResponse,
        }
    }

    /// Returns the events of a response and the predicate of their watch, if it has one.
    fn to_examine(&self, response: &WatchResponse) -> Option<(Events, EventPredicate)> {
        let WatchResponse::Events { id, events, .. } = response else {
            return None;
        };
        let Some(WatchState::Active(serial)) = self.ids.get(id) else {
            return None;
        };
        let predicate = self.watches.get(serial)?.predicate.clone()?;
        Some((events.clone(), predicate))
    }

    fn read_step(&mut self) -> ReadStep {
        if let Some(response) = self.ready.pop_front() {
            return ReadStep::Response(response);
        }
        let (item, unsynced) = {
            let mut queue = self.channel.queue.lock();
            let mut unsynced = if self.unsynced_first {
                queue.pop_unsynced()
            } else {
                None
            };
            let item = if unsynced.is_none() {
                queue.pop()
            } else {
                None
            };
            if item.is_none() && unsynced.is_none() {
                unsynced = queue.pop_unsynced();
            }
            (item, unsynced)
        };
        // Alternates, so that neither a busy queue nor a long history starves the other.
        self.unsynced_first = unsynced.is_none();
        match (item, unsynced) {
            (Some(item), _) => self.deliver(item),
            (None, Some(unsynced)) => self.catch_up(unsynced),
            (None, None) => ReadStep::QueueEmpty,
        }
    }

    fn deliver(&self, item: QueueItem) -> ReadStep {
        let response = match item {
            QueueItem::Events {
                watch,
                revision,
                events,
            } => {
                // No response if the watch was cancelled in the meantime.
                let Some(watch) = self.watches.get(&watch) else {
                    return ReadStep::NoResponse;
                };
                WatchResponse::Events {
                    id: watch.id,
                    revision,
                    events: self.with_previous(watch, events),
                }
            }
            QueueItem::StreamProgress { revision, before } => {
                // I6: not true for a watch that was added later and still reads the log.
                if self.newest_from_past >= Some(before) {
                    return ReadStep::NoResponse;
                }
                WatchResponse::Progress { id: None, revision }
            }
            QueueItem::WatchProgress { watch, revision } => {
                let Some(watch) = self.watches.get(&watch) else {
                    return ReadStep::NoResponse;
                };
                WatchResponse::Progress {
                    id: Some(watch.id),
                    revision,
                }
            }
        };
        ReadStep::Response(response)
    }

    /// Reads the next part of the log for an unsynced watch, and makes the watch synced if it has
    /// reached the end: etcd's `syncWatchers`, for one watch.
    fn catch_up(&mut self, mut unsynced: UnsyncedWatch) -> ReadStep {
        let Some(watch) = self.watches.get(&unsynced.watch) else {
            return ReadStep::NoResponse;
        };
        let store = &self.store;
        let current = store.current.load();
        let mut records = Vec::new();
        let mut next = unsynced.position;
        let mut compacted = store.compacted.has_dropped(unsynced.position);
        if !compacted && next <= current {
            (records, next) = read_log(store, watch, next, current);
        }
        // I7: also if the compaction was announced while the log was read.
        unless_fault!(
            store.faults,
            CatchUpChecksOnce,
            compacted = store.compacted.has_dropped(unsynced.position)
        );
        if compacted {
            let compacted = store.compacted.load().unwrap_or(current);
            let id = watch.id;
            self.remove(unsynced.watch);
            self.ids.insert(id, WatchState::Ended);
            return ReadStep::Response(WatchResponse::Compacted { id, compacted });
        }
        unsynced.position = next;
        let synced = next > current && store.hub.mark_synced(store, watch.index, next);
        if !synced {
            self.channel.queue.lock().push_unsynced(unsynced);
        }
        if records.is_empty() {
            return ReadStep::NoResponse;
        }
        ReadStep::Response(WatchResponse::Events {
            id: watch.id,
            revision: store.current.load(),
            events: self.with_previous(watch, Events::of(records)),
        })
    }

    /// Adds the previous versions if the watch has requested them.
    fn with_previous(&self, watch: &StreamWatch, events: Events) -> Events {
        if watch.prev_kv {
            events.with_previous(|kv| self.previous(kv))
        } else {
            events
        }
    }

    /// Returns the version of the key before the transaction that wrote `kv` (WA-33); `None` for a
    /// creation, also if the same transaction has deleted the key before (TXN-7).
    fn previous(&self, kv: &KeyValue) -> Option<KeyValue> {
        if !kv.is_tombstone() && kv.create_revision() == kv.mod_revision() {
            return None;
        }
        let before = kv.mod_revision().previous();
        let previous = self.store.index.read(kv.key(), before.end());
        previous.filter(|_| !self.store.compacted.has_dropped(before))
    }
}

/// Returns the records from `from` on that match a watch, and the revision to continue from.
fn read_log(
    store: &Store,
    watch: &StreamWatch,
    from: Revision,
    current: Revision,
) -> (Vec<KeyValue>, Revision) {
    let mut records: Vec<KeyValue> = Vec::new();
    let mut records_left = CATCH_UP_STEP_RECORDS;
    let mut bytes_left = CATCH_UP_STEP_BYTES;
    let mut last = from.previous();
    let stopped = store.log.visit(from.start(), current.end(), |record| {
        let revision = record.mod_revision();
        if (records_left == 0 || bytes_left == 0) && revision > last {
            return ControlFlow::Break(());
        }
        records_left = records_left.saturating_sub(1);
        last = revision;
        if watch.range.contains(record.key()) && watch.filter.passes(record) {
            bytes_left = bytes_left.saturating_sub(record.size_bytes());
            records.push(record.clone());
        }
        ControlFlow::Continue(())
    });
    let next = if stopped.is_some() { last } else { current };
    (records, next.next())
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        self.remove_all();
    }
}

impl Stream for WatchStream {
    type Item = WatchResponse;

    /// Never ends: a stream without watches is pending until it has one.
    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<WatchResponse>> {
        self.get_mut().poll_response(context).map(Some)
    }
}

/// A hash function for serials, which are looked up for every event and not chosen by clients.
#[derive(Debug, Default)]
struct SerialHasher(u64);

impl Hasher for SerialHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
