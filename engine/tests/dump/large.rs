//! Forks of stores that are so large that they are copied in parts, by two threads: equal to a plain model.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use proptest::prelude::*;
use revstore_engine::{
    Compaction, Engine, Jump, KeyRange, KeyValue, LeaseId, ManualClock, Op, Put, Range, Revision,
    Txn, WatchOptions,
};

/// A number of versions with which a store is copied in parts.
const MANY: u64 = 36_000;

/// A version without its key; `None` for the value of a tombstone.
#[derive(Clone, Debug, PartialEq)]
struct Version {
    revision: i64,
    value: Option<Vec<u8>>,
    lease: Option<LeaseId>,
}

/// All versions of all keys that were ever written.
#[derive(Clone, Debug, Default)]
struct Model {
    keys: BTreeMap<Vec<u8>, Vec<Version>>,
}

type Live<'a> = BTreeMap<&'a [u8], &'a Version>;

impl Model {
    fn write(&mut self, key: &[u8], version: Version) {
        self.keys.entry(key.to_vec()).or_default().push(version);
    }

    fn live(&self, at: Revision) -> Live<'_> {
        let mut live = Live::new();
        for (key, versions) in &self.keys {
            let newest = versions.iter().rfind(|version| version.revision <= at.0);
            if let Some(newest) = newest.filter(|newest| newest.value.is_some()) {
                live.insert(key, newest);
            }
        }
        live
    }

    /// The versions from the compacted revision on, and those that are visible there, in the order in which they were written:
    /// transactions of the test write their keys in order.
    fn kept(&self, compacted: i64, current: i64) -> Vec<(&[u8], &Version)> {
        let mut kept = Vec::new();
        for (key, versions) in &self.keys {
            let versions = &versions[..versions.partition_point(|it| it.revision <= current)];
            let after = versions.partition_point(|it| it.revision <= compacted);
            let visible = versions[..after].last();
            let is_kept = |it: &&Version| it.value.is_some() || it.revision == compacted;
            let all = visible
                .filter(is_kept)
                .into_iter()
                .chain(&versions[after..]);
            kept.extend(all.map(|version| (&key[..], version)));
        }
        kept.sort_by_key(|(_, version)| version.revision);
        kept
    }
}

/// Writes to an engine and to its model.
struct Writer<'a> {
    engine: &'a Engine,
    random: u64,
    keys: u64,
    lease: LeaseId,
}

impl Writer<'_> {
    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    fn key(&mut self) -> Vec<u8> {
        let number = self.random(self.keys).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut key = b"/registry/".to_vec();
        key.extend(&number.to_be_bytes()[..3]);
        key
    }

    /// One transaction of up to three keys: mostly puts, some with a lease, and some deletions.
    fn write(&mut self, model: &Mutex<Model>) {
        let keys: BTreeSet<_> = (0..=self.random(3)).map(|_| self.key()).collect();
        let mut changes = Vec::new();
        let mut ops = Vec::new();
        for key in keys {
            let kind = self.random(8);
            if kind == 0 {
                ops.push(Op::Delete(KeyRange::one(key.clone())));
                changes.push((key, None, None));
                continue;
            }
            let value = vec![b'v'; usize::try_from(kind).unwrap()];
            let lease = (kind == 1).then_some(self.lease);
            let put = Put::new(key.clone(), value.clone());
            ops.push(Op::Put(match lease {
                Some(lease) => put.attached_to(lease),
                None => put,
            }));
            changes.push((key, Some(value), lease));
        }
        let written = self.engine.txn(&Txn::new().and_then(ops)).unwrap();
        let revision = written.revision.0;
        let mut model = model.lock().unwrap();
        for (key, value, lease) in changes {
            let versions = model.keys.get(&key).and_then(|versions| versions.last());
            // The deletion of an absent key changes nothing.
            if value.is_some() || versions.is_some_and(|newest| newest.value.is_some()) {
                let version = Version {
                    revision,
                    value,
                    lease,
                };
                model.write(&key, version);
            }
        }
    }
}

/// Panics unless the records are these versions.
fn assert_same<'a>(
    kvs: &[KeyValue],
    expected: impl ExactSizeIterator<Item = (&'a [u8], &'a Version)>,
) {
    assert_eq!(kvs.len(), expected.len());
    for (kv, (key, version)) in kvs.iter().zip(expected) {
        let value = (!kv.is_tombstone()).then(|| kv.value().to_vec());
        let found = Version {
            revision: kv.mod_revision().0,
            value,
            lease: kv.lease(),
        };
        assert_eq!((kv.key(), &found), (key, version));
    }
}

