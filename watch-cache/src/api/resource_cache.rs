//! The handle on one resource of a cache: get, list and watch. Corresponds to Kubernetes' `Cacher`.

use std::sync::Arc;

use bytes::Bytes;
use revstore_engine::Revision;

use crate::api::cache_watcher::CacheWatcher;
use crate::api::corrupt::decodable;
use crate::api::event::WatchEvent;
use crate::api::keys::{ObjectRef, Scope};
use crate::api::list::{ListCounts, ObjectList};
use crate::api::options::{
    GetOptions, ListOptions, ListPlan, RequestedVersion, WatchOptions, WatchPlan,
};
use crate::api::starting_watch::StartingWatch;
use crate::api::status::{Expired, RequestError};
use crate::api::target::Target;
use crate::cache::consistency;
use crate::cache::consistency::ConsistencyReport;
use crate::cache::objects::snapshot::Snapshot;
use crate::cache::readiness::Readiness;
use crate::cache::resource::{Resource, WatchStart};
use crate::encode::encoder::{Encoder, encode_event};
use crate::encode::form::{Form, FormId};
use crate::encode::object::{Object, ObjectDecoder};
use crate::metrics::ResourceMetrics;
use crate::source::raw_store::RawStore;
use crate::status::ResourceName;

/// A handle on one resource of a cache: get, list and watch. Clones are handles on the same resource.
///
/// Gets and lists read immutable snapshots. Watchers read from one shared window of recent events.
/// The meaning of each option is documented at [`GetOptions`], [`ListOptions`] and [`WatchOptions`].
/// Corresponds to Kubernetes' `Cacher`.
#[derive(Clone, Debug)]
pub struct ResourceCache {
    resource: Arc<Resource>,
    raw: RawStore,
    /// The series of its watches.
    series: u64,
}

impl ResourceCache {
    pub(crate) fn new(resource: Arc<Resource>) -> Self {
        let raw = RawStore::with_timers(
            resource.shared.source.clone(),
            resource.config.clone(),
            resource.shared.timers.clone(),
        );
        Self {
            series: resource.series(),
            resource,
            raw,
        }
    }

    pub(crate) fn resource(&self) -> &Arc<Resource> {
        &self.resource
    }

