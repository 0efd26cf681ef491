//! Events that were made once and are told to many.

use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;

use bytes::Bytes;

use crate::history::KeyValue;
use crate::sync::Arc;

/// Something that happened to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The new version; a tombstone if the key was deleted (DM-5).
    pub kv: KeyValue,
    /// The version before the transaction, if asked for, if there was one, and if it is not
    /// compacted (WA-33).
    pub prev_kv: Option<KeyValue>,
}

/// Events that belong together, in the order in which they happened: a slice that watches share.
///
/// A thousand watches that are told the same hold one list, so a clone costs an atomic increment,
/// and what one of them makes of it, all can [use](Events::rendered).
///
/// ```
/// # use revstore_engine::{Engine, KeyRange, WatchOptions};
/// let engine = Engine::builder().build();
/// let mut first = engine.watch(WatchOptions::of(KeyRange::all()))?;
/// let mut second = engine.watch(WatchOptions::of(KeyRange::all()))?;
/// engine.put("a", "1")?;
/// let told = first.try_next().unwrap()?.events;
/// assert_eq!(told[0].kv.value(), b"1");
/// let rendered = told.rendered(|events| format!("{} event", events.len()).into());
/// assert_eq!(rendered.unwrap(), "1 event");
/// // The second watch is told the same, and finds it rendered.
/// let told = second.try_next().unwrap()?.events;
/// assert_eq!(told.rendered(|_| unreachable!()).unwrap(), "1 event");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Events(Arc<Inner>);

struct Inner {
    events: Vec<Event>,
    size_bytes: u64,
    rendered: OnceLock<Bytes>,
    with_previous: OnceLock<Events>,
}

impl Events {
    pub(super) fn new(events: Vec<Event>) -> Self {
        let bytes = |kv: &KeyValue| (kv.key().len() + kv.value().len()) as u64;
        let size_bytes = events
            .iter()
            .map(|event| bytes(&event.kv) + event.prev_kv.as_ref().map_or(0, bytes))
            .sum();
        Self(Arc::new(Inner {
            events,
            size_bytes,
            rendered: OnceLock::new(),
            with_previous: OnceLock::new(),
        }))
    }

    /// Events without the versions before them.
    pub(super) fn of(records: impl IntoIterator<Item = KeyValue>) -> Self {
        let event = |kv| Event { kv, prev_kv: None };
        Self::new(records.into_iter().map(event).collect())
    }

    /// Bytes of all keys and values.
    pub fn size_bytes(&self) -> u64 {
        self.0.size_bytes
    }

    /// What `render` makes of the events, or what another call made of them before: all who are told
    /// the same events are to render alike. Nothing if nobody else holds the list and has rendered
    /// it or could use that.
    ///
    /// It is kept as long as somebody holds the list. Calls at the same time may both render; one of
    /// the results is kept.
    pub fn rendered(&self, render: impl FnOnce(&[Event]) -> Bytes) -> Option<&Bytes> {
        let is_shared = Arc::strong_count(&self.0) > 1;
        match self.0.rendered.get() {
            None if is_shared => Some(once(&self.0.rendered, || render(self))),
            rendered => rendered,
        }
    }

    /// The same events with the versions before them, looked up once for all who want them.
    pub(super) fn with_previous(
        &self,
        mut previous: impl FnMut(&KeyValue) -> Option<KeyValue>,
    ) -> Self {
        let with_previous = once(&self.0.with_previous, || {
            let event = |event: &Event| Event {
                kv: event.kv.clone(),
                prev_kv: previous(&event.kv),
            };
            Self::new(self.iter().map(event).collect())
        });
        with_previous.clone()
    }
}

/// As `get_or_init`, but nobody waits for another who is at it: the work takes locks.
fn once<T>(cell: &OnceLock<T>, make: impl FnOnce() -> T) -> &T {
    if let Some(known) = cell.get() {
        return known;
    }
    let value = make();
    cell.get_or_init(|| value)
}

impl Deref for Events {
    type Target = [Event];

    fn deref(&self) -> &[Event] {
        &self.0.events
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl PartialEq for Events {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Events {}

impl From<Vec<Event>> for Events {
    fn from(events: Vec<Event>) -> Self {
        Self::new(events)
    }
}

/// No events.
impl Default for Events {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl<'a> IntoIterator for &'a Events {
    type Item = &'a Event;
    type IntoIter = std::slice::Iter<'a, Event>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
