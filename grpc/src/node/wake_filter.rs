//! A wake filter: polls a source only after the source has woken its waker. `loom-tests/tests/wakers` compiles this
//! file, too.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use crate::sync::{AtomicBool, Mutex, Ordering};

/// Skips polls of a source that is rarely ready, in a task that is often woken for other reasons. The source
/// gets a separate waker, which records the wake-up and wakes the task.
#[derive(Debug)]
pub(crate) struct WakeFilter {
    shared: Arc<Shared>,
    /// The source's waker, created from `shared`.
    waker: Waker,
}

#[derive(Debug)]
struct Shared {
    /// Whether the next poll of the filter polls the source.
    is_woken: AtomicBool,
    /// The waker of the task. A leaf lock: held to copy a waker, never while a waker is called.
    task: Mutex<Option<Waker>>,
}

impl WakeFilter {
    /// Creates a filter for a source that has not been polled.
    pub(crate) fn new() -> Self {
        let shared = Arc::new(Shared {
            is_woken: AtomicBool::new(true),
            task: Mutex::new(None),
        });
        Self {
            waker: Waker::from(shared.clone()),
            shared,
        }
    }

    /// Polls the source if it was woken since the last poll. The task of `context` is woken when the
    /// source is woken next.
    pub(crate) fn poll<T>(
        &self,
        context: &mut Context<'_>,
        source: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.shared.set_task(context.waker());
        // Acquire: pairs with the Release in `wake_by_ref`. The flag is reset before the poll, so that a
        // wake-up during the poll causes another poll.
        if !self.shared.is_woken.swap(false, Ordering::Acquire) {
            return Poll::Pending;
        }
        let polled = source(&mut Context::from_waker(&self.waker));
        if polled.is_ready() {
            // The source may have more items, and has not registered the waker.
            self.shared.is_woken.store(true, Ordering::Relaxed);
        }
        polled
    }
}

impl Shared {
    fn set_task(&self, waker: &Waker) {
        let mut task = self.task.lock();
        if !task.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *task = Some(waker.clone());
        }
    }
}

impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Release: pairs with the Acquire in `poll`. The lock below orders the store before the check of a
        // task that is about to return `Pending`: either this call reads the waker of that task, or the task
        // reads the flag. A swap where a store would do: loom does not know that a store which a swap has not
        // seen comes after it.
        self.is_woken.swap(true, Ordering::Release);
        let task = self.task.lock().clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct WakeCount(AtomicUsize);

    impl Wake for WakeCount {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_source_is_polled_only_after_it_was_woken() {
        let count = Arc::new(WakeCount::default());
        let waker = Waker::from(count.clone());
        let mut context = Context::from_waker(&waker);
        let filter = WakeFilter::new();
        let mut source = None;
        let register = |slot: &mut Option<Waker>, context: &mut Context<'_>| {
            *slot = Some(context.waker().clone());
            Poll::<()>::Pending
        };
        assert!(
            filter
                .poll(&mut context, |it| register(&mut source, it))
                .is_pending()
        );
        let skipped = filter.poll(&mut context, |_| -> Poll<()> {
            panic!("polled a source that was not woken")
        });
        assert!(skipped.is_pending());
        source.take().unwrap().wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(filter.poll(&mut context, |_| Poll::Ready(())).is_ready());
        // A source that was ready is polled again.
        assert!(filter.poll(&mut context, |_| Poll::Ready(())).is_ready());
        assert!(
            filter
                .poll(&mut context, |it| register(&mut source, it))
                .is_pending()
        );
        assert!(source.is_some());
    }

    #[test]
    fn a_wake_up_during_a_poll_leads_to_another_poll() {
        let filter = WakeFilter::new();
        let mut context = Context::from_waker(Waker::noop());
        let polled = filter.poll(&mut context, |it| {
            it.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        assert!(polled.is_pending());
        assert!(filter.poll(&mut context, |_| Poll::Ready(())).is_ready());
    }
}
