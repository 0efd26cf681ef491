//! The watch cache: a set of resources over one source, and its builder.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::RwLock;
use revstore_engine::{Clock, KeyRange, Revision, SystemClock};

use crate::api::resource_cache::ResourceCache;
use crate::api::status::RequestError;
use crate::cache::config::ResourceConfig;
use crate::cache::feeder::Feeder;
use crate::cache::resource::Resource;
use crate::cache::shared::{CacheSettings, CacheShared};
use crate::metrics::MetricsCollector;
use crate::source::Source;

/// The resources of a cache by the prefix of their keys.
#[derive(Debug, Default)]
pub(crate) struct ResourceRegistry {
    /// The lock is held for one lookup or insertion.
    resources: RwLock<BTreeMap<Bytes, Arc<Resource>>>,
}

impl ResourceRegistry {
    pub(crate) fn all(&self) -> Vec<Arc<Resource>> {
        self.resources.read().values().cloned().collect()
    }

    /// Returns the resource of a key. No prefix is a prefix of another one, so only the last prefix
    /// at or before the key can match.
    pub(crate) fn of_key(&self, key: &[u8]) -> Option<Arc<Resource>> {
        let resources = self.resources.read();
        let (prefix, resource) = resources
            .range::<[u8], _>((Bound::Unbounded, Bound::Included(key)))
            .next_back()?;
        key.starts_with(prefix).then(|| resource.clone())
    }

    /// Returns the smallest range with the keys of all resources, or `None` if there are none.
    pub(crate) fn range(&self) -> Option<KeyRange> {
        let resources = self.resources.read();
        let (start, _) = resources.first_key_value()?;
        // No prefix is a prefix of another one, so the last prefix has the last keys.
        let (_, last) = resources.last_key_value()?;
        Some(KeyRange::Within {
            start: start.clone(),
            end: last.config.layout.span().end,
        })
    }

    /// Returns whether this is a resource of the cache.
    fn contains(&self, resource: &Arc<Resource>) -> bool {
        let known = self.of_key(resource.config.layout.prefix());
        known.is_some_and(|known| Arc::ptr_eq(&known, resource))
    }

    /// Removes a resource, or puts another one with the same keys in its place.
    fn replace(&self, resource: &Arc<Resource>, with: Option<Arc<Resource>>) {
        let prefix = resource.config.layout.prefix();
        let mut resources = self.resources.write();
        let known = resources.get(prefix);
        if !known.is_some_and(|known| Arc::ptr_eq(known, resource)) {
            return;
        }
        match with {
            Some(with) => resources.insert(Bytes::copy_from_slice(prefix), with),
            None => resources.remove(prefix),
        };
    }

    fn add(&self, resource: Arc<Resource>) -> Result<(), RequestError> {
        let prefix = Bytes::copy_from_slice(resource.config.layout.prefix());
        let mut resources = self.resources.write();
        let overlaps =
            |known: &Bytes| known.starts_with(&prefix) || prefix.starts_with(known.as_ref());
        if resources.keys().any(overlaps) {
            return Err(RequestError::Internal(format!(
                "the keys of {} overlap with those of another resource",
                resource.config.name
            )));
        }
        resources.insert(prefix, resource);
        Ok(())
    }
}

/// A watch cache: any number of resources over one source, with one watermark. Corresponds to the
/// `Cacher`s of kube-apiserver, which has one per resource. Clones are handles on the same cache.
///
/// ```
/// use std::sync::Arc;
/// use revstore_engine::Engine;
/// use pollster::block_on;
/// use revstore_watch_cache::{EngineSource, JsonKind, ListOptions, ResourceConfig, Scope, WatchCache};
///
/// let engine = Engine::builder().build();
/// let (cache, feeder) = WatchCache::builder(Arc::new(EngineSource::new(engine.clone()))).build();
/// let pods = cache.add(
///     ResourceConfig::namespaced(JsonKind::new("v1", "Pod"), "pods", "/registry/pods"),
/// )?;
/// let running = feeder.spawn();
///
/// engine.put("/registry/pods/ns/a", r#"{"metadata":{"name":"a"}}"#)?;
/// block_on(pods.wait_until_ready())?;
/// let list = block_on(pods.list(&Scope::All, &ListOptions::default()))?;
/// assert_eq!(list.revision.0, 2);
/// assert_eq!(list.into_objects()?[0].name(), "a");
/// # drop(running);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct WatchCache {
    shared: Arc<CacheShared>,
    registry: Arc<ResourceRegistry>,
}

/// The options of a [`WatchCache`]; created by [`WatchCache::builder`].
///
/// | Option | Default |
/// |---|---|
/// | [`clock`](Self::clock) | the system clock |
/// | [`seed`](Self::seed) | random |
/// | [`freshness_wait`](Self::freshness_wait) | 3 s |
/// | [`bookmark_period`](Self::bookmark_period) | 60 s |
/// | [`future_rv_grace`](Self::future_rv_grace) | none |
/// | [`honor_limit_at_rv0`](Self::honor_limit_at_rv0) | `false` |
/// | [`consistency_interval`](Self::consistency_interval) | 5 min |
/// | [`compaction_interval`](Self::compaction_interval) | 15 s |
// WC-131, WC-322, WC-316, WC-224, WC-135.
#[derive(Debug)]
#[must_use = "call `build` to create the cache"]
pub struct WatchCacheBuilder {
    source: Arc<dyn Source>,
    clock: Option<Arc<dyn Clock>>,
    rng: fastrand::Rng,
    settings: CacheSettings,
}

