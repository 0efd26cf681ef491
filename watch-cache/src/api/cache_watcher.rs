//! Watchers: streams of events, which read from the window of a resource. Corresponds to Kubernetes'
//! `cacheWatcher`, without its input channel.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;

use crate::api::event::WatchEvent;
use crate::api::initial_objects::InitialObjects;
use crate::api::live_watch::LiveWatch;
use crate::api::starting_watch::StartingWatch;
use crate::api::status::RequestError;
use crate::api::target::Target;
use crate::cache::resource::{Registration, Resource};
use crate::encode::encoder::encode_event;
use crate::encode::form::RegisteredForm;
use crate::selector::ObjectFilter;
use crate::wake::Waiter;

/// A watcher of a resource: the stream of [`WatchEvent`]s of one watch request. Created by
/// [`ResourceCache::watch`](crate::ResourceCache::watch).
///
/// # Guarantees
/// - The stream contains every matching change after the start, once, in revision order. If events
///   are lost, it contains a [`WatchEvent::Error`] with code 410 instead, and ends.
/// - A bookmark at revision r follows every matching change up to r, and is never between two
///   changes of one revision.
/// - All events of a revision become ready together: a caller that writes events until the stream is
///   pending, then flushes, flushes whole revisions.
///
/// # Cost
/// A watcher stores a position and a filter, less than 1 KiB, and no queue of events. It is woken for
/// events that match its scope or an index, and copies up to 128 pointers to events at a time. A slow
/// client slows neither the cache nor other watchers: its watcher lags, until the window no longer
/// contains its next event.
///
/// Dropping the watcher unregisters it.
///
/// ```
/// use std::sync::Arc;
/// use revstore_engine::Engine;
/// use pollster::block_on;
/// use revstore_watch_cache::{
///     EngineSource, JsonKind, ResourceConfig, Scope, WatchCache, WatchOptions,
/// };
///
/// let engine = Engine::builder().build();
/// let (cache, feeder) = WatchCache::builder(Arc::new(EngineSource::new(engine.clone()))).build();
/// let kind = JsonKind::new("v1", "Pod");
/// let pods = cache.add(ResourceConfig::namespaced(kind, "pods", "/pods"))?;
/// let _running = feeder.spawn();
/// block_on(pods.wait_until_ready())?;
///
/// let after = WatchOptions::default().resource_version("1");
/// let mut watcher = block_on(pods.watch(&Scope::All, &after))?;
/// assert!(watcher.try_next().is_none(), "no events yet");
/// engine.put("/pods/ns/a", r#"{"metadata":{"name":"a"}}"#)?;
/// let event = watcher.next_blocking().expect("the watcher has not ended");
/// assert_eq!(
///     &watcher.encode(&event)[..],
///     b"{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"resourceVersion\":\"2\",\"name\":\"a\"}}}\n"
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// WC-124, WC-140, WC-311, WC-321, WC-343.
pub struct CacheWatcher {
    watched: Watched,
    state: State,
}

/// What a watcher watches. Does not change after its start.
pub(crate) struct Watched {
    pub(crate) resource: Arc<Resource>,
    /// The form of [`CacheWatcher::encode`].
    form: RegisteredForm,
    pub(crate) filter: ObjectFilter,
    pub(crate) waiter: Arc<Waiter>,
}

impl Watched {
    fn new(resource: Arc<Resource>, filter: ObjectFilter, waiter: Arc<Waiter>) -> Self {
        Self {
            form: resource.default_form(),
            resource,
            filter,
            waiter,
        }
    }
}

/// The state of a watcher.
///
/// ```text
/// Starting ──revision reached──▶ Initial ──last object──▶ Live ──deadline, stop, reload──▶ Ended
///     └──────────error──────────────┴───────error───────────┴───error──▶ Failed ──delivered──▶ Ended
/// ```
enum State {
    /// Waits for the revision at which it starts.
    Starting(Box<StartingWatch>),
    /// Delivers the current objects.
    Initial(Box<InitialObjects>),
    /// Delivers the events of the window.
    Live(LiveWatch),
    /// Delivers an error, as its last event (WC-335). A watch that cannot start begins in this state
    /// (WC-305).
    Failed(Box<RequestError>),
    /// Delivers nothing.
    Ended,
}

