//! Restoring: an engine from the parts of a dump, and from the changes after it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bytes::Bytes;
use thiserror::Error;

use super::state::Version;
use crate::compaction::Compaction;
use crate::engine::Engine;
use crate::history::{Entry, KeyValue, LeaseId, PUT_BYTES_MAX};
use crate::key::KeyRange;
use crate::lease::{LEASE_TTL_MAX_SECONDS, LeaseGrant, LeaseLeft};
use crate::options::EngineBuilder;
use crate::revision::{Position, Revision};
use crate::store::Store;
use crate::sync::Arc;
use crate::sync::epoch::pin;

/// An engine that is being built from a [`Dump`](crate::Dump) or an equal source; created by
/// [`EngineBuilder::restore`].
///
/// The parts are added in this order: the base state in key order, then the changes of all revisions without a gap.
/// Leases and compactions may be added at any time. Everything is checked, and after an error the value is
/// of no use any more. The engine that [`finish`](Self::finish) returns answers all reads at kept revisions,
/// and watches from them, as the original did.
///
/// A part takes about the time of a put.
#[derive(Debug)]
#[must_use = "`finish` returns the engine"]
pub struct Restore {
    store: Arc<Store>,
    compacted: Option<Revision>,
    /// The compacted revision of the base state, and the last revision before the history.
    start: Revision,
    /// The last restored revision.
    current: Revision,
    /// Whether revisions were added.
    has_history: bool,
    /// The revision of the last change, while more changes of it may follow.
    open: Option<OpenRevision>,
    last_base_key: Option<Bytes>,
    /// A base version of the compacted revision, whose changes are then not in the history.
    base_at_start: Option<Position>,
    leases: BTreeMap<LeaseId, LeaseLeft>,
}

/// A revision whose changes are being added.
#[derive(Clone, Copy, Debug)]
struct OpenRevision {
    /// The number of its next change.
    expected: u32,
    /// Whether it is the compacted revision, which a compaction may have removed changes of.
    is_compacted: bool,
}

/// The error of a part that no store can have contained at its place.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RestoreError {
    /// The compacted revision is negative or above the highest one.
    #[error("{revision} is no compacted revision")]
    CompactedRevision {
        /// The revision.
        revision: Revision,
    },
    /// A base version is not of a live key, or belongs to the history.
    #[error("base version {position} is a deletion, or belongs to the history")]
    BaseVersion {
        /// The position of the version.
        position: Position,
    },
    /// The base state is not in key order, contains a key twice, or continues after the history has begun.
    #[error("base version {position} is out of order")]
    BaseOrder {
        /// The position of the version.
        position: Position,
    },
    /// A change of the compacted revision has a base version, which is of a key that this revision did not change.
    #[error("change {position} of the compacted revision is of a key with a base version")]
    BaseChanged {
        /// The position of the change.
        position: Position,
    },
    /// A revision does not follow the one before it, or has no changes.
    #[error("revision {found} follows revision {current}")]
    RevisionOrder {
        /// The revision, or the current one if it has no changes.
        found: Revision,
        /// The last revision before it.
        current: Revision,
    },
    /// The changes of a revision are not numbered from 0 on.
    #[error("change {found} is not the next one of its revision, which has number {expected}")]
    ChangeOrder {
        /// The position of the change.
        found: Position,
        /// The expected number.
        expected: u32,
    },
    /// The create revision or the version of a key does not follow from the version before it, or a key
    /// is deleted that is not live.
    #[error("change {position} has numbers that do not follow from the ones before it")]
    Numbers {
        /// The position of the change.
        position: Position,
    },
    /// A key is empty, or a key or value is too large.
    #[error("change {position} has a key or value of an invalid size")]
    Size {
        /// The position of the change.
        position: Position,
    },
    /// The time to live of a lease is too large, or less than the time that it has left.
    #[error(
        "lease {lease} has a time to live that is too large, or less than the time that is left of it"
    )]
    LeaseTtl {
        /// The lease.
        lease: LeaseId,
    },
    /// A live key is attached to a lease that does not exist.
    #[error("key \"{}\" is attached to lease {lease}, which does not exist", key.escape_ascii())]
    UnknownLease {
        /// The lease.
        lease: LeaseId,
        /// The first of its keys.
        key: Bytes,
    },
}

