//! The lifecycle of the process: start, signals, shutdown.

use std::convert::Infallible;
use std::future;
use std::io::{self, Write};
use std::pin::pin;
use std::time::{Duration, Instant};

use revstore_host::stdin;
use signal_hook::consts::SIGINT;
use signal_hook::low_level::emulate_default_handler;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::announcement::Announcement;
use crate::config::{CommandLine, Config};
use crate::hosting::{Host, HostedServer, Hosting, HostingError};
use crate::server::{ApiServer, StartError};
use crate::storage::EtcdError;

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
    /// Ends the process: with status 0 after SIGTERM, as kube-apiserver does, and the end of standard input, and by the signal after SIGINT.
    pub fn exit(self) -> ! {
        if self == Self::Interrupt && std::process::id() != 1 {
            // Returns only if it has failed. The process then exits below.
            let _ = emulate_default_handler(SIGINT);
        }
        std::process::exit(0)
    }
}

/// The pause before a server whose etcd has ended is started again.
const RESTART_PAUSE: Duration = Duration::from_millis(100);
/// The time for which such a server waits for its port, which the ended process may still have.
const PORT_LIMIT: Duration = Duration::from_secs(5);

/// Runs a server until SIGTERM or SIGINT arrives, and returns the signal. Prints one line when the server is ready. With
/// [`exit_with_stdin`](Config::exit_with_stdin) the end of standard input is also a signal.
///
/// # Errors
/// A resource that the server needs is not available: a port, a file, threads.
pub fn run(config: Config, warnings: &[String]) -> Result<StopSignal, StartError> {
    run_as(config, warnings, None)
}

/// Runs the server of a process in the place of kube-apiserver as [`run`](fn@run) does. If its etcd is a process of
/// [`run_etcd`](fn@run_etcd), of the same user and with the same working directory, the server runs there, over its store.
/// This process then waits for a signal. If that etcd ends, it serves itself, over the network, as soon as there is an etcd again.
///
/// The configuration is that of the command line.
///
/// # Errors
/// As [`run`](fn@run).
pub fn run_in_place(
    config: Config,
    warnings: &[String],
    command_line: &CommandLine,
) -> Result<StopSignal, StartError> {
    run_as(config, warnings, Some(command_line))
}

/// Runs an etcd as [`revstore::run`] does. It also runs the servers of processes in the place of kube-apiserver whose etcd it
/// is, see [`run_in_place`](fn@run_in_place).
///
/// # Errors
/// As [`revstore::run`].
pub fn run_etcd(
    config: &revstore::Config,
    warnings: &[String],
) -> Result<revstore::StopSignal, revstore::StartError> {
    revstore::run_with(config, warnings, |store| Host::start(&store))
}

fn run_as(
    config: Config,
    warnings: &[String],
    guest: Option<&CommandLine>,
) -> Result<StopSignal, StartError> {
    for warning in warnings {
        warn(warning);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(StartError::Runtime)?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).map_err(StartError::Runtime)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(StartError::Runtime)?;
        let input_end = config.exit_with_stdin.then(stdin::ended).transpose();
        let input_end = input_end.map_err(StartError::Runtime)?;
        let mut signals = pin!(first_of(&mut terminate, &mut interrupt, input_end));
        let Some(command_line) = guest else {
            return serve(config, &mut signals).await;
        };
        match serve_hosted(&config, command_line, &mut signals).await? {
            Hosted::Stopped(signal) => Ok(signal),
            Hosted::Not => serve(config, &mut signals).await,
            Hosted::Ended => serve_after_end(config, &mut signals).await,
        }
    })
}

fn warn(warning: &str) {
    let _ = writeln!(io::stderr(), "warning: {warning}");
}

/// How the attempt to let the etcd run the server has ended.
enum Hosted {
    /// By a signal.
    Stopped(StopSignal),
    /// The etcd does not run it.
    Not,
    /// The etcd has run it, and has ended.
    Ended,
}

async fn serve_hosted(
    config: &Config,
    command_line: &CommandLine,
    signals: &mut (impl Future<Output = StopSignal> + Unpin),
) -> Result<Hosted, StartError> {
    let hosting = tokio::select! {
        hosting = HostedServer::request(config, command_line) => hosting,
        signal = &mut *signals => return Ok(Hosted::Stopped(signal)),
    };
    let mut server = match hosting {
        Hosting::Accepted(server) => server,
        Hosting::Declined(reason) => {
            warn(&format!("the etcd does not run the server: {reason}"));
            return Ok(Hosted::Not);
        }
        Hosting::Absent => return Ok(Hosted::Not),
    };
    let hosted = async {
        server.started().await?.print();
        server.ended().await;
        Err::<Infallible, _>(HostingError::Ended)
    };
    tokio::select! {
        Err(error) = hosted => match error {
            HostingError::Failed(reason) => Err(StartError::Hosted(reason)),
            HostingError::Ended => {
                warn("the etcd that has run the server has ended; it goes on in this process");
                Ok(Hosted::Ended)
            }
        },
        signal = &mut *signals => {
            server.stop().await;
            Ok(Hosted::Stopped(signal))
        }
    }
}

/// Serves as soon as there is an etcd again.
async fn serve_after_end(
    config: Config,
    signals: &mut (impl Future<Output = StopSignal> + Unpin),
) -> Result<StopSignal, StartError> {
    let ended = Instant::now();
    loop {
        match serve(config.clone(), signals).await {
            Err(StartError::EtcdCluster(EtcdError::NotAvailable(_))) => {}
            Err(StartError::Bind(error)) if error.is_in_use() && ended.elapsed() < PORT_LIMIT => {}
            result => return result,
        }
        tokio::select! {
            () = tokio::time::sleep(RESTART_PAUSE) => {}
            signal = &mut *signals => return Ok(signal),
        }
    }
}

/// Serves in this process.
async fn serve(
    config: Config,
    signals: &mut (impl Future<Output = StopSignal> + Unpin),
) -> Result<StopSignal, StartError> {
    let shutdown_delay = config.shutdown_delay;
    // A start may wait for an etcd cluster.
    let (stop, stopped) = oneshot::channel::<()>();
    let builder = ApiServer::builder().config(config);
    let mut start = tokio::task::spawn_blocking(move || {
        builder.start_until(async {
            // Ends when the sender is dropped. No message is sent.
            let _ = stopped.await;
        })
    });
    let started = tokio::select! {
        started = &mut start => started,
        signal = &mut *signals => {
            drop(stop);
            // A server that has started just now stops when it is dropped.
            drop(start.await);
            return Ok(signal);
        }
    };
    let server = started.map_err(|error| StartError::Runtime(error.into()))??;
    Announcement::of(&server).print();
    let signal = signals.await;
    server.begin_stop();
    // For load balancers, which need some time to notice the stop.
    tokio::time::sleep(shutdown_delay).await;
    server.stop_async().await;
    Ok(signal)
}

/// Returns the first signal. `input_end` is ready when standard input has ended.
async fn first_of(
    terminate: &mut Signal,
    interrupt: &mut Signal,
    input_end: Option<impl Future<Output = ()>>,
) -> StopSignal {
    let input_end = async {
        match input_end {
            Some(ended) => ended.await,
            None => future::pending().await,
        }
    };
    tokio::select! {
        _ = terminate.recv() => StopSignal::Terminate,
        _ = interrupt.recv() => StopSignal::Interrupt,
        () = input_end => StopSignal::InputEnd,
    }
}
