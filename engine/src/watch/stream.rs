//! The reader's side: streams of watches.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::ControlFlow;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use super::WatchEnd;
use super::events::Events;
use super::hub::{Item, Lagging, NewWatch, Shared};
use super::interest::WatchIndex;
use crate::error::WatchError;
use crate::fault::Fault;
use crate::history::KeyValue;
use crate::key::KeyRange;
use crate::revision::Revision;
use crate::store::Store;
use crate::sync::{self, Arc};

/// Records that one catch-up step looks at, rounded up to whole revisions. It bounds the
/// revisions in one response too, which etcd's clients expect to be 1000 at most (WA-34).
const CATCH_UP_STEP_RECORDS: usize = if cfg!(loom) { 2 } else { 512 };
/// Bytes of events that one catch-up step hands over, rounded up to whole revisions: a slow reader of
/// large values gets them in pieces that it can take (LI-3).
const CATCH_UP_STEP_BYTES: u64 = 1024 * 1024;
/// Catch-up steps without a result that one poll takes before it lets others run.
const POLL_STEPS_MAX: usize = 64;

/// The name of a watch on its stream: what the client chose, or a number from 0 on (WA-2, WA-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub i64);

/// Stands for "the whole stream" in the progress replies of etcd; names no watch (WA-5).
const RESERVED_ID: WatchId = WatchId(-1);

impl fmt::Display for WatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What names a watch between hub and stream: never used twice on a stream, unlike ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Serial(u64);

/// Spreads serials, which are looked up for every event and which no client chooses.
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

/// Kinds of events that a watch does not want (WA-35).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Filters {
    no_put: bool,
    no_delete: bool,
}

impl Filters {
    pub(super) fn pass(self, record: &KeyValue) -> bool {
        if record.is_tombstone() {
            !self.no_delete
        } else {
            !self.no_put
        }
    }
}

/// What to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "four independent switches of etcd's request"
)]
pub struct WatchOptions {
    /// The keys.
    pub range: KeyRange,
    /// The first revision to see events of; the next one if none is given (WA-6).
    pub start: Option<Revision>,
    /// Leave out writes (WA-35).
    pub no_put: bool,
    /// Leave out deletions (WA-35).
    pub no_delete: bool,
    /// Add the version before each event (WA-33). Costs one read per event.
    pub prev_kv: bool,
    /// Hear of progress at intervals, while nothing happens (WA-50).
    pub progress_notify: bool,
    /// The id on the stream; the stream picks one if none is given (WA-2, WA-3).
    pub id: Option<WatchId>,
}

impl WatchOptions {
    /// All that happens to `range` from now on.
    pub fn of(range: KeyRange) -> Self {
        Self {
            range,
            start: None,
            no_put: false,
            no_delete: false,
            prev_kv: false,
            progress_notify: false,
            id: None,
        }
    }

    /// Begins with the events of `revision`, past or future.
    #[must_use]
    pub fn from(self, revision: Revision) -> Self {
        Self {
            start: Some(revision),
            ..self
        }
    }

    /// Adds the version before each event.
    #[must_use]
    pub fn with_prev_kv(self) -> Self {
        Self {
            prev_kv: true,
            ..self
        }
    }
}

/// What a stream tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchResponse {
    /// Events of one watch, in order; all of a revision are in one response (WA-31).
    Events {
        /// The watch.
        id: WatchId,
        /// The revision of the events if they are live; the current one if they were caught up
        /// with, which is higher than that of events still to come (WA-32).
        revision: Revision,
        /// The events; at least one.
        events: Events,
    },
    /// Everything up to a revision was told (I6).
    Progress {
        /// The watch that asked for it at intervals, or nothing: all watches of the stream (WA-53).
        id: Option<WatchId>,
        /// How far.
        revision: Revision,
    },
    /// The end of a watch whose next events were compacted (WA-40). Its id stays in use until it is
    /// cancelled (WA-42).
    Compacted {
        /// The watch.
        id: WatchId,
        /// The oldest revision that can still be watched.
        compacted: Revision,
    },
}

/// A watch that was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchCreated {
    /// Its id.
    pub id: WatchId,
    /// The current revision when it was registered: a watch without a start revision sees just the
    /// events behind it (WA-8).
    pub revision: Revision,
}

