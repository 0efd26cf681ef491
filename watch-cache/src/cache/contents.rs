//! The contents of a resource: its objects, the indexes over them, and the window of the events that
//! led to them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use revstore_engine::Revision;

use crate::cache::objects::checkpoint::{Checkpoint, Checkpoints};
use crate::cache::objects::index::{IndexItem, ResolvedIndex};
use crate::cache::objects::tree::{PersistentTree, TreeRemains};
use crate::cache::window::{Window, WindowEvent, WindowLimits};
use crate::encode::object::{ObjectDecoder, StoredObject};
use crate::source::Change;

/// A change whose new version is decoded.
#[derive(Debug)]
pub(crate) struct DecodedChange {
    pub(crate) key: Bytes,
    pub(crate) revision: Revision,
    pub(crate) new: Option<Arc<StoredObject>>,
}

impl DecodedChange {
    pub(crate) fn of(change: Change, decoder: &ObjectDecoder) -> Self {
        Self {
            key: change.key,
            revision: change.revision,
            new: change.new.map(|stored| decoder.decode(stored)),
        }
    }
}

/// The objects and the window of a resource. A load builds them without a lock; then they are part of
/// the state that the resource guards with one.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) objects: PersistentTree<Arc<StoredObject>>,
    /// One tree for each index of the resource.
    pub(crate) by_index: Vec<PersistentTree<IndexItem>>,
    /// The total size of the keys and values of `objects`.
    pub(crate) object_bytes: u64,
    /// The number of `objects` that cannot be decoded. Their indexed values are unknown.
    pub(crate) undecodable: usize,
    pub(crate) window: Window,
    /// The objects at some revisions in the window.
    pub(crate) checkpoints: Checkpoints,
    /// The revision of the load. Changes up to it are in `objects` and not in the window.
    pub(crate) loaded: Revision,
    /// The revision of the last applied change.
    pub(crate) last: Revision,
}

impl Contents {
    pub(crate) fn new(limits: WindowLimits, indexes: &[ResolvedIndex]) -> Self {
        Self {
            objects: PersistentTree::default(),
            by_index: indexes.iter().map(|_| PersistentTree::default()).collect(),
            object_bytes: 0,
            undecodable: 0,
            window: Window::new(limits, Revision(0)),
            checkpoints: Checkpoints::default(),
            loaded: Revision(0),
            last: Revision(0),
        }
    }

    /// Marks the objects as those of a load at `revision`: the window contains the events after it.
    pub(crate) fn set_loaded(&mut self, revision: Revision) {
        self.loaded = revision;
        self.window.start_after(revision);
    }

    /// Inserts or removes an object without an event. Returns its previous version.
    pub(crate) fn store(
        &mut self,
        indexes: &[ResolvedIndex],
        key: &[u8],
        new: Option<&Arc<StoredObject>>,
    ) -> Option<Arc<StoredObject>> {
        let old = match new {
            Some(new) => self.objects.insert(new.clone()),
            None => self.objects.remove(key),
        };
        let bytes = |object: &Arc<StoredObject>| object.stored_bytes();
        let undecodable = |object: &Arc<StoredObject>| usize::from(object.decode_error().is_some());
        let (old_ref, sum) = (old.as_ref(), self.object_bytes);
        self.object_bytes = sum + new.map_or(0, bytes) - old_ref.map_or(0, bytes);
        self.undecodable += new.map_or(0, undecodable);
        self.undecodable -= old_ref.map_or(0, undecodable);
        self.update_indexes(indexes, old_ref, new);
        old
    }

    /// Applies a change while pages of the resource are still being read: only if it is newer than
    /// the object, because a page may have contained it.
    pub(crate) fn store_newer(&mut self, indexes: &[ResolvedIndex], change: &DecodedChange) {
        self.last = self.last.max(change.revision);
        let known = self.objects.get(&change.key);
        if known.is_none_or(|known| known.mod_revision() < change.revision) {
            self.store(indexes, &change.key, change.new.as_ref());
        }
    }

    /// Applies a change after the load, and appends its event to the window. Returns the event with
    /// its number, or `None` if the change is part of the load or has no effect.
    pub(crate) fn apply(
        &mut self,
        indexes: &[ResolvedIndex],
        change: DecodedChange,
        arrived: Duration,
        now: Duration,
    ) -> Option<(u64, &WindowEvent)> {
        let DecodedChange { key, revision, new } = change;
        if revision <= self.loaded {
            return None;
        }
        let old = self.store(indexes, &key, new.as_ref());
        self.last = revision;
        if old.is_none() && new.is_none() {
            return None;
        }
        debug_assert!(
            old.as_ref()
                .is_none_or(|old| old.mod_revision() <= revision),
            "INV-3: the old version of an event is older than the event"
        );
        let event = WindowEvent::new(revision, arrived, new, old).applied(now);
        self.checkpoints.count();
        Some(self.window.append(event))
    }

