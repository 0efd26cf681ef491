//! Watch events, as they are delivered to one watcher.

use std::sync::Arc;

use revstore_engine::Revision;

use crate::api::status::RequestError;
use crate::cache::window::WindowEvent;
use crate::encode::object::{Object, StoredObject};
use crate::selector::ObjectFilter;

/// The type of an event about an object, relative to the selector of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// The object was created, started to match the selector, or is an initial object of the watch.
    Added,
    /// The object changed and still matches the selector.
    Modified,
    /// The object was deleted, or no longer matches the selector.
    Deleted,
}

impl EventType {
    /// Returns `ADDED`, `MODIFIED` or `DELETED`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }

    /// Returns the type of a change, by whether the object matched the selector before the change and
    /// whether it matches after it. An absent object does not match.
    ///
    /// ```
    /// use revstore_watch_cache::EventType;
    /// assert_eq!(EventType::of(true, false), Some(EventType::Deleted));
    /// assert_eq!(EventType::of(false, false), None);
    /// ```
    // WC-350.
    pub fn of(before: bool, after: bool) -> Option<Self> {
        match (before, after) {
            (false, false) => None,
            (false, true) => Some(Self::Added),
            (true, true) => Some(Self::Modified),
            (true, false) => Some(Self::Deleted),
        }
    }
}

/// An event of a watch.
#[derive(Clone, Debug)]
pub enum WatchEvent {
    /// A change of an object, or an initial object.
    Object {
        /// The type of the change.
        event: EventType,
        /// The new version of the object. For `Deleted`, the last version that matched, with the
        /// revision of the deletion.
        // WC-351.
        object: Object,
        /// The encodings, shared with other watchers.
        shared: SharedEncoding,
    },
    /// All matching events up to a revision were delivered on this watch.
    Bookmark {
        /// The revision.
        revision: Revision,
        /// Whether this bookmark follows the last initial object; `true` at most once per watch.
        initial_events_end: bool,
    },
    /// The watch has failed; this is its last event.
    Error(RequestError),
}

/// A handle on the encodings of an event, of which there is one for each form, for all watchers.
/// Corresponds to Kubernetes' `cachingObject`.
// WC-142.
#[derive(Clone, Debug, Default)]
pub struct SharedEncoding(pub(crate) Shared);

/// Where the encodings of an event are.
#[derive(Clone, Debug, Default)]
pub(crate) enum Shared {
    /// There are none.
    #[default]
    Not,
    /// With an event of the window.
    Window(Arc<WindowEvent>),
    /// With other encodings of objects, because the event is an initial one.
    Initial,
}

impl WatchEvent {
    /// Returns an event without a shared encoding, for sources of watches outside of this crate.
    pub fn unshared(event: EventType, object: Object) -> Self {
        Self::Object {
            event,
            object,
            shared: SharedEncoding::default(),
        }
    }

    /// Returns the event of an initial object that comes from the cache.
    pub(crate) fn initial(object: Object) -> Self {
        Self::Object {
            event: EventType::Added,
            object,
            shared: SharedEncoding(Shared::Initial),
        }
    }

    /// Returns `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Object { event, .. } => event.as_str(),
            Self::Bookmark { .. } => "BOOKMARK",
            Self::Error(_) => "ERROR",
        }
    }

    /// Returns the revision of the event, or `None` for an error.
    pub fn revision(&self) -> Option<Revision> {
        match self {
            Self::Object { object, .. } => Some(object.revision()),
            Self::Bookmark { revision, .. } => Some(*revision),
            Self::Error(_) => None,
        }
    }

    /// Returns the object, or `None` for a bookmark or an error.
    pub fn object(&self) -> Option<&Object> {
        match self {
            Self::Object { object, .. } => Some(object),
            Self::Bookmark { .. } | Self::Error(_) => None,
        }
    }
}

/// Returns the type of a change for one filter (docs/watch-cache.md, D.6), and the object to deliver.
/// Returns `None` if the filter matches neither version.
pub(crate) fn visible_event(
    filter: &ObjectFilter,
    revision: Revision,
    old: Option<&Arc<StoredObject>>,
    new: Option<&Arc<StoredObject>>,
) -> Result<Option<(EventType, Object)>, RequestError> {
    let matches = |object: Option<&Arc<StoredObject>>| match object {
        Some(object) => filter.decide(object).map_err(|corrupt| {
            if new.is_none() {
                RequestError::CorruptDeleted(Box::new(corrupt))
            } else {
                RequestError::Corrupt(Box::new(corrupt))
            }
        }),
        None => Ok(false),
    };
    let Some(event) = EventType::of(matches(old)?, matches(new)?) else {
        return Ok(None);
    };
    let shown = if event == EventType::Deleted {
        old
    } else {
        new
    };
    let shown = shown.cloned();
    Ok(shown.map(|object| (event, Object::shown_at(object, revision))))
}
