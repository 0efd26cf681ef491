//! The log: every change in revision order, shared by all who follow the store.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use super::sequence::Sequence;
use crate::history::KeyValue;
use crate::revision::{Position, Revision};
use crate::sync::{Rank, RwLock};

/// Records in one segment: what a slot of the pool has room for. Small under loom, so that models cross a boundary.
const SEGMENT_RECORDS: usize = if cfg!(loom) { 2 } else { 255 };

/// The kept changes, oldest first.
///
/// - Positions strictly increase; only the holder of the sequencer appends.
/// - Records at or above the compacted revision are kept, so that a watch may start at the mark
///   itself (WA-41); compaction takes the rest from the front.
/// - Segments never move, so appending costs the same however long the log is.
#[derive(Debug)]
pub(crate) struct Log {
    /// Rank `Log`. Readers hold it for one bounded step at a time.
    segments: RwLock<VecDeque<Sequence>>,
}

impl Log {
    pub(crate) fn new() -> Self {
        Self {
            segments: RwLock::new(Rank::Log, VecDeque::new()),
        }
    }

    pub(crate) fn append(&self, record: KeyValue) {
        let mut segments = self.segments.write();
        match segments.back_mut() {
            Some(last) if !last.is_full() => last.push(record),
            _ => {
                let mut segment = Sequence::with_capacity(SEGMENT_RECORDS);
                segment.push(record);
                segments.push_back(segment);
            }
        }
    }

    /// Shows the records from `from` through `through`, oldest first, until `visit` breaks.
    ///
    /// The lock is held all the while: `visit` must be quick and bound how much it takes.
    pub(crate) fn visit<B>(
        &self,
        from: Position,
        through: Position,
        mut visit: impl FnMut(&KeyValue) -> ControlFlow<B>,
    ) -> Option<B> {
        let segments = self.segments.read();
        let first = segments.partition_point(|segment| ends_below(segment, from));
        for segment in segments.range(first..) {
            for record in segment.iter_from(from) {
                if record.position() > through {
                    return None;
                }
                if let ControlFlow::Break(value) = visit(record) {
                    return Some(value);
                }
            }
        }
        None
    }

    /// Takes up to `limit` of the oldest records that lie below `mark`.
    pub(crate) fn take_below(&self, mark: Revision, limit: usize) -> Vec<KeyValue> {
        let mut taken = Vec::new();
        let mut segments = self.segments.write();
        while let Some(oldest) = segments.front_mut() {
            let below = oldest.count_through(mark.previous().end());
            oldest.take_front(below.min(limit - taken.len()), &mut taken);
            if !oldest.is_empty() {
                break;
            }
            segments.pop_front();
        }
        taken
    }
}

fn ends_below(segment: &Sequence, from: Position) -> bool {
    segment.last().is_none_or(|last| last.position() < from)
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::Log;
    use crate::history::{Entry, KeyValue};
    use crate::revision::{Position, Revision};

    #[expect(clippy::cast_possible_wrap, reason = "a small constant")]
    const SEGMENT_RECORDS: i64 = super::SEGMENT_RECORDS as i64;

    fn log(revisions: impl Iterator<Item = i64>) -> Log {
        let log = Log::new();
        for main in revisions {
            log.append(KeyValue::tombstone(
                Entry::new(b"k"),
                Revision(main).start(),
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
    fn records_come_back_in_order_across_segments() {
        let last = 3 * SEGMENT_RECORDS;
        let log = log(2..=last);
        let (from, through) = (Revision(SEGMENT_RECORDS - 1), Revision(last - 1));
        let expected: Vec<i64> = (from.0..=through.0).collect();
        assert_eq!(read(&log, from.start(), through.end()), expected);
        assert!(read(&log, Revision(last + 1).start(), Revision(last + 9).end()).is_empty());
    }

    #[test]
    fn wa_41_what_lies_at_the_mark_stays() {
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
    fn taking_stops_at_the_limit_and_goes_on_where_it_stopped() {
        let log = log(2..2 + 2 * SEGMENT_RECORDS);
        let mark = Revision(2 + SEGMENT_RECORDS + 1);
        let mut total = 0;
        while let taken @ 1.. = log.take_below(mark, 7).len() {
            assert!(taken <= 7);
            total += taken;
        }
        assert_eq!(total, super::SEGMENT_RECORDS + 1);
    }
}
