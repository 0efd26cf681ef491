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
use crate::wake::Waiter;

/// The pause after a failure of the source (docs/watch-cache.md, B.1).
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The page size, in keys, of the reads that load a resource.
const LOAD_PAGE_KEYS: usize = 10_000;
/// The number of loads at the oldest revision that may fail with [`SourceError::Compacted`] before
/// the current revision is loaded instead.
const COMPACTED_LOADS_AT_OLDEST_MAX: usize = 3;
/// The number of loads of a resource that may fail with [`SourceError::Compacted`], at any revision,
/// before the feeder starts again with all resources.
const COMPACTED_LOADS_MAX: usize = 2 * COMPACTED_LOADS_AT_OLDEST_MAX;
/// The maximum number of batches that are applied before the feeder yields to other tasks.
const POLL_BATCHES_MAX: usize = 64;

/// The task that keeps a cache up to date: the only writer of all its resources.
///
/// The feeder follows the source with one watch for all resources, of the range that
/// [`Source::watch_range`](crate::source::Source::watch_range) returns. It applies the changes of a
/// revision to their resources, then raises the watermark
/// ([`WatchCache::revision`](crate::WatchCache::revision)), then wakes the watchers that the changes
/// may match. It also compares the resources with the source periodically
/// ([`consistency_interval`](crate::cache::WatchCacheBuilder::consistency_interval)). The cache
/// makes progress only while the feeder is polled: spawn [`Feeder::run`] on an executor, or start a
/// thread with [`Feeder::spawn`].
///
/// Dropping the feeder stops the cache: its watchers end and requests fail with
/// [`RequestError::Stopped`](crate::RequestError::Stopped). This also happens when the task of the
/// feeder is aborted, or when a [`Kind`](crate::encode::Kind) panics while it decodes an object.
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
            // If the feeder has panicked, the panic hook has already reported it.
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
enum FeederInput {
    /// The next changes of the source.
    Batch(Batch),
    /// A resource was added, or must be loaded again.
    LoadRequested,
    /// A request detected that the revision of the source is below the watermark.
    Regressed,
    /// The watch of the source failed.
    Failed(SourceError),
    /// The cache was stopped.
    Stopped,
}

/// Why the feeder has stopped to follow a watch that did not fail.
enum Followed {
    /// The cache was stopped.
    ToTheEnd,
    /// A resource outside of the watched range was added.
    ToANewRange,
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
            to_wake: Vec::new(),
            applied: 0,
        };
        // Loaded resources are kept after a lost connection. They are loaded again after a
        // compaction, and after the store was replaced.
        let mut keep_loaded = false;
        while !self.shared.is_stopped() {
            match feed.follow_source(keep_loaded).await {
                Ok(Followed::ToTheEnd) => break,
                Ok(Followed::ToANewRange) => keep_loaded = true,
                Err(SourceError::Compacted) => keep_loaded = false,
                Err(SourceError::Replaced { known, found }) => {
                    feed.discard_replaced(known, found);
                    keep_loaded = false;
                }
                Err(error) => {
                    feed.record_failure(&error);
                    keep_loaded = true;
                    feed.pause().await;
                }
            }
        }
    }

    /// Runs the feeder on a new thread.
    ///
    /// # Panics
    /// If the operating system cannot create a thread.
    pub fn spawn(self) -> FeederThread {
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new()
            .name("revstore-feeder".into())
            .spawn(move || block_on(self.run()))
            .expect("the operating system creates a thread");
        FeederThread {
            shared,
            thread: Some(thread),
        }
    }
}

/// The state of a feeder while it runs.
struct FeedLoop {
    shared: Arc<CacheShared>,
    registry: Arc<ResourceRegistry>,
    /// The value of [`Source::replacements`] when the cache was loaded.
    ///
    /// [`Source::replacements`]: crate::source::Source::replacements
    replacements: u64,
    /// Whether no revision was published yet. The first load reads the oldest revision of the source,
    /// so that the windows also contain earlier events (WC-144).
    is_first: bool,
    /// Loaded resources, with the revision that the watermark must reach before they are ready.
    loading: Vec<(Arc<Resource>, Revision)>,
    /// The watchers to wake after the next publication. A field, so that its memory is reused.
    to_wake: Vec<Arc<Waiter>>,
    /// The number of batches applied since the feeder last yielded.
    applied: usize,
}

