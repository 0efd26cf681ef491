//! A soak: a server under random load and disturbances for minutes or hours, with checks of everything that
//! its clients see.
//!
//! Stock clients write, read and watch. Others flood the server with frames, send half requests, or never
//! read. An administrator compacts, switches auth, takes snapshots and exchanges certificates. The server is
//! killed, asked to stop, and started again. All of it follows from a seed, except for what runs at the same
//! time.
//!
//! | module | contents |
//! |---|---|
//! | `clients` | clients that behave, clients that do not, and the administrator |
//! | `history` | what they asked for and saw, and the comparison of all of it with one order of revisions |
//! | `server` | the process, and its certificates |
//! | `run`, `report` | the order of events, and what is printed |

mod clients;
mod history;
mod report;
mod run;
mod server;

use std::error::Error;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

/// An error that is only printed.
type BoxError = Box<dyn Error + Send + Sync>;

/// Runs a server under random load and disturbances, and checks what its clients see.
///
/// Prints one line for each stop of the server, and a JSON object as the last line. The exit status is 0 if
/// nothing is wrong.
#[derive(Debug, Parser)]
struct Arguments {
    /// The duration in minutes.
    #[arg(long, default_value_t = 2.0)]
    minutes: f64,
    /// The seed of all random choices; another one for each run by default.
    #[arg(long)]
    seed: Option<u64>,
    /// The binary of revstore, or of a real etcd [default: the one in the directory of this program].
    #[arg(long)]
    server: Option<PathBuf>,
    /// Expects everything acknowledged to be there after a restart; a real etcd always does.
    #[arg(long)]
    persist: bool,
    /// The maximum resident size of the server in MiB.
    #[arg(long, default_value_t = 1_500)]
    rss_mib: u64,
    /// The maximum number of open files of the server once its clients have gone.
    #[arg(long, default_value_t = 100)]
    descriptors: u64,
    /// The maximum latency of the bystander's put and get in milliseconds, 99 of 100.
    #[arg(long, default_value_t = 250)]
    latency_ms: u64,
    /// Keeps the files of the server, its log among them, in this directory.
    #[arg(long)]
    directory: Option<PathBuf>,
    /// Further arguments of the server.
    #[arg(last = true)]
    further: Vec<OsString>,
}

/// The limits that a run is judged by, beside what its clients see.
#[derive(Clone, Copy, Debug)]
struct Limits {
    rss_mib: u64,
    descriptors: u64,
    latency: Duration,
}

fn main() -> Result<ExitCode, BoxError> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let report = runtime.block_on(run::run(&arguments))?;
    let mut out = io::stdout().lock();
    writeln!(out, "{}", report.json())?;
    Ok(ExitCode::from(u8::from(!report.is_ok())))
}
