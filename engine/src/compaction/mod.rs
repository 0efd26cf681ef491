//! Compaction: removal of history that no reader can ask for any more.
//!
//! `removal` announces a compaction and frees the history below it; `pins` makes it wait for
//! transactions that still read. `auto` has the policies to choose from and the compactor that runs
//! one; each policy is a file of its own: `periodic`, `revisions`, `size`. etcd's counterparts are
//! mvcc's `scheduleCompaction` and the package `compactor`.

mod auto;
mod periodic;
mod pins;
mod removal;
mod revisions;
mod size;

pub use auto::AutoCompaction;
pub(crate) use auto::Compactor;
pub(crate) use pins::Pins;
pub use removal::Compaction;
