//! The feeder: takes what the source tells and gives it to the resources, in one order.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use futures_core::Stream;
use revstore_engine::{KeyRange, Revision};

use crate::blocking::block_on;
use crate::cache::consistency;
use crate::cache::readiness::Readiness;
use crate::cache::resource::Resource;
use crate::cache::shared::Core;
use crate::cache::watch_cache::Registry;
use crate::encode::object::Reader;
use crate::random::Random;
use crate::source::{Batch, BatchStream, Change, ListRequest, SourceError, Stored, WatchRequest};
use crate::wake::subscriber::Signal;

/// How long to wait after the source failed (B.1).
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Keys that one read brings while a resource is loaded.
const LOAD_PAGE: usize = 10_000;
/// Loads at a revision that a compaction overtook; then the current revision is loaded instead.
const LOADS_OVERTAKEN_MAX: usize = 3;
/// Batches that one poll applies before it lets others run.
const POLL_BATCHES_MAX: usize = 64;

/// What moves a cache: the one writer of all its resources.
///
/// It follows the source with one watch for all resources, applies each revision to the resources
/// it concerns, then moves the watermark on, then wakes the watchers that may want it (WC-107,
/// WC-113). Now and then it compares the resources with the source (WC-135). Nothing moves unless it is
/// polled: spawn [`Feeder::run`] on an executor, or give it a
/// thread with [`Feeder::spawn`].
///
/// Where it is dropped, also because its task is aborted or a [`Kind`](crate::Kind) panicked on what
/// it read, the cache is stopped: watches end and requests are refused, instead of waiting for what
/// never comes.
#[derive(Debug)]
#[must_use = "a cache without a running feeder never gets anything"]
pub struct Feeder {
    core: Arc<Core>,
    registry: Arc<Registry>,
    random: Random,
}

/// A feeder on a thread of its own. Dropping this stops the cache, and waits for the thread.
#[derive(Debug)]
pub struct FeederThread {
    core: Arc<Core>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for FeederThread {
    fn drop(&mut self) {
        self.core.stop();
        if let Some(thread) = self.thread.take() {
            // A panic of the feeder was reported by its thread.
            let _ = thread.join();
        }
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.core.stop();
        for resource in self.registry.all() {
            resource.stop();
        }
    }
}

/// What the feeder found out.
enum Next {
    Batch(Batch),
    /// A resource was added, or must be loaded again.
    Load,
    /// A request found the source at a revision before the watermark.
    WentBack,
    Failed(SourceError),
    Stopped,
}

impl Feeder {
    pub(crate) fn new(core: Arc<Core>, registry: Arc<Registry>, random: Random) -> Self {
        Self {
            core,
            registry,
            random,
        }
    }

    /// Runs until the cache is stopped. Errors of the source end up in
    /// [`ResourceCache::readiness`](crate::ResourceCache::readiness) and are retried. Dropping the
    /// future stops the cache.
    pub async fn run(self) {
        let random = self.random.clone();
        let checks = consistency::check_now_and_then(&self.core, &self.registry, random);
        let mut checks = pin!(checks);
        let mut feed = pin!(self.feed());
        poll_fn(|context| {
            if feed.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
            // They never end.
            checks.as_mut().poll(context)
        })
        .await;
    }

    async fn feed(&self) {
        let mut feed = Feed {
            core: self.core.clone(),
            registry: self.registry.clone(),
            replacements: 0,
            is_first: true,
            loading: Vec::new(),
            woken: Vec::new(),
            applied: 0,
        };
        // What was loaded survives a lost connection, and is loaded again after a compaction or when
        // the store turns out to be another one.
        let mut keep = false;
        while !self.core.is_stopped() {
            match feed.session(keep).await {
                Ok(()) => break,
                Err(SourceError::Compacted) => keep = false,
                Err(SourceError::Replaced { known, found }) => {
                    feed.forget(known, found);
                    keep = false;
                }
                Err(error) => {
                    feed.note_failure(&error);
                    keep = true;
                    feed.pause().await;
                }
            }
        }
    }

