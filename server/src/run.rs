//! The lifecycle of the `revstore` process: logging, start, signals, shutdown.

use std::{
    future, io,
    io::Write as _,
    path::Path,
    pin::{Pin, pin},
    process,
};

use revstore_engine::Engine;
use revstore_host::{
    logging::Logger,
    net::{EndpointUrl, Listener},
    panics, stdin,
};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    low_level::emulate_default_handler,
};
use tokio::{
    runtime,
    signal::unix::{Signal, SignalKind, signal},
};
use tracing::{info, warn};

use crate::{
    config::{Config, ControlConfig},
    local_store::LocalStore,
    node::{self, ServingNode, Sockets},
    persist::Store,
    start_error::StartError,
    systemd,
    version::{ETCD_VERSION, REVSTORE_VERSION},
};

/// Runs a server until SIGTERM or SIGINT arrives, and returns the signal. `warnings` are logged at start. With
/// [`exit_with_stdin`](Config::exit_with_stdin) the end of standard input is also a signal.
///
/// After a signal, open streams end immediately, watches after the events of all acknowledged revisions (for which
/// they have 500 ms), and requests in flight have 1 second to complete. The
/// default actions of both signals are replaced for the whole process. To run a server inside another
/// program, use [`Server`](crate::Server).
///
/// # Errors
/// A resource that the server needs is not available: a port, a file, threads.
pub fn run(config: &Config, warnings: &[String]) -> Result<StopSignal, StartError> {
    run_with(config, warnings, |_| ())
}

/// Runs a server as [`run`](fn@run) does, and with it what `beside` returns, which is dropped when the server begins to stop.
/// It is called in the runtime of the server when all ports are bound, before the first request is served. It is not
/// called for a server with a journal, control or limits of writes, whose store is changed only by its requests.
///
/// # Errors
/// As [`run`](fn@run).
pub fn run_with<T>(
    config: &Config,
    warnings: &[String],
    beside: impl FnOnce(LocalStore) -> T,
) -> Result<StopSignal, StartError> {
    let log = Logger::open(&config.log)?;
    let _guard = log.install();
    panics::install_hook(&log);
    info!(
        version = REVSTORE_VERSION,
        "etcd-version" = ETCD_VERSION,
        name = config.name,
        "starting revstore"
    );
    for warning in warnings {
        warn!("{warning}");
    }
    let mut runtime = runtime::Builder::new_multi_thread();
    log.install_on_runtime(&mut runtime);
    let runtime = runtime
        .enable_all()
        .thread_name("revstore-worker")
        .build()
        .map_err(StartError::Runtime)?;
    let stopped = runtime.block_on(serve(config, beside));
    // The process does not wait for a running compaction.
    runtime.shutdown_background();
    let stopped = stopped?;
    log_end(config, "closed etcd server");
    Ok(stopped)
}

async fn serve<T>(
    config: &Config,
    beside: impl FnOnce(LocalStore) -> T,
) -> Result<StopSignal, StartError> {
    let mut signals = Signals::install(config.exit_with_stdin).map_err(StartError::Signals)?;
    let sockets = Sockets::bind(config, None)?;
    let addresses = sockets.plain_client_addresses();
    let ready_line = config.exit_with_stdin.then(|| ready_line(&sockets));
    let clock = config.control.as_ref().map(ControlConfig::new_clock);
    let engine = match &clock {
        Some(clock) => Engine::builder().clock(clock.clone()),
        None => Engine::builder(),
    };
    let store = Store::open(config, node::configure(engine, config)?)?;
    let node = ServingNode::new(config, sockets, &store, clock);
    drop(store);
    let journal = node.journal();
    let control = node.control();
    let shutdown = node.shutdown();
    let beside = node.local_store(config, addresses).map(beside);
    let on_ready = || {
        systemd::notify_ready();
        if let Some(line) = ready_line {
            // Nobody may read it.
            let _ = io::stdout().write_all(line.as_bytes());
            let _ = io::stdout().flush();
        }
    };
    let mut serving = pin!(node.serve((), on_ready));
    let signal = tokio::select! {
        // Serving ends without a signal only if every port has failed. The process then waits for a signal.
        () = &mut serving => {
            let signal = signals.next().await;
            if let Some(journal) = journal {
                journal.close();
            }
            return Ok(signal);
        }
        signal = signals.next() => signal,
    };
    info!(signal = signal.text(), "received signal; shutting down");
    log_end(config, "closing etcd server");
    systemd::notify_stopping();
    drop(beside);
    shutdown.begin();
    serving.await;
    if let Some(control) = control {
        // Waits for the ends of forks.
        let _ = tokio::task::spawn_blocking(move || control.close()).await;
    }
    // Nothing else runs in the runtime that this could delay.
    if let Some(journal) = journal {
        journal.close();
    }
    Ok(signal)
}

/// Returns the line for the process that has started this one.
fn ready_line(sockets: &Sockets) -> String {
    let client = sockets.clients().first().map(Listener::endpoint);
    let mut line = format!("revstore ready {}", client.unwrap_or_default());
    if let Some(control) = sockets.control_endpoint() {
        line.push(' ');
        line.push_str(&control);
    }
    line.push('\n');
    line
}

/// Logs the beginning or the end of a stop.
fn log_end(config: &Config, message: &str) {
    let texts = |urls: &[EndpointUrl]| -> Vec<_> { urls.iter().map(ToString::to_string).collect() };
    let data_dir = config.data_dir.as_deref().unwrap_or(Path::new(""));
    info!(
        name = config.name,
        "data-dir" = %data_dir.display(),
        "advertise-peer-urls" = ?texts(&config.advertise_peer_urls),
        "advertise-client-urls" = ?texts(&config.advertise_client_urls),
        "{message}"
    );
}

/// The signal that stopped a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the process should exit by this signal, so that its parent sees it"]
pub enum StopSignal {
    /// SIGTERM.
    Terminate,
    /// SIGINT.
    Interrupt,
    /// The end of standard input, with [`Config::exit_with_stdin`].
    InputEnd,
}

impl StopSignal {
    /// Returns Go's name of the signal.
    fn text(self) -> &'static str {
        match self {
            Self::Terminate => "terminated",
            Self::Interrupt => "interrupt",
            Self::InputEnd => "end of standard input",
        }
    }

    /// Ends the process with this signal, so that its parent sees the signal: a shell reports status 143 or
    /// 130. Process 1 of a container cannot end itself with a signal, and exits with status 0, as after the end of
    /// standard input.
    pub fn exit_by_signal(self) -> ! {
        // FL-14.
        let number = match self {
            Self::Terminate => Some(SIGTERM),
            Self::Interrupt => Some(SIGINT),
            Self::InputEnd => None,
        };
        if let Some(number) = number.filter(|_| process::id() != 1) {
            // Returns only if it has failed. The process then exits below.
            let _ = emulate_default_handler(number);
        }
        process::exit(0)
    }
}

/// The handlers of the signals that stop a server. Other signals have their default actions.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// Never ready if the end of standard input is not a signal.
    input_end: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Signals {
    /// Replaces the default actions of the signals. Must run inside a runtime.
    fn install(exit_with_stdin: bool) -> io::Result<Self> {
        Ok(Self {
            input_end: if exit_with_stdin {
                Box::pin(stdin::ended()?)
            } else {
                Box::pin(future::pending())
            },
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> StopSignal {
        tokio::select! {
            _ = self.terminate.recv() => StopSignal::Terminate,
            _ = self.interrupt.recv() => StopSignal::Interrupt,
            () = &mut self.input_end => StopSignal::InputEnd,
        }
    }
}
