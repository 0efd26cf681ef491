//! Wake-ups of waiting tasks: a [`Waiter`] represents one waiting task, a
//! [`TimerQueue`](timer_queue::TimerQueue) wakes waiters at a time of the clock, and [`yield_now`]
//! lets the executor run other tasks during a long loop.

pub(crate) mod timer_queue;
mod waiter;

pub(crate) use waiter::Waiter;

use std::future::poll_fn;
use std::task::Poll;

/// Returns to the executor once, and completes when it polls again.
pub(crate) async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
