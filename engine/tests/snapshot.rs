//! Snapshots: the same content as long as they exist, whatever is written and compacted.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use revstore_engine::{
    Engine, KeyRange, KeyValue, ManualClock, Op, Put, Range, ReadError, Revision, Snapshot,
    SnapshotError, Txn,
};

/// The live keys.
type Content = BTreeMap<Vec<u8>, State>;
/// The value and the mod revision of a live key.
type State = (Vec<u8>, i64);

fn content(kvs: impl IntoIterator<Item = KeyValue>) -> Content {
    let item = |kv: KeyValue| {
        (
            kv.key().to_vec(),
            (kv.value().to_vec(), kv.mod_revision().0),
        )
    };
    kvs.into_iter().map(item).collect()
}

/// Reads a range until the end or an error.
fn read(snapshot: &Snapshot, range: KeyRange) -> (Vec<KeyValue>, Option<SnapshotError>) {
    let mut found = Vec::new();
    let mut keys = snapshot.iter(range);
    for kv in keys.by_ref() {
        match kv {
            Ok(kv) => {
                let last = found.last().map_or(&[][..], KeyValue::key);
                assert!(last < kv.key(), "keys are in order");
                found.push(kv);
            }
            Err(error) => {
                assert!(keys.next().is_none(), "an iterator ends after an error");
                return (found, Some(error));
            }
        }
    }
    (found, None)
}

#[derive(Clone, Debug)]
enum Step {
    Put(u16),
    /// Puts of adjacent keys and a deletion of others, in one transaction.
    Txn {
        puts: (u16, u16),
        deleted: (u16, u16),
    },
    Delete(u16, u16),
    /// A compaction this many revisions below the current one, and whether it is run.
    Compact(i64, bool),
    Open,
    Drop(usize),
    /// Reads a range of keys in each snapshot.
    Read(u16, u16),
}

/// More keys than an iterator reads in one step.
const KEYS: u16 = 200;

fn key(number: u16) -> Vec<u8> {
    format!("k{number:03}").into_bytes()
}

fn range(from: u16, count: u16) -> KeyRange {
    KeyRange::within(key(from), key(from.saturating_add(count)))
}

fn step() -> impl Strategy<Value = Step> {
    let one = 0..KEYS;
    let some = (0..KEYS, 0..100_u16);
    prop_oneof![
        4 => one.prop_map(Step::Put),
        3 => (some.clone(), some.clone()).prop_map(|(puts, deleted)| Step::Txn { puts, deleted }),
        2 => some.clone().prop_map(|(from, count)| Step::Delete(from, count)),
        4 => (0..6_i64, prop::bool::weighted(0.8)).prop_map(|(back, run)| Step::Compact(back, run)),
        3 => Just(Step::Open),
        1 => any::<usize>().prop_map(Step::Drop),
        2 => some.prop_map(|(from, count)| Step::Read(from, count)),
    ]
}

struct Comparison {
    engine: Engine,
    bytes_max: u64,
    live: Content,
    written: u64,
    snapshots: Vec<(Snapshot, Content)>,
}

