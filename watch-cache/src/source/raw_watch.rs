//! A watch of the raw store: a watch of the source, filtered by a selector.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_core::future::BoxFuture;
use revstore_engine::Revision;

use crate::api::event::{EventType, WatchEvent, visible_event};
use crate::api::list::ListItems;
use crate::api::status::{Expired, RequestError};
use crate::api::target::Target;
use crate::encode::object::ObjectDecoder;
use crate::source::raw_store::internal;
use crate::source::{Batch, BatchStream, Change, SourceError, StoredKeyValue};

/// Returns the error of a watch whose source failed.
pub(crate) fn watch_failed(error: SourceError) -> RequestError {
    match error {
        SourceError::Compacted => RequestError::Expired(Expired::Watch),
        SourceError::Replaced { known, found } => {
            RequestError::Expired(Expired::Replaced { known, found })
        }
        other => internal(&other),
    }
}

/// The maximum number of batches without a matching event that one poll examines before it yields to
/// other tasks.
const POLL_BATCHES_MAX: usize = 64;

/// A watch of the raw store.
pub(crate) struct RawWatch {
    pub(crate) decoder: ObjectDecoder,
    pub(crate) target: Target,
    pub(crate) initial: Option<ListItems>,
    pub(crate) batches: Option<BatchStream>,
    /// The matching events of the last batch that are not delivered yet.
    pub(crate) ready: VecDeque<WatchEvent>,
    pub(crate) bookmarks: bool,
    pub(crate) timeout: Option<BoxFuture<'static, ()>>,
    pub(crate) ended: bool,
    pub(crate) after: Revision,
}

impl fmt::Debug for RawWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawWatch").finish_non_exhaustive()
    }
}

impl RawWatch {
    /// Filters the changes of a batch.
    fn filter_batch(&mut self, batch: Batch) {
        let is_progress = batch.changes.is_empty();
        for change in batch.changes {
            match self.event_of(change) {
                Ok(event) => self.ready.extend(event),
                Err(error) => {
                    self.ready.push_back(WatchEvent::Error(error));
                    return;
                }
            }
        }
        // WC-322: no bookmark has the version of the start.
        if is_progress && self.bookmarks && batch.through > self.after {
            self.ready.push_back(WatchEvent::Bookmark {
                revision: batch.through,
                initial_events_end: false,
            });
        }
    }

    /// Returns the event of a change, or `None` if the filter matches neither version.
    ///
    /// Fails with [`Expired::Watch`] if the previous version is compacted: without it, an update that
    /// leaves the selector would be lost, and one that stays in it would be an `ADDED` event.
    fn event_of(&self, mut change: Change) -> Result<Option<WatchEvent>, RequestError> {
        if change.new.as_ref().is_some_and(StoredKeyValue::is_created) {
            // A deletion in the same revision may precede the creation. It has its own event.
            change.previous = None;
        } else if change.previous.is_none() {
            return Err(RequestError::Expired(Expired::Watch));
        }
        let old = change.previous.map(|stored| self.decoder.decode(stored));
        let new = change.new.map(|stored| self.decoder.decode(stored));
        let visible = visible_event(
            &self.target.filter,
            change.revision,
            old.as_ref(),
            new.as_ref(),
        )?;
        Ok(visible.map(|(event, object)| WatchEvent::unshared(event, object)))
    }

    fn next_initial(&mut self) -> Option<WatchEvent> {
        let items = self.initial.as_mut()?;
        if let Some(item) = items.next() {
            return Some(match item {
                Ok(object) => WatchEvent::unshared(EventType::Added, object),
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
        let mut examined = 0;
        loop {
            if self.ended {
                return Poll::Ready(None);
            }
            let next = match self.next_initial() {
                Some(event) => Some(event),
                None => self.ready.pop_front(),
            };
            if let Some(event) = next {
                // WC-335: an error is the last event.
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
            if examined == POLL_BATCHES_MAX {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            examined += 1;
            match batches.as_mut().poll_next(context) {
                Poll::Ready(Some(Ok(batch))) => self.filter_batch(batch),
                Poll::Ready(Some(Err(error))) => {
                    self.ready.push_back(WatchEvent::Error(watch_failed(error)));
                }
                Poll::Ready(None) => self.ended = true,
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
