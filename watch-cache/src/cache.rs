//! The cache: several resources over one source, and the handle on each of them.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::RwLock;
use revstore_engine::{Clock, MainRevision, SystemClock};

use crate::entry::Object;
use crate::feeder::Feeder;
use crate::keys::{ObjectRef, Scope};
use crate::list::{List, Target};
use crate::metrics::Metrics;
use crate::options::{GetOptions, ListOptions, ListPlan, Version, WatchOptions, WatchPlan};
use crate::raw::RawStore;
use crate::ready::Readiness;
use crate::resource::{Begin, Core, Resource, ResourceConfig, Settings, Snapshot};
use crate::signal::Signal;
use crate::source::Source;
use crate::status::RequestError;
use crate::timers::Timers;
use crate::watch::{self, Watch, WatchEvent};
use crate::watermark::Watermark;

/// The resources of a cache by the prefix of their keys.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// Held to look a resource up or to add one.
    resources: RwLock<BTreeMap<Bytes, Arc<Resource>>>,
    added: AtomicBool,
}

impl Registry {
    pub(crate) fn all(&self) -> Vec<Arc<Resource>> {
        self.resources.read().values().cloned().collect()
    }

    /// The resource that a key belongs to. Prefixes do not contain each other, so it is the last
    /// one at or before the key, or none.
    pub(crate) fn of_key(&self, key: &[u8]) -> Option<Arc<Resource>> {
        let resources = self.resources.read();
        let (prefix, resource) = resources
            .range::<[u8], _>((Bound::Unbounded, Bound::Included(key)))
            .next_back()?;
        key.starts_with(prefix).then(|| resource.clone())
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
        // Release: pairs with the Acquire in `take_added`; the feeder then finds the resource.
        self.added.store(true, Ordering::Release);
        Ok(())
    }

    pub(crate) fn take_added(&self) -> bool {
        // Acquire: pairs with the Release in `add`.
        self.added.swap(false, Ordering::Acquire)
    }
}

/// A watch cache over a source: any number of resources that share one watermark.
///
/// ```
/// use std::sync::Arc;
/// use revstore_engine::Engine;
/// use revstore_watch_cache::{
///     EngineSource, JsonKind, ListOptions, ResourceConfig, Scope, WatchCache, block_on,
/// };
///
/// let engine = Engine::builder().build();
/// let (cache, feeder) = WatchCache::builder(Arc::new(EngineSource::new(engine.clone()))).build();
/// let pods = cache.add(
///     ResourceConfig::namespaced("", "pods", "/registry/pods").kind(JsonKind::new("v1", "Pod")),
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
    core: Arc<Core>,
    registry: Arc<Registry>,
    /// The feeder's.
    signal: Arc<Signal>,
}

/// Sets a cache up; made by [`WatchCache::builder`].
///
/// | option | default |
/// |---|---|
/// | [`clock`](Self::clock) | the machine's time |
/// | [`freshness_wait`](Self::freshness_wait) | 3 s (WC-131) |
/// | [`bookmark_period`](Self::bookmark_period) | 60 s (WC-322) |
/// | [`future_grace`](Self::future_grace) | 10 s (WC-316) |
/// | [`honor_limit_at_rv0`](Self::honor_limit_at_rv0) | no (WC-224) |
#[derive(Debug)]
#[must_use = "a cache is made by `build`"]
pub struct WatchCacheBuilder {
    source: Arc<dyn Source>,
    clock: Option<Arc<dyn Clock>>,
    settings: Settings,
}

