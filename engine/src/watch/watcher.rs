//! A single watch, on a separate stream.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use super::events::Events;
use super::options::{WatchOptions, WatchResponse};
use super::stream::WatchStream;
use crate::error::WatchError;
use crate::revision::Revision;

/// Events of one watch that were delivered together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchBatch {
    /// As in [`WatchResponse::Events`].
    pub revision: Revision,
    /// The events. If there are none, the batch is a progress notification: all events up to
    /// `revision` were delivered.
    pub events: Events,
}

/// The reason for which a watcher delivers no more events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchEnd {
    /// The next events of the watch were compacted. Events between the last delivered one and the
    /// compacted revision are lost; the caller must read the current state, and watch from the
    /// revision after it.
    #[error("the history is compacted up to revision {compacted}")]
    Compacted {
        /// The oldest revision that can still be read and watched.
        compacted: Revision,
    },
}

/// A single watch, on a separate stream.
///
/// A watcher can be read in three ways:
///
/// - by a thread that waits: [`next_blocking`](Self::next_blocking) and [`iter`](Self::iter);
/// - by a thread that does not wait: [`try_next`](Self::try_next);
/// - by a task of any executor: a watcher is a [`Stream`].
///
/// Guarantees and costs are those of [`WatchStream`].
///
/// ```
/// # use revstore_engine::{Engine, KeyRange, Revision, WatchOptions};
/// let engine = Engine::builder().build();
/// engine.put("a", "1")?;
/// let mut watcher = engine.watch(WatchOptions::of(KeyRange::all()).from(Revision(2)))?;
/// engine.put("b", "2")?;
/// let mut keys = Vec::new();
/// while let Some(batch) = watcher.try_next() {
///     keys.extend(batch?.events.into_iter().map(|event| event.kv.key().to_vec()));
/// }
/// assert_eq!(keys, [b"a", b"b"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Watcher {
    stream: WatchStream,
    /// Whether the end was returned.
    ended: bool,
}

impl Watcher {
    pub(crate) fn new(mut stream: WatchStream, options: WatchOptions) -> Result<Self, WatchError> {
        stream.watch(options)?;
        Ok(Self {
            stream,
            ended: false,
        })
    }

    /// Returns the next batch if it is available now. After a write has returned, its events are
    /// available.
    pub fn try_next(&mut self) -> Option<Result<WatchBatch, WatchEnd>> {
        let response = self.stream.try_next()?;
        Some(self.take(response))
    }

    /// Returns the next batch; blocks the thread until there is one. Returns `None` after the end.
    pub fn next_blocking(&mut self) -> Option<Result<WatchBatch, WatchEnd>> {
        if self.ended {
            return None;
        }
        let response = self.stream.next_blocking();
        Some(self.take(response))
    }

    /// Returns an iterator over the batches, as [`next_blocking`](Self::next_blocking) returns
    /// them: it blocks the thread until there is a batch, and stops after the end.
    ///
    /// ```
    /// # use revstore_engine::{Engine, KeyRange, WatchOptions};
    /// let engine = Engine::builder().build();
    /// let mut watcher = engine.watch(WatchOptions::of(KeyRange::all()))?;
    /// for value in ["1", "2", "3"] {
    ///     engine.put("key", value)?;
    /// }
    /// for batch in watcher.iter().take(2) {
    ///     println!("{:?}", batch?.events);
    /// }
    /// // The same in short:
    /// for batch in &mut watcher {
    ///     assert_eq!(batch?.events[0].kv.value(), b"3");
    ///     break;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn iter(&mut self) -> WatcherIter<'_> {
        WatcherIter { watcher: self }
    }

    /// Requests a progress notification; see [`WatchStream::request_progress`].
    pub fn request_progress(&mut self) {
        self.stream.request_progress();
    }

    fn take(&mut self, response: WatchResponse) -> Result<WatchBatch, WatchEnd> {
        match response {
            WatchResponse::Events {
                revision, events, ..
            } => Ok(WatchBatch { revision, events }),
            WatchResponse::Progress { revision, .. } => Ok(WatchBatch {
                revision,
                events: Events::default(),
            }),
            WatchResponse::Compacted { compacted, .. } => {
                self.ended = true;
                Err(WatchEnd::Compacted { compacted })
            }
        }
    }
}

impl Stream for Watcher {
    type Item = Result<WatchBatch, WatchEnd>;

    /// Ends after [`WatchEnd`].
    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let watcher = self.get_mut();
        if watcher.ended {
            return Poll::Ready(None);
        }
        watcher
            .stream
            .poll_response(context)
            .map(|response| Some(watcher.take(response)))
    }
}

/// A blocking iterator over the batches of a watcher, created by [`Watcher::iter`].
#[derive(Debug)]
pub struct WatcherIter<'a> {
    watcher: &'a mut Watcher,
}

impl Iterator for WatcherIter<'_> {
    type Item = Result<WatchBatch, WatchEnd>;

    fn next(&mut self) -> Option<Self::Item> {
        self.watcher.next_blocking()
    }
}

#[expect(
    clippy::into_iter_without_iter,
    reason = "`iter` takes `&mut self`, because reading changes the watcher"
)]
impl<'a> IntoIterator for &'a mut Watcher {
    type Item = Result<WatchBatch, WatchEnd>;
    type IntoIter = WatcherIter<'a>;

    /// As [`Watcher::iter`].
    fn into_iter(self) -> WatcherIter<'a> {
        self.iter()
    }
}
