//! The store: the state that all handles and threads of one engine share.

use std::borrow::Cow;

use crate::compaction::{Compactor, Holds, Pins, Snapshots};
use crate::error::WriteError;
use crate::fault::{Faults, on_fault};
use crate::history::{Entry, KeyValue, Log};
use crate::index::Index;
use crate::lease::Lessor;
use crate::options::Options;
use crate::revision::{CompactedRevision, CurrentRevision, Position, Revision};
use crate::sync::epoch::CachePadded;
use crate::sync::{Arc, AtomicU64, Mutex, MutexGuard, Ordering, Rank};
use crate::time::Clock;
use crate::watch::{Deadlines, Hub};

/// The state that all threads of one engine share; etcd's mvcc `store` and `watchableStore`.
#[derive(Debug)]
pub(crate) struct Store {
    /// Written by each commit, and read by each read: apart from the fields that only writers use.
    pub(crate) current: CachePadded<CurrentRevision>,
    pub(crate) compacted: CompactedRevision,
    pub(crate) index: Index,
    pub(crate) log: Log,
    /// Rank `Sequencer`. Guards the right to change the store: to number, store and publish. Held
    /// for the compares and writes of one transaction, never while a value is copied or a range
    /// for a client is read.
    pub(crate) sequencer: CachePadded<Mutex<Sequencer>>,
    pub(crate) pins: Pins,
    pub(crate) holds: Holds,
    pub(crate) snapshots: Snapshots,
    /// Rank `Compaction`. Guards the right to remove history.
    pub(crate) compaction: Mutex<()>,
    pub(crate) lessor: Lessor,
    pub(crate) hub: Hub,
    pub(crate) deadlines: Deadlines,
    pub(crate) compactor: Compactor,
    pub(crate) history_bytes: CachePadded<Counter>,
    /// The number of kept versions.
    pub(crate) versions: Counter,
    /// The number of versions that compactions have removed.
    pub(crate) compacted_versions: Counter,
    /// The bytes of these versions.
    pub(crate) compacted_bytes: Counter,
    pub(crate) progress: Progress,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) faults: Faults,
    /// The options that the store was created with.
    pub(crate) options: Options,
    /// The last position whose records this store shares with the one that it was forked from. The
    /// entries that these records refer to belong to another store.
    pub(crate) shared_through: Position,
}

impl Store {
    pub(crate) fn new(options: Options, clock: Arc<dyn Clock>) -> Self {
        let now = clock.now();
        Self {
            current: CachePadded::new(CurrentRevision::new(options.start_revision)),
            compacted: CompactedRevision::of_empty_store(options.start_revision),
            index: Index::new(options.faults),
            log: Log::new(),
            sequencer: CachePadded::new(Mutex::new(Rank::Sequencer, Sequencer::default())),
            pins: Pins::new(),
            holds: Holds::new(),
            snapshots: Snapshots::new(options.snapshots_max, options.snapshot_bytes_max),
            compaction: Mutex::new(Rank::Compaction, ()),
            lessor: Lessor::new(options.lease_ttl_min),
            hub: Hub::new(options.start_revision, options.progress_interval),
            deadlines: Deadlines::new(),
            compactor: Compactor::new(options.auto_compaction, now),
            history_bytes: CachePadded::new(Counter::new()),
            versions: Counter::new(),
            compacted_versions: Counter::new(),
            compacted_bytes: Counter::new(),
            progress: Progress(Counter::new()),
            clock,
            faults: options.faults,
            options,
            shared_through: Position::FIRST,
        }
    }

    /// Returns the entry of this store with the key of a record of its log; `None` if a compaction has
    /// removed it.
    pub(crate) fn entry_of<'a>(&self, record: &'a KeyValue) -> Option<Cow<'a, Entry>> {
        if record.position() <= self.shared_through {
            return self.index.get(record.key()).map(Cow::Owned);
        }
        Some(Cow::Borrowed(record.entry()))
    }

    /// Locks the sequencer; returns the current revision, which the holder continues from.
    pub(crate) fn lock_sequencer(
        &self,
    ) -> Result<(MutexGuard<'_, Sequencer>, Revision), WriteError> {
        let mut sequencer = self.sequencer.lock();
        if let Some(refusal) = sequencer.refusal {
            return Err(refusal);
        }
        // I1: read under the lock, so that no two writers continue from the same revision.
        let current = self.current.load();
        on_fault!(self.faults, NumberOutsideSequencer, {
            drop(sequencer);
            sequencer = self.sequencer.lock();
        });
        on_fault!(
            self.faults,
            PublishFirst,
            self.current.publish(current.next())
        );
        if current >= Revision::LAST {
            return Err(WriteError::RevisionsExhausted);
        }
        Ok((sequencer, current))
    }
}

/// The state that the sequencer guards besides the right to change the store.
#[derive(Debug, Default)]
pub(crate) struct Sequencer {
    /// Why there are no further writes. [`WriteError::Damaged`] stays: a writer ended between its first change and
    /// publishing. The records of that writer are stored under the next revision, which must therefore never be
    /// published.
    pub(crate) refusal: Option<WriteError>,
}

/// The number of keys and changes of a write, or of its delivery, that make one step of progress.
const PROGRESS_KEYS: usize = 256;

/// The steps of the writes and deliveries that hold the locks for long. Short ones do not write to it.
#[derive(Debug)]
pub(crate) struct Progress(Counter);

impl Progress {
    /// Records that a write or a delivery has processed this number of keys or changes.
    #[inline]
    pub(crate) fn record(&self, processed: usize) {
        if processed % PROGRESS_KEYS == PROGRESS_KEYS - 1 {
            self.0.add(1);
        }
    }

    pub(crate) fn steps(&self) -> u64 {
        self.0.get()
    }
}

/// A number that many threads add to and subtract from.
#[derive(Debug)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    // Relaxed in all three: no other access depends on the order of these. A thread that uses the
    // number takes a lock first.

    pub(crate) fn add(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self, number: u64) {
        self.0.fetch_sub(number, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
