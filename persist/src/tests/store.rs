//! A store under random operations, and the comparison of what a recovery returns with it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use revstore_engine::{
    Engine, KeyRange, KeyValue, LeaseId, ManualClock, Op, Put, Range, Revision, Txn,
};

use super::memory_disk::{MemoryDisk, Random};
use crate::format::Metadata;
use crate::journal::Options;
use crate::persist::{LockedJournal, Opened, open_on};

/// An opened directory with the record of everything that was written.
pub(super) struct TestStore {
    pub(super) engine: Engine,
    pub(super) opened: Opened,
    pub(super) journal: LockedJournal,
    pub(super) now: Duration,
    /// All changes since the beginning, compacted ones included.
    changes: Vec<KeyValue>,
    /// The number of changes of the metadata, which the metadata contains.
    metas: u64,
}

pub(super) fn try_open(
    disk: &MemoryDisk,
    options: Options,
) -> Result<(Opened, LockedJournal), crate::OpenError> {
    let options = Options {
        is_inline: true,
        ..options
    };
    let builder = Engine::builder().clock(ManualClock::new());
    open_on(Arc::new(disk.clone()), Path::new("data"), builder, options)
}

pub(super) fn open(disk: &MemoryDisk, options: Options) -> (Opened, LockedJournal) {
    try_open(disk, options).unwrap_or_else(|error| panic!("{error}"))
}

impl TestStore {
    pub(super) fn new(disk: &MemoryDisk, options: Options) -> Self {
        let (opened, journal) = open(disk, options);
        Self {
            engine: opened.engine.clone(),
            opened,
            journal,
            now: Duration::ZERO,
            changes: Vec::new(),
            metas: 0,
        }
    }

    /// Runs one random operation.
    pub(super) fn operate(&mut self, random: &mut Random) {
        let engine = &self.engine;
        let key = |random: &mut Random| format!("k{}", random.below(8));
        let lease = LeaseId::new(1 + i64::try_from(random.below(3)).unwrap());
        match random.below(14) {
            0..5 => {
                let value = vec![b'v'; random.below(200)];
                engine.put(key(random), value).unwrap();
            }
            5 => drop(engine.delete(&KeyRange::one(key(random)))),
            6 | 7 => {
                let keys: Vec<_> = (0..random.below(6)).map(|_| key(random)).collect();
                let mut txn = vec![Op::Delete(KeyRange::prefix("k"))];
                let unique = std::collections::BTreeSet::from_iter(keys);
                txn.extend(unique.into_iter().map(|key| Op::Put(Put::new(key, "txn"))));
                engine.txn(&Txn::new().and_then(txn)).unwrap();
            }
            8 => drop(engine.grant(lease, 60)),
            9 => drop(engine.revoke(lease.unwrap())),
            10 | 11 => {
                let put = Put::new(key(random), "leased").attached_to(lease.unwrap());
                let _ = engine.put_with(&put);
            }
            12 => {
                let back = i64::try_from(random.below(10)).unwrap();
                let at = Revision(engine.current_revision().0 - back);
                if let Ok(compaction) = engine.compact(at) {
                    compaction.run();
                }
            }
            _ => {
                self.metas += 1;
                let pair = (b"count".to_vec(), self.metas.to_le_bytes().to_vec());
                let bucket = BTreeMap::from([pair]);
                let buckets = Metadata::from([("test".to_owned(), bucket)]);
                self.opened.persist.replace_metadata(buckets);
            }
        }
        self.record();
    }

    /// Records what was written since the last call. Operations compact nothing that is not recorded,
    /// because a follower holds it.
    fn record(&mut self) {
        let last = self
            .changes
            .last()
            .map_or(Revision(1), KeyValue::mod_revision);
        // The test's own follower would be refused, so a compaction at the current revision loses the
        // changes of the operation only if it is the operation.
        let changes = self.engine.changes(last.next()..);
        let changes = changes.expect("an operation either writes or compacts");
        self.changes.extend(changes.map(|event| event.unwrap().kv));
    }

    pub(super) fn step(&mut self) {
        self.journal.journal.step(self.now, false);
    }

    /// What must be there after a crash: the synced revision, and the count in the metadata if everything
    /// is synced.
    pub(super) fn synced(&self) -> (Revision, u64) {
        let synced = Revision(self.opened.persist.stats().synced_revision);
        (synced, self.metas)
    }

    /// Checks that a recovered store is this one at some revision from `synced` on; returns the revision
    /// and the count in the metadata.
    pub(super) fn check(&self, recovered: &Opened, synced: Revision) -> (Revision, u64) {
        let found = &recovered.engine;
        let current = found.current_revision();
        assert!(
            synced <= current,
            "lost: {synced} was synced, {current} is there"
        );
        assert!(current <= self.engine.current_revision());
        let compacted = found.compacted_revision();
        // Never a half revision: all changes of all kept revisions.
        let first = compacted.unwrap_or(Revision(1)).max(Revision(1));
        let changes = found
            .changes(first..)
            .unwrap()
            .map(|event| event.unwrap().kv);
        let expected = self.changes.iter();
        let kept = |kv: &&KeyValue| (first..=current).contains(&kv.mod_revision());
        let expected = expected.filter(kept).cloned().collect::<Vec<_>>();
        assert_eq!(changes.collect::<Vec<_>>(), expected);
        // And the live keys, which compacted revisions have written.
        let mut live = BTreeMap::new();
        for kv in self
            .changes
            .iter()
            .filter(|kv| kv.mod_revision() <= current)
        {
            if kv.is_tombstone() {
                live.remove(kv.key());
            } else {
                live.insert(kv.key(), kv.clone());
            }
        }
        let all = found.range(&Range::of(KeyRange::all())).unwrap();
        assert_eq!(all.kvs, live.into_values().collect::<Vec<_>>());
        let attached: usize = found
            .leases()
            .iter()
            .map(|lease| found.lease(*lease, true).unwrap().keys.len())
            .sum();
        let leased = all.kvs.iter().filter(|kv| kv.lease().is_some());
        assert_eq!(attached, leased.count());
        let count = recovered
            .metadata
            .get("test")
            .and_then(|bucket| bucket.get(&b"count"[..]));
        let count = count.map_or(0, |count| u64::from_le_bytes(count[..].try_into().unwrap()));
        (current, count)
    }

    /// Returns the leases with their keys, and all kept versions.
    pub(super) fn seen(engine: &Engine) -> (BTreeMap<LeaseId, Vec<bytes::Bytes>>, Vec<KeyValue>) {
        let leases = engine.leases().into_iter();
        let leases = leases.map(|id| (id, engine.lease(id, true).unwrap().keys));
        (
            leases.collect(),
            engine.full_history(None).unwrap().versions,
        )
    }
}
