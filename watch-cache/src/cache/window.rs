//! The window: the recent events of a resource in revision order, shared by all its watchers (WC-110,
//! WC-140). Corresponds to the cyclic buffer of Kubernetes' `watchCache`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use revstore_engine::Revision;

use crate::encode::object::StoredObject;
use crate::encode::sharing::Encodings;

/// The limits of the window, which contains the recent events of a resource for its watchers.
///
/// The oldest events are evicted when one of the limits is exceeded, always with all events of their
/// revision. A full window never delays writes. A watcher that needs an evicted event ends with
/// [`Expired::Window`](crate::api::Expired::Window).
///
/// ```
/// use std::time::Duration;
/// use revstore_watch_cache::{JsonKind, ResourceConfig};
/// use revstore_watch_cache::cache::WindowLimits;
///
/// // A resource with many short-lived objects: a shorter and smaller window.
/// let limits = WindowLimits::default().age(Duration::from_secs(75)).bytes_max(16 << 20);
/// let kind = JsonKind::new("v1", "Event");
/// let events = ResourceConfig::namespaced(kind, "events", "/registry/events").window(limits);
/// # let _ = events;
/// ```
// WC-110, WC-111.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WindowLimits {
    /// The time for which an event is kept. Values below [`WindowLimits::AGE_MIN`] are raised to it.
    pub age: Duration,
    /// The maximum size in bytes: keys, values and encoded events.
    pub bytes_max: usize,
    /// The maximum number of events.
    pub events_max: usize,
}

impl WindowLimits {
    /// The minimum of [`WindowLimits::age`]: longer than the default period of bookmarks, so that a
    /// client can resume from the last bookmark it received.
    pub const AGE_MIN: Duration = Duration::from_secs(75);

    /// Sets the time for which an event is kept.
    #[must_use]
    pub fn age(mut self, age: Duration) -> Self {
        self.age = age;
        self
    }

    /// Sets the maximum size in bytes.
    #[must_use]
    pub fn bytes_max(mut self, bytes: usize) -> Self {
        self.bytes_max = bytes;
        self
    }

    /// Sets the maximum number of events.
    #[must_use]
    pub fn events_max(mut self, events: usize) -> Self {
        self.events_max = events;
        self
    }
}

impl Default for WindowLimits {
    /// 5 minutes, 256 MiB, 1,048,576 events.
    fn default() -> Self {
        Self {
            age: Duration::from_secs(300),
            bytes_max: 256 << 20,
            events_max: 1 << 20,
        }
    }
}

/// The memory of an event in bytes, without the two versions of the object.
const EVENT_OVERHEAD_BYTES: usize = size_of::<WindowEvent>() + 2 * size_of::<usize>();

/// A change of one object in the window. Immutable, except that encodings are added when
/// watchers need them. Corresponds to Kubernetes' `watchCacheEvent`.
#[derive(Debug)]
pub(crate) struct WindowEvent {
    pub(crate) revision: Revision,
    /// The time at which the event arrived from the source.
    pub(crate) arrived_at: Duration,
    /// The microseconds between the arrival and the application to the cache.
    applied_after_us: u32,
    pub(crate) new: Option<Arc<StoredObject>>,
    pub(crate) old: Option<Arc<StoredObject>>,
    pub(crate) encodings: Encodings,
}

impl WindowEvent {
    pub(crate) fn new(
        revision: Revision,
        arrived_at: Duration,
        new: Option<Arc<StoredObject>>,
        old: Option<Arc<StoredObject>>,
    ) -> Self {
        Self {
            revision,
            arrived_at,
            applied_after_us: 0,
            new,
            old,
            encodings: Encodings::default(),
        }
    }

    /// Records the time at which the event was applied to the cache.
    pub(crate) fn applied(mut self, now: Duration) -> Self {
        let micros = now.saturating_sub(self.arrived_at).as_micros();
        self.applied_after_us = u32::try_from(micros).unwrap_or(u32::MAX);
        self
    }

    /// Returns the time at which the event was applied to the cache.
    pub(crate) fn applied_at(&self) -> Duration {
        self.arrived_at + Duration::from_micros(self.applied_after_us.into())
    }

