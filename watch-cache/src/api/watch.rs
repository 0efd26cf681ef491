//! Watches: cursors into the shared window (section D).

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use revstore_engine::Revision;

use crate::api::event::{EventType, SharedEvent, WatchEvent, seen_through};
use crate::api::list::readable;
use crate::api::status::{Expired, RequestError};
use crate::api::target::Target;
use crate::cache::interest::Listed;
use crate::cache::objects::tree::Walk;
use crate::cache::resource::{Refill, Registered, Resource};
use crate::cache::window::LogEvent;
use crate::encode::object::{Entry, Object};
use crate::selector::Filter;
use crate::wake::subscriber::Signal;

/// A stream of what happens to some objects of a resource; made by
/// [`ResourceCache::watch`](crate::ResourceCache::watch).
///
/// # Guarantees
/// - Every matching change after the start, once, in order; or an [`WatchEvent::Error`] with 410 that
///   says that some were lost, and then the end (WC-311, WC-124).
/// - A bookmark at r comes behind every matching change up to r, and never inside a revision
///   (WC-321, WC-343).
/// - All events of one revision are ready at once: whoever writes until the stream is pending
///   flushes whole revisions.
///
/// # Cost
/// It holds a position and a filter, well under 1 KiB, no queue. It is woken for events that its
/// scope or an index says it may want, and copies up to 128 at a time. A slow reader costs only
/// itself: it is behind, until what it needs has left the window (WC-140).
///
/// Dropping it ends the watch.
///
/// ```
/// use std::sync::Arc;
/// use revstore_engine::Engine;
/// use revstore_watch_cache::{EngineSource, ResourceConfig, Scope, WatchCache, WatchOptions, block_on};
///
/// let engine = Engine::builder().build();
/// let (cache, feeder) = WatchCache::builder(Arc::new(EngineSource::new(engine.clone()))).build();
/// let pods = cache.add(ResourceConfig::namespaced("", "pods", "/pods"))?;
/// let _running = feeder.spawn();
/// block_on(pods.wait_until_ready())?;
///
/// let behind = WatchOptions { resource_version: "1".into(), ..WatchOptions::default() };
/// let mut watch = block_on(pods.watch(&Scope::All, &behind))?;
/// assert!(watch.try_next().is_none(), "nothing has happened");
/// engine.put("/pods/ns/a", r#"{"metadata":{"name":"a"}}"#)?;
/// let event = watch.next_blocking().expect("it goes on");
/// assert_eq!(
///     &watch.encode(&event)[..],
///     b"{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"resourceVersion\":\"2\",\"name\":\"a\"}}}\n"
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Watch {
    resource: Arc<Resource>,
    filter: Filter,
    signal: Arc<Signal>,
    listed: Option<Listed>,
    generation: u64,
    /// Events up to this revision are not for this watch.
    after: Revision,
    /// Everything up to this revision was sent, or is in `events`.
    through: Revision,
    /// Everything up to this revision was sent.
    sent_through: Revision,
    initial: Option<Box<Initial>>,
    events: VecDeque<Arc<LogEvent>>,
    bookmarks: bool,
    next_bookmark: Option<Duration>,
    deadline: Option<Duration>,
    /// When to give up on a start in the future (WC-316).
    future_deadline: Option<Duration>,
    /// When the timer goes off, if one is set.
    armed: Option<Duration>,
    failure: Option<Box<RequestError>>,
    ended: bool,
}

/// Objects to begin with.
#[derive(Debug)]
struct Initial {
    walk: Walk<Arc<Entry>>,
    end: Bytes,
    /// Whether a bookmark marks the end (WC-325).
    bookmark: bool,
    begun: Duration,
}

/// How long before its deadline a watch gets a bookmark (WC-322).
const BOOKMARK_BEFORE_DEADLINE: Duration = Duration::from_secs(2);
/// Rounds without an event for the reader that one poll takes before it lets others run.
const POLL_ROUNDS_MAX: usize = 64;
/// Objects to begin with that one poll looks at without finding one for the reader.
const POLL_OBJECTS_MAX: usize = 1000;

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("after", &self.after.0)
            .field("sent_through", &self.sent_through.0)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