/// Compares everything that a fork contains with the model.
fn check(fork: &Engine, model: &Model, lease: LeaseId) {
    let current = fork.current_revision();
    let compacted = fork.compacted_revision().map_or(0, |at| at.0);
    let kept = model.kept(compacted, current.0);
    let versions = fork.full_history(None).unwrap().versions;
    assert_same(&versions, kept.iter().copied());
    // Counters.
    let stats = fork.stats();
    let live = model.live(current);
    let keys: BTreeSet<_> = kept.iter().map(|(key, _)| key).collect();
    assert_eq!((stats.keys, stats.live_keys), (keys.len(), live.len()));
    assert_eq!(stats.versions, kept.len() as u64);
    let bytes = versions.iter().map(KeyValue::size_bytes).sum::<u64>();
    assert_eq!(stats.history_bytes, bytes);
    // Reads and counts at some revisions, and of some ranges.
    for part in 0..=3 {
        let at = Revision(compacted.max(1) + (current.0 - compacted.max(1)) * part / 3);
        let expected = model.live(at);
        let all = fork.range(&Range::of(KeyRange::all()).at(at)).unwrap();
        assert_eq!(all.count, expected.len());
        assert_same(
            &all.kvs,
            expected.iter().map(|(key, version)| (*key, *version)),
        );
        for first in [85, 170] {
            let start = [b"/registry/", &[first][..]].concat();
            let range = Range::of(KeyRange::From(start.clone().into()))
                .at(at)
                .count_only();
            let from = (Bound::Included(&start[..]), Bound::Unbounded);
            let count = expected.range::<[u8], _>(from).count();
            assert_eq!(fork.range(&range).unwrap().count, count);
        }
    }
    // The events from the oldest kept revision on, and from a later one.
    for from in [compacted.max(1), i64::midpoint(compacted, current.0)] {
        let expected = &kept[kept.partition_point(|(_, it)| it.revision < from)..];
        let watch = WatchOptions::of(KeyRange::all()).from(Revision(from));
        let mut watcher = fork.watch(watch).unwrap();
        let mut events = Vec::new();
        while let Some(batch) = watcher.try_next() {
            let batch = batch.unwrap();
            events.extend(batch.events.iter().map(|event| event.kv.clone()));
        }
        assert_same(&events, expected.iter().copied());
    }
    let attached = live
        .iter()
        .filter(|(_, version)| version.lease == Some(lease));
    let leased = fork.lease(lease, true).unwrap().keys;
    assert!(leased.iter().eq(attached.map(|(key, _)| *key)));
}

/// Compares forks that are taken while a writer and compactions run.
fn check_forks(seed: u64, keys: u64, compacted: u64) {
    let engine = Engine::builder().clock(ManualClock::new()).build();
    let lease = engine.grant(LeaseId::new(7), 1_000).unwrap().id;
    let model = Mutex::new(Model::default());
    let mut writer = Writer {
        engine: &engine,
        random: seed | 1,
        keys,
        lease,
    };
    while engine.stats().versions < MANY {
        writer.write(&model);
    }
    let middle = engine.current_revision().0 * i64::try_from(compacted).unwrap() / 4;
    if middle > 1 {
        engine.compact(Revision(middle)).unwrap().run();
    }
    while engine.stats().versions < MANY {
        writer.write(&model);
    }
    check(&engine.fork(), &model.lock().unwrap(), lease);
    let ended = AtomicBool::new(false);
    let forks = thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                writer.write(&model);
            }
        });
        scope.spawn(|| {
            while compacted > 0 && !ended.load(Ordering::Relaxed) {
                let oldest = engine.compacted_revision().map_or(1, |at| at.0);
                let _ = engine.compact(Revision(oldest + 50)).map(Compaction::run);
                thread::yield_now();
            }
        });
        let forks: Vec<_> = (0..2).map(|_| engine.fork()).collect();
        ended.store(true, Ordering::Relaxed);
        forks
    });
    let mut model = model.into_inner().unwrap();
    for fork in &forks {
        check(fork, &model, lease);
    }
    // A fork continues, and so does a fork of it, which is marked as compacted.
    let last = &forks[forks.len() - 1];
    let current = last.current_revision();
    for versions in model.keys.values_mut() {
        versions.retain(|version| version.revision <= current.0);
    }
    let model = Mutex::new(model);
    writer.engine = last;
    for _ in 0..1_000 {
        writer.write(&model);
    }
    drop(engine);
    let jump = Jump {
        current: Revision(current.0 + 1_000_000),
        mark_compacted: true,
    };
    let later = last.to_builder().fork_at(last, jump).unwrap();
    check(&later, &model.lock().unwrap(), lease);
    later.compact(later.current_revision()).unwrap_err();
    last.compact(last.current_revision()).unwrap().run();
    check(&last.fork(), &model.lock().unwrap(), lease);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2))]

    #[test]
    fn a_large_fork_equals_a_plain_model(
        seed in any::<u64>(),
        keys in prop_oneof![Just(300_u64), Just(3_000), Just(60_000)],
        compacted in 0..5_u64,
    ) {
        check_forks(seed, keys, compacted);
    }
}
