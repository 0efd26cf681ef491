//! The copy of a whole store, part by part.

use super::part::{Expected, Extent, Part, PartCopy};
use crate::history::KeyValue;
use crate::key::KeyRange;
use crate::memory::Batch;
use crate::revision::Revision;
use crate::store::Store;
use crate::sync::Arc;

/// About the number of versions or keys of one part: few enough that a record which was just copied into the log is still in
/// the caches of the processor for its entry, if keys were created in order, and that nobody waits long for one part.
const PART_RECORDS: usize = if cfg!(any(test, loom, shuttle)) {
    4
} else {
    4096
};

/// The number of versions or keys from which on a store is copied in parts, and a second thread helps. Fewer are copied
/// within about 4 ms, and on a busy machine that thread often begins when the copy is nearly complete.
const DIVIDED_MIN: usize = 8 * PART_RECORDS;

/// About what a key takes in a copy, in bytes: its entry, and its place in the index.
const ENTRY_BYTES: usize = 120;

/// Copies what the store contains at one revision. The caller holds the history from the compacted revision of the extent
/// on.
pub(super) fn copy(origin: &Arc<Store>, extent: Extent) -> PartCopy {
    let expected = Expected {
        versions: usize::try_from(origin.versions.get()).unwrap_or(usize::MAX),
        keys: origin.index.len(),
    };
    let parts = divide(origin, extent, expected);
    #[cfg(not(any(loom, shuttle)))]
    if parts.len() > 1 && super::helper::is_available() {
        return super::helper::copy(origin, extent, parts, bytes(expected));
    }
    let mut batch = Batch::expecting(bytes(expected));
    let copies = parts
        .iter()
        .map(|part| part.copy(origin, extent, &mut batch));
    PartCopy::joined(copies)
}

/// Returns about the number of bytes that a copy takes.
fn bytes(expected: Expected) -> usize {
    let records = expected.versions.saturating_mul(size_of::<KeyValue>());
    records.saturating_add(expected.keys.saturating_mul(ENTRY_BYTES))
}

/// Returns the parts of a store, in order: at least one.
fn divide(origin: &Store, extent: Extent, expected: Expected) -> Vec<Part> {
    let first = extent.compacted.unwrap_or(Revision::FIRST).start();
    let records = expected.versions.max(expected.keys);
    if records < DIVIDED_MIN {
        return vec![Part {
            records: Some((first, extent.through)),
            keys: Some(KeyRange::all()),
            expected,
        }];
    }
    let count = records / PART_RECORDS;
    let mut records = origin.log.parts(first, extent.through, count).into_iter();
    let mut keys = origin.index.parts(count).into_iter();
    let next = || {
        let (records, keys) = (records.next(), keys.next());
        (records.is_some() || keys.is_some()).then_some(Part {
            records,
            keys,
            expected: Expected::default(),
        })
    };
    std::iter::from_fn(next).collect()
}

#[cfg(all(test, not(any(loom, shuttle))))]
pub(super) mod tests {
    use std::collections::BTreeMap;
    use std::ops::ControlFlow;

    use proptest::prelude::*;

    use super::{DIVIDED_MIN, Expected, Extent, Part, PartCopy, copy, divide};
    use crate::fault::Faults;
    use crate::history::{KeyValue, LeaseId, Log};
    use crate::index::Index;
    use crate::key::KeyRange;
    use crate::memory::Batch;
    use crate::revision::Revision;
    use crate::store::Store;
    use crate::sync::Arc;
    use crate::{Engine, ManualClock, Op, Put, Txn};

    /// What a copy contains.
    #[derive(Debug, PartialEq)]
    pub(in crate::dump) struct Content {
        log: Vec<KeyValue>,
        /// The versions of each key.
        keys: Vec<(Vec<u8>, Vec<KeyValue>)>,
        live: usize,
        leased: BTreeMap<LeaseId, Vec<Vec<u8>>>,
        versions: u64,
        bytes: u64,
    }

    impl Content {
        pub(in crate::dump) fn of(copy: PartCopy, extent: Extent) -> Self {
            let log = Log::of(copy.records);
            let index = Index::of_sorted(Faults::default(), copy.entries, extent.through);
            let mut keys = Vec::new();
            index.scan(&KeyRange::all(), |found| {
                let mut versions = Vec::new();
                found.copy_kept(Revision(0), extent.through, &mut versions);
                keys.push((found.entry().key().to_vec(), versions));
                ControlFlow::Continue(())
            });
            assert_eq!(index.len(), keys.len());
            let leased = copy.leased.into_iter().map(|(lease, keys)| {
                let keys = keys.iter().map(|entry| entry.key().to_vec());
                (lease, keys.collect())
            });
            Self {
                log: log.copy(Revision(0).start(), extent.through, usize::MAX),
                live: index.count(&KeyRange::all()).live,
                keys,
                leased: leased.collect(),
                versions: copy.versions,
                bytes: copy.bytes,
            }
        }

