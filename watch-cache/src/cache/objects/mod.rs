//! The current objects of a resource: the persistent ordered tree that holds them, the indexes over
//! them, and snapshots, which share the nodes of the trees and are read without a lock.

pub(crate) mod checkpoint;
pub(crate) mod index;
pub(crate) mod snapshot;
pub(crate) mod tree;