/// Any number of watches with one reader.
///
/// Guarantees, per watch: events in revision order and whole revisions, each once, none missing
/// from the start revision on; or [`WatchResponse::Compacted`], which says from where (I5). Between the
/// watches of a stream no order is defined (WA-37), except that progress of the whole stream comes
/// behind all it covers (I6).
///
/// Dropping the stream ends its watches. Creating and cancelling cost O(log watches).
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
    shared: Arc<Shared>,
    /// Every id in use, and what became of its watch.
    ids: HashMap<WatchId, State>,
    watches: HashMap<Serial, Watch, BuildHasherDefault<SerialHasher>>,
    /// Responses that creating a watch came across.
    ready: VecDeque<WatchResponse>,
    next_id: i64,
    next_serial: u64,
    /// The newest watch that began in the past.
    newest_behind: Option<Serial>,
    /// Whose turn it is: a queued item, or a watch that lags.
    lagging_first: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Living(Serial),
    /// Ended by compaction, and not yet cancelled (WA-42).
    Ended,
}

#[derive(Debug)]
struct Watch {
    id: WatchId,
    slot: WatchIndex,
    range: KeyRange,
    filters: Filters,
    prev_kv: bool,
}

/// What one step of reading came to.
enum Step {
    Response(WatchResponse),
    Worked,
    Idle,
}

