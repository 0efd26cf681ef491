//! Loads: reading the objects of resources while the feeder applies the changes of others.
//! Corresponds to the list of the reflector inside Kubernetes' Cacher.
//!
//! A load reads the objects in pages, each at the current revision of the source, so no compaction
//! can interrupt it. Meanwhile the feeder passes the changes of the resource to the load:
//!
//! - A change of a key that was read is applied, if it is newer than the object.
//! - A change of a key that is being read waits until the page has arrived.
//! - A later key will be read in the state after the change, so its change is ignored.
//!
//! When the last page is applied, the objects are those at the position of the feeder, once that has
//! reached the revisions of all pages. The window begins at the revision of the last page. The load
//! then waits until the watermark has reached the current revision of the source, and joins the
//! resource between two batches, so the objects are exactly those at the watermark.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream as _;
use futures_core::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use revstore_engine::Revision;

use crate::cache::contents::{Contents, ContentsRemains};
use crate::cache::load::{Load, SLICE_OBJECTS, Slice, Stage, read_at};
use crate::cache::readiness::Readiness;
use crate::cache::resource::Resource;
use crate::cache::shared::CacheShared;
use crate::source::{Change, ListPage, ListRequest, SourceError};

/// The pause after a failure of the source (docs/watch-cache.md, B.1).
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The number of loads at the oldest revision that may fail with [`SourceError::Compacted`] before
/// the current revision is loaded instead.
const COMPACTED_LOADS_AT_OLDEST_MAX: usize = 3;
/// The number of these loads that may fail with [`SourceError::Compacted`], at any revision, before
/// the feeder starts again with all resources.
const COMPACTED_LOADS_MAX: usize = 2 * COMPACTED_LOADS_AT_OLDEST_MAX;

/// The loads under way.
#[derive(Debug)]
pub(crate) struct Loads {
    shared: Arc<CacheShared>,
    /// The first one with a page to decode takes the next step, and moves to the end.
    running: VecDeque<Load>,
    waits: FuturesUnordered<BoxFuture<'static, (u64, Waited)>>,
    /// Discarded contents, which are freed in steps.
    remains: Vec<ContentsRemains>,
    next_id: u64,
}

/// The end of a wait of a load.
#[derive(Debug)]
enum Waited {
    Page(Result<ListPage, SourceError>),
    Current(Result<Revision, SourceError>),
    Paused,
}

impl Loads {
    pub(crate) fn new(shared: Arc<CacheShared>) -> Self {
        Self {
            shared,
            running: VecDeque::new(),
            waits: FuturesUnordered::new(),
            remains: Vec::new(),
            next_id: 0,
        }
    }

    pub(crate) fn contains(&self, resource: &Arc<Resource>) -> bool {
        self.running
            .iter()
            .any(|load| Arc::ptr_eq(&load.resource, resource))
    }