    /// Runs on a thread of its own.
    ///
    /// # Panics
    /// If the system has no thread left.
    pub fn spawn(self) -> FeederThread {
        let core = self.core.clone();
        let thread = std::thread::Builder::new()
            .name("revstore-feeder".into())
            .spawn(move || block_on(self.run()))
            .expect("a thread for the feeder can be started");
        FeederThread {
            core,
            thread: Some(thread),
        }
    }
}

/// The feeder at work.
struct Feed {
    core: Arc<Core>,
    registry: Arc<Registry>,
    /// What the source said when the cache was loaded; see [`Source::replacements`].
    ///
    /// [`Source::replacements`]: crate::Source::replacements
    replacements: u64,
    /// Whether nothing was ever published: the window may reach back before the start (WC-144).
    is_first: bool,
    /// Loaded resources that are ready once the watermark is here.
    loading: Vec<(Arc<Resource>, Revision)>,
    /// Whom to wake; kept for its memory.
    woken: Vec<Arc<Signal>>,
    /// Batches since the last pause.
    applied: usize,
}

impl Feed {
    /// Loads what is not loaded, then follows the source until it fails or the cache is stopped.
    async fn session(&mut self, keep: bool) -> Result<(), SourceError> {
        if !keep {
            self.set_pending(None);
            self.replacements = self.core.source.replacements();
        }
        let watermark = self.core.watermark.load();
        let mut after: Option<Revision> = None;
        self.loading.clear();
        for resource in self.registry.all() {
            // What is still ready has everything up to the watermark.
            let has = match resource.ready.state() {
                Readiness::Ready => watermark,
                _ => self.load(&resource, self.is_first).await?,
            };
            after = Some(after.map_or(has, |after| after.min(has)));
        }
        let after = match after {
            Some(after) => after,
            None => self.core.source.current_revision().await?.max(watermark),
        };
        let mut batches = self.watch(after).await?;
        // Behind the start of the watch: whoever takes the store's place later ends it.
        self.check_lineage(after).await?;
        // Everything up to `after` is loaded, or was applied before.
        self.publish(after);
        self.is_first = false;
        loop {
            match self.next(&mut batches).await {
                Next::Batch(batch) => self.apply(batch),
                Next::Load => self.load_waiting().await?,
                Next::WentBack => self.check_lineage(self.core.watermark.load()).await?,
                Next::Failed(error) => return Err(error),
                Next::Stopped => return Ok(()),
            }
        }
    }

    /// Fails if the source cannot be the one that was at `known` before.
    async fn check_lineage(&self, known: Revision) -> Result<(), SourceError> {
        let known = known.max(self.core.watermark.load());
        let found = self.core.source.current_revision().await?;
        if found < known || self.core.source.replacements() != self.replacements {
            return Err(SourceError::Replaced { known, found });
        }
        Ok(())
    }

    /// The store is another one: nothing that was known of it holds, and nobody may resume in it
    /// from a revision of the old one, so the window does not reach back before the load.
    fn forget(&mut self, known: Revision, found: Revision) {
        let why = SourceError::Replaced { known, found };
        self.set_pending(Some(&why.to_string()));
        self.core.watermark.reset();
        for resource in self.registry.all() {
            resource.forget(known, found);
        }
        self.is_first = false;
    }

    fn set_pending(&self, cause: Option<&str>) {
        for resource in self.registry.all() {
            resource.ready.set(Readiness::Pending {
                since: self.core.timers.now(),
                cause: cause.map(str::to_owned),
            });
        }
    }

    async fn watch(&self, after: Revision) -> Result<BatchStream, SourceError> {
        // All keys, not those of the resources: the watermark follows every commit (WC-107).
        let request = WatchRequest {
            range: KeyRange::all(),
            after,
            previous: false,
        };
        self.core.source.watch(request).await
    }