impl WatchCacheBuilder {
    /// The source of time.
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self {
            clock: Some(clock),
            ..self
        }
    }

    /// How long a request waits for a revision before it answers 504. Longer for slow links to the
    /// source.
    pub fn freshness_wait(mut self, wait: Duration) -> Self {
        self.settings.freshness_wait = wait;
        self
    }

    /// How often a watch gets a bookmark. Shorter than the window, or who resumes from one finds it
    /// gone.
    pub fn bookmark_period(mut self, period: Duration) -> Self {
        self.settings.bookmark_period = period;
        self
    }

    /// How long a watch from a future revision waits for it before it ends with 410; for ever if
    /// none is given, as kube-apiserver does (WC-315).
    pub fn future_grace(mut self, grace: Option<Duration>) -> Self {
        self.settings.future_grace = grace;
        self
    }

    /// Pages lists at resource version 0 too. client-go's caches then page all their lists.
    pub fn honor_limit_at_rv0(mut self, honor: bool) -> Self {
        self.settings.honor_limit_at_rv0 = honor;
        self
    }

    /// Makes the cache, and the feeder that moves it.
    pub fn build(self) -> (WatchCache, Feeder) {
        let clock = self.clock.unwrap_or_else(|| Arc::new(SystemClock::new()));
        let core = Arc::new(Core {
            source: self.source,
            timers: Timers::new(clock),
            watermark: Watermark::new(),
            settings: self.settings,
            stopped: AtomicBool::new(false),
        });
        let registry = Arc::new(Registry::default());
        let signal = Arc::new(Signal::new());
        let feeder = Feeder::new(core.clone(), registry.clone(), signal.clone());
        let cache = WatchCache {
            core,
            registry,
            signal,
        };
        (cache, feeder)
    }
}

impl WatchCache {
    /// Sets a cache over `source` up.
    pub fn builder(source: Arc<dyn Source>) -> WatchCacheBuilder {
        WatchCacheBuilder {
            source,
            clock: None,
            settings: Settings {
                freshness_wait: Duration::from_secs(3),
                bookmark_period: Duration::from_secs(60),
                future_grace: Some(Duration::from_secs(10)),
                honor_limit_at_rv0: false,
            },
        }
    }

    /// Adds a resource; also while the cache runs (WC-402). It is loaded by the feeder. A resource
    /// that is there when the feeder starts has a window that reaches back as far as the source's
    /// history (WC-144), a later one begins at the present.
    ///
    /// # Errors
    /// If its keys overlap with those of another resource, or an index names an unknown field.
    pub fn add(&self, config: ResourceConfig) -> Result<ResourceCache, RequestError> {
        let resource = Arc::new(Resource::new(config, self.core.clone())?);
        self.registry.add(resource.clone())?;
        self.signal.waker.wake();
        Ok(ResourceCache::new(resource))
    }

    /// How far the cache is: every resource has everything up to here (WC-107).
    pub fn revision(&self) -> MainRevision {
        self.core.watermark.load()
    }

    /// Stops the cache for good. Watches are told what is left and end behind a last bookmark
    /// (WC-145); requests are refused (WC-104).
    pub fn stop(&self) {
        self.core.stop();
        for resource in self.registry.all() {
            resource.stop();
        }
        self.signal.waker.wake();
    }
}

/// One resource of a cache. Clones are handles on the same resource.
///
/// Lists and gets read immutable snapshots; watches are cursors into one window. What each option
/// means is in sections C and D of the behaviour specification, row by row, and in the
/// documentation of [`ListOptions`] and [`WatchOptions`].
#[derive(Clone, Debug)]
pub struct ResourceCache {
    resource: Arc<Resource>,
    raw: RawStore,
}

/// What a comparison of the cache with its source found (WC-135).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsistencyReport {
    /// The revision at which both were read.
    pub revision: MainRevision,
    /// The digest of the cache's keys and revisions.
    pub cache: u64,
    /// The digest of the source's.
    pub source: u64,
}

impl ConsistencyReport {
    /// Whether both are the same.
    pub fn is_consistent(&self) -> bool {
        self.cache == self.source
    }
}

impl ResourceCache {
    fn new(resource: Arc<Resource>) -> Self {
        let raw = RawStore::over(
            resource.core.source.clone(),
            resource.config.clone(),
            resource.core.timers.clone(),
        );
        Self { resource, raw }
    }

    /// Whether it can be served from.
    pub fn readiness(&self) -> Readiness {
        self.resource.ready.state()
    }

    /// Waits until it can be served from.
    ///
    /// # Errors
    /// If it is stopped.
    pub async fn wait_until_ready(&self) -> Result<(), RequestError> {
        self.resource.ready.wait().await
    }

    /// Waits until the cache has everything up to `revision`.
    ///
    /// # Errors
    /// 504 if that takes too long (WC-131, WC-232).
    pub async fn wait_until_fresh(&self, revision: MainRevision) -> Result<(), RequestError> {
        self.resource.core.fresh(revision).await
    }

    /// What it counts.
    pub fn metrics(&self) -> Metrics {
        self.resource.metrics()
    }

    /// The store behind the cache, with the same operations.
    pub fn raw(&self) -> &RawStore {
        &self.raw
    }

