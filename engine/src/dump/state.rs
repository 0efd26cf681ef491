//! Dumps: the base state, the history and the leases of a store at one revision.

use std::iter::FusedIterator;
use std::ops::ControlFlow;
use std::vec;

use crate::compaction::Hold;
use crate::history::{KeyValue, LeaseId};
use crate::index::Scan;
use crate::key::KeyRange;
use crate::lease::LeaseLeft;
use crate::revision::{Position, Revision};
use crate::store::Store;
use crate::sync::Arc;
use crate::sync::epoch::pin;

/// One version of a key with all its numbers, outside of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value; `None` for a tombstone.
    pub value: Option<&'a [u8]>,
    /// The position of the write.
    pub position: Position,
    /// The revision in which the key was created; 0 for a tombstone.
    pub create_revision: Revision,
    /// The number of writes since the creation; 0 for a tombstone.
    pub version: i64,
    /// The lease of the version.
    pub lease: Option<LeaseId>,
}

impl<'a> From<&'a KeyValue> for Version<'a> {
    fn from(kv: &'a KeyValue) -> Self {
        Self {
            key: kv.key(),
            value: (!kv.is_tombstone()).then(|| kv.value()),
            position: kv.position(),
            create_revision: kv.create_revision(),
            version: kv.version(),
            lease: kv.lease(),
        }
    }
}

/// Everything that a store contains at one revision, created by [`Engine::dump`](crate::Engine::dump):
/// the *base state*, which are the live keys at the compacted revision, and the *history*, which are all
/// changes from this revision on. [`Restore`](crate::Restore) builds an equal engine from them.
///
/// # Guarantees
/// The parts belong to one revision, whatever is written and compacted meanwhile. No writer and no
/// compaction waits: a compaction leaves the history of the dump, and the end of the dump frees it.
///
/// # Costs
/// Opening a dump copies only the leases. The iterators read a few hundred records at a time and hold no
/// lock in between. While the dump is open, history that is compacted meanwhile stays in memory, and is
/// freed by the thread that drops the dump.
///
/// ```
/// # use revstore_engine::{Engine, Revision};
/// let engine = Engine::builder().build();
/// for (key, value) in [("a", "1"), ("b", "2"), ("a", "3")] {
///     engine.put(key, value)?;
/// }
/// engine.compact(Revision(3))?.run();
/// let dump = engine.dump();
///
/// let mut restore = Engine::builder().restore(dump.compacted())?;
/// for version in dump.base() {
///     restore.base(&(&version).into())?;
/// }
/// for version in dump.history() {
///     restore.revision(&[(&version).into()])?;
/// }
/// let copy = restore.finish()?;
/// assert_eq!(copy.current_revision(), engine.current_revision());
/// assert_eq!(copy.get_at("a", Revision(3))?.unwrap().value(), b"1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "the dump ends when it is dropped"]
pub struct Dump {
    store: Arc<Store>,
    _hold: Hold,
    compacted: Option<Revision>,
    revision: Revision,
    leases: Vec<LeaseLeft>,
    /// The base state consists of the live keys that were written before this position.
    base_end: Position,
}

impl Dump {
    pub(crate) fn open(store: &Arc<Store>) -> Self {
        let now = store.clock.now();
        // I7: under the sequencer, so that every compaction above the compacted revision is announced
        // later, and finds the hold. A lease that ends leaves the lessor under the sequencer too.
        let _sequencer = store.sequencer.lock();
        let compacted = store.compacted.load();
        let oldest = compacted.unwrap_or(Revision::FIRST);
        // A store that was restored without the changes of its compacted revision has none of them in
        // the log, but the versions that they wrote are in its base state.
        let in_log = store.log.copy(oldest.start(), oldest.end(), 1);
        Self {
            _hold: Hold::new(store, oldest),
            compacted,
            revision: store.current.load(),
            leases: store.lessor.all_left(now),
            base_end: match (compacted, in_log.is_empty()) {
                (None, _) => Position::FIRST,
                (Some(compacted), true) => compacted.next().start(),
                (Some(compacted), false) => compacted.start(),
            },
            store: store.clone(),
        }
    }

    pub(super) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Returns the revision of the dump.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Returns the compacted revision of the dump, or `None` if the store was never compacted.
    pub fn compacted(&self) -> Option<Revision> {
        self.compacted
    }

    /// Returns the leases with the time that they had left, in the order of their expiry.
    pub fn leases(&self) -> &[LeaseLeft] {
        &self.leases
    }

    /// Returns an iterator over the live keys at the compacted revision, in key order. It contains no
    /// versions that the history contains, and nothing if the store was never compacted.
    pub fn base(&self) -> DumpRecords<'_> {
        let at = self.compacted.unwrap_or(Revision(0));
        DumpRecords {
            store: &self.store,
            step: Vec::new().into_iter(),
            source: Source::Base {
                at: at.end(),
                before: self.base_end,
                rest: (self.base_end > Position::FIRST).then(KeyRange::all),
            },
        }
    }

    /// Returns an iterator over all changes from the compacted revision on, in their order.
    pub fn history(&self) -> DumpRecords<'_> {
        let first = self.compacted.unwrap_or(Revision::FIRST);
        DumpRecords {
            store: &self.store,
            step: Vec::new().into_iter(),
            source: Source::Log {
                next: Some(first.start()),
                through: self.revision,
            },
        }
    }
}

/// An iterator over records of a [`Dump`] or of a [`Follower`](crate::Follower).
#[derive(Debug)]
pub struct DumpRecords<'a> {
    store: &'a Store,
    /// The records of the current step.
    step: vec::IntoIter<KeyValue>,
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// The versions that are visible at `at` and were written before `before`.
    Base {
        at: Position,
        before: Position,
        /// The keys that were not read yet; `None` at the end.
        rest: Option<KeyRange>,
    },
    /// The records of the log.
    Log {
        /// The position from which on the log was not read yet; `None` at the end.
        next: Option<Position>,
        through: Revision,
    },
}

impl<'a> DumpRecords<'a> {
    /// Returns the records of some revisions, which the caller holds.
    pub(crate) fn of_log(store: &'a Store, first: Revision, through: Revision) -> Self {
        Self {
            store,
            step: Vec::new().into_iter(),
            source: Source::Log {
                next: Some(first.start()),
                through,
            },
        }
    }

    /// Reads the records of the next step; `None` at the end.
    fn read_step(&mut self) -> Option<Vec<KeyValue>> {
        match &mut self.source {
            Source::Base { at, before, rest } => {
                let range = rest.take()?;
                let mut scan = Scan::of(&range);
                let mut found = Vec::new();
                scan.step(&self.store.index, &pin(), |entry| {
                    let version = entry.read(*at);
                    found.extend(
                        version
                            .filter(|kv| kv.position() < *before)
                            .as_deref()
                            .cloned(),
                    );
                    ControlFlow::Continue(())
                });
                let after = scan.last().map(|last| range.after(last));
                *rest = after.filter(|rest| !rest.is_empty());
                Some(found)
            }
            Source::Log { next, through } => {
                let (records, rest) = self.store.log_step((*next)?, *through);
                *next = rest;
                Some(records)
            }
        }
    }
}

impl Iterator for DumpRecords<'_> {
    type Item = KeyValue;

    fn next(&mut self) -> Option<KeyValue> {
        loop {
            if let Some(record) = self.step.next() {
                return Some(record);
            }
            self.step = self.read_step()?.into_iter();
        }
    }
}

impl FusedIterator for DumpRecords<'_> {}
