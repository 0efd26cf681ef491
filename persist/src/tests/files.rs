//! The files: their bytes, damage, and directories that are refused.

use std::time::Duration;

use revstore_engine::{Engine, KeyRange, LeaseId, Op, Put, Revision, Txn};

use super::memory_disk::{MemoryDisk, Random};
use super::store::{TestStore, open, try_open};
use crate::error::Corruption;
use crate::journal::Options;
use crate::{OpenError, PersistError};

const JOURNAL: &str = "journal-0000000000000001";
const SNAPSHOT: &str = "snapshot-0000000000000001";

/// Returns a disk with three synced batches of a transaction each, and the length of the journal after
/// each of them.
fn three_batches() -> (MemoryDisk, Vec<usize>) {
    let disk = MemoryDisk::default();
    let mut store = TestStore::new(&disk, Options::default());
    let mut lens = Vec::new();
    for _ in 0..3 {
        let puts = ["a", "b", "c"].map(|key| Op::Put(Put::new(key, "value")));
        store.engine.txn(&Txn::new().and_then(puts)).unwrap();
        store.step();
        disk.edit(JOURNAL, |bytes| lens.push(bytes.len()));
    }
    (disk, lens)
}

#[test]
fn a_journal_that_is_cut_anywhere_ends_with_a_whole_revision() {
    let (disk, lens) = three_batches();
    let mut random = Random(1);
    for len in lens[0]..=lens[2] {
        let cut = disk.crashed(&mut random);
        cut.edit(JOURNAL, |bytes| bytes.truncate(len));
        let (recovered, _journal) = open(&cut, Options::default());
        let whole = lens.iter().filter(|end| **end <= len).count();
        let expected = Revision(1 + i64::try_from(whole).unwrap());
        assert_eq!(
            recovered.engine.current_revision(),
            expected,
            "cut at {len}"
        );
        let all = recovered.engine.full_history(None).unwrap();
        assert_eq!(all.versions.len(), 3 * whole);
        let reported = recovered.recovered.cut.is_some();
        // A batch may begin without changes, which is complete.
        assert!(!reported || !lens.contains(&len));
    }
}

#[test]
fn damage_of_what_was_synced_is_refused_and_of_the_rest_is_cut_off() {
    let (disk, lens) = three_batches();
    let mut random = Random(1);
    for offset in 0..lens[2] {
        let damaged = disk.crashed(&mut random);
        damaged.edit(JOURNAL, |bytes| bytes[offset] ^= 0x10);
        let opened = try_open(&damaged, Options::default());
        // The third batch states that the first two were synced.
        if offset < lens[1] {
            let error = opened.expect_err("a refused journal");
            assert!(
                matches!(error, OpenError::Corrupt { .. }),
                "{offset}: {error}"
            );
            assert!(error.to_string().contains(JOURNAL));
        } else {
            let recovered = opened.expect("an accepted journal").0;
            assert_eq!(recovered.engine.current_revision(), Revision(3));
            assert!(recovered.recovered.cut.is_some());
        }
    }
}

#[test]
fn any_damage_of_a_snapshot_is_refused() {
    let (disk, _) = three_batches();
    let mut random = Random(1);
    let mut len = 0;
    disk.edit(SNAPSHOT, |bytes| len = bytes.len());
    for offset in 0..len {
        for cut in [false, true] {
            let damaged = disk.crashed(&mut random);
            damaged.edit(SNAPSHOT, |bytes| {
                if cut {
                    bytes.truncate(offset);
                } else {
                    bytes[offset] ^= 0x10;
                }
            });
            let error = try_open(&damaged, Options::default()).expect_err("a refused snapshot");
            assert!(
                matches!(error, OpenError::Corrupt { .. }),
                "{offset}: {error}"
            );
        }
    }
}

#[test]
fn a_missing_file_and_a_later_format_are_refused() {
    let (disk, _) = three_batches();
    let newer = disk.crashed(&mut Random(1));
    // The version follows the type and the kind of the header; the checksum is made to match.
    newer.edit(JOURNAL, |bytes| {
        bytes[18] = 2;
        let len = u32::from_le_bytes(bytes[8..12].try_into().unwrap()) as usize;
        let checksum = crc32c::crc32c(&bytes[16..16 + len]);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    });
    let error = try_open(&newer, Options::default()).expect_err("a refused version");
    let is_version = |error: &OpenError| {
        matches!(
            error,
            OpenError::Corrupt {
                reason: Corruption::Version(2),
                ..
            }
        )
    };
    assert!(is_version(&error), "{error}");
    let path = std::path::Path::new("data/revstore").join(SNAPSHOT);
    crate::disk::Disk::remove(&disk, &path).unwrap();
    let error = try_open(&disk, Options::default()).expect_err("a refused directory");
    assert!(matches!(error, OpenError::Missing { .. }));
}

