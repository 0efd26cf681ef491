//! Compaction: first the mark, then the removal, step by step along the log.

use std::ops::ControlFlow;

use crate::error::CompactError;
use crate::fault::Fault;
use crate::history::{Entry, KeyValue, Removed};
use crate::revision::Revision;
use crate::store::Store;
use crate::sync;

/// Records that one step removes between two looks at anything else.
const STEP_RECORDS: usize = if cfg!(loom) { 2 } else { 128 };

/// What is left to do after a compaction was announced: giving the memory back.
///
/// From the moment it exists, reads below the mark and watches from below it are refused (CO-4).
/// [`Compaction::run`] removes what nobody can ask for any more. A compaction that is dropped
/// without being run is made up for by the next one.
///
/// ```
/// # use revstore_engine::{Engine, Revision, Range, KeyRange, ReadError};
/// # let engine = Engine::builder().build();
/// for value in ["1", "2", "3"] {
///     engine.put("key", value)?;
/// }
/// engine.compact(Revision(4))?.run();
/// let old = engine.range(&Range::of(KeyRange::one("key")).at(Revision(3)));
/// assert!(matches!(old, Err(ReadError::Compacted { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "the memory is given back by `run`"]
pub struct Compaction {
    store: sync::Arc<Store>,
    mark: Revision,
}

impl Compaction {
    pub(crate) fn new(store: sync::Arc<Store>, mark: Revision) -> Self {
        Self { store, mark }
    }

    /// The oldest revision that can still be read.
    pub fn mark(&self) -> Revision {
        self.mark
    }

    /// Removes what lies below the mark. Cost follows what is removed; no writer waits for longer
    /// than one step of it, which looks at no more than a few dozen keys.
    pub fn run(self) {
        self.store.remove_below(self.mark);
    }
}

impl Store {
    /// Announces a compaction: from now on nothing below `requested` can be read.
    pub(crate) fn announce_compaction(&self, requested: Revision) -> Result<(), CompactError> {
        // Under the sequencer, so that no transaction meets two answers (TXN-22), and so that every
        // pin is either seen by the removal or taken at a position that it does not harm.
        let _sequencer = self.sequencer.lock();
        let current = self.current.load();
        if let Some(compacted) = self.compacted.load().filter(|mark| requested <= *mark) {
            return Err(CompactError::Compacted {
                requested,
                compacted,
            });
        }
        // CO-3: a store that was never compacted stands at -1, so 0 is accepted once.
        if requested < Revision(0) {
            return Err(CompactError::Compacted {
                requested,
                compacted: Revision(0),
            });
        }
        if requested > current {
            return Err(CompactError::Future { requested, current });
        }
        self.compacted.publish(requested);
        Ok(())
    }

    fn remove_below(&self, mark: Revision) {
        let _one_at_a_time = self.compaction.lock();
        // Events that are published but not dispatched are still to be read from the log.
        if !self.faults.has(Fault::RemoveUndispatched) {
            self.hub.dispatch(self);
        }
        if !self.faults.has(Fault::IgnorePins) {
            self.pins.wait_until_harmless(mark);
        }
        let mut emptied = Vec::new();
        loop {
            let step = self.log.take_below(mark, STEP_RECORDS);
            if step.is_empty() {
                break;
            }
            self.cut(&step, mark, &mut emptied);
            self.retire(&mut emptied);
        }
        // A key whose newest version stands exactly at the mark has older ones to lose.
        let mut at_mark = mark.start();
        loop {
            let mut step = Vec::new();
            self.log.visit(at_mark, mark.end(), |record| {
                step.push(record.clone());
                if step.len() < STEP_RECORDS {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            });
            let Some(last) = step.last() else { break };
            at_mark.sub = last.position().sub + 1;
            self.cut(&step, mark, &mut emptied);
            self.retire(&mut emptied);
        }
    }

    /// Cuts the keys of some records; those of which nothing is left go to `emptied`.
    fn cut(&self, records: &[KeyValue], mark: Revision, emptied: &mut Vec<Entry>) {
        let mut removed = Removed::default();
        for record in records {
            if record.entry().cut(mark, &mut removed) {
                emptied.push(record.entry().clone());
            }
        }
        self.history_bytes.subtract(removed.size_bytes());
        self.index.free(removed);
    }

    /// Takes keys that have nothing left out of the index, unless a writer came first.
    fn retire(&self, emptied: &mut Vec<Entry>) {
        if emptied.is_empty() {
            return;
        }
        let _sequencer = self.sequencer.lock();
        for entry in emptied.drain(..) {
            if !entry.is_retired() && entry.retire() {
                self.index.remove(entry.key());
            }
        }
    }

    /// The lowest revision to compact at so that the history takes at most `bytes_max`, or the
    /// current one if even that is not enough; nothing if it takes no more already.
    pub(crate) fn mark_for_size(&self, bytes_max: u64) -> Option<Revision> {
        let excess = self
            .history_bytes
            .get()
            .checked_sub(bytes_max)
            .filter(|excess| *excess > 0)?;
        let current = self.current.load();
        let mut mark = self.compacted.load().unwrap_or(Revision(0));
        let mut next = mark.start();
        // What a compaction at `mark` frees, and what one above it frees besides (CO-5).
        let (mut freed, mut above) = (0, 0);
        loop {
            let mut step = Vec::new();
            self.log.visit(next, current.end(), |record| {
                step.push(record.clone());
                if step.len() < STEP_RECORDS {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            });
            let Some(last) = step.last() else {
                return Some(current.min(mark.next()));
            };
            next = last.position();
            next.sub += 1;
            for record in &step {
                if record.mod_revision() > mark {
                    freed += std::mem::take(&mut above);
                    if freed >= excess {
                        return Some(mark.next());
                    }
                    mark = record.mod_revision();
                }
                match record.entry().version_before(record.position()) {
                    Some(previous) if !previous.is_tombstone() => freed += previous.size_bytes(),
                    // Counted when it was met.
                    Some(previous) if previous.mod_revision() == mark => {
                        above -= previous.size_bytes();
                        freed += previous.size_bytes();
                    }
                    Some(_) | None => {}
                }
                if freed >= excess {
                    return Some(mark);
                }
                if record.is_tombstone() {
                    above += record.size_bytes();
                }
            }
        }
    }
}
