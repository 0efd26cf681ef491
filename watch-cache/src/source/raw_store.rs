//! The raw store: get, list, watch and writes of one resource without a cache. Corresponds to
//! Kubernetes' `etcd3.store`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_core::future::BoxFuture;
use revstore_engine::{Clock, KeyRange, Revision};

use crate::api::corrupt::decodable;
use crate::api::event::WatchEvent;
use crate::api::keys::{ObjectRef, Scope};
use crate::api::list::{ListItems, ObjectList};
use crate::api::options::{
    GetOptions, ListOptions, ListPlan, RequestedVersion, WatchOptions, WatchPlan,
};
use crate::api::status::RequestError;
use crate::api::storage::{
    DeleteOptions, EventStream, Storage, StoreStats, UpdateFn, UpdateOptions, ValidateFn,
};
use crate::api::target::Target;
use crate::cache::config::ResourceConfig;
use crate::encode::object::{Object, ObjectDecoder};
use crate::source::raw_watch::{RawWatch, watch_failed};
use crate::source::{BatchStream, ListRequest, Source, SourceError, WatchRequest};
use crate::wake::timer_queue::TimerQueue;

/// A store of the objects of one resource that reads from its source for every request.
///
/// It answers requests as [`ResourceCache`](crate::ResourceCache) does; the same tests run on both.
/// The differences are:
/// - A request at resource version 0 reads the most recent state, and its limit is honored.
/// - A request for a future revision fails at once.
/// - A watch fails with [`Expired::Watch`](crate::api::Expired::Watch) if it needs a compacted
///   version: if it starts below the compacted revision, or at the first event whose previous
///   version is compacted.
/// - Bookmarks follow the initial objects and the progress notifications of the source, and are not
///   sent periodically.
///
/// ```
/// use std::sync::Arc;
/// use revstore_engine::Engine;
/// use pollster::block_on;
/// use revstore_watch_cache::{EngineSource, GetOptions, JsonKind, ObjectRef, ResourceConfig};
/// use revstore_watch_cache::api::{
///     DeleteOptions, Preconditions, Storage, Update, UpdateFn, UpdateOptions,
/// };
/// use revstore_watch_cache::clock::SystemClock;
/// use revstore_watch_cache::source::RawStore;
/// # block_on(async {
/// let pods = RawStore::new(
///     Arc::new(EngineSource::new(Engine::builder().build())),
///     ResourceConfig::namespaced(JsonKind::new("v1", "Pod"), "pods", "/pods"),
///     Arc::new(SystemClock::new()),
/// );
/// let pod = ObjectRef::namespaced("ns", "a");
/// let made = pods.create(&pod, r#"{"metadata":{"name":"a"}}"#.into(), None).await?;
///
/// // When another client writes the object meanwhile, the function is called again.
/// let label = |app: &'static str| -> UpdateFn<'static> {
///     Box::new(move |_| {
///         let value = format!(r#"{{"metadata":{{"name":"a","labels":{{"app":"{app}"}}}}}}"#);
///         Ok(Update::new(value))
///     })
/// };
/// let web = pods.guaranteed_update(&pod, &UpdateOptions::default(), label("web")).await?;
/// assert!(web.revision() > made.revision());
///
/// // With a precondition the write fails instead.
/// let unchanged = Preconditions::default().resource_version(made.revision().to_string());
/// let options = DeleteOptions::default().preconditions(unchanged);
/// let rejected = pods.delete(&pod, &options, Box::new(|_| Ok(()))).await;
/// assert_eq!(rejected.unwrap_err().code(), 409);
/// let found = pods.get(&pod, &GetOptions::default()).await?;
/// assert_eq!(found.unwrap().label("app"), Some("web"));
/// # Ok::<(), revstore_watch_cache::RequestError>(())
/// # })?;
/// # Ok::<(), revstore_watch_cache::RequestError>(())
/// ```
#[derive(Clone, Debug)]
pub struct RawStore {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) config: ResourceConfig,
    timers: Arc<TimerQueue>,
}

