//! The journal: the last requests, and what happened to streams.

mod follower;
mod kept;
mod record;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::waker_set::WakerSet;

pub use follower::{Followed, Follower};
pub use kept::{
    KEPT_BYTES_MAX, KeptAnswer, KeptBody, KeptHttp, KeptRequest, LeftOut, status_message,
};
pub use record::{EndReason, Event, Filter, Outcome, Record};

/// The maximum number of records. The oldest are dropped.
pub const RECORDS_MAX: usize = 10_000;

/// The maximum memory of all records together. The oldest are dropped.
pub const RECORD_BYTES_MAX: usize = 16 << 20;

/// The journal of a server. Clones share it.
///
/// Records are numbered from 1 on, without a gap. A reader that is slower than the journal misses the oldest, and gets
/// their number; it costs no memory.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// A leaf lock: held to append or to copy records. No waker is called under it.
    ring: Mutex<Ring>,
    /// The number of replacements of the store. Relaxed: the lock of the server's current store orders a replacement
    /// before the requests to the new store.
    stores: AtomicU64,
}

#[derive(Debug, Default)]
struct Ring {
    records: VecDeque<Arc<Record>>,
    bytes: usize,
    /// The number of the last record.
    last: u64,
    followers: WakerSet,
}

/// Records of the journal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The records, in ascending order.
    pub records: Vec<Arc<Record>>,
    /// The number of records that were dropped before they could be read.
    pub dropped: u64,
    /// The number of the last record that was looked at: the next page starts after it.
    pub next: u64,
}

impl Ring {
    /// Returns the number of the oldest record that is kept.
    fn first(&self) -> u64 {
        self.last + 1 - self.records.len() as u64
    }

    /// Returns the records after a number, and how many of them were dropped.
    fn after(&self, number: u64) -> (impl Iterator<Item = &Arc<Record>>, u64) {
        let dropped = self.first().saturating_sub(number.saturating_add(1));
        let skipped = number.saturating_add(1).saturating_sub(self.first());
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        (self.records.iter().skip(skipped), dropped)
    }
}

impl Journal {
    /// Creates an empty journal.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a record, whose number is set.
    pub fn append(&self, mut record: Record) {
        let wakers = {
            let mut ring = self.shared.ring.lock();
            ring.last += 1;
            record.number = ring.last;
            ring.bytes += record.bytes();
            ring.records.push_back(Arc::new(record));
            while ring.records.len() > RECORDS_MAX || ring.bytes > RECORD_BYTES_MAX {
                let Some(dropped) = ring.records.pop_front() else {
                    break;
                };
                ring.bytes -= dropped.bytes();
            }
            ring.followers.take()
        };
        wakers.for_each(std::task::Waker::wake);
    }

    /// Counts a replacement of the store, so that the requests to the two stores can be told apart.
    pub fn store_replaced(&self) {
        self.shared.stores.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of replacements of the store.
    pub fn store(&self) -> u64 {
        self.shared.stores.load(Ordering::Relaxed)
    }

    /// Returns the records after the one with this number (0 for all) that pass the filter.
    pub fn read(&self, filter: &Filter, after: u64) -> Page {
        let (kept, dropped, next) = {
            let ring = self.shared.ring.lock();
            let (records, dropped) = ring.after(after);
            let kept: Vec<_> = records.cloned().collect();
            (kept, dropped, ring.last.max(after))
        };
        Page {
            records: kept.into_iter().filter(|it| filter.passes(it)).collect(),
            dropped,
            next,
        }
    }

    /// Returns the first records after the one with the number `after` up to the one with the number `until` that pass the
    /// filter. Looks at `max` of them at most.
    pub fn page(&self, filter: &Filter, after: u64, until: u64, max: usize) -> Page {
        let (kept, dropped) = {
            let ring = self.shared.ring.lock();
            let (records, dropped) = ring.after(after);
            let records = records.take(max).filter(|it| it.number <= until);
            (records.cloned().collect::<Vec<_>>(), dropped)
        };
        Page {
            next: kept.last().map_or(until, |last| last.number),
            records: kept.into_iter().filter(|it| filter.passes(it)).collect(),
            dropped: dropped.min(until.saturating_sub(after)),
        }
    }

    /// Returns a reader of the records that are appended from now on.
    pub fn follow(&self, filter: Filter) -> Follower {
        let last = self.shared.ring.lock().last;
        Follower::new(self.clone(), filter, last)
    }

    /// Returns the number of the last record.
    pub fn last(&self) -> u64 {
        self.shared.ring.lock().last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_requests_count_in_the_memory_of_the_journal() {
        let journal = Journal::new();
        let body = vec![0; KEPT_BYTES_MAX];
        for _ in 0..2 * RECORD_BYTES_MAX / KEPT_BYTES_MAX {
            let request = KeptRequest {
                body: KeptBody::copy_of(&body),
                ..KeptRequest::default()
            };
            journal.append(Record {
                request: Some(Box::new(request)),
                ..Record::default()
            });
            assert!(journal.shared.ring.lock().bytes <= RECORD_BYTES_MAX);
        }
        let page = journal.read(&Filter::default(), 0);
        let kept = RECORD_BYTES_MAX / KEPT_BYTES_MAX;
        assert!((kept / 2..kept).contains(&page.records.len()));
        assert_eq!(page.dropped + page.records.len() as u64, page.next);
    }
}
