//! The engine: the handle that programs hold.

use std::time::Duration;

use bytes::Bytes;

use crate::compaction::Compaction;
use crate::error::{CompactError, LeaseError, PutError, ReadError, TxnError, WatchError};
use crate::history::{KeyValue, LeaseId};
use crate::key::KeyRange;
use crate::lease::{self, LeaseCounts, LeaseGrant, LeaseStatus};
use crate::options::EngineBuilder;
use crate::read::{Range, RangeResult};
use crate::revision::Revision;
use crate::schedule;
use crate::store::Store;
use crate::sync::Arc;
use crate::txn::{self, DeleteResult, Put, PutResult, Txn, TxnResult};
use crate::watch::{WatchOptions, WatchStream, Watcher};

/// A revision-ordered store of keys in memory. Clones are handles on the same store.
///
/// # Guarantees
/// - Every transaction that changes something gets the next revision; one that changes nothing gets
///   none (I1, DM-8).
/// - A read sees all of every revision up to the one it reads at and nothing of any other (I3), and
///   never makes a writer wait for longer than a few dozen keys.
/// - When a write returns, every synced watch of the store has its events (I4).
///
/// # Costs
/// A write takes one lock shared by all writers, for as long as it takes to link its versions. Point
/// reads and counts are logarithmic in the number of keys, reads at old revisions also in the number
/// of versions of a key; a range walks what it returns.
///
/// The engine needs no runtime and reads no clock but the one it was given.
///
/// ```
/// use revstore_engine::{Engine, KeyRange, Range};
/// let engine = Engine::builder().build();
/// let first = engine.put("color", "red")?.revision;
/// engine.put("color", "blue")?;
/// let then = engine.range(&Range::of(KeyRange::one("color")).at(first))?;
/// assert_eq!(then.kvs[0].value(), b"red");
/// assert_eq!(engine.get("color").unwrap().value(), b"blue");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Engine {
    store: Arc<Store>,
}

/// How much the engine holds. The numbers are read one after the other, not at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Keys in the index, with those that are deleted but not yet compacted.
    pub keys: usize,
    /// Bytes of all kept versions, each counted as [`KeyValue::size_bytes`] says.
    pub history_bytes: u64,
    /// Living leases.
    pub leases: usize,
    /// What was done to leases until now.
    pub lease_counts: LeaseCounts,
    /// Living watches.
    pub watches: usize,
    /// Those of them that are not caught up.
    pub unsynced_watches: usize,
}

/// All kept versions up to a revision, in the order in which they were written.
#[derive(Clone, Debug)]
pub struct History {
    /// The revision asked for, or the current one.
    pub revision: Revision,
    /// The compacted revision at that time.
    pub compacted: Option<Revision>,
    /// The versions, tombstones included.
    pub versions: Vec<KeyValue>,
}

