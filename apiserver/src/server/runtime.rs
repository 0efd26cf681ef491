//! The runtime of a server.

use std::io;
use std::thread;

use tokio::runtime::{Builder, Handle, Runtime};

/// The maximum number of worker threads. A test has few clients, and many tests with one server each may run at the
/// same time.
const WORKERS_MAX: usize = 4;

/// A runtime that may be dropped in a thread of another one, and does not wait for its tasks then.
#[derive(Debug)]
pub(super) struct ServerRuntime(Option<Runtime>, Handle);

impl ServerRuntime {
    pub(super) fn start() -> io::Result<Self> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let runtime = Builder::new_multi_thread()
            .worker_threads(cores.min(WORKERS_MAX))
            .enable_all()
            .thread_name("apiserver-worker")
            .build()?;
        let handle = runtime.handle().clone();
        Ok(Self(Some(runtime), handle))
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.1
    }
}

impl Drop for ServerRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
