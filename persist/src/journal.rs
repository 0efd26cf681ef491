//! The journal: what one step of its thread reads from the engine, writes, syncs and replaces.
//!
//! A step takes everything that has changed since the last one and appends it as one batch. When the
//! journals have become larger than the live data, a new one begins, and a snapshot of the state between
//! both replaces the earlier ones, written by another thread meanwhile.

use std::collections::BTreeMap;
use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use revstore_engine::{
    Dump, Engine, Follower, LeaseChange, LeaseGrant, LeaseId, LeaseLeft, Revision,
};

use crate::disk::{Disk, DiskFile};
use crate::error::{OpenError, PersistError};
use crate::format::{
    BATCH_FRAME_BYTES, FORMAT_VERSION, FileKind, Header, MetaChange, Metadata, Record,
};
use crate::persist::Shared;
use crate::recovery::{Files, Paths, State};
use crate::snapshot::{self, FileWriter};

/// The number of bytes of changes that the journal may be behind the engine. At this bound
/// [`Persist::has_room`](crate::Persist::has_room) says so.
pub const LAG_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// The size of the journals below which no snapshot replaces them.
const JOURNAL_BYTES_MIN: u64 = 16 * 1024 * 1024;
/// The time after a failure until the next attempt.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// The time after a failed snapshot until the next one, while the journal works.
const SNAPSHOT_RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// When the journal is synced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fsync {
    /// When somebody waits for it, and at the end. The system writes the rest when it likes: a crash of the
    /// process loses what the last step has not written, a crash of the machine may lose more.
    Never,
    /// At most once in this interval, while something changes.
    Interval(Duration),
    /// With each step.
    #[default]
    Always,
}

/// The options of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// When the journal is synced; [`Fsync::Always`] by default.
    pub fsync: Fsync,
    /// The size of the journals below which no snapshot replaces them; 16 MiB by default. Above it, a
    /// snapshot is written when they are larger than the live data.
    pub journal_bytes_min: u64,
    /// Whether a step writes a snapshot itself. Tests set this, so that the order of all writes is known.
    pub(crate) is_inline: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            fsync: Fsync::default(),
            journal_bytes_min: JOURNAL_BYTES_MIN,
            is_inline: false,
        }
    }
}

impl Options {
    /// Sets when the journal is synced.
    #[must_use]
    pub fn fsync(self, fsync: Fsync) -> Self {
        Self { fsync, ..self }
    }

    /// Sets the size of the journals below which no snapshot replaces them.
    #[must_use]
    pub fn journal_bytes_min(self, journal_bytes_min: u64) -> Self {
        Self {
            journal_bytes_min,
            ..self
        }
    }
}

/// The writer of the files of one directory.
#[derive(Debug)]
pub(crate) struct Journal {
    disk: Arc<dyn Disk>,
    paths: Paths,
    options: Options,
    engine: Engine,
    follower: Follower,
    shared: Arc<Shared>,
    file: JournalFile,
    /// The number of the newest file.
    sequence: u64,
    /// The bytes of the journals before the current one that the newest snapshot does not replace.
    earlier_bytes: u64,
    /// The leases and the metadata as the journal has them, for the next snapshot.
    leases: BTreeMap<LeaseId, Duration>,
    metadata: Metadata,
    compacted: Option<Revision>,
    /// What was taken from the engine and from the queue, but not written.
    lease_changes: Vec<LeaseChange>,
    meta_changes: Vec<Vec<MetaChange>>,
    failure: Option<Failure>,
    last_sync: Duration,
    snapshot: Option<RunningSnapshot>,
    /// The time before which no snapshot begins.
    snapshot_after: Duration,
}

/// The journal that is written.
#[derive(Debug)]
struct JournalFile {
    file: Box<dyn DiskFile>,
    /// The length up to which it is valid.
    len: u64,
    /// The length that is synced.
    synced: u64,
    /// The synced length that the last batch states.
    stated: u64,
}

#[derive(Debug)]
struct Failure {
    retry_at: Duration,
    /// Whether the files are not trusted, so that the whole store is written again.
    is_rewrite: bool,
}

/// A snapshot that another thread writes.
#[derive(Debug)]
struct RunningSnapshot {
    sequence: u64,
    /// The bytes of the journals that it replaces.
    replaces_bytes: u64,
    result: Receiver<io::Result<u64>>,
}

/// An error of a step.
struct StepError {
    source: io::Error,
    /// Whether the journal is as before the step.
    is_intact: bool,
}

impl StepError {
    fn broken(source: io::Error) -> Self {
        Self {
            source,
            is_intact: false,
        }
    }
}