impl FeedLoop {
    /// Loads the resources that are not ready, or all resources unless `keep_loaded` is set. Then
    /// applies the changes of the source until the source fails, the cache is stopped, or a resource
    /// is added that the watch does not cover.
    async fn follow_source(&mut self, keep_loaded: bool) -> Result<Followed, SourceError> {
        if !keep_loaded {
            self.set_pending(None);
            self.replacements = self.shared.source.replacements();
        }
        let watermark = self.shared.watermark.load();
        let mut after: Option<Revision> = None;
        self.loading.clear();
        for resource in self.registry.all() {
            // A resource that is still ready contains all changes up to the watermark.
            let complete_to = if resource.ready.state() == Readiness::Ready {
                watermark
            } else {
                let others = after.or(keep_loaded.then_some(watermark));
                self.load(&resource, self.is_first, others).await?
            };
            after = Some(after.map_or(complete_to, |after| after.min(complete_to)));
        }
        let after = match after {
            Some(after) => after,
            None => self.shared.source.current_revision().await?.max(watermark),
        };
        let range = self.range();
        let mut batches = self.open_watch(range.clone(), after).await?;
        // Checked after the watch is opened: if the store is replaced after this check, the watch
        // ends.
        self.check_not_replaced(after).await?;
        // All changes up to `after` are loaded or were applied before.
        self.publish(after);
        if !self.loading.is_empty() {
            self.shared.source.request_progress();
        }
        self.is_first = false;
        loop {
            match self.next_input(&mut batches).await {
                FeederInput::Batch(batch) => self.apply(batch),
                // The next watch starts after the watermark, so it delivers what this one has not.
                FeederInput::LoadRequested if self.range() != range => {
                    return Ok(Followed::ToANewRange);
                }
                FeederInput::LoadRequested => self.load_requested().await?,
                FeederInput::Regressed => {
                    self.check_not_replaced(self.shared.watermark.load())
                        .await?;
                }
                FeederInput::Failed(error) => return Err(error),
                FeederInput::Stopped => return Ok(Followed::ToTheEnd),
            }
        }
    }

    /// Fails with [`SourceError::Replaced`] if the revision of the source is below `known` or below
    /// the watermark, or if the source has counted a replacement since the cache was loaded.
    async fn check_not_replaced(&self, known: Revision) -> Result<(), SourceError> {
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
        let error = SourceError::Replaced { known, found };
        self.set_pending(Some(&error.to_string()));
        self.shared.watermark.reset();
        for resource in self.registry.all() {
            resource.mark_replaced(known, found);
        }
        self.is_first = false;
    }

    /// Marks all resources as loading.
    fn set_pending(&self, cause: Option<&str>) {
        for resource in self.registry.all() {
            resource.ready.set(Readiness::Pending {
                since: self.shared.timers.now(),
                cause: cause.map(str::to_owned),
            });
        }
    }

    /// Returns the range to watch. One watch delivers the changes of all resources in the order of
    /// their revisions, which the watermark needs; watches of several ranges would not (WC-165).
    fn range(&self) -> KeyRange {
        self.shared.source.watch_range(self.registry.range())
    }

    /// Opens the watch of the source.
    async fn open_watch(
        &self,
        range: KeyRange,
        after: Revision,
    ) -> Result<BatchStream, SourceError> {
        let request = WatchRequest {
            range,
            after,
            previous: false,
        };
        self.shared.source.watch(request).await
    }

