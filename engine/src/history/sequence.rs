//! Sequences: records in revision order, added at the end and taken from the front.

use crate::history::KeyValue;
use crate::memory::List;
use crate::revision::Position;

/// The smallest and the largest growth of a full sequence, in records; between them it grows by an
/// eighth. So a push takes amortized constant time for all but very long sequences, and unused
/// capacity takes less memory than the headers of the records.
const GROWTH: (usize, usize) = (2, 512);

/// Records, oldest first. An empty sequence takes one word.
///
/// Taken records leave holes at the front. The holes are removed when they are half of the
/// sequence, so taking n records takes amortized time proportional to n.
#[derive(Debug)]
pub(crate) struct Sequence(List<Option<KeyValue>>);

impl Default for Sequence {
    fn default() -> Self {
        Self::new()
    }
}

impl Sequence {
    /// Creates an empty sequence, without an allocation.
    pub(crate) const fn new() -> Self {
        Self(List::new())
    }

    pub(crate) fn with_capacity(records: usize) -> Self {
        Self(List::with_capacity(records))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether a push would allocate.
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() == self.0.capacity()
    }

    pub(crate) fn push(&mut self, record: KeyValue) {
        let len = self.0.len();
        if self.is_full() {
            let growth = match len {
                0 => 1,
                len => (len / 8).clamp(GROWTH.0, GROWTH.1),
            };
            self.0.set_capacity(len + growth);
        }
        self.0.push(Some(record));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &KeyValue> {
        self.0.iter().flatten()
    }

    /// Returns the records at or after `from`.
    pub(crate) fn iter_from(&self, from: Position) -> impl Iterator<Item = &KeyValue> {
        let before = self.partition_point(|record| record.position() < from);
        self.0[before..].iter().flatten()
    }

    pub(crate) fn last(&self) -> Option<&KeyValue> {
        self.0.last()?.as_ref()
    }

    /// Returns the newest record at or before `at`, in logarithmic time.
    pub(crate) fn at(&self, at: Position) -> Option<&KeyValue> {
        let end = self.partition_point(|record| record.position() <= at);
        self.0[..end].last()?.as_ref()
    }

    /// Returns the number of records at or before `through`.
    pub(crate) fn count_through(&self, through: Position) -> usize {
        self.partition_point(|record| record.position() <= through) - self.holes()
    }

    /// Returns the record at `index`, counted from the oldest.
    pub(crate) fn get(&self, index: usize) -> Option<&KeyValue> {
        self.0.get(self.holes() + index)?.as_ref()
    }

    /// Moves the oldest `count` records to `taken`.
    pub(crate) fn take_front(&mut self, count: usize, taken: &mut Vec<KeyValue>) {
        let holes = self.holes();
        let len = self.0.len();
        let closed = (holes + count).min(len);
        taken.extend(self.0[holes..closed].iter_mut().filter_map(Option::take));
        if closed == len || closed * 2 >= len && closed > holes {
            self.0.remove_front(closed);
            self.0.set_capacity(0);
        }
    }

    /// Returns the number of holes.
    fn holes(&self) -> usize {
        self.0.partition_point(Option::is_none)
    }

    fn partition_point(&self, is_before: impl Fn(&KeyValue) -> bool) -> usize {
        self.0
            .partition_point(|record| record.as_ref().is_none_or(&is_before))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Sequence;
    use crate::history::{Entry, KeyValue};
    use crate::revision::Revision;

    #[test]
    fn searches_find_the_records_that_were_not_taken() {
        let entry = Entry::new(b"k");
        let mut sequence = Sequence::new();
        let mut plain: Vec<i64> = Vec::new();
        for round in 1..400_i64 {
            sequence.push(KeyValue::tombstone(
                entry.clone(),
                Revision(round * 2).start(),
            ));
            plain.push(round * 2);
            if round % 3 == 0 {
                let count = usize::try_from(round % 13).expect("a small number");
                let mut taken = Vec::new();
                sequence.take_front(count, &mut taken);
                let expected: Vec<i64> = plain.drain(..count.min(plain.len())).collect();
                let taken: Vec<i64> = taken.iter().map(|kv| kv.mod_revision().0).collect();
                assert_eq!(taken, expected);
            }
            let all: Vec<i64> = sequence.iter().map(|kv| kv.mod_revision().0).collect();
            assert_eq!(all, plain);
            assert_eq!(
                sequence.last().map(|kv| kv.mod_revision().0),
                plain.last().copied()
            );
            for revision in [round - 9, round, round * 2 - 5, round * 2, round * 2 + 1] {
                let through = plain.partition_point(|other| *other <= revision);
                let at = Revision(revision).end();
                assert_eq!(sequence.count_through(at), through);
                let found = sequence.at(at).map(|kv| kv.mod_revision().0);
                assert_eq!(found, through.checked_sub(1).map(|last| plain[last]));
                let from = sequence.iter_from(at).map(|kv| kv.mod_revision().0);
                assert_eq!(from.collect::<Vec<_>>(), plain[through..]);
            }
        }
    }
}
