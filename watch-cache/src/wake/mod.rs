//! Wake-ups of waiting tasks: [`subscriber::Subscriber`] is what the feeder knows of one waiting
//! task, [`timer_queue::TimerQueue`] wakes subscribers at a time of the clock, and [`yield_now`] gives
//! other tasks of an executor a turn in long loops.

pub(crate) mod subscriber;
pub(crate) mod timer_queue;

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
