//! Faults: the broken twins of the engine's protocols, for model checking only.
//!
//! A model that cannot fail proves nothing. Under `--cfg loom` an engine can be built with one of
//! these mistakes in it, each made at the very place where the right order matters; the model beside
//! it must then fail. In every other build the question is answered at compile time, with no.

/// One mistake in one protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(loom),
    expect(unreachable_pub, reason = "models choose one under loom")
)]
pub enum Fault {
    /// The revision is published before its versions are linked (I3).
    PublishFirst,
    /// The next revision is read before the sequencer is locked (I1).
    NumberOutsideSequencer,
    /// A writer trusts the entry it found earlier, retired or not (I7).
    TrustFoundEntry,
    /// A read does not look at the compacted revision again when it is done (I7).
    ReadLooksOnce,
    /// A watch that catches up does not look at the compacted revision again (I7).
    CatchUpLooksOnce,
    /// Compaction does not wait for ranges that transactions have yet to read (I7).
    IgnorePins,
    /// A new watch reads the current revision before the hub is locked (I5).
    RegisterEarly,
    /// A watch that caught up joins without asking what was dispatched meanwhile (I5).
    JoinBlindly,
    /// A reader looks for the last time before it says whom to wake (I4).
    WakerLate,
    /// The keys of a lease are taken before the sequencer is locked (LE-7).
    RevokeEarly,
    /// What is still queued for a cancelled watch is told (WA-20).
    TellCancelled,
    /// Removal begins before published events were dispatched (I5).
    RemoveUndispatched,
    /// What compaction removed is freed while reads may look at it (I2).
    FreeAtOnce,
}

/// Which fault an engine was built with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    #[cfg(loom)]
    chosen: Option<Fault>,
}

impl Faults {
    #[cfg(loom)]
    pub(crate) fn only(fault: Fault) -> Self {
        Self {
            chosen: Some(fault),
        }
    }

    /// Whether this mistake is to be made.
    #[cfg(loom)]
    pub(crate) fn has(self, fault: Fault) -> bool {
        self.chosen == Some(fault)
    }

    /// Whether this mistake is to be made: never.
    #[cfg(not(loom))]
    #[expect(clippy::unused_self, reason = "the same call in both builds")]
    pub(crate) const fn has(self, _: Fault) -> bool {
        false
    }
}
