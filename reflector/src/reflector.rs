//! The reflector: list, then watch, for ever (F.1), told in the words of F.3.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use fastrand::Rng;
use futures_core::Stream;
use revstore_watch_cache::{
    Clock, EventStream, EventType, Items, ListOptions, Object, RequestError, Revision, SystemClock,
    WatchEvent, WatchOptions,
};

use crate::backoff::Backoff;
use crate::list_watch::ListWatch;
use crate::metrics::{Counters, ReflectorMetrics, observe_since};
use crate::timer::Timer;

/// What a reflector tells.
///
/// Between `Init` and `InitDone` come all objects, each as an `InitApply`; what was there before and
/// is not among them is gone. Another `Init` before `InitDone` starts that over.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ReflectorEvent {
    /// A new state begins.
    Init,
    /// An object of it.
    InitApply(Object),
    /// It is complete, at this revision.
    InitDone(Revision),
    /// An object was created or changed.
    Apply(Object),
    /// An object was deleted, or left the selection; this is its last content.
    Delete(Object),
    /// Nothing of what is watched changed up to this revision.
    Bookmark(Revision),
    /// The watch of a watch-list has lived for this long, and its initial events did not end
    /// (WC-502); told every 10 s. The server may not know that it is to end them.
    BookmarkOverdue(Duration),
    /// Something failed; the reflector goes on by itself (WC-501).
    Failed(RequestError),
}

/// How a reflector gets its first state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReflectorMode {
    /// A list in pages, then a watch (WC-503).
    ListWatch,
    /// One watch that begins with the state (WC-502); a list if the server refuses that.
    WatchList,
}

/// Objects of one page of a list (WC-503).
const PAGE: i64 = 500;
/// A watch that ends before this, and without an event, counts as a failure (WC-505).
const SHORT_WATCH: Duration = Duration::from_secs(1);
/// How long a watch is asked to live, at least; at most twice as long (WC-504).
const WATCH_TIMEOUT_MIN: Duration = Duration::from_secs(300);
/// How long behind its own deadline a silent watch is given up.
const WATCH_OVERDUE: Duration = Duration::from_secs(5);
/// How often it is told that initial events do not end (WC-502).
const LATE: Duration = Duration::from_secs(10);

/// Where a reflector stands.
enum Phase {
    /// Nothing is known, or what is known must be replaced. Begins a list or a watch-list.
    Empty,
    /// Objects of a page are told one by one. At its end: the next page, or `Listed`.
    Paging(Page),
    /// The watch of a watch-list tells the first state. At its annotated bookmark: `Watching`;
    /// when it ends before: `Empty`.
    InitialWatch(Running),
    /// Everything up to the last revision is known. Begins a watch.
    Listed,
    /// A watch tells what changes. When it ends: `Listed`, or `Empty` after some failures.
    Watching(Running),
}

struct Page {
    items: Items,
    revision: Revision,
    /// Where the next page starts.
    next: Option<String>,
}

struct Running {
    stream: EventStream,
    begun: Duration,
    /// When to give it up.
    overdue: Duration,
    /// When to tell that its initial events are late, while they last.
    late: Option<Duration>,
    events: u64,
}

