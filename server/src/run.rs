//! The life of the `revstore` process between its configuration and its end.

use revstore_engine::Engine;
use revstore_host::{config::Warning, logging::Log};
use tokio::runtime;
use tracing::{info, warn};

use crate::{
    config::Config,
    data_dir,
    node::{self, Node, Sockets},
    signal::{Signals, StopSignal},
    start_error::StartError,
    version::{ETCD_VERSION, REVSTORE_VERSION},
};

/// Runs a server until a signal tells it to stop, beginning with what is odd about its
/// configuration. Open streams then end at once, and requests in flight get a second.
///
/// Takes over the SIGTERM and SIGINT of the process. To serve inside a program of your own, see
/// [`Server`](crate::Server).
///
/// # Errors
/// Something the server needs from the system is not to be had.
pub fn run(config: &Config, warnings: &[Warning]) -> Result<StopSignal, StartError> {
    let log = Log::open(&config.log)?;
    let _guard = log.install();
    info!(
        version = REVSTORE_VERSION,
        "etcd-version" = ETCD_VERSION,
        name = config.name,
        "starting revstore"
    );
    for warning in warnings {
        warn!("{warning}");
    }
    if let Some(path) = &config.data_dir {
        data_dir::create(path).map_err(|source| StartError::DataDir {
            path: path.clone(),
            source,
        })?;
    }
    let mut runtime = runtime::Builder::new_multi_thread();
    log.install_on_runtime(&mut runtime);
    let runtime = runtime
        .enable_all()
        .thread_name("revstore-worker")
        .build()
        .map_err(StartError::Runtime)?;
    let stopped = runtime.block_on(serve(config));
    // Nobody waits for a compaction that is still at work.
    runtime.shutdown_background();
    let stopped = stopped?;
    info!("stopped");
    Ok(stopped)
}

async fn serve(config: &Config) -> Result<StopSignal, StartError> {
    let mut signals = Signals::listen().map_err(StartError::Signals)?;
    let sockets = Sockets::bind(config)?;
    let engine = node::configure(Engine::builder(), config).build();
    let node = Node::new(config, sockets, engine);
    let shutdown = node.shutdown();
    let mut serving = std::pin::pin!(node.serve(()));
    let signal = tokio::select! {
        // It does not end by itself, unless every port failed; then only a signal is left.
        () = &mut serving => return Ok(signals.next().await),
        signal = signals.next() => signal,
    };
    info!(?signal, "stopping");
    shutdown.begin();
    serving.await;
    Ok(signal)
}
