//! A single watch, on a separate stream.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;

use super::deadlines::Deadline;
use super::events::Events;
use super::hub::Channel;
use super::options::{WatchOptions, WatchResponse};
use super::stream::WatchStream;
use crate::error::WatchError;
use crate::fault::{Fault, on_fault, unless_fault};
use crate::revision::Revision;
use crate::sync::{self, Arc};

/// Events of one watch that were delivered together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
/// - by a thread that waits: [`next_blocking`](Self::next_blocking), [`iter`](Self::iter) and, for a
///   limited time, [`next_timeout`](Self::next_timeout);
/// - by a thread that does not wait: [`try_next`](Self::try_next);
/// - by a task of any executor: a watcher is a [`Stream`].
///
/// It ends with [`WatchEnd`], or when it is closed: by [`close`](Self::close), or by a
/// [`WatchCloser`] on another thread. After the end all reads return `None`.
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
    /// Whether the end was returned, or the watch was closed.
    ended: bool,
}

/// A handle that closes a [`Watcher`], created by [`Watcher::closer`]. It keeps the watch neither
/// open nor in memory.
#[derive(Clone, Debug)]
pub struct WatchCloser {
    channel: Arc<Channel>,
}

impl WatchCloser {
    /// Ends the watch. Batches that were not taken are dropped, and a reader that waits for one
    /// gets `None`. Does nothing if the watch has ended.
    pub fn close(&self) {
        self.channel.close();
    }
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
        if self.has_ended() {
            return None;
        }
        let response = self.stream.try_next()?;
        Some(self.take(response))
    }

    /// Returns the next batch; blocks the thread until there is one. Returns `None` after the end.
    pub fn next_blocking(&mut self) -> Option<Result<WatchBatch, WatchEnd>> {
        sync::block_on(poll_fn(|context| self.poll_batch(context)))
    }

    /// Returns the next batch; blocks the thread until there is one, but not longer than `limit`.
    /// Returns `None` when the limit has passed, and after the end.
    ///
    /// The limit is a time of the engine's [`Clock`](crate::Clock), as all times of the engine. With
    /// a [`ManualClock`](crate::ManualClock) it passes when another thread advances the clock. With
    /// the clock of the system it passes in real time, later if the thread of the clock is busy,
    /// with an automatic compaction for example.
    ///
    /// A call that has to wait takes a lock that all such calls share, and wakes the thread of the
    /// clock.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use revstore_engine::{Engine, KeyRange, WatchOptions};
    /// let engine = Engine::builder().build();
    /// let mut watcher = engine.watch(WatchOptions::of(KeyRange::all()))?;
    /// assert!(watcher.next_timeout(Duration::from_millis(1)).is_none());
    /// engine.put("key", "value")?;
    /// let batch = watcher.next_timeout(Duration::from_secs(60)).unwrap()?;
    /// assert_eq!(batch.events[0].kv.key(), b"key");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn next_timeout(&mut self, limit: Duration) -> Option<Result<WatchBatch, WatchEnd>> {
        let available = self.try_next();
        if available.is_some() || limit.is_zero() {
            return available;
        }
        sync::block_on(self.next_within(limit))
    }

    /// As [`next_timeout`](Self::next_timeout), for a task of any executor: the future needs no
    /// timer of the executor. The limit begins with this call.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use revstore_engine::{Engine, KeyRange, WatchOptions};
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// # let engine = Engine::builder().build();
    /// let mut watcher = engine.watch(WatchOptions::of(KeyRange::all()))?;
    /// match watcher.next_within(Duration::from_secs(5)).await {
    ///     Some(batch) => println!("{:?}", batch?.events),
    ///     None => println!("no change in five seconds"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn next_within(&mut self, limit: Duration) -> NextWithin<'_> {
        let time = self.stream.store().clock.now().saturating_add(limit);
        NextWithin {
            watcher: self,
            time,
            deadline: None,
        }
    }

    /// Ends the watch. Batches that were not taken are dropped, and all later reads return `None`.
    /// Dropping the watcher does the same.
    pub fn close(&mut self) {
        self.stream.close();
        self.ended = true;
    }

    /// Returns a handle that ends the watch from another thread, also while this one waits for a
    /// batch.
    ///
    /// ```
    /// # use std::thread;
    /// # use revstore_engine::{Engine, KeyRange, WatchOptions};
    /// let engine = Engine::builder().build();
    /// let mut watcher = engine.watch(WatchOptions::of(KeyRange::all()))?;
    /// let closer = watcher.closer();
    /// let reader = thread::spawn(move || watcher.iter().count());
    /// engine.put("key", "value")?;
    /// closer.close();
    /// assert!(reader.join().unwrap() <= 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn closer(&self) -> WatchCloser {
        let channel = self.stream.channel().clone();
        WatchCloser { channel }
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

    /// Returns whether the watcher has returned everything that writes before this call have caused; see
    /// [`WatchStream::is_caught_up`].
    pub fn is_caught_up(&self) -> bool {
        self.stream.is_caught_up()
    }

    fn poll_batch(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<WatchBatch, WatchEnd>>> {
        if self.has_ended() {
            return Poll::Ready(None);
        }
        match self.stream.poll_response(context) {
            Poll::Ready(response) => Poll::Ready(Some(self.take(response))),
            Poll::Pending => {
                // Checked again after the waker was registered: a watch that is closed later wakes
                // the reader.
                let faults = self.stream.store().faults;
                if !faults.has(Fault::CheckClosedFirst) && self.has_ended() {
                    Poll::Ready(None)
                } else {
                    Poll::Pending
                }
            }
        }
    }

    /// Returns whether the watch has ended. Unregisters it if a [`WatchCloser`] has closed it.
    fn has_ended(&mut self) -> bool {
        if !self.ended && self.stream.channel().is_closed() {
            self.close();
        }
        self.ended
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

/// A future that returns the next batch of a watcher within a time, created by
/// [`Watcher::next_within`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct NextWithin<'a> {
    watcher: &'a mut Watcher,
    /// The time at which the future ends.
    time: Duration,
    /// Added when the future has to wait.
    deadline: Option<Deadline>,
}

impl Future for NextWithin<'_> {
    type Output = Option<Result<WatchBatch, WatchEnd>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let next = self.get_mut();
        if let Poll::Ready(batch) = next.watcher.poll_batch(context) {
            return Poll::Ready(batch);
        }
        let store = next.watcher.stream.store();
        let mut has_passed = false;
        let check = |has_passed: &mut bool| *has_passed = store.clock.now() >= next.time;
        on_fault!(store.faults, AddDeadlineLast, check(&mut has_passed));
        let is_added = next.deadline.as_ref();
        if !is_added.is_some_and(|deadline| deadline.wakes(context.waker())) {
            next.deadline = Some(Deadline::add(store, next.time, context.waker()));
        }
        // After the deadline was added: a clock that passes it later wakes the reader.
        unless_fault!(store.faults, AddDeadlineLast, check(&mut has_passed));
        if has_passed {
            Poll::Ready(None)
        } else {
            Poll::Pending
        }
    }
}

impl Stream for Watcher {
    type Item = Result<WatchBatch, WatchEnd>;

    /// Ends after [`WatchEnd`], and when the watch is closed.
    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_batch(context)
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
