//! Compaction: dropping history that no reader may ask for any more.
//!
//! `removal` announces a compaction and frees what it drops, `pins` holds it back while a transaction still
//! reads, and `auto` decides when the store compacts itself (etcd's `compactor` package).

mod auto;
mod pins;
mod removal;

pub use auto::AutoCompaction;
pub(crate) use auto::Duties;
pub(crate) use pins::{Pin, Pins};
pub use removal::Compaction;
