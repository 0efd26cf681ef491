//! The keys of a work queue: which wait, which are processed, and which were added again meanwhile.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

/// The sets of a work queue, without locks, wakers and timers.
///
/// - A key is in `queue` at most once, and only if it is in `dirty`.
/// - A key that is processed is not in `queue`, so that it is never processed twice at a time.
#[derive(Debug)]
pub(crate) struct Keys<K> {
    /// The keys to process, in the order in which they were added.
    queue: VecDeque<K>,
    /// The keys that need to be processed, with the times at which they were added.
    dirty: HashMap<K, Duration>,
    /// The keys that are processed, with the times at which that began.
    processing: HashMap<K, Duration>,
    /// Whether keys are no longer added.
    is_closed: bool,
}

/// The result of [`Keys::add`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    /// The key can be taken.
    Queued,
    /// The key is processed, and will be queued after that.
    Marked,
    /// The key needs to be processed anyway, or the queue is closed.
    Ignored,
}

impl<K: Clone + Eq + Hash> Keys<K> {
    pub(crate) fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            dirty: HashMap::new(),
            processing: HashMap::new(),
            is_closed: false,
        }
    }

    pub(crate) fn add(&mut self, key: K, now: Duration) -> Added {
        if self.is_closed || self.dirty.contains_key(&key) {
            return Added::Ignored;
        }
        self.dirty.insert(key.clone(), now);
        if self.processing.contains_key(&key) {
            return Added::Marked;
        }
        self.queue.push_back(key);
        Added::Queued
    }

    /// Takes the key that was queued first, with the time for which it was in the queue.
    pub(crate) fn take(&mut self, now: Duration) -> Option<(K, Duration)> {
        let key = self.queue.pop_front()?;
        let added = self.dirty.remove(&key).unwrap_or(now);
        self.processing.insert(key.clone(), now);
        Some((key, now.saturating_sub(added)))
    }

    /// Ends the processing of a key. Returns for how long it was processed, and whether it was queued
    /// again.
    pub(crate) fn done(&mut self, key: &K, now: Duration) -> (Duration, bool) {
        let started = self.processing.remove(key).unwrap_or(now);
        let is_dirty = self.dirty.contains_key(key);
        if is_dirty {
            self.queue.push_back(key.clone());
        }
        (now.saturating_sub(started), is_dirty)
    }

    /// Refuses further keys. Keys that were added before can still be taken.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Returns whether no key is queued or processed.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.processing.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns for how long the keys that are processed have been processed: the sum and the longest.
    pub(crate) fn unfinished(&self, now: Duration) -> (Duration, Duration) {
        let ages = self.processing.values();
        ages.map(|started| now.saturating_sub(*started))
            .fold((Duration::ZERO, Duration::ZERO), |(sum, longest), age| {
                (sum.saturating_add(age), longest.max(age))
            })
    }
}
