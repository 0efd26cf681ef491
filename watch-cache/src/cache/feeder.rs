//! The feeder: follows the source and applies its changes to the resources, in revision order.
//! Corresponds to the reflector inside Kubernetes' Cacher together with `dispatchEvents`.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use futures_core::Stream;
use pollster::block_on;
use revstore_engine::{KeyRange, Revision};

use crate::cache::consistency;
use crate::cache::readiness::Readiness;
use crate::cache::resource::Resource;
use crate::cache::shared::CacheShared;
use crate::cache::watch_cache::ResourceRegistry;
use crate::encode::object::ObjectDecoder;
use crate::source::{
    Batch, BatchStream, Change, ListRequest, SourceError, StoredKeyValue, WatchRequest,
};
use crate::wake::subscriber::Subscriber;

/// The pause after a failure of the source (B.1).
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The page size, in keys, of the reads that load a resource.
const LOAD_PAGE_KEYS: usize = 10_000;
/// The number of attempts to load the oldest revision that fail because it is compacted meanwhile.
/// Further attempts load the current revision.
const COMPACTED_LOADS_MAX: usize = 3;
/// The number of batches that are applied before the feeder yields to other tasks.
const POLL_BATCHES_MAX: usize = 64;

/// The task that keeps a cache up to date: the only writer of all its resources.
///
/// The feeder follows the source with one watch for all resources. It applies the changes of a
/// revision to the resources that they belong to, then raises the revision of the cache, then wakes
/// the watchers that the changes may match. It also compares the resources with the source from time
/// to time. The cache makes progress only while the feeder is polled: spawn [`Feeder::run`] on an
/// executor, or start a thread with [`Feeder::spawn`].
///
/// Dropping the feeder stops the cache: its watches end and requests are refused. This also happens
/// when its task is aborted, or when a [`Kind`](crate::encode::Kind) panics while it decodes an
/// object.
// WC-107, WC-113, WC-135.
#[derive(Debug)]
#[must_use = "without a running feeder the cache stays empty"]
pub struct Feeder {
    shared: Arc<CacheShared>,
    registry: Arc<ResourceRegistry>,
    rng: fastrand::Rng,
}

/// A handle on the thread of a feeder. Dropping it stops the cache and joins the thread.
#[derive(Debug)]
pub struct FeederThread {
    shared: Arc<CacheShared>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for FeederThread {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(thread) = self.thread.take() {
            // The panic hook of that thread has reported a panic of the feeder.
            let _ = thread.join();
        }
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.shared.stop();
        for resource in self.registry.all() {
            resource.stop();
        }
    }
}

/// An input of the feeder.
enum FeedEvent {
    Batch(Batch),
    /// A resource was added, or must be loaded again.
    LoadRequested,
    /// A request found the source at a revision below the watermark.
    Regressed,
    Failed(SourceError),
    Stopped,
}

impl Feeder {
    pub(crate) fn new(
        shared: Arc<CacheShared>,
        registry: Arc<ResourceRegistry>,
        rng: fastrand::Rng,
    ) -> Self {
        Self {
            shared,
            registry,
            rng,
        }
    }

    /// Runs until the cache is stopped. After an error of the source it tries again, and
    /// [`ResourceCache::readiness`](crate::ResourceCache::readiness) reports the error of a failed
    /// load. Dropping the future stops the cache.
    pub async fn run(self) {
        let rng = self.rng.clone();
        let checks = consistency::check_periodically(&self.shared, &self.registry, rng);
        let mut checks = pin!(checks);
        let mut feed = pin!(self.feed());
        poll_fn(|context| {
            if feed.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
            // The checks never complete.
            checks.as_mut().poll(context)
        })
        .await;
    }

    async fn feed(&self) {
        let mut feed = FeedLoop {
            shared: self.shared.clone(),
            registry: self.registry.clone(),
            replacements: 0,
            is_first: true,
            loading: Vec::new(),
            woken: Vec::new(),
            applied: 0,
        };
        // Loaded resources are kept after a lost connection. They are loaded again after a compaction,
        // and after the store was replaced.
        let mut keep = false;
        while !self.shared.is_stopped() {
            match feed.session(keep).await {
                Ok(()) => break,
                Err(SourceError::Compacted) => keep = false,
                Err(SourceError::Replaced { known, found }) => {
                    feed.discard_replaced(known, found);
                    keep = false;
                }
                Err(error) => {
                    feed.record_failure(&error);
                    keep = true;
                    feed.pause().await;
                }
            }
        }
    }

