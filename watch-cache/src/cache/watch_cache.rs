//! The cache: several resources over one source, and the handle on each of them.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::RwLock;
use revstore_engine::{Clock, Revision, SystemClock};

use crate::api::resource_cache::ResourceCache;
use crate::api::status::RequestError;
use crate::cache::config::ResourceConfig;
use crate::cache::feeder::Feeder;
use crate::cache::resource::Resource;
use crate::cache::shared::{Core, Settings};
use crate::random::Random;
use crate::source::Source;

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
