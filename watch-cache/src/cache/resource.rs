//! One resource of a cache: its current objects, its window and its registered watchers. Together
//! with `window.rs` it corresponds to Kubernetes' `watchCache`.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use revstore_engine::Revision;

use crate::api::status::{Expired, RequestError};
use crate::api::target::Target;
use crate::cache::config::ResourceConfig;
use crate::cache::contents::{Contents, ContentsRemains, DecodedChange};
use crate::cache::interest::{InterestKey, Interests, interest_of};
use crate::cache::objects::index::{ObjectIndex, ResolvedIndex};
use crate::cache::objects::snapshot::{ExactSnapshots, Snapshot};
use crate::cache::objects::tree::TreeIter;
use crate::cache::readiness::{Readiness, ReadinessGate};
use crate::cache::shared::CacheShared;
use crate::cache::window::WindowEvent;
use crate::encode::form::{Form, FormId, FormSet, RegisteredForm};
use crate::encode::object::{ObjectDecoder, StoredObject};
use crate::metrics::{ResourceCounters, ResourceMetrics};
use crate::selector::ResolvedField;
use crate::source::Change;
use crate::wake::Waiter;

/// The cache of one resource. The feeder is the only writer; requests and watchers read.
///
/// Lock order: `state` first, then `interests`, `exact_snapshots` or the lock inside `ready`. No lock is held
/// while objects are decoded, filtered or encoded, or while tasks are woken, and none is held across
/// an await.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) config: ResourceConfig,
    pub(crate) indexes: Vec<ResolvedIndex>,
    pub(crate) shared: Arc<CacheShared>,
    pub(crate) ready: ReadinessGate,
    pub(crate) counters: ResourceCounters,
    /// The forms in which objects are written. The lock is held for one look or change.
    forms: RwLock<FormSet>,
    /// The size of the encoded events in the window, which watchers change without the lock.
    encoded_bytes: Arc<AtomicI64>,
    /// Guards the objects and the window. Requests hold the lock to clone a tree, watchers to copy a
    /// bounded number of events, and the feeder to apply one batch.
    state: RwLock<ResourceState>,
    /// Guards the registered watchers. The lock is held for one lookup or change; the feeder holds it
    /// while it applies one batch.
    interests: Mutex<Interests>,
    /// The snapshots that lists at older revisions have used last. The lock is held for one lookup or
    /// change.
    exact_snapshots: Mutex<ExactSnapshots>,
}

/// The state of a resource that the feeder writes.
#[derive(Debug)]
struct ResourceState {
    contents: Contents,
    /// Whether the contents follow the watermark. They do not while the resource is being loaded;
    /// they are empty then.
    is_current: bool,
    /// Whether the resource was removed. The window stays until the last watcher has read it.
    is_removed: bool,
    /// The number of times that the contents were discarded. Watchers that were registered before the
    /// latest one end (WC-115).
    generation: u64,
    /// The oldest series whose watches go on, and the revision at which the earlier ones ended (WC-118).
    series: (u64, Revision),
    /// The first generation that was loaded from the current store. If that store has replaced
    /// another one, also the newest known revision of the previous store, and the revision of the
    /// current store when the replacement was detected.
    replaced: (u64, Option<(Revision, Revision)>),
}

/// The start of a new watcher.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WatchStart {
    /// The current objects, then the events after them.
    CurrentObjects,
    /// The events after a revision, or after the newest revision of the cache.
    After(Option<Revision>),
}

/// The result of a registration: the state with which a new watcher starts.
#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) waiter: Arc<Waiter>,
    pub(crate) interest_key: InterestKey,
    pub(crate) generation: u64,
    /// The watcher delivers events after this revision. The initial objects are complete up to it.
    pub(crate) after: Revision,
    pub(crate) initial: Option<TreeIter<Arc<StoredObject>>>,
}

