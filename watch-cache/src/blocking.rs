//! For those without an executor: futures run to their end on a thread.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use futures_core::Stream;

/// Unparks the thread that waits.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end; the thread sleeps while the future waits.
///
/// ```
/// assert_eq!(revstore_watch_cache::block_on(async { 1 + 1 }), 2);
/// ```
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Waits for nothing but the executor's next round.
pub(crate) async fn let_others_run() {
    let mut has_waited = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The next item of a stream; the thread sleeps until there is one.
pub fn next_blocking<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    block_on(std::future::poll_fn(|context| {
        std::pin::Pin::new(&mut *stream).poll_next(context)
    }))
}