impl Journal {
    /// Continues the files of a recovered directory, or creates them.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        paths: Paths,
        options: Options,
        state: State,
        shared: Arc<Shared>,
    ) -> Result<Self, OpenError> {
        let dir = paths.dir.clone();
        let files = Files::list(&*disk, &dir).map_err(OpenError::io(&dir))?;
        let follower = state.engine.follow(state.revision)?;
        let leases = follower.leases().iter();
        let leases = leases.map(|lease| (lease.id, lease.ttl)).collect();
        let opened = match state.journal {
            Some((number, len)) if len > 0 => {
                reopen(&*disk, &paths, number, len).map(|file| (number, file))
            }
            journal => {
                let number = journal.map_or(state.snapshot, |(number, _)| number);
                create(&*disk, &paths, number, state.revision).map(|file| (number, file))
            }
        };
        let (sequence, file) = opened.map_err(OpenError::io(&dir))?;
        shared.set_written(state.revision, state.engine.written_bytes());
        shared.set_sizes(state.snapshot_bytes, state.earlier_bytes + file.len);
        for number in &files.unfinished {
            // Of a crash during a snapshot. What cannot be removed is removed later.
            let _ = disk.remove(&paths.unfinished(*number));
        }
        let journal = Self {
            paths,
            options,
            follower,
            shared,
            file,
            sequence: sequence.max(files.next() - 1),
            earlier_bytes: state.earlier_bytes,
            leases,
            metadata: state.metadata,
            compacted: state.compacted,
            lease_changes: Vec::new(),
            meta_changes: Vec::new(),
            failure: None,
            last_sync: Duration::ZERO,
            snapshot: None,
            snapshot_after: Duration::ZERO,
            engine: state.engine,
            disk,
        };
        journal.remove_before(state.snapshot);
        Ok(journal)
    }

    /// Writes what has changed, and syncs it if the policy, somebody who waits, or `is_last` requires it.
    pub(crate) fn step(&mut self, now: Duration, is_last: bool) {
        let ticket = self.shared.begin_step();
        self.end_snapshot(now);
        if let Some(failure) = &self.failure
            && (now < failure.retry_at && !is_last)
        {
            self.collect(self.engine.current_revision());
            self.shared.fail_step(ticket, None);
            return;
        }
        let is_rewrite = self.failure.as_ref().is_some_and(|it| it.is_rewrite);
        let done = if let Some(injected) = self.shared.injected() {
            Err(StepError {
                source: injected.into(),
                is_intact: !is_rewrite,
            })
        } else if is_rewrite {
            self.rewrite().map_err(StepError::broken)
        } else {
            self.append(now, ticket, is_last)
        };
        match done {
            Ok(()) => {
                self.failure = None;
                self.shared.complete_step(ticket);
            }
            Err(StepError { source, is_intact }) => {
                self.failure = Some(Failure {
                    retry_at: now + RETRY_INTERVAL,
                    is_rewrite: !is_intact,
                });
                let error = PersistError::from(source);
                self.shared.fail_step(ticket, Some(error));
            }
        }
    }

    /// Waits for a snapshot that is being written.
    pub(crate) fn finish_snapshot(&mut self) {
        if let Some(running) = self.snapshot.take()
            && let Ok(Ok(_)) = running.result.recv()
        {
            self.remove_before(running.sequence);
        }
    }

    fn append(&mut self, now: Duration, ticket: u64, is_last: bool) -> Result<(), StepError> {
        let live = self.engine.history_bytes();
        let limit = live.max(self.options.journal_bytes_min);
        let rotates = self.snapshot.is_none()
            && now >= self.snapshot_after
            && !is_last
            && self.earlier_bytes + self.file.len > limit;
        // Before the revision, so that all these bytes belong to it.
        let written_bytes = self.engine.written_bytes();
        let dump = rotates.then(|| self.engine.dump());
        // In this order: a compaction is never above the current revision.
        let (compacted, revision) = match &dump {
            Some(dump) => (dump.compacted(), dump.revision()),
            None => (
                self.engine.compacted_revision(),
                self.engine.current_revision(),
            ),
        };
        self.collect(revision);
        let has_changes = revision > self.follower.through()
            || compacted != self.compacted
            || !self.lease_changes.is_empty()
            || !self.meta_changes.is_empty();
        if has_changes {
            let batch = self.write_batch(compacted, revision);
            if let Err(source) = batch {
                // Without what was written of the batch, the journal is as before.
                let is_intact = self.file.file.set_len(self.file.len).is_ok();
                return Err(StepError { source, is_intact });
            }
            self.take_collected();
            self.compacted = compacted;
            self.follower.advance(revision);
        }
        let is_due = match self.options.fsync {
            Fsync::Never => false,
            Fsync::Interval(interval) => now >= self.last_sync + interval,
            Fsync::Always => true,
        };
        if self.file.synced < self.file.len
            && (is_due || is_last || rotates || self.shared.is_awaited(ticket))
        {
            self.file.file.sync().map_err(StepError::broken)?;
            self.file.synced = self.file.len;
            self.last_sync = now;
            self.shared.count_sync();
        }
        let is_synced = self.file.synced == self.file.len;
        self.shared.set_written(revision, written_bytes);
        if is_synced {
            self.shared.set_synced(revision);
        }
        if is_last && self.file.synced > self.file.stated + BATCH_FRAME_BYTES as u64 {
            // States that everything before was synced. Without it, damage of the last batch would look
            // like a write that was not complete.
            let _ = self.write_batch_start();
        }
        if let Some(dump) = dump {
            self.rotate(now, dump).map_err(StepError::broken)?;
        }
        self.shared
            .set_journal_bytes(self.earlier_bytes + self.file.len);
        Ok(())
    }

    /// Takes what has changed apart from keys.
    fn collect(&mut self, revision: Revision) {
        let changes = self.follower.take_lease_changes(revision);
        self.lease_changes.extend(changes);
        self.meta_changes.extend(self.shared.take_meta_changes());
    }

    /// Applies what was collected to the copies for snapshots.
    fn take_collected(&mut self) {
        for change in self.lease_changes.drain(..) {
            match change {
                LeaseChange::Granted(lease) => drop(self.leases.insert(lease.id, lease.ttl)),
                LeaseChange::Ended { id, .. } => drop(self.leases.remove(&id)),
            }
        }
        for change in mem::take(&mut self.meta_changes).into_iter().flatten() {
            change.apply(&mut self.metadata);
        }
    }

    fn write_batch_start(&mut self) -> io::Result<()> {
        let synced = self.file.synced;
        let mut writer = FileWriter::new(&mut *self.file.file);
        writer.record(&Record::Batch { synced })?;
        writer.flush()?;
        self.file.len += writer.written;
        self.file.stated = synced;
        Ok(())
    }

    /// Appends everything that was collected, and the changes up to a revision.
    fn write_batch(&mut self, compacted: Option<Revision>, revision: Revision) -> io::Result<()> {
        let synced = self.file.synced;
        let mut writer = FileWriter::new(&mut *self.file.file);
        writer.record(&Record::Batch { synced })?;
        // A put that names a lease is never in the journal before the lease. So all grants come first,
        // also those of leases that have ended since: their keys may be among the changes.
        let mut exist = BTreeMap::new();
        for change in &self.lease_changes {
            match change {
                LeaseChange::Granted(lease) => {
                    writer.record(&Record::LeaseGrant(*lease))?;
                    exist.insert(lease.id, true);
                }
                LeaseChange::Ended { id, .. } => drop(exist.insert(*id, false)),
            }
        }
        writer.revisions(self.follower.through(), self.follower.changes(revision))?;
        // And the end of a lease is never there before the deletions of its keys.
        for (id, exists) in exist {
            if !exists {
                writer.record(&Record::LeaseEnd(id))?;
            }
        }
        if compacted != self.compacted
            && let Some(compacted) = compacted
        {
            writer.record(&Record::Compaction(compacted))?;
        }
        for changes in &self.meta_changes {
            writer.record(&Record::Meta(changes.clone()))?;
        }
        writer.flush()?;
        self.file.len += writer.written;
        self.file.stated = synced;
        Ok(())
    }

    /// Begins a new journal after the revision of the dump, up to which the current one is synced, and a
    /// snapshot of the dump.
    fn rotate(&mut self, now: Duration, dump: Dump) -> io::Result<()> {
        self.sequence += 1;
        let sequence = self.sequence;
        let file = create(&*self.disk, &self.paths, sequence, dump.revision())?;
        self.earlier_bytes += mem::replace(&mut self.file, file).len;
        let (leases, metadata) = (self.leases.clone(), self.metadata.clone());
        let (disk, paths) = (self.disk.clone(), self.paths.clone());
        let (sender, result) = channel();
        self.snapshot = Some(RunningSnapshot {
            sequence,
            replaces_bytes: self.earlier_bytes,
            result,
        });
        let write = move || {
            let written = write_snapshot(&*disk, &paths, sequence, &dump, &leases, &metadata);
            // Before the result, so that the history of the dump is freed when the step sees it.
            drop(dump);
            let _ = sender.send(written);
        };
        if self.options.is_inline {
            write();
            self.end_snapshot(now);
        } else {
            let thread = thread::Builder::new().name("revstore-snapshot".to_owned());
            // Without a thread there is no result, which is an error of the snapshot.
            let _ = thread.spawn(write);
        }
        Ok(())
    }

    /// Replaces the earlier files if the snapshot that is being written is complete.
    fn end_snapshot(&mut self, now: Duration) {
        let Some(running) = &self.snapshot else {
            return;
        };
        let result = match running.result.try_recv() {
            Ok(result) => result,
            Err(TryRecvError::Empty) => return,
            Err(TryRecvError::Disconnected) => Err(io::Error::other("the thread has failed")),
        };
        let (sequence, replaced) = (running.sequence, running.replaces_bytes);
        self.snapshot = None;
        match result {
            Ok(bytes) => {
                self.remove_before(sequence);
                self.earlier_bytes -= replaced;
                self.shared
                    .set_sizes(bytes, self.earlier_bytes + self.file.len);
            }
            Err(error) => {
                self.snapshot_after = now + SNAPSHOT_RETRY_INTERVAL;
                self.shared.report_snapshot_error(&error);
            }
        }
    }

    /// Writes the whole store to new files, because the current ones are not trusted.
    fn rewrite(&mut self) -> io::Result<()> {
        // It would remove files that are needed until the new ones are complete.
        if let Some(running) = self.snapshot.take() {
            let _ = running.result.recv();
        }
        self.sequence += 1;
        let sequence = self.sequence;
        let written_bytes = self.engine.written_bytes();
        let dump = self.engine.dump();
        let revision = dump.revision();
        self.collect(revision);
        self.take_collected();
        let written = write_snapshot(
            &*self.disk,
            &self.paths,
            sequence,
            &dump,
            &self.leases,
            &self.metadata,
        )?;
        self.file = create(&*self.disk, &self.paths, sequence, revision)?;
        self.compacted = dump.compacted();
        drop(dump);
        self.follower.advance(revision);
        self.remove_before(sequence);
        self.earlier_bytes = 0;
        self.shared.set_sizes(written, self.file.len);
        self.shared.set_written(revision, written_bytes);
        self.shared.set_synced(revision);
        Ok(())
    }

    /// Removes the files that a snapshot replaces. What cannot be removed is removed later.
    fn remove_before(&self, snapshot: u64) {
        let Ok(files) = Files::list(&*self.disk, &self.paths.dir) else {
            return;
        };
        let is_replaced = |number: &&u64| **number < snapshot;
        let snapshots = files.snapshots.iter().filter(is_replaced);
        let journals = files.journals.iter().filter(is_replaced);
        let unfinished = files.unfinished.iter();
        let unfinished = unfinished.filter(|number| **number <= snapshot);
        let paths = (snapshots.map(|number| self.paths.snapshot(*number)))
            .chain(unfinished.map(|number| self.paths.unfinished(*number)))
            .chain(journals.map(|number| self.paths.journal(*number)));
        for path in paths {
            let _ = self.disk.remove(&path);
        }
    }
}

