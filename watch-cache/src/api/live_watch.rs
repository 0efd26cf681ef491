//! The live part of a watch: its position in the window, its bookmarks and its deadlines.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use revstore_engine::Revision;

use crate::api::cache_watcher::{Step, Watched};
use crate::api::event::{Shared, SharedEncoding, WatchEvent, visible_event};
use crate::api::status::{Expired, RequestError};
use crate::cache::interest::InterestKey;
use crate::cache::resource::{Refill, Registration, Resource};
use crate::cache::window::WindowEvent;
use crate::wake::timer_queue::{TimedWork, WatchTimes};

/// The time before the deadline of a watcher from which on it sends bookmarks more often (WC-322).
const BOOKMARK_BEFORE_DEADLINE: Duration = Duration::from_secs(2);
/// The minimum time between bookmarks, and the time between those shortly before the deadline
/// (WC-322).
const BOOKMARK_PERIOD_MIN: Duration = Duration::from_secs(1);

/// The state of a registered watcher: its position and its timers.
pub(crate) struct LiveWatch {
    interest_key: InterestKey,
    generation: u64,
    /// The watcher delivers the events after this revision.
    pub(crate) start: Revision,
    /// All matching events up to this revision were delivered or are in `events`.
    pub(crate) through: Revision,
    /// The events that were copied from the window and are not examined yet.
    events: VecDeque<Arc<WindowEvent>>,
    /// The time of the next bookmark, or `None` if the watcher wants none.
    next_bookmark: Option<Duration>,
    /// Whether a bookmark was requested that is not sent yet.
    is_bookmark_requested: bool,
    deadline: Option<Duration>,
    /// The time at which a watcher that starts at a future revision fails, unless that revision is
    /// reached before (WC-316).
    future_deadline: Option<Duration>,
    /// The times of the timer, if it is set.
    armed: Option<WatchTimes>,
}

impl LiveWatch {
    pub(crate) fn new(
        resource: &Resource,
        registration: &Registration,
        bookmarks: bool,
        timeout: Option<Duration>,
    ) -> Self {
        let shared = &resource.shared;
        let now = shared.timers.now();
        let start = registration.after;
        let is_future = start > shared.watermark.load() && registration.initial.is_none();
        let grace = shared.settings.future_rv_grace.filter(|_| is_future);
        let mut live = Self {
            interest_key: registration.interest_key,
            generation: registration.generation,
            start,
            through: start,
            events: VecDeque::new(),
            next_bookmark: None,
            is_bookmark_requested: false,
            deadline: timeout.map(|timeout| now.saturating_add(timeout)),
            future_deadline: grace.map(|grace| now.saturating_add(grace)),
            armed: None,
        };
        if bookmarks {
            live.schedule_bookmark(shared.settings.bookmark_period, now);
        }
        live
    }

    /// Returns whether events were copied or are pending.
    pub(crate) fn has_events(&self, watched: &Watched) -> bool {
        !self.events.is_empty() || watched.waiter.pending().is_some()
    }

    pub(crate) fn wants_bookmarks(&self) -> bool {
        self.next_bookmark.is_some()
    }

    /// Makes the next bookmark due.
    pub(crate) fn request_bookmark(&mut self, now: Duration) {
        if self.wants_bookmarks() {
            self.next_bookmark = Some(now);
            self.is_bookmark_requested = true;
        }
    }

    /// Delivers the next event that matches. If no copied event is left, registers the task, checks
    /// the deadlines and copies the next events.
    #[inline]
    pub(crate) fn step(&mut self, watched: &Watched, context: &mut Context<'_>) -> Step {
        match self.next_copied(watched) {
            Ok(Some(event)) => Step::Deliver(event),
            Ok(None) => {
                watched.waiter.waker.register(context.waker());
                self.advance(watched)
            }
            Err(error) => Step::Fail(error),
        }
    }

    /// Returns the next matching event of those copied from the window.
    #[inline]
    fn next_copied(&mut self, watched: &Watched) -> Result<Option<WatchEvent>, RequestError> {
        let counters = &watched.resource.counters;
        while let Some(event) = self.events.pop_front() {
            if event.revision <= self.start {
                continue;
            }
            let (old, new) = (event.old.as_ref(), event.new.as_ref());
            let visible = visible_event(&watched.filter, event.revision, old, new)?;
            if let Some((kind, object)) = visible {
                counters.events_sent.add(1);
                return Ok(Some(WatchEvent::Object {
                    event: kind,
                    object,
                    shared: SharedEncoding(Shared::Window(event)),
                }));
            }
            counters.events_filtered_out.add(1);
        }
        // Frees the memory, so that an idle watcher stays small.
        if self.events.capacity() > 0 {
            self.events = VecDeque::new();
        }
        Ok(None)
    }

