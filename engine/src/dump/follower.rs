//! Followers: readers of everything that a store changes, at their own speed.

use thiserror::Error;

use super::state::DumpRecords;
use crate::compaction::Hold;
use crate::lease::{LeaseChange, LeaseGrant};
use crate::revision::Revision;
use crate::store::Store;
use crate::sync::Arc;

/// A reader of all changes of a store, such as a journal; created by
/// [`Engine::follow`](crate::Engine::follow).
///
/// Writers do no work for a follower, and do not wait for it: it reads the log when it likes, and
/// compactions leave it what it has not read. Only grants and ends of leases are queued for it, until it
/// takes them.
///
/// # The order of leases
/// A follower that stores what it reads does it in this order, so that at no time a stored key refers to a
/// lease that is not stored, or a lease is gone and its keys are not:
///
/// 1. read the current revision: [`Engine::current_revision`](crate::Engine::current_revision);
/// 2. [`take_lease_changes`](Self::take_lease_changes) up to it, and store the granted leases;
/// 3. store the [`changes`](Self::changes) up to it;
/// 4. store the ends of leases, and [`advance`](Self::advance).
#[derive(Debug)]
#[must_use = "the follower ends when it is dropped"]
pub struct Follower {
    store: Arc<Store>,
    hold: Hold,
    through: Revision,
    leases: Vec<LeaseGrant>,
}

/// The error of following a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FollowError {
    /// The store has a follower.
    #[error("the store has a follower")]
    Followed,
    /// The changes after the revision are compacted, or the revision is above the current one.
    #[error("the changes after revision {after} are not in the store")]
    Missing {
        /// The requested revision.
        after: Revision,
    },
}

impl Follower {
    pub(crate) fn new(store: &Arc<Store>, after: Revision) -> Result<Self, FollowError> {
        // I7: under the sequencer, so that no compaction is announced before it finds the hold.
        let _sequencer = store.sequencer.lock();
        let is_kept = !store.compacted.has_dropped(after.next());
        if !is_kept || after > store.current.load() {
            return Err(FollowError::Missing { after });
        }
        let leases = store.lessor.follow().ok_or(FollowError::Followed)?;
        Ok(Self {
            store: store.clone(),
            hold: Hold::new(store, after.next()),
            through: after,
            leases,
        })
    }

    /// Returns the leases at the time at which the follower was created.
    pub fn leases(&self) -> &[LeaseGrant] {
        &self.leases
    }

    /// Returns the revision that the follower has advanced to.
    pub fn through(&self) -> Revision {
        self.through
    }

    /// Takes the oldest changes of leases, in their order, except those from the first on that deletes
    /// keys above a revision.
    pub fn take_lease_changes(&mut self, through: Revision) -> Vec<LeaseChange> {
        self.store.lessor.take_changes(through)
    }

    /// Returns an iterator over the changes that the follower has not advanced over, up to a revision,
    /// which may not be above the current one.
    pub fn changes(&self, through: Revision) -> DumpRecords<'_> {
        DumpRecords::of_log(&self.store, self.through.next(), through)
    }

    /// Advances to a revision, the changes up to which the follower does not need any more. Frees
    /// history that compactions have left for it.
    pub fn advance(&mut self, through: Revision) {
        if through > self.through {
            self.through = through;
            self.hold.advance(through.next());
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.store.lessor.unfollow();
    }
}
