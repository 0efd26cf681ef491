//! Sequences: records in revision order, added at the end and taken from the front.

use crate::history::{KeyValue, Removed};
use crate::memory::{Batch, NewRun, RUN_CAPACITY_MAX, Run, RunCell};
use crate::revision::Position;
use crate::sync::epoch::Guard;

/// The maximum number of records in one leaf, which then fills one slot of the pool.
const LEAF_RECORDS: usize = if cfg!(any(loom, shuttle)) {
    4
} else {
    RUN_CAPACITY_MAX
};
/// The maximum number of children of an inner node.
const CHILDREN_MAX: usize = if cfg!(any(loom, shuttle)) { 2 } else { 128 };
/// The smallest growth of the first leaf, in records. It grows by an eighth, so that its unused
/// capacity takes less memory than the headers of the records.
const GROWTH_MIN: usize = 2;

/// Records, oldest first. An empty sequence takes one word and no allocation.
///
/// A tree whose leaves contain the records. A push copies at most one leaf and one list of children,
/// together less than 4 KiB, whatever the length. A search takes time logarithmic in the length.
///
/// Readers need only a pin, during which they find all records that were there when it began, except
/// those that are taken in the meantime. There is one writer at a time: who holds the
/// [`SequenceWriter`].
#[derive(Debug)]
pub(crate) struct Sequence(RunCell<KeyValue>);

/// The right to change one sequence.
#[derive(Debug)]
pub(crate) struct SequenceWriter(());

/// Consecutive records of a sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice<'g> {
    pub(crate) records: &'g [KeyValue],
    /// Whether no records that were there before the call come after these.
    pub(crate) is_last: bool,
}

impl Sequence {
    /// Creates an empty sequence, without an allocation, and the right to change it.
    pub(crate) fn new() -> (Self, SequenceWriter) {
        (Self(RunCell::empty()), SequenceWriter(()))
    }

    /// Creates a sequence of records that are in order, without a search or a copy.
    pub(crate) fn of(
        records: impl IntoIterator<Item = KeyValue>,
        batch: &mut Batch,
    ) -> (Self, SequenceWriter) {
        let records = records.into_iter();
        let mut new = NewSequence::expecting(records.size_hint().1.unwrap_or(usize::MAX));
        records.for_each(|record| new.push(record, batch));
        new.finish()
    }

    pub(crate) fn is_empty(&self, guard: &Guard) -> bool {
        self.first(guard).is_none()
    }

    pub(crate) fn first<'g>(&'g self, guard: &'g Guard) -> Option<&'g KeyValue> {
        first(self.0.load(guard)?, guard)
    }

    /// Returns the records of one leaf at or after `from`: none only if there are none in the
    /// sequence.
    pub(crate) fn slice_from<'g>(&'g self, from: Position, guard: &'g Guard) -> Slice<'g> {
        match self.0.load(guard) {
            Some(root) => slice_from(root, from, guard),
            None => Slice::EMPTY,
        }
    }

    /// Returns the newest record at or before `at`, in logarithmic time.
    pub(crate) fn at<'g>(&'g self, at: Position, guard: &'g Guard) -> Option<&'g KeyValue> {
        let mut run = self.0.load(guard)?;
        while !run.is_leaf() {
            let children = run.children();
            let end = children_before(children, |position| position <= at, guard);
            run = children[end.checked_sub(1)?].load(guard)?;
        }
        let records = run.items();
        let end = records.partition_point(|record| record.position() <= at);
        records[..end].last()
    }

    /// Returns the number of records at or before `through`, or `max` if there are more.
    pub(crate) fn count_through(&self, through: Position, max: usize, guard: &Guard) -> usize {
        let mut count = 0;
        let mut from = Position::FIRST;
        while count < max {
            let Slice { records, is_last } = self.slice_from(from, guard);
            let Some(last) = records.last() else { break };
            let before = records.partition_point(|record| record.position() <= through);
            count += before;
            if before < records.len() || is_last {
                break;
            }
            from = last.position().next();
        }
        count.min(max)
    }

