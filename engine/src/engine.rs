//! The handle of an engine.

use std::ops::{ControlFlow, RangeBounds};
use std::time::Duration;

use bytes::Bytes;

use crate::compaction::{AutoCompactions, Compaction};
use crate::dump::{Dump, FollowError, Follower};
use crate::error::{
    CompactError, LeaseError, PutError, ReadError, SnapshotError, TxnError, WatchError, WriteError,
};
use crate::history::{KeyValue, LeaseId};
use crate::key::KeyRange;
use crate::lease::{self, Granted, LeaseCounts, LeaseGrant, LeaseGuard, LeaseStatus};
use crate::options::EngineBuilder;
use crate::read::{Changes, KeyHistory, Range, RangeResult, Snapshot};
use crate::revision::Revision;
use crate::store::Store;
use crate::sync::Arc;
use crate::sync::epoch::{held_back_bytes, pin};
use crate::time::{Clock, Timed, auto_compact};
use crate::txn::{self, DeleteResult, Put, PutResult, Txn, TxnResult};
use crate::watch::{WatchOptions, WatchStream, Watcher};

/// A revision-ordered key-value store in memory. Clones are handles on the same store.
///
/// # Guarantees
/// - Every transaction that changes something gets the next revision. One that changes nothing gets
///   no revision.
/// - A read at a revision includes all changes up to that revision and none after it.
/// - When a write returns, every synced watch of the store has its events.
///
/// # Costs
/// A write holds one lock that all writers share, for as long as its compares and changes take;
/// values are copied before. Reads do not take that lock. A read or count of keys takes time
/// logarithmic in the number of keys, at old revisions also in the number of versions of a key; a
/// range takes time proportional to its result. Reads take no lock: neither a reader nor a writer
/// waits for the other, and what readers write in shared memory are only the reference counts of the
/// versions that they return.
///
/// The engine needs no runtime, and the time comes only from its [`Clock`](crate::Clock).
///
/// ```
/// use revstore_engine::{Engine, KeyRange, Range};
/// let engine = Engine::builder().build();
/// let first = engine.put("color", "red")?.revision;
/// engine.put("color", "blue")?;
/// let old = engine.range(&Range::of(KeyRange::one("color")).at(first))?;
/// assert_eq!(old.kvs[0].value(), b"red");
/// assert_eq!(engine.get("color").unwrap().value(), b"blue");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Engine {
    store: Arc<Store>,
}

/// The size of an engine. The numbers are read one after the other, not at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The current revision.
    pub current_revision: Revision,
    /// The compacted revision, or `None` if the store was never compacted.
    pub compacted_revision: Option<Revision>,
    /// The number of keys in the index, including deleted keys that are not compacted yet.
    pub keys: usize,
    /// The number of live keys.
    pub live_keys: usize,
    /// The number of kept versions, including tombstones.
    pub versions: u64,
    /// The number of versions that compactions have removed.
    pub compacted_versions: u64,
    /// The size of all kept versions, each counted as [`KeyValue::size_bytes`].
    pub history_bytes: u64,
    /// The number of leases.
    pub leases: usize,
    /// The numbers of operations on leases since the engine was created.
    pub lease_counts: LeaseCounts,
    /// The number of watches.
    pub watches: usize,
    /// The number of unsynced watches: those that still read events from the log.
    pub unsynced_watches: usize,
    /// The number of open [snapshots](Engine::snapshot), lost ones excepted.
    pub snapshots: usize,
    /// The bytes of all versions that compactions have kept for snapshots, which are not part of
    /// `history_bytes`. A version that is kept for snapshots of several revisions is counted for
    /// each revision.
    pub snapshot_bytes: u64,
    /// The bytes that all engines of this process have removed, but not freed yet, because reads that
    /// may access them have not ended. They are freed by later operations of any engine, on the
    /// thread of the caller.
    pub held_back_bytes: u64,
}

/// All kept versions up to a revision, in the order in which they were written; the result of
/// [`Engine::full_history`].
#[derive(Clone, Debug)]
pub struct History {
    /// The requested revision, or the current one.
    pub revision: Revision,
    /// The compacted revision at that time.
    pub compacted: Option<Revision>,
    /// The versions, including tombstones.
    pub versions: Vec<KeyValue>,
}