    /// Returns whether this is a handle on the same resource of the same cache as `other`, with the same series of
    /// watches: not one that was added after the resource was removed or reconfigured.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.resource, &other.resource) && self.series == other.series
    }

    /// Returns a handle on the same resource whose watches belong to a new series, which does not end with that of this
    /// handle. For objects that clients see in another form from now on, without another configuration: use the new handle
    /// for new requests, then [end](Self::end_earlier_series) the watches of the earlier ones.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use pollster::block_on;
    /// # use revstore_engine::Engine;
    /// # use revstore_watch_cache::{
    /// #     EngineSource, JsonKind, ResourceConfig, Scope, WatchCache, WatchOptions,
    /// # };
    /// # let source = EngineSource::new(Engine::builder().build());
    /// # let (cache, feeder) = WatchCache::builder(Arc::new(source)).build();
    /// # let _running = feeder.spawn();
    /// let kind = JsonKind::new("example.org/v1", "Widget");
    /// let config = ResourceConfig::namespaced(kind, "widgets", "/registry/example.org/widgets");
    /// let widgets = cache.add(config)?;
    /// block_on(widgets.wait_until_ready())?;
    /// let mut watch = block_on(widgets.watch(&Scope::All, &WatchOptions::default()))?;
    /// let next = widgets.next_series();
    /// next.end_earlier_series();
    /// assert!(watch.next_blocking().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    // WC-118.
    #[must_use]
    pub fn next_series(&self) -> Self {
        Self {
            series: self.series + 1,
            ..self.clone()
        }
    }

    /// Ends the watches through handles of earlier series: they deliver the events that the cache has, then end without an
    /// error. A watch through such a handle that begins later ends at once; other requests go on. Watches of later series
    /// that start at an older revision than the newest one of now fail with 410, so that their clients list again. Costs
    /// O(w) for w watchers.
    pub fn end_earlier_series(&self) {
        self.resource.end_series_before(self.series);
    }

    /// Returns the group and the plural name of the resource.
    pub fn name(&self) -> &ResourceName {
        &self.resource.config.name
    }

    /// Returns the API version of the kind, without the group.
    pub(crate) fn version(&self) -> &str {
        let api_version = self.resource.config.kind.api_version();
        api_version
            .split_once('/')
            .map_or(api_version, |(_, version)| version)
    }

    /// Returns whether requests can be answered from the cache.
    pub fn readiness(&self) -> Readiness {
        self.resource.ready.state()
    }

    /// Waits until requests can be answered from the cache.
    ///
    /// # Errors
    /// [`RequestError::Stopped`] if the cache is stopped, and [`RequestError::Removed`] if the resource
    /// is removed.
    pub async fn wait_until_ready(&self) -> Result<(), RequestError> {
        self.resource.ready.wait().await
    }

    /// Waits until the watermark of the cache has reached `revision`. Corresponds to Kubernetes'
    /// `waitUntilFreshAndBlock`.
    ///
    /// # Errors
    /// [`RequestError::TooLarge`] if the cache does not reach the revision within
    /// [`freshness_wait`](crate::cache::WatchCacheBuilder::freshness_wait).
    // WC-131, WC-232.
    pub async fn wait_until_fresh(&self, revision: Revision) -> Result<(), RequestError> {
        self.resource.wait_until_fresh(revision).await
    }

    /// Returns a snapshot of the metrics of the resource. Costs O(w log w) for w watchers.
    pub fn metrics(&self) -> ResourceMetrics {
        self.resource.metrics()
    }

    /// Returns the number of objects in the cache. Costs O(1).
    pub fn object_count(&self) -> usize {
        self.resource.object_count()
    }

    /// Fails with [`RequestError::Removed`] if the resource was removed.
    pub(crate) fn check_not_removed(&self) -> Result<(), RequestError> {
        match self.readiness() {
            Readiness::Removed => Err(RequestError::Removed),
            _ => Ok(()),
        }
    }

    /// Returns the store behind the cache, which offers the same operations. It is usable also after
    /// the resource was removed.
    pub fn raw(&self) -> &RawStore {
        &self.raw
    }

    /// Returns an encoder of one response in a form of the resource, or `None` if there is no such form.
    // WC-142.
    pub fn encoder(&self, form: FormId) -> Option<Encoder> {
        let form = self.resource.form(form)?;
        Some(Encoder::new(self.resource.clone(), form))
    }

    /// Adds a form in which objects are written for clients, or replaces one, as when the printer columns
    /// of a custom resource change. Encoders of the previous form stay as they are.
    pub fn set_form(&self, id: FormId, form: Arc<dyn Form>) {
        self.resource.set_form(id, form);
    }

    /// Removes a form other than [`FormId::DEFAULT`]. Returns whether there was one.
    pub fn remove_form(&self, id: FormId) -> bool {
        self.resource.remove_form(id)
    }

    /// Encodes an event for a client in the default form; see [`CacheWatcher::encode`].
    pub fn encode(&self, event: &WatchEvent) -> Bytes {
        encode_event(&self.resource, &self.resource.default_form(), event, false)
    }

    /// Encodes an object for a client in the default form, with its resource version.
    pub fn encode_object(&self, object: &Object) -> Bytes {
        let form = self.resource.default_form();
        Encoder::new(self.resource.clone(), form).object(object)
    }

    /// Returns the cached version of an object, which may be stale. A write first assumes that it is
    /// current (WC-105).
    pub(crate) fn cached(&self, object: &ObjectRef) -> Option<Object> {
        if self.readiness() != Readiness::Ready {
            return None;
        }
        let key = self.resource.config.layout.key(object).ok()?;
        self.resource.get(&key).ok()?.map(Object::new)
    }

    /// Returns one object, or `None` if it does not exist. Reads from the source if no resource
    /// version is given, or while the cache is not ready.
    ///
    /// # Errors
    /// - [`RequestError::BadRequest`] for an invalid name.
    /// - [`RequestError::Unclassified`] for an invalid resource version.
    /// - [`RequestError::TooLarge`] if the cache does not reach the revision in time.
    /// - [`RequestError::Stopped`] if the cache is stopped, and [`RequestError::Removed`] if the resource
    ///   was removed.
    /// - [`RequestError::Corrupt`] if the object cannot be decoded.
    /// - [`RequestError::Internal`] if the source fails.
    // WC-210.
    pub async fn get(
        &self,
        object: &ObjectRef,
        options: &GetOptions,
    ) -> Result<Option<Object>, RequestError> {
        let key = self.resource.config.layout.key(object)?;
        let version = options.version()?;
        match self.readiness() {
            Readiness::Stopped => return Err(RequestError::Stopped),
            Readiness::Removed => return Err(RequestError::Removed),
            // The source answers gets while the cache loads or is inconsistent (docs/watch-cache.md,
            // B.1, and WC-135).
            Readiness::Pending { .. } | Readiness::Inconsistent => {
                return self.raw.get_object(object, options).await;
            }
            Readiness::Ready => {}
        }
        match version {
            // Reading one key from the source costs no more than reading its current revision and
            // waiting for the cache.
            RequestedVersion::Unset => return self.raw.get_object(object, options).await,
            RequestedVersion::Zero => {}
            RequestedVersion::At(at) => self.resource.wait_until_fresh(at).await?,
        }
        let Ok(found) = self.resource.get(&key) else {
            // A load has begun meanwhile.
            self.check_not_removed()?;
            return self.raw.get_object(object, options).await;
        };
        found
            .map(|object| decodable(object).map(Object::new))
            .transpose()
    }

    /// Lists objects. The documentation of [`ListOptions`] says which state each combination of
    /// options reads.
    ///
    /// # Errors
    /// - [`RequestError::Invalid`] or [`RequestError::BadRequest`] for invalid options.
    /// - [`RequestError::Expired`] if the requested revision is compacted.
    /// - [`RequestError::TooLarge`] if the cache does not reach a revision in time.
    /// - [`RequestError::NotReady`] while the cache loads, [`RequestError::Stopped`] after it is
    ///   stopped, and [`RequestError::Removed`] after the resource was removed.
    /// - [`RequestError::CorruptList`] if an object of a page cannot be decoded. A list without a
    ///   limit reports it as an item of its [`ListItems`](crate::api::ListItems).
    /// - [`RequestError::Internal`] if the source fails.
    // WC-220, WC-230 to WC-235.
    pub async fn list(
        &self,
        scope: &Scope,
        options: &ListOptions,
    ) -> Result<ObjectList, RequestError> {
        let plan = options.plan()?;
        let shared = &self.resource.shared;
        let limit = options.limit_for(&plan, shared.settings.honor_limit_at_rv0);
        let narrow = options.continue_token.is_empty();
        let decoder = self.resource.decoder();
        let target = Target::new(&decoder, scope, &options.selector, narrow)?;
        let delegated = match self.readiness() {
            Readiness::Ready | Readiness::Stopped | Readiness::Removed => false,
            // The source answers pages without a selector while the cache loads (docs/watch-cache.md,
            // B.1).
            Readiness::Pending { .. } => limit.is_some() && options.selector.is_empty(),
            // WC-135: the source answers all lists while the cache is inconsistent.
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
                if !shared.source.requests_progress() {
                    self.resource.counters.lists_from_source.add(1);
                    return self
                        .read(&decoder, &target, None, start.as_deref(), limit)
                        .await;
                }
                let current = shared.current_revision().await?;
                let is_fresh = self.resource.wait_until_fresh(current).await.is_ok();
                let Some(snapshot) = self.resource.snapshot().filter(|_| is_fresh) else {
                    // WC-233: the cache does not reach the revision in time, or a load has begun
                    // meanwhile, so the source answers.
                    self.check_not_removed()?;
                    self.resource.counters.lists_from_source.add(1);
                    self.resource.counters.consistent_read_fallbacks.add(1);
                    return self
                        .read(&decoder, &target, None, start.as_deref(), limit)
                        .await;
                };
                self.resource.counters.consistent_reads.add(1);
                self.list_snapshot(&snapshot, target, start.as_deref(), limit)
            }
            ListPlan::Any => self.list_snapshot(&self.snapshot()?, target, None, limit),
            ListPlan::NotOlderThan(at) => {
                self.resource.wait_until_fresh(at).await?;
                self.list_snapshot(&self.snapshot()?, target, None, limit)
            }
            ListPlan::Exact { at, start } => {
                let list = self
                    .list_exact(&decoder, target, at, start.as_deref(), limit)
                    .await;
                if matches!(list, Err(RequestError::Expired(_))) {
                    self.resource.counters.expired_compaction.add(1);
                }
                list
            }
        }
    }

    /// Returns the current objects. Fails if a load has begun since the readiness was checked.
    fn snapshot(&self) -> Result<Snapshot, RequestError> {
        self.resource.snapshot().ok_or_else(|| {
            let not_ready = self.resource.check_ready().err();
            not_ready.unwrap_or(RequestError::NotReady {
                cause: None,
                retry_after_seconds: 1,
            })
        })
    }

    /// Lists the objects at an exact revision (WC-133): from a checkpoint if the window contains the
    /// revision; otherwise the objects are read from the source and decoded again.
    async fn list_exact(
        &self,
        decoder: &ObjectDecoder,
        target: Target,
        at: Revision,
        start: Option<&str>,
        limit: Option<usize>,
    ) -> Result<ObjectList, RequestError> {
        let shared = &self.resource.shared;
        if !shared.is_readable(at) {
            // The source decides whether the revision is compacted or in the future (WC-110).
            let asked = shared.timers.now();
            ObjectList::check_readable(&*shared.source, &target, at, start).await?;
            shared.set_readable(at, asked);
        }
        if self.resource.wait_until_fresh(at).await.is_ok()
            && let Some(snapshot) = self.resource.snapshot_at(at, limit)
        {
            return self.list_snapshot(&snapshot, target, start, limit);
        }
        self.check_not_removed()?;
        self.resource.counters.lists_from_source.add(1);
        self.read(decoder, &target, Some(at), start, limit).await
    }

    async fn read(
        &self,
        decoder: &ObjectDecoder,
        target: &Target,
        at: Option<Revision>,
        start: Option<&str>,
        limit: Option<usize>,
    ) -> Result<ObjectList, RequestError> {
        let source = &*self.resource.shared.source;
        ObjectList::read(source, decoder, target, at, start, limit).await
    }

    fn list_snapshot(
        &self,
        snapshot: &Snapshot,
        target: Target,
        start: Option<&str>,
        limit: Option<usize>,
    ) -> Result<ObjectList, RequestError> {
        let Snapshot {
            revision, objects, ..
        } = snapshot;
        let span = target.scan_from(start);
        let counts = ListCounts::new(self.resource.clone());
        let Some(limit) = limit else {
            if let Some((index, prefix)) = snapshot.index_for(&self.resource.indexes, &target)
                && target.name.is_none()
                && start.is_none()
            {
                self.resource.counters.lists_by_index.add(1);
                let index_key = |key: &[u8]| Bytes::from([&prefix[..], key].concat());
                let objects = index.iter_from(&index_key(&span.start));
                let end = index_key(&span.end);
                return Ok(ObjectList::of_index(
                    *revision,
                    objects,
                    end,
                    target.filter,
                    counts,
                ));
            }
            let objects = objects.iter_from(&span.start);
            return Ok(ObjectList::of_snapshot(
                *revision,
                objects,
                span.end,
                target.filter,
                counts,
            ));
        };
        let page = objects.iter_from(&span.start);
        let count = || objects.rank(&span.end) - objects.rank(&span.start);
        ObjectList::page_of_snapshot(*revision, page, &span, &target, limit, counts, count)
    }

    /// Watches objects. The documentation of [`WatchOptions`] says where each combination of options
    /// starts.
    ///
    /// # Errors
    /// - [`RequestError::Invalid`] or [`RequestError::BadRequest`] for invalid options, and
    ///   [`RequestError::Unclassified`] for an invalid resource version.
    /// - [`RequestError::NotReady`] while the cache loads or is inconsistent,
    ///   [`RequestError::Stopped`] after it is stopped, and [`RequestError::Removed`] after the resource
    ///   was removed.
    ///
    /// All other errors, such as [`Expired::Window`] for a start before the window, are the only
    /// event of the returned watcher. A watcher with the objects at a future revision is returned at
    /// once, and waits for that revision when it is polled; if the revision is not reached in time, its
    /// only event is [`RequestError::TooLarge`].
    // WC-305, WC-310.
    pub async fn watch(
        &self,
        scope: &Scope,
        options: &WatchOptions,
    ) -> Result<CacheWatcher, RequestError> {
        let plan = options.plan()?;
        let decoder = self.resource.decoder();
        let target = Target::new(&decoder, scope, &options.selector, true)?;
        self.resource.check_ready()?;
        let shared = &self.resource.shared;
        let start = match plan {
            WatchPlan::InitialObjects(RequestedVersion::Zero) => Ok(WatchStart::CurrentObjects),
            WatchPlan::InitialObjects(RequestedVersion::At(at)) => {
                if at > shared.watermark.load() {
                    let start = StartingWatch::new(
                        (&self.resource, self.series),
                        target.clone(),
                        at,
                        options.allow_bookmarks,
                        options.timeout,
                    );
                    let resource = self.resource.clone();
                    return Ok(CacheWatcher::starting(resource, target.filter, start));
                }
                Ok(WatchStart::CurrentObjects)
            }
            WatchPlan::InitialObjects(RequestedVersion::Unset) => {
                match shared.current_revision().await {
                    Ok(current) => self
                        .resource
                        .wait_until_fresh(current)
                        .await
                        .map(|()| WatchStart::CurrentObjects),
                    Err(error) => Err(error),
                }
            }
            WatchPlan::After(RequestedVersion::Zero) => Ok(WatchStart::After(None)),
            WatchPlan::After(RequestedVersion::At(at)) => self
                .check_start(at)
                .await
                .map(|()| WatchStart::After(Some(at))),
            WatchPlan::After(RequestedVersion::Unset) => shared
                .current_revision()
                .await
                .map(|current| WatchStart::After(Some(current))),
        };
        let registration =
            start.and_then(|start| self.resource.register(&target, start, self.series));
        let resource = self.resource.clone();
        Ok(match registration {
            Err(
                error @ (RequestError::NotReady { .. }
                | RequestError::Stopped
                | RequestError::Removed),
            ) => return Err(error),
            Ok(None) => CacheWatcher::ended(resource, target),
            Ok(Some(registration)) => CacheWatcher::new(
                resource,
                target,
                registration,
                options.allow_bookmarks,
                options.timeout,
            ),
            Err(error) => CacheWatcher::failed(resource, target, error),
        })
    }

    /// Fails with [`Expired::Replaced`] if only a previous, replaced store can have had the revision
    /// `at`. If a watcher waited until the current store reaches that revision, it would miss all
    /// events before it.
    async fn check_start(&self, at: Revision) -> Result<(), RequestError> {
        let Some(known) = self.resource.replaced_at(at) else {
            return Ok(());
        };
        let found = self.resource.shared.current_revision().await?;
        if at <= found {
            return Ok(());
        }
        self.resource.counters.expired_replaced.add(1);
        Err(RequestError::Expired(Expired::Replaced { known, found }))
    }

    /// Compares the keys and revisions of the cache with those of its source at one revision, as the
    /// feeder does periodically
    /// ([`consistency_interval`](crate::cache::WatchCacheBuilder::consistency_interval)). Reads all
    /// keys of the resource. If they differ, the source answers gets and lists, and watches fail with
    /// [`RequestError::NotReady`], until the cache is loaded again.
    ///
    /// # Errors
    /// - [`Expired::List`] if the revision was compacted during the check.
    /// - [`RequestError::NotReady`], [`RequestError::Stopped`] or [`RequestError::Removed`] if the cache
    ///   is not ready, or was loaded again during the check.
    /// - [`RequestError::Internal`] if the source fails.
    // WC-135.
    pub async fn check_consistency(&self) -> Result<ConsistencyReport, RequestError> {
        self.resource.check_ready()?;
        consistency::check(&self.resource).await
    }
}
