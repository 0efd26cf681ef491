//! The versions of one key.

use std::iter::FusedIterator;

use bytes::Bytes;

use crate::history::KeyValue;
use crate::revision::Position;
use crate::store::Store;
use crate::sync::Arc;
use crate::sync::epoch::pin;

/// An iterator over the kept versions of one key, newest first; created by
/// [`Engine::history`](crate::Engine::history).
#[derive(Debug)]
pub struct KeyHistory {
    store: Arc<Store>,
    key: Bytes,
    /// The position of the last version returned; `None` before the first one.
    last: Option<Position>,
    is_finished: bool,
}

impl KeyHistory {
    pub(crate) fn new(store: Arc<Store>, key: Bytes) -> Self {
        Self {
            store,
            key,
            last: None,
            is_finished: false,
        }
    }

    /// Returns the newest version at the current revision.
    fn first(&self) -> Option<KeyValue> {
        loop {
            let current = self.store.current.load();
            let first = self.before(current.next().start());
            // Otherwise a compaction above `current` may have removed the version.
            if !self.store.compacted.has_dropped(current) {
                return first;
            }
        }
    }

    fn before(&self, position: Position) -> Option<KeyValue> {
        // Looked up again each time: a key that was compacted away and created again has a new
        // entry, without the older versions.
        let entry = self.store.index.get(&self.key)?;
        let guard = pin();
        let before = entry.version_before(position, &guard);
        before.as_deref().cloned()
    }

    fn step(&self) -> Option<KeyValue> {
        let version = match self.last {
            None => self.first(),
            Some(last) => self.before(last),
        }?;
        // I7: loaded after the version was read, so the result does not depend on what a compaction
        // has removed so far.
        let Some(compacted) = self.store.compacted.load() else {
            return Some(version);
        };
        let is_replaced = self.last.is_some_and(|last| last.revision <= compacted);
        let is_dropped = version.is_tombstone() && version.mod_revision() < compacted;
        (!is_replaced && !is_dropped).then_some(version)
    }
}

impl Iterator for KeyHistory {
    type Item = KeyValue;

    fn next(&mut self) -> Option<KeyValue> {
        if self.is_finished {
            return None;
        }
        let version = self.step();
        self.is_finished = version.is_none();
        self.last = version.as_ref().map(KeyValue::position);
        version
    }
}

impl FusedIterator for KeyHistory {}
