//! The options of an engine, and the builder that sets them.

use std::time::Duration;

use crate::compaction::AutoCompaction;
use crate::dump::{self, Jump, JumpError, Restore, RestoreError};
use crate::engine::Engine;
use crate::error::StartRevisionError;
use crate::fault::Faults;
use crate::revision::Revision;
use crate::store::Store;
use crate::sync::Arc;
use crate::time::Clock;

/// The default minimum time to live of a lease: etcd's with its default timers (LE-1).
const LEASE_TTL_MIN: Duration = Duration::from_secs(2);
/// The default interval of progress notifications, as in etcd (WA-50).
const PROGRESS_INTERVAL: Duration = Duration::from_secs(600);
/// The default maximum number of open snapshots.
const SNAPSHOTS_MAX: usize = 256;
/// The default maximum number of bytes that snapshots hold back.
const SNAPSHOT_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// The shortest progress interval (WA-50).
const PROGRESS_INTERVAL_MIN: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) start_revision: Revision,
    pub(crate) lease_ttl_min: Duration,
    pub(crate) progress_interval: Duration,
    pub(crate) auto_compaction: Option<AutoCompaction>,
    pub(crate) snapshots_max: usize,
    pub(crate) snapshot_bytes_max: u64,
    pub(crate) faults: Faults,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            start_revision: Revision::FIRST,
            lease_ttl_min: LEASE_TTL_MIN,
            progress_interval: PROGRESS_INTERVAL,
            auto_compaction: None,
            snapshots_max: SNAPSHOTS_MAX,
            snapshot_bytes_max: SNAPSHOT_BYTES_MAX,
            faults: Faults::default(),
        }
    }
}

/// A builder of engines, created by [`Engine::builder`].
///
/// | option | default |
/// |---|---|
/// | [`clock`](Self::clock) | the time of the system |
/// | [`start_revision`](Self::start_revision) | 1 |
/// | [`lease_ttl_min`](Self::lease_ttl_min) | 2 s |
/// | [`progress_interval`](Self::progress_interval) | 10 min |
/// | [`auto_compaction`](Self::auto_compaction) | off |
/// | [`snapshots_max`](Self::snapshots_max) | 256 |
/// | [`snapshot_bytes_max`](Self::snapshot_bytes_max) | 256 MiB |
#[derive(Debug, Clone)]
#[must_use = "`build` creates the engine"]
pub struct EngineBuilder {
    options: Options,
    clock: Option<Arc<dyn Clock>>,
}

impl EngineBuilder {
    pub(crate) fn new() -> Self {
        Self {
            options: Options::default(),
            clock: None,
        }
    }

    /// Creates a builder with the options and the clock of a store.
    pub(crate) fn like(store: &Store) -> Self {
        let clock = Some(store.clock.clone());
        let options = Options {
            start_revision: Revision::FIRST,
            ..store.options
        };
        Self { options, clock }
    }

    /// Sets the source of time. Several engines may share a clock.
    pub fn clock(self, clock: impl Clock + 'static) -> Self {
        Self {
            clock: Some(Arc::new(clock)),
            ..self
        }
    }

    /// Sets the current revision of the new, empty store. If it is above 1, all revisions below it
    /// count as compacted. A value below 1 is treated as 1.
    ///
    /// A store that replaces an earlier one should start at least two revisions above the last one
    /// of that store. A client that continues a watch is then notified that the history is
    /// compacted. Otherwise its watch waits for a revision of the old store, or misses changes
    /// without notice.
    ///
    /// # Errors
    /// If the revision is above [`Revision::START_MAX`], so that the store could run out of
    /// revisions.
    pub fn start_revision(mut self, revision: Revision) -> Result<Self, StartRevisionError> {
        if revision > Revision::START_MAX {
            return Err(StartRevisionError {
                requested: revision,
            });
        }
        self.options.start_revision = revision.max(Revision::FIRST);
        Ok(self)
    }

    /// Sets the minimum time to live of leases. Requests below it get the minimum.
    pub fn lease_ttl_min(mut self, ttl: Duration) -> Self {
        self.options.lease_ttl_min = ttl;
        self
    }

    /// Sets the interval of progress notifications for watches that have requested them and have no
    /// events. The minimum is 100 ms.
    pub fn progress_interval(mut self, interval: Duration) -> Self {
        self.options.progress_interval = interval.max(PROGRESS_INTERVAL_MIN);
        self
    }

    /// Sets the policy of automatic compaction.
    pub fn auto_compaction(mut self, policy: AutoCompaction) -> Self {
        self.options.auto_compaction = Some(policy);
        self
    }

    /// Sets the number of [snapshots](crate::Snapshot) that may be open at the same time. A
    /// compaction searches each key that it changes once for each version that snapshots read, so
    /// its time grows with this number in the worst case.
    pub fn snapshots_max(mut self, snapshots: usize) -> Self {
        self.options.snapshots_max = snapshots;
        self
    }

