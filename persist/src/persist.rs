//! The handle of a directory, the thread that writes its journal, and those who wait for it.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::mem;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use revstore_engine::{Engine, EngineBuilder, Revision};

use crate::disk::{Disk, SystemDisk};
use crate::error::{OpenError, PersistError};
use crate::format::{MetaChange, Metadata};
use crate::journal::{Fsync, Journal, LAG_BYTES_MAX, Options, write_snapshot};
use crate::recovery::{Files, Paths, Recovered, recover};

/// The longest time between two steps of the thread.
const TICK: Duration = Duration::from_millis(100);
/// The folder of the files in the data directory.
const FOLDER: &str = "revstore";
/// The folder of a real etcd.
const ETCD_FOLDER: &str = "member";

/// An opened directory.
#[derive(Debug)]
pub struct Opened {
    /// The engine, which the journal follows.
    pub engine: Engine,
    /// The handle of the journal.
    pub persist: Persist,
    /// The metadata that was stored.
    pub metadata: Metadata,
    /// What the recovery has found.
    pub recovered: Recovered,
}

/// Opens a data directory, which is created if it does not exist: locks it, restores the engine that it
/// contains, or creates an empty one with `builder`, and starts the thread of the journal.
///
/// # Errors
/// See [`OpenError`]. Nothing is changed in a directory that is locked, damaged, or written by a real etcd.
pub fn open(
    data_dir: &Path,
    builder: EngineBuilder,
    options: Options,
) -> Result<Opened, OpenError> {
    let (opened, journal) = open_on(Arc::new(SystemDisk), data_dir, builder, options)?;
    let shared = opened.persist.shared.clone();
    let thread = thread::Builder::new().name("revstore-journal".to_owned());
    let thread = thread
        .spawn(move || run(journal, &shared))
        .map_err(OpenError::Thread)?;
    *opened.persist.inner.thread.lock() = Some(thread);
    Ok(opened)
}

/// As [`open`], without the thread, which the caller plays.
pub(crate) fn open_on(
    disk: Arc<dyn Disk>,
    data_dir: &Path,
    builder: EngineBuilder,
    options: Options,
) -> Result<(Opened, LockedJournal), OpenError> {
    let etcd = data_dir.join(ETCD_FOLDER);
    if disk.exists(&etcd) {
        return Err(OpenError::EtcdData { path: etcd });
    }
    let paths = Paths {
        dir: data_dir.join(FOLDER),
    };
    disk.create_dir(&paths.dir)
        .map_err(OpenError::io(&paths.dir))?;
    let lock = disk.lock(&paths.lock()).map_err(|source| {
        let path = paths.lock();
        match source.kind() {
            std::io::ErrorKind::WouldBlock => OpenError::Locked { path },
            _ => OpenError::Io { path, source },
        }
    })?;
    let mut state = recover(&*disk, &paths, builder.clone())?;
    if state.is_none() {
        create(&*disk, &paths, &builder.clone().build()).map_err(OpenError::io(&paths.dir))?;
        // The folder itself, too.
        disk.sync_dir(data_dir).map_err(OpenError::io(data_dir))?;
        state = recover(&*disk, &paths, builder)?;
        if let Some(state) = &mut state {
            state.report.is_found = false;
        }
    }
    let Some(state) = state else {
        let path = paths.snapshot(1);
        return Err(OpenError::Missing { path });
    };
    let (engine, metadata) = (state.engine.clone(), state.metadata.clone());
    let recovered = state.report.clone();
    let shared = Arc::new(Shared::new(engine.clone(), options.fsync, metadata.clone()));
    shared.set_synced(state.revision);
    let journal = Journal::open(disk, paths, options, state, shared.clone())?;
    let persist = Persist {
        inner: Arc::new(Handle {
            shared: shared.clone(),
            thread: Mutex::default(),
        }),
        shared,
    };
    let opened = Opened {
        engine,
        persist,
        metadata,
        recovered,
    };
    Ok((
        opened,
        LockedJournal {
            journal,
            _lock: lock,
        },
    ))
}

/// Creates the first snapshot, of an empty store.
fn create(disk: &dyn Disk, paths: &Paths, engine: &Engine) -> std::io::Result<()> {
    let sequence = Files::list(disk, &paths.dir)?.next();
    let (leases, metadata) = (BTreeMap::new(), Metadata::new());
    write_snapshot(disk, paths, sequence, &engine.dump(), &leases, &metadata)?;
    Ok(())
}

/// The journal with the lock of its directory.
#[derive(Debug)]
pub(crate) struct LockedJournal {
    pub(crate) journal: Journal,
    _lock: Box<dyn fmt::Debug + Send>,
}

