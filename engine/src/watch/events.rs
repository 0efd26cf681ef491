//! Events: lists that all watches with the same events share.

use std::any::TypeId;
use std::fmt;
use std::ops::Deref;

use bytes::Bytes;

use crate::history::KeyValue;
use crate::sync::{Arc, OnceLock};

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Event {
    /// The new version of the key; a tombstone if the key was deleted.
    pub kv: KeyValue,
    /// The version before the transaction. `None` if it was not requested, if there was none, or if
    /// it is compacted.
    pub prev_kv: Option<KeyValue>,
}

/// The events that are delivered together, in order: a slice that watches share.
///
/// Watches with the same events hold the same list. A clone increments a reference count, and an
/// [encoding](Events::encoded) of the list is made once for all of them.
///
/// ```
/// # use revstore_engine::{Engine, KeyRange, WatchOptions};
/// let engine = Engine::builder().build();
/// let mut first = engine.watch(WatchOptions::of(KeyRange::all()))?;
/// let mut second = engine.watch(WatchOptions::of(KeyRange::all()))?;
/// engine.put("a", "1")?;
/// let events = first.try_next().unwrap()?.events;
/// assert_eq!(events[0].kv.value(), b"1");
/// /// Names the encoding.
/// struct Count;
/// let encoded = events.encoded::<Count>(|events| format!("{} event", events.len()).into());
/// assert_eq!(encoded.unwrap(), "1 event");
/// // The second watch has the same list, which is encoded already.
/// let events = second.try_next().unwrap()?.events;
/// assert_eq!(events.encoded::<Count>(|_| unreachable!()).unwrap(), "1 event");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Events(Arc<EventList>);

struct EventList {
    events: Vec<Event>,
    size_bytes: u64,
    /// The first encoding, with the type that names it.
    encoded: OnceLock<(TypeId, Bytes)>,
    with_previous: OnceLock<Events>,
}

impl Events {
    pub(super) fn new(events: Vec<Event>) -> Self {
        let bytes = |kv: &KeyValue| (kv.key().len() + kv.value().len()) as u64;
        let size_bytes = events
            .iter()
            .map(|event| bytes(&event.kv) + event.prev_kv.as_ref().map_or(0, bytes))
            .sum();
        Self(Arc::new(EventList {
            events,
            size_bytes,
            encoded: OnceLock::new(),
            with_previous: OnceLock::new(),
        }))
    }

    /// Creates events without previous versions.
    pub(super) fn of(records: impl IntoIterator<Item = KeyValue>) -> Self {
        let event = |kv| Event { kv, prev_kv: None };
        Self::new(records.into_iter().map(event).collect())
    }

    /// Returns the bytes of all keys and values.
    pub fn size_bytes(&self) -> u64 {
        self.0.size_bytes
    }

    /// Returns the encoding of the list that the type `E` names: the result of `encode`, or of an
    /// earlier call with `E` for the same list.
    ///
    /// Returns `None` if the list has another encoding, because a list keeps only its first one, or
    /// if the list is not encoded and has no other handle, which could use the encoding. The caller
    /// then encodes the events for itself.
    ///
    /// The encoding is kept as long as the list. If several threads call this at the same time,
    /// each may call `encode`, and one of the results is kept.
    pub fn encoded<E: 'static>(&self, encode: impl FnOnce(&[Event]) -> Bytes) -> Option<&Bytes> {
        let is_shared = Arc::strong_count(&self.0) > 1;
        let encoding = TypeId::of::<E>();
        let kept = match self.0.encoded.get() {
            None if is_shared => get_or_set(&self.0.encoded, || (encoding, encode(self))),
            kept => kept?,
        };
        (kept.0 == encoding).then_some(&kept.1)
    }

    /// Returns the events that `accepts` returns `true` for: the same list if all are.
    pub(super) fn accepted(&self, accepts: impl Fn(&Event) -> bool) -> Self {
        // Each event is examined once, in order.
        let mut accepted = Vec::with_capacity(self.len());
        for (index, event) in self.iter().enumerate() {
            if accepts(event) {
                accepted.push(index);
            }
        }
        if accepted.len() == self.len() {
            return self.clone();
        }
        Self::new(accepted.iter().map(|index| self[*index].clone()).collect())
    }

    /// Returns the same events with previous versions, which are looked up once for all watches
    /// that share the list.
    pub(super) fn with_previous(
        &self,
        mut previous: impl FnMut(&KeyValue) -> Option<KeyValue>,
    ) -> Self {
        let with_previous = get_or_set(&self.0.with_previous, || {
            let event = |event: &Event| Event {
                kv: event.kv.clone(),
                prev_kv: previous(&event.kv),
            };
            Self::new(self.iter().map(event).collect())
        });
        with_previous.clone()
    }
}

/// As [`OnceLock::get_or_init`], but a thread does not wait for another one's `make`, which may
/// take locks.
fn get_or_set<T>(cell: &OnceLock<T>, make: impl FnOnce() -> T) -> &T {
    if let Some(value) = cell.get() {
        return value;
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
