//! Snapshots: the objects of a resource at one revision, readable without a lock.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use revstore_engine::Revision;

use crate::api::target::Target;
use crate::cache::objects::index::{IndexItem, ResolvedIndex};
use crate::cache::objects::tree::PersistentTree;
use crate::encode::object::StoredObject;

/// The objects of a resource at one revision (WC-130).
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) revision: Revision,
    pub(crate) objects: PersistentTree<Arc<StoredObject>>,
    /// The index trees. Empty in a snapshot of an older revision, and if an object cannot be decoded:
    /// its indexed values are unknown, and a list must fail if its range contains the key of that
    /// object (WC-126, T-34).
    pub(crate) by_index: Vec<PersistentTree<IndexItem>>,
}

/// The maximum number of [`ExactSnapshots`] of a resource.
const EXACT_SNAPSHOTS_MAX: usize = 8;

/// The snapshots that lists at older revisions have used last, so that the pages of one list build
/// theirs once. The one that was not used for longest is dropped when there are too many.
#[derive(Debug, Default)]
pub(crate) struct ExactSnapshots {
    /// The last one was used last.
    kept: VecDeque<Snapshot>,
}

impl ExactSnapshots {
    /// Returns the snapshot at `revision`, if it is kept.
    pub(crate) fn find(&mut self, revision: Revision) -> Option<Snapshot> {
        let is_found = |kept: &Snapshot| kept.revision == revision;
        let position = self.kept.iter().position(is_found)?;
        let found = self.kept.remove(position)?;
        self.kept.push_back(found.clone());
        Some(found)
    }

    /// Adds a snapshot. Returns one that is dropped instead.
    pub(crate) fn keep(&mut self, snapshot: Snapshot) -> Option<Snapshot> {
        self.kept.push_back(snapshot);
        if self.kept.len() > EXACT_SNAPSHOTS_MAX {
            return self.kept.pop_front();
        }
        None
    }

    /// Removes the snapshots below `oldest`, which the window does not contain any more.
    pub(crate) fn remove_below(&mut self, oldest: Revision) -> Vec<Snapshot> {
        let (kept, removed): (Vec<_>, Vec<_>) = std::mem::take(&mut self.kept)
            .into_iter()
            .partition(|kept| kept.revision >= oldest);
        self.kept = kept.into();
        removed
    }

    pub(crate) fn clear(&mut self) {
        self.kept.clear();
    }
}

impl Snapshot {
    /// Returns an index tree if the target requires one value of the indexed attribute, with the
    /// prefix of the index keys of this value.
    pub(crate) fn index_for(
        &self,
        indexes: &[ResolvedIndex],
        target: &Target,
    ) -> Option<(&PersistentTree<IndexItem>, Bytes)> {
        indexes
            .iter()
            .zip(&self.by_index)
            .find_map(|(index, tree)| {
                let value = index.required_value(&target.filter)?;
                Some((tree, IndexItem::index_key(value, b"")))
            })
    }
}
