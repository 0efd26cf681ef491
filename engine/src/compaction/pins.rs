//! Pins: positions that are still read, and for which compaction waits.

use std::collections::BTreeMap;

use crate::revision::{Position, Revision};
use crate::sync::{Condvar, Mutex, Rank};

/// The pinned positions of a store.
///
/// A pin is taken under the sequencer, at a position that is readable at that time; a compaction
/// publishes its revision under the sequencer too. So a compaction waits only once: after all pins
/// that existed at that time and need removed history are dropped, no later pin needs it.
#[derive(Debug)]
pub(crate) struct Pins {
    /// Rank `Pins`. The number of pins, by the lowest compacted revision whose removal affects
    /// them. Held to change a count, and by a compaction that waits.
    counts: Mutex<BTreeMap<Revision, usize>>,
    dropped: Condvar,
}

/// Keeps the history that a read at one position needs, until the pin is dropped.
#[derive(Debug)]
#[must_use = "the pin ends when it is dropped"]
pub(crate) struct Pin<'a> {
    pins: &'a Pins,
    /// The lowest compacted revision whose removal affects the read.
    affected_from: Revision,
}

impl Pins {
    pub(crate) fn new() -> Self {
        Self {
            counts: Mutex::new(Rank::Pins, BTreeMap::new()),
            dropped: Condvar::new(),
        }
    }

    /// Pins the history that reads at `oldest` and later positions need. The caller must hold the
    /// sequencer.
    pub(crate) fn pin(&self, oldest: Position) -> Pin<'_> {
        // A compaction at r keeps the versions visible at the end of r, but not those visible only
        // between two changes of r.
        let affected_from = if oldest == oldest.revision.end() {
            oldest.revision.next()
        } else {
            oldest.revision
        };
        *self.counts.lock().entry(affected_from).or_insert(0) += 1;
        Pin {
            pins: self,
            affected_from,
        }
    }

    /// Waits until no pin needs history that a compaction at `compacted` removes.
    pub(crate) fn wait_until_unaffected(&self, compacted: Revision) {
        let mut counts = self.counts.lock();
        while counts
            .first_key_value()
            .is_some_and(|(affected_from, _)| *affected_from <= compacted)
        {
            counts = self.dropped.wait(counts);
        }
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        let mut counts = self.pins.counts.lock();
        if let Some(count) = counts.get_mut(&self.affected_from) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.affected_from);
                self.pins.dropped.notify_all();
            }
        }
    }
}
