//! Who polls a connection, runs its requests, and writes what they have to say.
//!
//! An HTTP server usually spawns a task for each request of an HTTP/2 connection. This costs an allocation,
//! an entry in the task lists of the runtime and, as the largest part, a system call if another thread is
//! woken. Requests that take 1 or 2 µs run faster in the task that reads them. So a [`ConnectionDriver`]
//! works in rounds: it reads bytes that have arrived, up to a limit, runs the requests in them, and writes all their
//! responses with one system call. A request that has to wait is moved to a separate task.

use std::{
    fmt,
    future::Future,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use parking_lot::Mutex;

use crate::net::{task_waker::TaskWaker, transport::WriteBuffer};

/// The maximum number of rounds of a connection before it yields to other tasks.
const ROUNDS_MAX: usize = 16;

/// A running request.
type RequestFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Collects the requests that are read from an HTTP/2 connection. The [`ConnectionDriver`] of the
/// connection runs them.
#[derive(Clone, Default)]
pub(super) struct RequestExecutor {
    /// The requests that have not been polled yet. A leaf lock that only the task of the connection locks. It
    /// is needed because the handles are shared. The list is bounded by the bytes that are read in a round.
    queued: Arc<Mutex<Vec<RequestFuture>>>,
    /// Counts the requests that run in tasks of their own: it has a further reference for each.
    waiting: Arc<()>,
}

impl RequestExecutor {
    /// Queues a request, which is polled in this round.
    pub(super) fn add(&self, request: impl Future<Output = ()> + Send + 'static) {
        self.queued.lock().push(Box::pin(request));
    }

    /// Polls each queued request once, and spawns those that have to wait. Returns whether the queue
    /// contained requests.
    fn run(&self, context: &mut Context<'_>) -> bool {
        let queued = mem::take(&mut *self.queued.lock());
        let any = !queued.is_empty();
        for mut request in queued {
            // A panic ends only one request, as in a separate task: the future is dropped, which resets its
            // stream, and no other code accesses its state.
            let polled = catch_unwind(AssertUnwindSafe(|| request.as_mut().poll(context)));
            if let Ok(Poll::Pending) = polled {
                let waiting = self.waiting.clone();
                // The new task polls again and registers its own waker.
                tokio::spawn(async move {
                    request.await;
                    drop(waiting);
                });
            }
        }
        any
    }

    /// Returns whether several requests run in tasks of their own, such as watches.
    fn are_several_waiting(&self) -> bool {
        // Each clone of this handle has a reference, too.
        Arc::strong_count(&self.waiting) > Arc::strong_count(&self.queued) + 1
    }
}

impl fmt::Debug for RequestExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestExecutor").finish_non_exhaustive()
    }
}

/// A future that drives a connection, its requests and its write buffer.
#[derive(Debug)]
pub(super) struct ConnectionDriver<'a, C> {
    connection: Pin<&'a mut C>,
    executor: RequestExecutor,
    write_buffer: WriteBuffer,
    task: Arc<TaskWaker>,
    waker: Waker,
    /// Whether this wake-up was put behind the tasks of the requests.
    is_deferred: bool,
}

impl<'a, C: Future> ConnectionDriver<'a, C> {
    /// Drives `connection`, which writes into `write_buffer` and executes its requests on
    /// `executor`.
    pub(super) fn new(
        connection: Pin<&'a mut C>,
        executor: RequestExecutor,
        write_buffer: WriteBuffer,
    ) -> Self {
        let task = Arc::new(TaskWaker::default());
        Self {
            connection,
            executor,
            write_buffer,
            waker: Waker::from(task.clone()),
            task,
            is_deferred: false,
        }
    }

    pub(super) fn connection(&mut self) -> Pin<&mut C> {
        self.connection.as_mut()
    }
}

