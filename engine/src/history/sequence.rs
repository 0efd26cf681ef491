//! Sequences: records in revision order, added at the end and taken from the front.

use std::slice;

use crate::history::KeyValue;
use crate::memory::List;
use crate::revision::Position;

/// The maximum number of records in one leaf, which then fills one slot of the pool.
const LEAF_RECORDS: usize = if cfg!(loom) { 2 } else { 255 };
/// The maximum number of children of an inner node.
const CHILDREN_MAX: usize = if cfg!(loom) { 2 } else { 128 };
/// The maximum height of a sequence, enough for 2^32 records, and under loom for those of a model.
const HEIGHT_MAX: usize = if cfg!(loom) { 8 } else { 5 };
/// The smallest growth of the first leaf, in records. It grows by an eighth, so that its unused
/// capacity takes less memory than the headers of the records.
const GROWTH_MIN: usize = 2;

/// Records, oldest first. An empty sequence takes two words and no allocation.
///
/// A tree whose leaves contain the records. A push copies at most one leaf and one list of children,
/// together less than 4 KiB, whatever the length. A search takes time logarithmic in the length.
/// Taken records leave holes at the front of a leaf, which are removed when they are half of it, so
/// taking n records takes amortized time proportional to n.
#[derive(Debug)]
pub(crate) struct Sequence(Node);

/// A node. Only the root can be empty, and then it is a leaf.
#[derive(Debug)]
enum Node {
    Leaf(List<Option<KeyValue>>),
    Inner(List<Node>),
}

impl Default for Sequence {
    fn default() -> Self {
        Self::new()
    }
}

impl Sequence {
    /// Creates an empty sequence, without an allocation.
    pub(crate) const fn new() -> Self {
        Self(Node::Leaf(List::new()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first().is_none()
    }

    pub(crate) fn push(&mut self, record: KeyValue) {
        let Err(record) = self.0.push(record) else {
            return;
        };
        let full = std::mem::replace(&mut self.0, Node::Leaf(List::new()));
        let right = full.sibling(record);
        let mut children = List::with_capacity(2);
        children.push(full);
        children.push(right);
        self.0 = Node::Inner(children);
    }

    pub(crate) fn iter(&self) -> RecordIter<'_> {
        let mut iter = RecordIter::default();
        iter.descend(&self.0, |_| 0, |_| 0);
        iter
    }

    /// Returns the records at or after `from`.
    pub(crate) fn iter_from(&self, from: Position) -> RecordIter<'_> {
        let mut iter = RecordIter::default();
        iter.descend(
            &self.0,
            |children| children_before(children, |position| position < from).saturating_sub(1),
            |records| records_before(records, |position| position < from),
        );
        iter
    }

    pub(crate) fn first(&self) -> Option<&KeyValue> {
        self.0.first()
    }

    /// Returns the newest record at or before `at`, in logarithmic time.
    pub(crate) fn at(&self, at: Position) -> Option<&KeyValue> {
        let mut node = &self.0;
        loop {
            match node {
                Node::Leaf(records) => {
                    let end = records_before(records, |position| position <= at);
                    return records[..end].last()?.as_ref();
                }
                Node::Inner(children) => {
                    let end = children_before(children, |position| position <= at);
                    node = &children[end.checked_sub(1)?];
                }
            }
        }
    }

    /// Returns the number of records at or before `through`, or `max` if there are more.
    pub(crate) fn count_through(&self, through: Position, max: usize) -> usize {
        let records = self.iter().take(max);
        records
            .take_while(|record| record.position() <= through)
            .count()
    }

    /// Moves the oldest `count` records to `taken`.
    pub(crate) fn take_front(&mut self, mut count: usize, taken: &mut Vec<KeyValue>) {
        self.0.take_front(&mut count, taken);
        // A root with one child is replaced by the child.
        while let Node::Inner(children) = &mut self.0 {
            if children.len() > 1 {
                break;
            }
            let only = children.pop_front();
            self.0 = only.unwrap_or(Node::Leaf(List::new()));
        }
    }
}

