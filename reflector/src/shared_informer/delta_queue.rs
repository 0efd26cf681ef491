//! The delta queue: changes of a collection in the order in which they arrived.
//!
//! Corresponds to `RealFIFO` of client-go, which replaced its `DeltaFIFO`; [`FinalState::Unknown`]
//! corresponds to `DeletedFinalStateUnknown`.

use std::collections::{HashMap, HashSet, VecDeque};

use revstore_watch_cache::{Object, Revision};

use super::object_key::ObjectKey;

/// The maximum number of different keys in a batch of a [`DeltaQueue`].
pub const BATCH_KEYS_MAX: usize = 1_000;

/// The last content of a deleted object, as an [`Object`] or as another value.
#[derive(Clone, Debug)]
pub enum FinalState<T = Object> {
    /// The content at the deletion.
    Known(T),
    /// The deletion was missed: a list no longer contains the object. This is the last received
    /// content; later changes before the deletion may also have been missed.
    Unknown(T),
}

impl<T> FinalState<T> {
    /// Returns the content.
    pub fn object(&self) -> &T {
        match self {
            Self::Known(object) | Self::Unknown(object) => object,
        }
    }
}

/// A change of a collection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Delta {
    /// The object was created or changed.
    Applied(Object),
    /// The object was deleted. This is its last content.
    Deleted(Object),
    /// The object is unchanged and delivered again by a resync.
    Sync(Object),
    /// The collection consists of these objects, as of a revision.
    ReplacedAll(Vec<Object>, Revision),
    /// All changes up to this revision were queued before.
    Bookmark(Revision),
}

impl Delta {
    /// Returns the object of a change of one object.
    pub fn object(&self) -> Option<&Object> {
        match self {
            Self::Applied(object) | Self::Deleted(object) | Self::Sync(object) => Some(object),
            Self::ReplacedAll(..) | Self::Bookmark(_) => None,
        }
    }

    /// Returns the revision up to which the collection is known after this change.
    fn revision(&self) -> Option<Revision> {
        match self {
            Self::Applied(object) | Self::Deleted(object) => Some(object.revision()),
            Self::ReplacedAll(_, revision) | Self::Bookmark(revision) => Some(*revision),
            Self::Sync(_) => None,
        }
    }
}

/// Deltas that are applied together.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Batch {
    /// The deltas, in their order. Either one `ReplacedAll`, or deltas of different objects and
    /// bookmarks.
    pub deltas: Vec<Delta>,
    /// The newest revision of the deltas, if one of them has a revision.
    pub revision: Option<Revision>,
}

/// A queue of deltas in the order in which they were pushed, over all keys.
///
/// Deltas are popped in batches of at most [`BATCH_KEYS_MAX`] different keys. A batch ends before the
/// second delta of a key, and a `ReplacedAll` is a batch of its own.
///
/// The queue itself has no limit. An [`Informer`](crate::Informer) pushes the events that are ready,
/// up to the size of a batch, and then empties the queue, so that it contains at most one batch and
/// one resync.
///
/// ```
/// use revstore_reflector::delta_queue::{Delta, DeltaQueue};
/// use revstore_watch_cache::Revision;
///
/// let mut queue = DeltaQueue::new();
/// assert!(!queue.has_synced());
/// queue.push(Delta::ReplacedAll(Vec::new(), Revision(7)));
/// assert_eq!(queue.pop_batch().and_then(|batch| batch.revision), Some(Revision(7)));
/// assert!(queue.has_synced(), "an empty state is complete at once");
/// ```
// WC-511.
#[derive(Debug, Default)]
pub struct DeltaQueue {
    deltas: VecDeque<Delta>,
    /// The number of queued deltas of each key.
    counts: HashMap<ObjectKey, usize>,
    /// The number of queued `ReplacedAll`.
    replacements: usize,
    /// Whether a `ReplacedAll` was popped.
    has_synced: bool,
}

impl DeltaQueue {
    /// Creates an empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Queues a delta.
    pub fn push(&mut self, delta: Delta) {
        match delta.object() {
            Some(object) => *self.counts.entry(ObjectKey::of(object)).or_default() += 1,
            None => self.replacements += usize::from(matches!(delta, Delta::ReplacedAll(..))),
        }
        self.deltas.push_back(delta);
    }

    /// Queues each object in `known` as `Sync`, except those with a queued delta.
    pub fn resync(&mut self, known: Vec<Object>) {
        // WC-508. A queued state contains all objects.
        if self.replacements > 0 {
            return;
        }
        for object in known {
            if !self.counts.contains_key(object.store_key_str()) {
                self.push(Delta::Sync(object));
            }
        }
    }

    /// Removes the deltas that were queued first.
    pub fn pop_batch(&mut self) -> Option<Batch> {
        let mut batch = Batch {
            deltas: Vec::new(),
            revision: None,
        };
        let mut keys = HashSet::new();
        while let Some(delta) = self.deltas.front() {
            let is_replacement = matches!(delta, Delta::ReplacedAll(..));
            if is_replacement && !batch.deltas.is_empty() {
                break;
            }
            if let Some(object) = delta.object() {
                let key = ObjectKey::of(object);
                if keys.len() == BATCH_KEYS_MAX || keys.contains(&key) {
                    break;
                }
                if let Some(count) = self.counts.get_mut(&key) {
                    *count -= 1;
                    if *count == 0 {
                        self.counts.remove(&key);
                    }
                }
                keys.insert(key);
            }
            batch.revision = match delta {
                Delta::ReplacedAll(_, revision) => Some(*revision),
                other => batch.revision.max(other.revision()),
            };
            batch.deltas.extend(self.deltas.pop_front());
            if is_replacement {
                self.replacements -= 1;
                self.has_synced = true;
                break;
            }
        }
        (!batch.deltas.is_empty()).then_some(batch)
    }

    /// Returns whether a state of the whole collection was popped.
    pub fn has_synced(&self) -> bool {
        // WC-514.
        self.has_synced
    }

    /// Returns the number of deltas in the queue.
    pub fn len(&self) -> usize {
        self.deltas.len()
    }

    /// Returns whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.deltas.is_empty()
    }
}
