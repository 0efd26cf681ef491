//! Compaction: removal of history that no reader can ask for any more.
//!
//! `removal` announces a compaction and frees the history below it; `pins` makes it wait for
//! transactions that still read. `auto` holds the policies of automatic compaction and the
//! compactor that asks them, one file per policy: `periodic`, `revisions`, `size` (etcd:
//! `mvcc.kvstore_compaction` and the package `compactor`).

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
