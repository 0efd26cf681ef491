//! The mix over engines with a mutation: it must find each of them under shuttle. This shows that
//! the schedules and the checks find such bugs.
//!
//! The mix cannot find the mutations of expiry: no response tells whether a lease that was granted or
//! renewed during an expiry came before it. Nor does it find `RemoveUndispatched`,
//! `OpenOutsideSequencer` and `FreeWithoutWaiting`, which need a longer delay of one thread than random
//! schedules give. All have loom models.

use revstore_engine::Fault;
use revstore_verify::{Options, try_explore};

use crate::mix::{Mix, builder, run};

/// Checks that the mix finds a mutation within a number of executions, ten to twenty times as
/// many as it needs on average.
fn check(fault: Fault, executions: u64) {
    let mix = Mix {
        seed: 4,
        workers: 3,
        steps: 40,
        compacts: true,
        large: false,
        timed: false,
    };
    let options = Options::new().seed(0).executions(executions);
    let explored = try_explore(&options, move || {
        run(mix, builder().fault(fault));
    });
    match explored {
        Err(found) => eprintln!("{fault:?} is found by execution {}", found.execution),
        Ok(report) => panic!("{fault:?} is not found by {report}"),
    }
}

#[test]
fn the_mix_finds_mutations_of_writes_and_reads() {
    check(Fault::PublishFirst, 100);
    check(Fault::NumberOutsideSequencer, 100);
    check(Fault::UseRetiredEntry, 2_000);
    check(Fault::ReadAtEachStep, 100);
    check(Fault::ReadChecksOnce, 20_000);
    check(Fault::IgnorePins, 1_000);
    check(Fault::RevokeOutsideSequencer, 2_000);
    check(Fault::CompareOutsideSequencer, 2_000);
}

#[test]
fn the_mix_finds_mutations_of_snapshots() {
    check(Fault::KeepAfterCut, 5_000);
}

#[test]
fn the_mix_finds_mutations_of_watches() {
    check(Fault::CatchUpChecksOnce, 5_000);
    check(Fault::RegisterOutsideHub, 500);
    check(Fault::MarkSyncedUnchecked, 100);
    check(Fault::DeliverCancelled, 100);
    check(Fault::RegisterWakerLast, 10_000);
}