impl Node {
    /// Adds a record at the end, unless the node is full. Then returns the record.
    fn push(&mut self, record: KeyValue) -> Result<(), KeyValue> {
        match self {
            Self::Leaf(records) => {
                let len = records.len();
                if len == LEAF_RECORDS {
                    return Err(record);
                }
                if len == records.capacity() {
                    // Only the first leaf, because most sequences are short, and one that was taken
                    // from: others have their full capacity from the start.
                    let growth = if len == 0 {
                        1
                    } else {
                        (len / 8).max(GROWTH_MIN)
                    };
                    records.set_capacity((len + growth).min(LEAF_RECORDS));
                }
                records.push(Some(record));
                Ok(())
            }
            Self::Inner(children) => {
                let is_full = children.len() == CHILDREN_MAX;
                let Some(last) = children.last_mut() else {
                    return Err(record);
                };
                let Err(record) = last.push(record) else {
                    return Ok(());
                };
                if is_full {
                    return Err(record);
                }
                let sibling = last.sibling(record);
                if children.len() == children.capacity() {
                    children.set_capacity((2 * children.len()).min(CHILDREN_MAX));
                }
                children.push(sibling);
                Ok(())
            }
        }
    }

    /// Creates a node of the same height that contains one record.
    fn sibling(&self, record: KeyValue) -> Self {
        match self {
            Self::Leaf(_) => Self::leaf(record),
            Self::Inner(children) => {
                let mut list = List::with_capacity(2);
                list.push(match children.last() {
                    Some(child) => child.sibling(record),
                    None => Self::leaf(record),
                });
                Self::Inner(list)
            }
        }
    }

    fn leaf(record: KeyValue) -> Self {
        let mut records = List::with_capacity(LEAF_RECORDS);
        records.push(Some(record));
        Self::Leaf(records)
    }