    /// The event as bytes for a client; see [`Watch::encode`].
    pub fn encode(&self, event: &WatchEvent) -> Bytes {
        watch::encode(&self.resource, event)
    }

    /// The object as bytes for a client, with its resource version.
    pub fn encode_object(&self, object: &Object) -> Bytes {
        let kind = &*self.resource.config.kind;
        crate::kind::written(|out| kind.write_object(object, object.revision(), out))
    }

    /// What the cache has of an object right now, however old; a first guess for a write (WC-105).
    pub(crate) fn cached(&self, object: &ObjectRef) -> Option<Object> {
        if self.readiness() != Readiness::Ready {
            return None;
        }
        let key = self.resource.config.layout.key(object).ok()?;
        self.resource.get(&key).map(Object::new)
    }

    /// Reads one object; nothing if there is none (WC-210).
    ///
    /// # Errors
    /// 400 for a bad name or resource version, 504 for a revision that does not come, 429 if the
    /// cache is stopped.
    pub async fn get(
        &self,
        object: &ObjectRef,
        options: &GetOptions,
    ) -> Result<Option<Object>, RequestError> {
        let key = self.resource.config.layout.key(object)?;
        let version = Version::parse(&options.resource_version)?;
        match self.readiness() {
            Readiness::Stopped => return Err(RequestError::Stopped),
            // B.1: a get goes to the source while the cache loads.
            Readiness::Pending { .. } => return self.raw.get_object(object, options).await,
            Readiness::Ready => {}
        }
        match version {
            // One key: asking the source is as cheap as waiting until it need not be asked.
            Version::Unset => return self.raw.get_object(object, options).await,
            Version::Zero => {}
            Version::At(at) => self.resource.core.fresh(at).await?,
        }
        let found = self.resource.get(&key);
        found
            .map(|entry| crate::list::readable(entry).map(Object::new))
            .transpose()
    }

    /// Lists objects, by the rows of WC-220.
    ///
    /// # Errors
    /// 422 and 400 for options (WC-230, WC-235), 410 for a history that is gone (WC-231, WC-234),
    /// 504 for a revision that does not come (WC-232), 429 while the cache loads or after it
    /// stopped.
    pub async fn list(&self, scope: &Scope, options: &ListOptions) -> Result<List, RequestError> {
        let plan = options.plan()?;
        let core = &self.resource.core;
        let limit = options.limit_for(&plan, core.settings.honor_limit_at_rv0);
        let narrow = options.continue_token.is_empty();
        let reader = self.resource.reader();
        let target = Target::new(&reader, scope, &options.selector, narrow)?;
        if let Err(error) = self.resource.check_ready() {
            // B.1: a plain page comes from the source while the cache loads.
            let delegated = limit.is_some() && options.selector.is_empty();
            let is_pending = matches!(error, RequestError::NotReady { .. });
            return if is_pending && delegated {
                self.raw.list_objects(scope, options).await
            } else {
                Err(error)
            };
        }
        self.resource.counters.lists.add(1);
        match plan {
            ListPlan::Latest { start } => {
                let current = core.source.current_revision().await;
                let current = current.map_err(|error| RequestError::Internal(error.to_string()))?;
                if core.fresh(current).await.is_err() {
                    // WC-233: the cache is stuck, the source is not.
                    self.resource.counters.consistent_read_fallbacks.add(1);
                    return self
                        .read(&reader, &target, None, start.as_deref(), limit)
                        .await;
                }
                self.resource.counters.consistent_reads.add(1);
                self.list_snapshot(target, start.as_deref(), limit)
            }
            ListPlan::Any => self.list_snapshot(target, None, limit),
            ListPlan::NotOlderThan(at) => {
                core.fresh(at).await?;
                self.list_snapshot(target, None, limit)
            }
            ListPlan::Exact { at, start } => {
                let list = self
                    .read(&reader, &target, Some(at), start.as_deref(), limit)
                    .await;
                if matches!(list, Err(RequestError::Expired(_))) {
                    self.resource.counters.expired_compaction.add(1);
                }
                list
            }
        }
    }

    async fn read(
        &self,
        reader: &crate::list::Reader,
        target: &Target,
        at: Option<MainRevision>,
        start: Option<&str>,
        limit: Option<usize>,
    ) -> Result<List, RequestError> {
        let source = &*self.resource.core.source;
        List::read(source, reader, target, at, start, limit).await
    }