    /// Runs the feeder on a new thread.
    ///
    /// # Panics
    /// If the system cannot start a thread.
    pub fn spawn(self) -> FeederThread {
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new()
            .name("revstore-feeder".into())
            .spawn(move || block_on(self.run()))
            .expect("a thread for the feeder can be started");
        FeederThread {
            shared,
            thread: Some(thread),
        }
    }
}

/// The state of a running feeder.
struct FeedLoop {
    shared: Arc<CacheShared>,
    registry: Arc<ResourceRegistry>,
    /// The value of [`Source::replacements`] when the cache was loaded.
    ///
    /// [`Source::replacements`]: crate::source::Source::replacements
    replacements: u64,
    /// Whether nothing was published yet. The first load reads the oldest revision of the source, so
    /// that the windows also contain earlier events (WC-144).
    is_first: bool,
    /// Loaded resources, with the revision that the watermark must reach before they are ready.
    loading: Vec<(Arc<Resource>, Revision)>,
    /// The subscribers to wake after the next publication. Kept to reuse its memory.
    woken: Vec<Arc<Subscriber>>,
    /// The number of batches applied since the feeder last yielded.
    applied: usize,
}

impl FeedLoop {
    /// Loads the resources that are not ready, then follows the source until it fails or the cache is
    /// stopped. Unless `keep`, all resources are loaded.
    async fn session(&mut self, keep: bool) -> Result<(), SourceError> {
        if !keep {
            self.set_pending(None);
            self.replacements = self.shared.source.replacements();
        }
        let watermark = self.shared.watermark.load();
        let mut after: Option<Revision> = None;
        self.loading.clear();
        for resource in self.registry.all() {
            // A resource that is still ready has all changes up to the watermark.
            let complete_to = match resource.ready.state() {
                Readiness::Ready => watermark,
                _ => self.load(&resource, self.is_first).await?,
            };
            after = Some(after.map_or(complete_to, |after| after.min(complete_to)));
        }
        let after = match after {
            Some(after) => after,
            None => self.shared.source.current_revision().await?.max(watermark),
        };
        let mut batches = self.watch(after).await?;
        // Checked after the watch was opened: a store that replaces this one later ends the watch.
        self.check_lineage(after).await?;
        // All changes up to `after` are loaded or were applied before.
        self.publish(after);
        self.is_first = false;
        loop {
            match self.next(&mut batches).await {
                FeedEvent::Batch(batch) => self.apply(batch),
                FeedEvent::LoadRequested => self.load_requested().await?,
                FeedEvent::Regressed => self.check_lineage(self.shared.watermark.load()).await?,
                FeedEvent::Failed(error) => return Err(error),
                FeedEvent::Stopped => return Ok(()),
            }
        }
    }

    /// Fails with [`SourceError::Replaced`] if the source is not the store that had reached `known`.
    async fn check_lineage(&self, known: Revision) -> Result<(), SourceError> {
        let known = known.max(self.shared.watermark.load());
        let found = self.shared.source.current_revision().await?;
        if found < known || self.shared.source.replacements() != self.replacements {
            return Err(SourceError::Replaced { known, found });
        }
        Ok(())
    }

    /// Discards the state of all resources, because the store was replaced. No client may resume in
    /// the new store from a revision of the previous one, so the windows will not contain events from
    /// before the load.
    fn discard_replaced(&mut self, known: Revision, found: Revision) {
        let why = SourceError::Replaced { known, found };
        self.set_pending(Some(&why.to_string()));
        self.shared.watermark.reset();
        for resource in self.registry.all() {
            resource.mark_replaced(known, found);
        }
        self.is_first = false;
    }

    fn set_pending(&self, cause: Option<&str>) {
        for resource in self.registry.all() {
            resource.ready.set(Readiness::Pending {
                since: self.shared.timers.now(),
                cause: cause.map(str::to_owned),
            });
        }
    }

    async fn watch(&self, after: Revision) -> Result<BatchStream, SourceError> {
        // All keys, not only those of the resources: the watermark follows every commit (WC-107).
        let request = WatchRequest {
            range: KeyRange::all(),
            after,
            previous: false,
        };
        self.shared.source.watch(request).await
    }