impl State {
    /// Returns the state after a registration.
    fn of(
        resource: &Resource,
        registration: Registration,
        end: Bytes,
        bookmarks: bool,
        timeout: Option<Duration>,
    ) -> Self {
        let live = LiveWatch::new(resource, &registration, bookmarks, timeout);
        match registration.initial {
            Some(objects) => {
                let began = resource.shared.timers.now();
                let initial = InitialObjects::new(objects, end, began, live);
                Self::Initial(Box::new(initial))
            }
            None => Self::Live(live),
        }
    }
}

/// What a watcher does next, as its state decides.
pub(crate) enum Step {
    /// Start with the state of a registration.
    Start(Box<Registration>),
    /// Deliver an event.
    Deliver(WatchEvent),
    /// Take a further step.
    Continue,
    /// Deliver the bookmark after the last initial object, if there is one, and become live.
    BecomeLive(Option<WatchEvent>),
    /// Wait until the task is woken.
    Wait,
    /// Let other tasks run.
    Yield,
    /// Fail with an error.
    Fail(RequestError),
    /// End, after a last bookmark if there is one.
    End(Option<WatchEvent>),
}

/// The maximum number of chunks without a matching event that one poll examines before it yields to
/// other tasks.
const POLL_CHUNKS_MAX: usize = 64;

impl fmt::Debug for CacheWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (state, live) = match &self.state {
            State::Starting(_) => ("starting", None),
            State::Initial(initial) => ("initial", Some(&initial.live)),
            State::Live(live) => ("live", Some(live)),
            State::Failed(_) => ("failed", None),
            State::Ended => ("ended", None),
        };
        f.debug_struct("CacheWatcher")
            .field("state", &state)
            .field("start", &live.map(|live| live.start.0))
            .field("through", &live.map(|live| live.through.0))
            .finish_non_exhaustive()
    }
}

impl CacheWatcher {
    pub(crate) fn new(
        resource: Arc<Resource>,
        target: Target,
        registration: Registration,
        bookmarks: bool,
        timeout: Option<Duration>,
    ) -> Self {
        let waiter = registration.waiter.clone();
        Self {
            state: State::of(&resource, registration, target.scan.end, bookmarks, timeout),
            watched: Watched::new(resource, target.filter, waiter),
        }
    }

    /// Returns a watcher that starts later.
    pub(crate) fn starting(
        resource: Arc<Resource>,
        filter: ObjectFilter,
        start: StartingWatch,
    ) -> Self {
        Self {
            watched: Watched::new(resource, filter, Arc::new(Waiter::new())),
            state: State::Starting(Box::new(start)),
        }
    }

    /// Returns a watcher that has ended.
    pub(crate) fn ended(resource: Arc<Resource>, target: Target) -> Self {
        Self {
            watched: Watched::new(resource, target.filter, Arc::new(Waiter::new())),
            state: State::Ended,
        }
    }

    /// Returns a watcher that delivers `error` and ends (WC-305).
    pub(crate) fn failed(resource: Arc<Resource>, target: Target, error: RequestError) -> Self {
        Self {
            watched: Watched::new(resource, target.filter, Arc::new(Waiter::new())),
            state: State::Failed(Box::new(error)),
        }
    }

    /// Encodes an event for a client in the default form: as one line of JSON if the kind is a
    /// [`JsonKind`](crate::JsonKind). An event of the window is encoded once, when a watcher first
    /// needs it; the other watchers share the bytes. For other forms see
    /// [`ResourceCache::encoder`](crate::ResourceCache::encoder).
    // WC-142, WC-331.
    pub fn encode(&self, event: &WatchEvent) -> Bytes {
        encode_event(&self.watched.resource, &self.watched.form, event, false)
    }

    /// Returns the next event, or `None` if no event is ready or the watcher has ended.
    pub fn try_next(&mut self) -> Option<WatchEvent> {
        let mut context = Context::from_waker(std::task::Waker::noop());
        for _ in 0..POLL_CHUNKS_MAX {
            loop {
                if let Poll::Ready(event) = self.poll(&mut context) {
                    return event;
                }
                if !matches!(self.state, State::Initial(_)) {
                    break;
                }
            }
            // If no event is pending, the poll has examined all events; otherwise it has yielded.
            self.watched.waiter.pending()?;
        }
        None
    }

