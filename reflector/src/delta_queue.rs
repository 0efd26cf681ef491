//! The delta queue: changes of objects, grouped by key.
//!
//! Corresponds to `DeltaFIFO` of client-go; [`FinalState::Unknown`] corresponds to
//! `DeletedFinalStateUnknown`.

use std::collections::{HashMap, HashSet, VecDeque};

use revstore_watch_cache::Object;

/// The last content of a deleted object.
#[derive(Clone, Debug)]
pub enum FinalState {
    /// The content at the deletion.
    Known(Object),
    /// The deletion was missed: a list no longer contains the object. This is the last received
    /// content; later changes before the deletion may also have been missed.
    Unknown(Object),
}

impl FinalState {
    /// Returns the content.
    pub fn object(&self) -> &Object {
        match self {
            Self::Known(object) | Self::Unknown(object) => object,
        }
    }

    fn is_known(&self) -> bool {
        matches!(self, Self::Known(_))
    }
}

/// A change of an object.
#[derive(Clone, Debug)]
pub enum Delta {
    /// The object was created.
    Added(Object),
    /// The object was changed.
    Updated(Object),
    /// The object was deleted.
    Deleted(FinalState),
    /// The object is part of a state that replaces all known objects.
    Replaced(Object),
    /// The object is unchanged and delivered again by a resync.
    Sync(Object),
}

impl Delta {
    fn object(&self) -> &Object {
        match self {
            Self::Added(object)
            | Self::Updated(object)
            | Self::Replaced(object)
            | Self::Sync(object) => object,
            Self::Deleted(state) => state.object(),
        }
    }
}

/// A queue of deltas by key. Keys are popped in the order in which their first delta was queued, each
/// with all its deltas.
///
/// The number of keys is at most the number of known and new objects. The number of deltas of one
/// key is not limited, except that two deletions in a row become one. An
/// [`Informer`](crate::Informer) empties the queue after each event.
///
/// ```
/// use revstore_reflector::delta_queue::DeltaQueue;
///
/// let mut queue = DeltaQueue::new();
/// queue.replace(Vec::new(), &[]);
/// assert!(queue.pop().is_none());
/// assert!(queue.has_synced(), "an empty state is complete at once");
/// ```
#[derive(Debug, Default)]
pub struct DeltaQueue {
    deltas: HashMap<String, Vec<Delta>>,
    order: VecDeque<String>,
    /// The keys of the first state that are not popped yet; `None` before the first state.
    initial: Option<HashSet<String>>,
    /// Whether a delta or a state was queued before.
    populated: bool,
}

impl DeltaQueue {
    /// Creates an empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Queues a delta.
    ///
    /// Two deletions of a key in a row become one: the last one with a known final state, or the
    /// last one if neither has a known final state.
    pub fn push(&mut self, delta: Delta) {
        self.populated = true;
        let key = delta.object().store_key();
        let Some(queued) = self.deltas.get_mut(&key) else {
            self.order.push_back(key.clone());
            self.deltas.insert(key, vec![delta]);
            return;
        };
        // WC-511.
        if let (Some(Delta::Deleted(previous)), Delta::Deleted(next)) = (queued.last_mut(), &delta)
        {
            if next.is_known() || !previous.is_known() {
                *previous = next.clone();
            }
            return;
        }
        queued.push(delta);
    }

    /// Queues a new state of the collection.
    ///
    /// Each object in `listed` is queued as `Replaced`. Each object that is in `known` or in the
    /// queue, but not in `listed`, is queued as `Deleted` with an unknown final state.
    pub fn replace(&mut self, listed: Vec<Object>, known: &[Object]) {
        // WC-512.
        let keys: HashSet<String> = listed.iter().map(Object::store_key).collect();
        let deleted_from_queue: Vec<Object> = self
            .order
            .iter()
            .filter(|key| !keys.contains(*key))
            .filter_map(|key| self.deltas.get(key)?.last())
            .filter(|last| !matches!(last, Delta::Deleted(_)))
            .map(|last| last.object().clone())
            .collect();
        let queued: HashSet<String> = self.order.iter().cloned().collect();
        let deleted_from_known = known.iter().filter(|object| {
            let key = object.store_key();
            !keys.contains(&key) && !queued.contains(&key)
        });
        let deleted: Vec<Object> = deleted_from_queue
            .into_iter()
            .chain(deleted_from_known.cloned())
            .collect();
        let is_first = !self.populated;
        self.populated = true;
        if is_first {
            let deleted_keys = deleted.iter().map(Object::store_key);
            self.initial = Some(keys.into_iter().chain(deleted_keys).collect());
        } else if self.initial.is_none() {
            self.initial = Some(HashSet::new());
        }
        for object in listed {
            self.push(Delta::Replaced(object));
        }
        for object in deleted {
            self.push(Delta::Deleted(FinalState::Unknown(object)));
        }
    }

    /// Queues each object in `known` as `Sync`, except those whose key has a queued delta.
    pub fn resync(&mut self, known: Vec<Object>) {
        // WC-508.
        for object in known {
            if !self.deltas.contains_key(&object.store_key()) {
                self.push(Delta::Sync(object));
            }
        }
    }

    /// Removes the key that was queued first, and returns it with all its deltas.
    pub fn pop(&mut self) -> Option<(String, Vec<Delta>)> {
        let key = self.order.pop_front()?;
        if let Some(initial) = &mut self.initial {
            initial.remove(&key);
        }
        let deltas = self.deltas.remove(&key).unwrap_or_default();
        Some((key, deltas))
    }

    /// Returns whether all keys of the first state that was queued with [`DeltaQueue::replace`] are
    /// popped.
    pub fn has_synced(&self) -> bool {
        // WC-514.
        self.initial.as_ref().is_some_and(HashSet::is_empty)
    }

    /// Returns the number of keys in the queue.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}
