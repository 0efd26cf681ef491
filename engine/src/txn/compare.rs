//! Compares: the conditions of a transaction.
//!
//! A compare of one key is a look-up, and runs under the sequencer. A compare of a range may have to
//! examine every key of the range. So it is evaluated before the sequencer is taken, and its result
//! is brought up to date under the sequencer:
//!
//! | result | what brings it from revision r to the current one |
//! |---|---|
//! | no key fails | the records of the log after r: a key that they do not name still does not fail |
//! | a key fails | that key is read again; if it no longer fails, the range is examined again |
//!
//! Whether the range is empty, which is compared like an absent key (CMP-3), is known from the count
//! of the index. If more than [`EXAMINED_MAX`] keys and records are to be examined, the sequencer is
//! released, and the results are brought up to date without it.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::ptr;

use super::commit::Writer;
use super::request::{Compare, CompareTarget, Op, Relation, Txn};
use crate::error::WriteError;
use crate::fault::on_fault;
use crate::history::{KeyValue, LeaseId};
use crate::key::KeyRange;
use crate::revision::{Position, Revision};
use crate::store::Store;

/// The maximum number of keys and log records that the compares over ranges of one transaction
/// examine under the sequencer. It is small under loom, so that models go beyond it.
const EXAMINED_MAX: usize = if cfg!(any(loom, shuttle)) { 1 } else { 256 };

/// The maximum number of attempts to keep to [`EXAMINED_MAX`]. Each one examines only what has
/// changed during the one before, except where a key that failed a compare no longer does. The
/// transaction after the last attempt runs without the maximum, so that it ends.
const ATTEMPTS_MAX: usize = if cfg!(any(loom, shuttle)) { 1 } else { 8 };

/// The maximum number of log records that are copied at a time.
const COPIED_RECORDS: usize = 256;

/// The results of the compares over ranges that determine which operations of a transaction run.
/// They hold at the revision before the transaction.
#[derive(Debug, Default)]
pub(super) struct Compares {
    /// By address: the same transaction is passed to all functions.
    ranges: BTreeMap<*const Compare, RangeCompare>,
}

/// A compare over a range.
#[derive(Debug, Default)]
struct RangeCompare {
    known: Option<Known>,
    /// Whether the compare holds at the revision of the last update.
    holds: bool,
}

/// The result of an examination of a range.
#[derive(Debug)]
enum Known {
    /// No key that is live at this revision fails the compare.
    NoneFails(Revision),
    /// This version of a key fails it.
    Fails(KeyValue),
}

/// A number of keys and records that may still be examined. Functions return `None` if it does not
/// suffice.
struct Budget(usize);

impl Budget {
    fn spend(&mut self) -> Option<()> {
        self.0 = self.0.checked_sub(1)?;
        Some(())
    }
}

/// Takes the sequencer, with the compares over ranges evaluated.
#[inline]
pub(super) fn begin<'a>(
    store: &'a Store,
    txn: &Txn,
    compares: &mut Compares,
) -> Result<Writer<'a>, WriteError> {
    if compares_a_range(txn) {
        compares.begin(store, txn)
    } else {
        Writer::begin(store)
    }
}

fn compares_a_range(txn: &Txn) -> bool {
    let is_range = |compare: &Compare| !matches!(compare.keys, KeyRange::One(_));
    let within = |op: &Op| matches!(op, Op::Txn(txn) if compares_a_range(txn));
    txn.compares.iter().any(is_range) || txn.success.iter().chain(&txn.failure).any(within)
}

impl Compares {
    /// Returns whether a compare holds. `at` is the position before the transaction (TXN-20).
    #[inline]
    pub(super) fn hold(&self, compare: &Compare, store: &Store, at: Position) -> bool {
        match &compare.keys {
            KeyRange::One(key) => holds_for(compare, store.index.read(key, at).as_ref()),
            _ => self.range_holds(compare),
        }
    }

    #[inline(never)]
    fn range_holds(&self, compare: &Compare) -> bool {
        self.ranges[&ptr::from_ref(compare)].holds
    }