    /// Waits for the next input. Yields to other tasks after every [`POLL_BATCHES_MAX`] batches.
    async fn next(&mut self, batches: &mut BatchStream) -> FeedEvent {
        poll_fn(|context| {
            self.shared.feeder.waker.register(context.waker());
            if self.shared.is_stopped() {
                return Poll::Ready(FeedEvent::Stopped);
            }
            if self.shared.take_regressed() {
                return Poll::Ready(FeedEvent::Regressed);
            }
            if self.shared.take_load_request() {
                return Poll::Ready(FeedEvent::LoadRequested);
            }
            if self.applied >= POLL_BATCHES_MAX {
                self.applied = 0;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            match Pin::new(&mut *batches).poll_next(context) {
                Poll::Ready(Some(Ok(batch))) => {
                    self.applied += 1;
                    Poll::Ready(FeedEvent::Batch(batch))
                }
                Poll::Ready(Some(Err(error))) => Poll::Ready(FeedEvent::Failed(error)),
                Poll::Ready(None) => {
                    let ended = "the source ended its watch".into();
                    Poll::Ready(FeedEvent::Failed(SourceError::Unavailable(ended)))
                }
                Poll::Pending => {
                    self.applied = 0;
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Applies a batch: **apply, publish, wake** (WC-113).
    fn apply(&mut self, batch: Batch) {
        let arrived = self.shared.timers.now();
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

    /// Raises the watermark to `through`, then wakes the subscribers that wait for it.
    fn publish(&mut self, through: Revision) {
        self.shared.watermark.publish(through);
        self.loading.retain(|(resource, at)| {
            let loaded = through >= *at;
            if loaded {
                resource.ready.set(Readiness::Ready);
            }
            !loaded
        });
        for subscriber in self.woken.drain(..) {
            subscriber.waker.wake();
        }
    }

    /// Loads the resources that were added or declared inconsistent.
    async fn load_requested(&mut self) -> Result<(), SourceError> {
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
        self.publish(self.shared.watermark.load());
        Ok(())
    }

    /// Loads a resource and returns the loaded revision. If `from_oldest`, that is the oldest revision
    /// of the source, and the events since then fill the window (WC-144); otherwise the current one.
    async fn load(
        &mut self,
        resource: &Arc<Resource>,
        from_oldest: bool,
    ) -> Result<Revision, SourceError> {
        let began = self.shared.timers.now();
        let ready_at = self.shared.source.current_revision().await?;
        let mut attempt = 0;
        loop {
            let oldest = self.shared.source.oldest_revision().filter(|_| from_oldest);
            let at = oldest.filter(|_| attempt < COMPACTED_LOADS_MAX);
            match self.read(resource, at).await {
                Ok((revision, items)) => {
                    let decoder: ObjectDecoder = resource.decoder();
                    let objects = items.into_iter().map(|stored| decoder.decode(stored));
                    resource.replace(revision, objects.collect());
                    let duration = &resource.counters.initialization_seconds;
                    duration.observe_since(began, self.shared.timers.now());
                    let ready_at = ready_at.max(revision);
                    self.loading.push((resource.clone(), ready_at));
                    return Ok(revision);
                }
                Err(SourceError::Compacted) if attempt < 2 * COMPACTED_LOADS_MAX => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads all keys of a resource at one revision, in pages.
    async fn read(
        &self,
        resource: &Resource,
        at: Option<Revision>,
    ) -> Result<(Revision, Vec<StoredKeyValue>), SourceError> {
        let span = resource.config.layout.span();
        let (mut all, mut at, mut start) = (Vec::new(), at, span.start.clone());
        loop {
            let request = ListRequest {
                range: span.from(start).range(),
                at,
                limit: Some(LOAD_PAGE_KEYS),
            };
            let page = self.shared.source.list(request).await?;
            at = Some(page.revision);
            all.extend(page.items);
            match all.last() {
                Some(last) if page.more => start = crate::api::keys::after(&last.key),
                _ => return Ok((page.revision, all)),
            }
        }
    }

    /// Records an error of the source in the readiness of the resources that are not ready.
    fn record_failure(&self, error: &SourceError) {
        for resource in self.registry.all() {
            if resource.ready.state() != Readiness::Ready {
                resource.counters.initialization_errors.add(1);
                resource.ready.set(Readiness::Pending {
                    since: self.shared.timers.now(),
                    cause: Some(error.to_string()),
                });
            }
        }
    }

    /// Waits for [`RETRY_AFTER`], or until the cache is stopped.
    async fn pause(&self) {
        let due = self.shared.timers.now() + RETRY_AFTER;
        let mut sleep = Box::pin(self.shared.timers.sleep_until(due));
        poll_fn(|context| {
            self.shared.feeder.waker.register(context.waker());
            if self.shared.is_stopped() {
                return Poll::Ready(());
            }
            sleep.as_mut().poll(context)
        })
        .await;
    }
}
