//! Clients that measure how long small requests take while a server works on something else.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::BoxError;
use crate::client::LoadResult;

/// The pause of a bystander between two requests.
pub(crate) const PAUSE: Duration = Duration::from_millis(1);

/// The time between two looks at the memory of the server.
pub(crate) const MEMORY_INTERVAL: Duration = Duration::from_millis(20);

/// Runs a client on a thread and a runtime of its own, so that it does not wait for the clients of the load.
pub(crate) fn start(
    client: impl Future<Output = Result<LoadResult, BoxError>> + Send + 'static,
) -> JoinHandle<io::Result<Result<LoadResult, BoxError>>> {
    tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        Ok(runtime.block_on(client))
    })
}

/// Returns the cells of a table: the median, 99 %, 99.9 % and the maximum.
pub(crate) fn cells(result: &LoadResult) -> String {
    let mut cells = String::new();
    for per_mille in [500, 990, 999, 1_000] {
        let milliseconds = result.quantile(per_mille).as_secs_f64() * 1e3;
        // Writing to a `String` does not fail.
        let _ = write!(cells, " {milliseconds:.1} ms |");
    }
    cells
}
