//! Dumps: what is read is what was written, and damage is found.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::time::Duration;

use revstore_engine::{Engine, Jump, KeyRange, ManualClock, Put, Revision};
use revstore_persist::{Corruption, DumpError, Metadata, read_dump, write_dump};

fn filled() -> (Engine, ManualClock, Metadata) {
    let clock = ManualClock::new();
    let engine = Engine::builder().clock(clock.clone()).build();
    for number in 0..40 {
        engine
            .put(format!("k{:02}", number % 13), number.to_string())
            .unwrap();
    }
    engine.compact(Revision(20)).unwrap().run();
    engine.delete(&KeyRange::within("k03", "k06")).unwrap();
    let lease = engine.grant(None, 60).unwrap().id;
    engine.grant(None, 10).unwrap();
    engine
        .put_with(&Put::new("leased", "").attached_to(lease))
        .unwrap();
    clock.advance(Duration::from_millis(1_500));
    let jump = Jump {
        current: Revision(100),
        mark_compacted: false,
    };
    let engine = engine.to_builder().fork_at(&engine, jump).unwrap();
    engine.put("later", "1").unwrap();
    let jump = Jump {
        current: Revision(200),
        mark_compacted: false,
    };
    let engine = engine.to_builder().fork_at(&engine, jump).unwrap();
    engine.grant(None, 30).unwrap();
    let metadata = [("bucket".to_owned(), [(b"k".to_vec(), b"v".to_vec())].into())].into();
    (engine, clock, metadata)
}

fn written(engine: &Engine, metadata: &Metadata) -> Vec<u8> {
    let mut dump = Vec::new();
    let bytes = write_dump(&mut dump, engine, metadata).unwrap();
    assert_eq!(bytes, dump.len() as u64);
    dump
}

fn read(dump: &[u8]) -> Result<(Engine, Metadata), DumpError> {
    let builder = Engine::builder().clock(ManualClock::new());
    read_dump(dump, dump.len() as u64, builder)
}

#[test]
fn a_dump_has_gaps_leases_with_their_remaining_time_and_metadata() {
    let (engine, _, metadata) = filled();
    let dump = written(&engine, &metadata);
    let (copy, read_metadata) = read(&dump).unwrap();
    assert_eq!(read_metadata, metadata);
    assert_eq!(copy.current_revision(), Revision(200));
    assert_eq!(copy.compacted_revision(), Some(Revision(20)));
    let history = |engine: &Engine| engine.full_history(None).unwrap().versions;
    assert_eq!(history(&copy), history(&engine));
    let leases = |engine: &Engine| engine.dump().leases().to_vec();
    assert_eq!(leases(&copy), leases(&engine));
    // A dump of the copy is the same.
    assert_eq!(written(&copy, &metadata), dump);
    let empty = Engine::builder().clock(ManualClock::new()).build();
    let (copy, _) = read(&written(&empty, &Metadata::new())).unwrap();
    assert_eq!(copy.stats(), empty.stats());
}

#[test]
fn a_damaged_dump_is_refused() {
    let (engine, _, metadata) = filled();
    let dump = written(&engine, &metadata);
    for len in 0..dump.len() {
        let error = read(&dump[..len]).unwrap_err();
        assert!(matches!(error, DumpError::Corrupt { .. }), "{len}: {error}");
    }
    let mut state = 1_u64;
    let mut random = |bound: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(state >> 33).unwrap() % bound
    };
    for _ in 0..10_000 {
        let mut damaged = dump.clone();
        for _ in 0..=random(3) {
            let at = random(damaged.len());
            damaged[at] ^= 1 << random(8);
        }
        if damaged != dump {
            let error = read(&damaged).unwrap_err();
            assert!(matches!(error, DumpError::Corrupt { .. }), "{error}");
        }
    }
    let mut longer = dump.clone();
    longer.push(0);
    let error = read(&longer).unwrap_err().to_string();
    assert_eq!(
        error,
        format!(
            "damaged at offset {}: the snapshot is not complete",
            dump.len() - 49
        )
    );
}

#[test]
fn an_unknown_version_is_refused() {
    let (engine, _, metadata) = filled();
    let mut dump = written(&engine, &metadata);
    // The version is behind the magic, the header of the frame, the type and the kind.
    dump[8 + 8 + 2] = 9;
    let len = usize::try_from(u32::from_le_bytes(dump[8..12].try_into().unwrap())).unwrap();
    let checksum = crc32c::crc32c(&dump[16..16 + len]);
    dump[12..16].copy_from_slice(&checksum.to_le_bytes());
    let error = read(&dump).unwrap_err();
    let is_version = |reason: &Corruption| *reason == Corruption::Version(9);
    assert!(matches!(&error, DumpError::Corrupt { offset: 8, reason } if is_version(reason)));
}

/// Returns the bodies of the frames of a dump.
fn bodies(dump: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = &dump[8..];
    let mut bodies = Vec::new();
    while !rest.is_empty() {
        let len = usize::try_from(u32::from_le_bytes(rest[..4].try_into().unwrap())).unwrap();
        bodies.push(rest[8..8 + len].to_vec());
        rest = &rest[8 + len..];
    }
    bodies
}

/// Returns the error of a dump with these frames, and the offsets of the frames.
fn refused(bodies: &[Vec<u8>]) -> (u64, Corruption, Vec<u64>) {
    let mut dump = b"revstore".to_vec();
    let mut offsets = Vec::new();
    for body in bodies {
        offsets.push(dump.len() as u64);
        dump.extend(u32::try_from(body.len()).unwrap().to_le_bytes());
        dump.extend(crc32c::crc32c(body).to_le_bytes());
        dump.extend(body);
    }
    match read(&dump).unwrap_err() {
        DumpError::Corrupt { offset, reason } => (offset, reason, offsets),
        DumpError::Io(error) => panic!("{error}"),
    }
}

#[test]
fn a_part_that_is_there_twice_or_missing_is_refused_with_its_offset() {
    let engine = Engine::builder().clock(ManualClock::new()).build();
    let lease = engine.grant(None, 60).unwrap().id;
    engine
        .put_with(&Put::new("leased", "").attached_to(lease))
        .unwrap();
    let pairs = BTreeMap::from([(b"key".to_vec(), b"value".to_vec())]);
    let dump = written(&engine, &Metadata::from([("bucket".to_owned(), pairs)]));
    // The header, the revision, the lease, the pair, the end.
    let frames = bodies(&dump);
    assert_eq!(frames.len(), 5);
    for twice in [2, 3] {
        let mut frames = frames.clone();
        frames.insert(twice, frames[twice].clone());
        // The end counts both.
        let at = 1 + if twice == 2 { 24 } else { 32 };
        frames[5][at] += 1;
        let (offset, reason, offsets) = refused(&frames);
        assert_eq!((offset, reason), (offsets[twice + 1], Corruption::Repeated));
    }
    let mut without = frames;
    without.remove(2);
    without[3][1 + 24] -= 1;
    let (offset, reason, offsets) = refused(&without);
    assert_eq!(offset, offsets[3]);
    assert_eq!(
        reason.to_string(),
        format!("key \"leased\" is attached to lease {lease}, which does not exist")
    );
}
