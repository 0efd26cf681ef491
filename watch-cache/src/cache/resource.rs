//! One resource type in the cache: current objects, window, watchers.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use revstore_engine::Revision;

use crate::api::status::{Expired, RequestError};
use crate::api::target::Target;
use crate::cache::config::ResourceConfig;
use crate::cache::interest::{Interests, Listed, interest_of};
use crate::cache::objects::index::{Index, IndexPlace, Indexed};
use crate::cache::objects::snapshot::Snapshot;
use crate::cache::objects::tree::{Tree, Walk};
use crate::cache::readiness::{Readiness, Ready};
use crate::cache::shared::Core;
use crate::cache::window::{LogEvent, Window};
use crate::encode::object::{Entry, Reader};
use crate::metrics::{Counters, Metrics};
use crate::selector::FieldPlace;
use crate::source::Change;
use crate::wake::subscriber::Signal;

/// A resource's cache: one feeder writes, any number of readers and watchers follow.
///
/// Locks, in the order in which they may be taken: `state`, then `interests`, or that in `ready`.
/// None is held while objects are read, filtered or encoded, nor while anybody is woken.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) config: ResourceConfig,
    pub(crate) indexes: Vec<IndexPlace>,
    pub(crate) core: Arc<Core>,
    pub(crate) ready: Ready,
    pub(crate) counters: Counters,
    frame_bytes: Arc<AtomicI64>,
    /// Guards objects and window. Readers hold it to take a pointer, watchers to copy a bounded
    /// number of events, the feeder to apply one batch.
    state: RwLock<State>,
    /// Guards who is woken by what. Held for one look or change.
    interests: Mutex<Interests>,
}

#[derive(Debug)]
struct State {
    objects: Tree<Arc<Entry>>,
    by_index: Vec<Tree<Indexed>>,
    /// Of the keys and values of `objects`.
    object_bytes: u64,
    /// Those of `objects` that cannot be read: no index knows where they belong.
    unreadable: usize,
    window: Window,
    /// Counts loads: a watcher of an earlier one ends (WC-115).
    generation: u64,
    /// The first generation of this store, and if there was another one before, at which revision it
    /// was known to be and this one was found.
    replaced: (u64, Option<(Revision, Revision)>),
    /// What was loaded; changes up to it are in the objects already.
    loaded: Revision,
    /// The revision of the last change.
    last: Revision,
}

/// Where a new watcher begins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Begin {
    /// With the present objects.
    State,
    /// After a revision, or after the newest one that the cache has.
    After(Option<Revision>),
}

/// A watcher that the feeder knows of.
#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) signal: Arc<Signal>,
    pub(crate) listed: Listed,
    pub(crate) generation: u64,
    /// Everything up to here is known to the watcher, or part of its initial objects.
    pub(crate) after: Revision,
    pub(crate) initial: Option<Walk<Arc<Entry>>>,
}

/// What a watcher finds when it looks for more.
#[derive(Debug)]
pub(crate) enum Refill {
    /// Whole revisions, and the revision up to which they are complete.
    Events(Vec<Arc<LogEvent>>, Revision),
    /// Nothing; the watcher knows everything up to this revision.
    Idle(Revision),
    /// As `Idle`, and the cache stops.
    Stopping(Revision),
    /// What the watcher needs has left the window; it could start after this revision.
    Lost(Revision),
    /// The cache was loaded anew.
    Closed,
    /// The store was replaced: it was known to be at one revision and was found at another.
    Replaced(Revision, Revision),
}

/// Changes that are always worth taking back for a list at an earlier revision.
const UNDONE_MIN: usize = 1000;
/// Events that a watcher copies at once, rounded up to a whole revision.
const COPY_EVENTS: usize = 128;

