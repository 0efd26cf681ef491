//! Snapshots: the objects of a resource at one revision, readable without a lock.

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