    /// Returns the memory that is accounted to the event: that of the new version of the object, or
    /// of the old one if the event is a deletion. The old version of an update is accounted to the
    /// event that wrote it.
    fn size_bytes(&self) -> usize {
        let version = self.new.as_ref().or(self.old.as_ref());
        EVENT_OVERHEAD_BYTES + version.map_or(0, |object| object.size_bytes())
    }
}

/// The minimum capacity of the window in events. Kubernetes' cyclic buffer has the same minimum.
const CAPACITY_MIN: usize = 100;

/// The recent events of a resource, oldest first, numbered without gaps.
#[derive(Debug)]
pub(crate) struct Window {
    limits: WindowLimits,
    events: VecDeque<Arc<WindowEvent>>,
    /// The number of the oldest event.
    first: u64,
    bytes: usize,
    /// The memory of the encoded events in bytes. Shared, because watchers add to it without the
    /// lock that guards the window. May be negative for a moment, when an event is encoded and
    /// evicted at the same time.
    encoded_bytes: Arc<AtomicI64>,
    /// The oldest revision after which a watcher may start (WC-114).
    oldest_start: Revision,
}

impl Window {
    pub(crate) fn new(limits: WindowLimits, loaded: Revision) -> Self {
        let age = limits.age.max(WindowLimits::AGE_MIN);
        Self {
            limits: WindowLimits { age, ..limits },
            events: VecDeque::new(),
            first: 0,
            bytes: 0,
            encoded_bytes: Arc::default(),
            oldest_start: loaded,
        }
    }

    /// Sets the revision after which the events of an empty window begin.
    pub(crate) fn start_after(&mut self, loaded: Revision) {
        debug_assert!(self.events.is_empty(), "the window has no events");
        self.oldest_start = loaded;
    }

    /// Replaces the events with those of `loaded`, of which no event is encoded, and returns the
    /// previous ones. The numbering continues, so that no number is used for two events.
    pub(crate) fn replace_with(&mut self, loaded: Self) -> VecDeque<Arc<WindowEvent>> {
        self.first = self.end();
        self.bytes = loaded.bytes;
        self.oldest_start = loaded.oldest_start;
        let previous = std::mem::replace(&mut self.events, loaded.events);
        for event in &previous {
            event.encodings.mark_evicted(&self.encoded_bytes);
        }
        previous
    }

    /// Removes all events, and returns them. The numbering continues.
    pub(crate) fn clear(&mut self) -> VecDeque<Arc<WindowEvent>> {
        self.first = self.end();
        self.bytes = 0;
        let events = std::mem::take(&mut self.events);
        for event in &events {
            event.encodings.mark_evicted(&self.encoded_bytes);
        }
        events
    }

    /// Returns the number of the next event to be appended.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    /// Returns the number of events that the window can contain without a reallocation.
    pub(crate) fn capacity(&self) -> usize {
        self.events.capacity()
    }

    pub(crate) fn bytes(&self) -> usize {
        // Relaxed: an estimate, because watchers encode events meanwhile.
        let encoded = self.encoded_bytes.load(Ordering::Relaxed);
        self.bytes + usize::try_from(encoded).unwrap_or_default()
    }

    /// Returns the counter of the memory of the encoded events.
    pub(crate) fn encoded_bytes(&self) -> &Arc<AtomicI64> {
        &self.encoded_bytes
    }

    /// Returns the oldest revision after which a watcher may start (WC-313).
    pub(crate) fn oldest_start(&self) -> Revision {
        self.oldest_start
    }

    /// Returns the time at which the oldest event arrived.
    pub(crate) fn oldest_time(&self) -> Option<Duration> {
        self.events.front().map(|event| event.arrived_at)
    }

    /// Appends an event with the number [`Window::end`], and returns both.
    pub(crate) fn append(&mut self, event: WindowEvent) -> (u64, &WindowEvent) {
        let number = self.end();
        self.bytes += event.size_bytes();
        self.events.push_back(Arc::new(event));
        (number, &self.events[self.events.len() - 1])
    }

