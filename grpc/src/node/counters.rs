//! What was done, where the number of calls does not tell: metrics show it (HT-10).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use revstore_engine::{OpResult, TxnResult};

/// What was done since the services were made.
///
/// Puts, deletions and ranges are those inside of transactions, at any depth; what does not come in
/// a transaction is a call, and counted with the calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Puts of transactions.
    pub txn_puts: u64,
    /// Deletions of transactions, however many keys went.
    pub txn_deletes: u64,
    /// Ranges of transactions, compares not among them.
    pub txn_ranges: u64,
    /// Transactions of more than one operation: the others are what they hold.
    pub txns: u64,
    /// Events that watches were told of.
    pub watch_events: u64,
}

/// The same while it grows. All are relaxed: mere counts, which order nothing.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    txn_puts: AtomicU64,
    txn_deletes: AtomicU64,
    txn_ranges: AtomicU64,
    txns: AtomicU64,
    watch_events: AtomicU64,
}

impl Counters {
    /// Counts what a transaction did.
    pub(crate) fn add_txn(&self, done: &TxnResult) {
        let ops = Ops::of(&done.results);
        for (counter, count) in [
            (&self.txn_puts, ops.puts),
            (&self.txn_deletes, ops.deletes),
            (&self.txn_ranges, ops.ranges),
            (
                &self.txns,
                u64::from(ops.puts + ops.deletes + ops.ranges > 1),
            ),
        ] {
            // Most transactions do one thing.
            if count > 0 {
                counter.fetch_add(count, Relaxed);
            }
        }
    }

    /// Counts events that go to a client.
    pub(crate) fn add_watch_events(&self, count: usize) {
        self.watch_events.fetch_add(count as u64, Relaxed);
    }

    pub(crate) fn load(&self) -> Tally {
        Tally {
            txn_puts: self.txn_puts.load(Relaxed),
            txn_deletes: self.txn_deletes.load(Relaxed),
            txn_ranges: self.txn_ranges.load(Relaxed),
            txns: self.txns.load(Relaxed),
            watch_events: self.watch_events.load(Relaxed),
        }
    }
}

/// How many operations of each kind.
#[derive(Clone, Copy, Debug, Default)]
struct Ops {
    puts: u64,
    deletes: u64,
    ranges: u64,
}

impl Ops {
    fn of(results: &[OpResult]) -> Self {
        let mut ops = Self::default();
        ops.add(results);
        ops
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
