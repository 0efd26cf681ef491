//! The store without a cache: every request asks the source.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use futures_core::future::BoxFuture;
use revstore_engine::{Clock, KeyRange, Revision};

use crate::api::event::{EventType, WatchEvent, seen_through};
use crate::api::keys::{ObjectRef, Scope};
use crate::api::list::{Items, List, readable};
use crate::api::options::{GetOptions, ListOptions, ListPlan, Version, WatchOptions, WatchPlan};
use crate::api::status::{Expired, RequestError};
use crate::api::storage::{
    EventStream, Preconditions, Storage, StoreStats, UpdateFn, UpdateOptions, ValidateFn,
};
use crate::api::target::Target;
use crate::cache::config::ResourceConfig;
use crate::encode::object::{Object, Reader};
use crate::source::{Batch, BatchStream, Change, ListRequest, Source, SourceError, WatchRequest};
use crate::wake::timer_queue::Timers;

/// The objects of one resource, straight from a source.
///
/// It answers every request as the cache does, at the price of asking the source each time; the
/// cache is held to that by running the same tests on both. What differs:
/// - "Any" is the most recent state here, and a limit at resource version 0 is honoured.
/// - A revision that is in the future is refused at once.
/// - A watch from before the compacted revision has the text of WC-313 for raw stores.
/// - Bookmarks come at the end of the initial objects, and when the source says how far it is.
///
/// ```
/// use std::sync::Arc;
/// use revstore_engine::Engine;
/// use revstore_watch_cache::{
///     EngineSource, GetOptions, ObjectRef, Preconditions, RawStore, ResourceConfig, Storage,
///     SystemClock, Update, UpdateOptions, block_on,
/// };
/// # block_on(async {
/// let pods = RawStore::new(
///     Arc::new(EngineSource::new(Engine::builder().build())),
///     ResourceConfig::namespaced("", "pods", "/pods"),
///     Arc::new(SystemClock::new()),
/// );
/// let pod = ObjectRef::namespaced("ns", "a");
/// let made = pods.create(&pod, r#"{"metadata":{"name":"a"}}"#.into(), None).await?;
///
/// // Whoever writes in between makes this look again, and not fail.
/// let label = |app: &'static str| -> revstore_watch_cache::UpdateFn<'static> {
///     Box::new(move |_| {
///         let value = format!(r#"{{"metadata":{{"name":"a","labels":{{"app":"{app}"}}}}}}"#);
///         Ok(Update { value: value.into(), time_to_live: None })
///     })
/// };
/// let web = pods.guaranteed_update(&pod, &UpdateOptions::default(), label("web")).await?;
/// assert!(web.revision() > made.revision());
///
/// // Unless that is what was asked for.
/// let as_made = Preconditions {
///     resource_version: Some(made.revision().to_string()),
///     ..Preconditions::default()
/// };
/// let refused = pods.delete(&pod, &as_made, Box::new(|_| Ok(()))).await;
/// assert_eq!(refused.unwrap_err().code(), 409);
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
    timers: Arc<Timers>,
}

pub(crate) fn internal(error: &SourceError) -> RequestError {
    RequestError::Internal(error.to_string())
}

impl RawStore {
    /// The objects of a resource in `source`, with the time of `clock`.
    pub fn new(source: Arc<dyn Source>, config: ResourceConfig, clock: Arc<dyn Clock>) -> Self {
        Self::over(source, config, Timers::new(clock))
    }