impl Resource {
    pub(crate) fn new(config: ResourceConfig, core: Arc<Core>) -> Result<Self, RequestError> {
        let place = |index: &Index| match index {
            Index::Label(key) => Ok(IndexPlace::Label(key.clone())),
            Index::Field(field) => FieldPlace::of(field, &*config.kind).map(IndexPlace::Field),
        };
        let indexes: Vec<IndexPlace> =
            config.indexes.iter().map(place).collect::<Result<_, _>>()?;
        let window = Window::new(config.window, Revision(0));
        let state = State {
            objects: Tree::default(),
            by_index: indexes.iter().map(|_| Tree::default()).collect(),
            object_bytes: 0,
            unreadable: 0,
            generation: 0,
            replaced: (0, None),
            loaded: Revision(0),
            last: Revision(0),
            window,
        };
        let frame_bytes = state.window.frame_counter().clone();
        Ok(Self {
            ready: Ready::new(core.timers.now()),
            counters: Counters::default(),
            frame_bytes,
            state: RwLock::new(state),
            interests: Mutex::new(Interests::default()),
            indexes,
            config,
            core,
        })
    }

    pub(crate) fn reader(&self) -> Reader {
        self.config.reader()
    }

    /// WC-131: whether the cache came to `revision` in time.
    pub(crate) async fn fresh(&self, revision: Revision) -> Result<(), RequestError> {
        let core = &self.core;
        let began = core.timers.now();
        let nudge = || core.source.request_progress();
        let limit = core.settings.freshness_wait;
        let in_time = core
            .watermark
            .reached(revision, limit, &core.timers, nudge)
            .await;
        self.counters.read_wait_us.since(began, core.timers.now());
        if in_time {
            return Ok(());
        }
        Err(RequestError::TooLarge {
            asked: revision,
            current: core.watermark.load(),
        })
    }

    /// Refuses unless the cache can be served from.
    pub(crate) fn check_ready(&self) -> Result<(), RequestError> {
        self.ready.check(self.core.timers.now())
    }

