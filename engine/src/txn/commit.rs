//! The heart: how a transaction becomes a revision.

use std::ops::ControlFlow;

use crate::fault::Fault;
use crate::history::{Entry, Guess, KeyValue, LeaseId, PendingRecord};
use crate::key::KeyRange;
use crate::revision::{Position, Revision};
use crate::store::Store;

/// What a commit made of its work.
#[derive(Debug)]
pub(crate) struct Committed<T> {
    pub(crate) value: T,
    /// The new revision if anything changed, else the current one (DM-8, DM-22).
    pub(crate) revision: Revision,
}

/// A put whose value is copied and whose key is looked up before the sequencer is locked.
#[derive(Debug)]
pub(crate) struct PreparedPut {
    draft: PendingRecord,
    /// Whether the entry of the draft was found in the index; it may have been retired since.
    found: bool,
}

/// The right to change the store: held with the sequencer, by one thread at a time.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    store: &'a Store,
    /// The revision that the changes will have.
    main: Revision,
    /// Changes so far; the next one's `sub`.
    changes: u32,
}

impl Store {
    /// Runs `work` alone: **store, publish, notify**.
    ///
    /// What `work` links is invisible until the revision is published, and then visible as a whole
    /// (I1, I3). When this returns, every synced watcher has the events (I4). `work` must find out
    /// whether it fails before its first change.
    pub(crate) fn commit<T, E>(
        &self,
        work: impl FnOnce(&mut Writer<'_>) -> Result<T, E>,
    ) -> Result<Committed<T>, E> {
        let early = self
            .faults
            .has(Fault::NumberOutsideSequencer)
            .then(|| self.current.load());
        let sequencer = self.sequencer.lock();
        let current = early.unwrap_or_else(|| self.current.load());
        if self.faults.has(Fault::PublishFirst) {
            self.current.publish(current.next());
        }
        let mut writer = Writer {
            store: self,
            main: current.next(),
            changes: 0,
        };
        let result = work(&mut writer);
        let Writer { main, changes, .. } = writer;
        assert!(
            result.is_ok() || changes == 0,
            "I1: a failed transaction changed something"
        );
        if changes > 0 {
            self.current.publish(main);
        }
        drop(sequencer);
        let value = result?;
        if changes == 0 {
            return Ok(Committed {
                value,
                revision: current,
            });
        }
        self.hub.dispatch(self);
        Ok(Committed {
            value,
            revision: main,
        })
    }

    /// Copies the value and looks the key up, before any lock of the commit is taken.
    pub(crate) fn prepare_put(&self, key: &[u8], value: &[u8], with_lease: bool) -> PreparedPut {
        let entry = self.index.get(key);
        let found = entry.is_some();
        let entry = entry.unwrap_or_else(|| Entry::new(key));
        let guess = match (with_lease, found) {
            (true, _) => Guess::WithLease,
            (false, true) => Guess::WithoutLease,
            (false, false) => Guess::First,
        };
        PreparedPut {
            draft: PendingRecord::new(entry, value, guess),
            found,
        }
    }
}

impl<'a> Writer<'a> {
    pub(crate) fn store(&self) -> &'a Store {
        self.store
    }

    /// Whether anything has changed yet.
    pub(crate) fn has_changed(&self) -> bool {
        self.changes > 0
    }

    /// The revision that a header inside the transaction reports now (DM-23).
    pub(crate) fn revision(&self) -> Revision {
        if self.has_changed() {
            self.main
        } else {
            self.main.previous()
        }
    }

    /// The position that sees all changes made so far, and none that come later.
    pub(crate) fn position(&self) -> Position {
        match self.changes.checked_sub(1) {
            Some(sub) => Position {
                revision: self.main,
                sub,
            },
            None => self.main.previous().end(),
        }
    }

    /// The value of a key as this transaction sees it.
    pub(crate) fn get(&self, key: &[u8]) -> Option<KeyValue> {
        self.store.get(key, self.main.end())
    }

    /// Writes a version; returns the one it follows, if the key was alive.
    pub(crate) fn put(&mut self, put: PreparedPut, lease: Option<LeaseId>) -> Option<KeyValue> {
        let PreparedPut { draft, found } = put;
        let entry = self.entry_for(&draft, found);
        let previous = entry.newest().filter(|newest| !newest.is_tombstone());
        let record = draft.finish(&entry, self.next_position(), previous.as_ref(), lease);
        self.move_lease(previous.as_ref(), &record);
        let position = record.position();
        self.link(&entry, record);
        if previous.is_none() {
            self.store.index.set_alive(entry.key(), true, position);
        }
        previous
    }

    /// Where a put writes to. An entry that was retired since it was found would swallow the write, so
    /// the key then gets a new one.
    fn entry_for(&self, draft: &PendingRecord, found: bool) -> Entry {
        let index = &self.store.index;
        if !found {
            return index.get_or_insert(draft.entry());
        }
        if draft.entry().is_retired() && !self.store.faults.has(Fault::TrustFoundEntry) {
            return index.get_or_insert(&Entry::new(draft.entry().key()));
        }
        draft.entry().clone()
    }

    /// Deletes the living keys of a range; returns what they were, in key order.
    pub(crate) fn delete(&mut self, range: &KeyRange) -> Vec<KeyValue> {
        let mut doomed: Vec<(Entry, KeyValue)> = Vec::new();
        let now = self.main.end();
        match range {
            KeyRange::One(key) => {
                if let Some(entry) = self.store.index.get(key)
                    && let Some(newest) = entry.read_locked(now)
                {
                    doomed.push((entry, newest));
                }
            }
            range if range.is_empty() => {}
            range => self.store.index.scan(range, |found| {
                let newest = found.read(now);
                doomed.extend(newest.map(|newest| (found.entry().clone(), newest)));
                ControlFlow::Continue(())
            }),
        }
        let mut deleted = Vec::with_capacity(doomed.len());
        for (entry, previous) in doomed {
            let tombstone = KeyValue::tombstone(entry.clone(), self.next_position());
            let position = tombstone.position();
            self.move_lease(Some(&previous), &tombstone);
            self.link(&entry, tombstone);
            self.store.index.set_alive(entry.key(), false, position);
            deleted.push(previous);
        }
        deleted
    }

    /// The place of the next change (I1).
    fn next_position(&mut self) -> Position {
        let position = Position {
            revision: self.main,
            sub: self.changes,
        };
        self.changes += 1;
        position
    }

    /// Puts a record where readers and followers find it once it is published. The log comes before
    /// the index counts the change, so that whoever corrects a count finds the reason for it.
    fn link(&self, entry: &Entry, record: KeyValue) {
        self.store.history_bytes.add(record.size_bytes());
        self.store.log.append(record.clone());
        entry.push(record);
    }

    /// A key is attached to the lease of its newest version, or to none (LE-7, PUT-7).
    fn move_lease(&self, previous: Option<&KeyValue>, next: &KeyValue) {
        let from = previous.and_then(KeyValue::lease);
        let to = next.lease();
        if from != to {
            self.store.lessor.move_key(next.entry(), from, to);
        }
    }
}