impl Comparison {
    fn new(bytes_max: u64) -> Self {
        let engine = Engine::builder().snapshot_bytes_max(bytes_max).build();
        Self {
            engine,
            bytes_max,
            live: Content::new(),
            written: 0,
            snapshots: Vec::new(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        self.written += 1;
        self.written.to_string().into_bytes()
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Put(number) => {
                let value = self.value();
                let put = self.engine.put(key(number), value.clone()).unwrap();
                self.live.insert(key(number), (value, put.revision.0));
            }
            Step::Txn { puts, deleted } => {
                let value = self.value();
                let numbers = || puts.0..puts.0.saturating_add(puts.1).min(KEYS);
                let put = |number| Op::Put(Put::new(key(number), value.clone()));
                let deleted = range(deleted.0, deleted.1);
                let ops = numbers().map(put).chain([Op::Delete(deleted.clone())]);
                let done = self.engine.txn(&Txn::new().and_then(ops)).unwrap();
                for number in numbers() {
                    let value = (value.clone(), done.revision.0);
                    self.live.insert(key(number), value);
                }
                self.live.retain(|key, _| !deleted.contains(key));
            }
            Step::Delete(from, count) => {
                let deleted = range(from, count);
                self.engine.delete(&deleted).unwrap();
                self.live.retain(|key, _| !deleted.contains(key));
            }
            Step::Compact(back, run) => {
                let revision = Revision(self.engine.current_revision().0 - back);
                if let Ok(compaction) = self.engine.compact(revision)
                    && run
                {
                    compaction.run();
                }
            }
            Step::Open => match self.engine.snapshot() {
                Ok(snapshot) => {
                    assert_eq!(snapshot.revision(), self.engine.current_revision());
                    self.snapshots.push((snapshot, self.live.clone()));
                }
                Err(SnapshotError::TooMany { pinned_bytes, .. }) => {
                    assert!(pinned_bytes > self.bytes_max / 2);
                }
                Err(error) => panic!("{error}"),
            },
            Step::Drop(index) => {
                if !self.snapshots.is_empty() {
                    drop(self.snapshots.swap_remove(index % self.snapshots.len()));
                }
            }
            Step::Read(from, count) => {
                for (snapshot, expected) in &self.snapshots {
                    let range = range(from, count);
                    let (found, error) = read(snapshot, range.clone());
                    let expected = expected.iter().filter(|(key, _)| range.contains(key));
                    self.check(&found, error, expected);
                }
            }
        }
        self.check_all();
    }

    /// Compares a read with the expected keys: all of them, or the first ones if the snapshot is
    /// lost.
    fn check<'a>(
        &self,
        found: &[KeyValue],
        error: Option<SnapshotError>,
        expected: impl Iterator<Item = (&'a Vec<u8>, &'a State)>,
    ) {
        let first = match error {
            None => usize::MAX,
            Some(SnapshotError::Lost { .. }) if self.bytes_max < u64::MAX => found.len(),
            Some(error) => panic!("{error}"),
        };
        let found = found.iter().cloned();
        let expected = expected.take(first);
        let expected = expected.map(|(key, state)| (key.clone(), state.clone()));
        assert_eq!(content(found), expected.collect());
    }

    fn check_all(&self) {
        let stats = self.engine.stats();
        assert!(stats.snapshot_bytes <= self.bytes_max);
        let mut pinned = BTreeMap::new();
        for (snapshot, expected) in &self.snapshots {
            let (found, error) = read(snapshot, KeyRange::all());
            self.check(&found, error, expected.iter());
            for number in (0..KEYS).step_by(7) {
                match snapshot.get(key(number)) {
                    Ok(found) => {
                        let found = found.map(|kv| (kv.value().to_vec(), kv.mod_revision().0));
                        assert_eq!(found.as_ref(), expected.get(&key(number)));
                    }
                    Err(error) => assert!(matches!(error, SnapshotError::Lost { .. })),
                }
            }
            pinned.insert(snapshot.revision(), snapshot.pinned_bytes());
        }
        assert_eq!(stats.snapshot_bytes, pinned.values().sum());
        // Other reads are not affected.
        let now = self.engine.range(&Range::of(KeyRange::all())).unwrap();
        assert_eq!(content(now.kvs), self.live);
    }
}

proptest! {
    #[test]
    fn snapshots_do_not_change(
        steps in prop::collection::vec(step(), 1..50),
        bytes_max in prop_oneof![3 => Just(u64::MAX), 1 => 0..20_000_u64],
    ) {
        let mut comparison = Comparison::new(bytes_max);
        for step in steps {
            comparison.apply(&step);
        }
        comparison.snapshots.clear();
        let stats = comparison.engine.stats();
        prop_assert_eq!((stats.snapshots, stats.snapshot_bytes), (0, 0));
    }
}

