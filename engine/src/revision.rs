//! Revisions: the logical clock of the store.
//!
//! Every transaction that changes something gets the next revision; the changes inside it are
//! numbered by `sub`, from 0 (I1, DM-2). etcd calls the two `main` and `sub`. Clients see revisions
//! only.

use std::fmt;

use crate::sync::{AtomicI64, Ordering};

/// The number of a committed transaction.
///
/// A new store has the current revision 1, and its first write has revision 2. The type is signed
/// because the requests of etcd are: a request may contain a negative revision, which is before all
/// history.
///
/// ```
/// use revstore_engine::Revision;
/// assert!(Revision(4) < Revision(5));
/// assert_eq!(Revision(4).next(), Revision(5));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Revision(pub i64);

impl Revision {
    /// The current revision of a new store.
    pub const FIRST: Self = Self(1);

    /// The highest revision at which a store can start.
    pub const START_MAX: Self = Self(i64::MAX / 2);

    /// The highest revision that a store can have. At this revision it refuses writes.
    pub const LAST: Self = Self(i64::MAX - 1);

    /// Returns the revision after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Returns the revision before this one.
    #[must_use]
    pub fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// Returns the position after all changes of this revision.
    pub(crate) fn end(self) -> Position {
        Position {
            revision: self,
            sub: u32::MAX,
        }
    }

    /// Returns the position of the first change of this revision.
    pub(crate) fn start(self) -> Position {
        Position {
            revision: self,
            sub: 0,
        }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The position of one change: its revision, and its order inside the revision.
///
/// Positions are ordered by `revision`, then by `sub`. Watches deliver events in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Position {
    /// The revision of the transaction.
    pub revision: Revision,
    /// The number of the change inside the transaction, from 0.
    pub sub: u32,
}

impl Position {
    /// The first of all positions.
    pub(crate) const FIRST: Self = Self {
        revision: Revision(i64::MIN),
        sub: 0,
    };

    /// Returns the position after this one.
    pub(crate) fn next(self) -> Self {
        match self.sub.checked_add(1) {
            Some(sub) => Self { sub, ..self },
            None => self.revision.next().start(),
        }
    }

    /// Returns the position before this one.
    pub(crate) fn previous(self) -> Self {
        match self.sub.checked_sub(1) {
            Some(sub) => Self { sub, ..self },
            None => self.revision.previous().end(),
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.revision, self.sub)
    }
}

/// The newest revision that can be read.
///
/// It is published after all changes of that revision are stored, so a thread that loads `r` finds
/// all changes of every revision up to `r` (I3).
#[derive(Debug)]
pub(crate) struct CurrentRevision(AtomicI64);

impl CurrentRevision {
    pub(crate) fn new(revision: Revision) -> Self {
        Self(AtomicI64::new(revision.0))
    }

    pub(crate) fn load(&self) -> Revision {
        // Acquire: pairs with the Release in `publish` (I3). With Relaxed a reader could load
        // revision r and still miss a version of r.
        Revision(self.0.load(Ordering::Acquire))
    }

    pub(crate) fn publish(&self, revision: Revision) {
        // Release: pairs with the Acquire in `load` (I3).
        self.0.store(revision.0, Ordering::Release);
    }
}

/// The compacted revision: the history below it is removed.
#[derive(Debug)]
pub(crate) struct CompactedRevision(AtomicI64);

/// Represents "never compacted". The number is etcd's (CO-3), so that comparisons with requested
/// revisions have the same results as in etcd, negative ones included (RG-14).
const NEVER: i64 = -1;

impl CompactedRevision {
    /// Creates the compacted revision of an empty store with the current revision `start`. Below
    /// the first revision there is nothing to compact; below a later one lies history that this
    /// store does not have.
    pub(crate) fn of_empty_store(start: Revision) -> Self {
        let compacted = if start > Revision::FIRST {
            start.0
        } else {
            NEVER
        };
        Self(AtomicI64::new(compacted))
    }

    /// Sets the compacted revision of a store that no other thread has yet.
    pub(crate) fn restore(&self, compacted: Option<Revision>) {
        self.publish(compacted.unwrap_or(Revision(NEVER)));
    }

    pub(crate) fn load(&self) -> Option<Revision> {
        // Acquire: pairs with the Release in `publish` (I7). A reader that has missed a removed
        // version took the lock under which it was removed, and therefore loads the compacted
        // revision that was published before.
        match self.0.load(Ordering::Acquire) {
            NEVER => None,
            compacted => Some(Revision(compacted)),
        }
    }

    /// Returns whether `revision` is no longer readable. The compacted revision itself is (RG-13).
    pub(crate) fn has_dropped(&self, revision: Revision) -> bool {
        // Acquire: as in `load`.
        revision.0 < self.0.load(Ordering::Acquire)
    }

    pub(crate) fn publish(&self, compacted: Revision) {
        // Release: pairs with the Acquire in `load` (I7). Published before the first version is
        // removed.
        self.0.store(compacted.0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::{Position, Revision};

    #[test]
    fn dm_2_positions_are_ordered_by_revision_then_by_sub() {
        let at = |revision, sub| Position {
            revision: Revision(revision),
            sub,
        };
        assert!(at(2, 7) < at(3, 0));
        assert!(at(3, 0) < at(3, 1));
        assert!(at(3, 9) < Revision(3).end());
        assert_eq!(Revision(3).start(), at(3, 0));
    }
}
