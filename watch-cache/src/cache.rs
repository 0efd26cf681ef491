//! The cache: several resources over one source, and the handle on each of them.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::RwLock;
use revstore_engine::{Clock, Revision, SystemClock};

use crate::consistency::{self, ConsistencyReport};
use crate::entry::Object;
use crate::feeder::Feeder;
use crate::keys::{ObjectRef, Scope};
use crate::list::{List, Tally, Target};
use crate::metrics::Metrics;
use crate::options::{GetOptions, ListOptions, ListPlan, Version, WatchOptions, WatchPlan};
use crate::random::Random;
use crate::raw::RawStore;
use crate::ready::Readiness;
use crate::resource::{Begin, Core, Resource, ResourceConfig, Settings, Snapshot};
use crate::source::{Source, SourceError};
use crate::status::{Expired, RequestError};
use crate::watch::{self, Watch, WatchEvent};

/// The resources of a cache by the prefix of their keys.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// Held to look a resource up or to add one.
    resources: RwLock<BTreeMap<Bytes, Arc<Resource>>>,
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
        Ok(())
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
}

/// Sets a cache up; made by [`WatchCache::builder`].
///
/// | option | default |
/// |---|---|
/// | [`clock`](Self::clock) | the machine's time |
/// | [`random`](Self::random) | unpredictable |
/// | [`freshness_wait`](Self::freshness_wait) | 3 s (WC-131) |
/// | [`bookmark_period`](Self::bookmark_period) | 60 s (WC-322) |
/// | [`future_grace`](Self::future_grace) | 10 s (WC-316) |
/// | [`honor_limit_at_rv0`](Self::honor_limit_at_rv0) | no (WC-224) |
/// | [`consistency_interval`](Self::consistency_interval) | 5 min, times 1 to 1.5 (WC-135) |
#[derive(Debug)]
#[must_use = "a cache is made by `build`"]
pub struct WatchCacheBuilder {
    source: Arc<dyn Source>,
    clock: Option<Arc<dyn Clock>>,
    random: Random,
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

    /// The randomness of the times between checks.
    pub fn random(self, random: Random) -> Self {
        Self { random, ..self }
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

    /// How often each resource is compared with the source; never if nothing is given. It is walked
    /// in steps between which the feed goes on. Rarer if a walk of the source is expensive.
    pub fn consistency_interval(mut self, interval: Option<Duration>) -> Self {
        self.settings.consistency_interval = interval;
        self
    }

    /// Makes the cache, and the feeder that moves it.
    pub fn build(self) -> (WatchCache, Feeder) {
        let clock = self.clock.unwrap_or_else(|| Arc::new(SystemClock::new()));
        let core = Arc::new(Core::new(self.source, clock, self.settings));
        let registry = Arc::new(Registry::default());
        let feeder = Feeder::new(core.clone(), registry.clone(), self.random);
        (WatchCache { core, registry }, feeder)
    }
}

impl WatchCache {
    /// Sets a cache over `source` up.
    pub fn builder(source: Arc<dyn Source>) -> WatchCacheBuilder {
        WatchCacheBuilder {
            source,
            clock: None,
            random: Random::unpredictable(),
            settings: Settings {
                freshness_wait: Duration::from_secs(3),
                bookmark_period: Duration::from_secs(60),
                future_grace: Some(Duration::from_secs(10)),
                honor_limit_at_rv0: false,
                consistency_interval: Some(Duration::from_secs(300)),
            },
        }
    }

    /// Adds a resource; also while the cache runs (WC-402). It is loaded by the feeder. A resource
    /// that is there when the feeder starts has a window that reaches back as far as the source's
    /// history (WC-144), a later one begins at the present. One that is added to a stopped cache is
    /// stopped.
    ///
    /// # Errors
    /// If its keys overlap with those of another resource, or an index names an unknown field.
    pub fn add(&self, config: ResourceConfig) -> Result<ResourceCache, RequestError> {
        let resource = Arc::new(Resource::new(config, self.core.clone())?);
        self.registry.add(resource.clone())?;
        if self.core.is_stopped() {
            // Whoever stops the cache stops what is registered by then.
            resource.stop();
        }
        self.core.ask_to_load();
        Ok(ResourceCache::new(resource))
    }