        /// The content of a copy in one part.
        pub(in crate::dump) fn of_whole(origin: &Store, extent: Extent) -> Self {
            let whole = divide(origin, extent, Expected::default());
            assert_eq!(whole.len(), 1);
            let copy = whole[0].copy(origin, extent, &mut Batch::expecting(0));
            Self::of(copy, extent)
        }
    }

    pub(in crate::dump) fn extent_of(origin: &Store) -> Extent {
        Extent {
            compacted: origin.compacted.load(),
            through: origin.current.load().end(),
        }
    }

    /// Returns the parts of a store, however small it is.
    pub(in crate::dump) fn parts_of(origin: &Store, extent: Extent) -> Vec<Part> {
        let expected = Expected {
            versions: DIVIDED_MIN,
            keys: origin.index.len(),
        };
        divide(origin, extent, expected)
    }

    /// Creates an engine with keys that are created in another order than theirs.
    pub(in crate::dump) fn filled(keys: u32) -> Engine {
        let engine = Engine::builder().clock(ManualClock::new()).build();
        for number in 0..keys {
            let key = number.wrapping_mul(0x9e37_79b9).to_be_bytes();
            engine.put(key.to_vec(), "value").expect("a valid put");
        }
        engine
    }

    fn check(origin: &Arc<Store>, extent: Extent) {
        let whole = Content::of_whole(origin, extent);
        assert_eq!(Content::of(copy(origin, extent), extent), whole);
        let parts = parts_of(origin, extent);
        let mut batch = Batch::expecting(0);
        let copies = parts
            .iter()
            .map(|part| part.copy(origin, extent, &mut batch));
        assert_eq!(Content::of(PartCopy::joined(copies), extent), whole);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 48 }))]

        /// Keys in random order, several of one transaction and the same one again, tombstones, leases and compactions. The
        /// copy ends at the current revision or before, and is compacted at a later one.
        #[test]
        fn a_copy_in_parts_is_the_copy_of_the_whole(
            steps in prop::collection::vec((any::<u8>(), 0..12_u8, 1..20_u8), 0..150),
            before in 0..20_i64,
            compacted in prop::option::of(0..20_i64),
        ) {
            let engine = Engine::builder().clock(ManualClock::new()).build();
            let lease = engine.grant(None, 60).unwrap().id;
            for (key, kind, count) in steps {
                let keys = (0..count).map(|at| [key.wrapping_mul(31).wrapping_add(at)].to_vec());
                let put = |key| Put::new(key, "value");
                let ops: Vec<Op> = match kind {
                    0..4 => keys.take(1).map(put).map(Op::Put).collect(),
                    4..6 => keys.map(put).map(Op::Put).collect(),
                    6..8 => keys.map(|key| Op::Put(put(key).attached_to(lease))).collect(),
                    8 => {
                        let again = |key: Vec<u8>| [Op::Delete(KeyRange::one(key.clone())), Op::Put(put(key))];
                        keys.flat_map(again).collect()
                    }
                    9..11 => keys.map(|key| Op::Delete(KeyRange::one(key))).collect(),
                    _ => {
                        let at = Revision(engine.current_revision().0 - i64::from(count) / 2);
                        let _ = engine.compact(at).map(crate::Compaction::run);
                        continue;
                    }
                };
                engine.txn(&Txn::new().and_then(ops)).unwrap();
            }
            let origin = engine.store();
            let all = extent_of(origin);
            check(origin, all);
            let oldest = all.compacted.unwrap_or(Revision::FIRST);
            let through = Revision(all.through.revision.0 - before).max(oldest).end();
            check(origin, Extent { through, ..all });
            let later = compacted.map(|after| Revision(oldest.0 + after));
            check(origin, Extent { compacted: later.or(all.compacted), ..all });
        }
    }

    #[test]
    fn parts_contain_each_record_and_each_key_once() {
        let engine = filled(1_000);
        let extent = extent_of(engine.store());
        let parts = parts_of(engine.store(), extent);
        assert!((8..=32).contains(&parts.len()), "{}", parts.len());
        let mut next = Some(Revision::FIRST.start());
        let mut key = Some(Vec::new());
        for part in &parts {
            if let Some((first, last)) = part.records {
                assert_eq!(Some(first), next);
                next = (last < extent.through).then(|| last.next());
            }
            match &part.keys {
                Some(KeyRange::Within { start, end }) => {
                    assert_eq!(key.replace(end.to_vec()).as_deref(), Some(&start[..]));
                }
                Some(KeyRange::From(start)) => {
                    assert_eq!(key.take().as_deref(), Some(&start[..]));
                }
                other => assert!(other.is_none(), "{other:?}"),
            }
        }
        assert_eq!((next, key), (None, None));
    }
}
