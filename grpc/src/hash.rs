//! The hash by which etcd compares members.

use std::collections::HashSet;

use prost::Message;
use revstore_engine::{History, KeyValue};
use revstore_proto::mvccpb;

use crate::convert;

/// What every hash begins with: the name of the bucket that etcd keeps its keys in (HK-1).
const BUCKET: &[u8] = b"key";

/// The hash over no versions at all (HK-2, HK-3).
pub(crate) fn of_nothing() -> u32 {
    crc32c::crc32c(BUCKET)
}

/// HK-1: CRC-32C over the versions that a compaction at the mark keeps, each as its position and
/// the message that etcd would store. Needs no such store, so members of any kind can be compared.
pub(crate) fn of_history(history: &History) -> u32 {
    let mut hash = of_nothing();
    let mut buffer = Vec::new();
    for version in kept(history) {
        buffer.clear();
        encode(version, &mut buffer);
        hash = crc32c::crc32c_append(hash, &buffer);
    }
    hash
}

/// HK-2: at or below the mark the newest version of each key, unless it is a tombstone; above it
/// everything. Versions below the mark may still be there while a compaction removes them.
fn kept(history: &History) -> impl Iterator<Item = &KeyValue> {
    let compacted = history.versions.partition_point(|version| {
        history
            .compacted
            .is_some_and(|mark| version.mod_revision() <= mark)
    });
    let (below, above) = history.versions.split_at(compacted);
    let mut seen = HashSet::new();
    let newest = below
        .iter()
        .rev()
        .filter(|version| seen.insert(version.key()));
    let mut newest: Vec<_> = newest.filter(|version| !version.is_tombstone()).collect();
    newest.reverse();
    newest.into_iter().chain(above)
}

fn encode(version: &KeyValue, buffer: &mut Vec<u8>) {
    let position = version.revision();
    buffer.extend(position.main.0.to_be_bytes());
    buffer.push(b'_');
    buffer.extend(u64::from(position.sub).to_be_bytes());
    let stored = if version.is_tombstone() {
        buffer.push(b't');
        mvccpb::KeyValue {
            key: version.key_bytes(),
            ..mvccpb::KeyValue::default()
        }
    } else {
        convert::key_value(version)
    };
    stored.encode(buffer).expect("a vector grows as needed");
}

#[cfg(test)]
mod tests {
    use revstore_engine::{Engine, KeyRange, MainRevision};

    fn hash(engine: &Engine, through: Option<i64>) -> u32 {
        super::of_history(&engine.history(through.map(MainRevision)).unwrap())
    }

    #[test]
    fn hk_2_the_hash_of_an_empty_store_is_known() {
        assert_eq!(hash(&Engine::builder().build(), None), 1_084_519_789);
        assert_eq!(super::of_nothing(), 1_084_519_789);
    }

    #[test]
    fn hk_1_positions_and_messages_are_hashed() {
        let engine = Engine::builder().build();
        engine.put("k", "v").unwrap();
        engine.delete(&KeyRange::one("k"));
        let mut bytes = b"key".to_vec();
        bytes.extend(b"\0\0\0\0\0\0\0\x02_\0\0\0\0\0\0\0\0");
        bytes.extend(b"\x0a\x01k\x10\x02\x18\x02\x20\x01\x2a\x01v");
        assert_eq!(hash(&engine, Some(2)), crc32c::crc32c(&bytes));
        bytes.extend(b"\0\0\0\0\0\0\0\x03_\0\0\0\0\0\0\0\0t\x0a\x01k");
        assert_eq!(hash(&engine, None), crc32c::crc32c(&bytes));
    }

    #[test]
    fn hk_2_removal_in_the_background_does_not_change_the_hash() {
        let engine = Engine::builder().build();
        for key in ["a", "b", "a"] {
            engine.put(key, "v").unwrap();
        }
        engine.delete(&KeyRange::one("b"));
        engine.put("c", "v").unwrap();
        let compaction = engine.compact(MainRevision(5)).unwrap();
        let before = hash(&engine, None);
        compaction.run();
        assert_eq!(hash(&engine, None), before);
    }
}