    /// How far the cache is: every resource has everything up to here (WC-107).
    pub fn revision(&self) -> Revision {
        self.core.watermark.load()
    }

    /// Stops the cache for good. Watches are told what is left and end behind a last bookmark
    /// (WC-145); requests are refused (WC-104).
    pub fn stop(&self) {
        self.core.stop();
        for resource in self.registry.all() {
            resource.stop();
        }
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
    pub async fn wait_until_fresh(&self, revision: Revision) -> Result<(), RequestError> {
        self.resource.fresh(revision).await
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
        let bytes = crate::kind::written(|out| kind.write_object(object, object.revision(), out));
        let written = bytes.len() as u64;
        self.resource.counters.bytes_written.add(written);
        bytes
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
    /// cache is stopped, 500 if the object cannot be read, or the source where it is asked.
    pub async fn get(
        &self,
        object: &ObjectRef,
        options: &GetOptions,
    ) -> Result<Option<Object>, RequestError> {
        let key = self.resource.config.layout.key(object)?;
        let version = Version::parse(&options.resource_version)?;
        match self.readiness() {
            Readiness::Stopped => return Err(RequestError::Stopped),
            // B.1: a get goes to the source while the cache loads, or is known to be wrong.
            Readiness::Pending { .. } | Readiness::Inconsistent => {
                return self.raw.get_object(object, options).await;
            }
            Readiness::Ready => {}
        }
        match version {
            // One key: asking the source is as cheap as waiting until it need not be asked.
            Version::Unset => return self.raw.get_object(object, options).await,
            Version::Zero => {}
            Version::At(at) => self.resource.fresh(at).await?,
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
    /// stopped, 500 if the source cannot be read, or an object of a page; without a limit that is found
    /// among the [`Items`](crate::Items).
    pub async fn list(&self, scope: &Scope, options: &ListOptions) -> Result<List, RequestError> {
        let plan = options.plan()?;
        let core = &self.resource.core;
        let limit = options.limit_for(&plan, core.settings.honor_limit_at_rv0);
        let narrow = options.continue_token.is_empty();
        let reader = self.resource.reader();
        let target = Target::new(&reader, scope, &options.selector, narrow)?;
        let delegated = match self.readiness() {
            Readiness::Ready | Readiness::Stopped => false,
            // B.1: a plain page comes from the source while the cache loads.
            Readiness::Pending { .. } => limit.is_some() && options.selector.is_empty(),
            // WC-135: everything does while it is known to be wrong.
            Readiness::Inconsistent => true,
        };
        if delegated {
            self.resource.counters.lists_from_source.add(1);
            return self.raw.list_planned(scope, options, plan, limit).await;
        }
        self.resource.check_ready()?;
        self.resource.counters.lists.add(1);
        match plan {
            ListPlan::Latest { start } => {
                let current = core.current().await?;
                if self.resource.fresh(current).await.is_err() {
                    // WC-233: the cache is stuck, the source is not.
                    self.resource.counters.lists_from_source.add(1);
                    self.resource.counters.consistent_read_fallbacks.add(1);
                    return self
                        .read(&reader, &target, None, start.as_deref(), limit)
                        .await;
                }
                self.resource.counters.consistent_reads.add(1);
                self.list_snapshot(&self.resource.snapshot(), target, start.as_deref(), limit)
            }
            ListPlan::Any => self.list_snapshot(&self.resource.snapshot(), target, None, limit),
            ListPlan::NotOlderThan(at) => {
                self.resource.fresh(at).await?;
                self.list_snapshot(&self.resource.snapshot(), target, None, limit)
            }
            ListPlan::Exact { at, start } => {
                let list = self
                    .list_exact(&reader, target, at, start.as_deref(), limit)
                    .await;
                if matches!(list, Err(RequestError::Expired(_))) {
                    self.resource.counters.expired_compaction.add(1);
                }
                list
            }
        }
    }

    /// WC-133: from the window if that reaches back so far, else from the source, whose objects are
    /// then read anew.
    async fn list_exact(
        &self,
        reader: &crate::list::Reader,
        target: Target,
        at: Revision,
        start: Option<&str>,
        limit: Option<usize>,
    ) -> Result<List, RequestError> {
        let core = &self.resource.core;
        // Whether the revision can still be read, and already, is for the source to say (WC-110).
        List::check_readable(&*core.source, &target, at, start).await?;
        if self.resource.fresh(at).await.is_ok()
            && let Some(snapshot) = self.resource.snapshot_at(at, limit)
        {
            return self.list_snapshot(&snapshot, target, start, limit);
        }
        self.resource.counters.lists_from_source.add(1);
        self.read(reader, &target, Some(at), start, limit).await
    }

    async fn read(
        &self,
        reader: &crate::list::Reader,
        target: &Target,
        at: Option<Revision>,
        start: Option<&str>,
        limit: Option<usize>,
    ) -> Result<List, RequestError> {
        let source = &*self.resource.core.source;
        List::read(source, reader, target, at, start, limit).await
    }

    fn list_snapshot(
        &self,
        snapshot: &Snapshot,
        target: Target,
        start: Option<&str>,
        limit: Option<usize>,
    ) -> Result<List, RequestError> {
        let Snapshot {
            revision, objects, ..
        } = snapshot;
        let span = target.scan_from(start);
        let tally = Tally::new(self.resource.clone());
        let Some(limit) = limit else {
            if let Some((index, prefix)) = snapshot.index_for(&self.resource.indexes, &target)
                && target.name.is_none()
                && start.is_none()
            {
                self.resource.counters.lists_by_index.add(1);
                let place = |key: &[u8]| Bytes::from([&prefix[..], key].concat());
                let (walk, end) = (index.walk(&place(&span.start)), place(&span.end));
                return Ok(List::of_index(*revision, walk, end, target.filter, tally));
            }
            let walk = objects.walk(&span.start);
            return Ok(List::of_snapshot(
                *revision,
                walk,
                span.end,
                target.filter,
                tally,
            ));
        };
        let walk = objects.walk(&span.start);
        let count = || objects.rank(&span.end) - objects.rank(&span.start);
        List::page_of_snapshot(*revision, walk, &span, &target, limit, tally, count)
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
            WatchPlan::State(Version::At(at)) => {
                self.resource.fresh(at).await.map(|()| Begin::State)
            }
            WatchPlan::State(Version::Unset) => match core.current().await {
                Ok(current) => self.resource.fresh(current).await.map(|()| Begin::State),
                Err(error) => Err(error),
            },
            WatchPlan::After(Version::Zero) => Ok(Begin::After(None)),
            WatchPlan::After(Version::At(at)) => self
                .check_not_replaced(at)
                .await
                .map(|()| Begin::After(Some(at))),
            WatchPlan::After(Version::Unset) => core
                .current()
                .await
                .map(|current| Begin::After(Some(current))),
        };
        let registered = begin.and_then(|begin| self.resource.register(&target, begin));
        let resource = self.resource.clone();
        Ok(match registered {
            Err(error @ (RequestError::NotReady { .. } | RequestError::Stopped)) => {
                return Err(error);
            }
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

    /// Refuses a revision that only the store before this one can have had: to wait until this one
    /// comes to it would be silence about all that happened before.
    async fn check_not_replaced(&self, at: Revision) -> Result<(), RequestError> {
        let Some(known) = self.resource.known_before(at) else {
            return Ok(());
        };
        let found = self.resource.core.current().await?;
        if at <= found {
            return Ok(());
        }
        self.resource.counters.expired_replaced.add(1);
        Err(RequestError::Expired(Expired::Replaced { known, found }))
    }

    /// Compares the cache with its source at one revision (WC-135), as the feeder does now and then
    /// ([`WatchCacheBuilder::consistency_interval`]). Costs a walk of both. A cache that differs
    /// answers from its source until it is loaded anew.
    ///
    /// # Errors
    /// 410 if that revision was compacted meanwhile, 429 if the cache is not ready.
    pub async fn check_consistency(&self) -> Result<ConsistencyReport, RequestError> {
        self.resource.check_ready()?;
        let report = consistency::check(&self.resource).await;
        report.map_err(|error| match error {
            SourceError::Compacted => RequestError::Expired(Expired::List),
            other => RequestError::Internal(other.to_string()),
        })
    }
}
