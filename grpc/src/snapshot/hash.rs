//! The hash of the store that etcd uses to compare members.

use std::collections::HashSet;

use revstore_engine::{History, KeyValue};

use super::stored_version;

/// The first hashed bytes: the name of the bucket in which etcd stores versions (HK-1).
const BUCKET: &[u8] = b"key";

/// Returns the hash of an empty store (HK-2, HK-3).
pub(crate) fn of_empty_store() -> u32 {
    crc32c::crc32c(BUCKET)
}

/// Returns the CRC-32C of the versions that a compaction at the compacted revision keeps, in the
/// form in which etcd stores them (HK-1). The hash equals that of an etcd member with the same
/// history.
pub(crate) fn of_history(history: &History) -> u32 {
    let mut hash = of_empty_store();
    let mut buffer = Vec::new();
    for version in hashed_versions(history) {
        buffer.clear();
        stored_version::write_key(version, &mut buffer);
        stored_version::write_value(version, &mut buffer);
        hash = crc32c::crc32c_append(hash, &buffer);
    }
    hash
}

/// Returns the hashed versions (HK-2): all above the compacted revision, and at or below it the
/// version of each key that is readable at the hashed revision.
///
/// The result does not depend on the number of compacted versions that are removed already. If a
/// compaction at the hashed revision would keep no version, etcd hashes the versions that the last
/// compaction kept.
fn hashed_versions(history: &History) -> impl Iterator<Item = &KeyValue> {
    let above_start = history.versions.partition_point(|version| {
        history
            .compacted
            .is_some_and(|compacted| version.mod_revision() <= compacted)
    });
    let (below, above) = history.versions.split_at(above_start);
    let mut seen = HashSet::new();
    if !below.is_empty() && keeps_any(history) {
        // The versions above the compacted revision are always hashed.
        seen.extend(above.iter().map(KeyValue::key));
    }
    let mut kept_below: Vec<_> = newest(below)
        .filter(|version| !version.is_tombstone() && !seen.contains(version.key()))
        .collect();
    kept_below.reverse();
    kept_below.into_iter().chain(above)
}

/// Returns whether etcd would keep a version in a compaction at the hashed revision. etcd ignores a
/// key that one transaction at that revision has deleted and put again (TXN-7).
fn keeps_any(history: &History) -> bool {
    let newest_first = history.versions.iter().rev();
    let at_revision = newest_first.take_while(|version| version.mod_revision() == history.revision);
    let deleted: HashSet<_> = at_revision
        .filter(|version| version.is_tombstone())
        .map(KeyValue::key)
        .collect();
    newest(&history.versions)
        .any(|version| !version.is_tombstone() && !deleted.contains(version.key()))
}

/// Returns the newest version of each key, newest first.
fn newest(versions: &[KeyValue]) -> impl Iterator<Item = &KeyValue> {
    let mut seen = HashSet::new();
    let newest_first = versions.iter().rev();
    newest_first.filter(move |version| seen.insert(version.key()))
}

#[cfg(test)]
mod tests {
    use revstore_engine::{Engine, KeyRange, LeaseId, Op, Put, Revision, Txn};

    fn hash(engine: &Engine, through: Option<i64>) -> u32 {
        super::of_history(&engine.full_history(through.map(Revision)).unwrap())
    }

    #[test]
    fn hk_2_the_hash_of_an_empty_store_is_that_of_etcd() {
        assert_eq!(hash(&Engine::builder().build(), None), 1_084_519_789);
        assert_eq!(super::of_empty_store(), 1_084_519_789);
    }

    #[test]
    fn hk_1_positions_and_messages_are_hashed() {
        let engine = Engine::builder().build();
        engine.put("k", "v").unwrap();
        engine.delete(&KeyRange::one("k")).unwrap();
        let mut bytes = b"key".to_vec();
        bytes.extend(b"\0\0\0\0\0\0\0\x02_\0\0\0\0\0\0\0\0");
        bytes.extend(b"\x0a\x01k\x10\x02\x18\x02\x20\x01\x2a\x01v");
        assert_eq!(hash(&engine, Some(2)), crc32c::crc32c(&bytes));
        bytes.extend(b"\0\0\0\0\0\0\0\x03_\0\0\0\0\0\0\0\0t\x0a\x01k");
        assert_eq!(hash(&engine, None), crc32c::crc32c(&bytes));
    }

    /// etcd 3.5.16 returns these hashes after the same calls. At the compacted revision, etcd
    /// returns the hash from before the compaction (HK-5). revstore does not.
    #[test]
    fn hk_1_hk_2_hashes_are_those_of_etcd() {
        let engine = Engine::builder().build();
        engine.put("a", "1").unwrap();
        engine.put("b", "2").unwrap();
        engine.delete(&KeyRange::one("a")).unwrap();
        let lease = engine.grant(LeaseId::new(7), 1000).unwrap().id;
        engine
            .put_with(&Put::new("a", "").attached_to(lease))
            .unwrap();
        let both = Txn::new().and_then([Op::Put(Put::new("b", "3")), Op::Put(Put::new("c", "4"))]);
        engine.txn(&both).unwrap();
        engine.delete(&KeyRange::one("b")).unwrap();
        let check = |expected: &[(i64, u32)]| {
            for (revision, expected) in expected {
                assert_eq!(hash(&engine, Some(*revision)), *expected, "at {revision}");
            }
        };
        check(&[
            (2, 2_587_454_935),
            (3, 1_827_592_406),
            (4, 1_562_576_432),
            (5, 2_396_004_826),
            (6, 824_791_180),
            (7, 843_710_228),
        ]);
        engine.compact(Revision(4)).unwrap().run();
        check(&[(5, 1_195_025_063), (6, 1_586_603_548), (7, 2_456_257_848)]);
        engine.compact(Revision(7)).unwrap().run();
        engine.put("d", "5").unwrap();
        check(&[(8, 1_611_921_699)]);
    }

    /// etcd 3.5.16 returns this hash after the same calls.
    #[test]
    fn hk_2_without_readable_keys_the_versions_kept_by_the_compaction_are_hashed() {
        let engine = Engine::builder().build();
        for key in ["\0", "a", "b", "ab", "d", "\0"] {
            engine.put(key, "").unwrap();
        }
        engine.delete(&KeyRange::one("ab")).unwrap();
        engine.delete(&KeyRange::within("\0", "d")).unwrap();
        engine.delete(&KeyRange::one("d")).unwrap();
        engine.compact(Revision(9)).unwrap().run();
        assert_eq!(hash(&engine, None), 2_635_699_544);
    }

    #[test]
    fn hk_2_removal_of_compacted_versions_does_not_change_the_hash() {
        let engine = Engine::builder().build();
        for key in ["a", "b", "a"] {
            engine.put(key, "v").unwrap();
        }
        engine.delete(&KeyRange::one("b")).unwrap();
        engine.put("c", "v").unwrap();
        let compaction = engine.compact(Revision(5)).unwrap();
        let before = hash(&engine, None);
        compaction.run();
        assert_eq!(hash(&engine, None), before);
    }
}