    #[inline(never)]
    fn begin<'a>(&mut self, store: &'a Store, txn: &Txn) -> Result<Writer<'a>, WriteError> {
        for _ in 0..ATTEMPTS_MAX {
            if let Some(writer) = self.attempt(store, txn, EXAMINED_MAX)? {
                return Ok(writer);
            }
        }
        let writer = self.attempt(store, txn, usize::MAX)?;
        Ok(writer.expect("an attempt without a maximum ends"))
    }

    /// Brings the results up to date, first without the sequencer and then with it. Returns `None`
    /// if more than `examined_max` keys and records are to be examined with it.
    fn attempt<'a>(
        &mut self,
        store: &'a Store,
        txn: &Txn,
        examined_max: usize,
    ) -> Result<Option<Writer<'a>>, WriteError> {
        // Without a maximum, `None` means that a compaction has removed history that was read.
        let _ = self.update(store, txn, store.current.load(), &mut Budget(usize::MAX));
        #[cfg(all(test, not(any(loom, shuttle))))]
        tests::change_store();
        let writer = Writer::begin(store)?;
        on_fault!(
            store.faults,
            CompareOutsideSequencer,
            return Ok(Some(writer))
        );
        let mut budget = Budget(examined_max);
        let updated = self.update(store, txn, writer.revision(), &mut budget);
        #[cfg(all(test, not(any(loom, shuttle))))]
        tests::EXAMINED.with_borrow_mut(|examined| examined.push(examined_max - budget.0));
        Ok(updated.map(|()| writer))
    }

    /// Brings the results of the compares that determine which operations run to `now`.
    fn update(
        &mut self,
        store: &Store,
        txn: &Txn,
        now: Revision,
        budget: &mut Budget,
    ) -> Option<()> {
        let mut succeeded = true;
        for compare in &txn.compares {
            if !matches!(compare.keys, KeyRange::One(_)) {
                let range = self.ranges.entry(ptr::from_ref(compare)).or_default();
                range.update(compare, store, now, budget)?;
            }
            succeeded = self.hold(compare, store, now.end());
            if !succeeded {
                break;
            }
        }
        let branch = if succeeded {
            &txn.success
        } else {
            &txn.failure
        };
        branch.iter().try_for_each(|op| match op {
            Op::Txn(txn) => self.update(store, txn, now, budget),
            Op::Range(_) | Op::Put(_) | Op::Delete(_) => Some(()),
        })
    }
}

impl RangeCompare {
    /// Brings the result to `now`.
    fn update(
        &mut self,
        compare: &Compare,
        store: &Store,
        now: Revision,
        budget: &mut Budget,
    ) -> Option<()> {
        // The previous result stays if the budget does not suffice.
        self.known = Some(match &self.known {
            Some(Known::NoneFails(then)) if !store.compacted.has_dropped(*then) => {
                examine_changes(compare, store, *then, now, budget)?
            }
            Some(Known::Fails(version)) => {
                budget.spend()?;
                match failing_version(compare, store, version.key(), now) {
                    Some(newest) => Known::Fails(newest),
                    None => examine_range(compare, store, now, budget)?,
                }
            }
            Some(Known::NoneFails(_)) | None => examine_range(compare, store, now, budget)?,
        });
        // An empty range is compared like an absent key (CMP-3). The count is that of the newest
        // revision, which is `now` under the sequencer.
        self.holds = match self.known {
            Some(Known::NoneFails(_)) => {
                holds_for(compare, None) || store.index.count(&compare.keys).live > 0
            }
            Some(Known::Fails(_)) | None => false,
        };
        Some(())
    }
}

/// Returns the version of a key at `now` if the key is live and fails the compare.
fn failing_version(
    compare: &Compare,
    store: &Store,
    key: &[u8],
    now: Revision,
) -> Option<KeyValue> {
    let version = store.index.read(key, now.end());
    version.filter(|version| !holds_for(compare, Some(version)))
}

