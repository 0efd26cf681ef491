//! The engine compared with a simple model: random operations, and all their responses.
//!
//! The model is a list of changes; a read applies them in order. The optimizations of the engine
//! (counts in the index, cuts, segments, queues) must not change any response.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use revstore_engine::{
    CompactError, Compare, CompareTarget, Engine, KeyRange, KeyValue, ManualClock, Op, OpResult,
    Put, PutError, Range, ReadError, Relation, Revision, SortBy, SortOrder, Txn, TxnError,
    WatchEnd, WatchOptions, Watcher,
};

/// A change of a key at a revision: a new value, or `None` for a deletion.
#[derive(Clone, Debug)]
struct Change {
    revision: i64,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
}

/// The state of a live key at a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyState {
    key: Vec<u8>,
    value: Vec<u8>,
    create: i64,
    modified: i64,
    version: i64,
}

#[derive(Clone, Debug)]
struct Model {
    changes: Vec<Change>,
    current: i64,
    compacted: i64,
}

impl Model {
    fn new() -> Self {
        Self {
            changes: Vec::new(),
            current: 1,
            compacted: -1,
        }
    }

    /// Returns the live keys after these changes.
    fn fold(changes: &[Change]) -> BTreeMap<Vec<u8>, KeyState> {
        let mut states: BTreeMap<Vec<u8>, KeyState> = BTreeMap::new();
        for change in changes {
            let (key, revision) = (change.key.clone(), change.revision);
            match &change.value {
                None => drop(states.remove(&key)),
                Some(value) => {
                    let before = states.get(&key);
                    let state = KeyState {
                        create: before.map_or(revision, |before| before.create),
                        version: before.map_or(1, |before| before.version + 1),
                        modified: revision,
                        value: value.clone(),
                        key: key.clone(),
                    };
                    states.insert(key, state);
                }
            }
        }
        states
    }

    fn at(&self, revision: i64) -> BTreeMap<Vec<u8>, KeyState> {
        let end = self
            .changes
            .partition_point(|change| change.revision <= revision);
        Self::fold(&self.changes[..end])
    }

    fn live_keys(&self) -> BTreeMap<Vec<u8>, KeyState> {
        Self::fold(&self.changes)
    }
}

/// CMP-1..3: a compare holds for every live key of its range, or for an absent key.
fn holds(compare: &Compare, keys: &BTreeMap<Vec<u8>, KeyState>) -> bool {
    let holds_for = |state: Option<&KeyState>| {
        let ordering = match (&compare.target, state) {
            (CompareTarget::Version(right), state) => {
                state.map_or(0, |state| state.version).cmp(right)
            }
            (CompareTarget::Value(right), Some(state)) => state.value[..].cmp(right),
            (CompareTarget::Value(_), None) => return false,
            (other, _) => panic!("{other:?} is not generated"),
        };
        match compare.relation {
            Relation::Equal => ordering.is_eq(),
            Relation::NotEqual => ordering.is_ne(),
            Relation::Greater => ordering.is_gt(),
            Relation::Less => ordering.is_lt(),
            Relation::Any => true,
        }
    };
    let inside = keys
        .values()
        .filter(|state| compare.keys.contains(&state.key));
    let inside: Vec<_> = inside.collect();
    if inside.is_empty() {
        holds_for(None)
    } else {
        inside.into_iter().all(|state| holds_for(Some(state)))
    }
}

fn state_of(kv: &KeyValue) -> KeyState {
    assert!(!kv.is_tombstone(), "a read returned a tombstone");
    KeyState {
        key: kv.key().to_vec(),
        value: kv.value().to_vec(),
        create: kv.create_revision().0,
        modified: kv.mod_revision().0,
        version: kv.version(),
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8),
    PutKeepingValue(u8),
    Delete(KeyRange),
    Txn(TxnShape),
    /// A compaction this many revisions below the current one, and whether it is run.
    Compact(i64, bool),
    Range(RangeShape),
    /// A read of one key this many revisions below the current one.
    GetAt(u8, i64),
    /// The versions of a key, and a compaction in the middle of the iteration.
    History(u8, Option<(usize, i64)>),
    /// The events from so many revisions below the current one to so many below it.
    Changes(i64, i64),
    /// A watch that starts this many revisions below the current one, or at the next one.
    Watch(KeyRange, Option<i64>),
    /// A read of up to two batches from a watch.
    ReadWatch(usize),
}