    fn list_snapshot(
        &self,
        target: Target,
        start: Option<&str>,
        limit: Option<usize>,
    ) -> Result<List, RequestError> {
        let snapshot = self.resource.snapshot();
        let Snapshot {
            revision, objects, ..
        } = &snapshot;
        let span = target.scan_from(start);
        let Some(limit) = limit else {
            if let Some((index, prefix)) = snapshot.index_for(&self.resource.indexes, &target)
                && target.name.is_none()
                && start.is_none()
            {
                let from = [&prefix, &span.start].map(|part| &part[..]).concat();
                let walk = index.walk(&from);
                return Ok(List::of_index(*revision, walk, prefix, target.filter));
            }
            let walk = objects.walk(&span.start);
            return Ok(List::of_snapshot(*revision, walk, span.end, target.filter));
        };
        let walk = objects.walk(&span.start);
        let count = || objects.rank(&span.end) - objects.rank(&span.start);
        List::page_of_snapshot(*revision, walk, &span, &target, limit, count)
    }

    /// Watches objects, by the rows of WC-310.
    ///
    /// # Errors
    /// 422 and 400 for options, 429 while the cache loads or after it stopped. Whatever is found
    /// out behind that is the first event of the watch, and its last (WC-305).
    pub async fn watch(
        &self,
        scope: &Scope,
        options: &WatchOptions,
    ) -> Result<Watch, RequestError> {
        let plan = options.plan()?;
        let reader = self.resource.reader();
        let target = Target::new(&reader, scope, &options.selector, true)?;
        self.resource.check_ready()?;
        let core = &self.resource.core;
        let begin = match plan {
            WatchPlan::State(Version::Zero) => Ok(Begin::State),
            WatchPlan::State(Version::At(at)) => core.fresh(at).await.map(|()| Begin::State),
            WatchPlan::State(Version::Unset) => match self.current().await {
                Ok(current) => core.fresh(current).await.map(|()| Begin::State),
                Err(error) => Err(error),
            },
            WatchPlan::After(Version::Zero) => Ok(Begin::After(None)),
            WatchPlan::After(Version::At(at)) => Ok(Begin::After(Some(at))),
            WatchPlan::After(Version::Unset) => self
                .current()
                .await
                .map(|current| Begin::After(Some(current))),
        };
        let registered = begin.and_then(|begin| self.resource.register(&target, begin));
        let resource = self.resource.clone();
        Ok(match registered {
            Ok(registered) => Watch::new(
                resource,
                target,
                registered,
                options.allow_bookmarks,
                options.timeout,
            ),
            Err(error) => Watch::failed(resource, target, error),
        })
    }

    async fn current(&self) -> Result<MainRevision, RequestError> {
        let current = self.resource.core.source.current_revision().await;
        current.map_err(|error| RequestError::Internal(error.to_string()))
    }

    /// Compares the cache with its source at one revision (WC-135). Costs a walk of both.
    ///
    /// # Errors
    /// 410 if that revision was compacted meanwhile, 429 if the cache is not ready.
    pub async fn check_consistency(&self) -> Result<ConsistencyReport, RequestError> {
        self.resource.check_ready()?;
        let list = self.list_snapshot(self.everything()?, None, None)?;
        let revision = list.revision;
        let cache = digest(list)?;
        let (reader, target) = (self.resource.reader(), self.everything()?);
        let source = digest(
            self.read(&reader, &target, Some(revision), None, None)
                .await?,
        )?;
        let report = ConsistencyReport {
            revision,
            cache,
            source,
        };
        let counters = &self.resource.counters;
        if report.is_consistent() {
            counters.consistency_checks_passed.add(1);
        } else {
            counters.consistency_checks_failed.add(1);
        }
        Ok(report)
    }

    fn everything(&self) -> Result<Target, RequestError> {
        Target::new(
            &self.resource.reader(),
            &Scope::All,
            &crate::Selector::default(),
            false,
        )
    }
}

/// FNV-1a over keys and revisions, as kube-apiserver's check has it.
fn digest(list: List) -> Result<u64, RequestError> {
    const PRIME: u64 = 0x0100_0000_01b3;
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for object in list.items {
        let object = object?;
        let revision = object.revision().0.to_be_bytes();
        for byte in object.key().iter().chain(&revision) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
        }
    }
    Ok(hash)
}