/// The thread: a step whenever somebody waits, and at least once in each tick.
fn run(mut locked: LockedJournal, shared: &Shared) {
    // Also after a panic, so that nobody waits for ever.
    let _closed = CloseOnDrop(shared);
    let started = Instant::now();
    let tick = match shared.fsync {
        Fsync::Interval(interval) => interval.clamp(Duration::from_millis(1), TICK),
        Fsync::Never | Fsync::Always => TICK,
    };
    loop {
        let is_closing = shared.wait_for_work(tick);
        locked.journal.step(started.elapsed(), is_closing);
        if is_closing {
            break;
        }
    }
    locked.journal.finish_snapshot();
}

struct CloseOnDrop<'a>(&'a Shared);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The handle of an opened directory. Clones are handles of the same one, and the end of the last one
/// [closes](Self::close) it.
#[derive(Clone, Debug)]
pub struct Persist {
    shared: Arc<Shared>,
    inner: Arc<Handle>,
}

/// Ends the thread with the last handle.
#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Handle {
    fn close(&self) -> Result<(), PersistError> {
        self.shared.begin_closing();
        if let Some(thread) = self.thread.lock().take() {
            // A panic of the thread was reported by its hook; then nothing was stored.
            thread
                .join()
                .map_err(|_| PersistError::Io("the journal has panicked".to_owned()))?;
        }
        self.shared.health()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Whoever needs the result calls `close`.
        let _ = self.close();
    }
}

/// Numbers about a directory. They are read one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Whether the last attempt to write has succeeded.
    pub is_healthy: bool,
    /// The revision up to which changes are synced.
    pub synced_revision: i64,
    /// The bytes of changes that are not in the journal.
    pub lag_bytes: u64,
    /// The size of the journals.
    pub journal_bytes: u64,
    /// The size of the newest snapshot.
    pub snapshot_bytes: u64,
    /// The number of syncs of the journal.
    pub syncs: u64,
    /// The number of failed attempts to write.
    pub failures: u64,
}

impl Persist {
    /// Returns when the journal is synced.
    pub fn fsync(&self) -> Fsync {
        self.shared.fsync
    }

    /// Waits until everything that was done before this call is synced.
    ///
    /// # Errors
    /// An attempt to write it has failed. The changes stay in memory, and are written when the disk works
    /// again.
    pub fn sync(&self) -> Synced {
        self.shared.register()
    }

    /// Returns whether the changes up to a revision are synced. One atomic read.
    pub fn is_synced(&self, revision: Revision) -> bool {
        revision.0 <= self.shared.synced.load(Ordering::Acquire)
    }

    /// Returns whether the journal is not further behind the engine than [`LAG_BYTES_MAX`]. Three atomic
    /// reads. Otherwise a writer should wait with [`sync`](Self::sync) before it writes more.
    pub fn has_room(&self) -> bool {
        self.shared.lag_bytes() <= LAG_BYTES_MAX
    }

    /// Returns whether the last attempt to write has succeeded. One atomic read.
    pub fn is_healthy(&self) -> bool {
        self.shared.is_healthy.load(Ordering::Acquire)
    }

    /// Returns the error of the last attempt to write, if it has failed.
    ///
    /// # Errors
    /// That error.
    pub fn health(&self) -> Result<(), PersistError> {
        self.shared.health()
    }

    /// Lets all attempts to write fail with an error of this kind, until `None` is set. For tests of our own server with
    /// errors that no file system produces on request; no part of the interface.
    #[doc(hidden)]
    pub fn fail_for_test(&self, error: Option<std::io::ErrorKind>) {
        self.shared.state.lock().injected = error;
    }

    /// Replaces the contents of some buckets of the metadata, all of them at once.
    pub fn replace_metadata(&self, buckets: Metadata) {
        self.shared.replace_metadata(buckets);
    }

    /// Returns how often writing has begun to fail or to work again. One atomic read. If
    /// [`is_healthy`](Self::is_healthy) was false and the number is the same later, then no attempt to write
    /// has succeeded in between.
    pub fn outages(&self) -> u64 {
        self.shared.outages.load(Ordering::Acquire)
    }

    /// Calls `observer` from the thread of the journal when writing begins to fail, before
    /// [`is_healthy`](Self::is_healthy) returns so; and when it works again, after it; also when a snapshot
    /// fails while the journal works.
    ///
    /// Several observers are called in the order in which they were added, and in the reverse order when writing
    /// works again: what the first one reports is true of the others.
    pub fn observe(&self, observer: impl Fn(&Change) + Send + Sync + 'static) {
        self.shared.observers.lock().push(Arc::new(observer));
    }

    /// Returns numbers about the directory.
    pub fn stats(&self) -> Stats {
        let shared = &self.shared;
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Stats {
            is_healthy: self.is_healthy(),
            synced_revision: shared.synced.load(Ordering::Acquire),
            lag_bytes: shared.lag_bytes(),
            journal_bytes: get(&shared.journal_bytes),
            snapshot_bytes: get(&shared.snapshot_bytes),
            syncs: get(&shared.syncs),
            failures: get(&shared.failures),
        }
    }