impl Engine {
    /// Sets an engine up.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::new()
    }

    pub(crate) fn new(store: Arc<Store>) -> Self {
        Self { store }
    }

    /// The newest revision that can be read.
    pub fn current_revision(&self) -> Revision {
        self.store.current.load()
    }

    /// The oldest revision that can be read, if anything was ever compacted.
    pub fn compacted_revision(&self) -> Option<Revision> {
        self.store.compacted.load()
    }

    /// The newest version of a key, if it is alive.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<KeyValue> {
        // What is found was the newest at that moment, whatever was compacted since (I7).
        let now = self.store.current.load().end();
        self.store.index.read(key.as_ref(), now).or_else(|| {
            // Absent then, or overtaken by a compaction that took the version of that moment.
            let range = Range::of(KeyRange::One(Bytes::copy_from_slice(key.as_ref())));
            self.store.range(&range).ok()?.kvs.pop()
        })
    }

    /// Reads a range.
    ///
    /// # Errors
    /// If the revision asked for is compacted or in the future. A read of the current revision
    /// never fails.
    pub fn range(&self, range: &Range) -> Result<RangeResult, ReadError> {
        self.store.range(range)
    }

    /// Reads a range, and adds up what `measure` says of each version that is returned. It is asked
    /// while the processor has the version at hand, mostly, which makes this much cheaper than a loop
    /// over a large result: a server that has to say how long its answer is wants that.
    ///
    /// ```
    /// # use revstore_engine::{Engine, KeyRange, Range};
    /// let engine = Engine::builder().build();
    /// engine.put("a", "1")?;
    /// engine.put("b", "23")?;
    /// let all = Range::of(KeyRange::all());
    /// let (found, bytes) = engine.range_measured(&all, |kv| kv.value().len())?;
    /// assert_eq!((found.kvs.len(), bytes), (2, 3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`range`](Self::range).
    pub fn range_measured(
        &self,
        range: &Range,
        measure: impl Fn(&KeyValue) -> usize,
    ) -> Result<(RangeResult, usize), ReadError> {
        self.store.range_measured(range, measure)
    }

    /// Writes a key and detaches it from any lease.
    ///
    /// # Errors
    /// If the key is empty.
    pub fn put(
        &self,
        key: impl Into<Bytes>,
        value: impl Into<Bytes>,
    ) -> Result<PutResult, PutError> {
        self.put_with(&Put::new(key, value))
    }

    /// Writes a key. The value is copied once.
    ///
    /// # Errors
    /// If the key is empty, the lease is unknown, or there is nothing to keep.
    pub fn put_with(&self, put: &Put) -> Result<PutResult, PutError> {
        txn::put(&self.store, put)
    }

    /// Deletes all living keys of a range, at one revision (DEL-2).
    pub fn delete(&self, keys: &KeyRange) -> DeleteResult {
        txn::delete(&self.store, keys)
    }

    /// Runs a transaction.
    ///
    /// # Errors
    /// If an operation that would run cannot; then nothing is changed (TXN-22).
    pub fn txn(&self, txn: &Txn) -> Result<TxnResult, TxnError> {
        txn::txn(&self.store, txn)
    }

    /// Makes everything below a revision unreadable; [`Compaction::run`] then gives its memory back.
    ///
    /// # Errors
    /// If the revision is compacted already or in the future (CO-1).
    pub fn compact(&self, revision: Revision) -> Result<Compaction, CompactError> {
        Compaction::announce(&self.store, revision)
    }

    /// Lets the policy of automatic compaction take a look now instead of when it is due (AC-7).
    pub fn auto_compact(&self) {
        schedule::auto_compact(&self.store);
    }

    /// All kept versions up to a revision: what a hash of the store is made over. Walks the store.
    ///
    /// # Errors
    /// If the revision is compacted or in the future.
    pub fn history(&self, through: Option<Revision>) -> Result<History, ReadError> {
        self.store.history(through)
    }

    /// The time of the engine's clock, counted from that clock's origin (I10).
    pub fn now(&self) -> Duration {
        self.store.clock.now()
    }

    /// A stream to put watches on.
    pub fn watch_stream(&self) -> WatchStream {
        WatchStream::new(self.store.clone())
    }

    /// One watch with a reader of its own.
    ///
    /// # Errors
    /// If the range is empty or the start revision negative.
    pub fn watch(&self, options: WatchOptions) -> Result<Watcher, WatchError> {
        Watcher::new(self.watch_stream(), options)
    }

    /// Grants a lease; the engine picks an id if none is given (LE-3). A time to live below the
    /// minimum is raised (LE-1).
    ///
    /// # Errors
    /// If the id is taken or the time to live too large.
    pub fn grant(&self, id: Option<LeaseId>, ttl_seconds: i64) -> Result<LeaseGrant, LeaseError> {
        let granted = self
            .store
            .lessor
            .grant(id, ttl_seconds, self.store.clock.now())?;
        self.store.clock.recheck();
        Ok(granted)
    }

    /// Ends a lease and deletes its keys at one revision (LE-5); returns the revision after it.
    ///
    /// # Errors
    /// If there is no such lease.
    pub fn revoke(&self, lease: LeaseId) -> Result<Revision, LeaseError> {
        lease::revoke(&self.store, lease)
    }

    /// Starts the time to live of a lease anew; returns it.
    ///
    /// # Errors
    /// If there is no such lease, or its time is over (LE-9).
    pub fn keep_alive(&self, lease: LeaseId) -> Result<Duration, LeaseError> {
        self.store.lessor.keep_alive(lease, self.store.clock.now())
    }

    /// What is left of a lease, and the keys attached to it if wanted.
    ///
    /// # Errors
    /// If there is no such lease.
    pub fn lease(&self, lease: LeaseId, with_keys: bool) -> Result<LeaseStatus, LeaseError> {
        self.store
            .lessor
            .status(lease, with_keys, self.store.clock.now())
    }

    /// All living leases, the one that expires first in front (LE-11).
    pub fn leases(&self) -> Vec<LeaseId> {
        self.store.lessor.ids()
    }

    /// Bytes of all kept versions, each counted as [`KeyValue::size_bytes`] says. One atomic read.
    pub fn history_bytes(&self) -> u64 {
        self.store.history_bytes.get()
    }

    /// How much the engine holds. Looks at every watch.
    pub fn stats(&self) -> Stats {
        let (watches, unsynced_watches) = self.store.hub.count();
        Stats {
            keys: self.store.index.len(),
            history_bytes: self.history_bytes(),
            leases: self.store.lessor.count(),
            lease_counts: self.store.lessor.counts(),
            watches,
            unsynced_watches,
        }
    }
}
