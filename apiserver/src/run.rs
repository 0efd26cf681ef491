//! The lifecycle of the process: start, signals, shutdown.

use std::future;
use std::io::{self, Write};
use std::pin::pin;

use revstore_host::stdin;
use signal_hook::consts::SIGINT;
use signal_hook::low_level::emulate_default_handler;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::config::Config;
use crate::server::{ApiServer, StartError};

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

/// Runs a server until SIGTERM or SIGINT arrives, and returns the signal. Prints one line when the server is ready. With
/// [`exit_with_stdin`](Config::exit_with_stdin) the end of standard input is also a signal.
///
/// # Errors
/// A resource that the server needs is not available: a port, a file, threads.
pub fn run(config: Config, warnings: &[String]) -> Result<StopSignal, StartError> {
    let mut stderr = io::stderr();
    for warning in warnings {
        let _ = writeln!(stderr, "warning: {warning}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(StartError::Runtime)?;
    let (shutdown_delay, exit_with_stdin) = (config.shutdown_delay, config.exit_with_stdin);
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).map_err(StartError::Runtime)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(StartError::Runtime)?;
        let input_end = exit_with_stdin.then(stdin::ended).transpose();
        let input_end = input_end.map_err(StartError::Runtime)?;
        let mut signals = pin!(first_of(&mut terminate, &mut interrupt, input_end));
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
            signal = &mut signals => {
                drop(stop);
                // A server that has started just now stops when it is dropped.
                drop(start.await);
                return Ok(signal);
            }
        };
        let server = started.map_err(|error| StartError::Runtime(error.into()))??;
        if server.is_open() {
            let _ = writeln!(
                stderr,
                "plain HTTP on {}: requests without a token are those of an administrator",
                server.endpoint()
            );
        }
        for endpoint in server.etcd_endpoints() {
            let _ = writeln!(stderr, "etcd's API on {endpoint}");
        }
        let mut ready = format!(
            "revstore-apiserver ready {} {}",
            server.endpoint(),
            server.kubeconfig_path().display()
        );
        if let Some(control) = server.control_endpoint() {
            ready = format!("{ready} {control}");
        }
        ready.push('\n');
        let _ = io::stdout().write_all(ready.as_bytes());
        let _ = io::stdout().flush();
        let signal = signals.await;
        server.begin_stop();
        // For load balancers, which need some time to notice the stop.
        tokio::time::sleep(shutdown_delay).await;
        server.stop_async().await;
        Ok(signal)
    })
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