impl WatchCacheBuilder {
    /// Sets the clock that measures all timeouts and periods.
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self {
            clock: Some(clock),
            ..self
        }
    }

    /// Sets the seed of the random pauses between consistency checks, so that a test can repeat them.
    pub fn seed(self, seed: u64) -> Self {
        Self {
            rng: fastrand::Rng::with_seed(seed),
            ..self
        }
    }

    /// Sets the time for which a request waits until the cache has reached a revision, before the
    /// request fails with [`RequestError::TooLarge`]. Raise it if the link to the source is slow.
    pub fn freshness_wait(mut self, wait: Duration) -> Self {
        self.settings.freshness_wait = wait;
        self
    }

    /// Sets the interval between the bookmarks of a watcher. It must be shorter than
    /// [`WindowLimits::age`](crate::cache::WindowLimits::age); otherwise a client that resumes from
    /// its last bookmark gets error 410. Values below one second are raised to it.
    pub fn bookmark_period(mut self, period: Duration) -> Self {
        self.settings.bookmark_period = period;
        self
    }

    /// Sets the time for which a watcher that starts at a future revision waits for that revision
    /// before it ends with [`Expired::Future`](crate::api::Expired::Future). With `None` it waits
    /// until its timeout, as in kube-apiserver. A store that was replaced by an older one is detected
    /// also without this option.
    // WC-315, WC-316.
    pub fn future_rv_grace(mut self, grace: Option<Duration>) -> Self {
        self.settings.future_rv_grace = grace;
        self
    }

    /// Sets whether lists at resource version 0 honor their limit. kube-apiserver ignores that limit.
    /// With `true`, reflectors of client-go list in pages.
    pub fn honor_limit_at_rv0(mut self, honor: bool) -> Self {
        self.settings.honor_limit_at_rv0 = honor;
        self
    }

    /// Sets the interval between comparisons of each resource with the source; the pause is this
    /// interval times a random factor from 1 to 1.5. With `None` there are no checks. A check reads
    /// all keys of the resource from the source, in pages, and does not block the feeder.
    pub fn consistency_interval(mut self, interval: Option<Duration>) -> Self {
        self.settings.consistency_interval = interval;
        self
    }

    /// Sets the time for which lists at older revisions, and further pages of a list, rely on an
    /// earlier answer of the source that their revision is not compacted. Until the time has passed,
    /// the cache may list a revision that was compacted meanwhile, as kube-apiserver does; with zero
    /// each page asks the source. It has no effect if the source always knows its
    /// [`oldest_revision`](crate::source::Source::oldest_revision).
    pub fn compaction_interval(mut self, interval: Duration) -> Self {
        self.settings.compaction_interval = interval;
        self
    }

    /// Creates the cache and its feeder. The cache stays empty until the feeder runs.
    pub fn build(self) -> (WatchCache, Feeder) {
        let clock = self.clock.unwrap_or_else(|| Arc::new(SystemClock::new()));
        let shared = Arc::new(CacheShared::new(self.source, clock, self.settings));
        let registry = Arc::new(ResourceRegistry::default());
        let feeder = Feeder::new(shared.clone(), registry.clone(), self.rng);
        (WatchCache { shared, registry }, feeder)
    }
}

impl WatchCache {
    /// Returns the builder of a cache over `source`.
    pub fn builder(source: Arc<dyn Source>) -> WatchCacheBuilder {
        WatchCacheBuilder {
            source,
            clock: None,
            rng: fastrand::Rng::new(),
            settings: CacheSettings::default(),
        }
    }

    /// Adds a resource, which the feeder then loads. Resources can be added while the feeder runs.
    ///
    /// The window of a resource that is added before the feeder starts contains the events since the
    /// oldest revision of the source; the window of a later one starts at the end of its load. A
    /// resource that is added to a stopped cache is stopped.
    ///
    /// # Errors
    /// - [`RequestError::Internal`] if the key prefix overlaps with that of another resource.
    /// - [`RequestError::BadRequest`] if an index names a field that the kind does not have, or if the
    ///   kind has no API version or no name.
    // WC-144, WC-402.
    pub fn add(&self, config: ResourceConfig) -> Result<ResourceCache, RequestError> {
        let resource = self.resource(config)?;
        self.registry.add(resource.clone())?;
        Ok(self.start(resource))
    }

