//! The current objects of a resource: the ordered tree that holds them, the indexes over them, and
//! snapshots, which share the nodes of the tree and need no lock.

pub(crate) mod index;
pub(crate) mod snapshot;
pub(crate) mod tree;
