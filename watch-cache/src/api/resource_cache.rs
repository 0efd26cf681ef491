//! The handle on one resource of a cache: get, list, watch.

use std::sync::Arc;

use bytes::Bytes;
use revstore_engine::Revision;

use crate::api::event::WatchEvent;
use crate::api::keys::{ObjectRef, Scope};
use crate::api::list::{List, Tally, readable};
use crate::api::options::{GetOptions, ListOptions, ListPlan, Version, WatchOptions, WatchPlan};
use crate::api::status::{Expired, RequestError};
use crate::api::target::Target;
use crate::api::watch::Watch;
use crate::cache::consistency;
use crate::cache::consistency::ConsistencyReport;
use crate::cache::objects::snapshot::Snapshot;
use crate::cache::readiness::Readiness;
use crate::cache::resource::{Begin, Resource};
use crate::encode;
use crate::encode::kind::written;

use crate::encode::object::{Object, Reader};
use crate::metrics::Metrics;
use crate::source::SourceError;
use crate::source::raw_store::RawStore;

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
    pub(crate) fn new(resource: Arc<Resource>) -> Self {
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
        encode::event::encode(&self.resource, event)
    }

    /// The object as bytes for a client, with its resource version.
    pub fn encode_object(&self, object: &Object) -> Bytes {
        let kind = &*self.resource.config.kind;
        let bytes = written(|out| kind.write_object(object, object.revision(), out));
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
            .map(|entry| readable(entry).map(Object::new))
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
        reader: &Reader,
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
        reader: &Reader,
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
