//! Mutations of the engine's protocols, for the broken twins of the models. A broken twin is the
//! same model over an engine with one mutation, under `should_panic`.
//!
//! Broken twins show that the models detect bugs. Under `--cfg loom` and `--cfg shuttle` an engine
//! can be built with one [`Fault`]: the step that the fault names is omitted, repeated or moved, and
//! the model of that protocol must then fail. The engine contains one statement per fault, at the
//! step itself. In other builds the compiler removes these statements.

/// One mutation of one protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(any(loom, shuttle)),
    expect(unreachable_pub, reason = "models choose one")
)]
pub enum Fault {
    /// A revision is published before its versions are stored (I3).
    PublishFirst,
    /// The sequencer is released between numbering a revision and storing its versions (I1).
    NumberOutsideSequencer,
    /// A put uses the entry that it found before it took the sequencer, even if it is retired (I7).
    UseRetiredEntry,
    /// A read does not check the compacted revision again at its end (I7).
    ReadChecksOnce,
    /// Each step of a scan reads at the revision that is current then (I3).
    ReadAtEachStep,
    /// A watch that catches up does not check the compacted revision again (I7).
    CatchUpChecksOnce,
    /// The results of compares over ranges, which were evaluated before the sequencer was taken, are
    /// not brought up to date under it (TXN-20).
    CompareOutsideSequencer,
    /// Compaction does not wait for the deferred ranges of transactions (I7).
    IgnorePins,
    /// Compaction removes history that a dump or a follower holds (I7).
    IgnoreHolds,
    /// Compaction adds a version to the snapshots that read it only after it has removed it from its
    /// entry (I7).
    KeepAfterCut,
    /// The sequencer is released between reading the current revision and opening a snapshot there
    /// (I7).
    OpenOutsideSequencer,
    /// The lock of the hub is released between reading the current revision and registering a watch
    /// (I5).
    RegisterOutsideHub,
    /// A watch that has caught up becomes synced even if later events were dispatched in the
    /// meantime (I5).
    MarkSyncedUnchecked,
    /// A reader does not check its queue again after it has registered its waker (I4).
    RegisterWakerLast,
    /// A reader does not check after it has registered its waker whether its watch was closed.
    CheckClosedFirst,
    /// A reader adds its deadline after it has read the clock.
    AddDeadlineLast,
    /// The sequencer is released between taking the keys of a lease and deleting them (LE-7).
    RevokeOutsideSequencer,
    /// A lease that was seen expired is deleted without a second look (LE-9).
    ExpireUnchecked,
    /// A keep-alive renews a lease at the time that it read from the clock, even if the lease was
    /// seen expired at a later time (LE-9).
    RenewInThePast,
    /// Queued events of a cancelled watch are delivered (WA-20).
    DeliverCancelled,
    /// Removal starts before published events are dispatched (I5).
    RemoveUndispatched,
    /// Removed versions are freed while reads may still access them (I2).
    FreeWithoutWaiting,
    /// A replaced version leaves the place of the newest one before it is among the older ones (I7).
    ReplaceBeforeKeeping,
    /// A node of the index is linked without making its content visible first (I3).
    LinkUnordered,
    /// A count does not check that no key was created or deleted meanwhile.
    CountUnchecked,
}

/// The fault that an engine was built with, if any.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    #[cfg(any(loom, shuttle))]
    chosen: Option<Fault>,
}

impl Faults {
    #[cfg(any(loom, shuttle))]
    pub(crate) fn only(fault: Fault) -> Self {
        Self {
            chosen: Some(fault),
        }
    }

    /// Returns whether the engine was built with `fault`.
    #[cfg(any(loom, shuttle))]
    pub(crate) fn has(self, fault: Fault) -> bool {
        self.chosen == Some(fault)
    }

    /// Returns whether the engine was built with the fault: it never is without loom.
    #[cfg(not(any(loom, shuttle)))]
    #[expect(clippy::unused_self, reason = "the same call in both builds")]
    pub(crate) const fn has(self, _: Fault) -> bool {
        false
    }
}

/// `unless_fault!(faults, Name, step)` runs a step, unless the engine was built with the fault.
macro_rules! unless_fault {
    ($faults:expr, $fault:ident, $step:expr) => {
        if !$faults.has($crate::fault::Fault::$fault) {
            $step;
        }
    };
}

/// `on_fault!(faults, Name, step)` runs a step only if the engine was built with the fault.
macro_rules! on_fault {
    ($faults:expr, $fault:ident, $step:expr) => {
        if $faults.has($crate::fault::Fault::$fault) {
            $step;
        }
    };
}

pub(crate) use {on_fault, unless_fault};