impl Watch {
    pub(crate) fn new(
        resource: Arc<Resource>,
        target: Target,
        registered: Registered,
        bookmarks: bool,
        timeout: Option<Duration>,
    ) -> Self {
        let core = &resource.core;
        let now = core.timers.now();
        let grace = core.settings.future_grace;
        let is_future = registered.after > core.watermark.load() && registered.initial.is_none();
        let end = target.scan.end;
        let initial = registered.initial.map(|walk| {
            Box::new(Initial {
                walk,
                end,
                bookmark: bookmarks,
                begun: now,
            })
        });
        let mut watch = Self {
            filter: target.filter,
            signal: registered.signal,
            listed: Some(registered.listed),
            generation: registered.generation,
            after: registered.after,
            through: registered.after,
            sent_through: registered.after,
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
        watch.schedule_bookmark(now);
        watch
    }

    /// A watch that only tells why it is none (WC-305).
    pub(crate) fn failed(resource: Arc<Resource>, target: Target, error: RequestError) -> Self {
        Self {
            resource,
            filter: target.filter,
            signal: Arc::new(Signal::new()),
            listed: None,
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

    /// The event as bytes for a client: a line of JSON, if the kind is a
    /// [`JsonKind`](crate::JsonKind) (WC-331). An event of the window is encoded when the first of
    /// its watchers asks; the others get the same bytes.
    pub fn encode(&self, event: &WatchEvent) -> Bytes {
        crate::encode::event::encode(&self.resource, event)
    }

    /// The next event if there is one now; never waits. `None` also when the watch is over.
    pub fn try_next(&mut self) -> Option<WatchEvent> {
        let mut context = Context::from_waker(std::task::Waker::noop());
        for _ in 0..POLL_ROUNDS_MAX {
            loop {
                if let Poll::Ready(event) = self.poll(&mut context) {
                    return event;
                }
                if self.initial.is_none() {
                    break;
                }
            }
            // A poll that only looked long enough says so by what is left for it.
            self.signal.pending()?;
        }
        None
    }

    /// The next event; the thread sleeps until there is one. `None` when the watch is over.
    pub fn next_blocking(&mut self) -> Option<WatchEvent> {
        crate::blocking::next_blocking(self)
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        for _ in 0..POLL_ROUNDS_MAX {
            if self.ended {
                return Poll::Ready(None);
            }
            if let Some(error) = self.failure.take() {
                return Poll::Ready(Some(self.fail(*error)));
            }
            let ready = match self.next_initial() {
                Poll::Ready(Some(event)) => Some(event),
                Poll::Ready(None) => self.next_of_copied(),
                Poll::Pending => break,
            };
            if let Some(event) = ready {
                return Poll::Ready(Some(event));
            }
            if self.failure.is_some() {
                continue;
            }
            // Between two revisions: everything up to `through` was sent.
            self.sent_through = self.through;
            self.signal.waker.register(context.waker());
            if let Some(event) = self.between_revisions() {
                return event;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// What the time says, and what the window has next; nothing if there is more to look at.
    fn between_revisions(&mut self) -> Option<Poll<Option<WatchEvent>>> {
        let now = self.resource.core.timers.now();
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.end();
            return Some(Poll::Ready(None));
        }
        let resource = &self.resource;
        match resource.refill(&self.signal, self.generation, self.after) {
            Refill::Events(events, through) => {
                if let Some(oldest) = events.first() {
                    let counters = &self.resource.counters;
                    counters.cache_to_watcher_us.since(oldest.applied_at(), now);
                    counters.arrival_to_watcher_us.since(oldest.at, now);
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
                self.end();
                let told = self.bookmarks && watermark >= self.after;
                let last = told.then_some(WatchEvent::Bookmark {
                    revision: watermark,
                    initial_events_end: false,
                });
                return Some(Poll::Ready(last));
            }
            Refill::Lost(oldest) => {
                self.resource.counters.terminated_watchers.add(1);
                self.resource.counters.expired_window.add(1);
                let error = RequestError::Expired(Expired::Window {
                    asked: self.sent_through,
                    oldest,
                });
                return Some(Poll::Ready(Some(self.fail(error))));
            }
            Refill::Closed => {
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
            self.schedule_bookmark(now);
            // Not about a future that has not come (WC-315).
            if self.resource.core.watermark.load() >= self.after {
                self.resource.counters.bookmarks_sent.add(1);
                return Some(Poll::Ready(Some(WatchEvent::Bookmark {
                    revision: self.sent_through,
                    initial_events_end: false,
                })));
            }
        }
        None
    }

    /// The next of the objects to begin with; nothing behind the last one. Pending if it has looked at
    /// many that are not wanted.
    fn next_initial(&mut self) -> Poll<Option<WatchEvent>> {
        let Some(initial) = self.initial.as_mut() else {
            return Poll::Ready(None);
        };
        let mut looked_at = 0;
        for entry in &mut initial.walk {
            if *entry.key() >= *initial.end {
                break;
            }
            match readable(entry) {
                Ok(entry) if self.filter.passes(&entry) => {
                    self.resource.counters.init_events.add(1);
                    let event = WatchEvent::own(EventType::Added, Object::new(entry));
                    return Poll::Ready(Some(event));
                }
                Ok(_) => {}
                Err(error) => {
                    self.failure = Some(Box::new(error));
                    return Poll::Ready(None);
                }
            }
            looked_at += 1;
            if looked_at == POLL_OBJECTS_MAX {
                return Poll::Pending;
            }
        }
        let (bookmark, begun) = (initial.bookmark, initial.begun);
        self.initial = None;
        let now = self.resource.core.timers.now();
        self.resource.counters.watch_list_us.since(begun, now);
        Poll::Ready(bookmark.then_some(WatchEvent::Bookmark {
            revision: self.after,
            initial_events_end: true,
        }))
    }

    fn next_of_copied(&mut self) -> Option<WatchEvent> {
        while let Some(event) = self.events.pop_front() {
            if event.revision <= self.after {
                continue;
            }
            let seen = seen_through(
                &self.filter,
                event.revision,
                event.old.as_ref(),
                event.new.as_ref(),
            );
            match seen {
                Ok(Some((kind, object))) => {
                    self.resource.counters.events_sent.add(1);
                    return Some(WatchEvent::Object {
                        event: kind,
                        object,
                        shared: SharedEvent(Some(event)),
                    });
                }
                Ok(None) => self.resource.counters.events_filtered_out.add(1),
                Err(error) => {
                    self.failure = Some(Box::new(error));
                    return None;
                }
            }
        }
        // Its memory is not worth keeping while nothing happens.
        if self.events.capacity() > 0 {
            self.events = VecDeque::new();
        }
        None
    }

    /// WC-316: whether a start in the future has not come for too long.
    fn check_future(&mut self, watermark: Revision, now: Duration) -> Option<RequestError> {
        if watermark >= self.after {
            self.future_deadline = None;
        }
        self.future_deadline.filter(|due| *due <= now)?;
        self.resource.counters.expired_future.add(1);
        Some(RequestError::Expired(Expired::Future {
            asked: self.after,
            current: watermark,
        }))
    }

    /// WC-322: after a period, or shortly before the deadline, whichever is first.
    fn schedule_bookmark(&mut self, now: Duration) {
        if !self.bookmarks {
            return;
        }
        let periodic = now.saturating_add(self.resource.core.settings.bookmark_period);
        let last = self
            .deadline
            .and_then(|deadline| deadline.checked_sub(BOOKMARK_BEFORE_DEADLINE))
            .filter(|last| *last > now);
        self.next_bookmark = Some(last.map_or(periodic, |last| last.min(periodic)));
    }

    /// Sets the timer to what is due next.
    fn arm(&mut self) {
        let due = [self.next_bookmark, self.deadline, self.future_deadline];
        let due = due.into_iter().flatten().min();
        let timers = &self.resource.core.timers;
        // A timer that went off is not set any more.
        let is_set = self.armed == due && due.is_none_or(|due| due > timers.now());
        if !is_set {
            if let Some(armed) = self.armed {
                timers.clear(armed, &self.signal);
            }
            if let Some(due) = due {
                timers.set(due, &self.signal);
            }
            self.armed = due;
        }
    }

    fn fail(&mut self, error: RequestError) -> WatchEvent {
        self.end();
        WatchEvent::Error(error)
    }

    /// Lets go of everything; may be called again.
    fn end(&mut self) {
        self.ended = true;
        self.initial = None;
        self.events = VecDeque::new();
        if let Some(armed) = self.armed.take() {
            self.resource.core.timers.clear(armed, &self.signal);
        }
        if let Some(listed) = self.listed.take() {
            self.resource.unregister(listed, self.signal.id);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end();
    }
}

impl Stream for Watch {
    type Item = WatchEvent;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        self.get_mut().poll(context)
    }
}