/// Keeps a picture of a collection up to date: lists it, watches it, and begins again when it must.
///
/// Call [`Reflector::next`] again and again; it waits for what comes next. It never ends and never
/// fails: failures are told and retried, with growing pauses (WC-507). Dropping the future of a
/// `next` loses nothing.
///
/// ```
/// use std::sync::Arc;
/// use pollster::block_on;
/// use revstore_engine::Engine;
/// use revstore_reflector::{Reflector, ReflectorEvent, StorageListWatch};
/// use revstore_watch_cache::{
///     EngineSource, ManualClock, RawStore, ResourceConfig, Scope, Selector,
/// };
/// let engine = Engine::builder().build();
/// engine.put("/pods/ns/a", r#"{"metadata":{"name":"a"}}"#)?;
/// let pods = RawStore::new(
///     Arc::new(EngineSource::new(engine)),
///     ResourceConfig::namespaced("", "pods", "/pods"),
///     Arc::new(ManualClock::new()),
/// );
/// let source = StorageListWatch::new(Arc::new(pods), Scope::All, Selector::default());
/// let mut reflector = Reflector::builder(Arc::new(source)).build();
/// assert!(matches!(block_on(reflector.next()), ReflectorEvent::Init));
/// assert!(matches!(block_on(reflector.next()), ReflectorEvent::InitApply(pod) if pod.name() == "a"));
/// assert!(matches!(block_on(reflector.next()), ReflectorEvent::InitDone(_)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[expect(
    clippy::struct_excessive_bools,
    reason = "what client-go keeps, word by word (F.1)"
)]
pub struct Reflector {
    source: Arc<dyn ListWatch>,
    timer: Arc<Timer>,
    mode: ReflectorMode,
    /// Whether a watch-list is still worth a try.
    watch_list: bool,
    backoff: Backoff,
    phase: Phase,
    /// When to try again.
    pause_until: Option<Duration>,
    last_revision: Option<Revision>,
    /// Whether the last revision turned out to be gone or ahead: ask for the most recent state.
    unavailable: bool,
    /// Whether a list at resource version 0 came in pages (WC-503).
    paginated: bool,
    /// Whether the next list must come in one piece: a page of the last one was gone.
    full_list: bool,
    /// When the first state was begun that is being told, and its objects so far.
    telling: (Duration, u32),
    counters: Arc<Counters>,
}

/// Sets a reflector up; made by [`Reflector::builder`].
#[derive(Debug)]
#[must_use = "a reflector is made by `build`"]
pub struct ReflectorBuilder {
    source: Arc<dyn ListWatch>,
    clock: Option<Arc<dyn Clock>>,
    random: Rng,
    mode: ReflectorMode,
    resume: Option<Revision>,
}

impl ReflectorBuilder {
    /// The source of time; the machine's if none is given.
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self {
            clock: Some(clock),
            ..self
        }
    }

    /// The seed of the random pauses and timeouts; unpredictable if none is given.
    pub fn seed(self, seed: u64) -> Self {
        Self {
            random: Rng::with_seed(seed),
            ..self
        }
    }

    /// How the first state is got; by a list and a watch if nothing is said.
    pub fn mode(self, mode: ReflectorMode) -> Self {
        Self { mode, ..self }
    }

    /// Goes on after `revision`, up to which everything is known already, instead of listing first.
    /// If that is too long ago, a new state is told.
    pub fn resume_after(self, revision: Revision) -> Self {
        Self {
            resume: Some(revision),
            ..self
        }
    }

    /// Makes the reflector. It asks nothing before it is asked.
    pub fn build(self) -> Reflector {
        let clock = self.clock.unwrap_or_else(|| Arc::new(SystemClock::new()));
        Reflector {
            source: self.source,
            timer: Timer::new(clock),
            mode: self.mode,
            watch_list: self.mode == ReflectorMode::WatchList,
            backoff: Backoff::new(self.random),
            phase: if self.resume.is_some() {
                Phase::Listed
            } else {
                Phase::Empty
            },
            pause_until: None,
            last_revision: self.resume,
            unavailable: false,
            paginated: false,
            full_list: false,
            telling: (Duration::ZERO, 0),
            counters: Arc::new(Counters::new()),
        }
    }
}

impl fmt::Debug for Reflector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflector")
            .field("mode", &self.mode)
            .field("last_revision", &self.last_revision)
            .field("metrics", &self.metrics())
            .finish_non_exhaustive()
    }
}

/// What one step came to.
enum Step {
    Tell(ReflectorEvent),
    Go,
}

impl Reflector {
    /// Sets a reflector of `source` up.
    pub fn builder(source: Arc<dyn ListWatch>) -> ReflectorBuilder {
        ReflectorBuilder {
            source,
            clock: None,
            random: Rng::new(),
            mode: ReflectorMode::ListWatch,
            resume: None,
        }
    }

    /// The revision of what was told last (WC-519). Everything before it was told; of the revision
    /// itself, if it changed several objects, some may still be to come while there is a next event.
    pub fn last_revision(&self) -> Option<Revision> {
        self.last_revision
    }