#[derive(Clone, Debug)]
struct RangeShape {
    keys: KeyRange,
    back: Option<i64>,
    limit: Option<usize>,
    sort: Option<(SortBy, SortOrder)>,
    count_only: bool,
    limit_first: bool,
    min_mod_back: Option<i64>,
}

#[derive(Clone, Debug)]
struct TxnShape {
    compare: Option<Compare>,
    ops: Vec<TxnOp>,
}

#[derive(Clone, Debug)]
enum TxnOp {
    Put(u8, u8),
    Delete(KeyRange),
    Range(KeyRange),
    Nested(u8, Vec<(u8, u8)>),
}

fn key(number: u8) -> Vec<u8> {
    // Some keys are prefixes of others, some end in 0xff.
    match number % 5 {
        0 => vec![b'a'],
        1 => vec![b'a', number],
        2 => vec![b'a', 0xff, number],
        3 => vec![b'b', number, 0],
        _ => vec![number.max(1)],
    }
}

fn key_range() -> impl Strategy<Value = KeyRange> {
    prop_oneof![
        3 => any::<u8>().prop_map(|number| KeyRange::one(key(number))),
        2 => (any::<u8>(), any::<u8>()).prop_map(|(a, b)| KeyRange::within(key(a), key(b))),
        1 => any::<u8>().prop_map(|number| KeyRange::From(key(number).into())),
        1 => Just(KeyRange::prefix("a")),
        1 => Just(KeyRange::all()),
    ]
}

fn sort() -> impl Strategy<Value = (SortBy, SortOrder)> {
    let by = prop_oneof![
        Just(SortBy::Key),
        Just(SortBy::Version),
        Just(SortBy::CreateRevision),
        Just(SortBy::ModRevision),
        Just(SortBy::Value),
    ];
    (
        by,
        prop_oneof![Just(SortOrder::Ascending), Just(SortOrder::Descending)],
    )
}

fn range_shape() -> impl Strategy<Value = RangeShape> {
    let option = proptest::option::of::<std::ops::Range<i64>>;
    (
        key_range(),
        option(-2..20),
        proptest::option::of(0..6_usize),
        proptest::option::of(sort()),
        any::<bool>(),
        any::<bool>(),
        option(0..10),
    )
        .prop_map(
            |(keys, back, limit, sort, count_only, limit_first, min_mod_back)| RangeShape {
                keys,
                back,
                limit,
                sort,
                count_only,
                limit_first,
                min_mod_back,
            },
        )
}

fn compare() -> impl Strategy<Value = Compare> {
    let target = prop_oneof![
        (0..4_i64).prop_map(CompareTarget::Version),
        (0..4_u8).prop_map(|value| CompareTarget::Value(vec![value].into())),
    ];
    let relation = prop_oneof![
        2 => Just(Relation::Equal),
        1 => Just(Relation::NotEqual),
        1 => Just(Relation::Greater),
        1 => Just(Relation::Less),
    ];
    (key_range(), target, relation)
        .prop_map(|(keys, target, relation)| Compare::new(keys, target, relation))
}

