//! What serving costs: revstore next to a real etcd, to `mem_etcd`, and to a server that stores
//! nothing and so shows what the transport alone takes.
//!
//! `run` starts the servers that it finds, puts the same load on each in turn, and prints the server's
//! CPU time per operation as Markdown. That is the figure to compare where client and server share a
//! machine; rates and latencies are told beside it. `scaling` plots what the engine's operations cost
//! among ever more keys, watches and revisions.
//!
//! | module | noun |
//! |---|---|
//! | `server` | a server under test, from its port to its end |
//! | `null` | the server that stores nothing |
//! | `client` | connections, and requests in a closed loop |
//! | `watchers` | streams that count the events they are told |
//! | `usage` | the CPU time that a process took |
//! | `scenario` | the rows of the table: load, unit and target |
//! | `report` | medians and Markdown |
//! | `plot` | the same as a picture |
//! | `scaling` | the curves |
//! | `summary` | the table of the README |

mod client;
mod null;
mod plot;
mod report;
mod scaling;
mod scenario;
mod server;
mod summary;
mod usage;
mod watchers;

use std::error::Error;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio::runtime;

use crate::report::Report;
use crate::scenario::SCENARIOS;
use crate::server::{Kind, Server};

/// What goes wrong is told as text; nobody decides anything by it.
type Failure = Box<dyn Error + Send + Sync>;

#[derive(Debug, Parser)]
#[command(about = "What serving costs, next to etcd, mem_etcd and a server that stores nothing")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compare the servers.
    Run(Run),
    /// Be the server that stores nothing.
    Null {
        #[arg(long)]
        listen: SocketAddr,
    },
    /// Measure the comparison table of the README.
    Summary(Summary),
    /// Plot what the engine's operations cost as the store grows.
    Scaling {
        /// Where the plots go.
        #[arg(long, default_value = "benches/plots")]
        out: PathBuf,
    },
}

/// The servers to measure.
#[derive(Debug, clap::Args)]
struct Binaries {
    /// revstore's binary [default: the one built beside this program].
    #[arg(long)]
    revstore: Option<PathBuf>,
    /// etcd's binary, left out if there is none [default: $ETCD, then tests/.tools/bin/etcd].
    #[arg(long)]
    etcd: Option<PathBuf>,
    /// The binary of `mem_etcd`, left out if not given.
    #[arg(long)]
    mem_etcd: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct Run {
    #[command(flatten)]
    binaries: Binaries,
    /// The binary of another build of revstore to compare with, usually from before a change.
    #[arg(long)]
    before: Option<PathBuf>,
    /// Runs to take medians of; every run starts the servers anew.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Only scenarios whose names contain one of these.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Where to draw the plot.
    #[arg(long)]
    svg: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct Summary {
    #[command(flatten)]
    binaries: Binaries,
    /// The binary of kine, left out if not given.
    #[arg(long)]
    kine: Option<PathBuf>,
    /// Runs to take medians of; every run starts the servers anew.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Starts that are measured in each run.
    #[arg(long, default_value_t = 5)]
    starts: usize,
    /// The file whose table is replaced [default: prints the table].
    #[arg(long)]
    write: Option<PathBuf>,
}

impl Binaries {
    fn kinds(&self) -> Result<Vec<Kind>, Failure> {
        let beside = std::env::current_exe()?.with_file_name("revstore");
        let revstore = self.revstore.clone().unwrap_or(beside);
        if !revstore.exists() {
            return Err(format!("there is no {}: build it first", revstore.display()).into());
        }
        let named = self
            .etcd
            .clone()
            .or_else(|| std::env::var_os("ETCD").map(PathBuf::from));
        let etcd = named.unwrap_or_else(|| PathBuf::from("tests/.tools/bin/etcd"));
        let mut kinds = vec![Kind::Revstore(revstore)];
        if etcd.exists() {
            kinds.push(Kind::Etcd(etcd));
        } else {
            eprintln!("no etcd at {}: left out", etcd.display());
        }
        kinds.extend(self.mem_etcd.clone().map(Kind::MemEtcd));
        Ok(kinds)
    }
}

impl Summary {
    async fn run(self) -> Result<(), Failure> {
        let mut kinds = self.binaries.kinds()?;
        kinds.extend(self.kine.clone().map(Kind::Kine));
        let table = summary::table(kinds, self.runs, self.starts).await?;
        match &self.write {
            Some(path) => summary::write_into(path, &table),
            None => Ok(io::stdout().lock().write_all(table.as_bytes())?),
        }
    }
}

impl Run {
    async fn run(self) -> Result<(), Failure> {
        let mut kinds = self.binaries.kinds()?;
        kinds.push(Kind::Null);
        kinds.extend(self.before.clone().map(Kind::Before));
        let wanted =
            |name: &str| self.only.is_empty() || self.only.iter().any(|it| name.contains(it));
        let mut report = Report::default();
        for run in 1..=self.runs {
            // Another server comes first in every run.
            kinds.rotate_left(1);
            let mut servers = Vec::new();
            for kind in &kinds {
                let server = Server::start(kind).await?;
                scenario::fill(&server).await?;
                servers.push(server);
            }
            for scenario in SCENARIOS.iter().filter(|it| wanted(it.name)) {
                eprintln!("run {run} of {}: {}", self.runs, scenario.name);
                for server in servers.iter().filter(|it| scenario.suits(it.kind())) {
                    match scenario.run(server).await {
                        Ok(measured) => report.add(scenario, server.kind(), measured),
                        // One row less is better than no table.
                        Err(failure) => {
                            eprintln!("{} on {}: {failure}", scenario.name, server.kind().name());
                        }
                    }
                }
            }
        }
        io::stdout()
            .lock()
            .write_all(report.markdown().as_bytes())?;
        if let Some(path) = &self.svg {
            plot::comparison(&report, path)?;
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Run(run) => on_threads(2, run.run()),
        Command::Summary(summary) => on_threads(2, summary.run()),
        Command::Null { listen } => on_threads(2, null::serve(listen)),
        Command::Scaling { out } => scaling::plot(&out),
    };
    if let Err(failure) = done {
        eprintln!("{failure}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn on_threads(
    threads: usize,
    work: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()?
        .block_on(work)
}
