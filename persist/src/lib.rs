//! Optional durability for a [`revstore_engine::Engine`]: a journal and snapshots in a directory.
//!
//! [`open`] locks a directory and restores the engine that it contains, with its revisions, history and
//! leases, and with *metadata*: pairs of bytes in buckets, in which a server keeps its users and ids. A
//! thread then follows the engine and appends what changes to the journal. Writers do no work for it.
//! A program that must not answer before a change is on disk waits for [`Persist::sync`]: all that wait at
//! the same time share one fsync.
//!
//! ```
//! use revstore_engine::Engine;
//! use revstore_persist::{Options, open};
//!
//! # let dir = tempfile::tempdir()?;
//! let opened = open(dir.path(), Engine::builder(), Options::default())?;
//! let revision = opened.engine.put("key", "value")?.revision;
//! opened.persist.close()?;
//! # drop(opened);
//!
//! let opened = open(dir.path(), Engine::builder(), Options::default())?;
//! assert_eq!(opened.engine.get("key").unwrap().mod_revision(), revision);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//! - A crash at any time loses at most what was not synced, and never a part of a revision.
//! - A put that names a lease is never on disk before the lease, and a lease that has ended never leaves its
//!   keys behind.
//! - Damage of what was synced is detected where a checksum or the order of the parts shows it, and
//!   refused with the file and the offset.
//! - After a failed fsync the files are not trusted any more: the whole store is written again.
//!
//! # Reading the source
//! | file or folder | contents |
//! |---|---|
//! | `format/` | the bytes of the files: `frame.rs` frames, `record.rs` what they contain, `replay.rs` the way into an engine |
//! | `snapshot.rs` | a snapshot file, the format of all dumps |
//! | `dump.rs` | a whole store as one file, outside of a directory |
//! | `recovery.rs` | from the files of a directory to an engine |
//! | `journal.rs` | **the heart**: what one step of the thread reads, writes, syncs and replaces |
//! | `persist.rs` | the handle, the thread and those who wait |
//! | `disk.rs` | the operations on files, which tests let fail |
//!
//! `docs/persist-format.md` in the repository documents the files byte by byte.

mod disk;
mod dump;
mod error;
mod format;
mod journal;
mod persist;
mod recovery;
mod snapshot;
#[cfg(test)]
mod tests;

pub use dump::{DumpError, is_dump, read_dump, write_dump};
pub use error::{Corruption, OpenError, PersistError};
pub use format::Metadata;
pub use journal::{Fsync, LAG_BYTES_MAX, Options};
pub use persist::{Change, Opened, Persist, Stats, Synced, open};
pub use recovery::Recovered;
