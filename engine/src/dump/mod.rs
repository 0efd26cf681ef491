//! Dumps: the state of a store outside of it, the follower that keeps one up to date, and the way back
//! into an engine.
//!
//! `state` reads a dump, `follower` the changes after it, and `restore` builds an engine from both. `fork`
//! builds an engine that shares its records with another one: `copy` copies the references to them in parts, `part` is one
//! of these, and `helper` a second thread that copies some. etcd's
//! counterparts are the database file, the write-ahead log, and `mvcc.store.restore`.

mod copy;
mod follower;
mod fork;
#[cfg(not(any(loom, shuttle)))]
mod helper;
mod part;
mod restore;
mod state;

pub use follower::{FollowError, Follower};
pub use fork::{Jump, JumpError};
pub(crate) use fork::{fork, fork_at};
pub use restore::{Restore, RestoreError};
pub use state::{Dump, DumpRecords, Version};
