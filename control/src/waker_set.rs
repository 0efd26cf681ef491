//! The wakers of futures that wait for the same thing.

use std::collections::BTreeMap;
use std::task::Waker;

/// One waker for each future that waits. Guarded by a lock of its owner, who calls the wakers without it.
#[derive(Debug, Default)]
pub(crate) struct WakerSet {
    next_key: u64,
    wakers: BTreeMap<u64, Waker>,
}

impl WakerSet {
    /// Registers the waker of a future, whose key is in `key` from the first time on. Returns its previous waker, which
    /// the caller drops without the lock.
    pub(crate) fn register(&mut self, key: &mut Option<u64>, waker: &Waker) -> Option<Waker> {
        let key = *key.get_or_insert_with(|| {
            self.next_key += 1;
            self.next_key
        });
        self.wakers.insert(key, waker.clone())
    }

    /// Unregisters a future.
    pub(crate) fn remove(&mut self, key: &mut Option<u64>) -> Option<Waker> {
        key.take().and_then(|key| self.wakers.remove(&key))
    }

    /// Takes all wakers, to call them.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Waker> + use<> {
        std::mem::take(&mut self.wakers).into_values()
    }
}
