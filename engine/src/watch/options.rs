//! The options of a watch, and the responses of a stream.

use std::fmt;

use super::events::{Event, Events};
use crate::history::KeyValue;
use crate::key::KeyRange;
use crate::revision::Revision;
use crate::sync::Arc;

/// The id of a watch on its stream: chosen by the client, or assigned by the stream from 0 on.
///
/// -1 is reserved and identifies no watch: etcd uses it for the progress of a whole stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WatchId(pub i64);

/// The id that no watch can have (WA-5).
pub(super) const RESERVED_ID: WatchId = WatchId(-1);

impl fmt::Display for WatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The options of a watch.
///
/// ```
/// # use revstore_engine::{KeyRange, Revision, WatchOptions};
/// let deletions = WatchOptions::of(KeyRange::prefix("job/"))
///     .from(Revision(7))
///     .without_puts()
///     .with_prev_kv();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "four independent switches of etcd's request"
)]
#[non_exhaustive]
pub struct WatchOptions {
    /// The watched keys.
    pub range: KeyRange,
    /// The first revision whose events are delivered; the next one if `None`.
    pub start: Option<Revision>,
    /// Whether to leave out puts. Default: `false`.
    pub no_put: bool,
    /// Whether to leave out deletions. Default: `false`.
    pub no_delete: bool,
    /// Whether to add the previous version of the key to each event, which costs one read per
    /// event. Default: `false`.
    pub prev_kv: bool,
    /// Whether to deliver progress at the
    /// [progress interval](crate::EngineBuilder::progress_interval) while there are no events.
    /// Default: `false`.
    pub progress_notify: bool,
    /// The id on the stream; if `None`, the stream assigns one.
    pub id: Option<WatchId>,
    /// The condition that events must meet; none if `None`.
    pub predicate: Option<EventPredicate>,
}

/// A condition on the events of a watch, see [`WatchOptions::with_predicate`].
///
/// Two predicates are equal if one is a clone of the other.
#[derive(Clone)]
pub struct EventPredicate(Arc<dyn Fn(&Event) -> bool + Send + Sync>);

impl EventPredicate {
    /// Makes a predicate of a closure.
    pub fn new(accepts: impl Fn(&Event) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(accepts))
    }

    /// Returns whether an event meets the condition.
    pub fn accepts(&self, event: &Event) -> bool {
        (self.0)(event)
    }
}

impl fmt::Debug for EventPredicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventPredicate").finish_non_exhaustive()
    }
}

impl PartialEq for EventPredicate {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
impl Eq for EventPredicate {}

impl WatchOptions {
    /// Watches all later changes in `range`.
    pub fn of(range: KeyRange) -> Self {
        Self {
            range,
            start: None,
            no_put: false,
            no_delete: false,
            prev_kv: false,
            progress_notify: false,
            id: None,
            predicate: None,
        }
    }

    /// Starts with the events of `revision`, which may be in the past or in the future.
    #[must_use]
    pub fn from(mut self, revision: Revision) -> Self {
        self.start = Some(revision);
        self
    }

    /// Leaves out puts.
    #[must_use]
    pub fn without_puts(mut self) -> Self {
        self.no_put = true;
        self
    }

    /// Leaves out deletions.
    #[must_use]
    pub fn without_deletes(mut self) -> Self {
        self.no_delete = true;
        self
    }

    /// Adds the previous version of the key to each event.
    #[must_use]
    pub fn with_prev_kv(mut self) -> Self {
        self.prev_kv = true;
        self
    }

    /// Delivers progress at intervals while there are no events.
    #[must_use]
    pub fn with_progress(mut self) -> Self {
        self.progress_notify = true;
        self
    }

    /// Uses this id on the stream.
    #[must_use]
    pub fn with_id(mut self, id: WatchId) -> Self {
        self.id = Some(id);
        self
    }

    /// Delivers only the events for which the closure returns `true`.
    ///
    /// The closure runs on the thread that reads the watch, when it takes the events, and with no
    /// lock held: it delays neither writers nor other watches, and it may use the engine. It gets
    /// the events with their previous versions, if the watch has requested these. Events that it
    /// rejects still take room in the queue of the stream, and count as events for progress at
    /// intervals.
    ///
    /// If the closure panics, the panic reaches the caller that reads the watch. The events that it
    /// was about to take are not lost: the next read calls the closure for them again.
    ///
    /// ```
    /// # use revstore_engine::{Engine, KeyRange, WatchOptions};
    /// let engine = Engine::builder().build();
    /// let failed = WatchOptions::of(KeyRange::prefix("job/"))
    ///     .with_predicate(|event| event.kv.value() == b"failed");
    /// let mut watcher = engine.watch(failed)?;
    /// engine.put("job/1", "done")?;
    /// engine.put("job/2", "failed")?;
    /// assert_eq!(watcher.try_next().unwrap()?.events[0].kv.key(), b"job/2");
    /// assert!(watcher.try_next().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_predicate(
        mut self,
        accepts: impl Fn(&Event) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.predicate = Some(EventPredicate::new(accepts));
        self
    }

    pub(super) fn filter(&self) -> EventFilter {
        EventFilter {
            no_put: self.no_put,
            no_delete: self.no_delete,
        }
    }
}

/// The kinds of events that a watch leaves out (WA-35).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventFilter {
    no_put: bool,
    no_delete: bool,
}

impl EventFilter {
    pub(super) fn passes(self, record: &KeyValue) -> bool {
        if record.is_tombstone() {
            !self.no_delete
        } else {
            !self.no_put
        }
    }
}

/// A watch that was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchCreated {
    /// The id of the watch.
    pub id: WatchId,
    /// The current revision at the time of the registration: a watch without a start revision
    /// delivers the events above it, and only these.
    pub revision: Revision,
}

/// A response of a watch stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchResponse {
    /// Events of one watch, in order. All events of one revision are in one response.
    Events {
        /// The watch.
        id: WatchId,
        /// The revision of the events if the watch was synced; the current revision if they were
        /// read from the log. Events with revisions up to that one may then still follow.
        revision: Revision,
        /// The events; at least one.
        events: Events,
    },
    /// All events up to a revision were delivered.
    Progress {
        /// The watch that requested progress at intervals, or `None` for all watches of the stream.
        id: Option<WatchId>,
        /// The revision.
        revision: Revision,
    },
    /// The watch ended because its next events were compacted. Its id stays in use until it is
    /// cancelled.
    Compacted {
        /// The watch.
        id: WatchId,
        /// The oldest revision that can still be watched.
        compacted: Revision,
    },
}
