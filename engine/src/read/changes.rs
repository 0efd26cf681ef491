//! The events of several revisions, in order.

use std::iter::FusedIterator;
use std::ops::{Bound, ControlFlow, RangeBounds};
use std::vec;

use crate::error::ReadError;
use crate::history::KeyValue;
use crate::revision::{Position, Revision};
use crate::store::Store;
use crate::sync::Arc;
use crate::watch::Event;

/// The number of records that one step copies from the log.
const STEP_RECORDS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 64 };
/// The number of bytes after which a step ends, which bounds what an iterator keeps in memory
/// after a compaction.
const STEP_BYTES: u64 = 1024 * 1024;

/// An iterator over the events of several revisions, in order; created by
/// [`Engine::changes`](crate::Engine::changes).
#[derive(Debug)]
pub struct Changes {
    store: Arc<Store>,
    /// The position from which on the log was not read yet.
    next: Position,
    through: Revision,
    is_finished: bool,
    /// The records of the current step.
    records: vec::IntoIter<KeyValue>,
}

impl Changes {
    pub(crate) fn new(
        store: &Arc<Store>,
        revisions: &impl RangeBounds<Revision>,
    ) -> Result<Self, ReadError> {
        let current = store.current.load();
        let through = match revisions.end_bound() {
            Bound::Included(last) => *last,
            Bound::Excluded(end) => end.previous(),
            Bound::Unbounded => current,
        };
        let first = match revisions.start_bound() {
            Bound::Included(first) => *first,
            Bound::Excluded(before) => before.next(),
            Bound::Unbounded => store.compacted.load().unwrap_or(Revision::FIRST),
        };
        let is_empty = first > through;
        if !is_empty {
            if through > current {
                return Err(ReadError::Future {
                    requested: through,
                    current,
                });
            }
            store.check_kept(first)?;
        }
        Ok(Self {
            store: store.clone(),
            next: first.start(),
            through,
            is_finished: is_empty,
            records: Vec::new().into_iter(),
        })
    }

    /// Returns the last revision of the iterator, also if it is empty.
    ///
    /// To read later changes, call [`Engine::changes`](crate::Engine::changes) from the revision
    /// after it on.
    pub fn through(&self) -> Revision {
        self.through
    }

    /// Copies the next records from the log.
    fn read_step(&mut self) -> Result<(), ReadError> {
        let (records, next) = self.store.log_step(self.next, self.through);
        // I7: also if the compaction was announced while the log was read.
        self.store.check_kept(self.next.revision)?;
        match next {
            Some(next) => self.next = next,
            None => self.is_finished = true,
        }
        self.records = records.into_iter();
        Ok(())
    }
}

impl Store {
    /// Copies some records from the log, up to a revision. Returns the position from which on more
    /// follow, if any. The caller must hold this part of the log, or check afterwards that no
    /// compaction has removed it.
    pub(crate) fn log_step(
        &self,
        from: Position,
        through: Revision,
    ) -> (Vec<KeyValue>, Option<Position>) {
        let mut records: Vec<KeyValue> = Vec::with_capacity(STEP_RECORDS);
        let mut bytes = 0;
        let stopped = self.log.visit(from, through.end(), |record| {
            bytes += record.size_bytes();
            records.push(record.clone());
            if records.len() < STEP_RECORDS && bytes < STEP_BYTES {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        let last = records.last().filter(|_| stopped.is_some());
        let next = last.map(|last| last.position().next());
        (records, next)
    }
}

impl Iterator for Changes {
    type Item = Result<Event, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(kv) = self.records.next() {
                return Some(Ok(Event { kv, prev_kv: None }));
            }
            if self.is_finished {
                return None;
            }
            if let Err(error) = self.read_step() {
                self.is_finished = true;
                return Some(Err(error));
            }
        }
    }
}

impl FusedIterator for Changes {}
