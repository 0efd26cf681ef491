//! Commits: how the changes of one transaction become a revision. **Store, publish, notify.**
//!
//! | step | function | afterwards |
//! |---|---|---|
//! | store | [`Writer::put`], [`Writer::delete`] | records are in the index and the log, but not visible to readers |
//! | publish | [`Writer::commit`] | all records are visible to reads at the new revision, and none to reads at earlier revisions (I3) |
//! | notify | [`Writer::commit`] | every synced watch has its events (I4) |

use std::ops::ControlFlow;

use crate::error::WriteError;
use crate::history::{Entry, KeyValue, LeaseId, PendingRecord};
use crate::key::KeyRange;
use crate::revision::{Position, Revision};
use crate::store::{Sequencer, Store};
use crate::sync::MutexGuard;
use crate::sync::epoch::{Guard, pin};

/// The exclusive right to change the store: one transaction that holds the sequencer.
///
/// A writer that is dropped without [`Writer::commit`] must not have changed anything (I1). So all
/// checks that can fail take `&Writer`, and run before the first change. If a panic drops a writer
/// after its first change, the store refuses further writers.
#[must_use = "changes are published by `commit`"]
pub(crate) struct Writer<'a> {
    store: &'a Store,
    sequencer: MutexGuard<'a, Sequencer>,
    /// The revision of the changes.
    revision: Revision,
    /// The number of changes so far, which is the `sub` of the next one.
    changes: u32,
}

impl<'a> Writer<'a> {
    /// Waits for the sequencer and begins a transaction, unless the store refuses writes.
    #[inline]
    pub(crate) fn begin(store: &'a Store) -> Result<Self, WriteError> {
        let (sequencer, current) = store.lock_sequencer()?;
        Ok(Self {
            store,
            sequencer,
            revision: current.next(),
            changes: 0,
        })
    }

    /// Writes a version; returns the one that it replaces, if the key is live.
    #[inline]
    pub(crate) fn put(
        &mut self,
        pending: PendingRecord,
        lease: Option<LeaseId>,
    ) -> Option<KeyValue> {
        let entry = self.store.index.entry_for(&pending);
        let guard = pin();
        let newest = entry.newest(&guard).as_deref().cloned();
        let previous = newest.filter(|newest| !newest.is_tombstone());
        let record = pending.finish(&entry, self.next_position(), previous.as_ref(), lease);
        let position = record.position();
        self.link(&entry, record, previous.as_ref(), &guard);
        if previous.is_none() {
            self.store.index.set_live(entry.key(), true, position);
        }
        previous
    }

    /// Deletes the live keys of a range; returns their last versions, in key order.
    pub(crate) fn delete(&mut self, range: &KeyRange) -> Vec<KeyValue> {
        let live = self.live_entries(range);
        let mut deleted = Vec::with_capacity(live.len());
        for (entry, last) in live {
            let tombstone = KeyValue::tombstone(entry.clone(), self.next_position());
            let position = tombstone.position();
            self.link(&entry, tombstone, Some(&last), &pin());
            self.store.index.set_live(entry.key(), false, position);
            deleted.push(last);
        }
        deleted
    }

    /// Publishes the changes and notifies the watches. Returns the new revision, or the current one
    /// if nothing has changed (DM-8, DM-22).
    #[inline]
    pub(crate) fn commit(mut self) -> Revision {
        if self.changes == 0 {
            return self.revision.previous();
        }
        let (store, revision) = (self.store, self.revision);
        // I3: all changes are stored, and are visible to readers from here on.
        store.current.publish(revision);
        self.changes = 0;
        drop(self);
        // I4: after publishing, so that a reader that is woken finds its events.
        store.hub.dispatch(store);
        revision
    }