    /// Adds a checkpoint if it is due. Called between two batches, because a checkpoint contains all
    /// changes of its revision. The caller frees a dropped one after it has released its locks.
    pub(crate) fn add_checkpoint(&mut self) -> Option<Checkpoint> {
        let revision = self.last.max(self.loaded);
        self.checkpoints.add(revision, &self.objects)
    }

    /// Evicts the oldest events and their checkpoints. The caller frees them after it has released its
    /// locks.
    pub(crate) fn evict(&mut self, now: Duration) -> (Vec<Arc<WindowEvent>>, Vec<Checkpoint>) {
        let events = self.window.evict(now);
        let oldest = self.window.oldest_start();
        (events, self.checkpoints.remove_below(oldest))
    }

    /// Replaces the old version of an object in the index trees with the new one.
    fn update_indexes(
        &mut self,
        indexes: &[ResolvedIndex],
        old: Option<&Arc<StoredObject>>,
        new: Option<&Arc<StoredObject>>,
    ) {
        for (index, tree) in indexes.iter().zip(&mut self.by_index) {
            let value =
                |object: &Arc<StoredObject>| index.value(object).unwrap_or_default().to_owned();
            let (old_value, new_value) = (old.map(value), new.map(value));
            if let (Some(old), Some(old_value)) = (old, &old_value)
                && new_value.as_ref() != Some(old_value)
            {
                tree.remove(&IndexItem::index_key(old_value, old.key()));
            }
            if let (Some(new), Some(new_value)) = (new, &new_value) {
                tree.insert(IndexItem::new(new_value, new.clone()));
            }
        }
    }

    /// Replaces these contents with those of a load, and returns what is left of these. The numbers
    /// of events continue.
    pub(crate) fn replace_with(&mut self, loaded: Self) -> ContentsRemains {
        let events = self.window.replace_with(loaded.window);
        self.object_bytes = loaded.object_bytes;
        self.undecodable = loaded.undecodable;
        self.loaded = loaded.loaded;
        self.last = loaded.last;
        let objects = std::mem::replace(&mut self.objects, loaded.objects);
        let by_index = std::mem::replace(&mut self.by_index, loaded.by_index);
        let checkpoints = std::mem::replace(&mut self.checkpoints, loaded.checkpoints);
        ContentsRemains::new(objects, by_index, checkpoints, events)
    }

    /// Removes the objects, and returns them. The window stays.
    pub(crate) fn take_objects(&mut self) -> ContentsRemains {
        self.object_bytes = 0;
        self.undecodable = 0;
        let objects = std::mem::take(&mut self.objects);
        let by_index = std::mem::take(&mut self.by_index);
        let checkpoints = std::mem::take(&mut self.checkpoints);
        ContentsRemains::new(objects, by_index, checkpoints, VecDeque::new())
    }

    /// Returns what is left of contents that nobody needs.
    pub(crate) fn into_remains(mut self) -> ContentsRemains {
        let events = self.window.clear();
        ContentsRemains {
            events,
            ..self.take_objects()
        }
    }
}

/// Contents that were replaced. They are freed in steps, because freeing many objects at once would
/// delay the feeder.
#[derive(Debug)]
pub(crate) struct ContentsRemains {
    objects: Vec<TreeRemains<Arc<StoredObject>>>,
    by_index: Vec<TreeRemains<IndexItem>>,
    events: VecDeque<Arc<WindowEvent>>,
}

/// The number of events of a replaced window that one step frees.
const FREED_EVENTS: usize = 64;

impl ContentsRemains {
    fn new(
        objects: PersistentTree<Arc<StoredObject>>,
        by_index: Vec<PersistentTree<IndexItem>>,
        checkpoints: Checkpoints,
        events: VecDeque<Arc<WindowEvent>>,
    ) -> Self {
        let checkpoints = checkpoints.into_kept().into_iter();
        let trees = checkpoints.map(|checkpoint| checkpoint.objects);
        let trees = trees.chain([objects]);
        Self {
            objects: trees.map(PersistentTree::into_remains).collect(),
            by_index: by_index
                .into_iter()
                .map(PersistentTree::into_remains)
                .collect(),
            events,
        }
    }

    /// Frees a part. Returns whether anything is left.
    pub(crate) fn free_some(&mut self) -> bool {
        let events = self.events.len().min(FREED_EVENTS);
        if events > 0 {
            self.events.drain(..events);
            return true;
        }
        self.by_index.iter_mut().any(TreeRemains::free_some)
            || self.objects.iter_mut().any(TreeRemains::free_some)
    }
}
