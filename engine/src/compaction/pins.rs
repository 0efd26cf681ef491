//! Pins: positions that transactions are still reading at, so that compaction waits for them.

use std::collections::BTreeMap;

use crate::revision::{Position, Revision};
use crate::sync::{Condvar, Mutex, Rank};

/// The pinned positions.
///
/// A pin is taken under the sequencer, at a position that is readable then, and a compaction
/// publishes its mark under the sequencer too. So once the pins that a published mark would harm are
/// gone, none can come back, and the removal needs no further look at them.
#[derive(Debug)]
pub(crate) struct Pins {
    /// Rank `Pins`. Readers by the lowest mark that would take something from them. Held to count up
    /// or down, and by a compaction that waits.
    readers: Mutex<BTreeMap<Revision, usize>>,
    drained: Condvar,
}

/// Keeps the history that a read at one position needs from being removed, until dropped.
#[derive(Debug)]
#[must_use = "the pin ends when it is dropped"]
pub(crate) struct Pin<'a> {
    pins: &'a Pins,
    harmful_mark: Revision,
}

impl Pins {
    pub(crate) fn new() -> Self {
        Self {
            readers: Mutex::new(Rank::Pins, BTreeMap::new()),
            drained: Condvar::new(),
        }
    }

    /// Pins what reads at `oldest` and later positions need. Only the holder of the sequencer may.
    pub(crate) fn pin(&self, oldest: Position) -> Pin<'_> {
        // A mark at r keeps what a read at the end of r finds, but not what lies inside r.
        let harmful_mark = if oldest == oldest.revision.end() {
            oldest.revision.next()
        } else {
            oldest.revision
        };
        *self.readers.lock().entry(harmful_mark).or_insert(0) += 1;
        Pin {
            pins: self,
            harmful_mark,
        }
    }

    /// Waits until a removal below `mark` harms nobody.
    pub(crate) fn wait_until_harmless(&self, mark: Revision) {
        let mut readers = self.readers.lock();
        while readers
            .first_key_value()
            .is_some_and(|(harmful, _)| *harmful <= mark)
        {
            readers = self.drained.wait(readers);
        }
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        let mut readers = self.pins.readers.lock();
        if let Some(count) = readers.get_mut(&self.harmful_mark) {
            *count -= 1;
            if *count == 0 {
                readers.remove(&self.harmful_mark);
                self.pins.drained.notify_all();
            }
        }
    }
}
