//! A revision-ordered key-value store in memory: the MVCC engine of revstore.
//!
//! Every transaction that changes something gets the next [revision](Revision). Every version of
//! every key stays readable until a [compaction](Engine::compact) drops it,
//! [watches](Engine::watch) follow the changes in order from any kept revision, and
//! [leases](Engine::grant) delete their keys when they expire. A [snapshot](Engine::snapshot) keeps
//! one revision readable for as long as a program needs it.
//!
//! ```
//! use revstore_engine::{Engine, KeyRange, Range, WatchOptions};
//!
//! let engine = Engine::builder().build();
//! let mut watcher = engine.watch(WatchOptions::of(KeyRange::prefix("job/")))?;
//! let queued = engine.put("job/1", "queued")?.revision;
//! engine.put("job/1", "done")?;
//!
//! let earlier = engine.range(&Range::of(KeyRange::prefix("job/")).at(queued))?;
//! assert_eq!(earlier.kvs[0].value(), b"queued");
//! let first = watcher.next_blocking().unwrap()?;
//! assert_eq!(first.events[0].kv.value(), b"queued");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The engine has no network and needs no runtime. Calls run on the thread of the caller; only the
//! [fork](Engine::fork) of a large engine takes a second one, too. Watches can be read by threads and
//! by tasks of any executor, and the time comes from a [`Clock`]. Tests use a [`ManualClock`] and do
//! not wait.
//!
//! # Under a model checker
//! With `--cfg loom` or `--cfg shuttle` the locks, atomics and wakers of the engine are those of a
//! model checker, which runs programs over the engine through many interleavings of their threads.
//! The crate `revstore-verify` runs such models, and its documentation is the guide. In these
//! builds there is no `SystemClock`, and a [`ManualClock`] is the default.
//!
//! # Features
//! - `serde` (off by default): `Serialize` and `Deserialize` for keys, revisions and events:
//!   [`KeyRange`], [`KeyValue`], [`Revision`], [`Position`], [`LeaseId`], [`WatchId`], [`Event`],
//!   [`Events`] and [`WatchBatch`]. Ids and revisions are numbers. Keys and values are bytes, and in
//!   formats for people, such as JSON, text in base64 with padding, as in etcd's JSON. The value of
//!   a tombstone is absent (`null`). What is deserialized belongs to no store, and is checked: an
//!   error says which number no store can have written.
//!
//! ```
//! # #[cfg(feature = "serde")] {
//! # use revstore_engine::KeyRange;
//! let keys = KeyRange::prefix("job/");
//! let json = serde_json::to_string(&keys)?;
//! assert_eq!(json, r#"{"within":{"start":"am9iLw==","end":"am9iMA=="}}"#);
//! assert_eq!(serde_json::from_str::<KeyRange>(&json)?, keys);
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Reading the source
//! Start with `txn/commit.rs`, the central protocol: store, publish, notify.
//!
//! | folder or file | contains | etcd's counterpart |
//! |---|---|---|
//! | `engine.rs`, `options.rs` | the handle and its builder | `mvcc.WatchableKV` |
//! | `store.rs` | the state that all threads share | `mvcc.store` |
//! | `txn/` | writes: transactions, and their commit | `etcdserver/txn`, `mvcc.watchableStoreTxnWrite` |
//! | `read/` | ranges, snapshots, the versions of one key, the events of several revisions | `mvcc.storeTxnRead` |
//! | `history/` | records, the versions of a key, the log of all changes | `mvcc.keyIndex`, the bucket `key` |
//! | `index/` | the ordered map from key to versions | `mvcc.treeIndex` |
//! | `watch/` | the hub, watch streams, the index of watched ranges | `mvcc.watchableStore`, `watcherGroup`, `syncWatchers` |
//! | `compaction/` | removal of history, automatic compaction | `mvcc.scheduleCompaction`, package `compactor` |
//! | `dump/` | the state of a store outside of it, and the way back | the database file, `mvcc.store.restore` |
//! | `lease/` | leases and their keys; a lease that ends with a scope | `lease.lessor` |
//! | `time/` | the sources of time, and work at certain times | timers and goroutines |
//! | `memory/` | the allocations of records and entries, with nearly all unsafe code | none |
//! | `encoding.rs` | the serialized forms of keys, revisions and events | none |
//! | `sync/`, `fault.rs` | locks with ranks, one file per backend; the mutations that models detect | none |
//!
//! Comments cite the rules of etcd's behaviour by ids such as DM-1 (`docs/etcd-behaviour.md`), and
//! the invariants by ids such as I3 (`ARCHITECTURE.md`).

mod compaction;
mod dump;
#[cfg(feature = "serde")]
mod encoding;
mod engine;
mod error;
mod fault;
mod history;
mod index;
mod key;
mod lease;
mod memory;
mod options;
mod read;
mod revision;
mod store;
mod sync;
mod time;
mod txn;
mod watch;

pub use compaction::{AutoCompaction, AutoCompactionStep, AutoCompactions, Compaction};
pub use dump::{
    Dump, DumpRecords, FollowError, Follower, Jump, JumpError, Restore, RestoreError, Version,
};
pub use engine::{Engine, History, Stats};
pub use error::{
    CompactError, LeaseError, PutError, ReadError, SnapshotError, StartRevisionError, TxnError,
    WatchError, WriteError,
};
#[cfg(any(loom, shuttle))]
pub use fault::Fault;
pub use history::{KeyValue, LeaseId, PUT_BYTES_MAX, RECORD_OVERHEAD_BYTES};
pub use key::KeyRange;
pub use lease::{
    LEASE_TTL_MAX_SECONDS, LeaseChange, LeaseCounts, LeaseGrant, LeaseGuard, LeaseLeft, LeaseStatus,
};
pub use options::EngineBuilder;
pub use read::{
    Changes, Filter, KeyHistory, Range, RangeResult, Snapshot, SnapshotIter, SortBy, SortOrder,
};
pub use revision::{Position, Revision};
#[cfg(revstore_count)]
#[doc(hidden)]
pub use sync::SharedWrites;
#[cfg(not(any(loom, shuttle)))]
pub use time::SystemClock;
pub use time::{Clock, DueWork, ManualClock, PendingWork, Timed};
pub use txn::{
    Branch, Compare, CompareTarget, DeleteResult, Op, OpPath, OpResult, Put, PutLease, PutResult,
    Relation, Txn, TxnResult,
};
pub use watch::{
    Event, EventPredicate, Events, NextWithin, WatchBatch, WatchCloser, WatchCreated, WatchEnd,
    WatchId, WatchOptions, WatchResponse, WatchStream, Watcher, WatcherIter,
};

/// The example in `README.md`, compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