    /// The next thing to do. Lets others run now and then, however much there is to do.
    async fn next(&mut self, batches: &mut BatchStream) -> Next {
        poll_fn(|context| {
            self.core.feeder.waker.register(context.waker());
            if self.core.is_stopped() {
                return Poll::Ready(Next::Stopped);
            }
            if self.core.take_went_back() {
                return Poll::Ready(Next::WentBack);
            }
            if self.core.take_to_load() {
                return Poll::Ready(Next::Load);
            }
            if self.applied >= POLL_BATCHES_MAX {
                self.applied = 0;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            match Pin::new(&mut *batches).poll_next(context) {
                Poll::Ready(Some(Ok(batch))) => {
                    self.applied += 1;
                    Poll::Ready(Next::Batch(batch))
                }
                Poll::Ready(Some(Err(error))) => Poll::Ready(Next::Failed(error)),
                Poll::Ready(None) => {
                    let gone = "the source ended its watch".into();
                    Poll::Ready(Next::Failed(SourceError::Unavailable(gone)))
                }
                Poll::Pending => {
                    self.applied = 0;
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// **Apply, publish, wake** (WC-113).
    fn apply(&mut self, batch: Batch) {
        let arrived = self.core.timers.now();
        let mut parts: Vec<(Arc<Resource>, Vec<Change>)> = Vec::new();
        for change in batch.changes {
            let Some(resource) = self.registry.of_key(&change.key) else {
                continue;
            };
            let part = parts
                .iter_mut()
                .find(|(known, _)| Arc::ptr_eq(known, &resource));
            match part {
                Some((_, part)) => part.push(change),
                None => parts.push((resource, vec![change])),
            }
        }
        for (resource, changes) in parts {
            resource.apply(changes, arrived, &mut self.woken);
        }
        self.publish(batch.through);
    }

    fn publish(&mut self, through: Revision) {
        self.core.watermark.publish(through);
        self.loading.retain(|(resource, at)| {
            let loaded = through >= *at;
            if loaded {
                resource.ready.set(Readiness::Ready);
            }
            !loaded
        });
        for signal in self.woken.drain(..) {
            signal.waker.wake();
        }
    }

    async fn load_waiting(&mut self) -> Result<(), SourceError> {
        for resource in self.registry.all() {
            let known = self
                .loading
                .iter()
                .any(|(known, _)| Arc::ptr_eq(known, &resource));
            let state = resource.ready.state();
            if !known && !matches!(state, Readiness::Ready | Readiness::Stopped) {
                self.load(&resource, false).await?;
            }
        }
        self.publish(self.core.watermark.load());
        Ok(())
    }

    /// Loads a resource; `far` as long ago as the source still has history for, so that the replay
    /// of what came since fills the window (WC-144). Returns the revision that was loaded.
    async fn load(&mut self, resource: &Arc<Resource>, far: bool) -> Result<Revision, SourceError> {
        let began = self.core.timers.now();
        let ready_at = self.core.source.current_revision().await?;
        let mut attempt = 0;
        loop {
            let oldest = self.core.source.oldest_revision().filter(|_| far);
            let at = oldest.filter(|_| attempt < LOADS_OVERTAKEN_MAX);
            match self.read(resource, at).await {
                Ok((revision, items)) => {
                    let reader: Reader = resource.reader();
                    let entries = items.into_iter().map(|stored| reader.read(stored));
                    resource.replace(revision, entries.collect());
                    let took = &resource.counters.initialization_us;
                    took.since(began, self.core.timers.now());
                    let ready_at = ready_at.max(revision);
                    self.loading.push((resource.clone(), ready_at));
                    return Ok(revision);
                }
                Err(SourceError::Compacted) if attempt < 2 * LOADS_OVERTAKEN_MAX => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// All keys of a resource at one revision, read in pages.
    async fn read(
        &self,
        resource: &Resource,
        at: Option<Revision>,
    ) -> Result<(Revision, Vec<Stored>), SourceError> {
        let span = resource.config.layout.span();
        let (mut all, mut at, mut start) = (Vec::new(), at, span.start.clone());
        loop {
            let request = ListRequest {
                range: span.from(start).range(),
                at,
                limit: Some(LOAD_PAGE),
            };
            let page = self.core.source.list(request).await?;
            at = Some(page.revision);
            all.extend(page.items);
            match all.last() {
                Some(last) if page.more => start = crate::api::keys::after(&last.key),
                _ => return Ok((page.revision, all)),
            }
        }
    }

    fn note_failure(&self, error: &SourceError) {
        for resource in self.registry.all() {
            if resource.ready.state() != Readiness::Ready {
                resource.counters.initialization_errors.add(1);
                resource.ready.set(Readiness::Pending {
                    since: self.core.timers.now(),
                    cause: Some(error.to_string()),
                });
            }
        }
    }

    /// Waits before another attempt, or until the cache is stopped.
    async fn pause(&self) {
        let due = self.core.timers.now() + RETRY_AFTER;
        let mut sleep = Box::pin(self.core.timers.until(due));
        poll_fn(|context| {
            self.core.feeder.waker.register(context.waker());
            if self.core.is_stopped() {
                return Poll::Ready(());
            }
            sleep.as_mut().poll(context)
        })
        .await;
    }
}
