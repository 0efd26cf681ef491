//! Compaction: removal of history that no reader can ask for any more.
//!
//! `removal` announces a compaction and frees the history below it; `pins` makes it wait for
//! transactions that still read. `auto` has the policies of automatic compaction. etcd's
//! counterparts are mvcc's `scheduleCompaction` and the package `compactor`.

mod auto;
mod pins;
mod removal;

pub use auto::AutoCompaction;
pub(crate) use auto::Compactor;
pub(crate) use pins::Pins;
pub use removal::Compaction;