/// The next events for a watcher, or the reason why there are none.
#[derive(Debug)]
pub(crate) enum Refill {
    /// Events of whole revisions, and the revision up to which they are complete.
    Events(Vec<Arc<WindowEvent>>, Revision),
    /// No event is pending; the watcher is complete up to this revision.
    Idle(Revision),
    /// As `Idle`, and the cache is stopped.
    Stopping(Revision),
    /// No event is pending, and the resource was removed or the watches of the series have ended.
    Ended,
    /// The next event of the watcher was evicted from the window. The oldest possible start is after
    /// this revision.
    Evicted(Revision),
    /// The resource was loaded again after the watcher was registered.
    Reloaded,
    /// The store was replaced: the newest revision known before, and the revision found now.
    Replaced(Revision, Revision),
}

/// The objects are being loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotCurrent;

/// The number of events that a list at an older revision may undo in any case, also if it reads few
/// objects.
const UNDO_EVENTS_MIN: usize = 1000;
/// The maximum number of events that a watcher copies from the window at once, rounded up to whole
/// revisions.
const COPY_EVENTS_MAX: usize = 128;

impl Resource {
    pub(crate) fn new(
        config: ResourceConfig,
        shared: Arc<CacheShared>,
    ) -> Result<Self, RequestError> {
        let resolve = |index: &ObjectIndex| match index {
            ObjectIndex::Label(key) => Ok(ResolvedIndex::Label(key.clone())),
            ObjectIndex::Field(field) => {
                ResolvedField::of(field, &*config.kind).map(ResolvedIndex::Field)
            }
        };
        let indexes: Vec<ResolvedIndex> = config
            .indexes
            .iter()
            .map(resolve)
            .collect::<Result<_, _>>()?;
        let state = ResourceState {
            contents: Contents::new(config.window, &indexes),
            is_current: false,
            is_removed: false,
            generation: 0,
            series: (0, Revision(0)),
            replaced: (0, None),
        };
        let encoded_bytes = state.contents.window.encoded_bytes().clone();
        Ok(Self {
            ready: ReadinessGate::new(shared.timers.now()),
            counters: ResourceCounters::default(),
            forms: RwLock::new(FormSet::new(config.kind.form(), &config.forms)),
            encoded_bytes,
            state: RwLock::new(state),
            interests: Mutex::new(Interests::default()),
            exact_snapshots: Mutex::default(),
            indexes,
            config,
            shared,
        })
    }

    pub(crate) fn decoder(&self) -> ObjectDecoder {
        self.config.decoder()
    }

    /// Returns a form.
    pub(crate) fn form(&self, id: FormId) -> Option<RegisteredForm> {
        self.forms.read().get(id).cloned()
    }

    /// Returns the default form.
    pub(crate) fn default_form(&self) -> RegisteredForm {
        self.forms.read().default_form().clone()
    }

    /// Adds or replaces a form.
    pub(crate) fn set_form(&self, id: FormId, form: Arc<dyn Form>) {
        self.forms.write().insert(id, form);
    }

    /// Removes a form. Returns whether there was one.
    pub(crate) fn remove_form(&self, id: FormId) -> bool {
        self.forms.write().remove(id)
    }

    /// Waits until the watermark has reached `revision`. Fails with [`RequestError::TooLarge`] if
    /// that takes longer than the configured freshness wait (WC-131).
    pub(crate) async fn wait_until_fresh(&self, revision: Revision) -> Result<(), RequestError> {
        let shared = &self.shared;
        let began = shared.timers.now();
        let request_progress = || shared.source.request_progress();
        let limit = shared.settings.freshness_wait;
        let in_time = shared
            .watermark
            .wait_until_reached(revision, limit, &shared.timers, request_progress)
            .await;
        self.counters
            .read_wait_seconds
            .observe_since(began, shared.timers.now());
        if in_time {
            return Ok(());
        }
        Err(RequestError::TooLarge {
            requested: revision,
            current: shared.watermark.load(),
        })
    }

