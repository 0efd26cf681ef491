//! The log: all kept changes in revision order, for watches, compaction and counts at old
//! revisions.

use std::ops::ControlFlow;

use super::sequence::Sequence;
use crate::history::KeyValue;
use crate::revision::{Position, Revision};
use crate::sync::{Rank, RwLock};

/// The number of records that a visit passes before it releases the lock. It is small in models,
/// so that they use more than one step.
const STEP_RECORDS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 64 };

/// The kept changes, oldest first.
///
/// - Positions strictly increase; records are appended under the sequencer.
/// - Records at or above the compacted revision are kept, so that a watch may start at the
///   compacted revision (WA-41). Compaction takes the others from the front.
/// - Appending copies a bounded number of bytes ([`Sequence`]).
#[derive(Debug)]
pub(crate) struct Log {
    /// Rank `Log`. Readers hold it for one bounded step at a time.
    records: RwLock<Sequence>,
}

impl Log {
    pub(crate) fn new() -> Self {
        Self {
            records: RwLock::new(Rank::Log, Sequence::new()),
        }
    }

    pub(crate) fn append(&self, record: KeyValue) {
        self.records.write().push(record);
    }

    /// Calls `visit` with the records from `from` to `through`, both inclusive, oldest first, until
    /// it breaks; returns the value that it breaks with.
    ///
    /// The lock is released after every [`STEP_RECORDS`] records, also within a revision, so that
    /// writers can append. A compaction may then remove records that were not visited yet. `visit`
    /// runs under the lock.
    pub(crate) fn visit<B>(
        &self,
        mut from: Position,
        through: Position,
        mut visit: impl FnMut(&KeyValue) -> ControlFlow<B>,
    ) -> Option<B> {
        loop {
            match self.visit_step(from, through, &mut visit) {
                ControlFlow::Break(broken) => return broken,
                ControlFlow::Continue(last) => from = last.next(),
            }
        }
    }

    /// Returns the first records from `from` to `through`, both inclusive, at most `max`.
    pub(crate) fn copy(&self, from: Position, through: Position, max: usize) -> Vec<KeyValue> {
        let mut copied = Vec::new();
        self.visit(from, through, |record| {
            copied.push(record.clone());
            if copied.len() < max {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        copied
    }

    /// As [`visit`](Self::visit), for one step. Continues with the position of the last record.
    fn visit_step<B>(
        &self,
        from: Position,
        through: Position,
        visit: &mut impl FnMut(&KeyValue) -> ControlFlow<B>,
    ) -> ControlFlow<Option<B>, Position> {
        let mut left = STEP_RECORDS;
        for record in self.records.read().iter_from(from) {
            if record.position() > through {
                break;
            }
            if let ControlFlow::Break(value) = visit(record) {
                return ControlFlow::Break(Some(value));
            }
            left -= 1;
            if left == 0 {
                return ControlFlow::Continue(record.position());
            }
        }
        ControlFlow::Break(None)
    }

    /// Takes out up to `limit` of the oldest records below `revision`.
    pub(crate) fn take_below(&self, revision: Revision, limit: usize) -> Vec<KeyValue> {
        let mut taken = Vec::new();
        let mut records = self.records.write();
        let below = records.count_through(revision.previous().end(), limit);
        records.take_front(below, &mut taken);
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::{Log, STEP_RECORDS};
    use crate::history::{Entry, KeyValue};
    use crate::revision::{Position, Revision};

    /// About the number of records in one leaf of a sequence.
    const MANY_RECORDS: i64 = 255;

    fn log(revisions: impl Iterator<Item = i64>) -> Log {
        let log = Log::new();
        for revision in revisions {
            log.append(KeyValue::tombstone(
                Entry::new(b"k"),
                Revision(revision).start(),
            ));
        }
        log
    }

    fn read(log: &Log, from: Position, through: Position) -> Vec<i64> {
        let mut seen = Vec::new();
        let done: Option<()> = log.visit(from, through, |record| {
            seen.push(record.mod_revision().0);
            ControlFlow::Continue(())
        });
        assert!(done.is_none());
        seen
    }

    #[test]
    fn visit_returns_records_in_order_across_leaves() {
        let last = 3 * MANY_RECORDS;
        let log = log(2..=last);
        let (from, through) = (Revision(MANY_RECORDS - 1), Revision(last - 1));
        let expected: Vec<i64> = (from.0..=through.0).collect();
        assert_eq!(read(&log, from.start(), through.end()), expected);
        assert!(read(&log, Revision(last + 1).start(), Revision(last + 9).end()).is_empty());
    }

    /// A reader of one large revision once held the lock for all of it.
    #[test]
    fn a_step_of_a_visit_is_bounded_within_a_revision() {
        let log = Log::new();
        let position = |sub| Position {
            revision: Revision(2),
            sub,
        };
        let subs = 0..3 * u32::try_from(STEP_RECORDS).unwrap();
        for sub in subs.clone() {
            log.append(KeyValue::tombstone(Entry::new(b"k"), position(sub)));
        }
        let mut seen = Vec::new();
        let mut visit = |record: &KeyValue| -> ControlFlow<()> {
            seen.push(record.position().sub);
            ControlFlow::Continue(())
        };
        let step = log.visit_step(position(0), Revision(2).end(), &mut visit);
        let last = u32::try_from(STEP_RECORDS - 1).unwrap();
        assert_eq!(step, ControlFlow::Continue(position(last)));
        assert_eq!(seen.len(), STEP_RECORDS);
        seen.clear();
        let all = log.visit(
            position(0),
            Revision(2).end(),
            |record| -> ControlFlow<()> {
                seen.push(record.position().sub);
                ControlFlow::Continue(())
            },
        );
        assert!(all.is_none() && seen.into_iter().eq(subs));
    }

    #[test]
    fn wa_41_records_at_the_compacted_revision_are_kept() {
        let log = log([2, 3, 5, 8].into_iter());
        let taken: Vec<i64> = log
            .take_below(Revision(5), 9)
            .iter()
            .map(|kv| kv.mod_revision().0)
            .collect();
        assert_eq!(taken, [2, 3]);
        assert_eq!(read(&log, Revision(0).start(), Revision(9).end()), [5, 8]);
    }

    #[test]
    fn take_below_stops_at_the_limit_and_continues_there() {
        let log = log(2..2 + 2 * MANY_RECORDS);
        let compacted = Revision(2 + MANY_RECORDS + 1);
        let mut total = 0;
        while let taken @ 1.. = log.take_below(compacted, 7).len() {
            assert!(taken <= 7);
            total += taken;
        }
        assert_eq!(total, 256);
    }
}