impl Restore {
    pub(crate) fn new(
        builder: EngineBuilder,
        compacted: Option<Revision>,
    ) -> Result<Self, RestoreError> {
        let range = Revision(0)..Revision::LAST;
        if let Some(revision) = compacted.filter(|revision| !range.contains(revision)) {
            return Err(RestoreError::CompactedRevision { revision });
        }
        let start = compacted.map_or(Revision::FIRST, |at| at.max(Revision::FIRST));
        let store = builder.store_at(start);
        store.compacted.restore(compacted);
        Ok(Self {
            store,
            compacted,
            start,
            current: start,
            has_history: false,
            open: None,
            last_base_key: None,
            base_at_start: None,
            leases: BTreeMap::new(),
        })
    }

    /// Returns the last restored revision: the compacted one, at least 1, before any revision was added.
    pub fn current_revision(&self) -> Revision {
        self.current
    }

    /// Adds a key that is live at the compacted revision. Keys are added in key order.
    ///
    /// # Errors
    /// See [`RestoreError`].
    pub fn base(&mut self, version: &Version<'_>) -> Result<(), RestoreError> {
        let position = version.position;
        let is_next = |last: &Bytes| version.key > &last[..];
        if !self.last_base_key.as_ref().is_none_or(is_next) {
            return Err(RestoreError::BaseOrder { position });
        }
        self.last_base_key = Some(self.add_base(version)?.key_bytes());
        Ok(())
    }

    /// As [`base`](Self::base), with the keys in any order.
    ///
    /// # Errors
    /// See [`RestoreError`].
    pub fn base_in_any_order(&mut self, version: &Version<'_>) -> Result<(), RestoreError> {
        self.add_base(version).map(drop)
    }

    fn add_base(&mut self, version: &Version<'_>) -> Result<KeyValue, RestoreError> {
        let position = version.position;
        let compacted = self.compacted.unwrap_or(Revision(0));
        if version.value.is_none() || position.revision > compacted {
            return Err(RestoreError::BaseVersion { position });
        }
        if self.has_history {
            return Err(RestoreError::BaseOrder { position });
        }
        check_size(version)?;
        if !are_possible(version) {
            return Err(RestoreError::Numbers { position });
        }
        let entry = self.store.index.get_or_insert(&Entry::new(version.key));
        if entry.newest(&pin()).is_some() {
            return Err(RestoreError::BaseOrder { position });
        }
        // The log does not contain the base state, so counts include it from the start.
        let counted = self.start.previous().end();
        if position.revision == compacted {
            self.base_at_start = Some(position);
        }
        let record = record(&entry, version);
        self.push(&entry, record.clone());
        self.store.index.set_live(entry.key(), true, counted);
        Ok(record)
    }

