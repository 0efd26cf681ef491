//! The time limits of calls.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep_until};

/// The number of timers that are kept for further calls.
const TIMERS_MAX: usize = 32;

/// Timers, which are used again: to arm the one that ends first wakes the thread that waits for timers and sockets, with two
/// system calls. A timer that is armed already is moved to a later time without that.
#[derive(Default)]
pub(super) struct Timers {
    // A leaf lock, held to take or to add a timer.
    idle: Mutex<Vec<Pin<Box<Sleep>>>>,
}

/// The time limit of one call.
pub(super) struct TimeLimit<'a> {
    timers: &'a Timers,
    end: Instant,
    /// `None` until something has to wait.
    timer: Option<Pin<Box<Sleep>>>,
}

/// The time limit has passed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Elapsed;

impl Timers {
    pub(super) fn limit(&self, end: Instant) -> TimeLimit<'_> {
        TimeLimit {
            timers: self,
            end,
            timer: None,
        }
    }
}

impl fmt::Debug for Timers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timers").finish_non_exhaustive()
    }
}

impl TimeLimit<'_> {
    /// Waits for a part of the call.
    ///
    /// # Errors
    /// The time limit of the call has passed.
    pub(super) async fn run<T>(&mut self, part: impl Future<Output = T>) -> Result<T, Elapsed> {
        let mut part = pin!(part);
        poll_fn(|context| {
            if let Poll::Ready(done) = part.as_mut().poll(context) {
                return Poll::Ready(Ok(done));
            }
            self.timer().poll(context).map(|()| Err(Elapsed))
        })
        .await
    }

    fn timer(&mut self) -> Pin<&mut Sleep> {
        let (timers, end) = (self.timers, self.end);
        let timer = self.timer.get_or_insert_with(|| {
            let Some(mut timer) = timers.idle.lock().pop() else {
                return Box::pin(sleep_until(end));
            };
            timer.as_mut().reset(end);
            timer
        });
        timer.as_mut()
    }
}

impl Drop for TimeLimit<'_> {
    fn drop(&mut self) {
        let Some(mut timer) = self.timer.take() else {
            return;
        };
        // Nobody is woken when it ends.
        let _ = timer.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let mut idle = self.timers.idle.lock();
        if idle.len() < TIMERS_MAX {
            idle.push(timer);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn timers_are_used_again_with_other_limits() {
        let timers = Timers::default();
        let begun = Instant::now();
        let mut kept = 0;
        for (seconds, ends) in [(10, false), (30, true), (5, true), (60, false), (1, true)] {
            let end = Instant::now() + Duration::from_secs(seconds);
            let mut limit = timers.limit(end);
            assert!(limit.run(ready(())).await.is_ok());
            if ends {
                assert!(limit.run(pending::<()>()).await.is_err());
                assert!(Instant::now() >= end);
            } else {
                let short = tokio::time::sleep(Duration::from_millis(100));
                assert!(limit.run(short).await.is_ok());
            }
            drop(limit);
            kept = timers.idle.lock().len();
        }
        assert_eq!(kept, 1);
        let spent = begun.elapsed();
        assert!(spent < Duration::from_millis(36_300), "{spent:?}");
    }
}