    /// Returns false if no event is ready, as far as can be seen without a lock; a later event, a bookmark and the end of the
    /// watcher are found only by polling it. A caller that has events to send asks before it polls again for more of them,
    /// which costs several times as much. It polls once more in the end, so that it is woken.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use revstore_engine::Engine;
    /// use pollster::block_on;
    /// use revstore_watch_cache::{
    ///     EngineSource, JsonKind, ResourceConfig, Scope, WatchCache, WatchOptions,
    /// };
    ///
    /// let engine = Engine::builder().build();
    /// let (cache, feeder) = WatchCache::builder(Arc::new(EngineSource::new(engine.clone()))).build();
    /// let kind = JsonKind::new("v1", "Pod");
    /// let pods = cache.add(ResourceConfig::namespaced(kind, "pods", "/pods"))?;
    /// let _running = feeder.spawn();
    /// block_on(pods.wait_until_ready())?;
    ///
    /// let after = WatchOptions::default().resource_version("1");
    /// let mut watcher = block_on(pods.watch(&Scope::All, &after))?;
    /// assert!(!watcher.may_be_ready());
    /// engine.put("/pods/ns/a", r#"{"metadata":{}}"#)?;
    /// let second = engine.put("/pods/ns/b", r#"{"metadata":{}}"#)?;
    /// block_on(pods.wait_until_fresh(second.revision))?;
    /// assert!(watcher.may_be_ready());
    /// watcher.next_blocking();
    /// assert!(watcher.may_be_ready(), "the second event");
    /// watcher.next_blocking();
    /// assert!(!watcher.may_be_ready());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn may_be_ready(&self) -> bool {
        match &self.state {
            State::Starting(_) | State::Initial(_) | State::Failed(_) => true,
            State::Live(live) => live.has_events(&self.watched),
            State::Ended => false,
        }
    }

    /// Blocks the thread until the next event is ready, and returns it. Returns `None` if the
    /// watcher has ended. Must not be called from an async task.
    pub fn next_blocking(&mut self) -> Option<WatchEvent> {
        pollster::block_on(std::future::poll_fn(|context| self.poll(context)))
    }

    /// Makes the next bookmark due now, of a live watch that [allows
    /// bookmarks](crate::WatchOptions::allow_bookmarks). Unlike a periodic one, it is also sent if nothing has happened
    /// since the start of the watch. Of other watches, nothing changes.
    ///
    /// The caller polls the watcher afterwards.
    pub fn request_bookmark(&mut self) {
        if let State::Live(live) = &mut self.state {
            live.request_bookmark(self.watched.resource.shared.timers.now());
        }
    }

    /// Sets the number under which the bookmarks and the end of the watcher are listed as pending work of its clock.
    pub fn set_number(&mut self, number: u64) {
        self.watched.waiter.set_number(number);
    }

    /// Leaves the events of the watcher for later, although its task was woken. A clock that waits for the tasks that it has
    /// woken does not wait for this one any longer.
    pub fn defer(&mut self) {
        let timers = &self.watched.resource.shared.timers;
        timers.settle(&self.watched.waiter);
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        for _ in 0..POLL_CHUNKS_MAX {
            let step = match &mut self.state {
                State::Starting(start) => match start.poll(context) {
                    Poll::Ready(Ok(Some(registration))) => Step::Start(Box::new(registration)),
                    Poll::Ready(Ok(None)) => Step::End(None),
                    Poll::Ready(Err(error)) => Step::Fail(error),
                    Poll::Pending => Step::Wait,
                },
                State::Live(live) => live.step(&self.watched, context),
                State::Initial(initial) => initial.step(&self.watched),
                State::Failed(_) => {
                    let State::Failed(error) = self.enter(State::Ended) else {
                        return Poll::Ready(None);
                    };
                    Step::Deliver(WatchEvent::Error(*error))
                }
                State::Ended => return Poll::Ready(None),
            };
            match step {
                Step::Deliver(event) => return Poll::Ready(Some(event)),
                Step::Continue => {}
                Step::Start(registration) => {
                    if let State::Starting(start) = self.enter(State::Ended) {
                        let resource = &self.watched.resource;
                        let number = self.watched.waiter.number();
                        registration.waiter.set_number(number);
                        self.watched.waiter = registration.waiter.clone();
                        let timeout = start.timeout(resource.shared.timers.now());
                        let bookmarks = start.bookmarks;
                        self.state =
                            State::of(resource, *registration, start.end, bookmarks, timeout);
                    }
                }
                Step::BecomeLive(bookmark) => {
                    if let State::Initial(initial) = self.enter(State::Ended) {
                        self.state = State::Live(initial.live);
                    }
                    if bookmark.is_some() {
                        return Poll::Ready(bookmark);
                    }
                }
                Step::Wait => return Poll::Pending,
                Step::Yield => break,
                Step::Fail(error) => self.leave(State::Failed(Box::new(error))),
                Step::End(last) => {
                    self.leave(State::Ended);
                    return Poll::Ready(last);
                }
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Changes the state, and returns the previous one.
    fn enter(&mut self, next: State) -> State {
        std::mem::replace(&mut self.state, next)
    }

    /// Unregisters the watcher and frees its memory, then changes the state.
    fn leave(&mut self, next: State) {
        match self.enter(next) {
            State::Initial(initial) => initial.live.unregister(&self.watched),
            State::Live(live) => live.unregister(&self.watched),
            State::Starting(_) | State::Failed(_) | State::Ended => {}
        }
    }
}

impl Drop for CacheWatcher {
    fn drop(&mut self) {
        self.leave(State::Ended);
    }
}

impl Stream for CacheWatcher {
    type Item = WatchEvent;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        self.get_mut().poll(context)
    }
}

#[cfg(test)]
mod tests {
    use revstore_engine::{Engine, ManualClock, Revision};

    use super::*;
    use crate::api::keys::Scope;
    use crate::cache::config::ResourceConfig;
    use crate::cache::contents::Contents;
    use crate::cache::readiness::Readiness;
    use crate::cache::resource::WatchStart;
    use crate::cache::shared::{CacheSettings, CacheShared};
    use crate::encode::json::JsonKind;
    use crate::selector::Selector;
    use crate::source::{Change, EngineSource, StoredKeyValue};

    #[test]
    fn wc_321_the_bookmark_of_a_stop_is_not_below_events_that_are_not_published_yet() {
        let clock = Arc::new(ManualClock::new());
        let source = Arc::new(EngineSource::new(Engine::builder().build()));
        let shared = Arc::new(CacheShared::new(source, clock, CacheSettings::default()));
        let config = ResourceConfig::namespaced(JsonKind::new("v1", "Pod"), "pods", "/pods");
        let pods = Arc::new(Resource::new(config, shared.clone()).unwrap());
        let decoder = pods.decoder();
        let target = Target::new(&decoder, &Scope::All, &Selector::default(), true).unwrap();
        let mut contents = Contents::new(pods.config.window, &pods.indexes);
        contents.set_loaded(Revision(1));
        pods.join(contents);
        shared.watermark.publish(Revision(1));
        pods.ready.set(Readiness::Ready);
        let start = WatchStart::After(Some(Revision(1)));
        let registration = pods.register(&target, start, 0).unwrap().unwrap();
        let mut watcher = CacheWatcher::new(pods.clone(), target, registration, true, None);

        let stored = StoredKeyValue {
            key: "/pods/ns/a".into(),
            value: "{\"metadata\":{}}".into(),
            create_revision: Revision(2),
            mod_revision: Revision(2),
        };
        let change = Change {
            key: stored.key.clone(),
            revision: Revision(2),
            new: Some(stored),
            previous: None,
        };
        // The stop comes before the feeder publishes the revision.
        pods.apply(vec![change], Duration::ZERO, &mut Vec::new());
        shared.stop();
        pods.stop();
        let events: Vec<_> = std::iter::from_fn(|| watcher.next_blocking()).collect();
        let received: Vec<_> = events
            .iter()
            .map(|event| (event.type_name(), event.revision().unwrap().0))
            .collect();
        assert_eq!(received, [("ADDED", 2), ("BOOKMARK", 2)]);
    }
}