    /// The objects as they are now. Takes pointers under the lock, and nothing else.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let state = self.state.read();
        Snapshot {
            revision: self.newest(&state),
            objects: state.objects.clone(),
            by_index: match state.unreadable {
                0 => state.by_index.clone(),
                _ => Vec::new(),
            },
        }
    }

    /// The objects as they were at a revision that the window reaches back to: what happened since
    /// is taken back from a copy, which costs O(changes) and no look at stored bytes. Nothing if the
    /// window does not, or if that is more work than reading the objects, `limit` of them, anew.
    pub(crate) fn snapshot_at(&self, at: Revision, limit: Option<usize>) -> Option<Snapshot> {
        let (mut objects, since) = {
            let state = self.state.read();
            if at < state.window.oldest_start() || at > self.newest(&state) {
                return None;
            }
            let from = state.window.after(at);
            let changes = usize::try_from(state.window.end() - from).ok()?;
            let read = limit.unwrap_or(state.objects.len());
            if changes > UNDONE_MIN.max(2 * read) {
                return None;
            }
            (state.objects.clone(), state.window.copy(from, changes))
        };
        for event in since.iter().rev() {
            match (&event.old, &event.new) {
                (Some(old), _) => drop(objects.insert(old.clone())),
                (None, Some(new)) => drop(objects.remove(new.key())),
                (None, None) => {}
            }
        }
        Some(Snapshot {
            revision: at,
            objects,
            by_index: Vec::new(),
        })
    }

    /// The revision up to which a state that is locked has everything. What is published was applied
    /// before, under the same lock, so it is in this state; and the watermark moves back only before
    /// a state is replaced (INV-1).
    fn newest(&self, state: &State) -> Revision {
        self.core.watermark.load().max(state.last).max(state.loaded)
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Arc<Entry>> {
        self.state.read().objects.get(key).cloned()
    }

    /// WC-115: takes a new state as it was at a revision. Watchers end without a word.
    pub(crate) fn replace(&self, revision: Revision, entries: Vec<Arc<Entry>>) {
        let mut objects = Tree::default();
        let mut by_index: Vec<Tree<Indexed>> =
            self.indexes.iter().map(|_| Tree::default()).collect();
        let (mut object_bytes, mut unreadable) = (0, 0);
        for entry in entries {
            object_bytes += entry.stored_bytes();
            unreadable += usize::from(entry.fault().is_some());
            index(&self.indexes, &mut by_index, None, Some(&entry));
            objects.insert(entry);
        }
        let (woken, old) = {
            let mut state = self.state.write();
            let old = std::mem::replace(&mut state.objects, objects);
            let old = (old, std::mem::replace(&mut state.by_index, by_index));
            state.object_bytes = object_bytes;
            state.unreadable = unreadable;
            state.window.reset(revision);
            state.generation += 1;
            state.loaded = revision;
            state.last = revision;
            let woken: Vec<_> = self.interests.lock().all().cloned().collect();
            (woken, old)
        };
        drop(old);
        self.counters.initializations.add(1);
        for signal in woken {
            signal.waker.wake();
        }
    }

    /// The store was replaced: what is cached is none of it. Watchers are told so, because what they
    /// know may not be in its history at all.
    pub(crate) fn forget(&self, known: Revision, found: Revision) {
        let woken: Vec<_> = {
            let mut state = self.state.write();
            state.generation += 1;
            state.replaced = (state.generation, Some((known, found)));
            self.interests.lock().all().cloned().collect()
        };
        self.counters.replacements.add(1);
        for signal in woken {
            signal.waker.wake();
        }
    }

    /// If the store was replaced, the revision that the one before was known to be at, provided that
    /// a revision is one of its: not after that, and after all that the cache has of this one.
    pub(crate) fn known_before(&self, revision: Revision) -> Option<Revision> {
        let state = self.state.read();
        let (known, _) = state.replaced.1?;
        (revision <= known && revision > self.newest(&state)).then_some(known)
    }

    /// Applies changes that arrived at a time, and appends to `woken` whom to wake once the revision
    /// is published (WC-113). Objects are read before the lock is taken, what is evicted is freed
    /// after it.
    pub(crate) fn apply(
        &self,
        changes: Vec<Change>,
        arrived: Duration,
        woken: &mut Vec<Arc<Signal>>,
    ) {
        let reader = self.reader();
        let read = |change: Change| {
            let new = change.new.map(|stored| reader.read(stored));
            (change.key, change.revision, new)
        };
        let changes: Vec<_> = changes.into_iter().map(read).collect();
        self.counters.events_received.add(changes.len() as u64);
        let now = self.core.timers.now();
        let already = woken.len();
        let mut dispatched = 0;
        let mut capacity = (0, 0);
        let evicted = {
            let mut state = self.state.write();
            let state = &mut *state;
            capacity.0 = state.window.capacity();
            let interests = self.interests.lock();
            for (key, revision, new) in changes {
                if revision <= state.loaded {
                    continue;
                }
                let old = match &new {
                    Some(new) => state.objects.insert(new.clone()),
                    None => state.objects.remove(&key),
                };
                state.last = revision;
                if old.is_none() && new.is_none() {
                    continue;
                }
                debug_assert!(
                    old.as_ref()
                        .is_none_or(|old| old.mod_revision() <= revision),
                    "INV-3: the state before an event is older than it"
                );
                index(
                    &self.indexes,
                    &mut state.by_index,
                    old.as_ref(),
                    new.as_ref(),
                );
                let bytes = |entry: &Option<Arc<Entry>>| {
                    entry.as_ref().map_or(0, |entry| entry.stored_bytes())
                };
                state.object_bytes = state.object_bytes + bytes(&new) - bytes(&old);
                let faults = |entry: &Option<Arc<Entry>>| {
                    usize::from(entry.as_ref().is_some_and(|entry| entry.fault().is_some()))
                };
                state.unreadable = state.unreadable + faults(&new) - faults(&old);
                let at = state.window.end();
                let before = woken.len();
                let states = [old.as_deref(), new.as_deref()];
                interests.note(at, states, &self.indexes, woken);
                dispatched += u64::from(woken.len() > before);
                let event = LogEvent::new(revision, arrived, new, old);
                state.window.append(event.applied(now));
            }
            let evicted = state.window.evict(now);
            capacity.1 = state.window.capacity();
            evicted
        };
        drop(evicted);
        self.counters.storage_to_cache_us.since(arrived, now);
        let (before, after) = capacity;
        self.counters
            .capacity_increases
            .add(u64::from(after > before));
        self.counters
            .capacity_decreases
            .add(u64::from(after < before));
        self.counters.events_dispatched.add(dispatched);
        self.counters
            .watchers_woken
            .add((woken.len() - already) as u64);
    }

    /// WC-120: registers a watcher, at one point between two batches of the feeder.
    pub(crate) fn register(
        &self,
        target: &Target,
        begin: Begin,
    ) -> Result<Registered, RequestError> {
        let interest = interest_of(
            &target.filter,
            target.namespace.as_deref(),
            target.name.as_deref(),
            &self.indexes,
        );
        let signal = Arc::new(Signal::new());
        let state = self.state.read();
        // Under the lock: a cache that is to be loaded anew says so before its state changes, so a
        // state that is to be forgotten is told to nobody as the present one.
        self.check_ready()?;
        let newest = self.newest(&state);
        let (after, initial) = match begin {
            Begin::State => (newest, Some(state.objects.walk(&target.scan.start))),
            Begin::After(after) => (after.unwrap_or(newest), None),
        };
        let oldest = state.window.oldest_start();
        if after < oldest {
            self.counters.expired_window.add(1);
            return Err(RequestError::Expired(Expired::Window {
                asked: after,
                oldest,
            }));
        }
        let first = state.window.after(after);
        signal.set_pending(Some(first).filter(|first| *first < state.window.end()));
        // Still under the state lock: the feeder comes before or after, never between.
        let listed = self.interests.lock().add(&interest, signal.clone());
        Ok(Registered {
            signal,
            listed,
            generation: state.generation,
            after,
            initial,
        })
    }

    pub(crate) fn unregister(&self, listed: Listed, id: u64) {
        self.interests.lock().remove(listed, id);
    }

    /// What comes next for a watcher that wants nothing up to `after`.
    pub(crate) fn refill(&self, signal: &Signal, generation: u64, after: Revision) -> Refill {
        // Before the lock: what was applied before the stop is seen.
        let stopped = self.core.is_stopped();
        let state = self.state.read();
        let watermark = self.core.watermark.load();
        if state.generation != generation {
            let (since, why) = &state.replaced;
            return match why {
                Some((known, found)) if generation < *since => Refill::Replaced(*known, *found),
                _ => Refill::Closed,
            };
        }
        let Some(from) = signal.pending() else {
            return if stopped {
                Refill::Stopping(watermark)
            } else {
                Refill::Idle(watermark)
            };
        };
        let oldest = state.window.oldest_start();
        // What left from before a start in the future was not for it (WC-315).
        if from < state.window.first() && after < oldest {
            return Refill::Lost(oldest);
        }
        let from = from.max(state.window.first());
        let events = state.window.copy(from, COPY_EVENTS);
        let next = from + events.len() as u64;
        let at_end = next >= state.window.end();
        signal.set_pending((!at_end).then_some(next));
        let last = events.last().map_or(watermark, |event| event.revision);
        let through = if at_end { last.max(watermark) } else { last };
        Refill::Events(events, through)
    }

    pub(crate) fn frame_sum(&self) -> &AtomicI64 {
        &self.frame_bytes
    }

    /// Ends the cache: who watches is told what is left, gets a last bookmark, and ends (WC-145).
    pub(crate) fn stop(&self) {
        self.ready.set(Readiness::Stopped);
        let woken: Vec<_> = self.interests.lock().all().cloned().collect();
        for signal in woken {
            signal.waker.wake();
        }
    }

    pub(crate) fn metrics(&self) -> Metrics {
        let number = |revision: Revision| u64::try_from(revision.0).unwrap_or_default();
        let now = self.core.timers.now();
        let state = self.state.read();
        let end = state.window.end();
        let mut lags: Vec<u64> = {
            let interests = self.interests.lock();
            let behind = |signal: &Arc<Signal>| signal.pending().map_or(0, |at| end - at);
            interests.all().map(behind).collect()
        };
        lags.sort_unstable();
        let watchers = lags.len();
        let lag = |place: usize| lags.get(place).copied().unwrap_or_default();
        let age = state.window.oldest_time().map(|at| now.saturating_sub(at));
        Metrics {
            resource_version: number(self.newest(&state)),
            window_capacity: state.window.capacity() as u64,
            window_events: state.window.len() as u64,
            window_bytes: state.window.bytes() as u64,
            oldest_watchable: number(state.window.oldest_start().next()),
            oldest_event_age_ms: age
                .map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
            watchers: watchers as u64,
            cursor_lag_max: lag(watchers.saturating_sub(1)),
            cursor_lag_p99: lag((watchers * 99 / 100).min(watchers.saturating_sub(1))),
            objects: state.objects.len() as u64,
            object_bytes: state.object_bytes,
            ..self.counters.read()
        }
    }
}

