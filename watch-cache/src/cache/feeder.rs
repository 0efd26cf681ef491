//! The feeder: follows the source and applies its changes to the resources, in revision order.
//! Corresponds to the reflector inside Kubernetes' Cacher together with `dispatchEvents`.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::thread::JoinHandle;

use bytes::Bytes;
use futures_core::Stream;
use pollster::block_on;
use revstore_engine::{KeyRange, Revision};

use crate::api::keys;
use crate::cache::consistency;
use crate::cache::loads::{Loads, RETRY_AFTER};
use crate::cache::readiness::Readiness;
use crate::cache::resource::Resource;
use crate::cache::shared::CacheShared;
use crate::cache::watch_cache::ResourceRegistry;
use crate::source::{Batch, BatchStream, Change, SourceError, WatchRequest};
use crate::wake::Waiter;

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
/// Resources are loaded beside this, in steps of 16 objects between which the feeder yields: a resource
/// that is added, or loaded again, delays the events of the others by one step at most, also on an
/// executor with one thread.
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
    /// A resource was added or removed, or must be loaded again.
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
            loads: Loads::new(self.shared.clone()),
            to_wake: Vec::new(),
            applied: 0,
            loads_are_next: false,
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
    loads: Loads,
    /// The watchers to wake after the next publication. A field, so that its memory is reused.
    to_wake: Vec<Arc<Waiter>>,
    /// The number of batches applied since the feeder last yielded.
    applied: usize,
    /// Whether the feeder has yielded after batches, and the loads take a step before the next batch.
    loads_are_next: bool,
}

impl FeedLoop {
    /// Applies the changes of the source, and loads the resources that are not ready beside them, or
    /// all resources unless `keep_loaded` is set, until the source fails, the cache is stopped, or a
    /// resource is added that the watch does not cover.
    async fn follow_source(&mut self, keep_loaded: bool) -> Result<Followed, SourceError> {
        if !keep_loaded {
            self.discard_all();
        }
        let after = if self.is_first {
            self.first_revision().await?
        } else if keep_loaded {
            // The ready resources contain all changes up to the watermark, and the loads have
            // received them.
            self.shared.watermark.load()
        } else {
            let current = self.shared.source.current_revision().await?;
            current.max(self.shared.watermark.load())
        };
        let range = self.range();
        let mut batches = self.open_watch(range.clone(), after).await?;
        // Checked after the watch is opened: if the store is replaced after this check, the watch
        // ends.
        self.check_not_replaced(after).await?;
        // The ready resources contain all changes up to `after`.
        self.publish(after);
        self.is_first = false;
        self.begin_loads(&range);
        loop {
            match self.next_input(&mut batches).await {
                FeederInput::Batch(batch) => self.apply(batch),
                // The next watch starts after the watermark, so it delivers what this one has not.
                FeederInput::LoadRequested if !covers(&range, &self.range()) => {
                    return Ok(Followed::ToANewRange);
                }
                FeederInput::LoadRequested => self.begin_loads(&range),
                FeederInput::Regressed => {
                    self.check_not_replaced(self.shared.watermark.load())
                        .await?;
                }
                FeederInput::Failed(error) => return Err(error),
                FeederInput::Stopped => return Ok(Followed::ToTheEnd),
            }
        }
    }

    /// Returns the revision after which the first watch of the source starts. If the oldest revision
    /// of the source is known, loads the resources there, because the windows will contain the events
    /// since then (WC-144). No resource is ready beside these loads.
    async fn first_revision(&mut self) -> Result<Revision, SourceError> {
        self.loads.clear();
        let mut first: Option<Revision> = None;
        if self.shared.source.oldest_revision().is_some() {
            for resource in self.registry.all() {
                let loaded = self.loads.load_at_oldest(&resource).await?;
                first = Some(first.map_or(loaded, |first| first.min(loaded)));
            }
        }
        match first {
            Some(first) => Ok(first),
            None => self.shared.source.current_revision().await,
        }
    }

    /// Begins to load the resources that were added, whose contents were discarded, or that a
    /// consistency check found to differ from the source. Begins none if the watched `range` does not
    /// cover all of them: a resource was just added then, and requests its load. Ends the loads of
    /// removed resources, and frees their contents.
    fn begin_loads(&mut self, range: &KeyRange) {
        self.loads.drop_removed();
        self.loads.free(self.shared.take_removed());
        let resources = self.registry.all();
        // A range that has become too wide, because a resource was removed, stays until the next
        // watch.
        if !covers(range, &self.range()) {
            return;
        }
        for resource in resources {
            let needs_load = matches!(
                resource.ready.state(),
                Readiness::Pending { .. } | Readiness::Inconsistent
            );
            if needs_load && !self.loads.contains(&resource) {
                self.loads.free(resource.discard());
                self.loads.begin(&resource);
            }
        }
    }

    /// Fails with [`SourceError::Replaced`] if the revision of the source is below `known` or below
    /// the watermark, or if the source has counted a replacement since the cache was loaded.
    async fn check_not_replaced(&mut self, known: Revision) -> Result<(), SourceError> {
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
        for resource in self.registry.all() {
            self.set_pending(&resource, Some(&error.to_string()));
            let remains = resource.discard_replaced(known, found);
            self.loads.free(remains);
        }
        self.shared.watermark.reset();
        self.shared.reset_readable();
        self.is_first = false;
    }

