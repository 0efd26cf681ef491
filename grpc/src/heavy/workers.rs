//! The threads for long work.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Semaphore;

use crate::status::EtcdError;

/// Runs long work on threads of the runtime's blocking pool, on a limited number of them at a time.
/// Work waits in the order of arrival.
///
/// With fewer workers than processors, the threads that answer all other requests get a processor
/// whatever the workers do.
#[derive(Debug)]
pub(crate) struct Workers {
    permits: Arc<Semaphore>,
    max: usize,
    waiting: AtomicUsize,
}

impl Workers {
    pub(crate) fn new(max: usize) -> Self {
        let max = max.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            permits: Arc::new(Semaphore::new(max)),
            max,
            waiting: AtomicUsize::new(0),
        }
    }

    /// Runs `work` on a worker and returns its result. If the future is dropped, work that has not
    /// begun never does; other work runs to its end, and the worker drops the result.
    ///
    /// # Errors
    /// [`EtcdError::Internal`] if the work panicked.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, EtcdError> {
        let permit = {
            let _waiting = Waiting::add(&self.waiting);
            let permit = self.permits.clone().acquire_owned().await;
            permit.map_err(|_closed| EtcdError::Internal)?
        };
        let job = tokio::task::spawn_blocking(move || {
            // Returned when the work ends, also by a panic.
            let _permit = permit;
            work()
        });
        job.await.map_err(|_panicked| EtcdError::Internal)
    }

    pub(crate) fn max(&self) -> usize {
        self.max
    }

    pub(crate) fn busy(&self) -> usize {
        self.max - self.permits.available_permits().min(self.max)
    }

    pub(crate) fn waiting(&self) -> usize {
        // Relaxed: the count orders nothing.
        self.waiting.load(Ordering::Relaxed)
    }
}

/// Counts a waiting request while it exists.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn add(count: &'a AtomicUsize) -> Self {
        // Relaxed: the count orders nothing.
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // Relaxed: as above.
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures_util::FutureExt as _;
    use parking_lot::Mutex;
    use tokio::task::JoinHandle;

    use super::*;

    /// Occupies a worker until the sender is dropped.
    async fn occupy(workers: &Arc<Workers>) -> (mpsc::Sender<()>, JoinHandle<()>) {
        let (release, released) = mpsc::channel::<()>();
        let (begin, started) = tokio::sync::oneshot::channel();
        let workers = workers.clone();
        let job = tokio::spawn(async move {
            let work = move || {
                begin.send(()).unwrap();
                let _ = released.recv();
            };
            workers.run(work).await.unwrap();
        });
        started.await.unwrap();
        (release, job)
    }

    #[tokio::test]
    async fn never_more_work_runs_than_there_are_workers() {
        let workers = Arc::new(Workers::new(2));
        let counts = Arc::new(Mutex::new((0, 0)));
        let jobs = (0..50).map(|_| {
            let (workers, counts) = (workers.clone(), counts.clone());
            tokio::spawn(async move {
                let work = move || {
                    {
                        let (running, most) = &mut *counts.lock();
                        *running += 1;
                        *most = (*most).max(*running);
                    }
                    std::thread::yield_now();
                    counts.lock().0 -= 1;
                };
                workers.run(work).await.unwrap();
            })
        });
        for job in jobs.collect::<Vec<_>>() {
            job.await.unwrap();
        }
        let (running, most) = *counts.lock();
        assert!(running == 0 && (1..=2).contains(&most), "{most}");
        assert_eq!((workers.busy(), workers.waiting()), (0, 0));
    }

    #[tokio::test]
    async fn work_begins_in_the_order_of_arrival_and_cancelled_work_never_does() {
        let workers = Arc::new(Workers::new(1));
        let (release, first) = occupy(&workers).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut futures = Vec::new();
        for number in 0..10 {
            let (workers, order) = (workers.clone(), order.clone());
            let mut future = async move {
                let work = move || order.lock().push(number);
                workers.run(work).await.unwrap();
            }
            .boxed();
            assert!((&mut future).now_or_never().is_none());
            futures.push(future);
        }
        assert_eq!((workers.busy(), workers.waiting()), (1, 10));
        drop(futures.remove(3));
        assert_eq!(workers.waiting(), 9);
        drop(release);
        first.await.unwrap();
        for future in futures {
            future.await;
        }
        assert_eq!(*order.lock(), [0, 1, 2, 4, 5, 6, 7, 8, 9]);
    }

    #[tokio::test]
    async fn a_worker_comes_back_after_a_panic_and_after_a_client_that_leaves() {
        let workers = Arc::new(Workers::new(1));
        let panicked = workers.run(|| panic!("on purpose")).await;
        assert_eq!(panicked, Err::<(), _>(EtcdError::Internal));
        let (release, job) = occupy(&workers).await;
        job.abort();
        assert!(job.await.is_err());
        assert_eq!(workers.busy(), 1);
        drop(release);
        assert_eq!(workers.run(|| 7).await, Ok(7));
        assert_eq!((workers.busy(), workers.waiting()), (0, 0));
    }
}