impl WatchStream {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        Self {
            store,
            shared: Arc::new(Shared::new()),
            ids: HashMap::new(),
            watches: HashMap::default(),
            ready: VecDeque::new(),
            next_id: 0,
            next_serial: 0,
            newest_behind: None,
            lagging_first: false,
        }
    }

    /// Adds a watch.
    ///
    /// # Errors
    /// If the range is empty, the id is in use, or the start revision is negative.
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
            None => self.pick_id(),
        };
        let serial = Serial(self.next_serial);
        self.next_serial += 1;
        let filters = Filters {
            no_put: options.no_put,
            no_delete: options.no_delete,
        };
        let new = NewWatch {
            serial,
            stream: &self.shared,
            range: &options.range,
            filters,
            progress_notify: options.progress_notify,
        };
        let registered = self.store.hub.register(&self.store, &new, options.start);
        let (slot, revision) = (registered.slot, registered.revision);
        let WatchOptions { range, prev_kv, .. } = options;
        self.watches.insert(
            serial,
            Watch {
                id,
                slot,
                range,
                filters,
                prev_kv,
            },
        );
        self.ids.insert(id, State::Living(serial));
        if options.progress_notify {
            self.store.clock.recheck();
        }
        if registered.unsynced {
            let position = options.start.unwrap_or(revision);
            self.shared.queue.lock().start_behind(serial, position);
            self.newest_behind = Some(serial);
            self.catch_up_early();
        }
        Ok(WatchCreated { id, revision })
    }

    /// Ends a watch; what is queued for it is not delivered any more. Says whether the id was in
    /// use (WA-20).
    pub fn cancel(&mut self, id: WatchId) -> bool {
        let Some(state) = self.ids.remove(&id) else {
            return false;
        };
        match state {
            State::Living(_) if self.store.faults.has(Fault::TellCancelled) => {}
            State::Living(serial) => self.forget(serial),
            State::Ended => {}
        }
        let of_this = |response: &WatchResponse| match response {
            WatchResponse::Events { id: of, .. } | WatchResponse::Compacted { id: of, .. } => {
                *of == id
            }
            WatchResponse::Progress { id: of, .. } => *of == Some(id),
        };
        self.ready.retain(|response| !of_this(response));
        true
    }

    /// Asks how far the stream is. The answer is a [`WatchResponse::Progress`] without an id behind
    /// all that it covers, or none at all if some watch is not caught up, or waits for a revision
    /// of the future, or if there is no watch (WA-53). A watch of the past that is added before the
    /// answer was read takes it back.
    pub fn request_progress(&mut self) {
        self.catch_up_early();
        if self.ready.is_empty() {
            let slots = self.watches.values().map(|watch| watch.slot);
            self.store.hub.request_progress(
                &self.store,
                &self.shared,
                slots,
                Serial(self.next_serial),
            );
        }
    }

    /// Living watches.
    pub fn len(&self) -> usize {
        self.watches.len()
    }

    /// Whether no watch is alive.
    pub fn is_empty(&self) -> bool {
        self.watches.is_empty()
    }

    /// The next response, if there is one now. Right after a write returned, its events are here.
    pub fn try_next(&mut self) -> Option<WatchResponse> {
        loop {
            match self.step() {
                Step::Response(response) => return Some(response),
                Step::Worked => {}
                Step::Idle => return None,
            }
        }
    }

    /// The next response; the thread sleeps until there is one.
    pub fn next_blocking(&mut self) -> WatchResponse {
        sync::block_on(poll_fn(|context| self.poll_response(context)))
    }

    /// Completes with the next response.
    pub fn poll_response(&mut self, context: &mut Context<'_>) -> Poll<WatchResponse> {
        let mut registered = false;
        for _ in 0..POLL_STEPS_MAX {
            match self.step() {
                Step::Response(response) => return Poll::Ready(response),
                Step::Worked => {}
                Step::Idle if registered => return Poll::Pending,
                Step::Idle if self.store.faults.has(Fault::WakerLate) => {
                    self.shared.waker.register(context.waker());
                    return Poll::Pending;
                }
                Step::Idle => {
                    // Registered before the last look: what comes after that look wakes us.
                    self.shared.waker.register(context.waker());
                    registered = true;
                }
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn pick_id(&mut self) -> WatchId {
        loop {
            let id = WatchId(self.next_id);
            self.next_id = self.next_id.wrapping_add(1);
            if !self.ids.contains_key(&id) && id != RESERVED_ID {
                return id;
            }
        }
    }

    fn forget(&mut self, serial: Serial) {
        if let Some(watch) = self.watches.remove(&serial) {
            self.store.hub.remove([watch.slot]);
        }
    }

    /// Lets watches that lag look at the log, until one has something to tell, so that a watch whose
    /// history holds nothing for it is synced at once (WA-18).
    fn catch_up_early(&mut self) {
        for _ in 0..POLL_STEPS_MAX {
            if !self.ready.is_empty() {
                return;
            }
            let lagging = self.shared.queue.lock().pop_lagging();
            let Some(lagging) = lagging else { return };
            if let Step::Response(response) = self.catch_up(lagging) {
                self.ready.push_back(response);
            }
        }
    }

    fn step(&mut self) -> Step {
        if let Some(response) = self.ready.pop_front() {
            return Step::Response(response);
        }
        let (item, lagging) = {
            let mut queue = self.shared.queue.lock();
            let mut lagging = if self.lagging_first {
                queue.pop_lagging()
            } else {
                None
            };
            let item = if lagging.is_none() { queue.pop() } else { None };
            if item.is_none() && lagging.is_none() {
                lagging = queue.pop_lagging();
            }
            (item, lagging)
        };
        // In turns, so that neither a busy queue nor a long history starves the other.
        self.lagging_first = lagging.is_none();
        match (item, lagging) {
            (Some(item), _) => self.tell(item),
            (None, Some(lagging)) => self.catch_up(lagging),
            (None, None) => Step::Idle,
        }
    }

    fn tell(&self, item: Item) -> Step {
        let response = match item {
            Item::Events {
                watch,
                revision,
                events,
            } => {
                // A watch that was cancelled meanwhile has nothing to say.
                let Some(watch) = self.watches.get(&watch) else {
                    return Step::Worked;
                };
                WatchResponse::Events {
                    id: watch.id,
                    revision,
                    events: self.events(watch, events),
                }
            }
            Item::StreamProgress { revision, before } => {
                // I6: not true of a watch that came later and has yet to read what lies below.
                if self.newest_behind >= Some(before) {
                    return Step::Worked;
                }
                WatchResponse::Progress { id: None, revision }
            }
            Item::WatchProgress { watch, revision } => {
                let Some(watch) = self.watches.get(&watch) else {
                    return Step::Worked;
                };
                WatchResponse::Progress {
                    id: Some(watch.id),
                    revision,
                }
            }
        };
        Step::Response(response)
    }

    /// Reads the next stretch of the log for a watch, and makes it synced at the end of it.
    fn catch_up(&mut self, mut lagging: Lagging) -> Step {
        let Some(watch) = self.watches.get(&lagging.watch) else {
            return Step::Worked;
        };
        let store = &self.store;
        let current = store.current.load();
        let mut records: Vec<KeyValue> = Vec::new();
        let mut next = lagging.position;
        let mut overtaken = store.compacted.has_dropped(lagging.position);
        if !overtaken && next <= current {
            let mut left = CATCH_UP_STEP_RECORDS;
            let mut bytes_left = CATCH_UP_STEP_BYTES;
            let mut last = next.previous();
            let stopped = store.log.visit(next.start(), current.end(), |record| {
                let main = record.mod_revision();
                if (left == 0 || bytes_left == 0) && main > last {
                    return ControlFlow::Break(());
                }
                left = left.saturating_sub(1);
                last = main;
                if watch.range.contains(record.key()) && watch.filters.pass(record) {
                    bytes_left = bytes_left.saturating_sub(record.size_bytes());
                    records.push(record.clone());
                }
                ControlFlow::Continue(())
            });
            next = if stopped.is_some() {
                last.next()
            } else {
                current.next()
            };
        }
        // I7: also if the mark overtook the reading.
        if !store.faults.has(Fault::CatchUpLooksOnce) {
            overtaken = store.compacted.has_dropped(lagging.position);
        }
        if overtaken {
            let compacted = store.compacted.load().unwrap_or(current);
            let id = watch.id;
            self.forget(lagging.watch);
            self.ids.insert(id, State::Ended);
            return Step::Response(WatchResponse::Compacted { id, compacted });
        }
        lagging.position = next;
        let joined = next > current && store.hub.join(store, watch.slot, next);
        if !joined {
            self.shared.queue.lock().stay_behind(lagging);
        }
        if records.is_empty() {
            return Step::Worked;
        }
        let (id, revision) = (watch.id, store.current.load());
        Step::Response(WatchResponse::Events {
            id,
            revision,
            events: self.events(watch, Events::of(records)),
        })
    }

    fn events(&self, watch: &Watch, events: Events) -> Events {
        if watch.prev_kv {
            events.with_previous(|kv| self.previous(kv))
        } else {
            events
        }
    }

    /// WA-33: what the key was before the transaction; nothing for a creation, also where the same
    /// transaction has deleted the key before (TXN-7).
    fn previous(&self, kv: &KeyValue) -> Option<KeyValue> {
        if !kv.is_tombstone() && kv.create_revision() == kv.mod_revision() {
            return None;
        }
        let before = kv.mod_revision().previous();
        let previous = self.store.get(kv.key(), before.end());
        previous.filter(|_| !self.store.compacted.has_dropped(before))
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        self.store
            .hub
            .remove(self.watches.drain().map(|(_, watch)| watch.slot));
    }
}

impl Stream for WatchStream {
    type Item = WatchResponse;

    /// Never ends: a stream without watches waits for its first.
    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<WatchResponse>> {
        self.get_mut().poll_response(context).map(Some)
    }
}

/// Events of one watch that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchBatch {
    /// As in [`WatchResponse::Events`].
    pub revision: Revision,
    /// The events; none at all if this is progress: everything up to `revision` was delivered.
    pub events: Events,
}

/// One watch, with a reader of its own: an iterator of batches for a thread, a stream for a task.
///
/// Guarantees and costs are those of [`WatchStream`].
///
/// ```
/// # use revstore_engine::{Engine, KeyRange, Revision, WatchOptions};
/// let engine = Engine::builder().build();
/// engine.put("a", "1")?;
/// let mut watcher = engine.watch(WatchOptions::of(KeyRange::all()).from(Revision(2)))?;
/// engine.put("b", "2")?;
/// let mut keys = Vec::new();
/// while let Some(batch) = watcher.try_next() {
///     keys.extend(batch?.events.into_iter().map(|event| event.kv.key().to_vec()));
/// }
/// assert_eq!(keys, [b"a", b"b"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Watcher {
    stream: WatchStream,
    /// The end was told.
    ended: bool,
}