#[test]
fn snapshots_keep_the_files_small_and_the_leases_and_metadata_in_them() {
    let disk = MemoryDisk::default();
    let mut store = TestStore::new(&disk, Options::default().journal_bytes_min(1000));
    let lease = store.engine.grant(LeaseId::new(7), 60).unwrap();
    store
        .engine
        .put_with(&Put::new("leased", "").attached_to(lease.id))
        .unwrap();
    store.engine.delete(&KeyRange::one("none")).unwrap();
    for round in 0..200 {
        store.engine.put("key", vec![b'v'; 100]).unwrap();
        let at = store.engine.current_revision();
        store.engine.compact(at).unwrap().run();
        store.now += Duration::from_millis(100);
        store.step();
        if round > 20 {
            let stats = store.opened.persist.stats();
            assert!(stats.journal_bytes < 2500, "{stats:?}");
        }
    }
    // One snapshot, and its journal.
    assert_eq!(disk.names().len(), 2, "{:?}", disk.names());
    let (recovered, _journal) = open(&disk.crashed(&mut Random(1)), Options::default());
    assert_eq!(
        TestStore::seen(&recovered.engine),
        TestStore::seen(&store.engine)
    );
    assert_eq!(
        recovered.engine.lease(lease.id, true).unwrap().keys,
        [&b"leased"[..]]
    );
}

/// The example of `docs/persist-format.md`.
#[test]
fn the_documented_bytes_are_those_of_a_journal() {
    let disk = MemoryDisk::default();
    let mut store = TestStore::new(&disk, Options::default());
    store.engine.put("k", "v").unwrap();
    store.step();
    let mut expected = b"revstore".to_vec();
    let frame = |body: &[u8]| {
        let len = u32::try_from(body.len()).unwrap().to_le_bytes();
        [&len[..], &crc32c::crc32c(body).to_le_bytes(), body].concat()
    };
    let header = [
        &[1, 2, 1, 0][..],
        &1_u64.to_le_bytes(),
        &(-1_i64).to_le_bytes(),
        &1_i64.to_le_bytes(),
    ];
    expected.extend(frame(&header.concat()));
    let synced = expected.len() as u64;
    expected.extend(frame(&[&[2][..], &synced.to_le_bytes()].concat()));
    let revision = [
        &[4][..],
        &2_i64.to_le_bytes(),
        &0_u32.to_le_bytes(),
        &[1, 4, 1, 0, 0, 0, b'k', 1, 0, 0, 0, b'v'],
    ];
    expected.extend(frame(&revision.concat()));
    disk.edit(JOURNAL, |bytes| assert_eq!(*bytes, expected));
}

#[test]
fn a_directory_is_locked_and_that_of_a_real_etcd_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let open = || crate::open(dir.path(), Engine::builder(), Options::default());
    let first = open().unwrap();
    first.engine.put("k", "v").unwrap();
    assert!(matches!(open(), Err(OpenError::Locked { .. })));
    first.persist.close().unwrap();
    let closed = pollster::block_on(first.persist.sync());
    assert_eq!(closed, Err(PersistError::Closed));
    let again = open().unwrap();
    assert_eq!(again.engine.current_revision(), Revision(2));
    pollster::block_on(again.persist.sync()).unwrap();
    // The end of the last handle closes the directory, too.
    drop(again);
    std::fs::create_dir(dir.path().join("member")).unwrap();
    let error = open().unwrap_err();
    assert!(matches!(error, OpenError::EtcdData { .. }));
    assert!(error.to_string().contains("import"));
}

#[test]
fn many_waiters_share_a_sync() {
    let dir = tempfile::tempdir().unwrap();
    let opened = crate::open(dir.path(), Engine::builder(), Options::default()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let opened = &opened;
            scope.spawn(move || {
                for number in 0..20 {
                    let key = format!("{thread}/{number}");
                    let revision = opened.engine.put(key, "v").unwrap().revision;
                    pollster::block_on(opened.persist.sync()).unwrap();
                    assert!(opened.persist.is_synced(revision));
                }
            });
        }
    });
    assert!(opened.persist.stats().syncs <= 160);
}