pub(crate) fn internal(error: &SourceError) -> RequestError {
    match error {
        SourceError::TooLarge => RequestError::Unclassified(error.to_string()),
        // The client finds the other store when it tries again.
        SourceError::Ended => RequestError::NotReady {
            cause: None,
            retry_after_seconds: 1,
        },
        error => RequestError::Internal(error.to_string()),
    }
}

impl RawStore {
    /// Returns a store of the objects of a resource in `source`. `clock` measures the timeouts of
    /// watches.
    pub fn new(source: Arc<dyn Source>, config: ResourceConfig, clock: Arc<dyn Clock>) -> Self {
        Self::with_timers(source, config, TimerQueue::new(clock))
    }

    pub(crate) fn with_timers(
        source: Arc<dyn Source>,
        config: ResourceConfig,
        timers: Arc<TimerQueue>,
    ) -> Self {
        Self {
            source,
            config,
            timers,
        }
    }

    pub(crate) async fn source_revision(&self) -> Result<Revision, RequestError> {
        self.source
            .current_revision()
            .await
            .map_err(|error| internal(&error))
    }

    /// Fails with [`RequestError::TooLarge`] unless the source has reached the revision `requested`.
    async fn check_reached(&self, requested: Revision) -> Result<(), RequestError> {
        let current = self.source_revision().await?;
        if requested > current {
            return Err(RequestError::TooLarge { requested, current });
        }
        Ok(())
    }

    pub(crate) async fn get_object(
        &self,
        object: &ObjectRef,
        options: &GetOptions,
    ) -> Result<Option<Object>, RequestError> {
        let key = self.config.layout.key(object)?;
        if let RequestedVersion::At(at) = options.version()? {
            self.check_reached(at).await?;
        }
        let request = ListRequest {
            range: KeyRange::One(key),
            at: None,
            limit: None,
        };
        let page = self
            .source
            .list(request)
            .await
            .map_err(|error| internal(&error))?;
        let decoder = self.config.decoder();
        let stored = page.items.into_iter().next();
        stored
            .map(|stored| decodable(decoder.decode(stored)).map(Object::new))
            .transpose()
    }

    pub(crate) async fn list_objects(
        &self,
        scope: &Scope,
        options: &ListOptions,
    ) -> Result<ObjectList, RequestError> {
        let plan = options.plan()?;
        let limit = options.limit_for(&plan, true);
        self.list_planned(scope, options, plan, limit).await
    }

    /// Executes a parsed list.
    pub(crate) async fn list_planned(
        &self,
        scope: &Scope,
        options: &ListOptions,
        plan: ListPlan,
        limit: Option<usize>,
    ) -> Result<ObjectList, RequestError> {
        let decoder = self.config.decoder();
        let narrow = options.continue_token.is_empty();
        let target = Target::new(&decoder, scope, &options.selector, narrow)?;
        let (at, start) = match plan {
            ListPlan::Latest { start } => (None, start),
            ListPlan::Any => (None, None),
            ListPlan::NotOlderThan(at) => {
                self.check_reached(at).await?;
                (None, None)
            }
            ListPlan::Exact { at, start } => (Some(at), start),
        };
        ObjectList::read(
            &*self.source,
            &decoder,
            &target,
            at,
            start.as_deref(),
            limit,
        )
        .await
    }

