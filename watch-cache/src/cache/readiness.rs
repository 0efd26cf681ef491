//! Readiness: whether requests for a resource can be answered from its cache (WC-104). Corresponds
//! to the `ready` state of Kubernetes' Cacher.
//!
//! ```text
//! Pending ──loaded──▶ Ready ──mismatch──▶ Inconsistent ──loaded──▶ Ready
//!    ▲ ◀──reload────────┘ ◀──────reload────────┘
//!    └─ any ──stop──▶ Stopped, any ──remove──▶ Removed
//! ```

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;

use crate::api::status::RequestError;
use crate::wake::Waiter;

/// The state of the cache of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// The cache is loading.
    Pending {
        /// The time of the clock at which loading began.
        since: Duration,
        /// The error of the last attempt, if one failed.
        cause: Option<String>,
    },
    /// The cache is loaded and answers requests.
    Ready,
    /// A consistency check found a difference between cache and source. Until the cache is loaded
    /// again, the source answers gets and lists, and watches fail with 429.
    // WC-135.
    Inconsistent,
    /// The cache was stopped. This state is final.
    Stopped,
    /// The resource was removed from the cache. This state is final.
    Removed,
}

/// The current [`Readiness`] of a resource, and the tasks that wait for it to change.
#[derive(Debug)]
pub(crate) struct ReadinessGate {
    /// The lock is held for one lookup or change; no task is woken under it.
    inner: Mutex<GateState>,
}

#[derive(Debug)]
struct GateState {
    state: Readiness,
    waiting: Vec<Arc<Waiter>>,
}

/// The maximum `retryAfterSeconds` in the error that a loading cache returns.
const RETRY_AFTER_MAX_SECONDS: f64 = 30.0;

impl ReadinessGate {
    pub(crate) fn new(now: Duration) -> Self {
        Self {
            inner: Mutex::new(GateState {
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

    /// Changes the state and wakes the waiting tasks. `Stopped` and `Removed` are final, `Pending` does
    /// not become `Inconsistent`, because the cache is being loaded already, and a change from `Pending` to
    /// `Pending` keeps the time at which loading began.
    pub(crate) fn set(&self, next: Readiness) {
        let waiting = {
            let mut inner = self.inner.lock();
            let next = match (&inner.state, next) {
                (Readiness::Stopped | Readiness::Removed, _)
                | (Readiness::Pending { .. }, Readiness::Inconsistent) => return,
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
        for waiter in waiting {
            waiter.waker.wake();
        }
    }

    /// Fails with [`RequestError::NotReady`], [`RequestError::Stopped`] or [`RequestError::Removed`]
    /// unless the state is `Ready`.
    pub(crate) fn check(&self, now: Duration) -> Result<(), RequestError> {
        match self.state() {
            Readiness::Ready => Ok(()),
            Readiness::Stopped => Err(RequestError::Stopped),
            Readiness::Removed => Err(RequestError::Removed),
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

    /// Waits until the state is `Ready`. Fails with [`RequestError::Stopped`] or
    /// [`RequestError::Removed`] if it is `Stopped` or `Removed`.
    pub(crate) async fn wait(&self) -> Result<(), RequestError> {
        let waiter = Arc::new(Waiter::new());
        poll_fn(|context| {
            waiter.waker.register(context.waker());
            let mut inner = self.inner.lock();
            match inner.state {
                Readiness::Ready => return Poll::Ready(Ok(())),
                Readiness::Stopped => return Poll::Ready(Err(RequestError::Stopped)),
                Readiness::Removed => return Poll::Ready(Err(RequestError::Removed)),
                Readiness::Pending { .. } | Readiness::Inconsistent => {}
            }
            if inner.waiting.iter().all(|known| known.id != waiter.id) {
                // Removes waiters whose task no longer waits: only this list still refers to them.
                inner.waiting.retain(|known| Arc::strong_count(known) > 1);
                inner.waiting.push(waiter.clone());
            }
            Poll::Pending
        })
        .await
    }
}

/// Returns the number of seconds after which a client of a loading cache should try again:
/// `e^(0.06 * seconds of downtime)`, between 1 and 30 (docs/watch-cache.md, B.1).
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
    use pollster::block_on;
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
    fn t_47_readiness_is_idempotent_wakes_all_waiters_and_is_final_when_stopped() {
        let ready = Arc::new(ReadinessGate::new(Duration::ZERO));
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
            error.status().retry_after_seconds(),
            Some(2),
            "since 5 s, not 9 s"
        );
        ready.set(Readiness::Inconsistent);
        assert!(matches!(ready.state(), Readiness::Pending { .. }));
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
    fn t_47_a_cancelled_wait_is_removed() {
        let ready = ReadinessGate::new(Duration::ZERO);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        for _ in 0..10 {
            let mut wait = Box::pin(ready.wait());
            assert!(wait.as_mut().poll(&mut context).is_pending());
        }
        assert!(ready.inner.lock().waiting.len() <= 1);
    }
}
