//! Long compilations and evaluations of expressions in CEL, beside other tasks.

use revstore_watch_cache::registry::JsonObject;
use serde_json::Value;
use tokio::runtime::{Handle, RuntimeFlavor};

/// The cost of expressions for one request that are evaluated in the thread of the task: some milliseconds. What costs
/// more is evaluated while other threads take the other tasks.
pub(crate) const WORKER_COST_MAX: u64 = 30_000;

/// The bytes of expressions that are compiled in the thread of the task: about a millisecond.
const WORKER_SOURCE_BYTES_MAX: usize = 16 * 1024;

/// Compiles the expressions of an object, beside other tasks if its texts are long.
pub(crate) fn compile<T>(object: Option<&JsonObject>, work: impl FnOnce() -> T) -> T {
    let length: usize = object
        .into_iter()
        .flatten()
        .map(|(_, value)| bytes(value))
        .sum();
    if length > WORKER_SOURCE_BYTES_MAX {
        return beside_tasks(work);
    }
    work()
}

/// Returns the length of all texts in a value.
fn bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(bytes).sum(),
        Value::Object(fields) => fields.values().map(bytes).sum(),
        _ => 0,
    }
}

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
    use std::sync::mpsc::{Receiver, channel};

    use serde_json::json;

    use super::*;

    /// Runs a task that waits for what another one sends, which waits for the only worker.
    fn run_beside(long: impl FnOnce(Receiver<()>) + Send + 'static) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap();
        let (done, wait) = channel();
        runtime.block_on(async {
            let long = tokio::spawn(async move { long(wait) });
            tokio::spawn(async move { done.send(()).unwrap() });
            long.await.unwrap();
        });
    }

    #[test]
    fn other_tasks_run_beside_long_work() {
        run_beside(|wait| beside_tasks(|| wait.recv().unwrap()));
        assert_eq!(beside_tasks(|| 1), 1);
    }

    #[test]
    fn other_tasks_run_beside_long_compilations() {
        run_beside(|wait| {
            let spec =
                json!({"validations": [{"expression": "x".repeat(WORKER_SOURCE_BYTES_MAX + 1)}]});
            compile(spec.as_object(), || wait.recv().unwrap());
        });
        assert_eq!(compile(None, || 1), 1);
    }
}
