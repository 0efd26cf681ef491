//! The window: recent events in revision order, shared by all watchers (WC-110, WC-140).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use revstore_engine::Revision;

use crate::api::event::EventType;
use crate::encode::object::Entry;

/// How much of the past a resource keeps for watchers (WC-110, WC-111).
///
/// Whichever bound is reached first moves the oldest watchable revision on; revisions leave as a
/// whole. The window never holds up a writer, and a watcher that has fallen out of it ends with
/// 410.
///
/// ```
/// use std::time::Duration;
/// use revstore_watch_cache::{ResourceConfig, WindowLimits};
/// // Events change often and interest few for long.
/// let limits = WindowLimits {
///     age: Duration::from_secs(75),
///     bytes_max: 16 << 20,
///     ..WindowLimits::default()
/// };
/// let events = ResourceConfig::namespaced("", "events", "/registry/events").window(limits);
/// # let _ = events;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowLimits {
    /// How long an event is kept. At least [`WindowLimits::AGE_MIN`], less is raised to it.
    pub age: Duration,
    /// The most bytes: keys, values and encoded events.
    pub bytes_max: usize,
    /// The most events.
    pub events_max: usize,
}

impl WindowLimits {
    /// The shortest window: the period of bookmarks and some, so that who heard one can resume.
    pub const AGE_MIN: Duration = Duration::from_secs(75);
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

/// What an event costs beside the two states it refers to.
const EVENT_OVERHEAD_BYTES: usize = size_of::<LogEvent>() + 2 * size_of::<usize>();

/// One change of one object. It never changes, except that it is encoded when first asked for.
#[derive(Debug)]
pub(crate) struct LogEvent {
    pub(crate) revision: Revision,
    /// When it came from the source.
    pub(crate) at: Duration,
    /// How much later it was applied.
    applied_after_us: u32,
    pub(crate) new: Option<Arc<Entry>>,
    pub(crate) old: Option<Arc<Entry>>,
    frames: Frames,
}

/// The event as bytes for clients, one for each outcome of D.6, shared by all watchers (WC-142).
#[derive(Debug, Default)]
struct Frames {
    forms: [OnceLock<Bytes>; 3],
    /// The bytes of all forms; [`LEFT`] is added when the event leaves the window.
    bytes: AtomicU64,
}

/// Marks an event that has left the window: what is encoded from then on is not accounted for.
const LEFT: u64 = 1 << 63;

impl LogEvent {
    pub(crate) fn new(
        revision: Revision,
        at: Duration,
        new: Option<Arc<Entry>>,
        old: Option<Arc<Entry>>,
    ) -> Self {
        Self {
            revision,
            at,
            applied_after_us: 0,
            new,
            old,
            frames: Frames::default(),
        }
    }

    /// Notes that it was applied at a time.
    pub(crate) fn applied(mut self, now: Duration) -> Self {
        let micros = now.saturating_sub(self.at).as_micros();
        self.applied_after_us = u32::try_from(micros).unwrap_or(u32::MAX);
        self
    }

    /// When it was applied.
    pub(crate) fn applied_at(&self) -> Duration {
        self.at + Duration::from_micros(self.applied_after_us.into())
    }

    /// The encoded event, from `encode` if this is the first call for `event`. What is new is added
    /// to `sum` while the event is in the window.
    pub(crate) fn frame(
        &self,
        event: EventType,
        sum: &AtomicI64,
        encode: impl FnOnce() -> Bytes,
    ) -> Bytes {
        let frame = self.frames.forms[event as usize].get_or_init(|| {
            let frame = encode();
            // Relaxed: sums; whoever sets `LEFT` takes off exactly what was added before it.
            let before = self
                .frames
                .bytes
                .fetch_add(frame.len() as u64, Ordering::Relaxed);
            if before & LEFT == 0 {
                sum.fetch_add(signed(frame.len() as u64), Ordering::Relaxed);
            }
            frame
        });
        frame.clone()
    }

    /// Takes the encoded forms off the sum, for good.
    fn leave(&self, sum: &AtomicI64) {
        // Relaxed: as in `frame`.
        let bytes = self.frames.bytes.fetch_or(LEFT, Ordering::Relaxed) & !LEFT;
        sum.fetch_sub(signed(bytes), Ordering::Relaxed);
    }