impl Watcher {
    pub(crate) fn new(mut stream: WatchStream, options: WatchOptions) -> Result<Self, WatchError> {
        stream.watch(options)?;
        Ok(Self {
            stream,
            ended: false,
        })
    }

    /// The next batch, if there is one now.
    pub fn try_next(&mut self) -> Option<Result<WatchBatch, WatchEnd>> {
        let response = self.stream.try_next()?;
        Some(self.take(response))
    }

    /// The next batch; the thread sleeps until there is one. Nothing after the end.
    pub fn next_blocking(&mut self) -> Option<Result<WatchBatch, WatchEnd>> {
        if self.ended {
            return None;
        }
        let response = self.stream.next_blocking();
        Some(self.take(response))
    }

    /// Asks how far the watch is; see [`WatchStream::request_progress`].
    pub fn request_progress(&mut self) {
        self.stream.request_progress();
    }

    fn take(&mut self, response: WatchResponse) -> Result<WatchBatch, WatchEnd> {
        match response {
            WatchResponse::Events {
                revision, events, ..
            } => Ok(WatchBatch { revision, events }),
            WatchResponse::Progress { revision, .. } => Ok(WatchBatch {
                revision,
                events: Events::default(),
            }),
            WatchResponse::Compacted { compacted, .. } => {
                self.ended = true;
                Err(WatchEnd::Compacted { compacted })
            }
        }
    }
}

impl Stream for Watcher {
    type Item = Result<WatchBatch, WatchEnd>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let watcher = self.get_mut();
        if watcher.ended {
            return Poll::Ready(None);
        }
        watcher
            .stream
            .poll_response(context)
            .map(|response| Some(watcher.take(response)))
    }
}