/// Examines the keys of the range, up to the first one that fails the compare.
fn examine_range(
    compare: &Compare,
    store: &Store,
    now: Revision,
    budget: &mut Budget,
) -> Option<Known> {
    let (mut within_budget, mut failing) = (Some(()), None);
    if !compare.keys.is_empty() {
        store.index.scan(&compare.keys, |found| {
            within_budget = budget.spend();
            if within_budget.is_some() {
                let version = found.read(now.end());
                let version = version.filter(|version| !holds_for(compare, Some(version)));
                failing = version.as_deref().cloned();
            }
            if within_budget.is_some() && failing.is_none() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
    }
    within_budget?;
    // I7: a compaction may have removed versions that the reads have missed.
    if store.compacted.has_dropped(now) {
        return None;
    }
    Some(failing.map_or(Known::NoneFails(now), Known::Fails))
}

/// Examines the changes after `then`, where no key failed the compare.
fn examine_changes(
    compare: &Compare,
    store: &Store,
    then: Revision,
    now: Revision,
    budget: &mut Budget,
) -> Option<Known> {
    let mut from = then.next().start();
    while from.revision <= now {
        // One more than the budget, to see that it does not suffice.
        let max = COPIED_RECORDS.min(budget.0.saturating_add(1));
        let records = store.log.copy(from, now.end(), max);
        for record in &records {
            budget.spend()?;
            let may_fail = !record.is_tombstone()
                && compare.keys.contains(record.key())
                && !holds_for(compare, Some(record));
            // The key may have changed again since this record.
            if may_fail && let Some(newest) = failing_version(compare, store, record.key(), now) {
                return Some(Known::Fails(newest));
            }
        }
        match records.last() {
            Some(last) if records.len() == max => from = last.position().next(),
            _ => break,
        }
    }
    // I7: a compaction may have removed records that were not copied yet.
    if store.compacted.has_dropped(then) {
        return None;
    }
    Some(Known::NoneFails(now))
}

/// Returns whether a compare holds for one key, or for an absent one.
#[inline]
fn holds_for(compare: &Compare, kv: Option<&KeyValue>) -> bool {
    let number = |of: fn(&KeyValue) -> i64| kv.map_or(0, of);
    let ordering = match &compare.target {
        CompareTarget::Version(right) => number(KeyValue::version).cmp(right),
        CompareTarget::CreateRevision(right) => number(|kv| kv.create_revision().0).cmp(right),
        CompareTarget::ModRevision(right) => number(|kv| kv.mod_revision().0).cmp(right),
        CompareTarget::Lease(right) => number(|kv| kv.lease().map_or(0, LeaseId::get)).cmp(right),
        CompareTarget::Value(right) => match kv {
            Some(kv) => kv.value().cmp(right),
            // CMP-2: no condition holds on the value of an absent key.
            None => return false,
        },
        CompareTarget::Nothing => Ordering::Equal,
    };
    match compare.relation {
        Relation::Equal => ordering.is_eq(),
        Relation::NotEqual => ordering.is_ne(),
        Relation::Greater => ordering.is_gt(),
        Relation::Less => ordering.is_lt(),
        Relation::Any => true,
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::{ATTEMPTS_MAX, EXAMINED_MAX, holds_for};
    use crate::{
        Compare, CompareTarget, Engine, KeyRange, ManualClock, Op, Put, Range, Relation, Txn,
        TxnResult,
    };

    type Change = Box<dyn FnOnce()>;

    thread_local! {
        /// What other writers do in the attempts of the transactions of this thread, between the
        /// parts without the sequencer and with it.
        static CHANGES: RefCell<VecDeque<Change>> = RefCell::default();
        /// The number of keys and records that each attempt has examined under the sequencer.
        pub(super) static EXAMINED: RefCell<Vec<usize>> = RefCell::default();
    }

    pub(super) fn change_store() {
        let change = CHANGES.with_borrow_mut(VecDeque::pop_front);
        if let Some(change) = change {
            change();
        }
    }

    /// Runs a transaction with other writes in its attempts; returns the result, and what each
    /// attempt has examined under the sequencer.
    fn run(engine: &Engine, txn: &Txn, changes: Vec<Change>) -> (TxnResult, Vec<usize>) {
        CHANGES.set(changes.into());
        EXAMINED.take();
        let done = engine.txn(txn).expect("a valid transaction");
        (done, EXAMINED.take())
    }

    fn new_engine() -> Engine {
        Engine::builder().clock(ManualClock::new()).build()
    }

    fn name(number: usize) -> String {
        format!("k/{number:05}")
    }

    /// More than an attempt may examine under the sequencer, also under miri.
    const KEYS: usize = if cfg!(miri) { 2_000 } else { 10_000 };

    fn engine_with_keys() -> Engine {
        let engine = new_engine();
        let puts = (0..KEYS).map(|number| Op::Put(Put::new(name(number), "good")));
        engine.txn(&Txn::new().and_then(puts)).expect("valid puts");
        engine
    }

    /// Requires that all keys have the value `good`.
    fn all_good() -> Txn {
        let good = CompareTarget::Value("good".into());
        Txn::new().when([Compare::new(KeyRange::prefix("k/"), good, Relation::Equal)])
    }

    fn put(engine: &Engine, number: usize, value: &'static str) {
        engine.put(name(number), value).expect("a valid put");
    }

    /// A change that writes the value to keys of the range, and to as many others.
    fn puts(engine: &Engine, numbers: std::ops::Range<usize>, value: &'static str) -> Change {
        let engine = engine.clone();
        Box::new(move || {
            for number in numbers {
                put(&engine, number, value);
                let other = format!("other/{number}");
                engine.put(other, value).expect("a valid put");
            }
        })
    }

    fn check(
        engine: &Engine,
        txn: &Txn,
        changes: Vec<Change>,
        succeeded: bool,
        examined: impl AsRef<[usize]>,
    ) {
        let (done, counted) = run(engine, txn, changes);
        assert_eq!(
            (done.succeeded, &counted[..]),
            (succeeded, examined.as_ref())
        );
    }

    /// All keys were once examined under the sequencer.
    #[test]
    fn an_unchanged_range_is_not_examined_under_the_sequencer() {
        let engine = engine_with_keys();
        check(&engine, &all_good(), vec![], true, [0]);
        put(&engine, KEYS - 1, "bad");
        check(&engine, &all_good(), vec![], false, [1]);
        let nested = Txn::new().and_then([Op::Txn(all_good())]);
        check(&engine, &nested, vec![], true, [1]);
        let not_taken = nested.when([Compare::absent(name(0))]);
        check(&engine, &not_taken, vec![], false, [0]);
    }

    #[test]
    fn only_the_changes_of_a_range_are_examined_under_the_sequencer() {
        let engine = engine_with_keys();
        let few = EXAMINED_MAX / 2;
        check(
            &engine,
            &all_good(),
            vec![puts(&engine, 0..few, "good")],
            true,
            [2 * few],
        );
        check(
            &engine,
            &all_good(),
            vec![puts(&engine, 7..8, "bad")],
            false,
            [1],
        );
        // The key that failed has changed, and so the range is examined without the sequencer.
        let repaired = vec![puts(&engine, 7..8, "good")];
        check(&engine, &all_good(), repaired, true, [EXAMINED_MAX, 0]);
        // A key that has failed only in between.
        let twice = engine.clone();
        let changes: Change = Box::new(move || {
            put(&twice, 7, "bad");
            put(&twice, 7, "good");
        });
        check(&engine, &all_good(), vec![changes], true, [2]);
        // More changes than the maximum, also in the next attempt.
        let many = || puts(&engine, 0..EXAMINED_MAX, "good");
        let examined = [EXAMINED_MAX, EXAMINED_MAX, 0];
        check(&engine, &all_good(), vec![many(), many()], true, examined);
    }

    #[test]
    fn a_range_that_changes_in_every_attempt_is_compared_in_the_end() {
        let engine = engine_with_keys();
        let change = |_| puts(&engine, 0..KEYS / 10, "good");
        let changes: Vec<_> = (0..=ATTEMPTS_MAX).map(change).collect();
        let (done, examined) = run(&engine, &all_good(), changes);
        assert!(done.succeeded);
        let (last, attempts) = examined.split_last().expect("there are attempts");
        assert_eq!(attempts, [EXAMINED_MAX; ATTEMPTS_MAX]);
        assert_eq!(
            *last,
            2 * KEYS / 10,
            "only the changes since the last attempt"
        );
    }

    #[test]
    fn a_compaction_between_the_phases_has_no_effect_on_the_result() {
        for (value, succeeded) in [("good", true), ("bad", false)] {
            let engine = engine_with_keys();
            let compacting = engine.clone();
            let change: Change = Box::new(move || {
                put(&compacting, 7, value);
                put(&compacting, 8, "good");
                let current = compacting.current_revision();
                compacting.compact(current).expect("a kept revision").run();
            });
            let (done, examined) = run(&engine, &all_good(), vec![change]);
            assert_eq!(done.succeeded, succeeded);
            assert!(examined.iter().all(|examined| *examined <= EXAMINED_MAX));
        }
    }

    #[test]
    fn cmp_3_a_range_that_becomes_empty_is_compared_like_an_absent_key() {
        let engine = new_engine();
        put(&engine, 1, "good");
        let delete = |engine: &Engine| -> Change {
            let engine = engine.clone();
            Box::new(move || drop(engine.delete(&KeyRange::prefix("k/"))))
        };
        let version = |relation| {
            let keys = KeyRange::prefix("k/");
            Txn::new().when([Compare::new(keys, CompareTarget::Version(0), relation)])
        };
        let (none, some) = (version(Relation::Equal), version(Relation::Greater));
        check(
            &engine,
            &none,
            vec![puts(&engine, 1..2, "good")],
            false,
            [1],
        );
        check(&engine, &none, vec![delete(&engine)], true, [2]);
        check(
            &engine,
            &none,
            vec![puts(&engine, 1..2, "good")],
            false,
            [1],
        );
        check(&engine, &some, vec![delete(&engine)], false, [1]);
    }

    /// A write of a key, more of them than an attempt may examine, a deletion, or a compaction at
    /// the current revision.
    #[derive(Clone, Debug)]
    enum Write {
        Put(u8, u8),
        PutMany(u8, u8),
        Delete(u8),
        Compact,
    }

    impl Write {
        fn run(&self, engine: &Engine) {
            match self {
                Self::Put(key, value) => drop(engine.put(vec![*key], vec![*value])),
                Self::PutMany(key, value) => {
                    (0..=EXAMINED_MAX).for_each(|_| Self::Put(*key, *value).run(engine));
                }
                Self::Delete(key) => drop(engine.delete(&KeyRange::one(vec![*key]))),
                Self::Compact => {
                    if let Ok(compaction) = engine.compact(engine.current_revision()) {
                        compaction.run();
                    }
                }
            }
        }
    }

    fn run_all(writes: &[Write], engine: &Engine) {
        for write in writes {
            write.run(engine);
        }
    }

    fn writes() -> impl Strategy<Value = Vec<Write>> {
        let write = prop_oneof![
            12 => (1..6_u8, 0..2_u8).prop_map(|(key, value)| Write::Put(key, value)),
            6 => (1..6_u8).prop_map(Write::Delete),
            1 => (1..6_u8, 0..2_u8).prop_map(|(key, value)| Write::PutMany(key, value)),
            2 => Just(Write::Compact),
        ];
        proptest::collection::vec(write, 0..8)
    }

    fn compare() -> impl Strategy<Value = Compare> {
        let keys = prop_oneof![
            3 => Just(KeyRange::all()),
            2 => (1..7_u8, 1..7_u8)
                .prop_map(|(start, end)| KeyRange::within(vec![start], vec![end])),
            1 => (1..6_u8).prop_map(|key| KeyRange::one(vec![key])),
        ];
        let target = prop_oneof![
            2 => (0..2_u8).prop_map(|value| CompareTarget::Value(vec![value].into())),
            2 => (0..4_i64).prop_map(CompareTarget::Version),
            1 => (0..20_i64).prop_map(CompareTarget::CreateRevision),
            1 => (0..20_i64).prop_map(CompareTarget::ModRevision),
            1 => Just(CompareTarget::Lease(0)),
            1 => Just(CompareTarget::Nothing),
        ];
        let relation = prop_oneof![
            Just(Relation::Equal),
            Just(Relation::NotEqual),
            Just(Relation::Greater),
            Just(Relation::Less),
            Just(Relation::Any),
        ];
        (keys, target, relation)
            .prop_map(|(keys, target, relation)| Compare::new(keys, target, relation))
    }

    /// Evaluates a compare over the current keys, one after the other.
    fn holds(engine: &Engine, compare: &Compare) -> bool {
        let found = engine.range(&Range::of(compare.keys.clone()));
        let found = found.expect("the current revision is kept").kvs;
        let mut live = found.iter().map(Some);
        if found.is_empty() {
            return holds_for(compare, None);
        }
        live.all(|kv| holds_for(compare, kv))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 500 }))]

        /// Whatever other writers do between the phases, the compares of a transaction, nested ones
        /// included, have the results of the revision before it.
        #[test]
        fn compares_hold_at_the_revision_before_the_transaction(
            before in writes(),
            attempts in proptest::collection::vec(writes(), 0..=ATTEMPTS_MAX + 1),
            compares in proptest::collection::vec(compare(), 0..4),
            nested in proptest::collection::vec(compare(), 0..3),
        ) {
            let engine = new_engine();
            run_all(&before, &engine);
            let inner = Op::Txn(Txn::new().when(nested.clone()));
            let txn = Txn::new()
                .when(compares.clone())
                .and_then([inner.clone()])
                .or_else([inner]);
            let changes = attempts.into_iter().map(|writes| -> Change {
                let engine = engine.clone();
                Box::new(move || run_all(&writes, &engine))
            });
            let (done, examined) = run(&engine, &txn, changes.collect());
            let expected = compares.iter().all(|compare| holds(&engine, compare));
            prop_assert_eq!(done.succeeded, expected);
            let crate::OpResult::Txn(inner) = &done.results[0] else {
                panic!("TXN-26: expected the result of a transaction");
            };
            let expected = nested.iter().all(|compare| holds(&engine, compare));
            prop_assert_eq!(inner.succeeded, expected);
            prop_assert!(examined.len() <= ATTEMPTS_MAX + 1);
            let limited = &examined[..examined.len().min(ATTEMPTS_MAX)];
            prop_assert!(limited.iter().all(|examined| *examined <= EXAMINED_MAX));
            prop_assert_eq!(done.revision, engine.current_revision());
        }
    }
}
