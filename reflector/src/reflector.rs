//! The reflector: an endless stream of the changes of a collection.
//!
//! Corresponds to `Reflector` of client-go and to `watcher` of kube-rs. The events have the names of
//! kube-rs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use futures_core::Stream;
use revstore_watch_cache::clock::{Clock, SystemClock};
use revstore_watch_cache::{Object, RequestError, Revision};

use crate::backoff::Backoff;
use crate::list_and_watch::ListAndWatch;
use crate::list_watch::ListWatch;
use crate::metrics::{ReflectorCounters, ReflectorMetrics};
use crate::timer::Timer;

/// An event of a [`Reflector`].
///
/// The objects of an initial state are delivered between `Init` and `InitDone`, each as an
/// `InitApply`. A previously delivered object that is not among them no longer exists. A second
/// `Init` before `InitDone` discards the objects received so far.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ReflectorEvent {
    /// An initial state begins.
    Init,
    /// An object of the initial state.
    InitApply(Object),
    /// The initial state is complete; this is its revision.
    InitDone(Revision),
    /// An object was created or changed.
    Apply(Object),
    /// An object was deleted, or no longer matches the selector. This is its last content.
    Delete(Object),
    /// All changes up to this revision were delivered.
    Bookmark(Revision),
    /// The initial events of a watch-list have not ended; this is the age of the watch. Reported
    /// every 10 s. A server that does not support watch-lists may ignore the option and never end
    /// the initial events.
    BookmarkOverdue(Duration),
    /// A request or a watch failed. The reflector retries after a pause.
    Failed(RequestError),
}

/// The request with which a [`Reflector`] reads the initial state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReflectorMode {
    /// A list in pages of 500 objects, then a watch.
    #[default]
    ListWatch,
    /// One watch that begins with the existing objects (`sendInitialEvents`). If it fails with an
    /// error other than 410, 429 or "resource version too large", the reflector reads this initial
    /// state with a list, and requests the next one as a watch-list again. With a server that does
    /// not support watch-lists, each initial state takes one request more.
    WatchList,
}

/// Lists a collection, watches it, and lists it again whenever the watch cannot be continued.
///
/// A reflector sends requests only while the future of [`Reflector::next`] is polled. It never ends:
/// it reports a failure as an event, and retries. The pause before a retry starts at 0.8 s to 1.6 s
/// and doubles up to 30 s to 60 s; after 2 minutes without a failure it starts again. It is longer if
/// the server asks for that, up to 60 s.
///
/// | Situation | Next request |
/// |---|---|
/// | start | a list at resource version "0": any state that the server has |
/// | end of a watch | a watch after the last revision |
/// | 410, or an unexpected error | a list not older than the last revision |
/// | 410 or "too large" for that list | a list of the most recent state |
/// | 429, 503, or a stopped cache | the same watch |
/// | 410 for a page | the list at once, without a limit |
///
/// ```
/// use std::sync::Arc;
/// use pollster::block_on;
/// use revstore_engine::Engine;
/// use revstore_reflector::{Reflector, ReflectorEvent, StorageListWatch};
/// use revstore_watch_cache::{EngineSource, JsonKind, ResourceConfig, Scope, Selector};
/// use revstore_watch_cache::clock::ManualClock;
/// use revstore_watch_cache::source::RawStore;
///
/// let engine = Engine::builder().build();
/// engine.put("/pods/ns/a", r#"{"metadata":{"name":"a"}}"#)?;
/// let pods = RawStore::new(
///     Arc::new(EngineSource::new(engine)),
///     ResourceConfig::namespaced(JsonKind::new("v1", "Pod"), "pods", "/pods"),
///     Arc::new(ManualClock::new()),
/// );
/// let source = StorageListWatch::new(Arc::new(pods), Scope::All, Selector::default());
/// let mut reflector = Reflector::builder(Arc::new(source)).build();
/// assert!(matches!(block_on(reflector.next()), ReflectorEvent::Init));
/// assert!(matches!(block_on(reflector.next()), ReflectorEvent::InitApply(pod) if pod.name() == "a"));
/// assert!(matches!(block_on(reflector.next()), ReflectorEvent::InitDone(_)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Reflector {
    machine: ListAndWatch,
    mode: ReflectorMode,
}

