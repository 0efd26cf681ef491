//! Compaction: removal of history that can no longer be read.
//!
//! `removal` announces a compaction and frees the history below it; `pins` makes it wait for
//! positions that are still read, `holds` makes it leave history to dumps and followers, and
//! `snapshots` keeps the versions that open snapshots read.
//! `auto` contains the policies of automatic compaction. etcd's counterparts are mvcc's
//! `scheduleCompaction` and the package `compactor`.

mod auto;
mod holds;
mod pins;
mod removal;
mod snapshots;

pub(crate) use auto::Compactor;
pub use auto::{AutoCompaction, AutoCompactionStep, AutoCompactions};
pub(crate) use holds::{Hold, Holds};
pub(crate) use pins::Pins;
pub use removal::Compaction;
pub(crate) use snapshots::Snapshots;
