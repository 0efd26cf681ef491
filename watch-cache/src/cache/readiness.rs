//! Whether a resource's cache can be served from (WC-104).
//!
//! ```text
//! Pending ──loaded──▶ Ready ──mismatch──▶ Inconsistent ──loaded──▶ Ready
//!    ▲ ◀──reload────────┘ ◀──────reload────────┘
//!    └─ any ──stop──▶ Stopped
//! ```

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;

use crate::api::status::RequestError;
use crate::wake::subscriber::Signal;

/// The states of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It is loading, since this time of the clock.
    Pending {
        /// Since when.
        since: Duration,
        /// What the last attempt failed with.
        cause: Option<String>,
    },
    /// It serves.
    Ready,
    /// A check found that it is not what its source is (WC-135): until it is loaded anew, gets and
    /// lists come from there, and watches are refused.
    Inconsistent,
    /// It serves no more, for good.
    Stopped,
}

/// The present state, and who waits for it to change.
#[derive(Debug)]
pub(crate) struct Ready {
    /// Held for one look or change; nobody is woken under it.
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: Readiness,
    waiting: Vec<Arc<Signal>>,
}

/// The longest wait that clients of a loading cache are asked for.
const RETRY_AFTER_MAX_SECONDS: f64 = 30.0;

impl Ready {
    pub(crate) fn new(now: Duration) -> Self {
        Self {
            inner: Mutex::new(Inner {
                state: Readiness::Pending {
                    since: now,
                    cause: None,
                },
                waiting: Vec::new(),
            }),
        }
    }

    pub(crate) fn state(&self) -> Readiness {
        self.inner.lock().state.clone()
    }

    /// Moves on; a stopped cache stays stopped, a pending one keeps since when it is.
    pub(crate) fn set(&self, next: Readiness) {
        let waiting = {
            let mut inner = self.inner.lock();
            let next = match (&inner.state, next) {
                (Readiness::Stopped, _) => return,
                (Readiness::Pending { since, .. }, Readiness::Pending { cause, .. }) => {
                    Readiness::Pending {
                        since: *since,
                        cause,
                    }
                }
                (_, next) => next,
            };
            inner.state = next;
            std::mem::take(&mut inner.waiting)
        };
        for signal in waiting {
            signal.waker.wake();
        }
    }

    /// Refuses with 429 unless ready.
    pub(crate) fn check(&self, now: Duration) -> Result<(), RequestError> {
        match self.state() {
            Readiness::Ready => Ok(()),
            Readiness::Stopped => Err(RequestError::Stopped),
            Readiness::Inconsistent => Err(RequestError::NotReady {
                cause: Some("the cache differs from its source".into()),
                retry_after_seconds: 1,
            }),
            Readiness::Pending { since, cause } => Err(RequestError::NotReady {
                cause,
                retry_after_seconds: retry_after(now.saturating_sub(since)),
            }),
        }
    }

    /// Completes when ready.
    pub(crate) async fn wait(&self) -> Result<(), RequestError> {
        let signal = Arc::new(Signal::new());
        poll_fn(|context| {
            signal.waker.register(context.waker());
            let mut inner = self.inner.lock();
            match inner.state {
                Readiness::Ready => return Poll::Ready(Ok(())),
                Readiness::Stopped => return Poll::Ready(Err(RequestError::Stopped)),
                Readiness::Pending { .. } | Readiness::Inconsistent => {}
            }
            if inner.waiting.iter().all(|known| known.id != signal.id) {
                // Who gave up waiting is nobody else's any more.
                inner.waiting.retain(|known| Arc::strong_count(known) > 1);
                inner.waiting.push(signal.clone());
            }
            Poll::Pending
        })
        .await
    }
}

/// B.1: e to the power of 0.06 for each second that it lasts, from 1 to 30 seconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between 1 and 30"
)]
fn retry_after(downtime: Duration) -> u32 {
    let seconds = (0.06 * downtime.as_secs_f64()).exp();
    seconds.clamp(1.0, RETRY_AFTER_MAX_SECONDS) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocking::block_on;
    use std::future::Future as _;

    #[test]
    fn t_46_retry_after_grows_from_1_to_30_seconds() {
        let after = |seconds| retry_after(Duration::from_secs(seconds));
        assert_eq!(
            [0, 11, 12, 30, 56, 57, 1000].map(after),
            [1, 1, 2, 6, 28, 30, 30]
        );
    }

    #[test]
    fn t_47_setting_is_idempotent_waiters_race_and_stopping_is_final() {
        let ready = Arc::new(Ready::new(Duration::ZERO));
        let waiters: Vec<_> = (0..4)
            .map(|_| {
                let ready = ready.clone();
                std::thread::spawn(move || block_on(ready.wait()))
            })
            .collect();
        ready.set(Readiness::Ready);
        ready.set(Readiness::Ready);
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Ok(()));
        }
        ready.set(Readiness::Pending {
            since: Duration::from_secs(5),
            cause: None,
        });
        ready.set(Readiness::Pending {
            since: Duration::from_secs(9),
            cause: Some("no route".into()),
        });
        let error = ready.check(Duration::from_secs(17)).unwrap_err();
        assert_eq!(error.to_string(), "storage is (re)initializing: no route");
        assert_eq!(
            error.status().details.retry_after_seconds,
            2,
            "since 5 s, not 9 s"
        );
        ready.set(Readiness::Stopped);
        ready.set(Readiness::Ready);
        assert_eq!(ready.state(), Readiness::Stopped);
        assert_eq!(block_on(ready.wait()), Err(RequestError::Stopped));
        let error = ready.check(Duration::ZERO).unwrap_err();
        assert_eq!(
            (error.code(), error.to_string().as_str()),
            (429, "apiserver cacher is stopped")
        );
    }

    #[test]
    fn t_47_a_cancelled_wait_is_forgotten() {
        let ready = Ready::new(Duration::ZERO);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        for _ in 0..10 {
            let mut wait = Box::pin(ready.wait());
            assert!(wait.as_mut().poll(&mut context).is_pending());
        }
        assert!(ready.inner.lock().waiting.len() <= 1);
    }
}