    async fn watch_objects(
        &self,
        scope: &Scope,
        options: &WatchOptions,
    ) -> Result<RawWatch, RequestError> {
        let plan = options.plan()?;
        let decoder = self.config.decoder();
        let target = Target::new(&decoder, scope, &options.selector, true)?;
        let started = self.start_watch(&decoder, &target, plan).await;
        let timeout = options.timeout.map(|timeout| {
            let timers = self.timers.clone();
            let due = timers.now().saturating_add(timeout);
            Box::pin(async move { drop(timers.sleep_until(due, "watch").await) })
                as BoxFuture<'static, ()>
        });
        let mut watch = RawWatch {
            decoder,
            target,
            initial: None,
            batches: None,
            ready: VecDeque::new(),
            bookmarks: options.allow_bookmarks,
            timeout,
            ended: false,
            after: Revision(0),
        };
        match started {
            Ok((initial, after, batches)) => {
                watch.initial = initial;
                watch.after = after;
                watch.batches = Some(batches);
            }
            Err(error) => watch.ready.push_back(WatchEvent::Error(error)),
        }
        Ok(watch)
    }

    /// Reads the initial objects and opens the watch of the source.
    async fn start_watch(
        &self,
        decoder: &ObjectDecoder,
        target: &Target,
        plan: WatchPlan,
    ) -> Result<(Option<ListItems>, Revision, BatchStream), RequestError> {
        let (initial, after) = match plan {
            WatchPlan::InitialObjects(version) => {
                if let RequestedVersion::At(at) = version {
                    self.check_reached(at).await?;
                }
                let list =
                    ObjectList::read(&*self.source, decoder, target, None, None, None).await?;
                (Some(list.items), list.revision)
            }
            WatchPlan::After(RequestedVersion::At(at)) => (None, at),
            WatchPlan::After(_) => (None, self.source_revision().await?),
        };
        let request = WatchRequest {
            range: target.scan.range(),
            after,
            previous: true,
        };
        let batches = self.source.watch(request).await.map_err(watch_failed)?;
        Ok((initial, after, batches))
    }
}

impl Storage for RawStore {
    fn get<'a>(
        &'a self,
        object: &'a ObjectRef,
        options: &'a GetOptions,
    ) -> BoxFuture<'a, Result<Option<Object>, RequestError>> {
        Box::pin(self.get_object(object, options))
    }

    fn list<'a>(
        &'a self,
        scope: &'a Scope,
        options: &'a ListOptions,
    ) -> BoxFuture<'a, Result<ObjectList, RequestError>> {
        Box::pin(self.list_objects(scope, options))
    }

    fn watch<'a>(
        &'a self,
        scope: &'a Scope,
        options: &'a WatchOptions,
    ) -> BoxFuture<'a, Result<EventStream, RequestError>> {
        Box::pin(async move {
            let watch = self.watch_objects(scope, options).await?;
            Ok(Box::pin(watch) as EventStream)
        })
    }

    fn create<'a>(
        &'a self,
        object: &'a ObjectRef,
        value: Bytes,
        time_to_live: Option<Duration>,
    ) -> BoxFuture<'a, Result<Object, RequestError>> {
        Box::pin(self.create_object(object, value, time_to_live))
    }

    fn guaranteed_update<'a>(
        &'a self,
        object: &'a ObjectRef,
        options: &'a UpdateOptions,
        update: UpdateFn<'a>,
    ) -> BoxFuture<'a, Result<Object, RequestError>> {
        Box::pin(self.update_object(object, options, None, update))
    }

    fn delete<'a>(
        &'a self,
        object: &'a ObjectRef,
        options: &'a DeleteOptions,
        validate: ValidateFn<'a>,
    ) -> BoxFuture<'a, Result<Object, RequestError>> {
        Box::pin(self.delete_object(object, options, None, validate))
    }

    fn current_revision(&self) -> BoxFuture<'_, Result<Revision, RequestError>> {
        Box::pin(self.source_revision())
    }

    fn stats(&self) -> BoxFuture<'_, Result<StoreStats, RequestError>> {
        Box::pin(async move {
            let request = ListRequest {
                range: self.config.layout.span().range(),
                at: None,
                limit: Some(1),
            };
            let page = self
                .source
                .list(request)
                .await
                .map_err(|error| internal(&error))?;
            Ok(StoreStats {
                objects: page.count as u64,
                size_bytes: None,
            })
        })
    }

    fn is_ready(&self) -> bool {
        true
    }
}
