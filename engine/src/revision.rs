//! Revisions: the store's one clock.
//!
//! Every transaction that changes something gets the next *main* revision; the changes inside it
//! are counted by *sub*, from 0 (I1, DM-2). Clients only ever see main revisions.

use std::fmt;

use crate::sync::{AtomicI64, Ordering};

/// The number of a committed transaction: what etcd's clients call "the revision".
///
/// A fresh store stands at revision 1 and its first write makes revision 2 (DM-1). The type is
/// signed because requests are: a negative number is legal to ask for and lies before everything.
///
/// ```
/// use revstore_engine::Revision;
/// assert!(Revision(4) < Revision(5));
/// assert_eq!(Revision(4).next(), Revision(5));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub i64);

impl Revision {
    /// Where a fresh store stands (DM-1).
    pub const FIRST: Self = Self(1);

    /// The revision after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The revision before this one.
    #[must_use]
    pub fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// The position behind everything that this revision changed.
    pub(crate) fn end(self) -> Position {
        Position {
            revision: self,
            sub: u32::MAX,
        }
    }

    /// The position of the first change of this revision.
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

/// The position of one change: the transaction it belongs to, and its place inside it.
///
/// Ordered by `main`, then `sub`: the order in which watchers see events (I5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The transaction.
    pub revision: Revision,
    /// The change inside the transaction, from 0.
    pub sub: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.revision, self.sub)
    }
}

/// The newest revision that may be read.
///
/// It is stored only after everything of that revision is in its place, so whoever loads `r` finds
/// all of every revision up to `r` (I3).
#[derive(Debug)]
pub(crate) struct CurrentRevision(AtomicI64);

impl CurrentRevision {
    pub(crate) fn new(revision: Revision) -> Self {
        Self(AtomicI64::new(revision.0))
    }

    pub(crate) fn load(&self) -> Revision {
        // Acquire: pairs with the Release in `publish` (I3). With Relaxed a reader could learn
        // revision r and still miss a version linked at r.
        Revision(self.0.load(Ordering::Acquire))
    }

    pub(crate) fn publish(&self, revision: Revision) {
        // Release: pairs with the Acquire in `load` (I3).
        self.0.store(revision.0, Ordering::Release);
    }
}

/// The compacted revision: everything below it is gone.
#[derive(Debug)]
pub(crate) struct CompactedRevision(AtomicI64);

/// Stands for "never compacted"; etcd's own number for it (CO-3), so that comparisons with what a
/// request asked for come out as etcd's do, negative numbers included (RG-14).
const NEVER: i64 = -1;

impl CompactedRevision {
    /// The mark of an empty store that stands at `start`. Below the first of all revisions there is
    /// nothing to compact; what lies below a later one is history that this store does not have.
    pub(crate) fn of_empty_store(start: Revision) -> Self {
        let mark = if start > Revision::FIRST {
            start.0
        } else {
            NEVER
        };
        Self(AtomicI64::new(mark))
    }

    pub(crate) fn load(&self) -> Option<Revision> {
        // Acquire: pairs with the Release in `publish` (I7). A reader that met a cut chain took the
        // lock that the cut was made under, and so finds the mark that announced it.
        match self.0.load(Ordering::Acquire) {
            NEVER => None,
            mark => Some(Revision(mark)),
        }
    }

    /// Whether `revision` is no longer readable. The mark itself still is (RG-13).
    pub(crate) fn has_dropped(&self, revision: Revision) -> bool {
        // Acquire: as in `load`.
        revision.0 < self.0.load(Ordering::Acquire)
    }

    pub(crate) fn publish(&self, mark: Revision) {
        // Release: pairs with the Acquire in `load` (I7): the mark is out before the first cut.
        self.0.store(mark.0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::{Position, Revision};

    #[test]
    fn dm_2_positions_order_by_transaction_then_by_change() {
        let at = |main, sub| Position {
            revision: Revision(main),
            sub,
        };
        assert!(at(2, 7) < at(3, 0));
        assert!(at(3, 0) < at(3, 1));
        assert!(at(3, 9) < Revision(3).end());
        assert_eq!(Revision(3).start(), at(3, 0));
    }
}
