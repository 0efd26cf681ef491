//! Tasks of connections that run inside the calls that wake them.
//!
//! hyper has a task for each connection and, over HTTP/2, two and one for each call. A call hands its request from one to the
//! next, and the runtime wakes another thread for nearly each of these hand-offs, which takes longer than the work. So a task
//! that is woken inside of [`inline`] is polled at its end, by the same thread. A task that something else wakes, such as the
//! socket, runs as a task of the runtime, with the tasks that it wakes inside of it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use hyper::rt::Executor;
use parking_lot::Mutex;
use tokio::runtime::Handle;

/// The number of polls of tasks at the end of one poll. The runtime runs the remaining ones.
const POLLS_MAX: usize = 64;

type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

thread_local! {
    static WOKEN: RefCell<Woken> = RefCell::default();
    /// Whether the thread gives a task to the runtime.
    static IS_SPAWNING: Cell<bool> = const { Cell::new(false) };
}

/// The tasks that were woken inside of the poll that this thread is in.
#[derive(Default)]
struct Woken {
    /// Whether the thread is in such a poll.
    is_open: bool,
    tasks: VecDeque<Arc<InlineTask>>,
}

/// Runs a future, and the tasks that it wakes.
pub(super) async fn inline<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    poll_fn(|context| with_woken(|| future.as_mut().poll(context))).await
}

/// Executes the tasks of hyper's client as those of this module.
#[derive(Clone, Copy, Debug)]
pub(super) struct InlineExecutor;

impl Executor<BoxFuture> for InlineExecutor {
    fn execute(&self, future: BoxFuture) {
        let task = Arc::new(InlineTask {
            future: Mutex::new(Some(future)),
            is_queued: AtomicBool::new(false),
            is_wanted: AtomicBool::new(false),
            carrier: Mutex::default(),
            runtime: Handle::current(),
        });
        task.wake();
    }
}

/// Does some work, and then polls the tasks that it has woken, and those that they wake.
fn with_woken<T>(work: impl FnOnce() -> T) -> T {
    let is_outer = WOKEN.with_borrow_mut(|woken| !mem::replace(&mut woken.is_open, true));
    if !is_outer {
        return work();
    }
    // Also after a panic, those that are left are woken in the runtime.
    let _close = Close;
    let done = work();
    for _ in 0..POLLS_MAX {
        let Some(task) = WOKEN.with_borrow_mut(|woken| woken.tasks.pop_front()) else {
            break;
        };
        task.poll();
    }
    done
}

/// Ends the poll in which tasks are collected.
struct Close;

impl Drop for Close {
    fn drop(&mut self) {
        let mut left = WOKEN.with_borrow_mut(|woken| {
            woken.is_open = false;
            mem::take(&mut woken.tasks)
        });
        for task in left.drain(..) {
            // Acquire: as in `InlineTask::poll`.
            task.is_queued.swap(false, Ordering::Acquire);
            task.wake_carrier();
        }
        // Keeps the memory of the list.
        WOKEN.with_borrow_mut(|woken| woken.tasks = left);
    }
}

/// A task of a connection.
struct InlineTask {
    /// `None` after its end. Held while it is polled; only tried, so that no thread waits for it.
    future: Mutex<Option<BoxFuture>>,
    /// Whether it is in the list of a thread.
    is_queued: AtomicBool,
    /// Whether something happened that a poll has not seen.
    is_wanted: AtomicBool,
    /// A leaf lock, held to copy or to replace a waker.
    carrier: Mutex<Carrier>,
    runtime: Handle,
}

/// The task of the runtime that polls a task when something outside of [`inline`] wakes it.
#[derive(Default)]
enum Carrier {
    /// Nothing has done this yet.
    #[default]
    Absent,
    /// It was spawned, and has not run yet.
    Spawned,
    Waiting(Waker),
    /// The task has ended.
    Ended,
}