    /// What the event keeps alive: its new state, or the old one if that is all it has. The old
    /// state of an update is the new state of an earlier event, or the current one was it.
    fn size_bytes(&self) -> usize {
        let state = self.new.as_ref().or(self.old.as_ref());
        EVENT_OVERHEAD_BYTES + state.map_or(0, |entry| entry.size_bytes())
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Events that there is always room for, as upstream's ring has it.
const CAPACITY_MIN: usize = 100;

/// The kept events, oldest first, numbered without gaps.
#[derive(Debug)]
pub(crate) struct Window {
    limits: WindowLimits,
    events: VecDeque<Arc<LogEvent>>,
    /// The number of the oldest kept event.
    first: u64,
    bytes: usize,
    /// Bytes of encoded events; behind its own pointer because watchers add to it without the lock
    /// around the window. May be below zero for a moment while one is added and leaves.
    frame_bytes: Arc<AtomicI64>,
    /// A watch may start after this revision, or a later one (WC-114).
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
            frame_bytes: Arc::default(),
            oldest_start: loaded,
        }
    }

    /// Empties the window; numbers go on, so that no position from before is taken for a new one.
    pub(crate) fn reset(&mut self, loaded: Revision) {
        self.first = self.end();
        for event in self.events.drain(..) {
            event.leave(&self.frame_bytes);
        }
        self.bytes = 0;
        self.oldest_start = loaded;
    }

    /// The number that the next event gets.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    /// Events that there is room for without growing.
    pub(crate) fn capacity(&self) -> usize {
        self.events.capacity()
    }

    pub(crate) fn bytes(&self) -> usize {
        // Relaxed: an estimate while watchers encode.
        let frames = self.frame_bytes.load(Ordering::Relaxed);
        self.bytes + usize::try_from(frames).unwrap_or_default()
    }

    pub(crate) fn frame_counter(&self) -> &Arc<AtomicI64> {
        &self.frame_bytes
    }

    /// The oldest revision that a watch may start after (WC-313).
    pub(crate) fn oldest_start(&self) -> Revision {
        self.oldest_start
    }

    pub(crate) fn oldest_time(&self) -> Option<Duration> {
        self.events.front().map(|event| event.at)
    }

    /// Appends an event, which gets the number [`Window::end`].
    pub(crate) fn append(&mut self, event: LogEvent) {
        self.bytes += event.size_bytes();
        self.events.push_back(Arc::new(event));
    }

    /// Drops what the limits do not allow, whole revisions, and returns it for the caller to free
    /// outside of his locks. The newest revision always stays.
    pub(crate) fn evict(&mut self, now: Duration) -> Vec<Arc<LogEvent>> {
        let mut evicted = Vec::new();
        let newest = self.events.back().map(|event| event.revision);
        while let Some(oldest) = self.events.front() {
            let over = oldest.at.saturating_add(self.limits.age) < now
                || self.bytes() > self.limits.bytes_max
                || self.events.len() > self.limits.events_max;
            let revision = oldest.revision;
            if !over || Some(revision) == newest {
                break;
            }
            // WC-343: the boundary lies between revisions.
            while self
                .events
                .front()
                .is_some_and(|event| event.revision == revision)
            {
                evicted.extend(self.events.pop_front().inspect(|event| {
                    self.first += 1;
                    self.bytes -= event.size_bytes();
                    event.leave(&self.frame_bytes);
                }));
            }
            self.oldest_start = revision;
        }
        // A burst that is over gives its room back.
        let capacity = self.events.capacity();
        if capacity > CAPACITY_MIN && self.events.len() < capacity / 4 {
            self.events.shrink_to((capacity / 2).max(CAPACITY_MIN));
        }
        evicted
    }

    /// The number of the first event after a revision. Logarithmic.
    pub(crate) fn after(&self, revision: Revision) -> u64 {
        self.first
            + self
                .events
                .partition_point(|event| event.revision <= revision) as u64
    }

    /// Events from number `from` on: whole revisions, and no more than `count` unless one revision
    /// has more.
    pub(crate) fn copy(&self, from: u64, count: usize) -> Vec<Arc<LogEvent>> {
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
        for (revision, at) in revisions {
            let event = LogEvent::new(Revision(*revision), Duration::from_secs(*at), None, None);
            window.append(event);
        }
        window
    }

    #[test]
    fn t_42_nothing_leaves_within_the_limits_and_whole_revisions_leave_beyond() {
        let limits = WindowLimits {
            events_max: 3,
            ..WindowLimits::default()
        };
        let mut window = window(limits, &[(2, 0), (3, 0), (3, 0), (4, 0)]);
        assert_eq!(window.evict(Duration::ZERO).len(), 1);
        assert_eq!((window.oldest_start(), window.first()), (Revision(2), 1));
        window.append(LogEvent::new(Revision(5), Duration::ZERO, None, None));
        assert_eq!(
            window.evict(Duration::ZERO).len(),
            2,
            "revision 3 leaves as a whole"
        );
        assert_eq!(window.oldest_start(), Revision(3));
        assert_eq!(window.after(Revision(3)), window.first());
    }

    #[test]
    fn wc_110_events_leave_by_age_but_not_before_75_seconds() {
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
            "the newest stays"
        );
    }

    #[test]
    fn wc_343_copies_hold_whole_revisions() {
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