/// A compaction would block this thread for ever if it waited for the snapshot.
#[test]
fn a_compaction_frees_what_no_snapshot_reads_and_waits_for_none() {
    let engine = Engine::builder().build();
    for value in 10..20 {
        engine.put("k", value.to_string()).unwrap();
    }
    let snapshot = engine.snapshot().unwrap();
    let mut last = snapshot.revision();
    for value in 20..30 {
        last = engine.put("k", value.to_string()).unwrap().revision;
    }
    assert_eq!(snapshot.pinned_bytes(), 0);
    let one = engine.get("k").unwrap().size_bytes();
    engine.compact(last).unwrap().run();
    assert_eq!(snapshot.pinned_bytes(), one);
    assert_eq!(engine.stats().history_bytes, one);
    let old = Range::of(KeyRange::one("k")).at(snapshot.revision());
    assert!(matches!(
        engine.range(&old),
        Err(ReadError::Compacted { .. })
    ));
    assert_eq!(snapshot.get("k").unwrap().unwrap().value(), b"19");
    drop(snapshot);
    assert_eq!(engine.stats().snapshot_bytes, 0);
}

/// The key is taken out of the index and created again while the snapshot reads its first life.
#[test]
fn a_key_that_is_created_again_does_not_hide_the_one_of_the_snapshot() {
    let engine = Engine::builder().build();
    engine.put("k", "first").unwrap();
    let snapshot = engine.snapshot().unwrap();
    engine.delete(&KeyRange::one("k")).unwrap();
    let compacted = engine.put("other", "").unwrap().revision;
    engine.compact(compacted).unwrap().run();
    engine.put("k", "second").unwrap();
    assert_eq!(snapshot.get("k").unwrap().unwrap().value(), b"first");
    let (found, error) = read(&snapshot, KeyRange::all());
    assert_eq!((found.len(), error), (1, None));
    assert_eq!(found[0].value(), b"first");
    assert!(read(&snapshot, KeyRange::within("z", "a")).0.is_empty());
    assert_eq!(read(&snapshot, KeyRange::one("k")).0, found);
}

#[test]
fn the_number_of_open_snapshots_is_bounded() {
    let engine = Engine::builder().snapshots_max(2).build();
    let first = engine.snapshot().unwrap();
    let _second = engine.snapshot().unwrap();
    let refused = SnapshotError::TooMany {
        open: 2,
        open_max: 2,
        pinned_bytes: 0,
        pinned_bytes_max: 256 * 1024 * 1024,
    };
    assert_eq!(engine.snapshot().unwrap_err(), refused);
    drop(first);
    assert!(engine.snapshot().is_ok());
    let none = Engine::builder().snapshots_max(0).build();
    assert!(none.snapshot().is_err());
}

/// Puts new values of 1,000 bytes for some keys, and compacts.
fn replace(engine: &Engine, keys: std::ops::Range<u16>) {
    let put = |number| Op::Put(Put::new(key(number), vec![0; 1000]));
    let written = engine.txn(&Txn::new().and_then(keys.map(put))).unwrap();
    engine.compact(written.revision).unwrap().run();
}

#[test]
fn snapshots_are_lost_from_the_oldest_on_and_new_ones_refused_before() {
    let engine = Engine::builder().snapshot_bytes_max(30_000).build();
    replace(&engine, 0..30);
    let oldest = engine.snapshot().unwrap();
    let same = engine.snapshot().unwrap();
    replace(&engine, 0..10);
    let middle = engine.snapshot().unwrap();
    replace(&engine, 10..16);
    // `oldest` reads 16 replaced keys and `middle` 6 of them: more than half of the bytes.
    let error = engine.snapshot().unwrap_err();
    let SnapshotError::TooMany {
        open, pinned_bytes, ..
    } = error
    else {
        panic!("{error}")
    };
    assert_eq!(open, 3);
    assert_eq!(pinned_bytes, oldest.pinned_bytes() + middle.pinned_bytes());
    assert!(oldest.get(key(0)).unwrap().is_some());

    replace(&engine, 16..26);
    let lost = SnapshotError::Lost {
        revision: oldest.revision(),
        pinned_bytes_max: 30_000,
    };
    for snapshot in [&oldest, &same] {
        assert_eq!(snapshot.get(key(0)), Err(lost));
        assert_eq!(snapshot.pinned_bytes(), 0);
        assert!(read(snapshot, KeyRange::all()).1 == Some(lost));
    }
    assert_eq!(read(&middle, KeyRange::all()).0.len(), 30);
    assert_eq!(engine.stats().snapshots, 1);
    drop((oldest, same));
    assert_eq!(engine.stats().snapshots, 1);
    drop(middle);
    assert_eq!(
        (engine.stats().snapshots, engine.stats().snapshot_bytes),
        (0, 0)
    );
    assert!(engine.snapshot().is_ok());
}