fn txn_op() -> impl Strategy<Value = TxnOp> {
    prop_oneof![
        3 => (any::<u8>(), any::<u8>()).prop_map(|(key, value)| TxnOp::Put(key, value)),
        1 => key_range().prop_map(TxnOp::Delete),
        2 => key_range().prop_map(TxnOp::Range),
        1 => (any::<u8>(), proptest::collection::vec((any::<u8>(), any::<u8>()), 0..3))
            .prop_map(|(key, puts)| TxnOp::Nested(key, puts)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let txn = (
        proptest::option::of(compare()),
        proptest::collection::vec(txn_op(), 0..5),
    )
        .prop_map(|(compare, ops)| Step::Txn(TxnShape { compare, ops }));
    prop_oneof![
        8 => (any::<u8>(), any::<u8>()).prop_map(|(key, value)| Step::Put(key, value)),
        1 => any::<u8>().prop_map(Step::PutKeepingValue),
        2 => key_range().prop_map(Step::Delete),
        4 => txn,
        1 => ((-2..12_i64), any::<bool>()).prop_map(|(back, run)| Step::Compact(back, run)),
        6 => range_shape().prop_map(Step::Range),
        2 => (any::<u8>(), -2..20_i64).prop_map(|(key, back)| Step::GetAt(key, back)),
        2 => (any::<u8>(), proptest::option::of((0..4_usize, 0..12_i64)))
            .prop_map(|(key, compaction)| Step::History(key, compaction)),
        2 => (-2..20_i64, -2..20_i64).prop_map(|(first, last)| Step::Changes(first, last)),
        2 => (key_range(), proptest::option::of(-3..12_i64))
            .prop_map(|(keys, back)| Step::Watch(keys, back)),
        2 => any::<usize>().prop_map(Step::ReadWatch),
    ]
}

/// A watch, its start revision and its events so far.
struct TestWatch {
    watcher: Watcher,
    keys: KeyRange,
    from: i64,
    seen: Vec<(i64, Vec<u8>, Option<Vec<u8>>)>,
    end: Option<i64>,
}

impl TestWatch {
    fn read(&mut self, batches: usize) {
        for _ in 0..batches {
            match self.watcher.try_next() {
                None => return,
                Some(Ok(batch)) => {
                    assert!(!batch.events.is_empty());
                    for event in &batch.events {
                        let value = (!event.kv.is_tombstone()).then(|| event.kv.value().to_vec());
                        let revision = event.kv.mod_revision().0;
                        self.seen.push((revision, event.kv.key().to_vec(), value));
                    }
                }
                Some(Err(WatchEnd::Compacted { compacted })) => {
                    self.end = Some(compacted.0);
                    return;
                }
            }
        }
    }
}

struct Run {
    engine: Engine,
    model: Model,
    watches: Vec<TestWatch>,
}

impl Run {
    fn step(&mut self, step: Step) {
        match step {
            Step::Put(number, value) => self.put(number, value),
            Step::PutKeepingValue(number) => self.put_keeping_value(number),
            Step::Delete(keys) => self.delete(&keys),
            Step::Txn(shape) => self.txn(&shape),
            Step::Compact(back, run) => self.compact(back, run),
            Step::Range(shape) => self.range(&shape),
            Step::GetAt(number, back) => self.get_at(number, back),
            Step::History(number, compaction) => self.history(number, compaction),
            Step::Changes(first, last) => self.changes(first, last),
            Step::Watch(keys, back) => self.watch(keys, back),
            Step::ReadWatch(which) => {
                if !self.watches.is_empty() {
                    let which = which % self.watches.len();
                    self.watches[which].read(2);
                }
            }
        }
        assert_eq!(self.engine.current_revision().0, self.model.current);
    }

    fn put(&mut self, number: u8, value: u8) {
        let before = self.model.live_keys().get(&key(number)).cloned();
        let done = self.engine.put(key(number), vec![value]).unwrap();
        self.model.current += 1;
        assert_eq!(done.revision.0, self.model.current, "I1: the next revision");
        assert_eq!(
            done.previous.as_ref().map(state_of),
            before,
            "PUT-2: the previous version"
        );
        let revision = self.model.current;
        self.model.changes.push(Change {
            revision,
            key: key(number),
            value: Some(vec![value]),
        });
    }

    fn put_keeping_value(&mut self, number: u8) {
        let put = Put::keeping_value(key(number)).keeping_lease();
        let before = self.model.live_keys().get(&key(number)).cloned();
        match (self.engine.put_with(&put), before) {
            (Err(PutError::KeyNotFound), None) => {}
            (Ok(_), Some(before)) => {
                self.model.current += 1;
                let (revision, value) = (self.model.current, Some(before.value));
                self.model.changes.push(Change {
                    revision,
                    key: key(number),
                    value,
                });
            }
            other => panic!("PUT-4, PUT-5: expected success for a live key only, got {other:?}"),
        }
    }

    fn delete(&mut self, keys: &KeyRange) {
        let deleted: Vec<KeyState> = self
            .model
            .live_keys()
            .into_values()
            .filter(|state| keys.contains(&state.key))
            .collect();
        let done = self.engine.delete(keys).unwrap();
        assert_eq!(
            done.deleted.iter().map(state_of).collect::<Vec<_>>(),
            deleted,
            "DEL-1: the deleted keys"
        );
        self.model.current += i64::from(!deleted.is_empty());
        assert_eq!(
            done.revision.0, self.model.current,
            "DM-8, DM-21: the revision"
        );
        let revision = self.model.current;
        for state in deleted {
            self.model.changes.push(Change {
                revision,
                key: state.key,
                value: None,
            });
        }
    }

    fn txn(&mut self, shape: &TxnShape) {
        let put = |number: &u8, value: &u8| Op::Put(Put::new(key(*number), vec![*value]));
        let ops = shape.ops.iter().map(|op| match op {
            TxnOp::Put(number, value) => put(number, value),
            TxnOp::Delete(keys) => Op::Delete(keys.clone()),
            TxnOp::Range(keys) => Op::Range(Range::of(keys.clone())),
            TxnOp::Nested(number, puts) => Op::Txn(
                Txn::new()
                    .when([Compare::exists(key(*number))])
                    .and_then(puts.iter().map(|(number, value)| put(number, value))),
            ),
        });
        let txn = Txn::new().when(shape.compare.clone()).and_then(ops);
        let done = self.engine.txn(&txn).unwrap();

        // TXN-20: every compare is evaluated against the store before the transaction.
        let before = self.model.live_keys();
        let compare = shape.compare.as_ref();
        let succeeded = compare.is_none_or(|compare| holds(compare, &before));
        assert_eq!(done.succeeded, succeeded);
        let revision = self.model.current + 1;
        let mut changes = self.model.changes.clone();
        let changed_before = changes.len();
        let ops = if succeeded { &shape.ops[..] } else { &[] };
        assert_eq!(
            done.results.len(),
            ops.len(),
            "TXN-26: one result per operation"
        );
        for (op, result) in ops.iter().zip(&done.results) {
            match (op, result) {
                (TxnOp::Put(number, value), OpResult::Put(put)) => {
                    let previous = Model::fold(&changes).get(&key(*number)).cloned();
                    assert_eq!(put.previous.as_ref().map(state_of), previous);
                    changes.push(Change {
                        revision,
                        key: key(*number),
                        value: Some(vec![*value]),
                    });
                    assert_eq!(put.revision.0, revision, "DM-23: the new revision");
                }
                (TxnOp::Delete(keys), OpResult::Delete(delete)) => {
                    let state = Model::fold(&changes);
                    let deleted: Vec<KeyState> = state
                        .into_values()
                        .filter(|state| keys.contains(&state.key))
                        .collect();
                    assert_eq!(
                        delete.deleted.iter().map(state_of).collect::<Vec<_>>(),
                        deleted
                    );
                    let deletion = |state: KeyState| Change {
                        revision,
                        key: state.key,
                        value: None,
                    };
                    changes.extend(deleted.into_iter().map(deletion));
                }
                (TxnOp::Range(keys), OpResult::Range(range)) => {
                    // TXN-21: a read includes the writes before it.
                    let state = Model::fold(&changes);
                    let expected: Vec<KeyState> = state
                        .into_values()
                        .filter(|state| keys.contains(&state.key))
                        .collect();
                    assert_eq!(range.kvs.iter().map(state_of).collect::<Vec<_>>(), expected);
                    assert_eq!(range.count, expected.len());
                    let untouched = changes.len() == changed_before;
                    assert_eq!(
                        range.revision.0,
                        revision - i64::from(untouched),
                        "DM-23: the revision"
                    );
                }
                (TxnOp::Nested(number, puts), OpResult::Txn(nested)) => {
                    assert_eq!(nested.succeeded, before.contains_key(&key(*number)));
                    for (number, value) in puts.iter().filter(|_| nested.succeeded) {
                        let value = Some(vec![*value]);
                        changes.push(Change {
                            revision,
                            key: key(*number),
                            value,
                        });
                    }
                }
                other => panic!("TXN-26: the result of another operation: {other:?}"),
            }
        }
        self.model.current += i64::from(changes.len() > changed_before);
        self.model.changes = changes;
        assert_eq!(done.revision.0, self.model.current, "DM-22: the revision");
    }

    fn compact(&mut self, back: i64, run: bool) {
        let revision = self.model.current - back;
        match self.engine.compact(Revision(revision)) {
            Ok(compaction) => {
                assert!(
                    revision > self.model.compacted && revision <= self.model.current,
                    "CO-1, CO-2: {revision} was compacted"
                );
                self.model.compacted = revision;
                if run {
                    compaction.run();
                }
            }
            Err(CompactError::Compacted { .. }) => {
                assert!(
                    revision <= self.model.compacted || revision < 0,
                    "CO-1: {revision} is not compacted"
                );
            }
            Err(CompactError::Future { .. }) => {
                assert!(revision > self.model.current, "CO-1: {revision} exists");
            }
        }
    }

    fn range(&mut self, shape: &RangeShape) {
        let (current, compacted) = (self.model.current, self.model.compacted);
        let at = shape.back.map(|back| current - back);
        let min_mod = shape.min_mod_back.map(|back| current - back);
        let mut request = Range::of(shape.keys.clone());
        request.at = at.map(Revision);
        request.limit = shape.limit;
        request.count_only = shape.count_only;
        request.limit_first = shape.limit_first;
        request.sort = shape.sort;
        request.filter.min_mod_revision = min_mod.map(Revision);
        let found = match self.engine.range(&request) {
            Ok(found) => found,
            Err(ReadError::Future { .. }) => {
                return assert!(at > Some(current), "RG-11: {at:?} exists");
            }
            Err(ReadError::Compacted { .. }) => {
                return assert!(at.is_some_and(|at| at < compacted), "RG-12: {at:?} is kept");
            }
        };
        assert!(
            at.is_none_or(|at| (compacted..=current).contains(&at)),
            "RG-11..13: {at:?} was read"
        );
        let state = self.model.at(at.unwrap_or(current));
        let mut expected: Vec<KeyState> = state
            .into_values()
            .filter(|state| shape.keys.contains(&state.key))
            .collect();
        assert_eq!(found.count, expected.len(), "RG-21: the count");
        assert_eq!(found.revision.0, current, "DM-20: the revision");
        if shape.count_only {
            assert!(found.kvs.is_empty() && !found.more, "RG-23: only a count");
            return;
        }
        let limit = shape.limit.unwrap_or(usize::MAX);
        if shape.limit_first && min_mod.is_none() {
            expected.truncate(limit.saturating_add(1));
        }
        expected.retain(|state| min_mod.is_none_or(|min| min <= state.modified));
        if let Some((by, order)) = shape.sort {
            let number = |state: &KeyState| match by {
                SortBy::Version => state.version,
                SortBy::CreateRevision => state.create,
                SortBy::ModRevision => state.modified,
                SortBy::Key | SortBy::Value => 0,
            };
            let bytes = |state: &KeyState| match by {
                SortBy::Key => state.key.clone(),
                SortBy::Value => state.value.clone(),
                _ => Vec::new(),
            };
            expected.sort_by(|a, b| {
                let ascending = number(a)
                    .cmp(&number(b))
                    .then_with(|| bytes(a).cmp(&bytes(b)));
                match order {
                    SortOrder::Ascending => ascending,
                    SortOrder::Descending => ascending.reverse(),
                }
            });
        }
        assert_eq!(found.more, expected.len() > limit, "RG-22: more");
        expected.truncate(limit);
        assert_eq!(
            found.kvs.iter().map(state_of).collect::<Vec<_>>(),
            expected,
            "RG-40..43: the order"
        );
    }

    fn get_at(&self, number: u8, back: i64) {
        let (current, compacted) = (self.model.current, self.model.compacted);
        let at = current - back;
        match self.engine.get_at(key(number), Revision(at)) {
            Ok(found) => {
                assert!((compacted..=current).contains(&at));
                let expected = self.model.at(at).remove(&key(number));
                assert_eq!(found.as_ref().map(state_of), expected);
            }
            Err(ReadError::Future { .. }) => assert!(at > current),
            Err(ReadError::Compacted { .. }) => assert!(at < compacted),
        }
    }

    fn history(&mut self, number: u8, compaction: Option<(usize, i64)>) {
        let changes = self.model.changes.clone();
        let of_key = changes.iter().filter(|change| change.key == key(number));
        let mut expected = of_key.rev().peekable();
        let mut versions = self.engine.history(key(number));
        let mut last = None;
        for read in 0.. {
            if let Some((after, back)) = compaction
                && after == read
            {
                self.compact(back, read % 2 == 0);
            }
            // The version that is visible at the compacted revision is the last one.
            let compacted = self.model.compacted;
            let is_kept = |change: &&Change| {
                last.is_none_or(|last| last > compacted)
                    && (change.value.is_some() || change.revision >= compacted)
            };
            let expected = expected.next().filter(is_kept);
            let found = versions.next();
            let found = found.map(|kv| (kv.mod_revision().0, kv.value().to_vec()));
            let value = |change: &Change| change.value.clone().unwrap_or_default();
            assert_eq!(
                found,
                expected.map(|change| (change.revision, value(change)))
            );
            let Some((revision, _)) = found else { break };
            last = Some(revision);
        }
        assert!(versions.next().is_none());
    }

    fn changes(&self, first: i64, last: i64) {
        let (current, compacted) = (self.model.current, self.model.compacted);
        let (first, last) = (current - first, current - last);
        match self.engine.changes(Revision(first)..=Revision(last)) {
            Ok(changes) => {
                assert!(first > last || last <= current && first >= compacted);
                assert_eq!(changes.through(), Revision(last));
                let found = changes.map(|event| {
                    let kv = event.unwrap().kv;
                    let value = (!kv.is_tombstone()).then(|| kv.value().to_vec());
                    (kv.mod_revision().0, kv.key().to_vec(), value)
                });
                let expected = self.model.changes.iter();
                let expected = expected.filter(|change| (first..=last).contains(&change.revision));
                let expected = expected.map(|change| {
                    let key = change.key.clone();
                    (change.revision, key, change.value.clone())
                });
                assert!(found.eq(expected));
            }
            Err(ReadError::Future { .. }) => assert!(last > current && first <= last),
            Err(ReadError::Compacted { .. }) => assert!(first < compacted && first <= last),
        }
    }

    fn watch(&mut self, keys: KeyRange, back: Option<i64>) {
        let current = self.model.current;
        let start = back.map(|back| (current - back).max(0));
        let mut options = WatchOptions::of(keys);
        options.start = start.map(Revision);
        let keys = options.range.clone();
        if let Ok(watcher) = self.engine.watch(options) {
            let from = start.unwrap_or(current + 1);
            self.watches.push(TestWatch {
                watcher,
                keys,
                from,
                seen: Vec::new(),
                end: None,
            });
        } else {
            assert!(keys.is_empty(), "WA-14: a watch of {keys:?} failed");
        }
    }

    /// Checks I5: every watch delivered all its events, or the first of them and
    /// `WatchEnd::Compacted`.
    fn finish(mut self) {
        for watch in &mut self.watches {
            watch.read(usize::MAX);
            let changes = self.model.changes.iter();
            let all: Vec<(i64, Vec<u8>, Option<Vec<u8>>)> = changes
                .filter(|change| change.revision >= watch.from)
                .filter(|change| watch.keys.contains(&change.key))
                .map(|change| (change.revision, change.key.clone(), change.value.clone()))
                .collect();
            match watch.end {
                None => assert_eq!(watch.seen, all, "I5: all events from {}", watch.from),
                Some(compacted) => {
                    assert!(
                        compacted > watch.from && all.starts_with(&watch.seen),
                        "I5: the first events, then the end"
                    );
                    let last = watch.seen.last().map(|event| event.0);
                    let whole = all.get(watch.seen.len()).map(|event| event.0);
                    assert!(last.is_none() || last != whole, "I5: a part of a revision");
                }
            }
        }
        self.watches.clear();
        let stats = self.engine.stats();
        assert_eq!((stats.watches, stats.unsynced_watches), (0, 0));
        if let Ok(compaction) = self.engine.compact(Revision(self.model.current)) {
            compaction.run();
        }
        self.check_size();
    }

    /// Checks that the counted numbers are those of the kept versions, live keys and watches.
    fn check_size(&self) {
        let kept = self.engine.full_history(None).unwrap().versions;
        let bytes: u64 = kept.iter().map(KeyValue::size_bytes).sum();
        let stats = self.engine.stats();
        assert_eq!(stats.history_bytes, bytes);
        assert_eq!(stats.versions, kept.len() as u64);
        let all = self.model.changes.len() as u64;
        assert_eq!(stats.compacted_versions, all - stats.versions);
        assert_eq!(stats.live_keys, self.model.live_keys().len());
        assert!(stats.unsynced_watches <= stats.watches);
    }
}

fn check(steps: Vec<Step>) {
    let engine = Engine::builder().clock(ManualClock::new()).build();
    let mut run = Run {
        engine,
        model: Model::new(),
        watches: Vec::new(),
    };
    for step in steps {
        run.step(step);
        run.check_size();
    }
    run.finish();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn the_engine_returns_the_responses_of_the_model(
        steps in proptest::collection::vec(step(), 0..120),
    ) {
        check(steps);
    }
}

#[test]
fn txn_10_a_put_that_keeps_a_value_deleted_by_the_transaction_fails_the_transaction() {
    let engine = Engine::builder().clock(ManualClock::new()).build();
    engine.put("b", "1").unwrap();
    let keep = Put::keeping_value("b");
    let txn = Txn::new().and_then([Op::Delete(KeyRange::From("a".into())), Op::Put(keep)]);
    let error = engine.txn(&txn).unwrap_err();
    assert_eq!(
        error.to_string(),
        "operation success[1]: the key does not exist"
    );
    assert!(matches!(
        error,
        TxnError::Put {
            error: PutError::KeyNotFound,
            ..
        }
    ));
    assert_eq!(engine.get("b").unwrap().value(), b"1");
    assert_eq!(engine.current_revision(), Revision(2));
}