impl InlineTask {
    /// Polls the task, or lets the thread that polls it do so again.
    fn poll(self: &Arc<Self>) {
        // Acquire: pairs with the Release of a thread that has not queued the task because of this flag, so that the poll
        // sees why that thread wanted it.
        self.is_queued.swap(false, Ordering::Acquire);
        // Release: pairs with the Acquire below.
        self.is_wanted.store(true, Ordering::Release);
        loop {
            // Of two threads, of which one has set the flag before this and the other has released the lock, the first
            // gets the lock or the second sees the flag.
            fence(Ordering::SeqCst);
            if !self.is_wanted.load(Ordering::Relaxed) {
                break;
            }
            let Some(mut future) = self.future.try_lock() else {
                return;
            };
            self.is_wanted.swap(false, Ordering::Acquire);
            let Some(running) = &mut *future else {
                return;
            };
            let waker = Waker::from(self.clone());
            let mut context = Context::from_waker(&waker);
            // A panic ends only this task, as in a task of the runtime.
            let polled = catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(&mut context)));
            if let Ok(Poll::Pending) = polled {
                continue;
            }
            let ended = future.take();
            drop(future);
            drop(ended);
            let carrier = mem::replace(&mut *self.carrier.lock(), Carrier::Ended);
            if let Carrier::Waiting(waker) = carrier {
                waker.wake();
            }
            return;
        }
        // The runtime may have dropped the carrier in the meantime.
        if matches!(*self.carrier.lock(), Carrier::Ended) {
            self.close();
        }
    }

    /// Drops the future, unless a thread polls it.
    fn close(&self) {
        let future = self.future.try_lock().and_then(|mut future| future.take());
        drop(future);
    }

    /// Lets the runtime poll the task.
    fn wake_carrier(self: &Arc<Self>) {
        let waker = {
            let mut carrier = self.carrier.lock();
            match &*carrier {
                Carrier::Absent => {
                    *carrier = Carrier::Spawned;
                    None
                }
                Carrier::Waiting(waker) => Some(waker.clone()),
                Carrier::Spawned | Carrier::Ended => return,
            }
        };
        if let Some(waker) = waker {
            waker.wake();
        } else {
            IS_SPAWNING.set(true);
            drop(self.runtime.spawn(Carried(self.clone())));
            IS_SPAWNING.set(false);
        }
    }
}

impl Wake for InlineTask {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let is_queued = WOKEN.try_with(|woken| {
            let mut woken = woken.borrow_mut();
            if woken.is_open && !self.is_queued.swap(true, Ordering::AcqRel) {
                woken.tasks.push_back(self.clone());
            }
            woken.is_open
        });
        // A thread that ends has no list.
        if !is_queued.unwrap_or_default() {
            self.wake_carrier();
        }
    }
}

/// Polls a task in the runtime. When the runtime drops it, the task ends, which closes its connection.
struct Carried(Arc<InlineTask>);

