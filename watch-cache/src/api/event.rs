//! Watch events as one watcher sees them.

use std::sync::Arc;

use revstore_engine::Revision;

use crate::api::list::readable;
use crate::api::status::RequestError;
use crate::cache::window::LogEvent;
use crate::encode::object::{Entry, Object};
use crate::selector::Filter;

/// What happened to an object, as one watcher sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EventType {
    /// It was created, or came into the selector, or is there at the start.
    Added = 0,
    /// It changed.
    Modified = 1,
    /// It was deleted, or left the selector.
    Deleted = 2,
}

impl EventType {
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }

    /// WC-350: what a change is to a selector that the object passed before or not, and passes
    /// after or not; it does not pass where it does not exist.
    ///
    /// ```
    /// use revstore_watch_cache::EventType;
    /// assert_eq!(EventType::of(true, false), Some(EventType::Deleted));
    /// assert_eq!(EventType::of(false, false), None);
    /// ```
    pub fn of(before: bool, after: bool) -> Option<Self> {
        match (before, after) {
            (false, false) => None,
            (false, true) => Some(Self::Added),
            (true, true) => Some(Self::Modified),
            (true, false) => Some(Self::Deleted),
        }
    }
}

/// What a watch tells.
#[derive(Clone, Debug)]
pub enum WatchEvent {
    /// Something happened to an object.
    Object {
        /// What.
        event: EventType,
        /// The object: as it is now, or as it was last with the revision of its deletion (WC-351).
        object: Object,
        /// What is shared with other watchers.
        shared: SharedEvent,
    },
    /// Everything up to a revision was sent on this watch (WC-321).
    Bookmark {
        /// How far.
        revision: Revision,
        /// Whether the initial objects end here (WC-325); once per watch.
        initial_events_end: bool,
    },
    /// The watch is over; nothing follows (WC-335).
    Error(RequestError),
}

/// The encoded form of an event, made once for all its watchers (WC-142). Objects at the start of a
/// watch share none.
#[derive(Clone, Debug, Default)]
pub struct SharedEvent(pub(crate) Option<Arc<LogEvent>>);

impl WatchEvent {
    pub(crate) fn own(event: EventType, object: Object) -> Self {
        Self::Object {
            event,
            object,
            shared: SharedEvent(None),
        }
    }

    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Object { event, .. } => event.as_str(),
            Self::Bookmark { .. } => "BOOKMARK",
            Self::Error(_) => "ERROR",
        }
    }

    /// The resource version that the event carries; none for an error.
    pub fn revision(&self) -> Option<Revision> {
        match self {
            Self::Object { object, .. } => Some(object.revision()),
            Self::Bookmark { revision, .. } => Some(*revision),
            Self::Error(_) => None,
        }
    }

    /// The object, if the event is about one.
    pub fn object(&self) -> Option<&Object> {
        match self {
            Self::Object { object, .. } => Some(object),
            Self::Bookmark { .. } | Self::Error(_) => None,
        }
    }
}

/// What a change is to one filter (D.6), and the object to send.
pub(crate) fn seen_through(
    filter: &Filter,
    revision: Revision,
    old: Option<&Arc<Entry>>,
    new: Option<&Arc<Entry>>,
) -> Result<Option<(EventType, Object)>, RequestError> {
    for entry in [old, new].into_iter().flatten() {
        if filter.span.contains(entry.key()) {
            // T-34: what cannot be read cannot be decided about.
            readable(entry.clone())?;
        }
    }
    let passes = |entry: Option<&Arc<Entry>>| entry.is_some_and(|entry| filter.passes(entry));
    let Some(event) = EventType::of(passes(old), passes(new)) else {
        return Ok(None);
    };
    let shown = if event == EventType::Deleted {
        old
    } else {
        new
    };
    let shown = shown.cloned();
    Ok(shown.map(|entry| (event, Object::shown_at(entry, revision))))
}