    /// Discards the contents of all resources, and all loads.
    fn discard_all(&mut self) {
        self.loads.clear();
        self.replacements = self.shared.source.replacements();
        for resource in self.registry.all() {
            self.set_pending(&resource, None);
            self.loads.free(resource.discard());
        }
    }

    /// Marks a resource as loading.
    fn set_pending(&self, resource: &Resource, cause: Option<&str>) {
        resource.ready.set(Readiness::Pending {
            since: self.shared.timers.now(),
            cause: cause.map(str::to_owned),
        });
    }

    /// Returns the range to watch. One watch delivers the changes of all resources in the order of
    /// their revisions, which the watermark needs; watches of several ranges would not (WC-165).
    fn range(&self) -> KeyRange {
        self.shared.source.watch_range(self.registry.range())
    }

    /// Opens the watch of the source.
    async fn open_watch(
        &mut self,
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

    /// Waits for the next input, and takes steps of the loads meanwhile. Yields to other tasks after
    /// every step, and after the batches that are ready, at most [`POLL_BATCHES_MAX`].
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
            let skips_batches = std::mem::take(&mut self.loads_are_next);
            if !skips_batches && self.applied < POLL_BATCHES_MAX {
                let input = match Pin::new(&mut *batches).poll_next(context) {
                    Poll::Ready(Some(Ok(batch))) => {
                        self.applied += 1;
                        Some(FeederInput::Batch(batch))
                    }
                    Poll::Ready(Some(Err(error))) => Some(FeederInput::Failed(error)),
                    Poll::Ready(None) => {
                        let ended = "the source ended its watch".into();
                        Some(FeederInput::Failed(SourceError::Unavailable(ended)))
                    }
                    Poll::Pending => None,
                };
                if let Some(input) = input {
                    return Poll::Ready(input);
                }
            }
            let applied = std::mem::take(&mut self.applied);
            if applied > 0 && !self.loads.is_idle() {
                // The tasks that the batches have woken run before the next step of the loads.
                self.loads_are_next = true;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let may_have_batches = skips_batches || applied == POLL_BATCHES_MAX;
            match self.loads.advance(context, self.replacements) {
                Ok(has_more) if has_more || may_have_batches => context.waker().wake_by_ref(),
                Ok(_) => {}
                Err(error) => return Poll::Ready(FeederInput::Failed(error)),
            }
            Poll::Pending
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
            if let Some(changes) = self.loads.apply(&resource, changes, arrived) {
                resource.apply(changes, arrived, &mut self.to_wake);
            }
        }
        self.publish(batch.through);
    }

    /// Raises the watermark to `through`, which wakes the requests that wait for it. Then lets the
    /// resources join whose loads are complete, and wakes the watchers in `to_wake`.
    fn publish(&mut self, through: Revision) {
        self.shared.watermark.publish(through);
        self.loads.join(self.shared.watermark.load());
        for waiter in self.to_wake.drain(..) {
            waiter.waker.wake();
        }
    }

    /// Records an error of the source in the readiness of the resources that are not ready.
    fn record_failure(&self, error: &SourceError) {
        for resource in self.registry.all() {
            let state = resource.ready.state();
            if state != Readiness::Ready {
                resource.counters.initialization_errors.add(1);
            }
            if matches!(state, Readiness::Pending { .. }) {
                self.set_pending(&resource, Some(&error.to_string()));
            }
        }
    }

    /// Waits for [`RETRY_AFTER`], or until the cache is stopped.
    async fn pause(&mut self) {
        let due = self.shared.timers.now() + RETRY_AFTER;
        let mut sleep = Box::pin(self.shared.timers.sleep_until(due, "retry"));
        poll_fn(|context| {
            self.shared.feeder.waker.register(context.waker());
            if self.shared.is_stopped() {
                return Poll::Ready(());
            }
            sleep.as_mut().poll(context).map(drop)
        })
        .await;
    }
}

/// Returns whether `range` contains all keys of `needed`.
fn covers(range: &KeyRange, needed: &KeyRange) -> bool {
    /// Returns the first key after the range, or `None` if it has no end.
    fn end(range: &KeyRange) -> Option<Bytes> {
        match range {
            KeyRange::One(key) => Some(keys::after(key)),
            KeyRange::Within { end, .. } => Some(end.clone()),
            KeyRange::From(_) => None,
        }
    }
    let ends_before = match (end(range), end(needed)) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(range), Some(needed)) => range < needed,
    };
    range.start() <= needed.start() && !ends_before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_covers_itself_and_narrower_ones() {
        let within = |start: &'static str, end: &'static str| KeyRange::within(start, end);
        let (all, one) = (KeyRange::all(), KeyRange::one("b"));
        assert!(covers(&all, &all) && covers(&all, &one) && covers(&one, &one));
        assert!(covers(&within("a", "c"), &within("a", "b")));
        assert!(covers(&within("a", "c"), &one));
        assert!(!covers(&within("a", "b"), &one));
        assert!(!covers(&within("b", "c"), &within("a", "c")));
        assert!(!covers(&within("a", "c"), &KeyRange::From("a".into())));
        assert!(!covers(&one, &all));
    }
}
