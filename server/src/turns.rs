//! Turns: how a connection and the requests on it share one task.
//!
//! Usually each request of an HTTP/2 connection gets a task. That takes an allocation, a place in the
//! lists of the runtime and, worst, a system call whenever another thread is woken to help. Requests
//! here take a microsecond or two, so they run where they were read. A turn reads what has come, runs
//! the requests in it, and writes all their answers at once. What has to wait for something moves
//! into a task of its own.

use std::{
    fmt,
    future::Future,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use hyper::rt::Executor;
use parking_lot::Mutex;

use crate::outbox::Outbox;

/// Turns that a connection takes before it lets others run.
const TURNS_MAX: usize = 16;

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where HTTP leaves the requests that it reads. They run in the [`Turns`] of their connection.
#[derive(Clone, Default)]
pub(crate) struct Requests {
    /// Requests that nobody has looked at. A leaf lock that only the task of the connection takes:
    /// it is there because the handles are shared. As long as the requests of some reads from the
    /// socket, of which the runtime lets a task make 128 in a row.
    fresh: Arc<Mutex<Vec<Running>>>,
}

impl Requests {
    /// Runs what is new until it has to wait. Says whether there was anything.
    fn run(&self, context: &mut Context<'_>) -> bool {
        let fresh = mem::take(&mut *self.fresh.lock());
        let any = !fresh.is_empty();
        for mut request in fresh {
            // A request that panics ends alone, as it would in a task of its own: dropped, it resets
            // its stream. Nothing of it is looked at afterwards.
            let polled = catch_unwind(AssertUnwindSafe(|| request.as_mut().poll(context)));
            if let Ok(Poll::Pending) = polled {
                // The task asks again, and is woken from then on.
                tokio::spawn(request);
            }
        }
        any
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Requests {
    fn execute(&self, request: F) {
        self.fresh.lock().push(Box::pin(request));
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").finish_non_exhaustive()
    }
}

/// A connection, the requests on it and what it writes, as one future.
#[derive(Debug)]
pub(crate) struct Turns<'a, C> {
    connection: Pin<&'a mut C>,
    requests: Requests,
    outbox: Outbox,
    bell: Arc<Bell>,
    waker: Waker,
}

impl<'a, C: Future> Turns<'a, C> {
    /// `connection` is to write into `outbox` and to execute its requests on `requests`.
    pub(crate) fn new(connection: Pin<&'a mut C>, requests: Requests, outbox: Outbox) -> Self {
        let bell = Arc::new(Bell::default());
        Self {
            connection,
            requests,
            outbox,
            waker: Waker::from(bell.clone()),
            bell,
        }
    }

    /// The connection alone.
    pub(crate) fn connection(&mut self) -> Pin<&mut C> {
        self.connection.as_mut()
    }
}

impl<C: Future> Future for Turns<'_, C> {
    type Output = C::Output;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<C::Output> {
        let turns = self.get_mut();
        turns.bell.hear(task.waker());
        let mut context = Context::from_waker(&turns.waker);
        for _ in 0..TURNS_MAX {
            turns.bell.mute();
            if let Poll::Ready(end) = turns.connection.as_mut().poll(&mut context) {
                // Its last words, if it has not closed the transport itself.
                turns.outbox.send(&mut context);
                return Poll::Ready(end);
            }
            if turns.requests.run(&mut context) {
                // Their answers are to be written.
                continue;
            }
            turns.outbox.send(&mut context);
            if turns.bell.unmute() {
                return Poll::Pending;
            }
        }
        turns.outbox.send(&mut context);
        task.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Wakes the task of a connection, but not while it is awake: most who ring are requests that the
/// task itself runs.
#[derive(Debug, Default)]
struct Bell {
    state: AtomicU8,
    /// A leaf lock: held to copy a waker, never while one is called.
    task: Mutex<Option<Waker>>,
}

/// The task sleeps, or is about to be woken by the runtime.
const AUDIBLE: u8 = 0;
/// The task is awake and has not been rung for.
const MUTE: u8 = 1;
/// The task is awake and has to look again.
const RUNG: u8 = 2;

impl Bell {
    fn hear(&self, waker: &Waker) {
        let mut task = self.task.lock();
        if !task.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *task = Some(waker.clone());
        }
    }

    fn mute(&self) {
        // Acquire: pairs with the Release in `wake_by_ref`. Whatever was done before a ring that is
        // forgotten here is seen by the look that follows.
        self.state.swap(MUTE, Ordering::Acquire);
    }

    /// Whether the task may sleep, because nobody rang.
    fn unmute(&self) -> bool {
        // Release: pairs with the Acquire in `wake_by_ref`, which then finds the waker. If somebody
        // rang, `mute` comes next.
        self.state
            .compare_exchange(MUTE, AUDIBLE, Ordering::Release, Ordering::Relaxed)
            .is_ok()
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(RUNG, Ordering::AcqRel) == AUDIBLE {
            let task = self.task.lock().clone();
            if let Some(task) = task {
                task.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, poll_fn, ready},
        pin::pin,
        sync::atomic::AtomicUsize,
        time::Duration,
    };

    use tokio::sync::oneshot;

    use super::*;
    use crate::{pings::Policed, transport::Transport};

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

    fn outbox() -> Outbox {
        let (ours, _theirs) = tokio::io::duplex(64);
        Outbox::new(Policed::new(
            Transport::Other(Box::new(ours)),
            Duration::ZERO,
        ))
    }

    /// Polls a connection once, which leaves these requests the first time; says how often it was
    /// asked.
    fn check_turns(left: Vec<Running>, expected: usize) {
        let requests = Requests::default();
        let asked = AtomicUsize::new(0);
        let mut left = Some(left);
        let connection = pin!(poll_fn(|_| -> Poll<()> {
            asked.fetch_add(1, Ordering::Relaxed);
            for request in left.take().into_iter().flatten() {
                requests.execute(request);
            }
            Poll::Pending
        }));
        let woken = Arc::new(Count::default());
        let waker = Waker::from(woken.clone());
        let turns = pin!(Turns::new(connection, requests.clone(), outbox()));
        assert!(turns.poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(asked.load(Ordering::Relaxed), expected);
        assert_eq!(woken.get(), 0);
    }

    #[tokio::test]
    async fn a_connection_is_asked_again_after_its_requests() {
        check_turns(Vec::new(), 1);
        check_turns(vec![Box::pin(ready(())), Box::pin(ready(()))], 2);
        // The second runs although the first panics.
        let (done, seen) = oneshot::channel();
        let second = async move { done.send(()).unwrap() };
        check_turns(
            vec![Box::pin(async { panic!("on purpose") }), Box::pin(second)],
            2,
        );
        seen.await.unwrap();
    }

    #[tokio::test]
    async fn a_request_that_waits_goes_on_in_a_task_of_its_own() {
        let (start, started) = oneshot::channel::<()>();
        let (done, seen) = oneshot::channel();
        let waits = async move {
            started.await.unwrap();
            done.send(()).unwrap();
        };
        check_turns(vec![Box::pin(waits), Box::pin(pending())], 2);
        start.send(()).unwrap();
        seen.await.unwrap();
    }

    #[tokio::test]
    async fn a_ring_wakes_a_task_that_sleeps_and_turns_one_that_does_not() {
        let woken = Arc::new(Count::default());
        let waker = Waker::from(woken.clone());
        let mut context = Context::from_waker(&waker);
        let (mut asked, mut inner) = (0, None);
        let connection = pin!(poll_fn(|context: &mut Context<'_>| -> Poll<()> {
            asked += 1;
            inner = Some(context.waker().clone());
            if asked == 1 {
                context.waker().wake_by_ref();
            }
            Poll::Pending
        }));
        {
            let mut turns = pin!(Turns::new(connection, Requests::default(), outbox()));
            assert!(turns.as_mut().poll(&mut context).is_pending());
            assert_eq!(woken.get(), 0);
            turns.waker.wake_by_ref();
            turns.waker.wake_by_ref();
            // Once is enough.
            assert_eq!(woken.get(), 1);
            assert!(turns.as_mut().poll(&mut context).is_pending());
        }
        assert_eq!(asked, 3);
    }

    #[tokio::test]
    async fn a_connection_that_never_rests_lets_others_run() {
        let woken = Arc::new(Count::default());
        let waker = Waker::from(woken.clone());
        let mut asked = 0;
        let connection = pin!(poll_fn(|context: &mut Context<'_>| -> Poll<()> {
            asked += 1;
            context.waker().wake_by_ref();
            Poll::Pending
        }));
        let polled = pin!(Turns::new(connection, Requests::default(), outbox()))
            .poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        assert_eq!((asked, woken.get()), (TURNS_MAX, 1));
    }
}