    /// Adds all changes of a revision. The first revision is the compacted one or the one after it. Those
    /// of the compacted one may leave out some that others of them have replaced.
    ///
    /// # Errors
    /// See [`RestoreError`].
    pub fn revision(&mut self, changes: &[Version<'_>]) -> Result<(), RestoreError> {
        let current = self.current;
        let found = changes.first().map_or(current, |it| it.position.revision);
        if changes.is_empty() {
            return Err(RestoreError::RevisionOrder { found, current });
        }
        self.open = None;
        for change in changes {
            if let Some(OpenRevision { expected, .. }) = self.open
                && change.position.revision != found
            {
                let found = change.position;
                return Err(RestoreError::ChangeOrder { found, expected });
            }
            self.change(change)?;
        }
        self.open = None;
        Ok(())
    }

    /// Adds the next change: of the revision of the one before it, or the first one of the next revision. Otherwise as
    /// [`revision`](Self::revision), with one error for one change.
    ///
    /// # Errors
    /// See [`RestoreError`].
    pub fn change(&mut self, change: &Version<'_>) -> Result<(), RestoreError> {
        let Position { revision, sub } = change.position;
        let same = self.open.filter(|_| revision == self.current);
        let open = match same {
            Some(open) => open,
            None => self.begin_revision(revision)?,
        };
        let OpenRevision {
            expected,
            is_compacted,
        } = open;
        // A compaction of another store may have removed changes of the compacted revision.
        let is_next = sub == expected || (is_compacted && sub > expected);
        let following = sub.checked_add(1).filter(|_| is_next);
        let Some(following) = following else {
            let found = change.position;
            return Err(RestoreError::ChangeOrder { found, expected });
        };
        check_size(change)?;
        self.add_change(change, is_compacted)?;
        self.open = Some(OpenRevision {
            expected: following,
            ..open
        });
        Ok(())
    }

    fn begin_revision(&mut self, found: Revision) -> Result<OpenRevision, RestoreError> {
        let current = self.current;
        // WA-41: a store keeps the changes of its compacted revision.
        let repeats_start = !self.has_history && self.compacted == Some(found);
        let is_next = found == current.next() && found <= Revision::LAST;
        if !(is_next || (repeats_start && found > Revision::FIRST)) {
            return Err(RestoreError::RevisionOrder { found, current });
        }
        if let Some(position) = self.base_at_start.filter(|_| repeats_start) {
            return Err(RestoreError::BaseVersion { position });
        }
        self.has_history = true;
        self.current = found;
        Ok(OpenRevision {
            expected: 0,
            is_compacted: repeats_start,
        })
    }

    /// Adds a lease with its full time to live, or replaces one.
    ///
    /// # Errors
    /// The time to live is too large.
    pub fn grant(&mut self, lease: LeaseGrant) -> Result<(), RestoreError> {
        self.grant_left(LeaseLeft::full(lease))
    }

    /// Adds a lease with the time that it has left when [`finish`](Self::finish) returns, or replaces one.
    ///
    /// # Errors
    /// The time to live is too large, or less than the remaining time.
    pub fn grant_left(&mut self, left: LeaseLeft) -> Result<(), RestoreError> {
        let LeaseGrant { id, ttl } = left.lease;
        if ttl.as_secs() > LEASE_TTL_MAX_SECONDS.unsigned_abs() || left.remaining > ttl {
            return Err(RestoreError::LeaseTtl { lease: id });
        }
        self.leases.insert(id, left);
        Ok(())
    }

    /// Increases the current revision, without changes. The revisions in between were never written:
    /// the store was [forked](crate::EngineBuilder::fork_at) with a later revision.
    ///
    /// # Errors
    /// The revision is not above the current one, or above the highest one.
    pub fn skip_to(&mut self, revision: Revision) -> Result<(), RestoreError> {
        let current = self.current;
        if revision <= current || revision > Revision::LAST {
            let found = revision;
            return Err(RestoreError::RevisionOrder { found, current });
        }
        self.current = revision;
        self.has_history = true;
        self.open = None;
        Ok(())
    }

    /// Returns whether a lease was added.
    pub fn has_lease(&self, lease: LeaseId) -> bool {
        self.leases.contains_key(&lease)
    }

    /// Removes a lease, whose keys the added revisions have deleted. Does nothing if it does not exist.
    pub fn end_lease(&mut self, lease: LeaseId) {
        self.leases.remove(&lease);
    }

    /// Makes all revisions below one unreadable, as [`Engine::compact`] does. [`finish`](Self::finish)
    /// frees their memory.
    ///
    /// # Errors
    /// The revision is above the last restored one, or not above the compacted one.
    pub fn compact(&mut self, revision: Revision) -> Result<(), RestoreError> {
        let is_later = self.compacted.is_none_or(|last| last < revision);
        if revision < Revision(0) || revision > self.current || !is_later {
            return Err(RestoreError::CompactedRevision { revision });
        }
        self.compacted = Some(revision);
        self.has_history = true;
        self.open = None;
        Ok(())
    }

    /// Attaches the keys to their leases, and returns the engine.
    ///
    /// # Errors
    /// [`RestoreError::UnknownLease`] if a lease of a live key was not added.
    pub fn finish(self) -> Result<Engine, RestoreError> {
        let store = self.store;
        let now = store.clock.now();
        let ttl_min = store.lessor.ttl_min();
        let leases = self.leases.values().map(|left| {
            let LeaseGrant { id, ttl } = left.lease;
            LeaseLeft {
                lease: LeaseGrant {
                    id,
                    ttl: ttl.max(ttl_min),
                },
                // A lease that has its full time to live has that of the new store, too.
                remaining: if left.remaining == ttl {
                    ttl.max(ttl_min)
                } else {
                    left.remaining
                },
            }
        });
        store.lessor.restore(leases, now);
        let mut unknown = None;
        store.index.scan(&KeyRange::all(), |found| {
            let guard = pin();
            let newest = found.entry().newest(&guard);
            let lease = newest.and_then(|newest| newest.lease());
            if let Some(lease) = lease.filter(|lease| !store.lessor.exists(*lease)) {
                unknown = Some((lease, Bytes::copy_from_slice(found.entry().key())));
                return ControlFlow::Break(());
            }
            if lease.is_some() {
                store.lessor.move_key(found.entry(), None, lease);
            }
            ControlFlow::Continue(())
        });
        if let Some((lease, key)) = unknown {
            return Err(RestoreError::UnknownLease { lease, key });
        }
        store.current.publish(self.current);
        store.hub.dispatch(&store);
        if let Some(compacted) = self.compacted {
            store.compacted.publish(compacted);
            // Also without a later compaction: it removes what the changes of the compacted revision
            // have replaced.
            Compaction::again(&store, compacted).run();
        }
        Ok(Engine::start(store))
    }

    /// Adds a change. The version before it is known unless the change belongs to the compacted revision.
    fn add_change(&self, change: &Version<'_>, is_compacted: bool) -> Result<(), RestoreError> {
        let position = change.position;
        let store = &self.store;
        let entry = store.index.get(change.key);
        let entry = entry.unwrap_or_else(|| store.index.get_or_insert(&Entry::new(change.key)));
        let guard = pin();
        let newest = entry.newest(&guard);
        let is_base = |newest: &KeyValue| newest.mod_revision() != position.revision;
        let has_base = is_compacted && newest.as_deref().is_some_and(is_base);
        let previous = newest.filter(|newest| !newest.is_tombstone());
        let follows = match (&change.value, &previous) {
            (None, previous) => previous.is_some(),
            (Some(_), Some(previous)) => {
                change.create_revision == previous.create_revision()
                    && previous.version().checked_add(1) == Some(change.version)
            }
            (Some(_), None) => change.create_revision == position.revision && change.version == 1,
        };
        if !are_possible(change) || (!is_compacted && !follows) {
            return Err(RestoreError::Numbers { position });
        }
        if has_base {
            return Err(RestoreError::BaseChanged { position });
        }
        let is_live = change.value.is_some();
        let was_live = previous.is_some();
        let record = record(&entry, change);
        store.log.append(record.clone(), &guard);
        self.push(&entry, record);
        if is_live != was_live {
            store.index.set_live(entry.key(), is_live, position);
        }
        Ok(())
    }

    fn push(&self, entry: &Entry, record: KeyValue) {
        self.store.history_bytes.add(record.size_bytes());
        self.store.versions.add(1);
        entry.push(record, &pin(), self.store.faults);
    }
}

fn record(entry: &Entry, version: &Version<'_>) -> KeyValue {
    match version.value {
        None => KeyValue::tombstone(entry.clone(), version.position),
        Some(value) => KeyValue::of_entry(
            entry.clone(),
            value,
            version.position,
            version.create_revision,
            version.version,
            version.lease,
        ),
    }
}

fn check_size(version: &Version<'_>) -> Result<(), RestoreError> {
    let value_len = version.value.map_or(0, <[u8]>::len);
    if version.key.is_empty() || version.key.len() > PUT_BYTES_MAX || value_len > PUT_BYTES_MAX {
        let position = version.position;
        return Err(RestoreError::Size { position });
    }
    Ok(())
}

/// Returns whether some key can have these numbers.
fn are_possible(version: &Version<'_>) -> bool {
    let (created, written) = (version.create_revision, version.position.revision);
    match version.value {
        None => true,
        Some(_) => {
            version.version >= 1
                && created > Revision(0)
                && created <= written
                && (version.version > 1 || created == written)
        }
    }
}
