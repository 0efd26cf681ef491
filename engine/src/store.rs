//! The store: everything that the threads of one engine share.

use crate::clock::Clock;
use crate::compaction::Duties;
use crate::compaction::Pins;
use crate::fault::{Fault, Faults};
use crate::history::Log;
use crate::index::Index;
use crate::lease::Lessor;
use crate::options::Options;
use crate::revision::{CompactedRevision, CurrentRevision};
use crate::sync::{Arc, AtomicU64, Mutex, Ordering, Rank};
use crate::txn::Committed;
use crate::watch::Hub;

#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) current: CurrentRevision,
    pub(crate) compacted: CompactedRevision,
    pub(crate) index: Index,
    pub(crate) log: Log,
    /// Rank `Sequencer`. Guards the right to change the store: numbering, linking, publishing. Held
    /// for the compares and writes of one transaction, never while values are copied or what a
    /// client asked for is read.
    pub(crate) sequencer: Mutex<()>,
    pub(crate) pins: Pins,
    /// Rank `Compaction`. One removal at a time.
    pub(crate) compaction: Mutex<()>,
    pub(crate) lessor: Lessor,
    pub(crate) hub: Hub,
    pub(crate) duties: Duties,
    pub(crate) history_bytes: Tally,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) faults: Faults,
}

impl Store {
    pub(crate) fn new(options: Options, clock: Arc<dyn Clock>) -> Self {
        let now = clock.now();
        Self {
            current: CurrentRevision::new(options.start_revision),
            compacted: CompactedRevision::of_empty_store(options.start_revision),
            index: Index::new(options.faults),
            log: Log::new(),
            sequencer: Mutex::new(Rank::Sequencer, ()),
            pins: Pins::new(),
            compaction: Mutex::new(Rank::Compaction, ()),
            lessor: Lessor::new(options.lease_ttl_min),
            hub: Hub::new(options.start_revision),
            duties: Duties::new(&options, now),
            history_bytes: Tally::new(),
            clock,
            faults: options.faults,
        }
    }

    /// Ends a lease: deletes its keys, in key order and at one revision (LE-5, LE-6).
    pub(crate) fn revoke(&self, lease: crate::LeaseId) -> Result<Committed<()>, crate::LeaseError> {
        let early = self
            .faults
            .has(Fault::RevokeEarly)
            .then(|| self.lessor.remove(lease));
        self.commit(|writer| {
            // Under the sequencer, so that a put that moves a key to another lease comes before or
            // after as a whole (LE-7).
            for key in early.unwrap_or_else(|| self.lessor.remove(lease))? {
                writer.delete(&crate::KeyRange::One(bytes::Bytes::copy_from_slice(
                    key.key(),
                )));
            }
            Ok(())
        })
    }
}

/// A number that is only added to and taken from.
#[derive(Debug)]
pub(crate) struct Tally(AtomicU64);

impl Tally {
    fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    // Relaxed: the number orders nothing; whoever acts on it takes a lock first.
    pub(crate) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self, amount: u64) {
        self.0.fetch_sub(amount, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
