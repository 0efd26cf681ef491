//! The feeder: takes what the source tells and gives it to the resources, in one order.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use futures_core::Stream;
use revstore_engine::{KeyRange, MainRevision};

use crate::blocking::block_on;
use crate::cache::Registry;
use crate::list::Reader;
use crate::ready::Readiness;
use crate::resource::{Core, Resource};
use crate::signal::Signal;
use crate::source::{Batch, BatchStream, Change, ListRequest, SourceError, Stored, WatchRequest};

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
/// WC-113). Nothing moves unless it is polled: spawn [`Feeder::run`] on an executor, or give it a
/// thread with [`Feeder::spawn`].
#[derive(Debug)]
#[must_use = "a cache without a running feeder never gets anything"]
pub struct Feeder {
    core: Arc<Core>,
    registry: Arc<Registry>,
    signal: Arc<Signal>,
}

/// A feeder on a thread of its own. Dropping this stops the cache, and waits for the thread.
#[derive(Debug)]
pub struct FeederThread {
    core: Arc<Core>,
    signal: Arc<Signal>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for FeederThread {
    fn drop(&mut self) {
        self.core.stop();
        self.signal.waker.wake();
        if let Some(thread) = self.thread.take() {
            // A panic of the feeder was reported by its thread.
            let _ = thread.join();
        }
    }
}

/// What the feeder found out.
enum Next {
    Batch(Batch),
    /// A resource was added.
    Added,
    Failed(SourceError),
    Stopped,
}

impl Feeder {
    pub(crate) fn new(core: Arc<Core>, registry: Arc<Registry>, signal: Arc<Signal>) -> Self {
        Self {
            core,
            registry,
            signal,
        }
    }

    /// Runs until the cache is stopped. Errors of the source end up in
    /// [`ResourceCache::readiness`](crate::ResourceCache::readiness) and are retried.
    pub async fn run(self) {
        let mut feed = Feed {
            core: self.core.clone(),
            registry: self.registry.clone(),
            signal: self.signal.clone(),
            loading: Vec::new(),
            woken: Vec::new(),
            applied: 0,
        };
        // What was loaded survives a lost connection, and is loaded again after a compaction.
        let mut keep = false;
        while !self.core.is_stopped() {
            match feed.session(keep).await {
                Ok(()) => break,
                Err(SourceError::Compacted) => keep = false,
                Err(error) => {
                    feed.note_failure(&error);
                    keep = true;
                    feed.pause().await;
                }
            }
        }
        for resource in self.registry.all() {
            resource.stop();
        }
    }

    /// Runs on a thread of its own.
    ///
    /// # Panics
    /// If the system has no thread left.
    pub fn spawn(self) -> FeederThread {
        let (core, signal) = (self.core.clone(), self.signal.clone());
        let thread = std::thread::Builder::new()
            .name("revstore-feeder".into())
            .spawn(move || block_on(self.run()))
            .expect("a thread for the feeder can be started");
        FeederThread {
            core,
            signal,
            thread: Some(thread),
        }
    }
}

/// The feeder at work.
struct Feed {
    core: Arc<Core>,
    registry: Arc<Registry>,
    signal: Arc<Signal>,
    /// Loaded resources that are ready once the watermark is here.
    loading: Vec<(Arc<Resource>, MainRevision)>,
    /// Whom to wake; kept for its memory.
    woken: Vec<Arc<Signal>>,
    /// Batches since the last pause.
    applied: usize,
}

impl Feed {
    /// Loads what is not loaded, then follows the source until it fails or the cache is stopped.
    async fn session(&mut self, keep: bool) -> Result<(), SourceError> {
        if !keep {
            for resource in self.registry.all() {
                resource.ready.set(Readiness::Pending {
                    since: self.core.timers.now(),
                    cause: None,
                });
            }
        }
        let watermark = self.core.watermark.load();
        let is_first = watermark == MainRevision(0);
        let mut after: Option<MainRevision> = None;
        self.loading.clear();
        for resource in self.registry.all() {
            // What is still ready has everything up to the watermark.
            let has = match resource.ready.state() {
                Readiness::Ready => watermark,
                _ => self.load(&resource, is_first).await?,
            };
            after = Some(after.map_or(has, |after| after.min(has)));
        }
        let after = match after {
            Some(after) => after,
            None if is_first => self.core.source.current_revision().await?,
            None => watermark,
        };
        let mut batches = self.watch(after).await?;
        // Everything up to `after` is loaded, or was applied before.
        self.publish(after);
        loop {
            match self.next(&mut batches).await {
                Next::Batch(batch) => self.apply(batch),
                Next::Added => self.load_added().await?,
                Next::Failed(error) => return Err(error),
                Next::Stopped => return Ok(()),
            }
        }
    }

    async fn watch(&self, after: MainRevision) -> Result<BatchStream, SourceError> {
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
            self.signal.waker.register(context.waker());
            if self.core.is_stopped() {
                return Poll::Ready(Next::Stopped);
            }
            if self.registry.take_added() {
                return Poll::Ready(Next::Added);
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
            resource.apply(changes, &mut self.woken);
        }
        self.publish(batch.through);
    }

    fn publish(&mut self, through: MainRevision) {
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

    async fn load_added(&mut self) -> Result<(), SourceError> {
        for resource in self.registry.all() {
            let known = self
                .loading
                .iter()
                .any(|(known, _)| Arc::ptr_eq(known, &resource));
            if !known && matches!(resource.ready.state(), Readiness::Pending { .. }) {
                self.load(&resource, false).await?;
            }
        }
        self.publish(self.core.watermark.load());
        Ok(())
    }

    /// Loads a resource; `far` as long ago as the source still has history for, so that the replay
    /// of what came since fills the window (WC-144). Returns the revision that was loaded.
    async fn load(
        &mut self,
        resource: &Arc<Resource>,
        far: bool,
    ) -> Result<MainRevision, SourceError> {
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
        at: Option<MainRevision>,
    ) -> Result<(MainRevision, Vec<Stored>), SourceError> {
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
                Some(last) if page.more => start = crate::keys::after(&last.key),
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
            self.signal.waker.register(context.waker());
            if self.core.is_stopped() {
                return Poll::Ready(());
            }
            sleep.as_mut().poll(context)
        })
        .await;
    }
}