    /// Waits for the next input. Yields to other tasks after every [`POLL_BATCHES_MAX`] batches.
    async fn next_input(&mut self, batches: &mut BatchStream) -> FeederInput {
        poll_fn(|context| {
            self.shared.feeder.waker.register(context.waker());
            if self.shared.is_stopped() {
                return Poll::Ready(FeederInput::Stopped);
            }
            if self.shared.take_regressed() {
                return Poll::Ready(FeederInput::Regressed);
            }
            if self.shared.take_load_request() {
                return Poll::Ready(FeederInput::LoadRequested);
            }
            if self.applied >= POLL_BATCHES_MAX {
                self.applied = 0;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            match Pin::new(&mut *batches).poll_next(context) {
                Poll::Ready(Some(Ok(batch))) => {
                    self.applied += 1;
                    Poll::Ready(FeederInput::Batch(batch))
                }
                Poll::Ready(Some(Err(error))) => Poll::Ready(FeederInput::Failed(error)),
                Poll::Ready(None) => {
                    let ended = "the source ended its watch".into();
                    Poll::Ready(FeederInput::Failed(SourceError::Unavailable(ended)))
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
            resource.apply(changes, arrived, &mut self.to_wake);
        }
        self.publish(batch.through);
    }

    /// Raises the watermark to `through`, which wakes the requests that wait for it. Then marks the
    /// loaded resources as ready, and wakes the watchers in `to_wake`.
    fn publish(&mut self, through: Revision) {
        self.shared.watermark.publish(through);
        self.loading.retain(|(resource, ready_at)| {
            let loaded = through >= *ready_at;
            if loaded {
                resource.ready.set(Readiness::Ready);
            }
            !loaded
        });
        for waiter in self.to_wake.drain(..) {
            waiter.waker.wake();
        }
    }

    /// Loads the resources that were added since, or that a consistency check found to differ from
    /// the source.
    async fn load_requested(&mut self) -> Result<(), SourceError> {
        for resource in self.registry.all() {
            let known = self
                .loading
                .iter()
                .any(|(known, _)| Arc::ptr_eq(known, &resource));
            let state = resource.ready.state();
            if !known && !matches!(state, Readiness::Ready | Readiness::Stopped) {
                let watermark = self.shared.watermark.load();
                self.load(&resource, false, Some(watermark)).await?;
            }
        }
        self.publish(self.shared.watermark.load());
        if !self.loading.is_empty() {
            self.shared.source.request_progress();
        }
        Ok(())
    }

    /// Loads a resource and returns the loaded revision. Loads the oldest revision of the source if
    /// `from_oldest` is set, so that the window also contains earlier events (WC-144); otherwise
    /// loads the current revision. `others` is the revision of the other resources. If the source does
    /// not report progress on request, that revision is loaded, because the watermark might not reach
    /// the current one for a long time.
    async fn load(
        &mut self,
        resource: &Arc<Resource>,
        from_oldest: bool,
        others: Option<Revision>,
    ) -> Result<Revision, SourceError> {
        let began = self.shared.timers.now();
        let current = self.shared.source.current_revision().await?;
        let others = others
            .filter(|others| (1..=current.0).contains(&others.0))
            .filter(|_| !self.shared.source.requests_progress());
        let mut attempt = 0;
        loop {
            let oldest = self.shared.source.oldest_revision().filter(|_| from_oldest);
            let at = oldest
                .or(others)
                .filter(|_| attempt < COMPACTED_LOADS_AT_OLDEST_MAX);
            match self.read_all(resource, at).await {
                Ok((revision, items)) => {
                    let decoder: ObjectDecoder = resource.decoder();
                    let objects = items.into_iter().map(|stored| decoder.decode(stored));
                    resource.replace(revision, objects.collect());
                    let duration = &resource.counters.initialization_seconds;
                    duration.observe_since(began, self.shared.timers.now());
                    let ready_at = match others {
                        Some(others) if others == revision => revision,
                        _ => current.max(revision),
                    };
                    self.loading.push((resource.clone(), ready_at));
                    return Ok(revision);
                }
                Err(SourceError::Compacted) if attempt < COMPACTED_LOADS_MAX => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads all keys of a resource at one revision, in pages: at `at`, or at the current revision.
    async fn read_all(
        &self,
        resource: &Resource,
        at: Option<Revision>,
    ) -> Result<(Revision, Vec<StoredKeyValue>), SourceError> {
        let span = resource.config.layout.span();
        let (mut all, mut revision, mut start) = (Vec::new(), at, span.start.clone());
        loop {
            let request = ListRequest {
                range: span.from(start).range(),
                at: revision,
                limit: Some(LOAD_PAGE_KEYS),
            };
            let page = self.shared.source.list(request).await?;
            revision = Some(page.revision);
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