    /// Returns the positions at which about `parts` parts of similar length begin, without that of the first part: at most
    /// twice as many, and fewer of a short sequence.
    pub(crate) fn bounds(&self, parts: usize, guard: &Guard) -> Vec<Position> {
        let mut level: Vec<_> = self.0.load(guard).into_iter().collect();
        while 2 * level.len() <= parts && level.first().is_some_and(|run| !run.is_leaf()) {
            let children = level.iter().flat_map(|run| run.children());
            level = children.filter_map(|child| child.load(guard)).collect();
        }
        let step = (level.len() / parts.max(1)).max(1);
        let others = level.into_iter().step_by(step).skip(1);
        let firsts = others.filter_map(|run| first(run, guard));
        firsts.map(KeyValue::position).collect()
    }

    /// Adds a record, whose position is after all others.
    pub(crate) fn push(&self, _: &mut SequenceWriter, record: KeyValue, guard: &Guard) {
        let Some(root) = self.0.load(guard) else {
            self.0.store(leaf(record, 1));
            return;
        };
        let Err(record) = push_below(&self.0, root, record, guard) else {
            return;
        };
        let mut new = NewRun::new(root.height() + 1, 2);
        // SAFETY: the new root replaces the old one in its cell.
        unsafe { RunCell::lift(root, &new) };
        new.push_child(sibling(root, record));
        self.0.store(new);
    }

    /// Moves the oldest `count` records to `taken`.
    pub(crate) fn take_front(
        &self,
        _: &mut SequenceWriter,
        mut count: usize,
        taken: &mut Removed,
        guard: &Guard,
    ) {
        let Some(mut root) = self.0.load(guard) else {
            return;
        };
        if take_front(root, &mut count, taken, guard) {
            self.0.clear();
            // SAFETY: the cell was cleared.
            unsafe { root.free(guard) };
            return;
        }
        // A root with one child is replaced by the child.
        while !root.is_leaf()
            && let [only] = root.children()
            && let Some(child) = only.load(guard)
        {
            self.0.store_descendant(child);
            // SAFETY: the cell points below this root.
            unsafe { root.free(guard) };
            root = child;
        }
        let len = if root.is_leaf() {
            root.items().len()
        } else {
            return;
        };
        // Places that were taken, or are unused, are at most half of a leaf that is the root.
        if len * 2 <= root.capacity() {
            // SAFETY: the new run replaces the old one in its cell.
            unsafe {
                self.0.store(root.moved_to(len));
                root.free(guard);
            }
        }
    }
}

/// A sequence to which records are added before it is shared.
#[derive(Debug)]
pub(crate) struct NewSequence {
    full: Vec<NewRun<KeyValue>>,
    last: Option<NewRun<KeyValue>>,
    /// So many records are still expected.
    left: usize,
}

impl NewSequence {
    /// Begins a sequence of about so many records, without an allocation. A sequence of few takes no more memory than they
    /// need.
    pub(crate) fn expecting(records: usize) -> Self {
        Self {
            full: Vec::new(),
            last: None,
            left: records,
        }
    }

    /// Adds a record, whose position is after all others.
    #[inline]
    pub(crate) fn push(&mut self, record: KeyValue, batch: &mut Batch) {
        match &mut self.last {
            Some(run) if run.as_run().has_room() => run.push_item(record),
            last => {
                let capacity = match self.left {
                    0 => LEAF_RECORDS,
                    left => left.min(LEAF_RECORDS),
                };
                let mut new = NewRun::leaf_in(batch, capacity);
                new.push_item(record);
                self.full.extend(last.replace(new));
            }
        }
        self.left = self.left.saturating_sub(1);
    }

    /// Adds the records of another one, which are after all others, without a copy.
    pub(crate) fn append(&mut self, other: Self) {
        self.full.extend(self.last.take());
        self.full.extend(other.full);
        self.last = other.last;
        self.left = other.left;
    }

