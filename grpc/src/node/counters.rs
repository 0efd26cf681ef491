//! Counters of operations in transactions and of watch events, for metrics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use revstore_engine::{OpResult, TxnResult};

/// The operations executed and the events sent since the services were created.
///
/// Operations are counted at every depth of a transaction. Puts, deletions and ranges outside of a
/// transaction are not counted here, but as calls.
// HT-10
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpCounters {
    /// The number of puts in transactions.
    pub txn_puts: u64,
    /// The number of deletions in transactions. A deletion of many keys counts once.
    pub txn_deletes: u64,
    /// The number of ranges in transactions, without compares.
    pub txn_ranges: u64,
    /// The number of transactions with more than one operation.
    pub txns: u64,
    /// The number of watch events sent.
    pub watch_events: u64,
}

/// The counters of the services. All accesses are relaxed: they do not order other memory accesses.
#[derive(Debug, Default)]
pub(crate) struct AtomicCounters {
    txn_puts: AtomicU64,
    txn_deletes: AtomicU64,
    txn_ranges: AtomicU64,
    txns: AtomicU64,
    watch_events: AtomicU64,
}

impl AtomicCounters {
    /// Counts the operations of a transaction.
    pub(crate) fn add_txn(&self, result: &TxnResult) {
        let ops = OpCounts::of(&result.results);
        for (counter, count) in [
            (&self.txn_puts, ops.puts),
            (&self.txn_deletes, ops.deletes),
            (&self.txn_ranges, ops.ranges),
            (
                &self.txns,
                u64::from(ops.puts + ops.deletes + ops.ranges > 1),
            ),
        ] {
            // Most transactions have one kind of operation.
            if count > 0 {
                counter.fetch_add(count, Relaxed);
            }
        }
    }

    /// Counts events that are sent to a client.
    pub(crate) fn add_watch_events(&self, count: usize) {
        self.watch_events.fetch_add(count as u64, Relaxed);
    }

    pub(crate) fn load(&self) -> OpCounters {
        OpCounters {
            txn_puts: self.txn_puts.load(Relaxed),
            txn_deletes: self.txn_deletes.load(Relaxed),
            txn_ranges: self.txn_ranges.load(Relaxed),
            txns: self.txns.load(Relaxed),
            watch_events: self.watch_events.load(Relaxed),
        }
    }
}

/// The number of executed operations of each kind.
#[derive(Clone, Copy, Debug, Default)]
struct OpCounts {
    puts: u64,
    deletes: u64,
    ranges: u64,
}

impl OpCounts {
    fn of(results: &[OpResult]) -> Self {
        let mut counts = Self::default();
        counts.add(results);
        counts
    }

    fn add(&mut self, results: &[OpResult]) {
        for result in results {
            match result {
                OpResult::Range(_) => self.ranges += 1,
                OpResult::Put(_) => self.puts += 1,
                OpResult::Delete(_) => self.deletes += 1,
                OpResult::Txn(inner) => self.add(&inner.results),
            }
        }
    }
}