    /// Removes a resource, as when a custom resource definition is deleted. Does not delete its
    /// objects: to let watchers see `DELETED` events, delete them first.
    ///
    /// Watchers deliver all changes that the source had when this was called, then end without an
    /// error. If the source does not report its current revision within
    /// [`freshness_wait`](WatchCacheBuilder::freshness_wait), they deliver those that the cache has.
    /// Requests through handles of the resource fail with [`RequestError::Removed`]. The memory of the
    /// objects is freed, and that of the recent events when no watcher has to deliver them. A resource
    /// with the same keys can then be added.
    ///
    /// Returns `false` if the resource is not in the cache. If the future is dropped before it is
    /// ready, the resource stays.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use pollster::block_on;
    /// # use revstore_engine::Engine;
    /// # use revstore_watch_cache::{
    /// #     EngineSource, JsonKind, ListOptions, RequestError, ResourceConfig, Scope, WatchCache,
    /// # };
    /// # let source = EngineSource::new(Engine::builder().build());
    /// # let (cache, feeder) = WatchCache::builder(Arc::new(source)).build();
    /// # let _running = feeder.spawn();
    /// let kind = JsonKind::new("example.org/v1", "Widget");
    /// let config = ResourceConfig::namespaced(kind, "widgets", "/registry/example.org/widgets");
    /// let widgets = cache.add(config.clone())?;
    /// assert!(block_on(cache.remove(&widgets)));
    /// let list = block_on(widgets.list(&Scope::All, &ListOptions::default()));
    /// assert_eq!(list.unwrap_err(), RequestError::Removed);
    /// cache.add(config)?;
    /// # Ok::<(), RequestError>(())
    /// ```
    pub async fn remove(&self, resource: &ResourceCache) -> bool {
        self.replace(resource.resource(), None).await
    }

    /// Replaces the configuration of a resource, as when a custom resource definition changes: its
    /// kind with its selectable fields, its indexes or its window. Returns a new handle. Watches of the
    /// previous one end and its requests fail, as after [`WatchCache::remove`].
    ///
    /// The resource is loaded again, as after [`WatchCache::add`], and its window starts at the end of
    /// the load: watches from before that fail with 410.
    ///
    /// # Errors
    /// - [`RequestError::Removed`] if the resource is not in the cache.
    /// - [`RequestError::BadRequest`] if the keys differ from those of the resource, and as
    ///   [`WatchCache::add`].
    pub async fn reconfigure(
        &self,
        resource: &ResourceCache,
        config: ResourceConfig,
    ) -> Result<ResourceCache, RequestError> {
        let resource = resource.resource();
        if config.layout != resource.config.layout {
            return Err(RequestError::BadRequest(format!(
                "the keys of {} are not those of {}",
                config.name, resource.config.name
            )));
        }
        let next = self.resource(config)?;
        if self.replace(resource, Some(next.clone())).await {
            Ok(self.start(next))
        } else {
            Err(RequestError::Removed)
        }
    }

    /// Returns the metrics of all resources, also of those that are added later, for a registry of
    /// Prometheus.
    // WC-701.
    pub fn collector(&self) -> MetricsCollector {
        MetricsCollector::new(self.clone())
    }

    /// Returns a handle for each resource, in the order of their keys.
    pub fn resources(&self) -> Vec<ResourceCache> {
        let resources = self.registry.all().into_iter();
        resources.map(ResourceCache::new).collect()
    }

    /// Removes a resource, or replaces it with one that has the same keys. Returns whether it was in
    /// the cache.
    async fn replace(&self, resource: &Arc<Resource>, with: Option<Arc<Resource>>) -> bool {
        if !self.registry.contains(resource) {
            return false;
        }
        if resource.is_watched()
            && !self.shared.is_stopped()
            && let Ok(current) = self.shared.current_revision().await
        {
            // The watchers must also see the last changes, unless the source is too slow.
            let _ = resource.wait_until_fresh(current).await;
        }
        // Before it leaves the registry: from then on its changes are not applied, and no watcher may
        // send a bookmark.
        let Some(remains) = resource.remove() else {
            return false;
        };
        self.registry.replace(resource, with);
        self.shared.free(remains);
        true
    }

    /// Checks a configuration, and returns a resource that is not in the cache yet.
    fn resource(&self, config: ResourceConfig) -> Result<Arc<Resource>, RequestError> {
        if config.kind.api_version().is_empty() || config.kind.kind().is_empty() {
            // Clients cannot read bookmarks without them (WC-320).
            return Err(RequestError::BadRequest(format!(
                "the kind of {} has no API version or no name",
                config.name
            )));
        }
        Resource::new(config, self.shared.clone()).map(Arc::new)
    }

    /// Starts a resource that is in the registry.
    fn start(&self, resource: Arc<Resource>) -> ResourceCache {
        if self.shared.is_stopped() {
            // `stop` stops only the resources that are in the registry when it is called.
            resource.stop();
        }
        self.shared.request_load();
        ResourceCache::new(resource)
    }

    /// Returns the watermark: the revision up to which all resources are complete.
    // WC-107.
    pub fn revision(&self) -> Revision {
        self.shared.watermark.load()
    }

    /// Stops the cache for good. Watchers deliver their remaining events and a last bookmark, then
    /// end. Requests fail with [`RequestError::Stopped`].
    // WC-104, WC-145.
    pub fn stop(&self) {
        self.shared.stop();
        for resource in self.registry.all() {
            resource.stop();
        }
    }
}