    pub(crate) fn finish(self) -> (Sequence, SequenceWriter) {
        let mut level = self.full;
        level.extend(self.last);
        for height in 1.. {
            if level.len() <= 1 {
                break;
            }
            let mut children = level.into_iter().peekable();
            level = Vec::new();
            while children.peek().is_some() {
                let mut parent = NewRun::new(height, CHILDREN_MAX.min(children.len()));
                for child in children.by_ref().take(CHILDREN_MAX) {
                    parent.push_child(child);
                }
                level.push(parent);
            }
        }
        let (sequence, writer) = Sequence::new();
        if let Some(root) = level.pop() {
            sequence.0.store(root);
        }
        (sequence, writer)
    }
}

/// Adds a record at the end, unless there is no room. Then returns the record.
fn push_below(
    cell: &RunCell<KeyValue>,
    run: Run<'_, KeyValue>,
    record: KeyValue,
    guard: &Guard,
) -> Result<(), KeyValue> {
    if run.is_leaf() {
        with_room(
            cell,
            run,
            run.items().len(),
            LEAF_RECORDS,
            record,
            guard,
            |run, record| {
                // SAFETY: the caller has the right to change the sequence.
                unsafe { run.append_item(record) };
            },
        )
    } else {
        let children = run.children();
        let (Some(last), count) = (children.last(), children.len()) else {
            return Err(record);
        };
        let Some(child) = last.load(guard) else {
            return Err(record);
        };
        let Err(record) = push_below(last, child, record, guard) else {
            return Ok(());
        };
        with_room(
            cell,
            run,
            count,
            CHILDREN_MAX,
            record,
            guard,
            |run, record| {
                // SAFETY: the caller has the right to change the sequence.
                unsafe { run.append_child(sibling(child, record)) };
            },
        )
    }
}

/// Calls `append` with the run, or with a larger copy of it, unless it has the maximum capacity and
/// few places were taken. Then returns the record.
fn with_room(
    cell: &RunCell<KeyValue>,
    run: Run<'_, KeyValue>,
    used: usize,
    max: usize,
    record: KeyValue,
    guard: &Guard,
    append: impl FnOnce(Run<'_, KeyValue>, KeyValue),
) -> Result<(), KeyValue> {
    if run.has_room() {
        append(run, record);
        return Ok(());
    }
    // A copy to the same capacity must win many places, so that its cost is small for each push.
    if used * 4 > max * 3 && run.capacity() == max {
        return Err(record);
    }
    let growth = if run.is_leaf() {
        (used / 8).max(GROWTH_MIN)
    } else {
        used
    };
    // SAFETY: the copy replaces the run in its cell.
    unsafe {
        let copy = run.moved_to((used + growth).min(max));
        append(copy.as_run(), record);
        cell.store(copy);
        run.free(guard);
    }
    Ok(())
}

/// Creates a run of the same height that contains one record.
fn sibling(run: Run<'_, KeyValue>, record: KeyValue) -> NewRun<KeyValue> {
    let mut new = leaf(record, LEAF_RECORDS);
    for height in 1..=run.height() {
        let mut parent = NewRun::new(height, 2);
        parent.push_child(new);
        new = parent;
    }
    new
}

fn leaf(record: KeyValue, capacity: usize) -> NewRun<KeyValue> {
    let mut new = NewRun::new(0, capacity);
    new.push_item(record);
    new
}

fn first<'g>(mut run: Run<'g, KeyValue>, guard: &'g Guard) -> Option<&'g KeyValue> {
    while !run.is_leaf() {
        run = run.children().first()?.load(guard)?;
    }
    run.items().first()
}

impl Slice<'_> {
    const EMPTY: Self = Self {
        records: &[],
        is_last: true,
    };
}

fn slice_from<'g>(run: Run<'g, KeyValue>, from: Position, guard: &'g Guard) -> Slice<'g> {
    if run.is_leaf() {
        let records = run.items();
        return Slice {
            records: &records[records.partition_point(|record| record.position() < from)..],
            is_last: true,
        };
    }
    let children = run.children();
    let before = children_before(children, |position| position < from, guard);
    let mut left = &children[before.saturating_sub(1)..];
    while let [child, rest @ ..] = left {
        left = rest;
        let slice = child
            .load(guard)
            .map_or(Slice::EMPTY, |run| slice_from(run, from, guard));
        if !slice.records.is_empty() {
            return Slice {
                is_last: slice.is_last && rest.is_empty(),
                ..slice
            };
        }
    }
    Slice::EMPTY
}