    pub(crate) fn over(
        source: Arc<dyn Source>,
        config: ResourceConfig,
        timers: Arc<Timers>,
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

    /// 504 unless the source has `asked`.
    async fn check_reached(&self, asked: Revision) -> Result<(), RequestError> {
        let current = self.source_revision().await?;
        if asked > current {
            return Err(RequestError::TooLarge { asked, current });
        }
        Ok(())
    }

    pub(crate) async fn get_object(
        &self,
        object: &ObjectRef,
        options: &GetOptions,
    ) -> Result<Option<Object>, RequestError> {
        let key = self.config.layout.key(object)?;
        if let Version::At(at) = Version::parse(&options.resource_version)? {
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
        let reader = self.config.reader();
        let stored = page.items.into_iter().next();
        stored
            .map(|stored| readable(reader.read(stored)).map(Object::new))
            .transpose()
    }

    pub(crate) async fn list_objects(
        &self,
        scope: &Scope,
        options: &ListOptions,
    ) -> Result<List, RequestError> {
        let plan = options.plan()?;
        let limit = options.limit_for(&plan, true);
        self.list_planned(scope, options, plan, limit).await
    }

    /// A list whose options were read, with the limit that holds for it.
    pub(crate) async fn list_planned(
        &self,
        scope: &Scope,
        options: &ListOptions,
        plan: ListPlan,
        limit: Option<usize>,
    ) -> Result<List, RequestError> {
        let reader = self.config.reader();
        let narrow = options.continue_token.is_empty();
        let target = Target::new(&reader, scope, &options.selector, narrow)?;
        let (at, start) = match plan {
            ListPlan::Latest { start } => (None, start),
            ListPlan::Any => (None, None),
            ListPlan::NotOlderThan(at) => {
                self.check_reached(at).await?;
                (None, None)
            }
            ListPlan::Exact { at, start } => (Some(at), start),
        };
        List::read(&*self.source, &reader, &target, at, start.as_deref(), limit).await
    }

    async fn watch_objects(
        &self,
        scope: &Scope,
        options: &WatchOptions,
    ) -> Result<RawWatch, RequestError> {
        let plan = options.plan()?;
        let reader = self.config.reader();
        let target = Target::new(&reader, scope, &options.selector, true)?;
        let begun = self.begin(&reader, &target, plan).await;
        let timeout = options.timeout.map(|timeout| {
            let timers = self.timers.clone();
            let due = timers.now().saturating_add(timeout);
            Box::pin(async move { timers.until(due).await }) as BoxFuture<'static, ()>
        });
        let mut watch = RawWatch {
            reader,
            target,
            initial: None,
            batches: None,
            ready: VecDeque::new(),
            bookmarks: options.allow_bookmarks,
            timeout,
            ended: false,
            after: Revision(0),
        };
        match begun {
            Ok((initial, after, batches)) => {
                watch.initial = initial;
                watch.after = after;
                watch.batches = Some(batches);
            }
            Err(error) => watch.ready.push_back(WatchEvent::Error(error)),
        }
        Ok(watch)
    }

    async fn begin(
        &self,
        reader: &Reader,
        target: &Target,
        plan: WatchPlan,
    ) -> Result<(Option<Items>, Revision, BatchStream), RequestError> {
        let (initial, after) = match plan {
            WatchPlan::State(version) => {
                if let Version::At(at) = version {
                    self.check_reached(at).await?;
                }
                let list = List::read(&*self.source, reader, target, None, None, None).await?;
                (Some(list.items), list.revision)
            }
            WatchPlan::After(Version::At(at)) => (None, at),
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

fn watch_failed(error: SourceError) -> RequestError {
    match error {
        SourceError::Compacted => RequestError::Expired(Expired::Watch),
        SourceError::Replaced { known, found } => {
            RequestError::Expired(Expired::Replaced { known, found })
        }
        other => internal(&other),
    }
}

/// Batches without an event for the reader that one poll takes before it lets others run.
const POLL_BATCHES_MAX: usize = 64;

/// A watch of the source, filtered.
struct RawWatch {
    reader: Reader,
    target: Target,
    initial: Option<Items>,
    batches: Option<BatchStream>,
    /// What one batch of the source came to.
    ready: VecDeque<WatchEvent>,
    bookmarks: bool,
    timeout: Option<BoxFuture<'static, ()>>,
    ended: bool,
    after: Revision,
}

impl fmt::Debug for RawWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawWatch").finish_non_exhaustive()
    }
}

impl RawWatch {
    fn take(&mut self, batch: Batch) {
        let is_progress = batch.changes.is_empty();
        for change in batch.changes {
            match self.see(change) {
                Ok(event) => self.ready.extend(event),
                Err(error) => {
                    self.ready.push_back(WatchEvent::Error(error));
                    return;
                }
            }
        }
        if is_progress && self.bookmarks && batch.through >= self.after {
            self.ready.push_back(WatchEvent::Bookmark {
                revision: batch.through,
                initial_events_end: false,
            });
        }
    }

    fn see(&self, change: Change) -> Result<Option<WatchEvent>, RequestError> {
        if change.new.is_none() && change.previous.is_none() {
            let key = String::from_utf8_lossy(&change.key).into_owned();
            return Err(RequestError::Internal(format!(
                "the last content of {key:?} is compacted"
            )));
        }
        let old = change.previous.map(|stored| self.reader.read(stored));
        let new = change.new.map(|stored| self.reader.read(stored));
        let seen = seen_through(
            &self.target.filter,
            change.revision,
            old.as_ref(),
            new.as_ref(),
        )?;
        Ok(seen.map(|(event, object)| WatchEvent::own(event, object)))
    }

    fn next_initial(&mut self) -> Option<WatchEvent> {
        let items = self.initial.as_mut()?;
        if let Some(item) = items.next() {
            return Some(match item {
                Ok(object) => WatchEvent::own(EventType::Added, object),
                Err(error) => WatchEvent::Error(error),
            });
        }
        self.initial = None;
        self.bookmarks.then_some(WatchEvent::Bookmark {
            revision: self.after,
            initial_events_end: true,
        })
    }
}

impl Stream for RawWatch {
    type Item = WatchEvent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        let mut taken = 0;
        loop {
            if self.ended {
                return Poll::Ready(None);
            }
            let next = match self.next_initial() {
                Some(event) => Some(event),
                None => self.ready.pop_front(),
            };
            if let Some(event) = next {
                // WC-335: nothing follows an error.
                self.ended = matches!(event, WatchEvent::Error(_));
                return Poll::Ready(Some(event));
            }
            if let Some(timeout) = &mut self.timeout
                && timeout.as_mut().poll(context).is_ready()
            {
                self.ended = true;
                continue;
            }
            let Some(batches) = &mut self.batches else {
                self.ended = true;
                continue;
            };
            if taken == POLL_BATCHES_MAX {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            taken += 1;
            match batches.as_mut().poll_next(context) {
                Poll::Ready(Some(Ok(batch))) => self.take(batch),
                Poll::Ready(Some(Err(error))) => {
                    self.ready.push_back(WatchEvent::Error(watch_failed(error)));
                }
                Poll::Ready(None) => self.ended = true,
                Poll::Pending => return Poll::Pending,
            }
        }
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
    ) -> BoxFuture<'a, Result<List, RequestError>> {
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
        preconditions: &'a Preconditions,
        validate: ValidateFn<'a>,
    ) -> BoxFuture<'a, Result<Object, RequestError>> {
        Box::pin(self.delete_object(object, preconditions, None, validate))
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
