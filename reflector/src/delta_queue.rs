//! What happened to which object, until somebody takes it (WC-511, WC-512).

use std::collections::{HashMap, HashSet, VecDeque};

use revstore_watch_cache::Object;

/// What is left of an object that is gone.
#[derive(Clone, Debug)]
pub enum FinalState {
    /// Its last content.
    Known(Object),
    /// The deletion was missed: this is the last content that was seen, which may not be the last
    /// that there was (`DeletedFinalStateUnknown`).
    Unknown(Object),
}

impl FinalState {
    /// The content.
    pub fn object(&self) -> &Object {
        match self {
            Self::Known(object) | Self::Unknown(object) => object,
        }
    }

    fn is_known(&self) -> bool {
        matches!(self, Self::Known(_))
    }
}

/// Something that happened to an object.
#[derive(Clone, Debug)]
pub enum Delta {
    /// It was created.
    Added(Object),
    /// It was changed.
    Updated(Object),
    /// It is gone.
    Deleted(FinalState),
    /// It is part of a new state.
    Replaced(Object),
    /// It is as it was; told again at intervals (WC-508).
    Sync(Object),
}

impl Delta {
    fn object(&self) -> &Object {
        match self {
            Self::Added(object)
            | Self::Updated(object)
            | Self::Replaced(object)
            | Self::Sync(object) => object,
            Self::Deleted(last) => last.object(),
        }
    }
}

/// Deltas by key; keys in the order in which they were queued first.
///
/// It holds no more keys than there are objects, known and new, and two deletions in a row take the
/// place of one; whoever takes from it after each change, as the informer does, keeps it short.
///
/// ```
/// use revstore_reflector::delta_queue::DeltaQueue;
/// let mut queue = DeltaQueue::new();
/// queue.replace(Vec::new(), &[]);
/// assert!(queue.pop().is_none());
/// assert!(queue.has_synced(), "an empty state is complete at once");
/// ```
#[derive(Debug, Default)]
pub struct DeltaQueue {
    deltas: HashMap<String, Vec<Delta>>,
    order: VecDeque<String>,
    /// Keys of the first state that were not taken yet; nothing before the first state.
    initial: Option<HashSet<String>>,
    populated: bool,
}

impl DeltaQueue {
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Queues a delta.
    pub fn push(&mut self, delta: Delta) {
        self.populated = true;
        let key = delta.object().store_key();
        let Some(queued) = self.deltas.get_mut(&key) else {
            self.order.push_back(key.clone());
            self.deltas.insert(key, vec![delta]);
            return;
        };
        if let (Some(Delta::Deleted(before)), Delta::Deleted(after)) = (queued.last_mut(), &delta) {
            // WC-511: of two deletions in a row the one that knows more.
            if after.is_known() || !before.is_known() {
                *before = after.clone();
            }
            return;
        }
        queued.push(delta);
    }

    /// Queues a new state: what is listed is replaced; what is `known`, or queued, and not listed is
    /// deleted (WC-512).
    pub fn replace(&mut self, listed: Vec<Object>, known: &[Object]) {
        let keys: HashSet<String> = listed.iter().map(Object::store_key).collect();
        let gone_from_queue: Vec<Object> = self
            .order
            .iter()
            .filter(|key| !keys.contains(*key))
            .filter_map(|key| self.deltas.get(key)?.last())
            .filter(|last| !matches!(last, Delta::Deleted(_)))
            .map(|last| last.object().clone())
            .collect();
        let queued: HashSet<String> = self.order.iter().cloned().collect();
        let gone_from_store = known.iter().filter(|object| {
            let key = object.store_key();
            !keys.contains(&key) && !queued.contains(&key)
        });
        let gone: Vec<Object> = gone_from_queue
            .into_iter()
            .chain(gone_from_store.cloned())
            .collect();
        let is_first = !self.populated;
        self.populated = true;
        if is_first {
            let gone_keys = gone.iter().map(Object::store_key);
            self.initial = Some(keys.into_iter().chain(gone_keys).collect());
        } else if self.initial.is_none() {
            self.initial = Some(HashSet::new());
        }
        for object in listed {
            self.push(Delta::Replaced(object));
        }
        for object in gone {
            self.push(Delta::Deleted(FinalState::Unknown(object)));
        }
    }

    /// Queues what is known once more, except where something newer is queued (WC-508).
    pub fn resync(&mut self, known: Vec<Object>) {
        for object in known {
            if !self.deltas.contains_key(&object.store_key()) {
                self.push(Delta::Sync(object));
            }
        }
    }

    /// Takes everything of the key that was queued first.
    pub fn pop(&mut self) -> Option<(String, Vec<Delta>)> {
        let key = self.order.pop_front()?;
        if let Some(initial) = &mut self.initial {
            initial.remove(&key);
        }
        let deltas = self.deltas.remove(&key).unwrap_or_default();
        Some((key, deltas))
    }

    /// Whether a first state was queued and all of it was taken (WC-514).
    pub fn has_synced(&self) -> bool {
        self.initial.as_ref().is_some_and(HashSet::is_empty)
    }

    /// Keys that something is queued for.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}
