//! The end of a rule.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::waker_set::WakerSet;

/// The end of a rule, as a future: completes when the rule is removed. Clones wait for the same rule.
#[derive(Debug)]
pub struct Removal {
    signal: Arc<Signal>,
    /// The key of its waker, if it waits.
    key: Option<u64>,
}

/// What a rule and those that wait for its end share.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    /// A leaf lock: held for a look or a change. No waker is called under it.
    waiters: Mutex<Waiters>,
}

#[derive(Debug, Default)]
struct Waiters {
    is_removed: bool,
    wakers: WakerSet,
}

impl Signal {
    /// Completes all futures.
    pub(crate) fn raise(&self) {
        let wakers = {
            let mut waiters = self.waiters.lock();
            waiters.is_removed = true;
            waiters.wakers.take()
        };
        wakers.for_each(Waker::wake);
    }
}

impl Removal {
    pub(crate) fn of(signal: &Arc<Signal>) -> Self {
        Self {
            signal: signal.clone(),
            key: None,
        }
    }

    /// Returns whether the rule was removed.
    pub fn is_removed(&self) -> bool {
        self.signal.waiters.lock().is_removed
    }
}

impl Clone for Removal {
    fn clone(&self) -> Self {
        Self::of(&self.signal)
    }
}

impl Future for Removal {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let removal = &mut *self;
        let previous = {
            let mut waiters = removal.signal.waiters.lock();
            if waiters.is_removed {
                return Poll::Ready(());
            }
            waiters.wakers.register(&mut removal.key, context.waker())
        };
        drop(previous);
        Poll::Pending
    }
}

impl Drop for Removal {
    fn drop(&mut self) {
        let waker = self.signal.waiters.lock().wakers.remove(&mut self.key);
        drop(waker);
    }
}