    /// Checks the deadlines and copies the next events from the window. All copied events are
    /// delivered, so the position is between two revisions: bookmarks are created here (WC-321). A
    /// watcher whose next event was evicted fails here with [`Expired::Window`].
    fn advance(&mut self, watched: &Watched) -> Step {
        let resource = &watched.resource;
        let now = resource.shared.timers.now();
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            return Step::End(None);
        }
        let is_due = self.next_bookmark.is_some_and(|due| due <= now);
        let bookmark = match resource.refill(&watched.waiter, self.generation, self.start) {
            Refill::Events(events, through) => {
                if let Some(oldest) = events.first() {
                    observe_delays(resource, oldest, now);
                }
                // A bookmark precedes these events. If there is none yet, it stays due and follows
                // them.
                let bookmark = self.bookmark().filter(|_| is_due);
                self.events = events.into();
                self.through = self.through.max(through);
                if bookmark.is_none() {
                    return Step::Continue;
                }
                bookmark
            }
            Refill::Idle(watermark) => {
                self.through = self.through.max(watermark);
                if let Some(error) = self.check_future(watermark, now) {
                    resource.counters.expired_future.add(1);
                    return Step::Fail(error);
                }
                if !is_due {
                    self.arm(watched, now);
                    return Step::Wait;
                }
                self.bookmark()
            }
            Refill::Stopping(watermark) => {
                // Delivered events may be above the watermark, if the stop came between their
                // application and their publication (WC-321).
                self.through = self.through.max(watermark);
                return Step::End(self.bookmark().filter(|_| self.wants_bookmarks()));
            }
            Refill::Evicted(oldest) => {
                resource.counters.terminated_watchers.add(1);
                resource.counters.expired_window.add(1);
                return Step::Fail(RequestError::Expired(Expired::Window {
                    requested: self.through,
                    oldest,
                }));
            }
            Refill::Reloaded | Refill::Ended => return Step::End(None),
            Refill::Replaced(known, found) => {
                resource.counters.expired_replaced.add(1);
                return Step::Fail(RequestError::Expired(Expired::Replaced { known, found }));
            }
        };
        self.schedule_bookmark(resource.shared.settings.bookmark_period, now);
        match bookmark {
            Some(bookmark) => {
                self.is_bookmark_requested = false;
                resource.counters.bookmarks_sent.add(1);
                Step::Deliver(bookmark)
            }
            None => Step::Continue,
        }
    }

    /// Returns a bookmark at the position of the watcher, or `None` if that is not above its start
    /// (WC-315, WC-322).
    fn bookmark(&self) -> Option<WatchEvent> {
        let is_due = self.through > self.start
            || (self.is_bookmark_requested && self.through == self.start && self.start.0 > 0);
        is_due.then_some(WatchEvent::Bookmark {
            revision: self.through,
            initial_events_end: false,
        })
    }

    /// Returns the error of a watcher whose start revision was not reached in time (WC-316).
    fn check_future(&mut self, watermark: Revision, now: Duration) -> Option<RequestError> {
        if watermark >= self.start {
            self.future_deadline = None;
        }
        self.future_deadline.filter(|due| *due <= now)?;
        Some(RequestError::Expired(Expired::Future {
            requested: self.start,
            current: watermark,
        }))
    }

    /// Schedules the next bookmark: after `period`, and from shortly before the deadline on each
    /// [`BOOKMARK_PERIOD_MIN`] (WC-322).
    fn schedule_bookmark(&mut self, period: Duration, now: Duration) {
        let periodic = now.saturating_add(period.max(BOOKMARK_PERIOD_MIN));
        let last = self.deadline.map(|deadline| {
            let first = deadline.saturating_sub(BOOKMARK_BEFORE_DEADLINE);
            first.max(now.saturating_add(BOOKMARK_PERIOD_MIN))
        });
        self.next_bookmark = Some(last.map_or(periodic, |last| last.min(periodic)));
    }

    /// Sets the timer to the earliest due time. The task was registered before `now`, so a timer that fires meanwhile wakes it.
    fn arm(&mut self, watched: &Watched, now: Duration) {
        let awaited = WatchTimes {
            bookmark: self.next_bookmark,
            end: self.deadline,
            failure: self.future_deadline,
        };
        let due = awaited.first();
        let timers = &watched.resource.shared.timers;
        // A timer that has fired is no longer set.
        let is_set = self.armed.unwrap_or_default() == awaited && due.is_none_or(|due| due > now);
        if !is_set {
            if let Some(armed) = self.armed.and_then(|armed| armed.first()) {
                timers.clear(armed, &watched.waiter);
            }
            if let Some(due) = due {
                timers.set(due, &watched.waiter, TimedWork::Watch(awaited));
            }
            self.armed = due.map(|_| awaited);
        }
    }

    /// Clears the timer and unregisters the watcher.
    pub(crate) fn unregister(&self, watched: &Watched) {
        if let Some(armed) = self.armed.and_then(|armed| armed.first()) {
            watched.resource.shared.timers.clear(armed, &watched.waiter);
        }
        watched
            .resource
            .unregister(self.interest_key, watched.waiter.id);
    }
}

/// Measures how long an event took from the source, and from the cache, to a watcher.
fn observe_delays(resource: &Resource, event: &WindowEvent, now: Duration) {
    let counters = &resource.counters;
    counters
        .cache_to_watcher_seconds
        .observe_since(event.applied_at(), now);
    counters
        .arrival_to_watcher_seconds
        .observe_since(event.arrived_at, now);
}
