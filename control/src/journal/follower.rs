//! A reader of records as they are appended.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Filter, Journal, Record};

/// A reader of the journal. It keeps only its position: records that are dropped before it reads them are counted.
#[derive(Debug)]
pub struct Follower {
    journal: Journal,
    filter: Filter,
    /// The number of the last record that was read.
    last: u64,
    /// The records that were dropped since the last one that was returned.
    dropped: u64,
    /// The key of its waker, if it waits.
    key: Option<u64>,
}

/// A record for a follower.
#[derive(Clone, Debug, PartialEq)]
pub struct Followed {
    /// The number of records before it that were dropped because the follower did not read.
    pub dropped: u64,
    /// The record.
    pub record: Arc<Record>,
}

/// The maximum number of records that one look of a follower copies.
const RECORDS_PER_LOOK: usize = 64;

impl Follower {
    pub(super) fn new(journal: Journal, filter: Filter, last: u64) -> Self {
        Self {
            journal,
            filter,
            last,
            dropped: 0,
            key: None,
        }
    }

    /// Waits for the next record that passes the filter. Can be dropped at any time without a loss.
    pub async fn next(&mut self) -> Followed {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// Polls for the next record.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Followed> {
        loop {
            let records: Vec<_> = {
                let mut ring = self.journal.shared.ring.lock();
                let (records, dropped) = ring.after(self.last);
                let records: Vec<_> = records.take(RECORDS_PER_LOOK).cloned().collect();
                self.dropped += dropped;
                self.last += dropped;
                if records.is_empty() {
                    let previous = ring.followers.register(&mut self.key, context.waker());
                    drop(ring);
                    drop(previous);
                    return Poll::Pending;
                }
                records
            };
            for record in records {
                self.last = record.number;
                if self.filter.passes(&record) {
                    let dropped = std::mem::take(&mut self.dropped);
                    return Poll::Ready(Followed { dropped, record });
                }
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut ring = self.journal.shared.ring.lock();
        let waker = ring.followers.remove(&mut self.key);
        drop(ring);
        drop(waker);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::super::RECORDS_MAX;
    use super::*;

    fn record(method: &'static str) -> Record {
        Record {
            method,
            ..Record::default()
        }
    }

    #[test]
    fn a_follower_gets_each_record_that_passes_its_filter() {
        let journal = Journal::new();
        journal.append(record("etcdserverpb.KV/Put"));
        let filter = Filter {
            methods: vec!["Range".into()],
            ..Filter::default()
        };
        let mut follower = journal.follow(filter);
        let mut context = Context::from_waker(Waker::noop());
        assert!(follower.poll_next(&mut context).is_pending());
        journal.append(record("etcdserverpb.KV/Range"));
        journal.append(record("etcdserverpb.KV/Put"));
        journal.append(record("etcdserverpb.KV/Range"));
        for number in [2, 4] {
            let Poll::Ready(next) = follower.poll_next(&mut context) else {
                panic!("expected a record");
            };
            assert_eq!((next.record.number, next.dropped), (number, 0));
        }
        assert!(follower.poll_next(&mut context).is_pending());
    }

    #[test]
    fn a_follower_that_does_not_read_loses_the_oldest_records_and_gets_their_number() {
        let journal = Journal::new();
        let mut follower = journal.follow(Filter::default());
        for _ in 0..RECORDS_MAX + 7 {
            journal.append(record("etcdserverpb.KV/Put"));
        }
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(next) = follower.poll_next(&mut context) else {
            panic!("expected a record");
        };
        assert_eq!((next.record.number, next.dropped), (8, 7));
        let page = journal.read(&Filter::default(), 0);
        assert_eq!((page.records.len(), page.dropped), (RECORDS_MAX, 7));
        let page = journal.read(&Filter::default(), page.next);
        assert_eq!((page.records.len(), page.dropped), (0, 0));
    }
}