/// Writes a snapshot to a temporary file and renames it.
pub(crate) fn write_snapshot(
    disk: &dyn Disk,
    paths: &Paths,
    sequence: u64,
    dump: &Dump,
    leases: &BTreeMap<LeaseId, Duration>,
    metadata: &Metadata,
) -> io::Result<u64> {
    let unfinished = paths.unfinished(sequence);
    let write = || {
        let mut file = disk.create(&unfinished)?;
        let leases = leases.iter().map(|(id, ttl)| {
            let (id, ttl) = (*id, *ttl);
            LeaseLeft::full(LeaseGrant { id, ttl })
        });
        let written = snapshot::write(&mut *file, sequence, dump, leases, metadata)?;
        drop(file);
        disk.rename(&unfinished, &paths.snapshot(sequence))?;
        disk.sync_dir(&paths.dir)?;
        Ok(written)
    };
    let written = write();
    if written.is_err() {
        // So that a full disk does not stay full for it.
        let _ = disk.remove(&unfinished);
    }
    written
}

/// Creates a journal after a revision, and makes it durable.
fn create(
    disk: &dyn Disk,
    paths: &Paths,
    sequence: u64,
    revision: Revision,
) -> io::Result<JournalFile> {
    let mut file = disk.create(&paths.journal(sequence))?;
    let mut writer = FileWriter::new(&mut *file);
    writer.begin(Header {
        kind: FileKind::Journal as u8,
        version: FORMAT_VERSION,
        sequence,
        compacted: None,
        revision,
    })?;
    writer.flush()?;
    let len = writer.written;
    file.sync()?;
    disk.sync_dir(&paths.dir)?;
    Ok(JournalFile {
        file,
        len,
        synced: len,
        stated: len,
    })
}

/// Opens a journal to continue it at its valid length.
fn reopen(disk: &dyn Disk, paths: &Paths, sequence: u64, len: u64) -> io::Result<JournalFile> {
    let mut file = disk.append(&paths.journal(sequence))?;
    file.set_len(len)?;
    // The system may have kept in memory what the recovery has read.
    file.sync()?;
    Ok(JournalFile {
        file,
        len,
        synced: len,
        stated: len,
    })
}