impl<C: Future> Future for ConnectionDriver<'_, C> {
    type Output = C::Output;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<C::Output> {
        let driver = self.get_mut();
        driver.task.register(task.waker());
        // The runtime polls a task that another one wakes next, so the connection would be polled, and would write, after
        // each watch that has an event. It goes behind all that were woken with it, and writes their events together.
        if !driver.is_deferred && driver.executor.are_several_waiting() {
            driver.is_deferred = true;
            task.waker().wake_by_ref();
            return Poll::Pending;
        }
        driver.is_deferred = false;
        let mut context = Context::from_waker(&driver.waker);
        for _ in 0..ROUNDS_MAX {
            driver.task.start_round();
            driver.write_buffer.start_round();
            if let Poll::Ready(end) = driver.connection.as_mut().poll(&mut context) {
                // Writes the last bytes if the connection has not closed the transport.
                driver.write_buffer.flush(&mut context);
                return Poll::Ready(end);
            }
            let has_run = driver.executor.run(&mut context);
            if driver.write_buffer.is_read_paused() {
                // The tasks that have got data run before more is read.
                break;
            }
            if has_run {
                // The next round encodes the responses.
                continue;
            }
            driver.write_buffer.flush(&mut context);
            if driver.task.sleep() {
                return Poll::Pending;
            }
        }
        driver.write_buffer.flush(&mut context);
        task.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, poll_fn, ready},
        pin::pin,
        sync::atomic::{AtomicUsize, Ordering},
        task::Wake,
        time::Duration,
    };

    use tokio::sync::oneshot;

    use super::*;
    use crate::net::{ping_limit::PingLimit, transport::Transport};

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Count {
        fn get(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    fn write_buffer() -> WriteBuffer {
        let (server, _client) = tokio::io::duplex(64);
        let transport = Transport::Boxed(Box::new(server));
        WriteBuffer::new(PingLimit::new(transport, Duration::ZERO))
    }

    /// Polls the driver of a connection once, and checks the number of polls of the connection. The
    /// connection queues `requests` at its first poll.
    fn check_polls(requests: Vec<RequestFuture>, expected: usize) {
        let executor = RequestExecutor::default();
        let polls = AtomicUsize::new(0);
        let mut requests = Some(requests);
        let connection = pin!(poll_fn(|_| -> Poll<()> {
            polls.fetch_add(1, Ordering::Relaxed);
            for request in requests.take().into_iter().flatten() {
                executor.queued.lock().push(request);
            }
            Poll::Pending
        }));
        let wake_ups = Arc::new(Count::default());
        let waker = Waker::from(wake_ups.clone());
        let driver = pin!(ConnectionDriver::new(
            connection,
            executor.clone(),
            write_buffer()
        ));
        assert!(driver.poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(polls.load(Ordering::Relaxed), expected);
        assert_eq!(wake_ups.get(), 0);
    }

    #[tokio::test]
    async fn a_connection_is_polled_again_after_its_requests() {
        check_polls(Vec::new(), 1);
        check_polls(vec![Box::pin(ready(())), Box::pin(ready(()))], 2);
        // The second request runs although the first one panics.
        let (done, seen) = oneshot::channel();
        let second = async move { done.send(()).unwrap() };
        check_polls(
            vec![Box::pin(async { panic!("on purpose") }), Box::pin(second)],
            2,
        );
        seen.await.unwrap();
    }

    #[tokio::test]
    async fn a_request_that_waits_continues_in_a_separate_task() {
        let (start, started) = oneshot::channel::<()>();
        let (done, seen) = oneshot::channel();
        let waits = async move {
            started.await.unwrap();
            done.send(()).unwrap();
        };
        check_polls(vec![Box::pin(waits), Box::pin(pending())], 2);
        start.send(()).unwrap();
        seen.await.unwrap();
    }

    #[tokio::test]
    async fn a_connection_with_several_watches_goes_behind_those_that_were_woken_with_it() {
        // The rounds of the connection after each poll that follows a wake-up.
        for (watches, expected) in [(1, vec![1]), (2, vec![0, 1])] {
            let executor = RequestExecutor::default();
            for _ in 0..watches {
                executor.queued.lock().push(Box::pin(pending()));
            }
            let rounds = AtomicUsize::new(0);
            let connection = pin!(poll_fn(|_| -> Poll<()> {
                rounds.fetch_add(1, Ordering::Relaxed);
                Poll::Pending
            }));
            let wake_ups = Arc::new(Count::default());
            let waker = Waker::from(wake_ups.clone());
            let mut context = Context::from_waker(&waker);
            let mut driver = pin!(ConnectionDriver::new(connection, executor, write_buffer()));
            assert!(driver.as_mut().poll(&mut context).is_pending());
            rounds.store(0, Ordering::Relaxed);
            driver.waker.wake_by_ref();
            for expected in &expected {
                assert!(driver.as_mut().poll(&mut context).is_pending());
                assert_eq!(rounds.load(Ordering::Relaxed), *expected, "{watches}");
            }
            assert_eq!(wake_ups.get(), expected.len());
        }
    }

    #[tokio::test]
    async fn a_wake_up_wakes_a_sleeping_task_and_starts_a_round_of_a_running_one() {
        let wake_ups = Arc::new(Count::default());
        let waker = Waker::from(wake_ups.clone());
        let mut context = Context::from_waker(&waker);
        let (mut polls, mut inner) = (0, None);
        let connection = pin!(poll_fn(|context: &mut Context<'_>| -> Poll<()> {
            polls += 1;
            inner = Some(context.waker().clone());
            if polls == 1 {
                context.waker().wake_by_ref();
            }
            Poll::Pending
        }));
        {
            let mut driver = pin!(ConnectionDriver::new(
                connection,
                RequestExecutor::default(),
                write_buffer()
            ));
            assert!(driver.as_mut().poll(&mut context).is_pending());
            assert_eq!(wake_ups.get(), 0);
            driver.waker.wake_by_ref();
            driver.waker.wake_by_ref();
            // Two wake-ups of a sleeping task wake it once.
            assert_eq!(wake_ups.get(), 1);
            assert!(driver.as_mut().poll(&mut context).is_pending());
        }
        assert_eq!(polls, 3);
    }

    #[tokio::test]
    async fn a_connection_that_is_always_ready_yields_to_other_tasks() {
        let wake_ups = Arc::new(Count::default());
        let waker = Waker::from(wake_ups.clone());
        let mut polls = 0;
        let connection = pin!(poll_fn(|context: &mut Context<'_>| -> Poll<()> {
            polls += 1;
            context.waker().wake_by_ref();
            Poll::Pending
        }));
        let driver = pin!(ConnectionDriver::new(
            connection,
            RequestExecutor::default(),
            write_buffer()
        ));
        let polled = driver.poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        assert_eq!((polls, wake_ups.get()), (ROUNDS_MAX, 1));
    }
}