    /// Returns whether there is nothing to do.
    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.remains.is_empty()
    }

    /// Ends all loads without a result.
    pub(crate) fn clear(&mut self) {
        self.running.clear();
        self.waits = FuturesUnordered::new();
    }

    /// Ends the loads of removed resources.
    pub(crate) fn drop_removed(&mut self) {
        let running = std::mem::take(&mut self.running);
        for load in running {
            if load.resource.ready.state() == Readiness::Removed {
                self.remains.push(load.contents.into_remains());
            } else {
                self.running.push_back(load);
            }
        }
    }

    /// Frees discarded contents in later steps.
    pub(crate) fn free(&mut self, remains: impl IntoIterator<Item = ContentsRemains>) {
        self.remains.extend(remains);
    }

    /// Begins to load a resource whose contents were discarded. The feeder must have opened its watch
    /// before, and must pass all changes of the resource to [`Loads::apply`] from now on.
    pub(crate) fn begin(&mut self, resource: &Arc<Resource>) {
        let contents = Contents::new(resource.config.window, &resource.indexes);
        let first_key = resource.config.layout.span().start;
        let began = self.shared.timers.now();
        let load = self.add(resource, contents, Some(first_key), began);
        self.read_page(load);
    }

    fn add(
        &mut self,
        resource: &Arc<Resource>,
        contents: Contents,
        next_key: Option<Bytes>,
        began: Duration,
    ) -> usize {
        self.next_id += 1;
        let load = Load::new(self.next_id, resource, contents, next_key, began);
        self.running.push_back(load);
        self.running.len() - 1
    }

    /// Loads a resource at the oldest revision of the source, so that its window will also contain
    /// earlier events (WC-144), or at the current one if that fails. Returns the loaded revision.
    /// Used before the feeder opens its watch.
    pub(crate) async fn load_at_oldest(
        &mut self,
        resource: &Arc<Resource>,
    ) -> Result<Revision, SourceError> {
        let began = self.shared.timers.now();
        let ready_at = self.shared.source.current_revision().await?;
        let mut failed = 0;
        loop {
            let oldest = self.shared.source.oldest_revision();
            let at = oldest.filter(|_| failed < COMPACTED_LOADS_AT_OLDEST_MAX);
            match read_at(resource, at).await {
                Ok(contents) => {
                    let revision = contents.loaded;
                    let load = self.add(resource, contents, None, began);
                    self.running[load].stage = Stage::Complete(ready_at.max(revision));
                    return Ok(revision);
                }
                Err(SourceError::Compacted) if failed < COMPACTED_LOADS_MAX => failed += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Passes changes to the load of their resource. Returns them if there is none.
    pub(crate) fn apply(
        &mut self,
        resource: &Arc<Resource>,
        changes: Vec<Change>,
        arrived: Duration,
    ) -> Option<Vec<Change>> {
        let is_of = |load: &&mut Load| Arc::ptr_eq(&load.resource, resource);
        let Some(load) = self.running.iter_mut().find(is_of) else {
            return Some(changes);
        };
        resource.counters.events_received.add(changes.len() as u64);
        for change in changes {
            load.receive(change, arrived);
        }
        None
    }

    /// Lets the resources join whose loads are complete at the published revision `watermark`.
    pub(crate) fn join(&mut self, watermark: Revision) {
        let mut position = 0;
        while let Some(load) = self.running.get(position) {
            match load.stage {
                Stage::Complete(ready_at) if watermark >= ready_at => {}
                _ => {
                    position += 1;
                    continue;
                }
            }
            if let Some(load) = self.running.remove(position) {
                let duration = &load.resource.counters.initialization_seconds;
                duration.observe_since(load.began, self.shared.timers.now());
                self.remains.extend(load.resource.join(load.contents));
            }
        }
    }

    /// Takes one step: at most one slice of decoding, or a bounded part of other work. Returns
    /// whether there is more to do at once; otherwise the task is woken when a wait of a load has
    /// ended.
    pub(crate) fn advance(
        &mut self,
        context: &mut Context<'_>,
        replacements: u64,
    ) -> Result<bool, SourceError> {
        let mut slice = Slice::new();
        while !slice.is_used() {
            if let Poll::Ready(Some((id, waited))) =
                std::pin::Pin::new(&mut self.waits).poll_next(context)
            {
                if let Waited::Page(Ok(page)) = &waited {
                    // A source in the same process has read a large page in this step.
                    slice.use_objects(page.items.len() / SLICE_OBJECTS, 0);
                }
                self.continue_after(id, waited, replacements)?;
            } else if !self.decode(&mut slice) {
                break;
            }
        }
        if slice.is_used() {
            return Ok(true);
        }
        while let Some(remains) = self.remains.last_mut() {
            if remains.free_some() {
                return Ok(true);
            }
            self.remains.pop();
        }
        Ok(false)
    }

    /// Decodes a part of a page. Returns `false` if there is none.
    fn decode(&mut self, slice: &mut Slice) -> bool {
        let has_page = |load: &Load| matches!(load.stage, Stage::Decoding { .. } | Stage::Applied);
        let Some(position) = self.running.iter().position(has_page) else {
            return false;
        };
        self.running[position].decode(slice);
        let last = self.running.len() - 1;
        if let Some(load) = self.running.remove(position) {
            self.running.push_back(load);
        }
        if matches!(self.running[last].stage, Stage::Applied) {
            match self.running[last].next_key {
                Some(_) => self.read_page(last),
                None => self.verify(last),
            }
        }
        true
    }

    /// Continues a load after a wait. Fails only if the store was replaced.
    fn continue_after(
        &mut self,
        id: u64,
        waited: Waited,
        replacements: u64,
    ) -> Result<(), SourceError> {
        let Some(position) = self.running.iter().position(|load| load.id == id) else {
            return Ok(());
        };
        let load = &mut self.running[position];
        let error = match waited {
            Waited::Paused if load.next_key.is_none() => {
                self.verify(position);
                return Ok(());
            }
            Waited::Paused => {
                self.read_page(position);
                return Ok(());
            }
            Waited::Page(Ok(page)) => {
                if page.revision < load.known {
                    let (known, found) = (load.known, page.revision);
                    return Err(SourceError::Replaced { known, found });
                }
                if matches!(load.stage, Stage::Reading { again: true }) {
                    self.read_page(position);
                } else {
                    load.take_page(page);
                }
                return Ok(());
            }
            Waited::Current(Ok(found)) => {
                let known = load.known;
                if found < known || self.shared.source.replacements() != replacements {
                    return Err(SourceError::Replaced { known, found });
                }
                load.stage = Stage::Complete(if load.awaits_current { found } else { known });
                // The watch of a quiet store may not report this revision by itself.
                self.shared.source.request_progress();
                self.join(self.shared.watermark.load());
                return Ok(());
            }
            Waited::Page(Err(error)) | Waited::Current(Err(error)) => error,
        };
        if matches!(error, SourceError::Replaced { .. }) {
            return Err(error);
        }
        load.is_compacted |= error == SourceError::Compacted;
        load.record_failure(&error);
        self.pause(position);
        Ok(())
    }

    fn read_page(&mut self, position: usize) {
        let load = &mut self.running[position];
        let Some(start) = load.next_key.clone() else {
            return;
        };
        load.stage = Stage::Reading { again: false };
        load.known = self.shared.watermark.load();
        // If the source does not report progress on request, the watermark might not reach the
        // current revision for a long time. So the page is read at the watermark, unless that is
        // compacted.
        let reports_progress = self.shared.source.requests_progress();
        let at_watermark = !reports_progress && !load.is_compacted && load.known.0 > 0;
        load.awaits_current |= !at_watermark;
        let request = ListRequest {
            range: load.resource.config.layout.span().from(start).range(),
            at: at_watermark.then_some(load.known),
            limit: Some(load.page_keys),
        };
        let (id, source) = (load.id, self.shared.source.clone());
        let read = async move { (id, Waited::Page(source.list(request).await)) };
        self.waits.push(Box::pin(read));
    }

    /// Reads the current revision after the last page, to detect that the store was replaced since
    /// the first one.
    fn verify(&mut self, position: usize) {
        let load = &mut self.running[position];
        load.stage = Stage::Verifying;
        load.known = load.contents.loaded.max(self.shared.watermark.load());
        let (id, source) = (load.id, self.shared.source.clone());
        let read = async move { (id, Waited::Current(source.current_revision().await)) };
        self.waits.push(Box::pin(read));
    }

    fn pause(&mut self, position: usize) {
        let load = &mut self.running[position];
        load.stage = Stage::Pausing;
        load.drop_waiting();
        let (id, timers) = (load.id, self.shared.timers.clone());
        let due = timers.now().saturating_add(RETRY_AFTER);
        let pause = async move {
            timers.sleep_until(due, "retry").await;
            (id, Waited::Paused)
        };
        self.waits.push(Box::pin(pause));
    }
}
