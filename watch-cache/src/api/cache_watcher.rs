//! Watchers: streams of events, which read from the window of a resource. Corresponds to Kubernetes'
//! `cacheWatcher`, without its input channel.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use revstore_engine::Revision;

use crate::api::event::{EventType, SharedEncoding, WatchEvent, visible_event};
use crate::api::status::{Expired, RequestError};
use crate::api::target::Target;
use crate::cache::interest::InterestKey;
use crate::cache::objects::tree::TreeIter;
use crate::cache::resource::{Refill, Registration, Resource};
use crate::cache::window::WindowEvent;
use crate::encode::object::{Object, StoredObject};
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
/// use revstore_watch_cache::{EngineSource, ResourceConfig, Scope, WatchCache, WatchOptions};
///
/// let engine = Engine::builder().build();
/// let (cache, feeder) = WatchCache::builder(Arc::new(EngineSource::new(engine.clone()))).build();
/// let pods = cache.add(ResourceConfig::namespaced("", "pods", "/pods"))?;
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
    resource: Arc<Resource>,
    filter: ObjectFilter,
    waiter: Arc<Waiter>,
    interest_key: Option<InterestKey>,
    generation: u64,
    /// The watcher delivers the events after this revision.
    after: Revision,
    /// All matching events up to this revision were delivered or are in `events`.
    through: Revision,
    /// All matching events up to this revision were delivered.
    sent_through: Revision,
    initial: Option<Box<InitialObjects>>,
    events: VecDeque<Arc<WindowEvent>>,
    bookmarks: bool,
    next_bookmark: Option<Duration>,
    deadline: Option<Duration>,
    /// The time at which a watcher that starts at a future revision fails, unless that revision is
    /// reached before (WC-316).
    future_deadline: Option<Duration>,
    /// The due time of the timer, if it is set.
    armed: Option<Duration>,
    failure: Option<Box<RequestError>>,
    ended: bool,
}

/// The current objects, which a watcher delivers first.
#[derive(Debug)]
struct InitialObjects {
    objects: TreeIter<Arc<StoredObject>>,
    /// The key at which the iteration ends.
    end: Bytes,
    /// Whether a bookmark follows the last object (WC-325).
    bookmark: bool,
    began: Duration,
}

/// The time before the deadline of a watcher from which on it sends bookmarks more often (WC-322).
const BOOKMARK_BEFORE_DEADLINE: Duration = Duration::from_secs(2);
/// The time between bookmarks shortly before the deadline (WC-322).
const LAST_BOOKMARKS_PERIOD: Duration = Duration::from_secs(1);
/// The maximum number of chunks without a matching event that one poll examines before it yields to
/// other tasks.
const POLL_CHUNKS_MAX: usize = 64;
/// The maximum number of initial objects without a match that one poll examines before it yields.
const POLL_OBJECTS_MAX: usize = 1000;