impl Future for Carried {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let task = &self.0;
        {
            let mut carrier = task.carrier.lock();
            match &*carrier {
                Carrier::Ended => return Poll::Ready(()),
                Carrier::Waiting(known) if known.will_wake(context.waker()) => {}
                _ => *carrier = Carrier::Waiting(context.waker().clone()),
            }
        }
        with_woken(|| task.poll());
        if matches!(&*task.carrier.lock(), Carrier::Ended) {
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        let carrier = mem::replace(&mut *self.0.carrier.lock(), Carrier::Ended);
        if IS_SPAWNING.get() {
            // A runtime that has ended drops at once what it is given. Who wakes a task may hold a lock of h2, which the end of
            // the task takes, too, so another thread ends it. Without one, its connection stays open.
            let task = self.0.clone();
            let closing = thread::Builder::new().name("webhook-close".to_owned());
            let _ = closing.spawn(move || task.close());
        } else {
            // A thread that polls the future at this time drops it.
            self.0.close();
        }
        drop(carrier);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc as blocking;
    use std::time::Duration;

    use tokio::runtime::Builder;
    use tokio::sync::{Notify, mpsc, oneshot};

    use super::*;

    fn execute(future: impl Future<Output = ()> + Send + 'static) {
        InlineExecutor.execute(Box::pin(future));
    }

    /// Polls a future once, inside of [`inline`].
    fn poll_inline<T>(future: impl Future<Output = T>) -> Poll<T> {
        let future = pin!(inline(future));
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[tokio::test]
    async fn tasks_run_at_the_end_of_the_poll_that_wakes_them() {
        let (first, mut second) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        let (requests, mut received) = first;
        let (forward, answers) = (second.0, &mut second.1);
        let (done, mut is_done) = oneshot::channel();
        let polled = poll_inline(async {
            execute(async move {
                while let Some(request) = received.recv().await {
                    forward.send(request).unwrap();
                }
                done.send(()).unwrap();
            });
        });
        assert!(polled.is_ready());
        for number in 0..3 {
            assert!(poll_inline(async { requests.send(number) }).is_ready());
            assert_eq!(answers.try_recv(), Ok(number));
        }
        assert!(is_done.try_recv().is_err());
        drop(requests);
        // The last wake-up came from outside, so the runtime runs the task.
        is_done.await.unwrap();
    }

    #[tokio::test]
    async fn a_task_ends_alone_by_a_panic_and_with_more_polls_than_one_call_makes() {
        let (done, is_done) = oneshot::channel();
        let polled = poll_inline(async {
            execute(async { panic!("on purpose") });
            execute(async move {
                for _ in 0..3 * POLLS_MAX {
                    yield_in_place().await;
                }
                done.send(()).unwrap();
            });
        });
        assert!(polled.is_ready());
        is_done.await.unwrap();
    }

    async fn yield_in_place() {
        let mut has_yielded = false;
        poll_fn(|context| {
            if mem::replace(&mut has_yielded, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    #[test]
    fn wake_ups_from_several_threads_are_not_lost() {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_time()
            .build()
            .unwrap();
        let calls = async {
            let mut callers = Vec::new();
            let (requests, mut received) = mpsc::unbounded_channel::<oneshot::Sender<()>>();
            execute(async move {
                while let Some(request) = received.recv().await {
                    request.send(()).unwrap();
                }
            });
            for number in 0..4 {
                let requests = requests.clone();
                callers.push(tokio::spawn(async move {
                    for _ in 0..2_000 {
                        let (request, answered) = oneshot::channel();
                        let call = async {
                            requests.send(request).unwrap();
                            answered.await.unwrap();
                        };
                        // Some of them wake the task from outside.
                        if number == 0 {
                            call.await;
                        } else {
                            inline(call).await;
                        }
                    }
                }));
            }
            for caller in callers {
                caller.await.unwrap();
            }
        };
        let calls = runtime.spawn(calls);
        let ended =
            runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), calls).await });
        ended.unwrap().unwrap();
    }

    #[test]
    fn tasks_end_with_their_runtime() {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap();
        let held = Arc::new(Notify::new());
        let start = |is_woken: bool| {
            let (held, notified) = (held.clone(), held.clone());
            runtime.block_on(async move {
                let begun = poll_inline(async {
                    execute(async move {
                        loop {
                            notified.notified().await;
                        }
                    });
                });
                assert!(begun.is_ready());
                if is_woken {
                    held.notify_waiters();
                }
            });
        };
        start(false);
        start(true);
        drop(runtime);
        // Wakes those that have no task in the runtime yet.
        held.notify_waiters();
        for _ in 0..100 {
            if Arc::strong_count(&held) == 1 {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("{} tasks are left", Arc::strong_count(&held) - 1);
    }

    /// As h2 does: wakes a task under a lock that the end of this task takes, too.
    #[test]
    fn a_task_may_be_woken_under_a_lock_that_its_end_takes() {
        #[derive(Default)]
        struct Connection(Mutex<Option<Waker>>);
        struct EndOfConnection(Arc<Connection>);
        impl Drop for EndOfConnection {
            fn drop(&mut self) {
                if let Some(waker) = &*self.0.0.lock() {
                    waker.wake_by_ref();
                }
            }
        }
        struct Call(Arc<Connection>, blocking::Sender<()>);
        impl Drop for Call {
            fn drop(&mut self) {
                let _waker = self.0.0.lock().take();
                let _ = self.1.send(());
            }
        }
        let (sender, ended) = blocking::channel();
        let runtime = Builder::new_multi_thread().worker_threads(1).build();
        let runtime = runtime.unwrap();
        let connection = Arc::new(Connection::default());
        let (end, call) = (
            EndOfConnection(connection.clone()),
            Call(connection, sender),
        );
        runtime.block_on(async {
            // The runtime has this one.
            tokio::spawn(async move {
                let _end = end;
                std::future::pending::<()>().await;
            });
            // It was never woken from outside.
            let begun = poll_inline(async {
                execute(poll_fn(move |context| {
                    *call.0.0.lock() = Some(context.waker().clone());
                    Poll::Pending
                }));
            });
            assert!(begun.is_ready());
        });
        thread::spawn(move || drop(runtime));
        ended.recv_timeout(Duration::from_secs(60)).unwrap();
    }
}
