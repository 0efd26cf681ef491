//! Holds: revisions from which on history is kept although it is compacted.

use std::collections::BTreeMap;

use crate::revision::Revision;
use crate::store::Store;
use crate::sync::{Arc, Mutex, Rank};

use super::Compaction;

/// The held revisions of a store.
///
/// A compaction does not wait for a hold, unlike for a pin, because a dump or a follower may take long.
/// It removes only what lies below the oldest hold, and the end of the hold removes the rest. A hold is
/// taken under the sequencer, at the compacted revision or later; a compaction publishes its revision
/// under the sequencer too. So no hold begins below a revision that a running compaction removes up to.
#[derive(Debug)]
pub(crate) struct Holds {
    /// Rank `Holds`. Held for one look or change.
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// The number of holds of each revision.
    counts: BTreeMap<Revision, usize>,
    /// Whether a compaction has left something for the end of a hold.
    is_owed: bool,
}

/// Keeps the history that is read at a revision and later, and the records of the log from this
/// revision on.
#[derive(Debug)]
pub(crate) struct Hold {
    store: Arc<Store>,
    from: Revision,
}

impl Holds {
    pub(crate) fn new() -> Self {
        Self {
            held: Mutex::new(Rank::Holds, Held::default()),
        }
    }

    /// Returns the revision up to which a compaction at `compacted` may remove history.
    pub(crate) fn limit(&self, compacted: Revision) -> Revision {
        let mut held = self.held.lock();
        let oldest = held.oldest().unwrap_or(compacted);
        held.is_owed |= oldest < compacted;
        oldest.min(compacted)
    }

    /// Returns whether a compaction at `compacted` has to be finished, and can be.
    fn take_owed(&self, compacted: Revision) -> bool {
        let mut held = self.held.lock();
        let is_free = held.oldest().is_none_or(|oldest| oldest >= compacted);
        is_free && std::mem::take(&mut held.is_owed)
    }

    fn add(&self, revision: Revision) {
        *self.held.lock().counts.entry(revision).or_insert(0) += 1;
    }

    fn remove(&self, revision: Revision) {
        self.held.lock().remove(revision);
    }

    fn advance(&self, from: Revision, to: Revision) {
        let mut held = self.held.lock();
        *held.counts.entry(to).or_insert(0) += 1;
        held.remove(from);
    }
}

impl Held {
    fn oldest(&self) -> Option<Revision> {
        self.counts.first_key_value().map(|(revision, _)| *revision)
    }

    fn remove(&mut self, revision: Revision) {
        if let Some(count) = self.counts.get_mut(&revision) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&revision);
            }
        }
    }
}

impl Hold {
    /// Holds the history from a revision on. The caller must hold the sequencer, unless no other
    /// thread has the store yet; nothing from the revision on may be compacted.
    pub(crate) fn new(store: &Arc<Store>, from: Revision) -> Self {
        store.holds.add(from);
        Self {
            store: store.clone(),
            from,
        }
    }

    /// Moves the hold to a later revision. Removes history that is no longer held, if a compaction
    /// has left some.
    pub(crate) fn advance(&mut self, to: Revision) {
        self.store.holds.advance(self.from, to);
        self.from = to;
        self.finish_compaction();
    }

    fn finish_compaction(&self) {
        if let Some(compacted) = self.store.compacted.load()
            && self.store.holds.take_owed(compacted)
        {
            Compaction::again(&self.store, compacted).run();
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.store.holds.remove(self.from);
        self.finish_compaction();
    }
}