impl fmt::Debug for CacheWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheWatcher")
            .field("after", &self.after.0)
            .field("sent_through", &self.sent_through.0)
            .field("ended", &self.ended)
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
        let shared = &resource.shared;
        let now = shared.timers.now();
        let grace = shared.settings.future_rv_grace;
        let is_future =
            registration.after > shared.watermark.load() && registration.initial.is_none();
        let end = target.scan.end;
        let initial = registration.initial.map(|objects| {
            Box::new(InitialObjects {
                objects,
                end,
                bookmark: bookmarks,
                began: now,
            })
        });
        let mut watcher = Self {
            filter: target.filter,
            waiter: registration.waiter,
            interest_key: Some(registration.interest_key),
            generation: registration.generation,
            after: registration.after,
            through: registration.after,
            sent_through: registration.after,
            initial,
            events: VecDeque::new(),
            bookmarks,
            next_bookmark: None,
            deadline: timeout.map(|timeout| now.saturating_add(timeout)),
            future_deadline: grace
                .filter(|_| is_future)
                .map(|grace| now.saturating_add(grace)),
            armed: None,
            failure: None,
            ended: false,
            resource,
        };
        watcher.schedule_bookmark(now);
        watcher
    }

    /// Returns a watcher that delivers `error` and ends (WC-305).
    pub(crate) fn failed(resource: Arc<Resource>, target: Target, error: RequestError) -> Self {
        Self {
            resource,
            filter: target.filter,
            waiter: Arc::new(Waiter::new()),
            interest_key: None,
            generation: 0,
            after: Revision(0),
            through: Revision(0),
            sent_through: Revision(0),
            initial: None,
            events: VecDeque::new(),
            bookmarks: false,
            next_bookmark: None,
            deadline: None,
            future_deadline: None,
            armed: None,
            failure: Some(Box::new(error)),
            ended: false,
        }
    }

    /// Encodes an event for a client: as one line of JSON if the kind is a
    /// [`JsonKind`](crate::JsonKind). An event of the window is encoded once, when a watcher first
    /// needs it; the other watchers share the bytes.
    // WC-142, WC-331.
    pub fn encode(&self, event: &WatchEvent) -> Bytes {
        crate::encode::event::encode(&self.resource, event)
    }

    /// Returns the next event, or `None` if no event is ready or the watcher has ended.
    pub fn try_next(&mut self) -> Option<WatchEvent> {
        let mut context = Context::from_waker(std::task::Waker::noop());
        for _ in 0..POLL_CHUNKS_MAX {
            loop {
                if let Poll::Ready(event) = self.poll(&mut context) {
                    return event;
                }
                if self.initial.is_none() {
                    break;
                }
            }
            // If no event is pending, the poll has examined all events; otherwise it has yielded.
            self.waiter.pending()?;
        }
        None
    }

    /// Blocks the thread until the next event is ready, and returns it. Returns `None` if the
    /// watcher has ended. Must not be called from an async task.
    pub fn next_blocking(&mut self) -> Option<WatchEvent> {
        pollster::block_on(std::future::poll_fn(|context| self.poll(context)))
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        for _ in 0..POLL_CHUNKS_MAX {
            if self.ended {
                return Poll::Ready(None);
            }
            if let Some(error) = self.failure.take() {
                return Poll::Ready(Some(self.fail(*error)));
            }
            let ready = match self.next_initial() {
                Poll::Ready(Some(event)) => Some(event),
                Poll::Ready(None) => self.next_copied(),
                Poll::Pending => break,
            };
            if let Some(event) = ready {
                return Poll::Ready(Some(event));
            }
            if self.failure.is_some() {
                continue;
            }
            // All copied events are delivered, so the position is between two revisions.
            self.sent_through = self.through;
            self.waiter.waker.register(context.waker());
            if let Some(event) = self.advance() {
                return event;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Checks the deadlines and copies the next events from the window. Returns `None` if there are
    /// copied events to examine. Bookmarks are created here, and a watcher whose next event was
    /// evicted ends here with [`Expired::Window`].
    fn advance(&mut self) -> Option<Poll<Option<WatchEvent>>> {
        let now = self.resource.shared.timers.now();
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.end();
            return Some(Poll::Ready(None));
        }
        let resource = &self.resource;
        match resource.refill(&self.waiter, self.generation, self.after) {
            Refill::Events(events, through) => {
                if let Some(oldest) = events.first() {
                    let counters = &self.resource.counters;
                    counters
                        .cache_to_watcher_seconds
                        .observe_since(oldest.applied_at(), now);
                    counters
                        .arrival_to_watcher_seconds
                        .observe_since(oldest.arrived_at, now);
                }
                self.events = events.into();
                self.through = self.through.max(through);
            }
            Refill::Idle(watermark) => {
                self.through = self.through.max(watermark);
                self.sent_through = self.through;
                if let Some(error) = self.check_future(watermark, now) {
                    return Some(Poll::Ready(Some(self.fail(error))));
                }
                if self.next_bookmark.is_none_or(|due| due > now) {
                    self.arm();
                    return Some(Poll::Pending);
                }
            }
            Refill::Stopping(watermark) => {
                // Delivered events may be above the watermark, if the stop came between their
                // application and their publication (WC-321).
                self.through = self.through.max(watermark);
                self.sent_through = self.through;
                self.end();
                let last = self.bookmark().filter(|_| self.bookmarks);
                return Some(Poll::Ready(last));
            }
            Refill::Evicted(oldest) => {
                self.resource.counters.terminated_watchers.add(1);
                self.resource.counters.expired_window.add(1);
                let error = RequestError::Expired(Expired::Window {
                    requested: self.sent_through,
                    oldest,
                });
                return Some(Poll::Ready(Some(self.fail(error))));
            }
            Refill::Reloaded => {
                self.end();
                return Some(Poll::Ready(None));
            }
            Refill::Replaced(known, found) => {
                self.resource.counters.expired_replaced.add(1);
                let error = RequestError::Expired(Expired::Replaced { known, found });
                return Some(Poll::Ready(Some(self.fail(error))));
            }
        }
        if self.next_bookmark.is_some_and(|due| due <= now) {
            let bookmark = self.bookmark();
            if bookmark.is_none() && !self.events.is_empty() {
                // The bookmark follows these events.
                return None;
            }
            self.schedule_bookmark(now);
            if let Some(bookmark) = bookmark {
                self.resource.counters.bookmarks_sent.add(1);
                return Some(Poll::Ready(Some(bookmark)));
            }
        }
        None
    }

    /// Returns a bookmark at the position of the watcher, or `None` if that is not above its start
    /// (WC-315, WC-322).
    fn bookmark(&self) -> Option<WatchEvent> {
        (self.sent_through > self.after).then_some(WatchEvent::Bookmark {
            revision: self.sent_through,
            initial_events_end: false,
        })
    }

    /// Returns the next initial object, then the bookmark after the initial objects, then `None`.
    /// Returns `Pending` after [`POLL_OBJECTS_MAX`] objects without a match.
    fn next_initial(&mut self) -> Poll<Option<WatchEvent>> {
        let Some(initial) = self.initial.as_mut() else {
            return Poll::Ready(None);
        };
        let mut examined = 0;
        for object in &mut initial.objects {
            if *object.key() >= *initial.end {
                break;
            }
            match self.filter.decide(&object) {
                Ok(true) => {
                    self.resource.counters.init_events.add(1);
                    let event = WatchEvent::unshared(EventType::Added, Object::new(object));
                    return Poll::Ready(Some(event));
                }
                Ok(false) => {}
                Err(corrupt) => {
                    self.failure = Some(Box::new(RequestError::Corrupt(Box::new(corrupt))));
                    return Poll::Ready(None);
                }
            }
            examined += 1;
            if examined == POLL_OBJECTS_MAX {
                return Poll::Pending;
            }
        }
        let (bookmark, began) = (initial.bookmark, initial.began);
        self.initial = None;
        let now = self.resource.shared.timers.now();
        self.resource
            .counters
            .watch_list_seconds
            .observe_since(began, now);
        Poll::Ready(bookmark.then_some(WatchEvent::Bookmark {
            revision: self.after,
            initial_events_end: true,
        }))
    }

    /// Returns the next matching event of those copied from the window.
    fn next_copied(&mut self) -> Option<WatchEvent> {
        while let Some(event) = self.events.pop_front() {
            if event.revision <= self.after {
                continue;
            }
            let visible = visible_event(
                &self.filter,
                event.revision,
                event.old.as_ref(),
                event.new.as_ref(),
            );
            match visible {
                Ok(Some((kind, object))) => {
                    self.resource.counters.events_sent.add(1);
                    return Some(WatchEvent::Object {
                        event: kind,
                        object,
                        shared: SharedEncoding(Some(event)),
                    });
                }
                Ok(None) => self.resource.counters.events_filtered_out.add(1),
                Err(error) => {
                    self.failure = Some(Box::new(error));
                    return None;
                }
            }
        }
        // Frees the memory, so that an idle watcher stays small.
        if self.events.capacity() > 0 {
            self.events = VecDeque::new();
        }
        None
    }

    /// Returns the error of a watcher whose start revision was not reached in time (WC-316).
    fn check_future(&mut self, watermark: Revision, now: Duration) -> Option<RequestError> {
        if watermark >= self.after {
            self.future_deadline = None;
        }
        self.future_deadline.filter(|due| *due <= now)?;
        self.resource.counters.expired_future.add(1);
        Some(RequestError::Expired(Expired::Future {
            requested: self.after,
            current: watermark,
        }))
    }

    /// Schedules the next bookmark: after the bookmark period, and from shortly before the deadline
    /// on each [`LAST_BOOKMARKS_PERIOD`] (WC-322).
    fn schedule_bookmark(&mut self, now: Duration) {
        if !self.bookmarks {
            return;
        }
        let periodic = now.saturating_add(self.resource.shared.settings.bookmark_period);
        let last = self.deadline.map(|deadline| {
            let first = deadline.saturating_sub(BOOKMARK_BEFORE_DEADLINE);
            first.max(now.saturating_add(LAST_BOOKMARKS_PERIOD))
        });
        self.next_bookmark = Some(last.map_or(periodic, |last| last.min(periodic)));
    }

    /// Sets the timer to the earliest due time.
    fn arm(&mut self) {
        let due = [self.next_bookmark, self.deadline, self.future_deadline];
        let due = due.into_iter().flatten().min();
        let timers = &self.resource.shared.timers;
        // A timer that has fired is no longer set.
        let is_set = self.armed == due && due.is_none_or(|due| due > timers.now());
        if !is_set {
            if let Some(armed) = self.armed {
                timers.clear(armed, &self.waiter);
            }
            if let Some(due) = due {
                timers.set(due, &self.waiter);
            }
            self.armed = due;
        }
    }

    /// Ends the watcher, and returns its last event.
    fn fail(&mut self, error: RequestError) -> WatchEvent {
        self.end();
        WatchEvent::Error(error)
    }

    /// Ends the watcher: unregisters it and frees its state. May be called more than once.
    fn end(&mut self) {
        self.ended = true;
        self.initial = None;
        self.events = VecDeque::new();
        if let Some(armed) = self.armed.take() {
            self.resource.shared.timers.clear(armed, &self.waiter);
        }
        if let Some(interest_key) = self.interest_key.take() {
            self.resource.unregister(interest_key, self.waiter.id);
        }
    }
}

impl Drop for CacheWatcher {
    fn drop(&mut self) {
        self.end();
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
    use revstore_engine::{Engine, ManualClock};

    use super::*;
    use crate::api::keys::Scope;
    use crate::cache::config::ResourceConfig;
    use crate::cache::readiness::Readiness;
    use crate::cache::resource::WatchStart;
    use crate::cache::shared::{CacheSettings, CacheShared};
    use crate::selector::Selector;
    use crate::source::{Change, EngineSource, StoredKeyValue};

    #[test]
    fn wc_321_the_bookmark_of_a_stop_is_not_below_events_that_are_not_published_yet() {
        let clock = Arc::new(ManualClock::new());
        let source = Arc::new(EngineSource::new(Engine::builder().build()));
        let shared = Arc::new(CacheShared::new(source, clock, CacheSettings::default()));
        let config = ResourceConfig::namespaced("", "pods", "/pods");
        let pods = Arc::new(Resource::new(config, shared.clone()).unwrap());
        let decoder = pods.decoder();
        let target = Target::new(&decoder, &Scope::All, &Selector::default(), true).unwrap();
        pods.replace(Revision(1), Vec::new());
        shared.watermark.publish(Revision(1));
        pods.ready.set(Readiness::Ready);
        let start = WatchStart::After(Some(Revision(1)));
        let registration = pods.register(&target, start).unwrap();
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