/// Returns the number of children whose oldest record is before. A child whose records are all taken
/// in the meantime is.
fn children_before(
    children: &[RunCell<KeyValue>],
    is_before: impl Fn(Position) -> bool,
    guard: &Guard,
) -> usize {
    children.partition_point(|child| {
        let first = child.load(guard).and_then(|run| first(run, guard));
        first.is_none_or(|first| is_before(first.position()))
    })
}

/// Moves the oldest `count` records to `taken`, and subtracts their number from `count`. Returns
/// whether the run is empty afterwards.
fn take_front(
    run: Run<'_, KeyValue>,
    count: &mut usize,
    taken: &mut Removed,
    guard: &Guard,
) -> bool {
    if run.is_leaf() {
        let records = run.items();
        let oldest = &records[..(*count).min(records.len())];
        *count -= oldest.len();
        // SAFETY: the records belong to `taken` as soon as their places are taken.
        unsafe { taken.extend_moved(oldest) };
        run.take(oldest.len());
        return oldest.len() == records.len();
    }
    let children = run.children();
    let mut emptied = 0;
    for child in children {
        let Some(child) = child.load(guard) else {
            break;
        };
        if !take_front(child, count, taken, guard) {
            break;
        }
        emptied += 1;
        run.take(1);
        // SAFETY: the place of the child is taken, so readers do not find it any more.
        unsafe { child.free(guard) };
    }
    emptied == children.len()
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::{NewSequence, Sequence, SequenceWriter, Slice};
    use crate::fault::Faults;
    use crate::history::{Entry, KeyValue, Removed};
    use crate::memory::{Batch, COPIED_BYTES};
    use crate::revision::{Position, Revision};
    use crate::sync::epoch::pin;

    /// A sequence with the right to change it.
    struct Owned(Sequence, SequenceWriter);

    impl Owned {
        fn new() -> Self {
            let (sequence, writer) = Sequence::new();
            Self(sequence, writer)
        }

        fn push(&mut self, record: KeyValue) {
            self.0.push(&mut self.1, record, &pin());
        }

        fn take(&mut self, count: usize) -> Vec<i64> {
            let mut taken = Removed::default();
            let guard = pin();
            self.0.take_front(&mut self.1, count, &mut taken, &guard);
            let revisions = taken.iter().map(|record| record.mod_revision().0).collect();
            taken.free(&guard, Faults::default());
            revisions
        }

        fn count_through(&self, through: Position, max: usize) -> usize {
            self.0.count_through(through, max, &pin())
        }

        fn at(&self, at: Position) -> Option<i64> {
            let guard = pin();
            self.0.at(at, &guard).map(|record| record.mod_revision().0)
        }

        fn all_from(&self, mut from: Position) -> Vec<i64> {
            let guard = pin();
            let mut all = Vec::new();
            while let Slice {
                records: records @ [.., last],
                ..
            } = self.0.slice_from(from, &guard)
            {
                all.extend(records.iter().map(|record| record.mod_revision().0));
                from = last.position().next();
            }
            all
        }
    }

    #[test]
    fn searches_find_the_records_that_were_not_taken() {
        let entry = Entry::new(b"k");
        let mut sequence = Owned::new();
        let mut plain: Vec<i64> = Vec::new();
        for round in 1..400_i64 {
            sequence.push(KeyValue::tombstone(
                entry.clone(),
                Revision(round * 2).start(),
            ));
            plain.push(round * 2);
            if round % 3 == 0 {
                let count = usize::try_from(round % 13).expect("a small number");
                let taken = sequence.take(count);
                let expected: Vec<i64> = plain.drain(..count.min(plain.len())).collect();
                assert_eq!(taken, expected);
            }
            assert_eq!(sequence.all_from(Position::FIRST), plain);
            for revision in [round - 9, round, round * 2 - 5, round * 2, round * 2 + 1] {
                let through = plain.partition_point(|other| *other <= revision);
                let at = Revision(revision).end();
                assert_eq!(sequence.count_through(at, usize::MAX), through);
                assert_eq!(sequence.count_through(at, 3), through.min(3));
                assert_eq!(
                    sequence.at(at),
                    through.checked_sub(1).map(|last| plain[last])
                );
                assert_eq!(sequence.all_from(at), plain[through..]);
            }
        }
    }

    #[test]
    fn a_sequence_of_sorted_records_can_be_read_and_changed() {
        let entry = Entry::new(b"k");
        for len in [0, 1, 2, 254, 255, 256, 1000, 255 * 128, 255 * 128 + 1] {
            let record = |number| KeyValue::tombstone(entry.clone(), Revision(number).start());
            let records: Vec<_> = (0..len).map(record).collect();
            let mut batch = Batch::expecting(0);
            let known = Sequence::of(records.iter().cloned(), &mut batch);
            // With more and with fewer records than expected.
            let [more, fewer] = [records.len() / 3, usize::MAX].map(|expected| {
                let mut new = NewSequence::expecting(expected);
                for record in &records {
                    new.push(record.clone(), &mut batch);
                }
                new.finish()
            });
            for (sequence, writer) in [known, more, fewer] {
                let mut sequence = Owned(sequence, writer);
                assert_eq!(
                    sequence.all_from(Position::FIRST),
                    (0..len).collect::<Vec<_>>()
                );
                for number in len..len + 300 {
                    sequence.push(record(number));
                }
                assert_eq!(sequence.take(7), (0..7).collect::<Vec<_>>());
                assert_eq!(
                    sequence.all_from(Position::FIRST),
                    (7..len + 300).collect::<Vec<_>>()
                );
                assert_eq!(
                    sequence.at(Revision(len).end()),
                    Some(len).filter(|len| *len >= 7)
                );
            }
        }
    }

    /// A push once copied up to an eighth of the sequence.
    #[test]
    fn a_push_copies_less_than_4_kib_whatever_the_length() {
        let entry = Entry::new(b"k");
        let mut sequence = Owned::new();
        for number in 0..100_000 {
            let record = KeyValue::tombstone(entry.clone(), Revision(number).start());
            COPIED_BYTES.set(0);
            sequence.push(record);
            assert!(COPIED_BYTES.get() < 4096, "{number}");
        }
        let taken = sequence.count_through(Revision(99_998).end(), usize::MAX);
        assert_eq!(taken, 99_999);
        assert_eq!(sequence.take(taken), (0..99_999).collect::<Vec<_>>());
        assert_eq!(sequence.all_from(Position::FIRST), [99_999]);
        assert_eq!(sequence.take(1), [99_999]);
        assert!(sequence.0.is_empty(&pin()) && sequence.all_from(Position::FIRST).is_empty());
    }

    /// Takes and pushes at every length around the limits of leaves and inner nodes.
    #[test]
    fn a_long_sequence_is_a_queue() {
        let entry = Entry::new(b"k");
        let mut sequence = Owned::new();
        let (mut first, mut next) = (0, 0);
        for round in 0..60_i64 {
            for _ in 0..round * 37 {
                sequence.push(KeyValue::tombstone(entry.clone(), Revision(next).start()));
                next += 1;
            }
            let count = usize::try_from(round * 31).expect("a small number");
            for revision in sequence.take(count) {
                assert_eq!(revision, first);
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
                let revisions = sequence.all_from(Revision(from).start());
                assert!(
                    revisions.into_iter().eq(from.max(first)..next),
                    "round {round} from {from}"
                );
                let at = sequence.at(Revision(from).end());
                let expected = Some(from.min(next - 1)).filter(|at| *at >= first);
                assert_eq!(at, expected, "round {round} at {from}");
            }
        }
    }
}