    /// What it counts.
    pub fn metrics(&self) -> ReflectorMetrics {
        self.counters.read()
    }

    pub(crate) fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        self.timer.clock()
    }

    /// Forgets what was told: a state comes next, not older than what is known.
    pub(crate) fn start_over(&mut self) {
        self.watch_over();
        self.phase = Phase::Empty;
    }

    /// What comes next; waits for it.
    pub async fn next(&mut self) -> ReflectorEvent {
        loop {
            if let Some(due) = self.pause_until {
                poll_fn(|context| self.timer.poll_until(due, context)).await;
                self.pause_until = None;
            }
            if let Step::Tell(event) = self.step().await {
                return event;
            }
        }
    }

    /// The reflector as a stream that never ends.
    pub fn into_stream(self) -> impl Stream<Item = ReflectorEvent> + Send {
        futures_util::stream::unfold(self, |mut reflector| async move {
            let event = reflector.next().await;
            Some((event, reflector))
        })
    }

    /// One step. Whatever it waits for may be given up: the state changes only behind it.
    async fn step(&mut self) -> Step {
        match &mut self.phase {
            Phase::Empty if self.watch_list => self.begin_watch_list().await,
            Phase::Empty => self.begin_list().await,
            Phase::Paging(page) => match page.items.next() {
                Some(Ok(object)) => self.init_apply(object),
                // Without it the state would not be complete.
                Some(Err(error)) => {
                    self.phase = Phase::Empty;
                    self.pause();
                    self.failed(error)
                }
                None => self.end_page().await,
            },
            Phase::Listed => self.begin_watch().await,
            Phase::InitialWatch(running) => {
                let event = next_event(running, &self.timer).await;
                self.initial_event(event)
            }
            Phase::Watching(running) => {
                let event = next_event(running, &self.timer).await;
                self.watch_event(event)
            }
        }
    }

    /// The resource version to list or to begin a watch-list with (WC-502, WC-503).
    fn begin_version(&self, first: &str) -> String {
        match self.last_revision {
            _ if self.unavailable => String::new(),
            Some(revision) => revision.to_string(),
            None => first.to_owned(),
        }
    }

    async fn begin_list(&mut self) -> Step {
        let resource_version = self.begin_version("0");
        let at_zero = resource_version == "0";
        // A list at a version is served whole, by the cache; pages would go to the store.
        let in_pages = at_zero || resource_version.is_empty() || self.paginated;
        let options = ListOptions {
            limit: if in_pages && !self.full_list { PAGE } else { 0 },
            resource_version,
            ..ListOptions::default()
        };
        let asked_latest = options.resource_version.is_empty();
        match self.source.list(options).await {
            Ok(list) => {
                self.init();
                self.full_list = false;
                if at_zero && list.continue_token.is_some() {
                    self.paginated = true;
                }
                self.phase = Phase::Paging(Page {
                    items: list.items,
                    revision: list.revision,
                    next: list.continue_token,
                });
                Step::Tell(ReflectorEvent::Init)
            }
            Err(error) => self.list_failed(error, asked_latest),
        }
    }

    /// WC-503: a version that is gone or ahead is worth one more try at once, at the most recent
    /// state; anything else waits.
    fn list_failed(&mut self, error: RequestError, asked_latest: bool) -> Step {
        let wrong_version = error.is_expired() || matches!(error, RequestError::TooLarge { .. });
        if wrong_version && !asked_latest {
            self.unavailable = true;
        } else {
            self.pause();
        }
        self.failed(error)
    }

    async fn end_page(&mut self) -> Step {
        let Phase::Paging(page) = &self.phase else {
            return Step::Go;
        };
        let Some(token) = page.next.clone() else {
            let revision = page.revision;
            self.phase = Phase::Listed;
            return self.init_done(revision);
        };
        let options = ListOptions {
            limit: PAGE,
            continue_token: token,
            ..ListOptions::default()
        };
        match self.source.list(options).await {
            Ok(list) => {
                self.phase = Phase::Paging(Page {
                    items: list.items,
                    revision: list.revision,
                    next: list.continue_token,
                });
                Step::Go
            }
            Err(error) if error.is_expired() => {
                // The list cannot be finished as it began: once more, in one piece.
                self.full_list = true;
                self.phase = Phase::Empty;
                self.failed(error)
            }
            Err(error) => {
                self.phase = Phase::Empty;
                self.pause();
                self.failed(error)
            }
        }
    }

    fn init(&mut self) {
        self.counters.lists.increment();
        self.telling = (self.timer.now(), 0);
    }

    fn init_apply(&mut self, object: Object) -> Step {
        self.telling.1 += 1;
        Step::Tell(ReflectorEvent::InitApply(object))
    }

    fn init_done(&mut self, revision: Revision) -> Step {
        let (begun, items) = self.telling;
        observe_since(&self.counters.list_seconds, begun, self.timer.now());
        self.counters.items_per_list.observe(f64::from(items));
        self.unavailable = false;
        self.know(revision);
        Step::Tell(ReflectorEvent::InitDone(revision))
    }

    fn know(&mut self, revision: Revision) {
        self.last_revision = Some(revision);
        self.counters.set_last_revision(revision);
    }

    fn watch_timeout(&mut self) -> Duration {
        WATCH_TIMEOUT_MIN.mul_f64(1.0 + self.backoff.random().f64())
    }

    fn running(&self, stream: EventStream, timeout: Duration) -> Running {
        let begun = self.timer.now();
        Running {
            stream,
            begun,
            overdue: begun + timeout + WATCH_OVERDUE,
            late: None,
            events: 0,
        }
    }

    async fn begin_watch(&mut self) -> Step {
        let timeout = self.watch_timeout();
        let revision = self.last_revision.map(|revision| revision.to_string());
        let options = WatchOptions {
            resource_version: revision.unwrap_or_default(),
            allow_bookmarks: true,
            timeout: Some(timeout),
            ..WatchOptions::default()
        };
        match self.source.watch(options).await {
            Ok(stream) => {
                self.counters.watches.increment();
                self.phase = Phase::Watching(self.running(stream, timeout));
                Step::Go
            }
            Err(error) => self.watch_failed(error),
        }
    }

    async fn begin_watch_list(&mut self) -> Step {
        let timeout = self.watch_timeout();
        let options = WatchOptions {
            resource_version: self.begin_version(""),
            resource_version_match: "NotOlderThan".into(),
            send_initial_events: Some(true),
            allow_bookmarks: true,
            timeout: Some(timeout),
            ..WatchOptions::default()
        };
        match self.source.watch(options).await {
            Ok(stream) => {
                self.init();
                self.counters.watches.increment();
                let mut running = self.running(stream, timeout);
                running.late = Some(running.begun + LATE);
                self.phase = Phase::InitialWatch(running);
                Step::Tell(ReflectorEvent::Init)
            }
            Err(error) => self.watch_list_failed(error),
        }
    }

    /// WC-502.
    fn watch_list_failed(&mut self, error: RequestError) -> Step {
        self.watch_over();
        self.phase = Phase::Empty;
        match &error {
            RequestError::NotReady { .. } | RequestError::Stopped => self.pause(),
            RequestError::Expired(_) | RequestError::TooLarge { .. } => {
                if self.unavailable {
                    self.pause();
                }
                self.unavailable = true;
            }
            _ => self.watch_list = false,
        }
        self.failed(error)
    }

    fn initial_event(&mut self, event: Heard) -> Step {
        let event = match event {
            Heard::Late(lived) => {
                self.counters.bookmarks_overdue.increment();
                return Step::Tell(ReflectorEvent::BookmarkOverdue(lived));
            }
            Heard::Event(event) => Some(event),
            Heard::End => None,
        };
        match event {
            Some(WatchEvent::Object {
                event: EventType::Deleted,
                ..
            }) => self.watch_list_failed(RequestError::Internal(
                "a deletion among the initial events".into(),
            )),
            Some(WatchEvent::Object { object, .. }) => self.init_apply(object),
            Some(WatchEvent::Bookmark {
                revision,
                initial_events_end: true,
            }) => {
                // The same stream goes on.
                if let Phase::InitialWatch(mut running) =
                    std::mem::replace(&mut self.phase, Phase::Listed)
                {
                    running.late = None;
                    self.phase = Phase::Watching(running);
                }
                self.init_done(revision)
            }
            Some(WatchEvent::Bookmark { .. }) => Step::Go,
            Some(WatchEvent::Error(error)) => self.watch_list_failed(error),
            None => {
                self.watch_over();
                self.phase = Phase::Empty;
                self.pause();
                self.failed(RequestError::Internal(
                    "the watch ended before its initial events did".into(),
                ))
            }
        }
    }

    fn watch_event(&mut self, event: Heard) -> Step {
        match event {
            Heard::Event(WatchEvent::Object { event, object, .. }) => {
                self.know_at_least(object.revision());
                Step::Tell(match event {
                    EventType::Added | EventType::Modified => ReflectorEvent::Apply(object),
                    EventType::Deleted => ReflectorEvent::Delete(object),
                })
            }
            Heard::Event(WatchEvent::Bookmark { revision, .. }) => {
                self.know_at_least(revision);
                Step::Tell(ReflectorEvent::Bookmark(revision))
            }
            Heard::Event(WatchEvent::Error(error)) => self.watch_failed(error),
            // Only initial events can be late.
            Heard::End | Heard::Late(_) => self.watch_ended(),
        }
    }

    fn know_at_least(&mut self, revision: Revision) {
        self.know(
            self.last_revision
                .map_or(revision, |last| last.max(revision)),
        );
    }

    /// Notes how long a watch lived that is over.
    fn watch_over(&self) {
        if let Phase::InitialWatch(running) | Phase::Watching(running) = &self.phase {
            let counters = &self.counters;
            observe_since(&counters.watch_seconds, running.begun, self.timer.now());
        }
    }

    /// WC-505: a watch that ends is begun again where it ended, unless it was too short to be true.
    fn watch_ended(&mut self) -> Step {
        self.watch_over();
        let is_short = match &self.phase {
            Phase::Watching(running) => {
                running.events == 0 && self.timer.now().saturating_sub(running.begun) < SHORT_WATCH
            }
            _ => false,
        };
        if !is_short {
            self.phase = Phase::Listed;
            return Step::Go;
        }
        self.counters.short_watches.increment();
        self.phase = Phase::Empty;
        self.pause();
        self.failed(RequestError::Internal(
            "very short watch: it ended within a second and without an event".into(),
        ))
    }

    /// WC-506.
    fn watch_failed(&mut self, error: RequestError) -> Step {
        self.watch_over();
        self.phase = match &error {
            // The same revision again, later.
            RequestError::NotReady { .. } | RequestError::Stopped => Phase::Listed,
            // A new state, not older than what is known: that spares the store a quorum read.
            _ => Phase::Empty,
        };
        self.pause();
        self.failed(error)
    }

    fn failed(&mut self, error: RequestError) -> Step {
        self.counters.failures.increment();
        Step::Tell(ReflectorEvent::Failed(error))
    }

    fn pause(&mut self) {
        let now = self.timer.now();
        self.pause_until = Some(now + self.backoff.next(now));
    }
}

/// What came of a watch.
enum Heard {
    Event(WatchEvent),
    /// Its initial events should have ended; it has lived for this long.
    Late(Duration),
    /// It ended, or is silent for longer than it may live.
    End,
}

async fn next_event(running: &mut Running, timer: &Timer) -> Heard {
    let due = running
        .late
        .map_or(running.overdue, |late| late.min(running.overdue));
    let stream = &mut running.stream;
    let event = poll_fn(|context| match stream.as_mut().poll_next(context) {
        Poll::Ready(event) => Poll::Ready(Some(event)),
        Poll::Pending => timer.poll_until(due, context).map(|()| None),
    })
    .await;
    match event {
        Some(Some(event)) => {
            running.events += 1;
            Heard::Event(event)
        }
        None if due < running.overdue => {
            running.late = Some(due + LATE);
            Heard::Late(timer.now().saturating_sub(running.begun))
        }
        Some(None) | None => Heard::End,
    }
}
