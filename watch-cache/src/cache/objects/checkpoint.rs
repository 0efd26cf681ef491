//! Checkpoints: the trees of the objects at some older revisions, which share the nodes that have not
//! changed since. A list at an older revision starts from the next one instead of the current objects.
//! Corresponds to the snapshots of Kubernetes' `watchCache`, which has one for each event.

use std::collections::VecDeque;
use std::sync::Arc;

use revstore_engine::Revision;

use crate::cache::objects::tree::PersistentTree;
use crate::encode::object::StoredObject;

/// The number of events between two checkpoints, rounded up to the batches of the feeder. A list
/// undoes up to this number of events in its copy of a tree.
const CHECKPOINT_EVENTS: usize = 256;
/// The maximum number of checkpoints of a resource. The oldest one is dropped when it is reached, and
/// when the window no longer contains its revision.
const CHECKPOINTS_MAX: usize = 128;

/// The objects of a resource at an older revision.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoint {
    pub(crate) revision: Revision,
    pub(crate) objects: PersistentTree<Arc<StoredObject>>,
}

/// The checkpoints of a resource, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    kept: VecDeque<Checkpoint>,
    /// The number of events since the last checkpoint.
    events: usize,
}

impl Checkpoints {
    /// Counts an event.
    pub(crate) fn count(&mut self) {
        self.events += 1;
    }

    /// Adds a checkpoint of `objects`, which are complete up to `revision`, if there were enough
    /// events since the last one. Returns a checkpoint that is dropped instead. Costs one reference
    /// count; later changes of the objects copy the nodes that the checkpoint shares.
    pub(crate) fn add(
        &mut self,
        revision: Revision,
        objects: &PersistentTree<Arc<StoredObject>>,
    ) -> Option<Checkpoint> {
        if self.events < CHECKPOINT_EVENTS {
            return None;
        }
        self.events = 0;
        self.kept.push_back(Checkpoint {
            revision,
            objects: objects.clone(),
        });
        if self.kept.len() > CHECKPOINTS_MAX {
            return self.kept.pop_front();
        }
        None
    }

    /// Removes the checkpoints below `oldest`.
    pub(crate) fn remove_below(&mut self, oldest: Revision) -> Vec<Checkpoint> {
        let count = self
            .kept
            .partition_point(|checkpoint| checkpoint.revision < oldest);
        self.kept.drain(..count).collect()
    }

    /// Returns the oldest checkpoint at or after `revision`.
    pub(crate) fn next_after(&self, revision: Revision) -> Option<&Checkpoint> {
        let position = self
            .kept
            .partition_point(|checkpoint| checkpoint.revision < revision);
        self.kept.get(position)
    }

    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    pub(crate) fn into_kept(self) -> VecDeque<Checkpoint> {
        self.kept
    }
}
