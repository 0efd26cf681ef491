//! The list-and-watch state machine: its phases, the requests it sends, and its transitions.
//!
//! Corresponds to `Reflector.ListAndWatch` of client-go (docs/watch-cache.md, F.1).
//! [`ListAndWatch::receive`] sends the request of the current phase or reads the open watch;
//! [`ListAndWatch::advance`] then changes the phase, without waiting.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_core::future::BoxFuture;
use revstore_watch_cache::api::{EventStream, ListItems, ObjectList};
use revstore_watch_cache::{
    EventType, ListOptions, Object, RequestError, Revision, WatchEvent, WatchOptions,
};

use crate::backoff::Backoff;
use crate::list_watch::ListWatch;
use crate::metrics::{ReflectorCounters, observe_since};
use crate::reflector::ReflectorEvent;
use crate::timer::Timer;

/// The maximum number of objects per page of a list (WC-503).
const PAGE_LIMIT: i64 = 500;
/// The duration below which a watch that ends without an event counts as a failure (WC-505).
const SHORT_WATCH_MAX: Duration = Duration::from_secs(1);
/// The minimum timeout requested for a watch. The maximum is twice as long (WC-504).
const WATCH_TIMEOUT_MIN: Duration = Duration::from_secs(300);
/// The time after its timeout at which a watch that is still open is abandoned.
const WATCH_TIMEOUT_GRACE: Duration = Duration::from_secs(5);
/// The longest pause that a server can ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);
/// The interval of reports that the initial events of a watch-list have not ended (WC-502).
const BOOKMARK_OVERDUE_INTERVAL: Duration = Duration::from_secs(10);

/// The phases of the state machine, each with its request and its transitions.
enum Phase {
    /// An initial state is needed. Requests a list or a watch-list.
    ///
    /// - Watch-list started: `InitialEvents`. Watch-list refused: `Unlisted`, with lists until the
    ///   end of this round.
    /// - First page of a list: `ReadingPage`.
    /// - Any other failure: `Unlisted`.
    Unlisted,
    /// Emits the objects of a page one by one, then requests the next page.
    ///
    /// - Next page: `ReadingPage`. End of the last page: `Listed`.
    /// - Failure: `Unlisted`.
    ReadingPage(PendingPage),
    /// Reads the initial events of a watch-list.
    ///
    /// - Bookmark with the annotation `k8s.io/initial-events-end`: `Watching` on the same stream.
    /// - End of the stream, or failure: `Unlisted`.
    InitialEvents(OpenWatch),
    /// All changes up to the last revision were emitted. Requests a watch after that revision.
    ///
    /// - Watch started: `Watching`.
    /// - Server not ready: `Listed`. Any other failure: `Unlisted`.
    Listed,
    /// Reads the events of a watch.
    ///
    /// - End of the stream: `Listed`, or `Unlisted` after a very short watch.
    /// - Server not ready: `Listed`. Any other failure: `Unlisted`.
    Watching(OpenWatch),
}

/// A page of a list whose objects are being emitted.
struct PendingPage {
    items: ListItems,
    revision: Revision,
    /// The continue token of the next page.
    next: Option<String>,
}

impl PendingPage {
    fn new(list: ObjectList) -> Self {
        Self {
            items: list.items,
            revision: list.revision,
            next: list.continue_token,
        }
    }
}

/// A watch that is being read.
struct OpenWatch {
    stream: EventStream,
    started: Duration,
    /// The time at which the watch is abandoned.
    deadline: Duration,
    /// The time of the next report that the initial events have not ended; `None` after their end.
    report_overdue: Option<Duration>,
    /// The number of received events.
    events: u64,
}

/// An input of the state machine, returned by [`ListAndWatch::receive`].
enum Input {
    /// The response to the first request of a list.
    FirstPage(FirstPageRequest, Result<ObjectList, RequestError>),
    /// The next object of a page.
    Item(Result<Object, RequestError>),
    /// The last page has no further objects. Contains the revision of the list.
    EndOfList(Revision),
    /// The response to the request of a further page.
    NextPage(Result<ObjectList, RequestError>),
    /// The response to the request of a watch-list, with the requested timeout.
    WatchListStarted(Duration, Result<EventStream, RequestError>),
    /// Received from a watch-list before the end of its initial events.
    InitialEvent(Received),
    /// The response to the request of a watch, with the requested timeout.
    WatchStarted(Duration, Result<EventStream, RequestError>),
    /// Received from a watch.
    Event(Received),
}

