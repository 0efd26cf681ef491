//! Long evaluations of expressions in CEL, beside other tasks.

use tokio::runtime::{Handle, RuntimeFlavor};

/// The cost of expressions for one request that are evaluated in the thread of the task: some milliseconds. What costs
/// more is evaluated while other threads take the other tasks.
pub(crate) const WORKER_COST_MAX: u64 = 30_000;

/// Runs long work in this thread, which leaves its other tasks to another thread of the runtime.
pub(crate) fn beside_tasks<T>(work: impl FnOnce() -> T) -> T {
    let flavor = Handle::try_current().map(|handle| handle.runtime_flavor());
    match flavor {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        // There is no other thread.
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_tasks_run_beside_long_work() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap();
        let (done, wait) = std::sync::mpsc::channel();
        runtime.block_on(async {
            let long = tokio::spawn(async move { beside_tasks(move || wait.recv()) });
            // The only worker waits for this task.
            tokio::spawn(async move { done.send(()).unwrap() });
            long.await.unwrap().unwrap();
        });
        assert_eq!(beside_tasks(|| 1), 1);
    }
}