/// The configuration of a [`Reflector`], created by [`Reflector::builder`].
#[derive(Debug)]
#[must_use = "`build` creates the reflector"]
pub struct ReflectorBuilder {
    source: Arc<dyn ListWatch>,
    clock: Option<Arc<dyn Clock>>,
    random: Rng,
    mode: ReflectorMode,
    resume_after: Option<Revision>,
}

impl ReflectorBuilder {
    /// Sets the clock. The default is a separate [`SystemClock`].
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self {
            clock: Some(clock),
            ..self
        }
    }

    /// Sets the seed of the random part of pauses and watch timeouts. The default is a random seed.
    pub fn seed(self, seed: u64) -> Self {
        Self {
            random: Rng::with_seed(seed),
            ..self
        }
    }

    /// Sets the request for the initial state. The default is [`ReflectorMode::ListWatch`].
    pub fn mode(self, mode: ReflectorMode) -> Self {
        Self { mode, ..self }
    }

    /// Starts with a watch after `revision` instead of an initial state.
    ///
    /// The caller has the state of the collection at `revision`, for example the
    /// [`Reflector::last_revision`] of a previous reflector. If the server no longer has the changes
    /// after that revision, the reflector delivers an initial state.
    pub fn resume_after(self, revision: Revision) -> Self {
        Self {
            resume_after: Some(revision),
            ..self
        }
    }

    /// Creates the reflector. It sends no request before [`Reflector::next`] is polled.
    pub fn build(self) -> Reflector {
        let clock = self.clock.unwrap_or_else(|| Arc::new(SystemClock::new()));
        let uses_watch_list = self.mode == ReflectorMode::WatchList;
        Reflector {
            machine: ListAndWatch::new(
                self.source,
                Timer::new(clock),
                Backoff::new(self.random),
                uses_watch_list,
                self.resume_after,
            ),
            mode: self.mode,
        }
    }
}

impl fmt::Debug for Reflector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflector")
            .field("mode", &self.mode)
            .field("last_revision", &self.last_revision())
            .field("metrics", &self.metrics())
            .finish_non_exhaustive()
    }
}

impl Reflector {
    /// Returns the builder of a reflector of `source`.
    pub fn builder(source: Arc<dyn ListWatch>) -> ReflectorBuilder {
        ReflectorBuilder {
            source,
            clock: None,
            random: Rng::new(),
            mode: ReflectorMode::default(),
            resume_after: None,
        }
    }

    /// Waits for the next event.
    ///
    /// The future can be dropped at any time without losing an event.
    pub async fn next(&mut self) -> ReflectorEvent {
        self.machine.next().await
    }

    /// Converts the reflector into a stream, which never ends.
    pub fn into_stream(self) -> impl Stream<Item = ReflectorEvent> + Send {
        futures_util::stream::unfold(self, |mut reflector| async move {
            let event = reflector.next().await;
            Some((event, reflector))
        })
    }

    /// Returns the revision of the last event, or `None` before the first event with a revision.
    ///
    /// All changes of earlier revisions were delivered. If this revision changed several objects,
    /// some of its changes may not be delivered yet. They are delivered before the first event of a
    /// later revision.
    pub fn last_revision(&self) -> Option<Revision> {
        self.machine.last_revision()
    }

    /// Returns a snapshot of the metrics.
    pub fn metrics(&self) -> ReflectorMetrics {
        self.machine.counters().read()
    }

    pub(crate) fn counters(&self) -> &Arc<ReflectorCounters> {
        self.machine.counters()
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        self.machine.timer().clock()
    }

    /// Requests an initial state that is not older than the last revision. It is delivered next.
    pub(crate) fn start_over(&mut self) {
        self.machine.start_over();
    }
}
