//! A note that there is something to look at again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

/// Stands between a source that is rarely ready and a task that is often awake for other reasons: the
/// source is polled only after it asked for it.
#[derive(Debug)]
pub(crate) struct Nudge {
    note: Arc<Note>,
    /// Leaves the note.
    waker: Waker,
}

#[derive(Debug)]
struct Note {
    /// The source wants to be polled.
    left: AtomicBool,
    /// A leaf lock: held to copy a waker, never while one is called.
    task: Mutex<Option<Waker>>,
}

impl Nudge {
    /// For a source that was never polled.
    pub(crate) fn new() -> Self {
        let note = Arc::new(Note {
            left: AtomicBool::new(true),
            task: Mutex::new(None),
        });
        Self {
            waker: Waker::from(note.clone()),
            note,
        }
    }

    /// Polls the source if it asked for it; the task of `context` is woken when it asks again.
    pub(crate) fn poll<T>(
        &self,
        context: &mut Context<'_>,
        source: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.note.hear(context.waker());
        // Acquire: pairs with the Release in `wake_by_ref`. Taken before the look, so that a note
        // that is left during it is found by the next one.
        if !self.note.left.swap(false, Ordering::Acquire) {
            return Poll::Pending;
        }
        let polled = source(&mut Context::from_waker(&self.waker));
        if polled.is_ready() {
            // There may be more.
            self.note.left.store(true, Ordering::Relaxed);
        }
        polled
    }
}

impl Note {
    fn hear(&self, waker: &Waker) {
        let mut task = self.task.lock();
        if !task.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *task = Some(waker.clone());
        }
    }
}

impl Wake for Note {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Release: pairs with the Acquire in `poll`. The lock orders it before the look of a task
        // that is just going to sleep: that task is either the one found here, or sees the note.
        self.left.store(true, Ordering::Release);
        let task = self.task.lock().clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_source_is_polled_when_it_asked_and_only_then() {
        let woken = Arc::new(Count::default());
        let waker = Waker::from(woken.clone());
        let mut context = Context::from_waker(&waker);
        let nudge = Nudge::new();
        let mut source = None;
        let keep = |of: &mut Option<Waker>, context: &mut Context<'_>| {
            *of = Some(context.waker().clone());
            Poll::<()>::Pending
        };
        assert!(
            nudge
                .poll(&mut context, |it| keep(&mut source, it))
                .is_pending()
        );
        let untouched = nudge.poll(&mut context, |_| -> Poll<()> { panic!("nobody asked") });
        assert!(untouched.is_pending());
        source.take().unwrap().wake();
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert!(nudge.poll(&mut context, |_| Poll::Ready(())).is_ready());
        // What was ready once is asked again.
        assert!(nudge.poll(&mut context, |_| Poll::Ready(())).is_ready());
        assert!(
            nudge
                .poll(&mut context, |it| keep(&mut source, it))
                .is_pending()
        );
        assert!(source.is_some());
    }

    #[test]
    fn a_note_left_during_the_look_is_found() {
        let nudge = Nudge::new();
        let mut context = Context::from_waker(Waker::noop());
        let polled = nudge.poll(&mut context, |it| {
            it.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        assert!(polled.is_pending());
        assert!(nudge.poll(&mut context, |_| Poll::Ready(())).is_ready());
    }
}
