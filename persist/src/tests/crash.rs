//! Crashes at random places.

use std::time::Duration;

use super::memory_disk::{Failing, MemoryDisk, Random};
use super::store::{TestStore, open};
use crate::journal::{Fsync, Options};

/// The number of crashes; each has its own seed.
const CRASHES: u64 = 1000;

fn options(random: &mut Random) -> Options {
    let fsync = match random.below(3) {
        0 => Fsync::Never,
        1 => Fsync::Interval(Duration::from_millis(300)),
        _ => Fsync::Always,
    };
    let journal_bytes_min = [100, 1000, 1_000_000][random.below(3)];
    Options::default()
        .fsync(fsync)
        .journal_bytes_min(journal_bytes_min)
}

/// Runs a store until a random operation of the disk, crashes there, and recovers it, several times.
fn crash(seed: u64) {
    let mut random = Random(0x9E37_79B9_7F4A_7C15 ^ (seed + 1));
    let mut disk = MemoryDisk::default();
    let options = options(&mut random);
    let mut store = TestStore::new(&disk, options);
    // From here on, everything fails at some time: the machine has stopped.
    let stop = disk.operations() + random.below(120);
    disk.fail(stop, usize::MAX, Failing::Io);
    let (mut synced, mut metas) = store.synced();
    for _ in 0..200 {
        store.operate(&mut random);
        if random.below(3) == 0 {
            store.now += Duration::from_millis(100);
            store.step();
            if disk.operations() > stop {
                break;
            }
            let (revision, count) = store.synced();
            synced = revision;
            if options.fsync == Fsync::Always && revision == store.engine.current_revision() {
                metas = count;
            }
        }
    }
    for round in 0..3 {
        disk = disk.crashed(&mut random);
        let (recovered, mut journal) = open(&disk, options);
        let (revision, count) = store.check(&recovered, synced);
        assert!(count >= metas, "lost: a change of the metadata");
        // What was recovered is there after another crash, and more can be written.
        (synced, metas) = (revision, count);
        if round == 1 {
            journal.journal.step(Duration::ZERO, true);
        }
        assert!(recovered.persist.is_healthy());
    }
}

#[test]
fn a_crash_loses_only_what_was_not_synced_and_never_half_a_revision() {
    for seed in 0..CRASHES {
        let crashed = std::panic::catch_unwind(|| crash(seed));
        assert!(crashed.is_ok(), "the crash with seed {seed} fails");
    }
}