/// Moves an object from where it was in the indexes to where it is.
fn index(
    indexes: &[IndexPlace],
    trees: &mut [Tree<Indexed>],
    old: Option<&Arc<Entry>>,
    new: Option<&Arc<Entry>>,
) {
    for (index, tree) in indexes.iter().zip(trees) {
        let value = |entry: &Arc<Entry>| index.value(entry).unwrap_or_default().to_owned();
        let (from, to) = (old.map(value), new.map(value));
        if let (Some(old), Some(from)) = (old, &from)
            && to.as_ref() != Some(from)
        {
            tree.remove(&Indexed::place(from, old.key()));
        }
        if let (Some(new), Some(to)) = (new, &to) {
            tree.insert(Indexed::new(to, new.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use revstore_engine::{Engine, ManualClock};

    use super::*;
    use crate::api::keys::Scope;
    use crate::cache::config::ResourceConfig;
    use crate::cache::shared::Settings;
    use crate::selector::Selector;
    use crate::source::EngineSource;

    #[test]
    fn wc_120_nobody_is_registered_while_the_state_is_to_be_replaced() {
        let clock = Arc::new(ManualClock::new());
        let source = Arc::new(EngineSource::new(Engine::builder().build()));
        let settings = Settings {
            freshness_wait: Duration::ZERO,
            bookmark_period: Duration::ZERO,
            future_grace: None,
            honor_limit_at_rv0: false,
            consistency_interval: None,
        };
        let core = Arc::new(Core::new(source, clock, settings));
        let config = ResourceConfig::namespaced("", "pods", "/pods");
        let pods = Resource::new(config, core).unwrap();
        let reader = pods.reader();
        let target = Target::new(&reader, &Scope::All, &Selector::default(), true).unwrap();
        pods.replace(Revision(7), Vec::new());
        pods.ready.set(Readiness::Ready);
        assert!(pods.register(&target, Begin::State).is_ok());
        // Another thread may be between its look whether the cache is ready and this, when the store
        // turns out to be another one.
        pods.ready.set(Readiness::Pending {
            since: Duration::ZERO,
            cause: None,
        });
        for begin in [Begin::State, Begin::After(Some(Revision(7)))] {
            let refused = pods.register(&target, begin).unwrap_err();
            assert_eq!(refused.code(), 429);
        }
    }
}
