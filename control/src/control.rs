//! The handle of control.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use revstore_engine::{Engine, LeaseId, LeaseStatus, PendingWork, Revision};

use crate::clock::{ClockMode, ControlClock};
use crate::error::ControlError;
use crate::fault::{Action, Rule, RuleId, RuleStatus, Rules};
use crate::journal::{Filter, Follower, Journal, Page};
use crate::open::{ConnectionStatus, Open, WatchCommand, WatchStatus};
use crate::store::{
    DumpForm, ForkInfo, Frozen, OpenDump, RestoreOptions, StoreFile, Stores, Upload,
};
use crate::target::{AlarmName, Target};
use crate::wait::{Condition, Waits};

/// The maximum number of entries in a list of pending work or leases.
pub const LISTED_MAX: usize = 1_000;

/// The point at which a request has taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// The current revision of the store.
    pub revision: Revision,
    /// The time of the clock.
    pub time: Duration,
}

/// An open lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseEntry {
    /// The id.
    pub id: LeaseId,
    /// The granted and the remaining time to live. The keys are not listed.
    pub status: LeaseStatus,
    /// The number of attached keys.
    pub keys: usize,
}

/// Control of a server: its time, its store, what is open. Clones control the same server.
///
/// Methods return when what they do is done: after [`advance`](Self::advance), the keys of expired leases are deleted
/// and watches have the events. They may block the thread for as long as that takes, and need no runtime,
/// [`wait`](Self::wait) excepted.
#[derive(Clone, Debug)]
pub struct Control {
    inner: Arc<Inner>,
}

/// The tables that a server asks for each request.
#[derive(Clone, Debug)]
pub struct Hooks {
    /// The rules of faults.
    pub rules: Rules,
    /// The journal of requests and streams.
    pub journal: Journal,
    /// What is open.
    pub open: Open,
}

#[derive(Debug)]
struct Inner {
    clock: ControlClock,
    target: Arc<dyn Target>,
    waits: Waits,
    stores: Stores,
    hooks: Hooks,
}