    /// Fails with [`RequestError::NotReady`], [`RequestError::Stopped`] or [`RequestError::Removed`]
    /// unless requests can be answered from the cache.
    pub(crate) fn check_ready(&self) -> Result<(), RequestError> {
        self.ready.check(self.shared.timers.now())
    }

    /// Returns the current objects, or `None` while they are being loaded. The lock is held only while
    /// the roots of the trees are cloned.
    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        Some(self.snapshot_and_generation()?.0)
    }

    /// Returns the number of objects in the cache.
    pub(crate) fn object_count(&self) -> usize {
        self.state.read().contents.objects.len()
    }

    /// Returns the current objects, and the number of the load from which they come.
    pub(crate) fn snapshot_and_generation(&self) -> Option<(Snapshot, u64)> {
        let state = self.state.read();
        if !state.is_current {
            return None;
        }
        let snapshot = Snapshot {
            revision: self.newest(&state),
            objects: state.contents.objects.clone(),
            by_index: match state.contents.undecodable {
                0 => state.contents.by_index.clone(),
                _ => Vec::new(),
            },
        };
        Some((snapshot, state.generation))
    }

    /// Marks the resource as inconsistent if its objects still come from the load `generation`.
    /// Returns whether that is so.
    pub(crate) fn mark_inconsistent(&self, generation: u64) -> bool {
        // Set under the lock of the state, so that the objects are not replaced between the
        // comparison of the generation and the change.
        let state = self.state.read();
        let is_current = state.is_current && state.generation == generation;
        if is_current {
            self.ready.set(Readiness::Inconsistent);
        }
        is_current
    }

    /// Returns the objects at an older revision, by undoing events in a clone of the tree of the next
    /// checkpoint, or of the current tree. Decodes nothing. Returns `None` if the window does not
    /// contain these events, or if no checkpoint is near and there are so many that reading the
    /// objects, at most `limit` of them, from the source is cheaper.
    pub(crate) fn snapshot_at(&self, at: Revision, limit: Option<usize>) -> Option<Snapshot> {
        let (mut objects, events, generation) = {
            let state = self.state.read();
            let Contents {
                objects,
                window,
                checkpoints,
                ..
            } = &state.contents;
            if !state.is_current || at < window.oldest_start() || at > self.newest(&state) {
                return None;
            }
            let from = window.after(at);
            let (objects, end) = match checkpoints.next_after(at) {
                Some(next) => (&next.objects, window.after(next.revision)),
                None => (objects, window.end()),
            };
            let changes = usize::try_from(end - from).ok()?;
            let listed = limit.unwrap_or(objects.len());
            if changes > UNDO_EVENTS_MIN.max(2 * listed) {
                return None;
            }
            if let Some(kept) = self.exact_snapshots.lock().find(at) {
                return Some(kept);
            }
            let events = window.copy(from, changes);
            (objects.clone(), events, state.generation)
        };
        for event in events.iter().rev() {
            match (&event.old, &event.new) {
                (Some(old), _) => drop(objects.insert(old.clone())),
                (None, Some(new)) => drop(objects.remove(new.key())),
                (None, None) => {}
            }
        }
        let snapshot = Snapshot {
            revision: at,
            objects,
            by_index: Vec::new(),
        };
        let state = self.state.read();
        // Under the lock of the state, so that no snapshot of discarded or evicted contents is kept.
        if state.generation == generation && at >= state.contents.window.oldest_start() {
            let dropped = self.exact_snapshots.lock().keep(snapshot.clone());
            drop(state);
            drop(dropped);
        }
        Some(snapshot)
    }

    /// Returns the revision up to which the locked `state` is complete. Every published change was
    /// applied under the same lock before, so it is in `state` (INV-1); and before the watermark
    /// moves on without the changes of this resource, or back, the state is discarded.
    fn newest(&self, state: &ResourceState) -> Revision {
        let known = state.contents.last.max(state.contents.loaded);
        if state.is_current {
            known.max(self.shared.watermark.load())
        } else {
            known
        }
    }

    /// Returns an object, or `None` if it does not exist.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Arc<StoredObject>>, NotCurrent> {
        let state = self.state.read();
        if !state.is_current {
            return Err(NotCurrent);
        }
        Ok(state.contents.objects.get(key).cloned())
    }

    /// Discards the contents before they are loaded again, and returns what is left of them. The
    /// watchers end without an error event (WC-115): the watermark will move on without the changes
    /// of this resource, so no watcher may deliver it in a bookmark.
    pub(crate) fn discard(&self) -> Option<ContentsRemains> {
        if !self.state.read().is_current {
            return None;
        }
        self.discard_with(|_| {})
    }

    /// As [`Resource::discard`], because the store was replaced. The watchers end with
    /// [`Expired::Replaced`], because the objects that they have delivered may not be in the history
    /// of the new store.
    pub(crate) fn discard_replaced(
        &self,
        known: Revision,
        found: Revision,
    ) -> Option<ContentsRemains> {
        self.counters.replacements.add(1);
        self.discard_with(|state| state.replaced = (state.generation, Some((known, found))))
    }

    fn discard_with(&self, change: impl FnOnce(&mut ResourceState)) -> Option<ContentsRemains> {
        let empty = Contents::new(self.config.window, &self.indexes);
        let (to_wake, remains): (Vec<_>, _) = {
            let mut state = self.state.write();
            if state.is_removed {
                // The watchers still deliver the events before the removal.
                return None;
            }
            let was_current = std::mem::replace(&mut state.is_current, false);
            state.generation += 1;
            // What is loaded has no older revisions, and those of another store may be lower.
            state.series.1 = Revision(0);
            change(&mut state);
            let remains = state.contents.replace_with(empty);
            self.exact_snapshots.lock().clear();
            let to_wake = self.interests.lock().all().cloned().collect();
            (to_wake, was_current.then_some(remains))
        };
        for waiter in to_wake {
            waiter.waker.wake();
        }
        remains
    }

    /// Takes the contents of a load, which are complete up to the watermark, and answers requests
    /// from them. Returns what is left of them if the resource was removed meanwhile.
    pub(crate) fn join(&self, loaded: Contents) -> Option<ContentsRemains> {
        {
            let mut state = self.state.write();
            if state.is_removed {
                return Some(loaded.into_remains());
            }
            // The remains are empty, because the contents were discarded before.
            drop(state.contents.replace_with(loaded));
            state.is_current = true;
        }
        self.counters.initializations.add(1);
        self.ready.set(Readiness::Ready);
        None
    }

    /// Returns the newest known revision of the previous store if the store was replaced and only
    /// the previous store can have had `revision`: the previous store had reached it, and the cache
    /// has no such revision of the current store yet.
    pub(crate) fn replaced_at(&self, revision: Revision) -> Option<Revision> {
        let state = self.state.read();
        let (known, _) = state.replaced.1?;
        (revision <= known && revision > self.newest(&state)).then_some(known)
    }

    /// Applies changes that arrived at the time `arrived`, and appends to `to_wake` the watchers to
    /// wake after the revision is published (WC-113). Ignores them before a load has begun, because
    /// it will read them. Objects are decoded before the lock is taken,
    /// and evicted events are freed after it is released.
    pub(crate) fn apply(
        &self,
        changes: Vec<Change>,
        arrived: Duration,
        to_wake: &mut Vec<Arc<Waiter>>,
    ) {
        let decoder = self.decoder();
        let decode = |change| DecodedChange::of(change, &decoder);
        let changes: Vec<_> = changes.into_iter().map(decode).collect();
        self.counters.events_received.add(changes.len() as u64);
        let now = self.shared.timers.now();
        let to_wake_before = to_wake.len();
        let (mut dispatched, mut examined) = (0, 0);
        let mut capacity = (0, 0);
        let (evicted, dropped, oldest) = {
            let mut state = self.state.write();
            if !state.is_current {
                return;
            }
            let contents = &mut state.contents;
            let checkpoint = contents.add_checkpoint();
            capacity.0 = contents.window.capacity();
            let interests = self.interests.lock();
            for change in changes {
                let Some((number, event)) = contents.apply(&self.indexes, change, arrived, now)
                else {
                    continue;
                };
                let before = to_wake.len();
                let versions = [event.old.as_deref(), event.new.as_deref()];
                examined += interests.mark_pending(number, versions, &self.indexes, to_wake);
                dispatched += u64::from(to_wake.len() > before);
            }
            let evicted = contents.evict(now);
            capacity.1 = contents.window.capacity();
            (evicted, checkpoint, contents.window.oldest_start())
        };
        if !evicted.0.is_empty() {
            // Snapshots of these revisions would keep the objects of evicted events in memory.
            let removed = self.exact_snapshots.lock().remove_below(oldest);
            drop(removed);
        }
        drop((evicted, dropped));
        self.counters
            .storage_to_cache_seconds
            .observe_since(arrived, now);
        let (before, after) = capacity;
        self.counters
            .capacity_increases
            .add(u64::from(after > before));
        self.counters
            .capacity_decreases
            .add(u64::from(after < before));
        self.counters.events_dispatched.add(dispatched);
        self.counters.watchers_examined.add(examined);
        self.counters
            .watchers_woken
            .add((to_wake.len() - to_wake_before) as u64);
    }

    /// Registers a watcher between two batches of the feeder (WC-120). Returns `None` if the watches of
    /// its series have ended.
    pub(crate) fn register(
        &self,
        target: &Target,
        start: WatchStart,
        series: u64,
    ) -> Result<Option<Registration>, RequestError> {
        let interest = interest_of(
            &target.filter,
            target.namespace.as_deref(),
            target.name.as_deref(),
            &self.indexes,
        );
        let waiter = Arc::new(Waiter::of_series(series));
        let state = self.state.read();
        // Checked under the lock: the readiness changes before the state is replaced, so no watcher
        // starts with objects that will be discarded.
        self.check_ready()?;
        if !state.is_current {
            // A consistency check has just found a difference, or the resource is stopped.
            return Err(RequestError::NotReady {
                cause: None,
                retry_after_seconds: 1,
            });
        }
        let (first_series, began) = state.series;
        if series < first_series {
            return Ok(None);
        }
        let newest = self.newest(&state);
        let Contents {
            objects, window, ..
        } = &state.contents;
        let (after, initial) = match start {
            WatchStart::CurrentObjects => (newest, Some(objects.iter_from(&target.scan.start))),
            WatchStart::After(after) => (after.unwrap_or(newest), None),
        };
        let oldest = window.oldest_start().max(began);
        if after < oldest {
            self.counters.expired_window.add(1);
            return Err(RequestError::Expired(Expired::Window {
                requested: after,
                oldest,
            }));
        }
        let first = window.after(after);
        waiter.set_pending(Some(first).filter(|first| *first < window.end()));
        // Still under the state lock, so that the feeder cannot apply a batch between the start of
        // the watcher and its registration.
        let interest_key = self.interests.lock().add(&interest, waiter.clone());
        Ok(Some(Registration {
            waiter,
            interest_key,
            generation: state.generation,
            after,
            initial,
        }))
    }

    /// Returns the oldest series whose watches go on.
    pub(crate) fn series(&self) -> u64 {
        self.state.read().series.0
    }

    /// Ends the watches of the series before `series`: they deliver the events that were applied before.
    /// Later watches start at the newest revision or later.
    // WC-118.
    pub(crate) fn end_series_before(&self, series: u64) {
        let to_wake: Vec<_> = {
            let mut state = self.state.write();
            if state.series.0 >= series {
                return;
            }
            state.series = (series, self.newest(&state));
            let end = state.contents.window.end();
            let interests = self.interests.lock();
            let earlier = interests.all().filter(|waiter| waiter.series < series);
            earlier
                .inspect(|waiter| waiter.end_before(end))
                .cloned()
                .collect()
        };
        for waiter in to_wake {
            waiter.waker.wake();
        }
    }

    /// Unregisters the watcher with this id. The last watcher of a removed resource frees its window.
    pub(crate) fn unregister(&self, interest_key: InterestKey, id: u64) {
        let is_last = {
            let mut interests = self.interests.lock();
            interests.remove(interest_key, id);
            interests.is_empty()
        };
        if is_last && self.ready.state() == Readiness::Removed {
            let mut state = self.state.write();
            if state.is_removed && self.interests.lock().is_empty() {
                let events = state.contents.window.clear();
                drop(state);
                drop(events);
            }
        }
    }

    /// Returns the next events for a watcher that was registered in `generation` and delivers the
    /// events after `after`.
    pub(crate) fn refill(&self, waiter: &Waiter, generation: u64, after: Revision) -> Refill {
        // Loaded before the lock is taken, so that events applied before the stop are still
        // delivered.
        let stopped = self.shared.is_stopped();
        let state = self.state.read();
        let watermark = self.shared.watermark.load();
        if state.generation != generation {
            let (first_generation, replacement) = &state.replaced;
            return match replacement {
                Some((known, found)) if generation < *first_generation => {
                    Refill::Replaced(*known, *found)
                }
                _ => Refill::Reloaded,
            };
        }
        let end = waiter.end();
        let is_before_end = |event: &u64| end.is_none_or(|end| *event < end);
        let Some(from) = waiter.pending().filter(is_before_end) else {
            return if state.is_removed || end.is_some() {
                Refill::Ended
            } else if stopped {
                Refill::Stopping(watermark)
            } else {
                Refill::Idle(watermark)
            };
        };
        let window = &state.contents.window;
        let oldest = window.oldest_start();
        // If `after` is a future revision, the watcher does not need the evicted events up to it
        // (WC-315).
        if from < window.first() && after < oldest {
            return Refill::Evicted(oldest);
        }
        let from = from.max(window.first());
        // The end is between two revisions.
        let until_end = end.map_or(u64::MAX, |end| end.saturating_sub(from));
        let count = usize::try_from(until_end).unwrap_or(usize::MAX);
        let events = window.copy(from, count.min(COPY_EVENTS_MAX));
        let next = from + events.len() as u64;
        let at_end = next >= window.end();
        waiter.set_pending((!at_end).then_some(next));
        let last = events.last().map_or(watermark, |event| event.revision);
        let through = if at_end { last.max(watermark) } else { last };
        Refill::Events(events, through)
    }

    pub(crate) fn encoded_bytes(&self) -> &AtomicI64 {
        &self.encoded_bytes
    }

    /// Stops the resource. Its watchers deliver their remaining events and a last bookmark, then end
    /// (WC-145).
    pub(crate) fn stop(&self) {
        self.ready.set(Readiness::Stopped);
        let to_wake: Vec<_> = self.interests.lock().all().cloned().collect();
        for waiter in to_wake {
            waiter.waker.wake();
        }
    }

    /// Returns whether there are watchers.
    pub(crate) fn is_watched(&self) -> bool {
        !self.interests.lock().is_empty()
    }

    /// Removes the resource from use: its watchers deliver their remaining events, then end, and
    /// requests fail with [`RequestError::Removed`]. Returns what is left of the objects, or `None` if
    /// the resource was removed before.
    ///
    /// No watcher delivers a bookmark from now on: the watermark moves on without the changes of this
    /// resource.
    pub(crate) fn remove(&self) -> Option<ContentsRemains> {
        self.ready.set(Readiness::Removed);
        let (to_wake, remains, events): (Vec<_>, _, _) = {
            let mut state = self.state.write();
            if std::mem::replace(&mut state.is_removed, true) {
                return None;
            }
            state.is_current = false;
            self.exact_snapshots.lock().clear();
            let remains = state.contents.take_objects();
            let interests = self.interests.lock();
            let to_wake: Vec<_> = interests.all().cloned().collect();
            let events = to_wake.is_empty().then(|| state.contents.window.clear());
            (to_wake, remains, events)
        };
        drop(events);
        for waiter in to_wake {
            waiter.waker.wake();
        }
        Some(remains)
    }

    pub(crate) fn metrics(&self) -> ResourceMetrics {
        let number = |revision: Revision| u64::try_from(revision.0).unwrap_or_default();
        let now = self.shared.timers.now();
        let state = self.state.read();
        let Contents {
            objects, window, ..
        } = &state.contents;
        let end = window.end();
        let mut lags: Vec<u64> = {
            let interests = self.interests.lock();
            let lag = |waiter: &Arc<Waiter>| waiter.pending().map_or(0, |event| end - event);
            interests.all().map(lag).collect()
        };
        lags.sort_unstable();
        let watchers = lags.len();
        let lag = |position: usize| lags.get(position).copied().unwrap_or_default();
        let oldest = window.oldest_time();
        let age = oldest.map(|arrived| now.saturating_sub(arrived));
        ResourceMetrics {
            resource_version: number(self.newest(&state)),
            window_capacity: window.capacity() as u64,
            window_events: window.len() as u64,
            window_bytes: window.bytes() as u64,
            oldest_watchable: number(window.oldest_start().next()),
            oldest_event_age_ms: age
                .map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
            watchers: watchers as u64,
            watcher_lag_max: lag(watchers.saturating_sub(1)),
            watcher_lag_p99: lag((watchers * 99 / 100).min(watchers.saturating_sub(1))),
            objects: objects.len() as u64,
            checkpoints: state.contents.checkpoints.len() as u64,
            object_bytes: state.contents.object_bytes,
            ..self.counters.read()
        }
    }
}