/// The resource version in the first request of a list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FirstPageRequest {
    /// "0": any state that the server has.
    Any,
    /// "": the most recent state.
    MostRecent,
    /// A state not older than the last revision.
    NotOlderThan,
}

/// An input from the stream of a watch.
enum Received {
    /// The next event.
    Event(WatchEvent),
    /// The initial events have not ended. Contains the age of the watch.
    BookmarkOverdue(Duration),
    /// The stream ended, or delivered nothing until the deadline of the watch.
    End,
}

/// The initial state that is being received.
#[derive(Default)]
struct InitialState {
    started: Duration,
    objects: u32,
}

/// The state machine of one reflector.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each corresponds to one flag of client-go's Reflector"
)]
pub(crate) struct ListAndWatch {
    source: Arc<dyn ListWatch>,
    timer: Arc<Timer>,
    backoff: Backoff,
    counters: Arc<ReflectorCounters>,
    phase: Phase,
    /// The request of the phase, if one was sent and not answered. It is kept here so that it
    /// continues if the future that waits for it is dropped.
    request: Option<BoxFuture<'static, Input>>,
    /// The end of the pause before the next request.
    pause_until: Option<Duration>,
    /// All changes up to this revision were emitted (client-go: `lastSyncResourceVersion`).
    last_revision: Option<Revision>,
    /// Whether a request at the last revision has failed because that revision is unavailable. The
    /// next list then requests the most recent state (client-go:
    /// `isLastSyncResourceVersionUnavailable`).
    last_revision_unavailable: bool,
    /// Whether initial states are requested as watch-lists.
    uses_watch_list: bool,
    /// Whether a watch-list has failed in this round, which therefore uses lists. A round ends with
    /// its initial state, or with a pause (client-go: `fallbackToList`, a variable of one round).
    falls_back_to_lists: bool,
    /// Whether the response to a list at resource version 0 was a page (WC-503; client-go:
    /// `paginatedResult`).
    paginated: bool,
    /// Whether the next list is requested without a limit, because the token of the last list
    /// expired.
    next_list_unpaged: bool,
    initial_state: InitialState,
}

impl ListAndWatch {
    /// Creates a state machine that starts with an initial state, or after the revision
    /// `resume_after`.
    pub(crate) fn new(
        source: Arc<dyn ListWatch>,
        timer: Arc<Timer>,
        backoff: Backoff,
        uses_watch_list: bool,
        resume_after: Option<Revision>,
    ) -> Self {
        Self {
            source,
            timer,
            backoff,
            counters: Arc::new(ReflectorCounters::new()),
            phase: if resume_after.is_some() {
                Phase::Listed
            } else {
                Phase::Unlisted
            },
            request: None,
            pause_until: None,
            last_revision: resume_after,
            last_revision_unavailable: false,
            uses_watch_list,
            falls_back_to_lists: false,
            paginated: false,
            next_list_unpaged: false,
            initial_state: InitialState::default(),
        }
    }

    pub(crate) fn last_revision(&self) -> Option<Revision> {
        self.last_revision
    }

    pub(crate) fn counters(&self) -> &Arc<ReflectorCounters> {
        &self.counters
    }

    pub(crate) fn timer(&self) -> &Timer {
        &self.timer
    }

    /// Ends the open watch, if there is one. The next event begins an initial state that is not
    /// older than the last revision.
    pub(crate) fn start_over(&mut self) {
        self.observe_watch_duration();
        self.request = None;
        self.phase = Phase::Unlisted;
    }

    /// Waits for the next event. The future can be dropped at any time without losing an event.
    pub(crate) async fn next(&mut self) -> ReflectorEvent {
        loop {
            if let Some(due) = self.pause_until {
                poll_fn(|context| self.timer.poll_until(due, context)).await;
                self.pause_until = None;
            }
            let input = self.receive().await;
            if let Some(event) = self.advance(input) {
                return event;
            }
        }
    }

    /// Sends the request of the current phase, or reads the open page or watch.
    ///
    /// Changes no state before its last await except the sent request, so that dropping the future
    /// loses nothing and repeats no request.
    async fn receive(&mut self) -> Input {
        match &mut self.phase {
            Phase::ReadingPage(page) => {
                if let Some(item) = page.items.next() {
                    return Input::Item(item);
                }
                if page.next.is_none() {
                    return Input::EndOfList(page.revision);
                }
            }
            Phase::InitialEvents(watch) => {
                return Input::InitialEvent(receive_event(watch, &self.timer).await);
            }
            Phase::Watching(watch) => {
                return Input::Event(receive_event(watch, &self.timer).await);
            }
            Phase::Unlisted | Phase::Listed => {}
        }
        let request = match self.request.take() {
            Some(request) => request,
            None => self.send(),
        };
        let input = self.request.insert(request).await;
        self.request = None;
        input
    }