impl Engine {
    /// Returns a builder with the default options.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::new()
    }

    pub(crate) fn new(store: Arc<Store>) -> Self {
        Self { store }
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Returns a builder with the clock and the options of this engine, for an engine like it. Its start
    /// revision is 1.
    pub fn to_builder(&self) -> EngineBuilder {
        EngineBuilder::like(&self.store)
    }

    /// Creates an independent engine with everything that this one contains at one revision: the
    /// versions of all keys from the compacted revision on, and the leases with their keys and the time
    /// that they have left. It has the same clock and the same options; [`EngineBuilder::fork`] changes
    /// them. Watches, snapshots and counters of operations are not part of it.
    ///
    /// Nothing that is written to one of the two, or compacted in it, shows in the other. They may be
    /// dropped in any order.
    ///
    /// # Costs
    /// The two share the versions, with their keys and values, until both have dropped them. The fork
    /// copies each key once for its index, so it takes about 150 ns of CPU time and 150 bytes for a key, and
    /// 50 ns and 16 bytes for each further version. From 32,768 keys or versions on, a second thread copies
    /// about half of them, if there are two processors; the call waits for it at most about 1 ms. Writers of this engine are stopped for a copy of its leases
    /// only, and compactions go on; what they remove meanwhile is freed at the end of the call.
    ///
    /// ```
    /// # use revstore_engine::Engine;
    /// let engine = Engine::builder().build();
    /// engine.put("color", "red")?;
    /// let fork = engine.fork();
    /// fork.put("color", "blue")?;
    /// engine.put("shape", "round")?;
    /// assert_eq!(engine.get("color").unwrap().value(), b"red");
    /// assert_eq!(fork.get("color").unwrap().value(), b"blue");
    /// assert!(fork.get("shape").is_none());
    /// # Ok::<(), revstore_engine::PutError>(())
    /// ```
    #[must_use = "a fork that is dropped at once has no effect"]
    pub fn fork(&self) -> Self {
        self.to_builder().fork(self)
    }

    /// Begins the work that depends on the time.
    pub(crate) fn start(store: Arc<Store>) -> Self {
        let timed: Arc<dyn Timed> = store.clone();
        store.clock.follow(Arc::downgrade(&timed));
        Self::new(store)
    }

    /// Returns the newest revision that can be read.
    pub fn current_revision(&self) -> Revision {
        self.store.current.load()
    }

    /// Returns the oldest revision that can be read, or `None` if the store was never compacted.
    pub fn compacted_revision(&self) -> Option<Revision> {
        self.store.compacted.load()
    }

    /// Returns the newest version of a key, or `None` if the key is not live. One look-up.
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<KeyValue> {
        self.get_with(key, KeyValue::clone)
    }

    /// Returns the version of a key that was live at a revision, or `None` if the key was not live
    /// there. One look-up, and a search among the versions of the key.
    ///
    /// ```
    /// # use revstore_engine::Engine;
    /// let engine = Engine::builder().build();
    /// let first = engine.put("color", "red")?.revision;
    /// engine.put("color", "blue")?;
    /// assert_eq!(engine.get_at("color", first)?.unwrap().value(), b"red");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ReadError::Compacted`] if the revision is compacted, [`ReadError::Future`] if it is above
    /// the current one.
    pub fn get_at(
        &self,
        key: impl AsRef<[u8]>,
        revision: Revision,
    ) -> Result<Option<KeyValue>, ReadError> {
        let store = &self.store;
        store.check_readable(revision, store.current.load())?;
        let found = store.index.read(key.as_ref(), revision.end());
        // I7: a compaction may have run during the read.
        store.check_kept(revision)?;
        Ok(found)
    }

    /// Returns an iterator over the versions of a key, newest first, from the current revision back
    /// to the oldest that is still readable. Tombstones are included, so it shows each life of the
    /// key. It is empty if the key was never written, or if all its versions are compacted.
    ///
    /// The iterator reads one version at a time, each in the time of a look-up and of a search among
    /// the versions, and holds no lock in between. Versions that are written later are not
    /// returned. A compaction may end it earlier, but leaves no gap.
    ///
    /// ```
    /// # use revstore_engine::{Engine, KeyRange};
    /// let engine = Engine::builder().build();
    /// engine.put("color", "red")?;
    /// engine.delete(&KeyRange::one("color"))?;
    /// engine.put("color", "blue")?;
    /// let values = engine.history("color").map(|kv| (!kv.is_tombstone()).then(|| kv.value_bytes()));
    /// assert_eq!(values.collect::<Vec<_>>(), [Some("blue".into()), None, Some("red".into())]);
    /// // The last ten changes:
    /// assert_eq!(engine.history("color").take(10).count(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn history(&self, key: impl Into<Bytes>) -> KeyHistory {
        KeyHistory::new(self.store.clone(), key.into())
    }

    /// Returns an iterator over the events of some revisions, in the order of the changes. Without a
    /// start it begins at the oldest readable revision, without an end it ends at the current one.
    ///
    /// The iterator reads the log in steps of at most 64 records, or 1 MiB and one record, whatever
    /// the number of revisions, and continues after each where it stopped. It holds no lock in
    /// between. If a compaction overtakes it, it returns [`ReadError::Compacted`] and ends; the
    /// events up to there are complete. Events have no previous versions.
    ///
    /// ```
    /// # use revstore_engine::{Engine, ReadError, Revision};
    /// let engine = Engine::builder().build();
    /// for key in ["a", "b", "c"] {
    ///     engine.put(key, "")?;
    /// }
    /// let mut keys = Vec::new();
    /// let mut changes = engine.changes(Revision(3)..=Revision(4))?;
    /// for event in &mut changes {
    ///     keys.push(event?.kv.key_bytes());
    /// }
    /// assert_eq!(keys, ["b", "c"]);
    ///
    /// // What was changed since:
    /// let next = changes.through().next();
    /// assert_eq!(engine.changes(next..)?.count(), 0);
    /// engine.compact(Revision(4))?.run();
    /// assert!(matches!(engine.changes(Revision(2)..), Err(ReadError::Compacted { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ReadError::Compacted`] if the first revision is compacted, [`ReadError::Future`] if the
    /// last one is above the current one. A range without revisions is no error.
    pub fn changes(&self, revisions: impl RangeBounds<Revision>) -> Result<Changes, ReadError> {
        Changes::new(&self.store, &revisions)
    }

    /// Calls `read` with the newest version of a key, and returns its result, or `None` if the key is
    /// not live.
    ///
    /// This is [`Engine::get`] without the reference count of the version: threads that read the same
    /// key again and again do not share a write. No lock is held during the call, so `read` may use
    /// the engine. But memory that is removed meanwhile, from any engine of the process, is freed only
    /// after it returns ([`Stats::held_back_bytes`]), so it should be short; to keep the version, clone
    /// it.
    ///
    /// ```
    /// # use revstore_engine::Engine;
    /// let engine = Engine::builder().build();
    /// engine.put("key", "value")?;
    /// assert_eq!(engine.get_with("key", |kv| kv.value().len()), Some(5));
    /// assert_eq!(engine.get_with("none", |kv| kv.value().len()), None);
    /// # Ok::<(), revstore_engine::PutError>(())
    /// ```
    #[inline]
    pub fn get_with<R>(
        &self,
        key: impl AsRef<[u8]>,
        read: impl FnOnce(&KeyValue) -> R,
    ) -> Option<R> {
        let key = key.as_ref();
        {
            // I7: a version that is found was the newest at `current`, whatever is compacted since.
            let current = self.store.current.load().end();
            let guard = pin();
            if let Some(found) = self.store.index.find(key, current, &guard) {
                return Some(read(&found));
            }
        }
        // Not live at `current`, or a compaction has removed the version in the meantime.
        let range = Range::of(KeyRange::One(Bytes::copy_from_slice(key)));
        let found = self.store.range(&range).ok()?.kvs.pop()?;
        Some(read(&found))
    }

    /// Calls `visit` with the live versions of a range at a revision, in key order, until it breaks.
    ///
    /// This is [`Engine::range`] without a result in memory and without reference counts; what holds
    /// for the closure of [`Engine::get_with`] holds for this one too. The versions are read in steps
    /// of at most 256 keys, and memory that is removed meanwhile is freed after the step.
    ///
    /// # Errors
    /// [`ReadError::Future`] if the revision is above the current one, [`ReadError::Compacted`] if it
    /// is compacted, also during the call. Then no key up to the last visited one was left out.
    ///
    /// ```
    /// # use revstore_engine::{Engine, KeyRange};
    /// # use std::ops::ControlFlow;
    /// let engine = Engine::builder().build();
    /// engine.put("a", "12")?;
    /// let both = engine.put("b", "345")?.revision;
    /// engine.put("c", "6")?;
    /// let mut bytes = 0;
    /// let end = engine.visit(&KeyRange::all(), both, |kv| {
    ///     bytes += kv.value().len();
    ///     ControlFlow::<()>::Continue(())
    /// })?;
    /// assert_eq!((bytes, end), (5, ControlFlow::Continue(())));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn visit<B>(
        &self,
        keys: &KeyRange,
        at: Revision,
        visit: impl FnMut(&KeyValue) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>, ReadError> {
        self.store.visit(keys, at, visit)
    }

    /// Reads a range.
    ///
    /// # Errors
    /// [`ReadError::Compacted`] if the requested revision is compacted, [`ReadError::Future`] if it
    /// is above the current one. A read at the current revision does not fail.
    #[inline]
    pub fn range(&self, range: &Range) -> Result<RangeResult, ReadError> {
        self.store.range(range)
    }

    /// Reads a range, and returns the sum of `measure` over the returned versions.
    ///
    /// `measure` is called while the version is in the processor's cache, which makes this much
    /// faster than a loop over a large result. It is meant for servers that need the length of a
    /// response before they encode it. No lock is held during a call, so `measure` may use the
    /// engine.
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

    /// Opens a snapshot at the current revision, which stays readable there through compactions
    /// until the snapshot is dropped. Waits for the transaction that is running, if any, and copies
    /// nothing; see [`Snapshot`] for the costs while it is open.
    ///
    /// # Errors
    /// [`SnapshotError::TooMany`] if the bound on the
    /// [number](EngineBuilder::snapshots_max) of snapshots, or on the
    /// [bytes](EngineBuilder::snapshot_bytes_max) that they hold back, does not allow another one.
    pub fn snapshot(&self) -> Result<Snapshot, SnapshotError> {
        Snapshot::open(&self.store)
    }

    /// Writes a key, and detaches it from any lease.
    ///
    /// # Errors
    /// [`PutError::EmptyKey`] if the key is empty, [`PutError::TooLarge`] if the key or the value
    /// is too large.
    #[inline]
    pub fn put(
        &self,
        key: impl Into<Bytes>,
        value: impl Into<Bytes>,
    ) -> Result<PutResult, PutError> {
        self.put_with(&Put::new(key, value))
    }

    /// Writes a key. Copies the value once.
    ///
    /// # Errors
    /// As [`put`](Self::put); also [`PutError::LeaseNotFound`] if the lease does not exist, and
    /// [`PutError::KeyNotFound`] if the put keeps the value or lease of a key that is not live.
    #[inline]
    pub fn put_with(&self, put: &Put) -> Result<PutResult, PutError> {
        txn::put(&self.store, put)
    }

    /// Deletes all live keys of a range, at one revision.
    ///
    /// # Errors
    /// If the engine refuses writes.
    pub fn delete(&self, keys: &KeyRange) -> Result<DeleteResult, WriteError> {
        txn::delete(&self.store, keys)
    }

    /// Runs a transaction.
    ///
    /// # Errors
    /// [`TxnError::Put`] or [`TxnError::Read`] if one of the operations fails. Then nothing is
    /// changed.
    #[inline]
    pub fn txn(&self, txn: &Txn) -> Result<TxnResult, TxnError> {
        txn::txn(&self.store, txn)
    }

    /// Makes all revisions below `revision` unreadable; [`Compaction::run`] then frees their
    /// memory.
    ///
    /// # Errors
    /// [`CompactError::Compacted`] if the revision is compacted already, [`CompactError::Future`]
    /// if it is above the current one.
    pub fn compact(&self, revision: Revision) -> Result<Compaction, CompactError> {
        // CO-1
        Compaction::announce(&self.store, revision)
    }

    /// Checks the policy of automatic compaction now, before its interval has passed. If the policy
    /// requires a compaction, it is finished when this returns.
    pub fn auto_compact(&self) {
        auto_compact(&self.store);
    }

    /// Returns a reader of the steps of automatic compactions from now on; `None` if the engine has no policy,
    /// or a reader.
    pub fn auto_compactions(&self) -> Option<AutoCompactions> {
        AutoCompactions::of(&self.store)
    }

    /// Returns all kept versions of all keys up to a revision, for hashes and backups. Walks the
    /// whole store.
    ///
    /// # Errors
    /// [`ReadError::Compacted`] if the revision is compacted, [`ReadError::Future`] if it is above
    /// the current one.
    pub fn full_history(&self, through: Option<Revision>) -> Result<History, ReadError> {
        self.store.full_history(through)
    }

    /// Returns everything that the store contains at the current revision. Waits for the transaction
    /// that is running, if any; see [`Dump`] for the costs while it is open.
    pub fn dump(&self) -> Dump {
        Dump::open(&self.store)
    }

    /// Begins to follow the changes after a revision, and those of leases from now on.
    ///
    /// # Errors
    /// [`FollowError::Followed`] if the store has a follower, [`FollowError::Missing`] if the changes
    /// after the revision are not in the store.
    pub fn follow(&self, after: Revision) -> Result<Follower, FollowError> {
        Follower::new(&self.store, after)
    }

    /// Returns the time of the engine's clock, as the duration since the origin of that clock.
    pub fn now(&self) -> Duration {
        self.store.clock.now()
    }

    /// Returns the engine's clock, for work of the program that is due at the same time as work of
    /// the engine.
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.store.clock.clone()
    }

    /// Returns a stream without watches.
    pub fn watch_stream(&self) -> WatchStream {
        WatchStream::new(self.store.clone())
    }

    /// Creates a single watch, on a separate stream.
    ///
    /// # Errors
    /// [`WatchError::EmptyRange`] if the range is empty, [`WatchError::Compacted`] if the start
    /// revision is negative.
    pub fn watch(&self, options: WatchOptions) -> Result<Watcher, WatchError> {
        Watcher::new(self.watch_stream(), options)
    }

    /// Grants a lease. Without an id, the engine chooses one. A time to live below the minimum is
    /// raised to it.
    ///
    /// # Errors
    /// [`LeaseError::AlreadyExists`] if the id is in use, [`LeaseError::TtlTooLarge`] if the time
    /// to live is too large.
    pub fn grant(&self, id: Option<LeaseId>, ttl_seconds: i64) -> Result<LeaseGrant, LeaseError> {
        Ok(self.grant_lease(id, ttl_seconds)?.lease)
    }

    /// Grants a lease that is revoked when the returned guard is dropped.
    ///
    /// # Errors
    /// As [`grant`](Self::grant).
    pub fn grant_guarded(
        &self,
        id: Option<LeaseId>,
        ttl_seconds: i64,
    ) -> Result<LeaseGuard, LeaseError> {
        let granted = self.grant_lease(id, ttl_seconds)?;
        Ok(LeaseGuard::new(self.store.clone(), granted))
    }

    fn grant_lease(&self, id: Option<LeaseId>, ttl_seconds: i64) -> Result<Granted, LeaseError> {
        let now = self.store.clock.now();
        let granted = self.store.lessor.grant(id, ttl_seconds, now)?;
        let due = now.saturating_add(granted.lease.ttl);
        self.store.clock.recheck_at(due);
        Ok(granted)
    }

    /// Revokes a lease and deletes its keys, at one revision. Returns the current revision
    /// afterwards.
    ///
    /// # Errors
    /// [`LeaseError::NotFound`] if the lease does not exist.
    pub fn revoke(&self, lease: LeaseId) -> Result<Revision, LeaseError> {
        lease::revoke(&self.store, lease, None)
    }

    /// Restarts the time to live of a lease, and returns it.
    ///
    /// # Errors
    /// [`LeaseError::NotFound`] if the lease does not exist or has expired.
    pub fn keep_alive(&self, lease: LeaseId) -> Result<Duration, LeaseError> {
        let (store, now) = (&self.store, self.store.clock.now());
        store.lessor.keep_alive(store.faults, lease, None, now)
    }

    /// Returns the remaining time of a lease, and its keys if `with_keys` is set.
    ///
    /// # Errors
    /// [`LeaseError::NotFound`] if the lease does not exist.
    pub fn lease(&self, lease: LeaseId, with_keys: bool) -> Result<LeaseStatus, LeaseError> {
        self.store
            .lessor
            .status(lease, with_keys, self.store.clock.now())
    }

    /// Returns the number of keys of a lease, 0 if the lease does not exist. One look under a lock, whatever
    /// the number is.
    ///
    /// ```
    /// # use revstore_engine::{Engine, Put};
    /// let engine = Engine::builder().build();
    /// let lease = engine.grant(None, 60)?.id;
    /// engine.put_with(&Put::new("key", "value").attached_to(lease))?;
    /// assert_eq!(engine.lease_key_count(lease), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lease_key_count(&self, lease: LeaseId) -> usize {
        self.store.lessor.key_count(lease)
    }

    /// Returns all leases, in the order of their expiry.
    pub fn leases(&self) -> Vec<LeaseId> {
        self.store.lessor.ids()
    }

    /// Returns the bytes of all kept versions, each counted as [`KeyValue::size_bytes`]. One atomic
    /// read.
    pub fn history_bytes(&self) -> u64 {
        self.store.history_bytes.get()
    }

    /// Returns the bytes of all versions that were ever written, kept or compacted, each counted as
    /// [`KeyValue::size_bytes`]. Two atomic reads, one after the other.
    pub fn written_bytes(&self) -> u64 {
        self.history_bytes() + self.store.compacted_bytes.get()
    }

    /// Checks that the engine works: reads a key, and begins a write that changes nothing. Returns as soon as
    /// no write and no delivery to watches is in progress, so a caller that does not want to wait for them
    /// calls it on a thread of its own. While it waits, [`progress`](Self::progress) distinguishes a long
    /// write from one that does not end.
    ///
    /// # Errors
    /// The engine refuses all writes.
    ///
    /// ```
    /// # use revstore_engine::Engine;
    /// let engine = Engine::builder().build();
    /// assert_eq!(engine.check(), Ok(()));
    /// ```
    pub fn check(&self) -> Result<(), WriteError> {
        // A read of the current revision cannot fail.
        let _ = self.range(&Range::of(KeyRange::all()).limit(1));
        let _ = self.store.hub.count();
        self.store.lock_sequencer().map(drop)
    }

    /// Lets all writes fail from now on, with [`WriteError::Ended`], and returns the revision of the last one: for a program
    /// that replaces this store by one that continues at that revision. Leases no longer expire. Reads, watches and
    /// compactions continue, and [`resume_writes`](Self::resume_writes) ends it.
    ///
    /// ```
    /// use revstore_engine::{Engine, PutError, WriteError};
    /// let engine = Engine::builder().build();
    /// let last = engine.put("color", "red")?.revision;
    /// assert_eq!(engine.end_writes(), last);
    /// assert_eq!(engine.put("color", "blue"), Err(PutError::Refused(WriteError::Ended)));
    /// engine.resume_writes();
    /// engine.put("color", "blue")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn end_writes(&self) -> Revision {
        let mut sequencer = self.store.sequencer.lock();
        sequencer.refusal.get_or_insert(WriteError::Ended);
        self.store.current.load()
    }

    /// Takes writes again after [`end_writes`](Self::end_writes), and lets leases expire that are due.
    pub fn resume_writes(&self) {
        let resumed = self
            .store
            .sequencer
            .lock()
            .refusal
            .take_if(|it| *it == WriteError::Ended);
        if resumed.is_some() {
            self.store.lessor.resume_expiry();
            self.store.clock.recheck();
        }
    }

    /// Returns the number of steps of long writes and of their deliveries to watches since the engine was
    /// created. A step is 256 keys or changes; shorter writes have none. The number grows while such a write
    /// makes progress. One atomic read.
    ///
    /// ```
    /// # use revstore_engine::{Engine, KeyRange};
    /// let engine = Engine::builder().build();
    /// for number in 0..1_000 {
    ///     engine.put(format!("{number:03}"), "value")?;
    /// }
    /// let before = engine.progress();
    /// engine.delete(&KeyRange::all())?;
    /// assert!(engine.progress() > before);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn progress(&self) -> u64 {
        self.store.progress.steps()
    }

    /// Returns the size of the engine. Takes a few locks, one after the other, each for a look at
    /// numbers that are kept up to date, whatever the size of the store.
    ///
    /// ```
    /// # use revstore_engine::{Engine, KeyRange};
    /// let engine = Engine::builder().build();
    /// engine.put("a", "1")?;
    /// engine.put("b", "2")?;
    /// engine.delete(&KeyRange::one("a"))?;
    /// let stats = engine.stats();
    /// assert_eq!((stats.keys, stats.live_keys, stats.versions), (2, 1, 3));
    /// assert_eq!(stats.current_revision, engine.current_revision());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stats(&self) -> Stats {
        let (watches, unsynced_watches) = self.store.hub.count();
        let (snapshots, snapshot_bytes) = self.store.snapshots.totals();
        Stats {
            current_revision: self.current_revision(),
            compacted_revision: self.compacted_revision(),
            keys: self.store.index.len(),
            live_keys: self.store.index.count(&KeyRange::all()).live,
            versions: self.store.versions.get(),
            compacted_versions: self.store.compacted_versions.get(),
            history_bytes: self.history_bytes(),
            leases: self.store.lessor.count(),
            lease_counts: self.store.lessor.counts(),
            watches,
            unsynced_watches,
            snapshots,
            snapshot_bytes,
            held_back_bytes: held_back_bytes(),
        }
    }
}
