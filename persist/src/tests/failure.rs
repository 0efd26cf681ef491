//! Operations of the disk that fail once.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use super::memory_disk::{Failing, MemoryDisk, Random};
use super::store::{TestStore, open};
use parking_lot::Mutex;

use crate::journal::{Fsync, Options};
use crate::{Change, PersistError};

const STEPS: usize = 40;

fn options() -> Options {
    Options::default()
        .fsync(Fsync::Always)
        .journal_bytes_min(1500)
}

/// Runs the same store each time; returns the number of operations of the disk, and of failed steps.
fn run(disk: &MemoryDisk) -> (usize, usize) {
    let mut random = Random(7);
    let mut store = TestStore::new(disk, options());
    let mut failures = 0;
    for _ in 0..STEPS {
        for _ in 0..3 {
            store.operate(&mut random);
        }
        store.now += Duration::from_secs(11);
        let synced = store.opened.persist.sync();
        store.step();
        match synced.now_or_never().expect("the step has ended") {
            Ok(()) => assert!(
                store
                    .opened
                    .persist
                    .is_synced(store.engine.current_revision())
            ),
            Err(error) => {
                assert!(!store.opened.persist.is_healthy());
                assert_eq!(store.opened.persist.health(), Err(error));
                failures += 1;
            }
        }
    }
    // The operation of the last step may have failed.
    store.now += Duration::from_secs(11);
    store.step();
    assert!(store.opened.persist.is_healthy());
    let crashed = disk.crashed(&mut random);
    let (recovered, _journal) = open(&crashed, options());
    let (synced, metas) = store.synced();
    let (revision, count) = store.check(&recovered, synced);
    assert_eq!((revision, count), (store.engine.current_revision(), metas));
    assert_eq!(
        TestStore::seen(&recovered.engine),
        TestStore::seen(&store.engine)
    );
    (disk.operations(), failures)
}

#[test]
fn after_each_operation_that_fails_once_everything_is_there() {
    let (operations, failures) = run(&MemoryDisk::default());
    assert_eq!(failures, 0);
    let first = {
        let disk = MemoryDisk::default();
        let _store = TestStore::new(&disk, options());
        disk.operations()
    };
    assert!(operations > first + 3 * STEPS, "snapshots are written, too");
    let mut failed = 0;
    for number in first..operations {
        for failing in [Failing::NoSpace, Failing::Io] {
            let disk = MemoryDisk::default();
            disk.fail(number, 1, failing);
            failed += run(&disk).1;
        }
    }
    assert!(failed > 2 * STEPS);
}

#[test]
fn a_full_disk_is_reported_by_its_type_until_there_is_space() {
    let disk = MemoryDisk::default();
    let mut store = TestStore::new(&disk, options());
    disk.fail(disk.operations(), usize::MAX, Failing::NoSpace);
    store.engine.put("k", "v").unwrap();
    let mut waits = || {
        let synced = store.opened.persist.sync();
        store.now += Duration::from_secs(2);
        store.journal.journal.step(store.now, false);
        synced.now_or_never().expect("the step has ended")
    };
    for _ in 0..3 {
        assert!(matches!(waits(), Err(PersistError::NoSpace(_))));
    }
    disk.fail(0, 0, Failing::NoSpace);
    assert_eq!(waits(), Ok(()));
    let stats = store.opened.persist.stats();
    assert_eq!(
        (stats.failures, stats.is_healthy, stats.lag_bytes),
        (3, true, 0)
    );
}

#[test]
fn the_first_observer_reports_a_failure_first_and_a_recovery_last() {
    let disk = MemoryDisk::default();
    let mut store = TestStore::new(&disk, options());
    let calls = Arc::new(Mutex::new(Vec::new()));
    for name in ["first", "second"] {
        let calls = calls.clone();
        store.opened.persist.observe(move |change| {
            let what = match change {
                Change::Failed(_) => "failed",
                Change::Recovered => "recovered",
                Change::SnapshotFailed(_) => "snapshot failed",
            };
            calls.lock().push((name, what));
        });
    }
    disk.fail(disk.operations(), usize::MAX, Failing::NoSpace);
    store.engine.put("k", "v").unwrap();
    for failing in [usize::MAX, 0] {
        disk.fail(disk.operations(), failing, Failing::NoSpace);
        store.now += Duration::from_secs(2);
        store.journal.journal.step(store.now, false);
    }
    let expected = [
        ("first", "failed"),
        ("second", "failed"),
        ("second", "recovered"),
        ("first", "recovered"),
    ];
    assert_eq!(*calls.lock(), expected);
}