    /// Sets the number of bytes that all [snapshots](crate::Snapshot) together may hold back: the
    /// versions that compactions have kept for them, each counted as
    /// [`KeyValue::size_bytes`](crate::KeyValue::size_bytes) for each revision with a snapshot that
    /// reads it.
    ///
    /// While more than half of the number is held back, new snapshots are refused with
    /// [`SnapshotError::TooMany`](crate::SnapshotError::TooMany): the other half is a reserve for
    /// the open ones. When a compaction passes the number, it continues, and the oldest snapshots
    /// that hold something back are lost until the rest fits: reads that need the freed versions
    /// fail with [`SnapshotError::Lost`](crate::SnapshotError::Lost).
    ///
    /// Increase it if long reads of large, frequently compacted stores are lost.
    pub fn snapshot_bytes_max(mut self, bytes: u64) -> Self {
        self.options.snapshot_bytes_max = bytes;
        self
    }

    /// Builds a mutation into the engine, to show that a model detects it.
    #[cfg(any(loom, shuttle))]
    pub fn fault(mut self, fault: crate::fault::Fault) -> Self {
        self.options.faults = Faults::only(fault);
        self
    }

    /// Creates the engine. Takes a few allocations, and one thread if no clock is set.
    pub fn build(self) -> Engine {
        Engine::start(self.into_store())
    }

    /// Creates a fork of an engine, as [`Engine::fork`], with the clock and the options of this
    /// builder. The [start revision](Self::start_revision) does not apply. Leases keep their granted
    /// time to live, also below the [minimum](Self::lease_ttl_min) of the fork.
    ///
    /// ```
    /// # use revstore_engine::{Engine, ManualClock};
    /// let engine = Engine::builder().build();
    /// engine.put("key", "value")?;
    /// // The fork has a clock of its own.
    /// let fork = engine.to_builder().clock(ManualClock::new()).fork(&engine);
    /// assert_eq!(fork.get("key"), engine.get("key"));
    /// # Ok::<(), revstore_engine::PutError>(())
    /// ```
    pub fn fork(self, origin: &Engine) -> Engine {
        dump::fork(self, origin.store())
    }

    /// As [`fork`](Self::fork), and increases the current revision of the fork.
    ///
    /// Clients of the origin that continue with the fork have then seen no revision that the fork uses
    /// for other changes. The revisions between the two were never written: a read at one of them
    /// finds what was there at the last revision of the origin, and a watch from one of them begins
    /// with the next write. If the fork [counts as compacted](Jump::mark_compacted), reads and watches
    /// below its current revision fail as after a compaction, and no history is taken over.
    ///
    /// ```
    /// # use revstore_engine::{Engine, Jump, Revision};
    /// let engine = Engine::builder().build();
    /// engine.put("key", "value")?;
    /// let jump = Jump { current: Revision(1_000), mark_compacted: true };
    /// let later = engine.to_builder().fork_at(&engine, jump)?;
    /// assert_eq!(later.put("key", "again")?.revision, Revision(1_001));
    /// assert_eq!(later.compacted_revision(), Some(Revision(1_000)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`JumpError`] if the revision is below the current one of the origin, or above
    /// [`Revision::START_MAX`].
    pub fn fork_at(self, origin: &Engine, jump: Jump) -> Result<Engine, JumpError> {
        dump::fork_at(self, origin.store(), jump)
    }

    /// Begins to build an engine that continues another store, from a [`Dump`](crate::Dump) or an equal
    /// source with this compacted revision. The [start revision](Self::start_revision) does not apply.
    ///
    /// # Errors
    /// [`RestoreError::CompactedRevision`] if the revision is no compacted revision.
    pub fn restore(self, compacted: Option<Revision>) -> Result<Restore, RestoreError> {
        Restore::new(self, compacted)
    }

    /// Creates an empty store with a current revision.
    pub(crate) fn store_at(self, current: Revision) -> Arc<Store> {
        Arc::new(self.at(current).new_store())
    }

    /// Sets the current revision of the new store, whatever it is.
    pub(crate) fn at(mut self, current: Revision) -> Self {
        self.options.start_revision = current;
        self
    }

    fn into_store(self) -> Arc<Store> {
        Arc::new(self.new_store())
    }

    /// Creates an empty store.
    pub(crate) fn new_store(self) -> Store {
        #[cfg(not(any(loom, shuttle)))]
        let default = || Arc::new(crate::time::SystemClock::new()) as Arc<dyn Clock>;
        #[cfg(any(loom, shuttle))]
        let default = || Arc::new(crate::time::ManualClock::new()) as Arc<dyn Clock>;
        let clock = self.clock.unwrap_or_else(default);
        Store::new(self.options, clock)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::{Engine, Revision, StartRevisionError};

    /// Three puts once got one revision, and a watch lost two of them.
    #[test]
    fn a_store_does_not_start_near_its_last_revision() {
        let requested = Revision(i64::MAX - 1);
        let refused = Engine::builder().start_revision(requested).unwrap_err();
        assert_eq!(refused, StartRevisionError { requested });
        let highest = Engine::builder().start_revision(Revision::START_MAX);
        let engine = highest.expect("the highest start revision").build();
        let put = engine.put("k", "v").expect("a valid put");
        assert_eq!(put.revision, Revision::START_MAX.next());
    }
}