    /// Writes and syncs everything, ends the thread and unlocks the directory. Later changes of the
    /// engine are not stored. Does nothing if it is closed.
    ///
    /// # Errors
    /// The last attempt to write has failed.
    pub fn close(&self) -> Result<(), PersistError> {
        self.inner.close()
    }
}

/// A change of the state of a directory, for a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Changes are not durable.
    Failed(PersistError),
    /// Changes are durable again.
    Recovered,
    /// A snapshot has failed, so the journals grow; it is tried again.
    SnapshotFailed(PersistError),
}

/// A future that is ready when everything before its creation is synced; created by [`Persist::sync`].
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Synced {
    shared: Arc<Shared>,
    ticket: u64,
}

impl Future for Synced {
    type Output = Result<(), PersistError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.shared.state.lock();
        match state.waiters.get_mut(&self.ticket) {
            // It was ready before.
            None => Poll::Ready(Ok(())),
            Some(Waiter::Waiting(waker)) => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
            Some(Waiter::Done(result)) => {
                let result = mem::replace(result, Ok(()));
                state.waiters.remove(&self.ticket);
                Poll::Ready(result)
            }
        }
    }
}

impl Drop for Synced {
    fn drop(&mut self) {
        self.shared.state.lock().waiters.remove(&self.ticket);
    }
}

/// What the thread shares with the handles.
pub(crate) struct Shared {
    engine: Engine,
    fsync: Fsync,
    state: Mutex<SharedState>,
    work: Condvar,
    is_healthy: AtomicBool,
    /// The revision up to which changes are synced.
    synced: AtomicI64,
    /// [`Engine::written_bytes`] at the time of the last batch.
    written_bytes: AtomicU64,
    journal_bytes: AtomicU64,
    snapshot_bytes: AtomicU64,
    syncs: AtomicU64,
    failures: AtomicU64,
    outages: AtomicU64,
    observers: Mutex<Vec<Arc<Observer>>>,
}

type Observer = dyn Fn(&Change) + Send + Sync;

#[derive(Debug, Default)]
struct SharedState {
    /// The ticket of the last waiter.
    last_ticket: u64,
    waiters: BTreeMap<u64, Waiter>,
    /// The metadata with all changes, and those that the journal has not taken.
    metadata: Metadata,
    meta_changes: Vec<Vec<MetaChange>>,
    error: Option<PersistError>,
    is_closing: bool,
    is_closed: bool,
    /// The error of all attempts to write, for tests.
    injected: Option<std::io::ErrorKind>,
}

/// Somebody who waits for a step.
#[derive(Debug)]
enum Waiter {
    Waiting(Option<Waker>),
    Done(Result<(), PersistError>),
}

impl Shared {
    fn new(engine: Engine, fsync: Fsync, metadata: Metadata) -> Self {
        let state = SharedState {
            metadata,
            ..SharedState::default()
        };
        Self {
            engine,
            fsync,
            state: Mutex::new(state),
            work: Condvar::new(),
            is_healthy: AtomicBool::new(true),
            synced: AtomicI64::new(0),
            written_bytes: AtomicU64::new(0),
            journal_bytes: AtomicU64::new(0),
            snapshot_bytes: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            outages: AtomicU64::new(0),
            observers: Mutex::default(),
        }
    }

    fn register(self: &Arc<Self>) -> Synced {
        let mut state = self.state.lock();
        state.last_ticket += 1;
        let ticket = state.last_ticket;
        let waiter = if state.is_closed {
            Waiter::Done(Err(PersistError::Closed))
        } else {
            self.work.notify_one();
            Waiter::Waiting(None)
        };
        state.waiters.insert(ticket, waiter);
        Synced {
            shared: self.clone(),
            ticket,
        }
    }

    fn begin_closing(&self) {
        self.state.lock().is_closing = true;
        self.work.notify_one();
    }

    fn health(&self) -> Result<(), PersistError> {
        self.state.lock().error.clone().map_or(Ok(()), Err)
    }

    fn lag_bytes(&self) -> u64 {
        let written = self.written_bytes.load(Ordering::Relaxed);
        self.engine.written_bytes().saturating_sub(written)
    }

    fn replace_metadata(&self, buckets: Metadata) {
        let mut state = self.state.lock();
        let mut changes = Vec::new();
        for (bucket, new) in buckets {
            let old = state.metadata.get(&bucket);
            let change = |key: &Vec<u8>, value: Option<&Vec<u8>>| MetaChange {
                bucket: bucket.clone(),
                key: key.clone(),
                value: value.cloned(),
            };
            let old_pairs = old.into_iter().flatten();
            let removed = old_pairs.filter(|(key, _)| !new.contains_key(*key));
            changes.extend(removed.map(|(key, _)| change(key, None)));
            let is_new = |key: &Vec<u8>, value: &Vec<u8>| {
                old.and_then(|old| old.get(key))
                    .is_none_or(|it| it != value)
            };
            let written = new.iter().filter(|(key, value)| is_new(key, value));
            changes.extend(written.map(|(key, value)| change(key, Some(value))));
            state.metadata.insert(bucket, new);
        }
        if !changes.is_empty() {
            state.meta_changes.push(changes);
        }
    }

