//! The objects of a resource at one revision.

use std::sync::Arc;

use bytes::Bytes;
use revstore_engine::Revision;

use crate::api::target::Target;
use crate::cache::objects::index::{IndexPlace, Indexed};
use crate::cache::objects::tree::Tree;
use crate::encode::object::Entry;

/// The objects of a resource at one revision (WC-130).
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) revision: Revision,
    pub(crate) objects: Tree<Arc<Entry>>,
    /// Empty for a state of the past, and where some object cannot be read: every request that would
    /// come upon it without an index must come upon it (WC-126, T-34).
    pub(crate) by_index: Vec<Tree<Indexed>>,
}

impl Snapshot {
    /// The index that has what a target wants, and the place of its value.
    pub(crate) fn index_for(
        &self,
        indexes: &[IndexPlace],
        target: &Target,
    ) -> Option<(&Tree<Indexed>, Bytes)> {
        indexes
            .iter()
            .zip(&self.by_index)
            .find_map(|(index, tree)| {
                let value = index.wanted(&target.filter)?;
                Some((tree, Indexed::place(value, b"")))
            })
    }
}
