//! The log: all kept changes in revision order, for watches, compaction and counts at old
//! revisions.

use std::ops::ControlFlow;

use super::entry::Removed;
use super::sequence::{NewSequence, Sequence, SequenceWriter, Slice};
use crate::history::KeyValue;
use crate::revision::{Position, Revision};
use crate::sync::epoch::{Guard, pin};
use crate::sync::{Mutex, Rank};

/// The kept changes, oldest first.
///
/// - Positions strictly increase; records are appended under the sequencer.
/// - Records at or above the compacted revision are kept, so that a watch may start at the
///   compacted revision (WA-41). Compaction takes the others from the front.
/// - Readers need a pin, and no lock. Appending copies a bounded number of bytes ([`Sequence`]).
#[derive(Debug)]
pub(crate) struct Log {
    records: Sequence,
    /// Rank `Log`. The right to append and to take. Held for one record, or for one step of a
    /// compaction.
    writer: Mutex<SequenceWriter>,
}

impl Log {
    pub(crate) fn new() -> Self {
        let (records, writer) = Sequence::new();
        Self {
            records,
            writer: Mutex::new(Rank::Log, writer),
        }
    }

    /// Returns a log of a sequence that was built.
    pub(crate) fn of(records: NewSequence) -> Self {
        let (records, writer) = records.finish();
        Self {
            records,
            writer: Mutex::new(Rank::Log, writer),
        }
    }

    pub(crate) fn append(&self, record: KeyValue, guard: &Guard) {
        self.records.push(&mut self.writer.lock(), record, guard);
    }

    /// Calls `visit` with the records from `from` to `through`, both inclusive, oldest first, until
    /// it breaks; returns the value that it breaks with.
    ///
    /// Each pin lasts for the records of at most one leaf of the sequence. Between two pins, a
    /// compaction may remove records that were not visited yet.
    pub(crate) fn visit<B>(
        &self,
        mut from: Position,
        through: Position,
        mut visit: impl FnMut(&KeyValue) -> ControlFlow<B>,
    ) -> Option<B> {
        loop {
            let guard = pin();
            let Slice { records, is_last } = self.records.slice_from(from, &guard);
            for record in records {
                if record.position() > through {
                    return None;
                }
                if let ControlFlow::Break(value) = visit(record) {
                    return Some(value);
                }
            }
            if is_last {
                return None;
            }
            from = records.last()?.position().next();
        }
    }

    /// Divides the records from `from` to `through`, both inclusive, into about `parts` parts, in order. Returns the first
    /// and the last position of each; there is at least one.
    pub(crate) fn parts(
        &self,
        from: Position,
        through: Position,
        parts: usize,
    ) -> Vec<(Position, Position)> {
        let mut divided = Vec::new();
        let mut start = from;
        for bound in self.records.bounds(parts, &pin()) {
            if start < bound && bound <= through {
                divided.push((start, bound.previous()));
                start = bound;
            }
        }
        divided.push((start, through));
        divided
    }

    /// Returns some of the records from `from` to `through`, both inclusive, and whether they are the
    /// last ones: the records of one leaf.
    pub(crate) fn slice<'g>(
        &'g self,
        from: Position,
        through: Position,
        guard: &'g Guard,
    ) -> (&'g [KeyValue], bool) {
        let Slice { records, is_last } = self.records.slice_from(from, guard);
        // Mostly all of them are. A search would wait for the cache misses of records one after the other.
        if records.last().is_none_or(|last| last.position() <= through) {
            return (records, is_last);
        }
        let end = records.partition_point(|record| record.position() <= through);
        (&records[..end], true)
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

    /// Takes out up to `limit` of the oldest records below `revision`.
    pub(crate) fn take_below(&self, revision: Revision, limit: usize) -> Removed {
        let mut taken = Removed::default();
        let guard = pin();
        let mut writer = self.writer.lock();
        let through = revision.previous().end();
        let below = self.records.count_through(through, limit, &guard);
        self.records
            .take_front(&mut writer, below, &mut taken, &guard);
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::Log;
    use crate::history::{Entry, KeyValue};
    use crate::revision::{Position, Revision};
    use crate::sync::epoch::pin;

    /// About the number of records in one leaf of a sequence.
    const MANY_RECORDS: i64 = 255;

    fn log(revisions: impl Iterator<Item = i64>) -> Log {
        let log = Log::new();
        for revision in revisions {
            let record = KeyValue::tombstone(Entry::new(b"k"), Revision(revision).start());
            log.append(record, &pin());
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