impl Control {
    /// Creates the control of a server whose engine has this clock. Checkpoints may take `memory_limit` bytes.
    pub fn new(
        clock: ControlClock,
        target: Arc<dyn Target>,
        hooks: Hooks,
        memory_limit: u64,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                clock,
                target,
                waits: Waits::default(),
                stores: Stores::new(memory_limit),
                hooks,
            }),
        }
    }

    /// Returns the clock of the server.
    pub fn clock(&self) -> &ControlClock {
        &self.inner.clock
    }

    /// Returns the tables that the server asks for each request.
    pub fn hooks(&self) -> &Hooks {
        &self.inner.hooks
    }

    /// Returns the engine that the server serves now.
    pub fn engine(&self) -> Engine {
        self.inner.target.engine()
    }

    /// Returns the engine, if the store is under control.
    fn store(&self) -> Result<Engine, ControlError> {
        self.inner.target.check_store()?;
        Ok(self.engine())
    }

    /// Returns the current revision and time.
    pub fn point(&self) -> Point {
        Point {
            revision: self.inner.target.revision(),
            time: self.clock().time(),
        }
    }

    /// Returns the current revision with the time that a change of the clock has reached: running time has gone on since.
    fn point_at(&self, time: Duration) -> Point {
        Point {
            revision: self.inner.target.revision(),
            time,
        }
    }

    /// Changes the mode of the clock, as [`ControlClock::set_mode`].
    pub fn set_clock(&self, mode: ClockMode) -> Point {
        let time = self.clock().set_mode(mode);
        self.point_at(time)
    }

    /// Moves the time of the clock, as [`ControlClock::advance`].
    ///
    /// # Errors
    /// [`ControlError::Advance`].
    pub fn advance(&self, by: Duration) -> Result<Point, ControlError> {
        let time = self.clock().advance(by)?;
        Ok(self.point_at(time))
    }

    /// Moves the time of the clock to the next due time, as [`ControlClock::advance_to_next`].
    ///
    /// # Errors
    /// [`ControlError::Advance`].
    pub fn advance_to_next(&self) -> Result<Point, ControlError> {
        let time = self.clock().advance_to_next()?;
        Ok(self.point_at(time))
    }

    /// Lists the work that is due later: what is due first, at most [`LISTED_MAX`] entries, and the number of others.
    pub fn pending(&self) -> PendingWork {
        self.clock().pending(LISTED_MAX)
    }

    /// Compacts the store at a revision, by default the current one, and waits until the history is removed. Returns
    /// the compacted revision.
    ///
    /// # Errors
    /// [`ControlError::Compact`] if the revision is compacted already or above the current one.
    pub fn compact(&self, revision: Option<Revision>) -> Result<Revision, ControlError> {
        let engine = self.store()?;
        let revision = revision.unwrap_or_else(|| engine.current_revision());
        engine.compact(revision)?.run();
        Ok(revision)
    }

    /// Lists the leases that expire first, at most `max` of them, and returns the number of others.
    pub fn leases(&self, max: usize) -> (Vec<LeaseEntry>, usize) {
        let engine = self.engine();
        let ids = engine.leases();
        let listed = ids.iter().take(max).filter_map(|id| {
            // A lease that has ended meanwhile is not listed.
            let status = engine.lease(*id, false).ok()?;
            Some(LeaseEntry {
                id: *id,
                status,
                keys: engine.lease_key_count(*id),
            })
        });
        (listed.collect(), ids.len().saturating_sub(max))
    }

    /// Ends a lease now: deletes its keys as if its time had passed.
    ///
    /// # Errors
    /// [`ControlError::NoSuchLease`].
    pub fn expire(&self, lease: LeaseId) -> Result<Point, ControlError> {
        let revoked = self.store()?.revoke(lease);
        let revision = revoked.map_err(|error| ControlError::of_lease(lease, error))?;
        Ok(Point {
            revision,
            time: self.clock().time(),
        })
    }

    /// Raises or clears an alarm. Returns the alarms that are raised now. An alarm that is raised already stays so.
    ///
    /// # Errors
    /// [`ControlError::Refused`] if the server has no alarms.
    pub fn alarm(&self, name: AlarmName, raise: bool) -> Result<Vec<AlarmName>, ControlError> {
        self.inner.target.alarm(name, raise)
    }

    /// Begins the next Raft term, as if the leader had changed and were this server again. Returns the term, which responses
    /// have from now on. Leases get their whole time to live again, as a new leader of etcd grants it. Calls and streams
    /// go on.
    ///
    /// # Errors
    /// [`ControlError::Refused`] if the server has no Raft term.
    pub fn new_term(&self) -> Result<u64, ControlError> {
        self.inner.target.new_term()
    }

    /// Adds a rule of faults. It applies to requests that arrive from now on.
    ///
    /// # Errors
    /// [`ControlError::Rule`] if the rule has no sense, or if there are too many.
    pub fn add_fault(&self, rule: Rule) -> Result<RuleId, ControlError> {
        let mut rule = rule;
        if let Action::Stale { revision } = &mut rule.action {
            revision.get_or_insert(self.inner.target.revision().0);
        }
        Ok(self.inner.hooks.rules.add(rule)?)
    }

    /// Lists the rules, in the order of their addition, with the number of times that each has fired.
    pub fn faults(&self) -> Vec<RuleStatus> {
        self.inner.hooks.rules.list()
    }

    /// Removes a rule, or all of them, and releases what they hold. Returns the number of removed rules.
    ///
    /// # Errors
    /// [`ControlError::Rule`] if there is no rule with this number.
    pub fn clear_faults(&self, id: Option<RuleId>) -> Result<usize, ControlError> {
        Ok(self.inner.hooks.rules.clear(id)?)
    }

    /// Lists the open watches of clients.
    pub fn watches(&self) -> Vec<WatchStatus> {
        let current = self.inner.target.revision();
        self.inner.hooks.open.watches(current.0)
    }

    /// Gives a command to a watch, or to all that are open. Returns their number.
    ///
    /// # Errors
    /// [`ControlError::Open`] if there is no watch with this number.
    pub fn watch(&self, id: Option<u64>, command: WatchCommand) -> Result<usize, ControlError> {
        Ok(self.inner.hooks.open.command(id, command)?)
    }

    /// Lists the open connections of clients.
    pub fn connections(&self) -> Vec<ConnectionStatus> {
        self.inner.hooks.open.connections()
    }

    /// Reads the records of the journal after a number; 0 for all that are kept.
    pub fn journal(&self, filter: &Filter, after: u64) -> Page {
        self.inner.hooks.journal.read(filter, after)
    }

    /// Follows the journal from now on.
    pub fn follow_journal(&self, filter: Filter) -> Follower {
        self.inner.hooks.journal.follow(filter)
    }

    /// Keeps the store and the state of the node under a name: keys with their history, leases with the time that they
    /// have left, users, roles, alarms, members. Replaces an earlier checkpoint with this name. Returns the revision of
    /// the checkpoint.
    ///
    /// A checkpoint shares keys and values with the server. It counts with the size of the whole history against the
    /// memory limit, because it alone holds that after a reset. Costs about 150 ns for each key.
    ///
    /// # Errors
    /// [`ControlError::CheckpointMemory`], [`ControlError::TooManyCheckpoints`], or [`ControlError::Invalid`] for an
    /// empty or a long name.
    pub fn checkpoint(&self, name: &str) -> Result<Revision, ControlError> {
        let inner = &*self.inner;
        inner.stores.checkpoint(&*inner.target, name)
    }

    /// Replaces the store by a checkpoint, which stays. Clients see what they see when an etcd is restored from a
    /// backup: their streams and connections end.
    ///
    /// # Errors
    /// [`ControlError::NoSuchCheckpoint`], [`ControlError::Jump`] if the revision cannot be bumped so far, or
    /// [`ControlError::Refused`] if the server has a journal.
    pub fn restore(&self, name: &str, options: RestoreOptions) -> Result<Point, ControlError> {
        let inner = &*self.inner;
        inner.stores.restore(&*inner.target, name, options)?;
        Ok(self.point())
    }

    /// Replaces the store by an empty one and the node by a new one, at revision 1 or at the current one. Streams and
    /// connections end. Takes the same time whatever the store contains.
    ///
    /// # Errors
    /// [`ControlError::Refused`] if the server has a journal.
    pub fn reset(&self, keep_revision: bool) -> Result<Point, ControlError> {
        let inner = &*self.inner;
        inner.stores.reset(&*inner.target, keep_revision)?;
        Ok(self.point())
    }

    /// Makes the next write get the revision `next`. Streams and connections end. Writes at the same time may be lost,
    /// as when an etcd is restored from a backup.
    ///
    /// # Errors
    /// [`ControlError::Jump`] if a write would get that revision anyway, or a later one, or if it is too high, or
    /// [`ControlError::Refused`] if the server has a journal.
    pub fn jump(&self, next: Revision) -> Result<Point, ControlError> {
        let inner = &*self.inner;
        inner.stores.jump(&*inner.target, next)?;
        Ok(self.point())
    }

    /// Writes the store at one revision as a dump: what a [`checkpoint`](Self::checkpoint) keeps. Returns the revision of
    /// the dump, and the time at which it was taken. Writers go on meanwhile. The output is written in many small parts:
    /// buffer it.
    ///
    /// Begins with a copy of the store, which shares keys and values with it: about 150 ns for each key.
    ///
    /// # Errors
    /// [`ControlError::TooManyDumps`], or [`ControlError::Output`] with the error of `to`.
    pub fn dump(&self, form: DumpForm, to: &mut (dyn Write + Send)) -> Result<Point, ControlError> {
        let dump = self.open_dump()?;
        let written = self.write_dump(&dump, form, to);
        written.map_err(|error| ControlError::Output(error.to_string()))?;
        Ok(dump.point)
    }

    pub(crate) fn open_dump(&self) -> Result<OpenDump, ControlError> {
        let inner = &*self.inner;
        inner.stores.open_dump(&*inner.target, &inner.clock)
    }

    pub(crate) fn write_dump(
        &self,
        dump: &OpenDump,
        form: DumpForm,
        to: &mut (dyn Write + Send),
    ) -> io::Result<()> {
        dump.write(&*self.inner.target, form, to)?;
        to.flush()
    }

    /// Replaces the store by that of a dump, as text or binary. Streams and connections end as at a
    /// [`restore`](Self::restore). The new store has the clock and the options of the server.
    ///
    /// # Errors
    /// [`ControlError::Damaged`], or [`ControlError::Refused`] if the server has a journal.
    pub fn load(&self, dump: &[u8]) -> Result<Point, ControlError> {
        self.load_file(dump, StoreFile::Dump)
    }

    /// Replaces the store by that of a file of `etcdctl snapshot save` of etcd 3.4 to 3.6, like [`load`](Self::load).
    ///
    /// # Errors
    /// Those of [`load`](Self::load).
    pub fn import(&self, snapshot: &[u8]) -> Result<Point, ControlError> {
        self.load_file(snapshot, StoreFile::EtcdSnapshot)
    }

    pub(crate) fn load_file(&self, bytes: &[u8], file: StoreFile) -> Result<Point, ControlError> {
        let inner = &*self.inner;
        inner.stores.load(&*inner.target, bytes, file)?;
        Ok(self.point())
    }

    /// Begins to receive a file, of this length if it is known.
    pub(crate) fn upload(&self, length: u64) -> Result<Upload, ControlError> {
        let inner = &*self.inner;
        inner.stores.upload(&*inner.target, length)
    }

    /// Starts an independent server with the same history, with ports, control and a clock of its own; its clock starts
    /// with the mode and the time of this one. It is never persisted, and ends with this server or by
    /// [`drop_copy`](Self::drop_copy).
    ///
    /// # Errors
    /// [`ControlError::TooManyForks`], or [`ControlError::Refused`] if it cannot be started.
    pub fn fork(&self) -> Result<ForkInfo, ControlError> {
        let inner = &*self.inner;
        inner.stores.fork(&*inner.target, &inner.clock)
    }

    /// Copies the store, and the clock with its mode and its time, for a server that `start` makes of them. It is
    /// independent, and no fork for [`forks`](Self::forks): its end is the caller's.
    ///
    /// # Errors
    /// [`ControlError::Refused`] if the store is another program, and those of `start`.
    pub fn fork_with<T>(
        &self,
        start: impl FnOnce(Frozen, ControlClock) -> Result<T, ControlError>,
    ) -> Result<T, ControlError> {
        let inner = &*self.inner;
        let (frozen, clock) = Stores::copy_with_clock(&*inner.target, &inner.clock)?;
        start(frozen, clock)
    }

    /// Lists the forks that run.
    pub fn forks(&self) -> Vec<ForkInfo> {
        self.inner.stores.forks()
    }

    /// Ends a fork, by its id, or removes a checkpoint, by its name.
    ///
    /// # Errors
    /// [`ControlError::NoSuchCopy`].
    pub fn drop_copy(&self, id: &str) -> Result<(), ControlError> {
        self.inner.stores.drop_copy(id)
    }

    /// Ends all forks and removes all checkpoints, as the end of the server does.
    pub fn close(&self) {
        self.inner.stores.clear();
    }

    /// Waits until a condition holds, at most for a time of the system. Needs a tokio runtime with time.
    ///
    /// # Errors
    /// [`ControlError::TimedOut`], or [`ControlError::TooManyWaits`].
    pub async fn wait(
        &self,
        condition: Condition,
        timeout: Option<Duration>,
    ) -> Result<Point, ControlError> {
        let (target, open) = (&*self.inner.target, &self.inner.hooks.open);
        if !matches!(condition, Condition::Watches(_)) {
            target.check_store()?;
        }
        self.inner
            .waits
            .wait(target, open, condition, timeout)
            .await?;
        Ok(self.point())
    }
}
