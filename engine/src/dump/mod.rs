//! Dumps: the state of a store outside of it, the follower that keeps one up to date, and the way back
//! into an engine.
//!
//! `state` reads a dump, `follower` the changes after it, and `restore` builds an engine from both. `fork`
//! builds an engine that shares its records with another one. etcd's
//! counterparts are the database file, the write-ahead log, and `mvcc.store.restore`.

mod follower;
mod fork;
mod restore;
mod state;

pub use follower::{FollowError, Follower};
pub use fork::{Jump, JumpError};
pub(crate) use fork::{fork, fork_at};
pub use restore::{Restore, RestoreError};
pub use state::{Dump, DumpRecords, Version};
