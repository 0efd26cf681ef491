//! The MVCC engine of revstore: a revision-ordered key-value store in memory.
//!
//! The store has one clock, the [revision](Revision): every transaction that changes something gets
//! the next one. Every version of every key stays readable until a [compaction](Engine::compact)
//! drops it, [watches](Engine::watch) follow changes in order from any kept revision, and
//! [leases](Engine::grant) end the life of keys that nobody keeps alive.
//!
//! ```
//! use revstore_engine::{Engine, KeyRange, Range, WatchOptions};
//!
//! let engine = Engine::builder().build();
//! let mut watcher = engine.watch(WatchOptions::of(KeyRange::prefix("job/")))?;
//! let queued = engine.put("job/1", "queued")?.revision;
//! engine.put("job/1", "done")?;
//!
//! let then = engine.range(&Range::of(KeyRange::prefix("job/")).at(queued))?;
//! assert_eq!(then.kvs[0].value(), b"queued");
//! let first = watcher.next_blocking().unwrap()?;
//! assert_eq!(first.events[0].kv.value(), b"queued");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! There is no network and no runtime here: calls run on the caller's thread, watches can be waited
//! for by threads and by tasks of any executor, and time comes from a [`Clock`] that tests can move
//! by hand ([`ManualClock`]). Clause ids such as DM-1 name rules of etcd's behaviour, ids such as
//! I3 the invariants in `ARCHITECTURE.md`.
//!
//! # Reading the source
//! `txn/commit.rs` is the heart: store, publish, notify.
//!
//! | folder or file | contains |
//! |---|---|
//! | `engine.rs`, `options.rs` | the public handle, and how it is built |
//! | `txn/` | writes: transactions decide what changes, a commit numbers and publishes it |
//! | `read.rs` | reads: ranges at any kept revision |
//! | `history/` | records, the versions of a key, the log of all changes |
//! | `index/` | the ordered map from key to versions |
//! | `watch/` | the hub, the watch streams, the index of watched ranges |
//! | `compaction/` | removal of history, what holds it back, automatic compaction |
//! | `lease.rs`, `clock.rs` | leases; time |
//! | `memory/` | the allocations behind records and entries, with nearly all unsafe code |
//! | `sync.rs`, `fault.rs` | locks with ranks; the mutations that loom models must detect |

mod clock;
mod compaction;
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
mod schedule;
mod store;
mod sync;
mod txn;
mod watch;

#[cfg(not(loom))]
pub use clock::SystemClock;
pub use clock::{Clock, ManualClock, Timed};
pub use compaction::{AutoCompaction, Compaction};
pub use engine::{Engine, History, Stats};
pub use error::{CompactError, LeaseError, PutError, ReadError, TxnError, WatchError};
#[cfg(loom)]
pub use fault::Fault;
pub use history::{KeyValue, LeaseId, PUT_BYTES_MAX, RECORD_OVERHEAD_BYTES};
pub use key::KeyRange;
pub use lease::{LEASE_TTL_MAX_SECONDS, LeaseCounts, LeaseGrant, LeaseStatus};
pub use options::EngineBuilder;
pub use read::{Filter, Range, RangeResult, SortBy, SortOrder};
pub use revision::{Position, Revision};
pub use txn::{
    Compare, CompareTarget, DeleteResult, Op, OpResult, Put, PutLease, PutResult, Relation, Txn,
    TxnResult,
};
pub use watch::{
    Event, Events, WatchBatch, WatchCreated, WatchEnd, WatchId, WatchOptions, WatchResponse,
    WatchStream, Watcher, WatcherIter,
};
