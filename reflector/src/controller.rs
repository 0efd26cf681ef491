//! The controller: workers that reconcile the keys of a work queue.
//!
//! Corresponds to the worker loop of client-go's controllers, and to `Controller` of kube-rs and
//! controller-runtime.

use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::FutureExt as _;
use futures_util::future::join_all;

use crate::work_queue::WorkQueue;

/// What a controller does with a key after it was reconciled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Nothing, until the key is added again. Its pauses are reset.
    Done,
    /// Adds the key again after this time. Its pauses are reset.
    RequeueAfter(Duration),
    /// Adds the key again after the pause of the queue's limits, as after an error.
    Requeue,
}

/// The reason why a key is reconciled again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReconcileError<E> {
    /// The function returned this error.
    Failed(E),
    /// The function panicked with this message.
    Panicked(String),
}

impl<E: fmt::Display> fmt::Display for ReconcileError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => error.fmt(f),
            Self::Panicked(message) => write!(f, "the reconciliation panicked: {message}"),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for ReconcileError<E> {}

type ReconcileFn<K, E> = dyn Fn(K) -> BoxFuture<'static, Result<Action, E>> + Send + Sync;
type ErrorFn<K, E> = dyn Fn(&K, &ReconcileError<E>) + Send + Sync;

/// Workers that take the keys of a [`WorkQueue`] and call a function for each.
///
/// The function reads the state of the object with the key, for example from the store of an
/// [`Informer`](crate::Informer), and brings the world closer to it. It receives no events: it is
/// called at least once after each change, and one call may cover several changes. No two workers
/// process the same key at a time.
///
/// After an error or a panic the key is added again after a pause
/// ([`RateLimits`](crate::work_queue::RateLimits)), which grows until the function succeeds. A panic
/// ends neither the worker nor the controller.
///
/// A controller ends when its queue is shut down and all its keys are processed.
///
/// ```
/// use pollster::block_on;
/// use revstore_reflector::{Action, Controller, WorkQueue};
///
/// let queue = WorkQueue::new();
/// let stop = queue.clone();
/// queue.add("ns/a");
/// let controller = Controller::new(queue, move |key: &str| {
///     assert_eq!(key, "ns/a");
///     stop.shut_down();
///     async { Ok::<_, std::io::Error>(Action::Done) }
/// });
/// block_on(controller.run());
/// ```
pub struct Controller<K: Send + 'static, E> {
    queue: WorkQueue<K>,
    reconcile: Arc<ReconcileFn<K, E>>,
    on_error: Option<Arc<ErrorFn<K, E>>>,
    workers: usize,
}

/// The threads of a controller, created by [`Controller::spawn`]. Dropping it shuts the queue down, and
/// waits until all its keys are processed.
#[must_use = "dropping it ends the controller"]
pub struct ControllerThreads<K: Clone + Eq + Hash + Send + 'static> {
    queue: WorkQueue<K>,
    threads: Vec<JoinHandle<()>>,
}

impl<K: Send + 'static, E> Clone for Controller<K, E> {
    fn clone(&self) -> Self {
        Self {
            queue: self.queue.clone(),
            reconcile: self.reconcile.clone(),
            on_error: self.on_error.clone(),
            workers: self.workers,
        }
    }
}

impl<K: Clone + Eq + Hash + Send + 'static, E> fmt::Debug for Controller<K, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("queue", &self.queue)
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

impl<K: Clone + Eq + Hash + Send + 'static> fmt::Debug for ControllerThreads<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerThreads")
            .field("queue", &self.queue)
            .field("threads", &self.threads.len())
            .finish()
    }
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static, E: Send + 'static> Controller<K, E> {
    /// Creates a controller with one worker that calls `reconcile` for the keys of `queue`.
    pub fn new<F>(queue: WorkQueue<K>, reconcile: impl Fn(K) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Action, E>> + Send + 'static,
    {
        Self {
            queue,
            reconcile: Arc::new(move |key| Box::pin(reconcile(key))),
            on_error: None,
            workers: 1,
        }
    }

    /// Sets the number of workers, at least 1.
    #[must_use]
    pub fn workers(self, workers: usize) -> Self {
        Self {
            workers: workers.max(1),
            ..self
        }
    }

    /// Sets a function that is called with each failure, before the key is added again. If it panics,
    /// that is ignored.
    #[must_use]
    pub fn on_error(
        self,
        handler: impl Fn(&K, &ReconcileError<E>) + Send + Sync + 'static,
    ) -> Self {
        Self {
            on_error: Some(Arc::new(handler)),
            ..self
        }
    }

    /// Runs all workers in the current task, until the queue is shut down and all its keys are
    /// processed. They wait at the same time, and compute one after the other.
    pub async fn run(self) {
        join_all((0..self.workers).map(|_| self.clone().work())).await;
    }

    /// Runs one worker. A program spawns this future once for each worker, on its own executor.
    pub async fn work(self) {
        while let Some(claim) = self.queue.next().await {
            self.process(claim.clone()).await;
            drop(claim);
        }
    }

    /// Runs each worker on a thread of its own.
    ///
    /// # Panics
    /// If the operating system cannot create a thread.
    pub fn spawn(self) -> ControllerThreads<K> {
        let threads = (0..self.workers).map(|_| {
            let worker = self.clone().work();
            std::thread::Builder::new()
                .name("revstore-worker".into())
                .spawn(move || pollster::block_on(worker))
                .expect("the operating system creates a thread")
        });
        ControllerThreads {
            threads: threads.collect(),
            queue: self.queue,
        }
    }

    async fn process(&self, key: K) {
        // The function itself may panic, not only its future.
        let reconciled = async { (self.reconcile)(key.clone()).await };
        let error = match AssertUnwindSafe(reconciled).catch_unwind().await {
            Ok(Ok(Action::Done)) => return self.queue.forget(&key),
            Ok(Ok(Action::RequeueAfter(delay))) => {
                self.queue.forget(&key);
                return self.queue.add_after(key, delay);
            }
            Ok(Ok(Action::Requeue)) => return self.queue.add_rate_limited(key),
            Ok(Err(error)) => ReconcileError::Failed(error),
            Err(panic) => ReconcileError::Panicked(panic_message(&*panic)),
        };
        if let Some(handler) = &self.on_error {
            // The panic hook has reported a panic.
            let _ = std::panic::catch_unwind(AssertUnwindSafe(|| handler(&key, &error)));
        }
        self.queue.add_rate_limited(key);
    }
}

impl<K: Clone + Eq + Hash + Send + 'static> Drop for ControllerThreads<K> {
    fn drop(&mut self) {
        self.queue.shut_down();
        for thread in self.threads.drain(..) {
            // A worker does not panic.
            let _ = thread.join();
        }
    }
}

/// Returns the message of a panic.
fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a value that is no text")
        .to_owned()
}