#[cfg(test)]
mod tests {
    use revstore_engine::{Engine, ManualClock};

    use super::*;
    use crate::api::keys::Scope;
    use crate::cache::config::ResourceConfig;
    use crate::cache::shared::CacheSettings;
    use crate::encode::json::JsonKind;
    use crate::selector::Selector;
    use crate::source::EngineSource;

    #[test]
    fn wc_120_no_watcher_is_registered_while_the_state_is_being_replaced() {
        let clock = Arc::new(ManualClock::new());
        let source = Arc::new(EngineSource::new(Engine::builder().build()));
        let shared = Arc::new(CacheShared::new(source, clock, CacheSettings::default()));
        let config = ResourceConfig::namespaced(JsonKind::new("v1", "Pod"), "pods", "/pods");
        let pods = Resource::new(config, shared).unwrap();
        let decoder = pods.decoder();
        let target = Target::new(&decoder, &Scope::All, &Selector::default(), true).unwrap();
        let mut contents = Contents::new(pods.config.window, &pods.indexes);
        contents.set_loaded(Revision(7));
        pods.join(contents);
        let registered = pods.register(&target, WatchStart::CurrentObjects, 0);
        assert!(registered.unwrap().is_some());
        // A request on another thread may have checked the readiness just before the replacement of
        // the store was detected.
        pods.ready.set(Readiness::Pending {
            since: Duration::ZERO,
            cause: None,
        });
        for start in [
            WatchStart::CurrentObjects,
            WatchStart::After(Some(Revision(7))),
        ] {
            let error = pods.register(&target, start, 0).unwrap_err();
            assert_eq!(error.code(), 429);
        }
    }
}