    fn first(&self) -> Option<&KeyValue> {
        let mut node = self;
        loop {
            match node {
                Self::Leaf(records) => return records.get(holes(records))?.as_ref(),
                Self::Inner(children) => node = children.first()?,
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.first().is_none()
    }

    /// Moves the oldest `count` records to `taken`, and subtracts their number from `count`.
    fn take_front(&mut self, count: &mut usize, taken: &mut Vec<KeyValue>) {
        match self {
            Self::Leaf(records) => {
                let (holes, len) = (holes(records), records.len());
                let end = holes.saturating_add(*count).min(len);
                *count -= end - holes;
                taken.extend(records[holes..end].iter_mut().filter_map(Option::take));
                if end == len || end * 2 >= len && end > holes {
                    records.remove_front(end);
                    records.set_capacity(0);
                }
            }
            Self::Inner(children) => {
                let mut emptied = 0;
                for child in children.iter_mut() {
                    child.take_front(count, taken);
                    if !child.is_empty() {
                        break;
                    }
                    emptied += 1;
                }
                if emptied > 0 {
                    children.remove_front(emptied);
                }
            }
        }
    }
}

/// Returns the number of children whose oldest record is before.
fn children_before(children: &[Node], is_before: impl Fn(Position) -> bool) -> usize {
    children.partition_point(|child| {
        child
            .first()
            .is_some_and(|first| is_before(first.position()))
    })
}

/// Returns the number of slots of a leaf up to the last record that is before, holes included.
fn records_before(records: &[Option<KeyValue>], is_before: impl Fn(Position) -> bool) -> usize {
    let is_before = |record: &KeyValue| is_before(record.position());
    records.partition_point(|record| record.as_ref().is_none_or(is_before))
}

/// Returns the number of holes at the front of a leaf.
fn holes(records: &[Option<KeyValue>]) -> usize {
    // Most leaves have none.
    match records.first() {
        Some(None) => records.partition_point(Option::is_none),
        _ => 0,
    }
}

/// An iterator over the records of a [`Sequence`], oldest first.
#[derive(Debug, Default)]
pub(crate) struct RecordIter<'a> {
    /// The siblings after the current node, by level; the first `levels` are in use.
    siblings: [slice::Iter<'a, Node>; HEIGHT_MAX],
    levels: usize,
    records: slice::Iter<'a, Option<KeyValue>>,
}

impl<'a> RecordIter<'a> {
    /// Continues below `node`, at the child and the record that the functions choose.
    fn descend(
        &mut self,
        mut node: &'a Node,
        child: impl Fn(&'a [Node]) -> usize,
        record: impl Fn(&'a [Option<KeyValue>]) -> usize,
    ) {
        loop {
            match node {
                Node::Leaf(records) => {
                    self.records = records[record(records)..].iter();
                    return;
                }
                Node::Inner(children) => {
                    let mut siblings = children[child(children)..].iter();
                    let Some(first) = siblings.next() else { return };
                    self.siblings[self.levels] = siblings;
                    self.levels += 1;
                    node = first;
                }
            }
        }
    }
}

impl<'a> Iterator for RecordIter<'a> {
    type Item = &'a KeyValue;

    #[inline]
    fn next(&mut self) -> Option<&'a KeyValue> {
        loop {
            if let Some(record) = self.records.by_ref().flatten().next() {
                return Some(record);
            }
            let sibling = loop {
                let level = self.levels.checked_sub(1)?;
                match self.siblings[level].next() {
                    Some(sibling) => break sibling,
                    None => self.levels = level,
                }
            };
            self.descend(sibling, |_| 0, |_| 0);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Sequence;
    use crate::history::{Entry, KeyValue};
    use crate::memory::COPIED_BYTES;
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
                sequence.iter().last().map(|kv| kv.mod_revision().0),
                plain.last().copied()
            );
            for revision in [round - 9, round, round * 2 - 5, round * 2, round * 2 + 1] {
                let through = plain.partition_point(|other| *other <= revision);
                let at = Revision(revision).end();
                assert_eq!(sequence.count_through(at, usize::MAX), through);
                assert_eq!(sequence.count_through(at, 3), through.min(3));
                let found = sequence.at(at).map(|kv| kv.mod_revision().0);
                assert_eq!(found, through.checked_sub(1).map(|last| plain[last]));
                let from = sequence.iter_from(at).map(|kv| kv.mod_revision().0);
                assert_eq!(from.collect::<Vec<_>>(), plain[through..]);
            }
        }
    }

    /// A push once copied up to an eighth of the sequence.
    #[test]
    fn a_push_copies_less_than_4_kib_whatever_the_length() {
        let entry = Entry::new(b"k");
        let mut sequence = Sequence::new();
        for number in 0..100_000 {
            let record = KeyValue::tombstone(entry.clone(), Revision(number).start());
            COPIED_BYTES.set(0);
            sequence.push(record);
            assert!(COPIED_BYTES.get() < 4096, "{number}");
        }
        let taken = sequence.count_through(Revision(99_998).end(), usize::MAX);
        let mut records = Vec::new();
        sequence.take_front(taken, &mut records);
        assert_eq!(
            (taken, records.len(), sequence.iter().count()),
            (99_999, 99_999, 1)
        );
        sequence.take_front(1, &mut records);
        assert!(sequence.is_empty() && sequence.iter().next().is_none());
    }

    /// Takes and pushes at every length around the limits of leaves and inner nodes.
    #[test]
    fn a_long_sequence_is_a_queue() {
        let entry = Entry::new(b"k");
        let mut sequence = Sequence::new();
        let (mut first, mut next) = (0, 0);
        for round in 0..60_i64 {
            for _ in 0..round * 37 {
                sequence.push(KeyValue::tombstone(entry.clone(), Revision(next).start()));
                next += 1;
            }
            let count = usize::try_from(round * 31).expect("a small number");
            let mut taken = Vec::new();
            sequence.take_front(count, &mut taken);
            for record in taken {
                assert_eq!(record.mod_revision().0, first);
                first += 1;
            }
            for from in [
                first - 1,
                first,
                first + 254,
                first + 255,
                i64::midpoint(first, next),
                next,
            ] {
                let records = sequence.iter_from(Revision(from).start());
                let revisions = records.map(|record| record.mod_revision().0);
                assert!(
                    revisions.eq(from.max(first)..next),
                    "round {round} from {from}"
                );
                let at = sequence
                    .at(Revision(from).end())
                    .map(|kv| kv.mod_revision().0);
                let expected = Some(from.min(next - 1)).filter(|at| *at >= first);
                assert_eq!(at, expected, "round {round} at {from}");
            }
        }
    }
}