    /// Returns the request of the current phase.
    fn send(&mut self) -> BoxFuture<'static, Input> {
        let source = self.source.clone();
        let watch = |revision: String, timeout| {
            WatchOptions::default()
                .resource_version(revision)
                .allow_bookmarks(true)
                .timeout(timeout)
        };
        match &self.phase {
            Phase::Unlisted if self.uses_watch_list && !self.falls_back_to_lists => {
                let timeout = self.backoff.jitter(WATCH_TIMEOUT_MIN);
                let options = watch(self.list_version(""), timeout)
                    .resource_version_match("NotOlderThan")
                    .send_initial_events(true);
                Box::pin(
                    async move { Input::WatchListStarted(timeout, source.watch(options).await) },
                )
            }
            Phase::ReadingPage(PendingPage {
                next: Some(token), ..
            }) => {
                let options = ListOptions::default()
                    .limit(PAGE_LIMIT)
                    .continue_token(token.clone());
                Box::pin(async move { Input::NextPage(source.list(options).await) })
            }
            Phase::Listed => {
                let timeout = self.backoff.jitter(WATCH_TIMEOUT_MIN);
                let revision = self.last_revision.map(|revision| revision.to_string());
                let options = watch(revision.unwrap_or_default(), timeout);
                Box::pin(async move { Input::WatchStarted(timeout, source.watch(options).await) })
            }
            // The other phases send no request.
            _ => {
                let (request, options) = self.first_page_request();
                Box::pin(async move { Input::FirstPage(request, source.list(options).await) })
            }
        }
    }

    /// Returns the resource version for the request of an initial state; `first` if there was no
    /// initial state before (WC-502, WC-503).
    fn list_version(&self, first: &str) -> String {
        match self.last_revision {
            _ if self.last_revision_unavailable => String::new(),
            Some(revision) => revision.to_string(),
            None => first.to_owned(),
        }
    }

    fn first_page_request(&self) -> (FirstPageRequest, ListOptions) {
        let resource_version = self.list_version("0");
        let request = match resource_version.as_str() {
            "0" => FirstPageRequest::Any,
            "" => FirstPageRequest::MostRecent,
            _ => FirstPageRequest::NotOlderThan,
        };
        // WC-503: without a limit, the server answers a list at a revision from its cache; with a
        // limit, it reads pages from the store.
        let in_pages = request != FirstPageRequest::NotOlderThan || self.paginated;
        let options = ListOptions::default()
            .limit(if in_pages && !self.next_list_unpaged {
                PAGE_LIMIT
            } else {
                0
            })
            .resource_version(resource_version);
        (request, options)
    }

    /// Moves to the next phase, and returns the event to emit, if there is one.
    fn advance(&mut self, input: Input) -> Option<ReflectorEvent> {
        Some(match input {
            Input::FirstPage(request, Ok(list)) => {
                self.next_list_unpaged = false;
                if request == FirstPageRequest::Any && list.continue_token.is_some() {
                    self.paginated = true;
                }
                self.begin_initial_state(Phase::ReadingPage(PendingPage::new(list)))
            }
            Input::FirstPage(request, Err(error)) => self.first_page_failed(request, error),
            Input::Item(Ok(object)) => self.initial_object(object),
            Input::EndOfList(revision) => self.end_initial_state(Phase::Listed, revision),
            Input::NextPage(Ok(list)) => {
                self.phase = Phase::ReadingPage(PendingPage::new(list));
                return None;
            }
            // WC-503: the list cannot be continued, so it is requested again at once, without a
            // limit.
            Input::NextPage(Err(error)) if error.is_expired() => {
                self.next_list_unpaged = true;
                self.phase = Phase::Unlisted;
                self.failed(error)
            }
            // The initial state would be incomplete without this object or page.
            Input::Item(Err(error)) | Input::NextPage(Err(error)) => {
                self.retry(Phase::Unlisted, error)
            }
            Input::WatchListStarted(timeout, Ok(stream)) => {
                let mut watch = self.open_watch(stream, timeout);
                watch.report_overdue = Some(watch.started + BOOKMARK_OVERDUE_INTERVAL);
                self.begin_initial_state(Phase::InitialEvents(watch))
            }
            Input::WatchListStarted(_, Err(error)) => self.watch_list_failed(error),
            Input::InitialEvent(received) => return self.initial_event(received),
            Input::WatchStarted(timeout, Ok(stream)) => {
                self.phase = Phase::Watching(self.open_watch(stream, timeout));
                return None;
            }
            Input::WatchStarted(_, Err(error)) => self.watch_failed(error),
            Input::Event(received) => return self.event(received),
        })
    }

    fn begin_initial_state(&mut self, next: Phase) -> ReflectorEvent {
        self.counters.lists.inc();
        self.initial_state = InitialState {
            started: self.timer.now(),
            objects: 0,
        };
        self.phase = next;
        ReflectorEvent::Init
    }

    fn initial_object(&mut self, object: Object) -> ReflectorEvent {
        self.initial_state.objects += 1;
        ReflectorEvent::InitApply(object)
    }

    fn end_initial_state(&mut self, next: Phase, revision: Revision) -> ReflectorEvent {
        let InitialState { started, objects } = self.initial_state;
        let counters = &self.counters;
        observe_since(&counters.list_seconds, started, self.timer.now());
        counters.items_per_list.observe(f64::from(objects));
        self.last_revision_unavailable = false;
        self.falls_back_to_lists = false;
        self.set_last_revision(revision);
        self.phase = next;
        ReflectorEvent::InitDone(revision)
    }

    /// WC-503: if the requested version is unavailable, the most recent state is requested at once.
    /// All other failures, including a failure of that request, are retried after a pause.
    fn first_page_failed(
        &mut self,
        request: FirstPageRequest,
        error: RequestError,
    ) -> ReflectorEvent {
        let is_version_unavailable =
            error.is_expired() || matches!(error, RequestError::TooLarge { .. });
        if is_version_unavailable && request != FirstPageRequest::MostRecent {
            self.last_revision_unavailable = true;
        } else {
            self.pause(&error);
        }
        self.failed(error)
    }

    fn open_watch(&self, stream: EventStream, timeout: Duration) -> OpenWatch {
        self.counters.watches.inc();
        let started = self.timer.now();
        OpenWatch {
            stream,
            started,
            deadline: started + timeout + WATCH_TIMEOUT_GRACE,
            report_overdue: None,
            events: 0,
        }
    }

    /// WC-502: handles the error of a watch-list, before or after its start.
    fn watch_list_failed(&mut self, error: RequestError) -> ReflectorEvent {
        self.observe_watch_duration();
        self.phase = Phase::Unlisted;
        match &error {
            error if error.is_temporary() => self.pause(error),
            RequestError::Expired(_) | RequestError::TooLarge { .. } => {
                if self.last_revision_unavailable {
                    self.pause(&error);
                }
                self.last_revision_unavailable = true;
            }
            _ => self.falls_back_to_lists = true,
        }
        self.failed(error)
    }

    fn initial_event(&mut self, received: Received) -> Option<ReflectorEvent> {
        Some(match received {
            Received::Event(WatchEvent::Object {
                event: EventType::Deleted,
                ..
            }) => self.watch_list_failed(RequestError::Internal(
                "a DELETED event among the initial events of a watch-list".into(),
            )),
            Received::Event(WatchEvent::Object { object, .. }) => self.initial_object(object),
            Received::Event(WatchEvent::Bookmark {
                revision,
                initial_events_end: true,
            }) => {
                let next = match std::mem::replace(&mut self.phase, Phase::Listed) {
                    // The same stream continues with the changes.
                    Phase::InitialEvents(mut watch) => {
                        watch.report_overdue = None;
                        Phase::Watching(watch)
                    }
                    other => other,
                };
                self.end_initial_state(next, revision)
            }
            Received::Event(WatchEvent::Bookmark { .. }) => return None,
            Received::Event(WatchEvent::Error(error)) => self.watch_list_failed(error),
            Received::BookmarkOverdue(age) => {
                self.counters.bookmarks_overdue.inc();
                ReflectorEvent::BookmarkOverdue(age)
            }
            Received::End => {
                self.observe_watch_duration();
                let message = "the watch-list ended before its initial events did";
                self.retry(Phase::Unlisted, RequestError::Internal(message.into()))
            }
        })
    }

    fn event(&mut self, received: Received) -> Option<ReflectorEvent> {
        Some(match received {
            Received::Event(WatchEvent::Object { event, object, .. }) => {
                self.raise_last_revision(object.revision());
                match event {
                    EventType::Added | EventType::Modified => ReflectorEvent::Apply(object),
                    EventType::Deleted => ReflectorEvent::Delete(object),
                }
            }
            Received::Event(WatchEvent::Bookmark { revision, .. }) => {
                self.raise_last_revision(revision);
                ReflectorEvent::Bookmark(revision)
            }
            Received::Event(WatchEvent::Error(error)) => self.watch_failed(error),
            // `BookmarkOverdue` is received among initial events only.
            Received::End | Received::BookmarkOverdue(_) => return self.watch_ended(),
        })
    }

    /// WC-505: a watch that ended is started again at the last revision without a list. After a very
    /// short watch there is a pause, because the server may close each watch at once.
    fn watch_ended(&mut self) -> Option<ReflectorEvent> {
        self.observe_watch_duration();
        let is_short = |watch: &OpenWatch| {
            watch.events == 0 && self.timer.now().saturating_sub(watch.started) < SHORT_WATCH_MAX
        };
        if !matches!(&self.phase, Phase::Watching(watch) if is_short(watch)) {
            self.phase = Phase::Listed;
            return None;
        }
        self.counters.short_watches.inc();
        let message = "very short watch: it ended within 1 s and without an event";
        Some(self.retry(Phase::Unlisted, RequestError::Internal(message.into())))
    }

    /// WC-506: handles the error of a watch, before or after its start.
    fn watch_failed(&mut self, error: RequestError) -> ReflectorEvent {
        self.observe_watch_duration();
        let next = match &error {
            // The server is overloaded, not ready or not reachable: the same watch is requested again.
            error if error.is_temporary() => Phase::Listed,
            // The list requests a state not older than the last revision, which the server reads
            // from its cache. The most recent state would need a quorum read of the store.
            _ => Phase::Unlisted,
        };
        self.retry(next, error)
    }

    /// Reports an error and sends the request of `next` after a pause.
    fn retry(&mut self, next: Phase, error: RequestError) -> ReflectorEvent {
        self.phase = next;
        self.pause(&error);
        self.failed(error)
    }

    fn failed(&mut self, error: RequestError) -> ReflectorEvent {
        self.counters.failures.inc();
        ReflectorEvent::Failed(error)
    }

    /// Ends the round: the next request is sent after a pause, which is at least as long as the server
    /// has asked for.
    fn pause(&mut self, error: &RequestError) {
        self.falls_back_to_lists = false;
        let now = self.timer.now();
        let asked = error.retry_after().unwrap_or_default().min(RETRY_AFTER_MAX);
        self.pause_until = Some(now + self.backoff.next(now).max(asked));
    }

    fn set_last_revision(&mut self, revision: Revision) {
        self.last_revision = Some(revision);
        self.counters.last_revision.set(revision.0);
    }

    fn raise_last_revision(&mut self, revision: Revision) {
        let last = self.last_revision;
        self.set_last_revision(last.map_or(revision, |last| last.max(revision)));
    }

    /// Records the duration of the open watch. Called before the watch is dropped.
    fn observe_watch_duration(&self) {
        if let Phase::InitialEvents(watch) | Phase::Watching(watch) = &self.phase {
            let counters = &self.counters;
            observe_since(&counters.watch_seconds, watch.started, self.timer.now());
        }
    }
}

/// Waits for the next event of a watch, for its deadline, or for the time of its next report.
async fn receive_event(watch: &mut OpenWatch, timer: &Timer) -> Received {
    let deadline = watch.deadline;
    let due = watch
        .report_overdue
        .map_or(deadline, |report| report.min(deadline));
    let stream = &mut watch.stream;
    let event = poll_fn(|context| match stream.as_mut().poll_next(context) {
        Poll::Ready(event) => Poll::Ready(Some(event)),
        Poll::Pending => timer.poll_until(due, context).map(|()| None),
    })
    .await;
    match event {
        Some(Some(event)) => {
            watch.events += 1;
            Received::Event(event)
        }
        None if due < deadline => {
            watch.report_overdue = Some(due + BOOKMARK_OVERDUE_INTERVAL);
            Received::BookmarkOverdue(timer.now().saturating_sub(watch.started))
        }
        Some(None) | None => Received::End,
    }
}