#[test]
fn the_age_follows_the_clock_of_the_engine() {
    let clock = ManualClock::new();
    let engine = Engine::builder().clock(clock.clone()).build();
    clock.advance(Duration::from_secs(7));
    let snapshot = engine.snapshot().unwrap();
    assert_eq!(snapshot.age(), Duration::ZERO);
    clock.advance(Duration::from_secs(3));
    assert_eq!(snapshot.age(), Duration::from_secs(3));
}

/// Transactions write the same value to all keys or delete all, so every snapshot must contain one
/// value, all keys or none, and the same content when it is read again.
#[test]
fn snapshots_are_consistent_beside_writers_and_compactions() {
    const ROUNDS: u32 = 300;
    let engine = Engine::builder().build();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                let value = round.to_string();
                let put = |number| Op::Put(Put::new(key(number), value.clone()));
                let mut txn = Txn::new().and_then((0..KEYS).map(put));
                if round % 5 == 4 {
                    txn = Txn::new().and_then([Op::Delete(KeyRange::all())]);
                }
                engine.txn(&txn).unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if let Ok(compaction) = engine.compact(engine.current_revision()) {
                    compaction.run();
                }
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let snapshot = engine.snapshot().unwrap();
                    let first: Vec<_> = snapshot
                        .iter(KeyRange::all())
                        .collect::<Result<_, _>>()
                        .unwrap();
                    assert!(first.is_empty() || first.len() == usize::from(KEYS));
                    assert!(first.iter().all(|kv| kv.value() == first[0].value()));
                    thread::yield_now();
                    let (again, error) = read(&snapshot, KeyRange::all());
                    assert_eq!((again, error), (first.clone(), None));
                    for kv in first.iter().step_by(31) {
                        assert_eq!(snapshot.get(kv.key()).unwrap().as_ref(), Some(kv));
                    }
                }
            });
        }
    });
    assert_eq!(engine.stats().snapshot_bytes, 0);
}

/// More keys than a step of the index and of the kept versions, in each mixture of the two.
#[test]
fn an_iterator_returns_each_key_once_across_its_steps() {
    const MANY: u32 = 3_000;
    let engine = Engine::builder().build();
    let name = |number: u32| format!("k{number:05}");
    for number in 0..MANY {
        engine.put(name(number), number.to_string()).unwrap();
    }
    let snapshot = engine.snapshot().unwrap();
    // Nothing kept; some of each 700 keys; a part deleted; all deleted.
    for part in 0..4_u32 {
        for number in 0..MANY {
            match part {
                1 if number / 700 % 2 == 0 => drop(engine.put(name(number), "new").unwrap()),
                2 if number % 3 == 0 => drop(engine.delete(&KeyRange::one(name(number))).unwrap()),
                3 => drop(engine.delete(&KeyRange::one(name(number))).unwrap()),
                _ => {}
            }
        }
        let last = engine.put(format!("other{part}"), "").unwrap().revision;
        engine.compact(last).unwrap().run();
        let (found, error) = read(&snapshot, KeyRange::all());
        assert_eq!((found.len(), error), (MANY as usize, None));
        for (number, kv) in (0..).zip(&found) {
            assert_eq!(kv.key(), name(number).as_bytes());
            assert_eq!(kv.value(), number.to_string().as_bytes());
        }
        let within = KeyRange::within(name(100), name(2_100));
        assert!(read(&snapshot, within).0 == found[100..2_100]);
    }
}