    /// Waits until somebody waits for a step, or a tick has passed. Returns whether the step is the last.
    fn wait_for_work(&self, tick: Duration) -> bool {
        let mut state = self.state.lock();
        let is_awaited = |state: &SharedState| {
            let mut waiters = state.waiters.values();
            waiters.any(|waiter| matches!(waiter, Waiter::Waiting(_)))
        };
        if !state.is_closing && !is_awaited(&state) {
            self.work.wait_for(&mut state, tick);
        }
        state.is_closing
    }

    /// Returns the ticket up to which the step that begins satisfies those who wait.
    pub(crate) fn begin_step(&self) -> u64 {
        self.state.lock().last_ticket
    }

    pub(crate) fn is_awaited(&self, through: u64) -> bool {
        let state = self.state.lock();
        let mut waiters = state.waiters.range(..=through);
        waiters.any(|(_, waiter)| matches!(waiter, Waiter::Waiting(_)))
    }

    pub(crate) fn injected(&self) -> Option<std::io::ErrorKind> {
        self.state.lock().injected
    }

    pub(crate) fn take_meta_changes(&self) -> Vec<Vec<MetaChange>> {
        mem::take(&mut self.state.lock().meta_changes)
    }

    pub(crate) fn complete_step(&self, through: u64) {
        let was_failed = self.state.lock().error.take().is_some();
        if was_failed {
            // In this order, and Release: who sees the effects of the observers sees the others.
            self.outages.fetch_add(1, Ordering::Release);
            self.is_healthy.store(true, Ordering::Release);
            self.observe(&Change::Recovered);
        }
        self.end_waiting(through, &Ok(()));
    }

    /// Ends the waiting of all, because a step has failed, now or before.
    pub(crate) fn fail_step(&self, through: u64, error: Option<PersistError>) {
        let (error, is_new) = {
            let mut state = self.state.lock();
            let was_failed = state.error.is_some();
            let is_new = !was_failed && error.is_some();
            if error.is_some() {
                self.failures.fetch_add(1, Ordering::Relaxed);
                state.error = error;
            }
            (state.error.clone(), is_new)
        };
        let Some(error) = error else { return };
        if is_new {
            self.observe(&Change::Failed(error.clone()));
            // Afterwards: who sees the failure knows that the observers have.
            self.is_healthy.store(false, Ordering::Release);
            self.outages.fetch_add(1, Ordering::Release);
        }
        self.end_waiting(through, &Err(error));
    }

    pub(crate) fn report_snapshot_error(&self, error: &std::io::Error) {
        let error = std::io::Error::new(error.kind(), error.to_string());
        self.observe(&Change::SnapshotFailed(error.into()));
    }

    pub(crate) fn set_written(&self, _: Revision, written_bytes: u64) {
        self.written_bytes.store(written_bytes, Ordering::Relaxed);
    }

    pub(crate) fn set_synced(&self, revision: Revision) {
        // Release: pairs with the Acquire in `is_synced`.
        self.synced.store(revision.0, Ordering::Release);
    }

    pub(crate) fn set_journal_bytes(&self, bytes: u64) {
        self.journal_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn set_sizes(&self, snapshot_bytes: u64, journal_bytes: u64) {
        self.snapshot_bytes.store(snapshot_bytes, Ordering::Relaxed);
        self.set_journal_bytes(journal_bytes);
    }

    pub(crate) fn count_sync(&self) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
    }

    fn close(&self) {
        self.state.lock().is_closed = true;
        self.is_healthy.store(false, Ordering::Release);
        self.end_waiting(u64::MAX, &Err(PersistError::Closed));
    }

    fn end_waiting(&self, through: u64, result: &Result<(), PersistError>) {
        let mut wake = Vec::new();
        {
            let mut state = self.state.lock();
            for (_, waiter) in state.waiters.range_mut(..=through) {
                if let Waiter::Waiting(waker) = waiter {
                    wake.extend(waker.take());
                    *waiter = Waiter::Done(result.clone());
                }
            }
        }
        // With no lock held: a waker is code of somebody else.
        for waker in wake {
            waker.wake();
        }
    }

    fn observe(&self, change: &Change) {
        let mut observers = self.observers.lock().clone();
        if *change == Change::Recovered {
            observers.reverse();
        }
        for observer in observers {
            observer(change);
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}