    pub(crate) fn store(&self) -> &'a Store {
        self.store
    }

    /// Returns the revision that a response header inside the transaction reports at this point:
    /// the previous one before the first change, the new one after it (DM-23).
    pub(crate) fn revision(&self) -> Revision {
        if self.changes > 0 {
            self.revision
        } else {
            self.revision.previous()
        }
    }

    /// Returns the position that includes all changes made so far, and no later ones.
    pub(crate) fn position(&self) -> Position {
        match self.changes.checked_sub(1) {
            Some(sub) => Position {
                revision: self.revision,
                sub,
            },
            None => self.revision.previous().end(),
        }
    }

    /// Returns the newest version of a key, including changes of this transaction.
    pub(crate) fn get(&self, key: &[u8]) -> Option<KeyValue> {
        self.store.index.read(key, self.revision.end())
    }

    /// Returns the position of the next change (I1).
    fn next_position(&mut self) -> Position {
        let position = Position {
            revision: self.revision,
            sub: self.changes,
        };
        self.store.progress.record(self.changes as usize);
        self.changes += 1;
        position
    }

    /// Stores a record in the history of its key and in the log, and attaches the key to the lease
    /// of this newest version (LE-7, PUT-7).
    ///
    /// The record is in the log before the index counts the change, so that a reader that corrects
    /// a count by the log finds each counted change there.
    #[inline]
    fn link(&self, entry: &Entry, record: KeyValue, previous: Option<&KeyValue>, guard: &Guard) {
        let (from, to) = (previous.and_then(KeyValue::lease), record.lease());
        if from != to {
            self.store.lessor.move_key(entry, from, to);
        }
        self.store.history_bytes.add(record.size_bytes());
        self.store.versions.add(1);
        self.store.log.append(record.clone(), guard);
        entry.push(record, guard, self.store.faults);
    }

    /// Returns the live keys of a range with their newest versions, in key order.
    fn live_entries(&self, range: &KeyRange) -> Vec<(Entry, KeyValue)> {
        let mut live = Vec::new();
        let newest = self.revision.end();
        match range {
            KeyRange::One(key) => {
                if let Some(entry) = self.store.index.get(key)
                    && let Some(kv) = entry.read(newest, &pin()).as_deref().cloned()
                {
                    live.push((entry, kv));
                }
            }
            range if range.is_empty() => {}
            range => self.store.index.scan(range, |found| {
                let kv = found.read(newest);
                live.extend(kv.map(|kv| (found.entry().clone(), kv.clone())));
                self.store.progress.record(live.len());
                ControlFlow::Continue(())
            }),
        }
        live
    }
}

impl Drop for Writer<'_> {
    /// Ends the transaction. After a change that is not published, the store is damaged.
    #[inline]
    fn drop(&mut self) {
        if self.changes > 0 {
            self.sequencer.refusal = Some(WriteError::Damaged);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use std::time::Duration;

    use super::Writer;
    use crate::history::PendingRecord;
    use crate::options::Options;
    use crate::store::Store;
    use crate::sync::{Arc, Weak};
    use crate::time::Timed;
    use crate::{Clock, Compare, Engine, KeyRange, LeaseError, LeaseId, ManualClock, Op, Put};
    use crate::{PutError, Revision, Txn, TxnError, WatchOptions, WriteError};

    fn engine() -> (Engine, Arc<Store>, ManualClock) {
        let clock = ManualClock::new();
        let store = Arc::new(Store::new(Options::default(), Arc::new(clock.clone())));
        let timed: Arc<dyn Timed> = store.clone();
        let timed: Weak<dyn Timed> = Arc::downgrade(&timed);
        clock.follow(timed);
        (Engine::new(store.clone()), store, clock)
    }

    /// The records of a write that panicked were once published by the next one.
    #[test]
    fn an_engine_refuses_writes_after_a_write_that_panicked() {
        let (engine, store, clock) = engine();
        let lease = engine.grant(LeaseId::new(7), 60).expect("a free id").id;
        let guard = engine.grant_guarded(None, 60).expect("a new lease");
        let put = engine.put("k", "1").expect("a valid put");
        let mut watcher = engine
            .watch(WatchOptions::of(KeyRange::all()))
            .expect("a valid watch");
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let mut writer = Writer::begin(&store).expect("the store is not damaged");
            writer.put(PendingRecord::for_new_key(b"x", b"2", false), None);
            panic!("a panic of the test");
        }));
        assert!(unwound.is_err());
        let refused = WriteError::Damaged;
        assert_eq!(engine.put("k", "3"), Err(PutError::Refused(refused)));
        assert_eq!(engine.delete(&KeyRange::all()), Err(refused));
        let txn = Txn::new()
            .when([Compare::absent("x")])
            .and_then([Op::Put(Put::new("x", "4"))]);
        assert_eq!(engine.txn(&txn), Err(TxnError::Refused(refused)));
        assert_eq!(engine.revoke(lease), Err(LeaseError::Refused(refused)));
        let guarded = guard.id();
        drop(guard);
        assert!(
            engine.lease(guarded, false).is_ok(),
            "a lease keeps its keys"
        );
        // An expiry that cannot delete keys is not tried again and again.
        clock.advance(Duration::from_secs(100));
        assert!(
            engine.lease(lease, false).is_ok(),
            "the lease keeps its keys"
        );
        assert_eq!(engine.check(), Err(refused));
        assert_eq!(engine.current_revision(), put.revision);
        assert!(engine.get("x").is_none() && engine.get("k").is_some());
        assert!(watcher.try_next().is_none());
        engine.compact(put.revision).expect("a kept revision").run();
        assert!(engine.get("k").is_some());
    }

    #[test]
    fn a_store_refuses_writes_at_its_last_revision() {
        let (engine, store, _) = engine();
        store.current.publish(Revision(Revision::LAST.0 - 1));
        let put = engine.put("k", "1").expect("a valid put");
        assert_eq!(put.revision, Revision::LAST);
        let refused = PutError::Refused(WriteError::RevisionsExhausted);
        assert_eq!(engine.put("k", "2"), Err(refused));
        assert_eq!(engine.current_revision(), Revision::LAST);
        assert_eq!(engine.get("k").expect("a live key").value(), b"1");
    }
}