    /// Evicts the oldest revisions until the limits hold, and returns their events. The caller frees
    /// them after it has released its locks. The newest revision is never evicted.
    pub(crate) fn evict(&mut self, now: Duration) -> Vec<Arc<WindowEvent>> {
        let mut evicted = Vec::new();
        let newest = self.events.back().map(|event| event.revision);
        while let Some(oldest) = self.events.front() {
            let exceeded = oldest.arrived_at.saturating_add(self.limits.age) < now
                || self.bytes() > self.limits.bytes_max
                || self.events.len() > self.limits.events_max;
            let revision = oldest.revision;
            if !exceeded || Some(revision) == newest {
                break;
            }
            // WC-343: all events of a revision are evicted together.
            while self
                .events
                .front()
                .is_some_and(|event| event.revision == revision)
            {
                evicted.extend(self.events.pop_front().inspect(|event| {
                    self.first += 1;
                    self.bytes -= event.size_bytes();
                    event.encodings.mark_evicted(&self.encoded_bytes);
                }));
            }
            self.oldest_start = revision;
        }
        // Frees memory after a burst of events.
        let capacity = self.events.capacity();
        if capacity > CAPACITY_MIN && self.events.len() < capacity / 4 {
            self.events.shrink_to((capacity / 2).max(CAPACITY_MIN));
        }
        evicted
    }

    /// Returns the number of the first event after `revision`, in O(log n).
    pub(crate) fn after(&self, revision: Revision) -> u64 {
        self.first
            + self
                .events
                .partition_point(|event| event.revision <= revision) as u64
    }

    /// Returns the events from number `from` on: at most `count` events, rounded up to whole
    /// revisions.
    pub(crate) fn copy(&self, from: u64, count: usize) -> Vec<Arc<WindowEvent>> {
        let start = usize::try_from(from.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let start = start.min(self.events.len());
        let mut end = (start + count).min(self.events.len());
        // WC-343: a revision is never split.
        while end > start
            && end < self.events.len()
            && self.events[end].revision == self.events[end - 1].revision
        {
            end += 1;
        }
        self.events.range(start..end).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(limits: WindowLimits, revisions: &[(i64, u64)]) -> Window {
        let mut window = Window::new(limits, Revision(1));
        for (revision, second) in revisions {
            let arrived = Duration::from_secs(*second);
            let event = WindowEvent::new(Revision(*revision), arrived, None, None);
            window.append(event);
        }
        window
    }

    #[test]
    fn t_42_whole_revisions_are_evicted_beyond_the_limits_only() {
        let limits = WindowLimits {
            events_max: 3,
            ..WindowLimits::default()
        };
        let mut window = window(limits, &[(2, 0), (3, 0), (3, 0), (4, 0)]);
        assert_eq!(window.evict(Duration::ZERO).len(), 1);
        assert_eq!((window.oldest_start(), window.first()), (Revision(2), 1));
        window.append(WindowEvent::new(Revision(5), Duration::ZERO, None, None));
        assert_eq!(
            window.evict(Duration::ZERO).len(),
            2,
            "both events of revision 3 are evicted"
        );
        assert_eq!(window.oldest_start(), Revision(3));
        assert_eq!(window.after(Revision(3)), window.first());
    }

    #[test]
    fn wc_110_events_are_evicted_by_age_but_not_before_75_seconds() {
        let limits = WindowLimits {
            age: Duration::from_secs(1),
            ..WindowLimits::default()
        };
        let mut window = window(limits, &[(2, 0), (3, 50), (4, 200)]);
        assert!(window.evict(Duration::from_secs(75)).is_empty());
        assert_eq!(window.evict(Duration::from_secs(76)).len(), 1);
        assert_eq!(
            window.evict(Duration::from_secs(1000)).len(),
            1,
            "the newest revision is not evicted"
        );
    }

    #[test]
    fn wc_343_copies_contain_whole_revisions() {
        let window = window(
            WindowLimits::default(),
            &[(2, 0), (3, 0), (3, 0), (3, 0), (4, 0)],
        );
        let revisions = |from, count| {
            let copied = window.copy(from, count);
            copied
                .iter()
                .map(|event| event.revision.0)
                .collect::<Vec<_>>()
        };
        assert_eq!(revisions(0, 2), [2, 3, 3, 3]);
        assert_eq!(revisions(4, 2), [4]);
        assert!(revisions(9, 2).is_empty());
    }
}
